/*
 * When the lines of a log were written, without a word in the log itself: marks "up to this byte of that
 * file, not later than then", one a second at most. When there are TIMES_MAX of them the older ones are thinned,
 * so that what is long ago is known to a TIMES_FINE'th of its age: an hour to a minute, and 2048 marks last
 * a year. Kept in memory only: of an earlier run there is one mark, the
 * time of its last write.
 *
 * A time found here is never earlier than the true one: whoever asks for the lines since T is shown a few too
 * many, never too few.
 */
#pragma once
#include "base/keep.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TIMES_MAX     2048
#define TIMES_STEP_MS 1000
#define TIMES_FINE    64

struct time_mark {
	uint64_t ino, end; /* lines of this file that end at or before `end` ... */
	int64_t ms;        /* ... were written by then, wall clock */
	bool exact;        /* to the distance of the marks; false: at any time before */
};
struct times {
	struct time_mark *v;
	size_t n;
	int64_t began_ms; /* of the last mark, which grows for a step */
};
void times_add(struct times *t, uint64_t ino, uint64_t end, int64_t ms, bool exact);
/* The marks of one file are v[*lo] to v[*hi - 1]. */
void times_of_file(const struct times *t, uint64_t ino, size_t *lo, size_t *hi);
/* The mark for a line that ends at `end`, NULL when none reaches so far. */
const struct time_mark *times_find(const struct times *t, size_t lo, size_t hi, uint64_t end);
void times_copy(struct times *to, const struct times *from);
void times_finish(struct times *t);
struct js *times_save(const struct times *t);
void times_restore(struct keep *k, const struct js *o, struct times *t);
