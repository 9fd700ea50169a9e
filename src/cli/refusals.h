/* What a command of `sbxsv exec` was refused, collected while it runs and told at its end. */
#pragma once
#include "base/json.h"

struct refusals {
	struct js *list; /* events, each kind once with its count */
	uint64_t lost;   /* calls that nobody could judge, and kinds beyond the limit */
};
void refusals_init(struct refusals *r);
void refusals_finish(struct refusals *r);
void refusals_add(struct refusals *r, struct js *event); /* owns it */
/* Objects of proxyctl_denied(). */
void refusals_add_hosts(struct refusals *r, const char *app, const struct js *denied);
void refusals_print(const struct refusals *r); /* on stderr, for people */
/* {"exit","refusals","lost"} into `fd`. -1 with errno. */
int refusals_report(const struct refusals *r, int fd, int exit_code);
