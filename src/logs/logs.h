/*
 * Captured output of one app: a pipe read in whole chunks, written in whole lines to a rotated file and kept in
 * a ring in memory. The app never blocks on a full disk or a slow reader: what cannot be written is dropped and
 * counted, whole lines only, and a line that says so is written when there is room again.
 */
#pragma once
#include "base/err.h"
#include "base/loop.h"
#include "base/str.h"

struct logs; /* one app's log */
struct logs_config {
	const char *dir;  /* private directory, made 0700 */
	const char *file; /* base name, "notes.log"; old ones are notes.log.1 ... */
	uint64_t max_size;
	unsigned max_files;
	bool timestamps;
};
struct logs_stats {
	uint64_t lines, bytes, dropped_bytes, dropped_lines;
	char *last_error; /* "notes.log: No space left on device"; owned by logs; NULL */
};
typedef void logs_line_fn(void *data, const char *line, size_t len); /* without newline; for followers */
typedef void logs_trouble_fn(void *data, const char *what); /* first loss of a streak, and its end */

struct logs *logs_create(struct loop *l, const struct logs_config *c, struct err **e); /* only OOM-like errors fail */
void logs_destroy(struct logs *l);
void logs_configure(struct logs *l, const struct logs_config *c);
void logs_set_trouble(struct logs *l, logs_trouble_fn *fn, void *data);
/* A new pipe for a launch: returns the write end (caller closes it after the launch); the read end is ours until EOF. */
int logs_open_pipe(struct logs *l, struct err **e);
/* A line of the supervisor's own in the app's log ("started, pid 41"). */
void logs_note(struct logs *l, const char *text);
void logs_drain(struct logs *l); /* reads what is in the pipes now */
/* Last n lines from the ring, oldest first; owned by caller. */
void logs_tail(const struct logs *l, size_t n, struct strv *ret);
void logs_stats(const struct logs *l, struct logs_stats *ret);
struct logs_follow;
struct logs_follow *logs_follow_start(struct logs *l, logs_line_fn *fn, void *data);
void logs_follow_stop(struct logs_follow *f);
const char *logs_path(const struct logs *l);
