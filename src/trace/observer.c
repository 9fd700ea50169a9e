/* The loop's side of an observer, and the judge's loop. See observer.h. */
#include "trace/observer_internal.h"
#include "base/str.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

enum { DRAIN_MS = 100, JOIN_MS = 1000 /* of a thread that has said it ends */ };

const char *observed_name(enum observed o)
{
	static const char *const names[] = {"file-read", "file-write", "exec",   "unix-connect",
					    "connect",   "resolve",    "connect"};

	return names[o];
}

bool observed_same(const struct js *a, const struct js *b)
{
	static const char *const keys[] = {"operation", "path", "host", "rule"};

	for (size_t i = 0; i < ELEMENTS(keys); i++)
		if (!str_eq(js_str(a, keys[i]), js_str(b, keys[i])))
			return false;
	return js_int_or(a, "port", 0) == js_int_or(b, "port", 0);
}

int64_t observer_now_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void observer_ring(struct observer *o)
{
	const uint64_t one = 1;

	(void)!write(o->bell, &one, sizeof one);
}

/* --- the judge --- */

static uint32_t hold_text(struct table *t, const char *text)
{
	size_t n = strlen(text) + 1;
	uint32_t at = (uint32_t)t->used;

	if (t->used + n > sizeof t->text)
		return UINT32_MAX;
	memcpy(t->text + at, text, n);
	t->used += n;
	return at;
}

static bool same_found(const struct table *t, const struct found *a, const struct found *b, const char *path)
{
	return a->op == b->op && a->pid == b->pid && a->port == b->port &&
	       strcmp(t->text + a->path, path) == 0;
}

/* With the lock. */
static void add_found(struct observer *o, const struct found *f, const char *path, const char *asked)
{
	struct table *t = o->news;
	struct found *to;

	for (size_t i = 0; i < t->n; i++) {
		if (same_found(t, &t->v[i], f, path)) {
			t->v[i].count += f->count;
			return;
		}
	}
	if (t->n == FOUND_MAX) {
		t->lost += f->count;
		return;
	}
	to = &t->v[t->n];
	if (!t->used)
		t->used = 1; /* 0 means none */
	*to = *f;
	to->path = hold_text(t, path);
	to->asked = asked ? hold_text(t, asked) : 0;
	if (to->path == UINT32_MAX || to->asked == UINT32_MAX)
		t->lost += f->count;
	else
		t->n++;
}

static void remember(struct observer *o, const struct record *r, int64_t now, bool refused,
		     const struct found *f, bool asked)
{
	o->last.valid = true;
	o->last.refused = refused;
	o->last.until_ms = now + BELL_MS;
	memcpy(&o->last.record, r, r->size);
	if (!refused)
		return;
	o->last.found = *f;
	(void)strcpy(o->last.path, o->real);
	(void)strcpy(o->last.asked, asked ? o->asked : "");
}

/* A program that insists asks the same again and again: that is not looked up each time. */
static void judge_one(struct observer *o, const struct record *r, int64_t now)
{
	struct found f;
	bool asked = false, refused;

	if (!o->last.valid || now >= o->last.until_ms || o->last.record.r.size != r->size ||
	    memcmp(&o->last.record, r, r->size) != 0) {
		refused = look_at(o, r, &f, &asked);
		remember(o, r, now, refused, &f, asked);
	}
	if (!o->last.refused)
		return;
	(void)pthread_mutex_lock(&o->lock);
	add_found(o, &o->last.found, o->last.path, o->last.asked[0] ? o->last.asked : NULL);
	(void)pthread_mutex_unlock(&o->lock);
}

static void judge_batch(struct observer *o, int which, size_t n)
{
	int64_t now = observer_now_ms();

	for (size_t at = 0; at < n;) {
		const struct record *r = (const void *)(o->buffer[which] + at);

		judge_one(o, r, now);
		at += r->size;
	}
}

static struct timespec after_ms(int64_t ms)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += (ms % 1000) * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_nsec -= 1000000000;
		t.tv_sec++;
	}
	return t;
}

/* With the lock. */
static void ring_if_due(struct observer *o, int64_t *next_ms)
{
	int64_t now = observer_now_ms();

	if ((!o->news->n && !o->news->lost && !o->lost) || o->rung || (now < *next_ms && !o->draining))
		return;
	o->rung = true;
	*next_ms = now + BELL_MS;
	observer_ring(o);
}

