/*
 * What a jail grants on a path, as a question that costs nothing: no allocation, no system call, no lock. It is asked by
 * threads for every call an audited app makes, while the plan itself is gone. Same answers as plan_decide(), for paths
 * that the kernel has resolved.
 */
#pragma once
#include "sandbox/plan.h"

struct judge;
struct judge *judge_create(const struct plan *p); /* copies what it needs */
void judge_destroy(struct judge *j);
/* Across an exec of the supervisor, base/keep.h. */
void judge_save(struct keep *k, struct js *o, const char *key, const struct judge *j);
struct judge *judge_restore(struct keep *k, const struct js *o, const char *key);

struct judge_answer {
	enum plan_access access;
	/* A directory that is there, and shows nothing but the way to what lies below. */
	bool way;
	bool empty;         /* by such a directory, or below one */
	const char *reason; /* of the entry; lives as long as the judge; NULL: nothing grants it */
};
/* `path`: absolute, normalised, no links in it. */
void judge_path(const struct judge *j, const char *path, struct judge_answer *ret);

/* In the order of enum observed of trace/observer.h, whose hooks the functions with void * are. */
enum judge_want { JUDGE_READ, JUDGE_WRITE, JUDGE_EXEC, JUDGE_CONNECT };
/* Which rule refuses it: "notes.app:9 Hide=", "nothing grants it"; owned by caller. */
char *judge_rule(const struct judge_answer *a);
/* What a person does to allow it, NULL where nothing does: a command, or a line of the unit. `app` NULL: an option of
 * `sbxsv exec`. `exists`: it is there on the host; `dir`: as a directory. Owned by caller. */
char *judge_hint(const struct judge *j, const char *app, enum judge_want want, const char *path, bool exists,
		 bool dir);

/* Bits: 1 it sees the path, 2 it may write it, 4 a `way`. */
unsigned judge_bits(const void *judge, const char *path);
void judge_words(const void *judge, const char *app, unsigned want, const char *path, bool exists, bool dir,
		 char **ret_rule, char **ret_hint);
void judge_gone(void *judge);
