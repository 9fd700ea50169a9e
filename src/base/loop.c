#include "base/loop.h"
#include "base/clock.h"
#include "base/str.h"
#include <ev.h>
#include <string.h>

#define GAP_MS 1000

struct loop {
	struct ev_loop *ev;
	unsigned flags;
	struct loop_timer *timers; /* active ones, only with LOOP_SHIFT_GAPS */
	int64_t seen_ms;           /* when the last wait ended */
};

_Static_assert(sizeof(struct ev_io) <= sizeof(((struct loop_io *)0)->ev_), "ev_io fits");
_Static_assert(sizeof(struct ev_timer) <= sizeof(((struct loop_timer *)0)->ev_), "ev_timer fits");
_Static_assert(sizeof(struct ev_signal) <= sizeof(((struct loop_signal *)0)->ev_), "ev_signal fits");
_Static_assert(sizeof(struct ev_idle) <= sizeof(((struct loop_defer *)0)->ev_), "ev_idle fits");

static void timer_arm(struct loop_timer *w);

/* Called by libev right after the kernel wait and before it looks at timers. */
static void after_wait(struct ev_loop *ev) EV_THROW
{
	struct loop *l = ev_userdata(ev);
	int64_t now = clk_mono_ms(), first = INT64_MAX, gap;

	/* Since the last round: the first deadline may be the one that nobody could meet, so it moves by all
	 * of it. */
	gap = now - l->seen_ms;
	l->seen_ms = now;
	for (struct loop_timer *t = l->timers; t; t = t->next)
		if (t->due_ms < first)
			first = t->due_ms;
	if (first == INT64_MAX || now - first <= GAP_MS)
		return;
	ev_now_update(ev);
	for (struct loop_timer *t = l->timers; t; t = t->next) {
		t->due_ms += gap;
		timer_arm(t);
	}
}

static void before_wait(struct ev_loop *ev) EV_THROW
{
	(void)ev;
}

struct loop *loop_create(unsigned flags)
{
	struct loop *l = xcalloc(1, sizeof *l);

	l->flags = flags;
	l->seen_ms = clk_mono_ms();
	/* EVFLAG_NOENV: the environment must not choose the backend. Signals need no signalfd here. */
	l->ev = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
	if (!l->ev) {
		free(l);
		return NULL;
	}
	ev_set_userdata(l->ev, l);
	if (flags & LOOP_SHIFT_GAPS)
		ev_set_loop_release_cb(l->ev, before_wait, after_wait);
	return l;
}

void loop_destroy(struct loop *l)
{
	if (!l)
		return;
	ev_loop_destroy(l->ev);
	free(l);
}

void loop_run(struct loop *l)
{
	ev_run(l->ev, 0);
}

uint64_t loop_turns(const struct loop *l)
{
	return ev_iteration(l->ev);
}

void loop_break(struct loop *l)
{
	ev_break(l->ev, EVBREAK_ALL);
}

int64_t loop_now_ms(struct loop *l)
{
	(void)l;
	return clk_mono_ms();
}

static void io_cb(struct ev_loop *ev, struct ev_io *e, int revents)
{
	struct loop_io *w = (struct loop_io *)(void *)e;

	(void)ev;
	w->fn(w, (revents & EV_READ ? LOOP_READ : 0u) | (revents & EV_WRITE ? LOOP_WRITE : 0u));
}

static struct ev_io *io_ev(struct loop_io *w)
{
	return (struct ev_io *)(void *)w->ev_;
}

void loop_io_init(struct loop *l, struct loop_io *w, int fd, unsigned events, loop_io_fn *fn, void *data)
{
	memset(w, 0, sizeof *w);
	w->loop = l;
	w->fd = fd;
	w->fn = fn;
	w->data = data;
	ev_io_init(io_ev(w), io_cb, fd, 0);
	loop_io_set(w, events);
}

void loop_io_set(struct loop_io *w, unsigned events)
{
	if (!w->loop || w->events == events)
		return;
	ev_io_stop(w->loop->ev, io_ev(w));
	w->events = events;
	if (!events)
		return;
	/* Not ev_io_set(): that says the descriptor may be another file now, and costs an epoll_ctl() even if
	 * nothing changes. */
	ev_io_modify(io_ev(w), (events & LOOP_READ ? EV_READ : 0) | (events & LOOP_WRITE ? EV_WRITE : 0));
	ev_io_start(w->loop->ev, io_ev(w));
}

void loop_io_rebind(struct loop_io *w, unsigned events, loop_io_fn *fn, void *data)
{
	w->fn = fn;
	w->data = data;
	loop_io_set(w, events);
}

void loop_io_first(struct loop_io *w)
{
	unsigned events = w->events;

	loop_io_set(w, 0); /* libev takes a new priority only while the watcher is inactive */
	ev_set_priority(io_ev(w), EV_MAXPRI);
	loop_io_set(w, events);
}