/* With the lock: until there is something to judge. False: it is over, or there was nothing for long. */
static bool wait_for_work(struct observer *o, int64_t *next_ring_ms)
{
	int64_t quiet_since = observer_now_ms();

	while (!o->used[o->fill] && !o->stopping && !o->draining) {
		bool sleeping = observer_now_ms() - quiet_since >= QUIET_MS;
		struct timespec until = after_ms(sleeping ? IDLE_MS : NAP_MS);
		int r;

		ring_if_due(o, next_ring_ms); /* what was found too soon after the last time */
		o->asleep = sleeping;
		r = pthread_cond_timedwait(&o->work, &o->lock, &until);
		o->asleep = false;
		if (sleeping && r == ETIMEDOUT && !o->used[o->fill])
			return false;
	}
	return !o->stopping && o->used[o->fill];
}

/* Looks at the host with the eyes of the app's user. These calls count for this thread alone, if made plainly; the kernel then
 * takes the process for one that must not be dumped, which it is not. */
static void become_user(const struct observer *o)
{
	if (o->c.uid == (uid_t)-1)
		return;
	(void)syscall(SYS_setgroups, 0, NULL);
	(void)syscall(SYS_setfsgid, o->c.gid);
	(void)syscall(SYS_setfsuid, o->c.uid);
	(void)prctl(PR_SET_DUMPABLE, 1);
}

void *judge_main(void *observer)
{
	struct observer *o = observer;
	int64_t next_ring_ms = 0;

	become_user(o);
	(void)pthread_mutex_lock(&o->lock);
	while (wait_for_work(o, &next_ring_ms)) {
		int which = o->fill;
		size_t n = o->used[which];

		o->fill = !which;
		o->busy = true;
		o->deaf = false;
		(void)pthread_cond_signal(&o->room);
		(void)pthread_mutex_unlock(&o->lock);
		judge_batch(o, which, n);
		(void)pthread_mutex_lock(&o->lock);
		o->used[which] = 0;
		o->busy = false;
		ring_if_due(o, &next_ring_ms);
		if (!o->stopping && !o->draining && o->used[o->fill] < BATCH_BYTES / 2) {
			struct timespec until = after_ms(NAP_MS);

			(void)pthread_cond_timedwait(&o->work, &o->lock, &until);
		}
	}
	o->judge_ended = true;
	(void)pthread_mutex_unlock(&o->lock);
	observer_ring(o);
	return NULL;
}

/* --- the loop's side --- */

static void words_of(const struct observer *o, const struct found *f, const char *path, char **ret_rule,
		     char **ret_hint)
{
	switch (f->op) {
	case OBSERVED_LOCAL:
		*ret_rule = xstrdup(OBSERVED_RULE_LOCAL);
		break;
	case OBSERVED_CONNECT:
		*ret_hint = xasprintf(strchr(path, ':') ? "Allow=[%s]:%u" : "Allow=%s:%u", path, f->port);
		__attribute__((fallthrough));
	case OBSERVED_RESOLVE:
		*ret_rule = xstrdup(OBSERVED_RULE_EGRESS);
		break;
	default:
		o->c.words(o->c.judge, o->c.command ? NULL : o->app, f->op, path, f->exists, f->dir, ret_rule,
			   ret_hint);
	}
}

/* NULL: it was no refusal. */
static struct js *event_of(const struct observer *o, const struct found *f, const char *path,
			   const char *asked)
{
	CLEANUP_FREE char *rule = NULL, *hint = NULL;
	struct js *j;

	if (f->op == OBSERVED_LOCAL && !(hint = o->c.local(o->c.data, f->port)))
		return NULL;
	words_of(o, f, path, &rule, &hint);
	j = js_obj();
	js_add_str(j, "app", o->app);
	js_add_str(j, "type", "violation");
	js_add_str(j, "operation", observed_name(f->op));
	js_add_int(j, "pid", f->pid);
	js_add_str(j, "command", f->comm);
	js_add_str(j, f->op >= OBSERVED_CONNECT ? "host" : "path", path);
	if (f->port)
		js_add_int(j, "port", f->port);
	if (asked)
		js_add_str(j, "asked", asked);
	js_add_str(j, "rule", rule);
	js_add_str(j, "action", "denied");
	if (hint)
		js_add_str(j, "hint", hint);
	if (f->count > 1)
		js_add_int(j, "count", (int64_t)f->count);
	return j;
}

