/* The threads of observers, and who waits for a call while an observer has no ear. See observer.h. */
#include "trace/observer_internal.h"
#include "base/str.h"
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>

enum { STACK_BYTES = 64 << 10, CALLS_AT_ONCE = 16 };

/* --- threads, on stacks of their own: libc would keep what ended threads used of theirs --- */

static size_t guard_bytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static void *stack_map(void)
{
	void *p = mmap(NULL, guard_bytes() + STACK_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (mprotect(p, guard_bytes(), PROT_NONE) == 0)
		return p;
	(void)munmap(p, guard_bytes() + STACK_BYTES);
	return NULL;
}

static void stack_unmap(void *p)
{
	(void)munmap(p, guard_bytes() + STACK_BYTES);
}

/* 0, or an errno. */
static int thread_start(struct thread *t, void *(*fn)(void *), struct observer *o)
{
	pthread_attr_t a;
	sigset_t all, old;
	int r;

	t->stack = stack_map();
	if (!t->stack)
		return ENOMEM;
	(void)pthread_attr_init(&a);
	(void)pthread_attr_setstack(&a, (char *)t->stack + guard_bytes(), STACK_BYTES);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the loop's */
	r = pthread_create(&t->id, &a, fn, o);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&a);
	t->there = r == 0;
	if (r)
		stack_unmap(t->stack);
	return r;
}

static bool ended(pthread_t t, unsigned wait_ms)
{
	struct timespec until;

	if (!wait_ms)
		return pthread_tryjoin_np(t, NULL) == 0;
	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += wait_ms / 1000;
	until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	return pthread_clockjoin_np(t, NULL, CLOCK_MONOTONIC, &until) == 0; /* glibc 2.31 */
}

static bool thread_join(struct thread *t, unsigned wait_ms)
{
	if (!t->there)
		return true;
	if (!ended(t->id, wait_ms))
		return false;
	t->there = false;
	stack_unmap(t->stack);
	return true;
}

int ear_start(struct observer *o)
{
	uint64_t n;

	(void)!read(o->stop, &n, sizeof n); /* that was for the one before */
	o->ear_again = false;
	(void)pthread_mutex_lock(&o->lock);
	o->ear_ended = o->ear_idle = false;
	(void)pthread_mutex_unlock(&o->lock);
	return thread_start(&o->ear, ear_main, o);
}

bool ear_join(struct observer *o, unsigned wait_ms)
{
	return thread_join(&o->ear, wait_ms);
}

static unsigned judges; /* threads; the loop's own */

bool judge_start(struct observer *o)
{
	if (judges >= JUDGES_MAX || thread_start(&o->judge, judge_main, o) != 0)
		return false;
	judges++;
	return true;
}

bool judge_join(struct observer *o, unsigned wait_ms)
{
	bool there = o->judge.there;

	if (!thread_join(&o->judge, wait_ms))
		return false;
	judges -= there;
	return true;
}

/*
 * --- no ear: the loop waits ---
 *
 * In a set of its own, which the loop watches as one descriptor: a listener has a duplicate in its jail, so closing it does
 * not take it out of a set, and the loop's own set is not told.
 */

static struct {
	int set; /* epoll; while `n` */
	unsigned n;
	struct loop_io io;
} quiet;

static void on_call(struct loop_io *w, unsigned events)
{
	struct epoll_event e[CALLS_AT_ONCE];
	int n = epoll_wait(quiet.set, e, CALLS_AT_ONCE, 0);

	(void)w;
	(void)events;
	for (int i = 0; i < n; i++) {
		struct observer *o = e[i].data.ptr;

		ear_wait_end(o);
		/* else nobody of the jail is left */
		if ((e[i].events & EPOLLIN) && ear_start(o) != 0)
			loop_timer_start(&o->ear_timer, EAR_RETRY_MS);
	}
}

static bool set_open(struct loop *l)
{
	if (quiet.n)
		return true;
	quiet.set = epoll_create1(EPOLL_CLOEXEC);
	if (quiet.set < 0)
		return false;
	loop_io_init(l, &quiet.io, quiet.set, LOOP_READ, on_call, NULL);
	return true;
}

static void set_close_if_empty(void)
{
	if (quiet.n)
		return;
	loop_io_stop(&quiet.io);
	(void)close(quiet.set);
}

void ear_wait(struct observer *o)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = o};

	if (o->unheard)
		return;
	if (!set_open(o->loop)) {
		loop_timer_start(&o->ear_timer, EAR_RETRY_MS);
		return;
	}
	if (epoll_ctl(quiet.set, EPOLL_CTL_ADD, o->c.listener, &e) == 0) {
		o->unheard = true;
		quiet.n++;
		return;
	}
	set_close_if_empty();
	loop_timer_start(&o->ear_timer, EAR_RETRY_MS);
}

void ear_wait_end(struct observer *o)
{
	if (!o->unheard)
		return;
	o->unheard = false;
	(void)epoll_ctl(quiet.set, EPOLL_CTL_DEL, o->c.listener, NULL);
	quiet.n--;
	set_close_if_empty();
}
