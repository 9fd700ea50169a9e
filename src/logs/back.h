/*
 * Looking back: the old lines of a log, found from the end of its newest file on and then read forward, one
 * block at a time, by whoever shows them. All files are opened at once, so that a rotation on the way takes
 * nothing away and what is written meanwhile is not seen: that is for followers.
 *
 * Where the files do not have what was written (a full disk, another target, a file that was removed), the
 * ring in memory has at least its last lines.
 */
#pragma once
#include "logs/ring.h"
#include "logs/times.h"
#include <stdbool.h>
#include <stdint.h>

#define BACK_BYTES (64u << 20) /* as far back as that: it is read in one go */
#define BACK_FILES 64

struct back_source {
	const struct ring *ring;
	const struct times *times;
	const char *path; /* NULL: the ring only */
	unsigned max_files;
	bool stamps; /* lines begin with their time */
};
struct back_line {
	const char *text; /* not terminated; without newline and stamp */
	size_t len;
	const char *stamp; /* the text with its stamp begins here */
	int64_t ms;        /* wall clock; 0: not known */
};
struct logs_back;
/* The last `n` lines of those since `since_ms` (0: of all). */
struct logs_back *back_open(const struct back_source *s, size_t n, int64_t since_ms);
bool logs_back_next(struct logs_back *b, struct back_line *ret); /* *ret is good until the next call */
void logs_back_close(struct logs_back *b);                       /* NULL is fine */
/* Takes a line's stamp off if it has one. */
void back_split_stamp(bool stamps, struct back_line *line);
