/* The last events of each app in memory, and of the supervisor itself (app ""). */
#pragma once
#include "base/json.h"
#include "base/keep.h"
#include <stddef.h>
#include <stdint.h>

struct event_memory;
struct event_memory *event_memory_create(void);
void event_memory_destroy(struct event_memory *m);
void event_memory_add(struct event_memory *m, const char *app, uint64_t seq, const char *json, size_t len);
struct js *event_memory_last(const struct event_memory *m, const char *app,
			     size_t n); /* app NULL: all, by seq */
struct js *event_memory_save(struct keep *k, const struct event_memory *m);
void event_memory_restore(struct keep *k, const struct js *list, struct event_memory *m);
