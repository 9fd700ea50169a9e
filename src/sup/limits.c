/*
 * Control groups of the apps: who gets one, what is read from it, when it goes. See sandbox/cgroup.h for what they are.
 *
 * An app gets a group where it gains by one: there are controllers (limits, and what it uses as a whole), or it has no pid
 * namespace, so that cgroup.kill is the only way to end all of it at once. The group lives as long as the process: it is made
 * before the launch and removed when nothing of the app is left; what the kernel counted in it is read in between.
 */
#include "sup/app.h"
#include "base/clock.h"
#include "base/log.h"
#include "monitor/usage.h"
#include "sandbox/cgroup.h"
#include "sandbox/limits.h"
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define REAP_MS        2000
#define DRAIN_MS       2000 /* what SIGKILL has not ended by then waits for hardware or a network file system */
#define NAMES_MAX      100  /* tries */
#define GRAVE_FIRST_MS 10
#define GRAVE_LAST_MS  5000

/* --- what could not be removed at once: somebody was dying in it --- */

static void on_grave_timer(struct loop_timer *w)
{
	struct sup *s = w->data;
	struct strv left = {0};

	for (size_t i = 0; i < s->graves.n; i++)
		if (cgroup_group_remove(s->groups, s->graves.v[i]) < 0)
			strv_add(&left, s->graves.v[i]);
	strv_clear(&s->graves);
	s->graves = left;
	if (left.n &&
	    s->grave_ms < GRAVE_LAST_MS) /* what does not die by then is waited for at the end only */
		loop_timer_start(w, s->grave_ms *= 2);
}

static void bury(struct app *a)
{
	struct sup *s = a->sup;

	(void)cgroup_group_kill(s->groups, a->group);
	if (cgroup_group_remove(s->groups, a->group) == 0 || s->down)
		return;
	strv_add(&s->graves, a->group);
	s->grave_ms = GRAVE_FIRST_MS;
	loop_timer_start(&s->grave_timer, s->grave_ms);
}

void limits_init(struct sup *s)
{
	loop_timer_init(s->loop, &s->grave_timer, on_grave_timer, s);
	s->groups = cgroup_open(NULL, s->dirs->runtime);
	cgroup_reap(s->groups, s->remains.group, REAP_MS);
}

void limits_restore(struct keep *k, const struct js *o, struct sup *s)
{
	loop_timer_init(s->loop, &s->grave_timer, on_grave_timer, s);
	s->groups = cgroup_restore(k, o);
}

void limits_finish(struct sup *s)
{
	loop_timer_stop(&s->grave_timer);
	strv_clear(&s->graves);
	cgroup_close(TAKE_PTR(s->groups));
}

void limits_release(struct app *a)
{
	if (!a->group)
		return;
	bury(a);
	free(TAKE_PTR(a->group));
	a->group_limits = 0;
}

void limits_prepare(struct app *a, bool jailed, struct launch_io *io)
{
	struct cgroup_limits l = limits_of(a->unit);
	CLEANUP_FREE char *name = NULL;
	CLEANUP_ERR struct err *e = NULL;
	uint64_t n = a->launches;
	int fd;

	limits_release(a); /* of a launch that failed before it began */
	free(TAKE_PTR(a->group_error));
	if (!cgroup_base(a->sup->groups) || (jailed && !cgroup_has(a->sup->groups)))
		return;
	do { /* one in which somebody is still dying, of an earlier run too, keeps its name */
		err_free(TAKE_PTR(e));
		free(name);
		name = xasprintf("%s.%llu", a->name, (unsigned long long)++n);
		fd = cgroup_group_make(a->sup->groups, name, &l, &a->group_limits, &e);
	} while (fd < 0 && err_code(e) == EEXIST && n - a->launches < NAMES_MAX);
	if (e) { /* the app starts without: its limits are its own affair, and shown */
		a->group_error = xstrdup(err_msg(e));
		log_warning("%s", err_msg(e));
	}
	if (fd < 0)
		return;
	a->group = TAKE_PTR(name);
	io->group_fd = fd;
	io->group_limits = a->group_limits;
}

