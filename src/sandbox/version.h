/*
 * The version of a program, by running it with --version: inside of a jail, without a network, and for at most 4 s.
 * Never outside: what a path leads to is the app's own program as often as not.
 */
#pragma once
#include "sandbox/backend.h"

struct version_query;
/* Called once, from the loop: "v18.20.4" and NULL, or NULL and why. The query is over and nothing of it runs. */
typedef void version_done_fn(void *data, const char *version, const struct err *why);
/* `p`: the jail, which is the query's from now on; its program and arguments are replaced. NULL with *e. */
struct version_query *version_ask(struct loop *l, const struct backend *b, struct plan *p,
				  const char *program, int init_fd, int supervisor_pidfd,
				  version_done_fn *done, void *data, struct err **e);
void version_stop(struct version_query *q); /* kills; `done` follows */
void version_destroy(
	struct version_query *q); /* without `done`: when the loop does not run any more, or from `done` */
/* The first "1.2.3", "v1.2" or "1" of a text, at most `cap` bytes with the NUL; false: there is none. */
bool version_find(const char *text, char *ret, size_t cap);
