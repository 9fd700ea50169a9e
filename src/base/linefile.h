/*
 * An append-only file of whole lines that rotates by size: app logs and the event file.
 *
 * A write that fails (full disk, deleted directory, no rights, no fds) loses whole lines, never halves: a
 * short write is cut back to the last line end. The loss is counted, reported once per streak, and the next
 * write that succeeds is preceded by a line that says what is missing. A file or directory that was removed
 * or renamed is made again.
 */
#pragma once
#include "base/err.h"
#include "base/keep.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct linefile;
struct linefile_config {
	const char *dir;  /* absolute; made 0700 when missing */
	const char *file; /* base name; older ones are FILE.1 (newest) ... FILE.(max_files-1) */
	uint64_t max_size;
	unsigned max_files; /* in all, the current one included; at least 1 */
};
struct linefile_hooks {
	/* The line (with its newline) that stands for what was lost; owned by the linefile. */
	char *(*mark)(void *data, uint64_t lines, uint64_t bytes, const char *error);
	void (*trouble)(void *data, const char *what); /* first loss of a streak, and its end; NULL is fine */
	void *data;
};
struct linefile *linefile_create(const struct linefile_config *c, const struct linefile_hooks *h);
void linefile_destroy(struct linefile *f);
/* A changed dir or file name takes effect with the next write. */
void linefile_configure(struct linefile *f, const struct linefile_config *c);
/* Appends `text`, which must end in a newline. -1: some or all of it was dropped (and counted). */
int linefile_write(struct linefile *f, const char *text, size_t len);
/* During a streak of losses: tries to write the mark. True when there is no streak (any more). */
bool linefile_retry(struct linefile *f);
bool linefile_losing(const struct linefile *f);
uint64_t linefile_dropped_lines(const struct linefile *f);
uint64_t linefile_dropped_bytes(const struct linefile *f);
const char *linefile_error(const struct linefile *f); /* "notes.log: No space left on device"; NULL */
const char *linefile_path(const struct linefile *f);
/* The file that was written last and its size. False when there is none. */
bool linefile_at(const struct linefile *f, uint64_t *ret_ino, uint64_t *ret_size);
/* The file as it was found when it was created here (or configured); NULL when there was none. */
const struct stat *linefile_found(const struct linefile *f);
/* At most the last `max` bytes that were in the file when it was created here (or configured), beginning at a
 * line start. Owned by the caller; NULL when there is nothing. */
char *linefile_earlier(const struct linefile *f, size_t max, size_t *ret_len);
/* Across an exec, base/keep.h: what was lost, and what is "earlier". Restored into one that was created as before. */
struct js *linefile_save(struct keep *k, const struct linefile *f);
void linefile_restore(struct keep *k, const struct js *o, struct linefile *f);
