/*
 * Events: one writer, one JSON object a line in STATE/events.jsonl (rotated) and on the stream. The format is
 * in doc/design.md section 8.
 *
 * Theory of operation. An event is printed once, with seq and timestamp in front; the same text goes to the
 * file, to memory and to subscribers. Only violations can come faster than people do things, so only they are
 * folded: the same (app, operation, object, rule, action) within one second is written once, then once more
 * with "count" (how many more there were). An app gets at most EVENTS_APP_RATE different ones a second; what
 * is above is counted and said in one event a second ("dropped"). Memory is bounded for each app by itself,
 * so that one app's flood does not push out what others did. seq goes on where the file of an earlier run
 * ended.
 */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "base/keep.h"
#include "base/loop.h"

#define EVENTS_FILE       "events.jsonl"
#define EVENTS_APP_RATE   64 /* different violations of one app a second */
#define EVENTS_APP_LINES  64 /* in memory */
#define EVENTS_APP_BYTES  (32u << 10)
#define EVENTS_APPS       512 /* in memory; beyond, the one longest silent is forgotten */
#define EVENTS_LINE_MAX   (8u << 10)
#define EVENTS_FILE_SIZE  (10u << 20)
#define EVENTS_FILE_COUNT 5

struct events;
struct events *events_create(struct loop *l, const char *dir, struct err **e); /* only OOM-like errors fail */
void events_destroy(struct events *ev);                                        /* writes what is folded */
/* Owns `event`: an object with at least "type"; seq and timestamp are added. One that is not, or that is
 * larger than EVENTS_LINE_MAX, is dropped and counted. */
void events_emit(struct events *ev, struct js *event);
/* printf text as {"type":type,"app":app,"message":...} */
void events_note(struct events *ev, const char *type, const char *app, const char *fmt, ...)
	PRINTF_LIKE(4, 5);
/* One line without newline; `app` NULL when the event has none. A callback may end its own or another
 * subscription. */
typedef void events_fn(void *data, const char *json, size_t len, const char *app);
struct events_sub;
struct events_sub *events_subscribe(struct events *ev, events_fn *fn, void *data);
void events_unsubscribe(struct events_sub *s);
/* The last n (of app, or all when NULL) from memory, oldest first: an array; owned by caller. */
struct js *events_last(const struct events *ev, const char *app, size_t n);
uint64_t events_dropped(
	const struct events *ev); /* not written, for whatever reason; repeats that were folded are not */
const char *events_path(const struct events *ev);
const char *events_error(const struct events *ev); /* why the file could not be written lately; NULL */
/* Across an exec of the supervisor, base/keep.h. settle: what is folded is written. */
void events_settle(struct events *ev);
struct js *events_save(struct keep *k, const struct events *ev);
struct events *events_restore(struct keep *k, const struct js *o, struct loop *l, const char *dir);