static void tell(struct observer *o)
{
	struct table *t = o->told;

	for (size_t i = 0; i < t->n && !o->dead; i++) {
		const struct found *f = &t->v[i];
		struct js *event = event_of(o, f, t->text + f->path, f->asked ? t->text + f->asked : NULL);

		if (event)
			o->c.event(o->c.data, event);
	}
	if (t->lost && !o->dead)
		o->c.lost(o->c.data, t->lost);
	t->n = t->used = 0;
	t->lost = 0;
}

void observer_take_news(struct observer *o)
{
	struct table *t;

	(void)pthread_mutex_lock(&o->lock);
	t = o->news;
	o->news = o->told;
	o->told = t;
	t->lost += o->lost;
	o->lost = 0;
	o->rung = false;
	(void)pthread_mutex_unlock(&o->lock);
	tell(o);
}

/*
 * The memory that a burst used goes back, when nobody uses it: the judge is gone; and so is the ear, or it copies with the
 * lock.
 */
static void shrink(struct observer *o)
{
	uintptr_t first = o->ear.there ? (uintptr_t)&o->real : (uintptr_t)&o->tasks,
		  from = (first + 4095) & ~(uintptr_t)4095,
		  to = ((uintptr_t)&o->buffer + sizeof o->buffer) & ~(uintptr_t)4095;

	(void)pthread_mutex_lock(&o->lock);
	if (!o->used[0] && !o->used[1] && !o->news->n && !o->news->lost)
		(void)madvise((void *)from, to - from, MADV_DONTNEED);
	(void)pthread_mutex_unlock(&o->lock);
}

static struct observer *leaving; /* destroyed, and a thread has not ended yet */

static void leave(struct observer *o)
{
	o->next_leaving = leaving;
	leaving = o;
}

static void left(const struct observer *o)
{
	struct observer **at = &leaving;

	while (*at && *at != o)
		at = &(*at)->next_leaving;
	if (*at)
		*at = o->next_leaving;
}

static void give_back(const struct observer_config *c)
{
	(void)close(c->listener);
	(void)close(c->root);
	(void)close(c->mntns);
	(void)close(c->diag);
	c->gone(c->judge);
}

static void free_observer(struct observer *o)
{
	left(o);
	ear_wait_end(o);
	loop_io_stop(&o->bell_io);
	loop_timer_stop(&o->drain_timer);
	loop_timer_stop(&o->ear_timer);
	(void)close(o->bell);
	(void)close(o->stop);
	give_back(&o->c);
	(void)pthread_cond_destroy(&o->work);
	(void)pthread_cond_destroy(&o->room);
	(void)pthread_mutex_destroy(&o->lock);
	free(o->app);
	free(o->program);
	(void)munmap(o, sizeof *o);
}

void observer_start_judge(struct observer *o)
{
	(void)pthread_mutex_lock(&o->lock);
	o->judge_ended = o->judge_wanted = false;
	(void)pthread_mutex_unlock(&o->lock);
	if (judge_start(o))
		return;
	/* no thread is to be had: what came is lost, and the next call asks again */
	(void)pthread_mutex_lock(&o->lock);
	o->judge_ended = true;
	o->lost++;
	o->used[o->fill] = 0;
	(void)pthread_mutex_unlock(&o->lock);
}

static bool drained_now(struct observer *o)
{
	bool yes;

	(void)pthread_mutex_lock(&o->lock);
	yes = !o->busy && !o->used[o->fill] && !atomic_load(&o->listening_to_one);
	(void)pthread_mutex_unlock(&o->lock);
	return yes;
}

static void say_drained(struct observer *o)
{
	void (*fn)(void *) = o->drained;

	observer_take_news(o);
	loop_timer_stop(&o->drain_timer);
	o->drained = NULL;
	fn(o->c.data);
}