void limits_attach(struct app *a)
{
	if (a->group && !a->isolation.in_group) {
		free(a->group_error);
		a->group_error = xstrdup("its process could not be put into its control group");
		a->group_limits = 0;
	}
}

bool limits_kill(struct app *a)
{
	return a->group && a->isolation_known && a->isolation.in_group &&
	       cgroup_group_kill(a->sup->groups, a->group);
}

/* Without a pid namespace its first process can be gone before the others are, which then still have its ports and files:
 * the next launch would meet them. A jail is empty by then. */
bool limits_drain(struct app *a)
{
	struct cgroup_tree *t = a->sup->groups;

	if (!a->group || a->sup->down || cgroup_group_is_empty(t, a->group))
		return true;
	(void)cgroup_group_kill(t, a->group);
	if (cgroup_group_is_empty(t, a->group))
		return true;
	if (clk_mono_ms() - a->reaped_ms < DRAIN_MS)
		return false;
	log_warning("%s: processes in its control group %s/app.%s do not end, though SIGKILL was sent; it goes on without "
		    "waiting for them", a->name, cgroup_base(t), a->group);
	return true;
}

/* --- why it ended --- */

/* The hard RLIMIT_CPU that we were started with, and pass on; the kernel's last word there is SIGKILL (setrlimit(2)). */
static bool used_up(const struct cgroup_count *c)
{
	struct rlimit r;

	return c->cpu_us != UINT64_MAX && getrlimit(RLIMIT_CPU, &r) == 0 && r.rlim_max != RLIM_INFINITY &&
	       c->cpu_us / 1000000 >= r.rlim_max;
}

void limits_ended(struct app *a)
{
	struct last_exit *x = &a->last_exit;
	int sig = WIFSIGNALED(x->status) ? WTERMSIG(x->status) : 0;
	struct cgroup_count c = {.cpu_us = UINT64_MAX, .oom_kills = UINT64_MAX};

	if (a->group)
		cgroup_group_count(a->sup->groups, a->group, &c);
	x->limit = LIMIT_NONE;
	if (c.oom_kills != UINT64_MAX && c.oom_kills) {
		bool own = (a->group_limits & CGROUP_MEMORY) && c.oom != UINT64_MAX && c.oom;

		x->limit = own ? LIMIT_MEMORY : LIMIT_MACHINE_MEMORY;
		x->limit_bytes = own ? a->unit->limit_memory : 0;
	} else if (sig == SIGXCPU || (sig == SIGKILL && used_up(&c))) {
		x->limit = LIMIT_CPU_TIME;
	} else if (sig == SIGXFSZ) {
		x->limit = LIMIT_FILE_SIZE;
	}
	if (a->up || x->limit != LIMIT_MEMORY)
		return;
	/* The building of its jail counts too. Trying again would not help. */
	free(a->launch_error);
	a->launch_error = limits_text(x);
	a->short_of = false;
}

char *limits_text(const struct last_exit *x)
{
	CLEANUP_FREE char *size = limits_size(x->limit_bytes);

	switch (x->limit) {
	case LIMIT_MEMORY:
		return xasprintf("out of memory, it reached Memory=%s", size);
	case LIMIT_MACHINE_MEMORY:
		return xstrdup("the machine was out of memory");
	case LIMIT_CPU_TIME:
		return xstrdup("its processor time is used up (RLIMIT_CPU)");
	case LIMIT_FILE_SIZE:
		return xstrdup("a file became too large (RLIMIT_FSIZE)");
	case LIMIT_NONE:
		break;
	}
	return NULL;
}

const char *limits_word(const struct last_exit *x)
{
	static const char *const words[] = {[LIMIT_MEMORY] = "memory",
					    [LIMIT_MACHINE_MEMORY] = "machine-memory",
					    [LIMIT_CPU_TIME] = "cpu-time",
					    [LIMIT_FILE_SIZE] = "file-size"};

	return words[x->limit];
}

