/* Counting repeats of violations instead of writing them, one second at a time. */
#pragma once
#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>

enum fold_verdict { FOLD_WRITE, FOLD_COUNTED, FOLD_DROPPED };
struct fold;
struct fold *fold_create(void);
void fold_destroy(struct fold *f);
/* How many violations an event stands for: its "count", when it was folded before it came (by sbxsv-proxy),
 * or 1. */
uint64_t fold_weight(const struct js *event);
/* What to do with this event. FOLD_WRITE: first of its kind in this second; a copy is kept. */
enum fold_verdict fold_add(struct fold *f, const struct js *event, int64_t now_ms);
/* Hands out what is over at `now_ms` (INT64_MAX: everything): the event with "count", or the note on what an
 * app had too many of. `emit` owns the object. Returns when to come again (monotonic ms), or -1 when nothing
 * is kept. */
int64_t fold_expire(struct fold *f, int64_t now_ms, void (*emit)(void *data, struct js *event), void *data);