static void on_bell(struct loop_io *w, unsigned events)
{
	struct observer *o = w->data;
	uint64_t n;
	bool ear_ended, judge_ended, wanted, idle;

	(void)events;
	(void)!read(o->bell, &n, sizeof n);
	(void)pthread_mutex_lock(&o->lock);
	ear_ended = o->ear_ended;
	judge_ended = o->judge_ended;
	wanted = o->used[o->fill] != 0 && !o->stopping;
	idle = o->ear_idle;
	(void)pthread_mutex_unlock(&o->lock);
	if (ear_ended && o->ear.there && ear_join(o, JOIN_MS) && (idle || o->ear_again) && !o->dead)
		ear_wait(o);
	if (judge_ended && o->judge.there)
		(void)judge_join(o, JOIN_MS);
	if (o->dead && !o->ear.there && !o->judge.there) {
		free_observer(o);
		return;
	}
	if (o->dead)
		return;
	observer_take_news(o);
	if (judge_ended && wanted && !o->judge.there)
		observer_start_judge(o);
	else if (!o->judge.there && (judge_ended || ear_ended))
		shrink(o);
	if (o->drained && drained_now(o))
		say_drained(o);
}

static void on_drain_timer(struct loop_timer *t)
{
	say_drained(t->data);
}

static void on_ear_timer(struct loop_timer *t)
{
	ear_wait(t->data);
}

bool observer_drain(struct observer *o, void (*drained)(void *data))
{
	if (drained_now(o)) {
		observer_take_news(o);
		return true;
	}
	(void)pthread_mutex_lock(&o->lock);
	o->draining = true;
	(void)pthread_cond_signal(&o->work);
	(void)pthread_mutex_unlock(&o->lock);
	o->drained = drained;
	loop_timer_start(&o->drain_timer, DRAIN_MS);
	return false;
}

static void init_sync(struct observer *o)
{
	pthread_condattr_t a;

	(void)pthread_condattr_init(&a);
	(void)pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	(void)pthread_mutex_init(&o->lock, NULL);
	(void)pthread_cond_init(&o->work, &a);
	(void)pthread_cond_init(&o->room, &a);
	(void)pthread_condattr_destroy(&a);
}

struct observer *observer_create(struct loop *l, const struct observer_config *c, struct err **e)
{
	struct observer *o =
		mmap(NULL, sizeof *o, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int error = 0;

	if (o == MAP_FAILED) {
		(void)err_sys(e, errno, "no memory for what the jail refuses");
		give_back(c);
		return NULL;
	}
	o->c = *c;
	o->app = xstrdup(c->app);
	o->program = xstrdup(c->program);
	o->loop = l;
	o->news = &o->tables[0];
	o->told = &o->tables[1];
	o->judge_ended = true;
	o->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	o->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	init_sync(o);
	loop_io_init(l, &o->bell_io, o->bell, o->bell < 0 ? 0 : LOOP_READ, on_bell, o);
	loop_timer_init(l, &o->drain_timer, on_drain_timer, o);
	loop_timer_init(l, &o->ear_timer, on_ear_timer, o);
	if (o->bell < 0 || o->stop < 0)
		error = errno;
	else
		error = ear_start(o);
	if (error) {
		(void)err_sys(e, error, "cannot listen to what the jail refuses");
		free_observer(o);
		return NULL;
	}
	return o;
}

int observer_listener(const struct observer *o)
{
	return o->c.listener;
}

void observer_destroy(struct observer *o, unsigned wait_ms)
{
	const uint64_t one = 1;

	if (!o)
		return;
	o->dead = true;
	o->drained = NULL;
	loop_timer_stop(&o->drain_timer);
	loop_timer_stop(&o->ear_timer);
	ear_wait_end(o);
	(void)pthread_mutex_lock(&o->lock);
	o->stopping = true;
	(void)pthread_cond_broadcast(&o->work);
	(void)pthread_cond_broadcast(&o->room);
	(void)pthread_mutex_unlock(&o->lock);
	(void)!write(o->stop, &one, sizeof one);
	(void)ear_join(o, wait_ms);
	(void)judge_join(o, wait_ms);
	if (!o->ear.there && !o->judge.there)
		free_observer(o);
	else
		leave(o);
}

static unsigned ms_until(int64_t end_ms)
{
	int64_t ms = end_ms - observer_now_ms();

	return ms > 0 ? (unsigned)ms : 0;
}

void observer_finish(unsigned wait_ms)
{
	int64_t end_ms = observer_now_ms() + wait_ms;

	for (struct observer *o = leaving, *next; o; o = next) {
		next = o->next_leaving;
		if (ear_join(o, ms_until(end_ms)) && judge_join(o, ms_until(end_ms)))
			free_observer(o);
	}
}
