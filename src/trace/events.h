/*
 * Events: one writer, one JSON object a line in STATE/events.jsonl (rotated) and on the stream. The format is in
 * doc/design.md section 8. Repeats are folded: the same (app, type, operation, object, rule) within one second
 * is written once, then once more with "count". Memory and disk are bounded; what was dropped is counted.
 */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "base/loop.h"

struct events;
struct events *events_create(struct loop *l, const char *dir, struct err **e);
void events_destroy(struct events *ev); /* writes what is folded */
/* Owns `event`: an object with at least "type"; seq and timestamp are added. */
void events_emit(struct events *ev, struct js *event);
/* printf text as {"type":type,"app":app,"message":...} */
void events_note(struct events *ev, const char *type, const char *app, const char *fmt, ...) PRINTF_LIKE(4, 5);
typedef void events_fn(void *data, const char *json, size_t len, const char *app); /* one line without newline */
struct events_sub;
struct events_sub *events_subscribe(struct events *ev, events_fn *fn, void *data);
void events_unsubscribe(struct events_sub *s);
/* The last n (of app, or all when NULL) from memory, oldest first: an array; owned by caller. */
struct js *events_last(const struct events *ev, const char *app, size_t n);
uint64_t events_dropped(const struct events *ev);
const char *events_path(const struct events *ev);