void loop_io_stop(struct loop_io *w)
{
	loop_io_set(w, 0);
}

static struct ev_timer *timer_ev(struct loop_timer *w)
{
	return (struct ev_timer *)(void *)w->ev_;
}

static void timer_unlink(struct loop_timer *w)
{
	if (!w->active)
		return;
	w->active = false;
	if (!(w->loop->flags & LOOP_SHIFT_GAPS))
		return;
	if (w->prev)
		w->prev->next = w->next;
	else
		w->loop->timers = w->next;
	if (w->next)
		w->next->prev = w->prev;
	w->prev = w->next = NULL;
}

static void timer_cb(struct ev_loop *ev, struct ev_timer *e, int revents)
{
	struct loop_timer *w = (struct loop_timer *)(void *)e;

	(void)ev;
	(void)revents;
	if (w->due_ms > w->armed_ms) { /* it was put off meanwhile */
		timer_arm(w);
		return;
	}
	timer_unlink(w);
	w->fn(w);
}

void loop_timer_init(struct loop *l, struct loop_timer *w, loop_timer_fn *fn, void *data)
{
	memset(w, 0, sizeof *w);
	w->loop = l;
	w->fn = fn;
	w->data = data;
	ev_timer_init(timer_ev(w), timer_cb, 0., 0.);
}

static void timer_arm(struct loop_timer *w)
{
	int64_t left = w->due_ms - clk_mono_ms();

	ev_timer_stop(w->loop->ev, timer_ev(w));
	ev_timer_set(timer_ev(w), left > 0 ? (double)left / 1000. : 0., 0.);
	ev_timer_start(w->loop->ev, timer_ev(w));
	w->armed_ms = w->due_ms;
}

/*
 * A deadline that is put off costs nothing: libev wakes it when it was due first, and then it goes on. (A
 * connection does that several times, and most end before the first.)
 */
void loop_timer_start(struct loop_timer *w, int64_t after_ms)
{
	int64_t due_ms = clk_mono_ms() + (after_ms > 0 ? after_ms : 0);
	bool shifts = w->loop->flags & LOOP_SHIFT_GAPS;

	if (w->active && !shifts && due_ms >= w->armed_ms) {
		w->due_ms = due_ms;
		return;
	}
	loop_timer_stop(w);
	ev_now_update(w->loop->ev);
	w->active = true;
	w->due_ms = due_ms;
	if (shifts) {
		w->next = w->loop->timers;
		w->prev = NULL;
		if (w->next)
			w->next->prev = w;
		w->loop->timers = w;
	}
	timer_arm(w);
}

void loop_timer_stop(struct loop_timer *w)
{
	if (!w->loop)
		return;
	timer_unlink(w);
	ev_timer_stop(w->loop->ev, timer_ev(w));
}

static void signal_cb(struct ev_loop *ev, struct ev_signal *e, int revents)
{
	struct loop_signal *w = (struct loop_signal *)(void *)e;

	(void)ev;
	(void)revents;
	w->fn(w);
}

void loop_signal_init(struct loop *l, struct loop_signal *w, int signum, loop_signal_fn *fn, void *data)
{
	struct ev_signal *e = (struct ev_signal *)(void *)w->ev_;

	memset(w, 0, sizeof *w);
	w->loop = l;
	w->fn = fn;
	w->data = data;
	w->signum = signum;
	ev_signal_init(e, signal_cb, signum);
	ev_signal_start(l->ev, e);
}

void loop_signal_stop(struct loop_signal *w)
{
	if (w->loop)
		ev_signal_stop(w->loop->ev, (struct ev_signal *)(void *)w->ev_);
}

static struct ev_idle *defer_ev(struct loop_defer *w)
{
	return (struct ev_idle *)(void *)w->ev_;
}

static void defer_cb(struct ev_loop *ev, struct ev_idle *e, int revents)
{
	struct loop_defer *w = (struct loop_defer *)(void *)e;

	(void)revents;
	ev_idle_stop(ev, e);
	w->active = false;
	w->fn(w);
}

void loop_defer_init(struct loop *l, struct loop_defer *w, loop_defer_fn *fn, void *data)
{
	memset(w, 0, sizeof *w);
	w->loop = l;
	w->fn = fn;
	w->data = data;
	ev_idle_init(defer_ev(w), defer_cb);
}

void loop_defer_start(struct loop_defer *w)
{
	if (w->active)
		return;
	w->active = true;
	ev_idle_start(w->loop->ev, defer_ev(w));
}

void loop_defer_stop(struct loop_defer *w)
{
	if (!w->loop || !w->active)
		return;
	w->active = false;
	ev_idle_stop(w->loop->ev, defer_ev(w));
}
