/* What a command of `sbxsv exec` is refused: watched while it runs, told at its end. */
#pragma once
#include "base/json.h"
#include "base/loop.h"
#include "sandbox/backend.h"

struct observer;
struct refusals {
	struct js *list; /* events, each kind once with its count */
	bool app;        /* of an app, not of a command: hints name its unit */
	/* May be set: each as it comes; the event stays the list's. */
	void (*on_event)(void *data, const struct js *event);
	void *event_data;
	uint64_t lost; /* calls that nobody could judge, and kinds beyond the limit */
	struct observer *observer;
	void (*over)(void *data);
	void *data;
};
void refusals_init(struct refusals *r);
void refusals_finish(struct refusals *r);
/* Takes over the descriptors of a launch's `listening`. -1: calls would wait for ever, so the launch must end. */
int refusals_listen(struct refusals *r, struct loop *l, const struct plan *p, const struct unit *u,
		    const struct launch_audit *fds, struct err **e);
/* The command is gone. True: all is known; false: `over` is called when it is. */
bool refusals_drain(struct refusals *r, void (*over)(void *data), void *data);
/* Objects of proxyctl_denied(). */
void refusals_add_hosts(struct refusals *r, const char *app, const struct js *denied);
void refusals_print(const struct refusals *r); /* on stderr, for people */
/* {"exit","refusals","lost"} into `fd`. -1 with errno. */
int refusals_report(const struct refusals *r, int fd, int exit_code);
