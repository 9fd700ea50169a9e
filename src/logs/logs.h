/*
 * Captured output of one app: a pipe read in whole chunks, written in whole lines to a rotated file and kept
 * in a ring in memory. The app never blocks on a full disk or a slow reader: what cannot be written is
 * dropped and counted, whole lines only, and a line that says so is written when there is room again.
 *
 * Theory of operation. Each launch has its own pipe, for both its streams: the order of what an app writes to
 * them is worth more than knowing which one it was. The pipe of an earlier launch is read until its last
 * writer is gone. A readable pipe is read one chunk at a time (the loop comes back while there is more, so a
 * chatty app cannot starve the others), cut into lines, and the lines of a chunk go to the file in one write,
 * to the ring, and to followers. A line that has not ended waits in the pipe's own buffer; one longer than
 * LOGS_LINE_MAX is cut there and marked. Bytes are kept as they are: whoever shows them escapes them.
 * Everything is bounded: the ring (200 lines, 256 KiB), the marks of time (times.h), the waiting line (64 KiB a pipe), the files (max_size
 * x max_files).
 */
#pragma once
#include "base/err.h"
#include "base/keep.h"
#include "base/loop.h"
#include "base/str.h"
#include "logs/back.h"

#define LOGS_LINE_MAX (64u << 10)
#define LOGS_SPLIT    " [sbxsv: line split]"

struct logs;                                               /* one app's log */
enum logs_target { LOGS_FILE, LOGS_SYSLOG, LOGS_JOURNAL }; /* for the last two see sink.h */
struct logs_config {
	enum logs_target target;
	const char *app;    /* name in syslog and journal; NULL is fine for a file */
	const char *socket; /* of syslog or journal; NULL: the machine's */
	const char *dir;    /* private directory, made 0700 */
	const char *file;   /* base name, "notes.log"; old ones are notes.log.1 ... */
	uint64_t max_size;
	unsigned max_files; /* in all, the current one included */
	bool timestamps;
};
struct logs_stats {
	uint64_t lines, bytes, dropped_bytes, dropped_lines;
	const char *last_error; /* "notes.log: No space left on device"; owned by logs; NULL */
	bool losing;            /* right now; false: last_error is history */
};
/* Without newline, as in the file (with its timestamp if there is one); for followers. A last call with line
 * NULL says that the log goes away: the follower is gone then and must not be stopped any more. */
typedef void logs_line_fn(void *data, const char *line, size_t len);
typedef void logs_trouble_fn(void *data, const char *what); /* first loss of a streak, and its end */

/* Never fails for the disk's sake: the file is made when there is something to write. */
struct logs *logs_create(struct loop *l, const struct logs_config *c, struct err **e);
void logs_destroy(
	struct logs *l); /* reads and writes what is there; may call followers and trouble once more */
void logs_configure(struct logs *l, const struct logs_config *c);
void logs_set_trouble(struct logs *l, logs_trouble_fn *fn, void *data);
/* A new pipe for a launch: returns the write end (caller closes it after the launch); the read end is ours
 * until EOF. */
int logs_open_pipe(struct logs *l, struct err **e);
/* The same; `mark` is put before each of its lines. */
int logs_open_pipe_marked(struct logs *l, const char *mark, struct err **e);
/* A line of the supervisor's own in the app's log ("started, pid 41"). */
void logs_note(struct logs *l, const char *text);
/* The same, in the file with the next other line or after 100 ms: the first line of a log makes a file, and
 * when many apps start that has time. */
void logs_note_soon(struct logs *l, const char *text);
void logs_drain(struct logs *l); /* reads what is in the pipes now */
/* Last n lines, oldest first, at most 200: of the ring, and before them of the file an earlier run left. NUL
 * bytes become
 * "\x00". Owned by caller. */
void logs_tail(const struct logs *l, size_t n, struct strv *ret);
/* The last `n` lines of those since `since_ms` (0: of all), with the rotated files; read on with
 * logs_back_next(), which needs the log no more. What comes after them is what a follower is told who starts
 * before the loop goes on. */
struct logs_back *logs_back_start(struct logs *l, size_t n, int64_t since_ms);
void logs_split_stamp(const struct logs *l, struct back_line *line); /* of a line as a follower gets it */
void logs_stats(const struct logs *l, struct logs_stats *ret);
/* Callbacks may stop their own or any other follower. */
struct logs_follow;
struct logs_follow *logs_follow_start(struct logs *l, logs_line_fn *fn, void *data);
void logs_follow_stop(struct logs_follow *f);
const char *logs_path(const struct logs *l);        /* NULL: not in a file */
const char *logs_target_name(const struct logs *l); /* as in the unit */
bool logs_target_find(const char *name, enum logs_target *ret);
/* Across an exec of the supervisor, base/keep.h. Restored into a log that was just created with the same configuration. */
struct js *logs_save(struct keep *k, const struct logs *l);
void logs_restore(struct keep *k, const struct js *o, struct logs *l);