const char *limits_hint(const struct last_exit *x)
{
	switch (x->limit) {
	case LIMIT_MEMORY:
		return "raise Memory= in [Limits], or let the app use less: sbxsv top shows what it uses";
	case LIMIT_MACHINE_MEMORY:
		return "the kernel had to choose somebody: a Memory= of the apps that use most keeps the "
		       "others safe";
	case LIMIT_CPU_TIME:
	case LIMIT_FILE_SIZE:
		return "the limit is of the program itself, or of whoever started sbxsvd: see ulimit(1)";
	case LIMIT_NONE:
		break;
	}
	return "";
}

/* --- shown --- */

bool limits_usage(const struct app *a, struct usage *ret)
{
	struct cgroup_count c;

	if (!a->group || !a->isolation.in_group)
		return false;
	cgroup_group_count(a->sup->groups, a->group, &c);
	if (c.processes == UINT64_MAX || !c.processes || c.cpu_us == UINT64_MAX)
		return false;
	/* without the memory controller the processes have to be asked */
	if (c.memory == UINT64_MAX && usage_read(a->pid, ret) < 0)
		return false;
	if (c.memory != UINT64_MAX)
		ret->rss_bytes = c.memory;
	ret->processes = (unsigned)c.processes;
	ret->cpu_ms = c.cpu_us / 1000;
	return true;
}

static void names_of(unsigned set, struct js *out)
{
	for (unsigned c = 1; c <= CGROUP_ALL; c <<= 1)
		if (set & c)
			js_push_str(out, cgroup_controller_name(c));
}

struct js *limits_status(const struct app *a)
{
	const struct unit *u = a->unit;
	bool lives = a->launch && a->isolation_known, stdio = stdio_mode(a);
	unsigned by = stdio ? 0 : lives ? a->group_limits : cgroup_has(a->sup->groups);
	CLEANUP_STRV struct strv missing = {0};
	struct js *o, *group, *list;
	const char *why[3];

	if (!u || !(u->limit_memory || u->limit_cpu_percent || u->limit_tasks))
		return NULL;
	for (unsigned i = 0; i < 3; i++) {
		why[i] = cgroup_why_not(a->sup->groups, 1u << i);
		if (!why[i])
			why[i] = stdio ? "what a client starts has no control group" : a->group_error;
	}
	limits_missing(u, app_jailed(u), by, why, &missing);
	o = js_obj();
	if (u->limit_memory)
		js_add_int(o, "memory_bytes", (int64_t)u->limit_memory);
	if (u->limit_cpu_percent)
		js_add_int(o, "cpu_percent", u->limit_cpu_percent);
	if (u->limit_tasks)
		js_add_int(o, "tasks", (int64_t)u->limit_tasks);
	group = js_arr();
	names_of(by & ((u->limit_memory ? CGROUP_MEMORY : 0u) | (u->limit_cpu_percent ? CGROUP_CPU : 0u) |
		       (u->limit_tasks ? CGROUP_PIDS : 0u)),
		 group);
	js_add(o, "by_group", group);
	list = js_arr();
	for (size_t i = 0; i < missing.n; i++)
		js_push_str(list, missing.v[i]);
	js_add(o, "missing", list);
	return o;
}

struct js *limits_machine(const struct sup *s)
{
	struct js *o = js_obj(), *has = js_arr();

	if (cgroup_base(s->groups))
		js_add_str(o, "group", cgroup_base(s->groups));
	names_of(cgroup_has(s->groups), has);
	js_add(o, "controllers", has);
	for (unsigned c = 1; c <= CGROUP_ALL; c <<= 1)
		if (cgroup_why_not(s->groups, c))
			js_add_str(o, cgroup_controller_name(c), cgroup_why_not(s->groups, c));
	return o;
}
