/*
 * What a process keeps when it executes itself anew: plain data, bytes and descriptors, in a memfd.
 *
 * Theory of operation. A writer puts what it has into a JSON object: numbers and texts as they are, descriptors by their
 * number (they keep it through the exec; keep_inherit() takes the close-on-exec flag off), and what is long or is no text as a
 * part of its own, by its number. The reader finds all by name, so that a later version may add something and the version in front
 * need not change; what is absent is 0, NULL, or -1 for a descriptor. Each descriptor is taken by exactly one owner, and
 * gets its flag back; those that nobody takes are closed.
 *
 * The reader does not check each step: the first thing that is wrong is remembered (keep_error), everything
 * after it reads as absent, and the caller looks once at the end.
 *
 * A rehearsal reads the same with descriptors that lead nowhere: all that a reader does is tried in another process,
 * which has none of them, and does no harm to those that the writer still uses.
 */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "base/loop.h"
#include <stddef.h>

#define KEEP_VERSION 1 /* what is written has another meaning: not when something is added */

struct keep;
void keep_destroy(struct keep *k); /* NULL is fine; closes nothing */
static inline void cleanup_keep_(struct keep **k)
{
	keep_destroy(*k);
}
#define CLEANUP_KEEP CLEANUP(cleanup_keep_)

/* --- writing --- */
struct keep *keep_create(void);
void keep_fd(struct keep *k, struct js *o, const char *key, int fd); /* below 0: nothing */
void keep_push_fd(struct keep *k, struct js *list, int fd);
void keep_text(struct keep *k, struct js *o, const char *key, const char *text); /* exact; NULL: nothing */
void keep_bytes(struct keep *k, struct js *o, const char *key, const void *data,
		size_t len); /* none: nothing */
void keep_u64(struct js *o, const char *key, uint64_t n);
void keep_js(struct keep *k, struct js *o, const char *key,
	     struct js *value); /* owns value; a part of its own */
/* The memfd, positioned at its start, owned by caller. Owns root. The name says who writes. */
int keep_write(struct keep *k, struct js *root, struct err **e);
/* Everything that was written down survives an exec, or does not any more. */
int keep_inherit(const struct keep *k, bool on, struct err **e);

/* --- reading --- */
/* fd stays the caller's. NULL with *e: it is no such thing, or of another version. */
struct keep *keep_open(int fd, bool rehearsal, struct err **e);
/* First: everything else above 2 is closed. Not in a rehearsal. */
void keep_only(const struct keep *k);
bool keep_is_rehearsal(const struct keep *k);
const struct js *keep_root(const struct keep *k);
int keep_take_fd(struct keep *k, const struct js *o, const char *key); /* -1: absent */
int keep_take_mapped(struct keep *k, const struct js *o, const char *key,
		     size_t len); /* one that is mapped: it can be, in a rehearsal too */
int keep_take_value(struct keep *k, const struct js *value);
char *keep_get_text(struct keep *k, const struct js *o, const char *key); /* owned by caller; NULL */
uint64_t keep_get_u64(struct keep *k, const struct js *o, const char *key);
/* Points into k; *ret_len 0 and "" when absent. */
const char *keep_get_bytes(struct keep *k, const struct js *o, const char *key, size_t *ret_len);
struct js *keep_get_js(struct keep *k, const struct js *o,
		       const char *key);                                 /* owned by caller; NULL: absent */
void keep_wrong(struct keep *k, const char *fmt, ...) PRINTF_LIKE(2, 3); /* the first one counts */
bool keep_error(const struct keep *k, struct err **e);
size_t keep_close_rest(struct keep *k); /* descriptors that nobody took; how many */

/* --- fields of a struct --- */
enum keep_type {
	KEEP_BOOL,
	KEEP_INT,  /* int, pid_t, enum */
	KEEP_UINT, /* unsigned, uid_t */
	KEEP_U16,
	KEEP_I64,
	KEEP_U64,  /* size_t */
	KEEP_TEXT, /* char *, owned */
	KEEP_STRV,
	KEEP_FD,
	KEEP_TIMER, /* struct loop_timer, initialised before it is read */
};
struct keep_field {
	const char *name;
	enum keep_type type;
	size_t offset;
};
#define KEEP(str, type, member)                                                                              \
	{                                                                                                    \
#member, KEEP_##type, offsetof(struct str, member)                                           \
	}
void keep_save(struct keep *k, struct js *o, const struct keep_field *f, size_t n, const void *base);
/* Into a struct that is zeroed; descriptors that are absent become -1. */
void keep_load(struct keep *k, const struct js *o, const struct keep_field *f, size_t n, void *base);
