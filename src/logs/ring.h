/* The last lines of one app in memory: at most RING_LINES lines and RING_BYTES bytes. */
#pragma once
#include "base/keep.h"
#include <stddef.h>
#include <stdint.h>

#define RING_LINES 200
#define RING_BYTES (256u << 10)

struct ring_line {
	char *text; /* not terminated */
	size_t len;
	int64_t ms; /* wall clock */
};
struct ring {
	struct ring_line *v; /* circular, `cap` long: it grows, because most apps say little */
	size_t first, n, cap, bytes;
};
void ring_add(struct ring *r, const char *text, size_t len, int64_t ms); /* len <= RING_BYTES */
const struct ring_line *ring_at(const struct ring *r, size_t i);         /* 0 is the oldest */
void ring_finish(struct ring *r);
void ring_save(struct keep *k, struct js *o, const char *key, const struct ring *r);
void ring_restore(struct keep *k, const struct js *o, const char *key, struct ring *r);
