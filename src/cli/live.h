/* The rules that an app got at run time, when there is a supervisor that can be asked. */
#pragma once
#include "cli/cli.h"
#include "sandbox/rules.h"

struct live_view {
	bool asked;            /* a supervisor that knows the app answered */
	struct rules_extra *v; /* points into `status` */
	size_t n;
	struct js *status;
};
/* Says nothing when there is none. */
void live_view_get(const struct cli *c, const char *app, struct live_view *ret);
void live_view_finish(struct live_view *l);
