/*
 * What each app was refused, each kind once: the violation events of all sources, folded over time and kept in memory. It is
 * what `sbxsv violations` and status show; the events themselves are in the file. A kind is an operation on an object by a rule.
 * Bounded for each app by itself: when there are too many kinds the one longest silent goes, and stays in the total.
 */
#pragma once
#include "base/json.h"
#include "base/keep.h"
#include <stdint.h>

#define REFUSED_KINDS 128         /* of one app */
#define REFUSED_BYTES (64u << 10) /* of one app */
#define REFUSED_APPS  512

struct refused;
struct refused *refused_create(void);
void refused_destroy(struct refused *r);
/* An event of type "violation" with its "app"; its "count", or 1. */
void refused_add(struct refused *r, const struct js *event, int64_t wall_ms);
void refused_lost(struct refused *r, const char *app, uint64_t n); /* calls that were not judged */
void refused_forget(struct refused *r, const char *app);
/* Newest first, of `app` or of all (NULL), those seen at `since_ms` (wall clock) or later: the event without "type" and "action",
 * with "count" (since the app is known), "first" and "last". Owned by caller. */
struct js *refused_list(const struct refused *r, const char *app, int64_t since_ms, size_t max);
uint64_t refused_total(const struct refused *r,
		       const char *app); /* however often, kinds that went included */
uint64_t refused_lost_of(const struct refused *r, const char *app);
/* Across an exec of the supervisor, base/keep.h. NULL: nothing was refused. */
struct js *refused_save(struct keep *k, const struct refused *r, const char *app);
void refused_restore(struct keep *k, const struct js *o, struct refused *r, const char *app);
