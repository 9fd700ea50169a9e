/*
 * `sbxsv run` as a member of the supervisor, if there is one: the other end of src/ctl/join.c. It works without, too; then
 * it looks for one from time to time, so that a supervisor that was restarted shows what runs.
 */
#pragma once
#include "base/json.h"
#include "base/loop.h"

struct member_hooks {
	/* Rules given at run time, each time they change; log: write end of the app's log, to be taken over, or -1. */
	void (*rules)(void *data, const struct js *rules, int *log);
	void (*unit)(void *data);                      /* the unit changed */
	void (*stop)(void *data);                      /* it is to end */
	void (*refused)(void *data, const char *text); /* it may not be a member */
	void (*alone)(void *data);                     /* the supervisor is gone, or was never there */
	void *data;
};
struct member;
/* Nothing is called before the loop runs. */
struct member *member_create(struct loop *l, const char *runtime, const char *app,
			     const struct member_hooks *hooks);
void member_destroy(struct member *m);
bool member_joined(const struct member *m); /* rules have come, and it is there still */
/* There is a jail: {"t":"started",..} without "t". Remembered, for a supervisor that comes later. Owns what. */
void member_started(struct member *m, struct js *what);
void member_say(struct member *m, struct js *message); /* owns it; dropped when there is nobody */
