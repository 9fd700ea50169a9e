/*
 * The event loop: the only user of libev. Watchers live in the caller's storage (init/stop, no heap), because
 * a proxy has thousands of them.
 *
 * Timers are monotonic. In a loop made with LOOP_SHIFT_GAPS (the supervisor), when a timer is found more than a second
 * overdue (suspend, SIGSTOP), every running timer is shifted by the time since the loop last woke, so that no deadline
 * passes while nobody could have met it.
 *
 * A callback may stop or free its own watcher and any other.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct loop;
enum { LOOP_SHIFT_GAPS = 1 };
enum { LOOP_READ = 1, LOOP_WRITE = 2 };

struct loop *loop_create(unsigned flags); /* NULL with errno */
void loop_destroy(struct loop *l);
void loop_run(struct loop *l); /* until loop_break() */
uint64_t loop_turns(const struct loop *l); /* of loop_run() so far; async-signal-safe */
void loop_break(struct loop *l);
int64_t loop_now_ms(struct loop *l); /* monotonic, cached for this iteration */

struct loop_io;
typedef void loop_io_fn(struct loop_io *w, unsigned events);
struct loop_io {
	uint64_t ev_[8]; /* struct ev_io */
	struct loop *loop;
	loop_io_fn *fn;
	void *data; /* the caller's */
	int fd;
	unsigned events;
};
/* Starts watching when events is not 0. `fd` stays the caller's and must stay open until stop. */
void loop_io_init(struct loop *l, struct loop_io *w, int fd, unsigned events, loop_io_fn *fn, void *data);
void loop_io_set(struct loop_io *w, unsigned events); /* 0: stops */
/* The same descriptor, from now on for somebody else: no system call when what it is watched for stays. */
void loop_io_rebind(struct loop_io *w, unsigned events, loop_io_fn *fn, void *data);
/* Of all that is ready in one iteration, this one's callback runs first. Call it right after init. */
void loop_io_first(struct loop_io *w);
void loop_io_stop(struct loop_io *w); /* a zeroed or stopped watcher is fine */

struct loop_timer;
typedef void loop_timer_fn(struct loop_timer *w);
struct loop_timer {
	uint64_t ev_[8]; /* struct ev_timer */
	struct loop *loop;
	loop_timer_fn *fn;
	void *data;
	int64_t due_ms, armed_ms; /* when it is to run, and when libev wakes it */
	struct loop_timer *prev, *next;
	bool active;
};
void loop_timer_init(struct loop *l, struct loop_timer *w, loop_timer_fn *fn, void *data);
void loop_timer_start(struct loop_timer *w, int64_t after_ms); /* one shot; restarts a running one */
void loop_timer_stop(struct loop_timer *w);
static inline bool loop_timer_active(const struct loop_timer *w)
{
	return w->active;
}
/* Of an active timer of a loop with LOOP_SHIFT_GAPS: when it fires, monotonic; never 0. */
static inline int64_t loop_timer_due_ms(const struct loop_timer *w)
{
	return w->due_ms > 0 ? w->due_ms : 1;
}

struct loop_signal;
typedef void loop_signal_fn(struct loop_signal *w);
struct loop_signal {
	uint64_t ev_[8]; /* struct ev_signal */
	struct loop *loop;
	loop_signal_fn *fn;
	void *data;
	int signum;
};
void loop_signal_init(struct loop *l, struct loop_signal *w, int signum, loop_signal_fn *fn, void *data);
void loop_signal_stop(struct loop_signal *w);

/* Runs fn once in the next iteration, before it blocks. */
struct loop_defer;
typedef void loop_defer_fn(struct loop_defer *w);
struct loop_defer {
	uint64_t ev_[8]; /* struct ev_idle */
	struct loop *loop;
	loop_defer_fn *fn;
	void *data;
	bool active;
};
void loop_defer_init(struct loop *l, struct loop_defer *w, loop_defer_fn *fn, void *data);
void loop_defer_start(struct loop_defer *w);
void loop_defer_stop(struct loop_defer *w);
