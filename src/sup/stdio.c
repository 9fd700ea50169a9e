/*
 * Mode=stdio: apps that clients start, each instance a process of `sbxsv run NAME` (src/cli/run.c), which makes the
 * jail, has a proxy of its own and is the parent of all of it: when the client or that process is killed, the instance
 * goes with it, whatever becomes of the supervisor. So nothing is started here. An instance joins when it begins: it
 * is counted and shown, its standard error goes into the app's log and what it is refused into the app's violations;
 * it is told the rules given at run time, that the unit changed, and to end. It leaves when its connection is closed
 * and pid 1 of its jail is gone.
 *
 * The app is `running` while it has instances: JOIN of the table with the first, DOWN with the last.
 */
#include "sup/app.h"
#include "sup/stdio_says.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "monitor/usage.h"
#include "trace/refused.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { MANY = 48 /* instances of one app: a client that starts more has lost count */ };

struct sup_instance {
	struct sup_instance *next;
	struct app *app;
	unsigned number;
	pid_t runner, jail; /* jail 0: not yet */
	int runner_fd, jail_fd;
	struct loop_io jail_io;
	struct sup_instance_hooks hooks;
	int64_t since_ms;
	char *client;
	struct js *isolation;
	bool closed;   /* nobody is there to be told anything */
	bool outdated; /* the unit has changed in a way that needs a new process */
};

bool stdio_mode(const struct app *a)
{
	const struct unit *u = app_newest(a);

	return u && u->mode == UNIT_STDIO;
}

/* --- the end --- */

static void instance_free(struct sup_instance *i)
{
	loop_io_stop(&i->jail_io);
	fd_close_many(&i->jail_fd, 1);
	fd_close_many(&i->runner_fd, 1);
	js_free(i->isolation);
	free(i->client);
	free(i);
}

static void leave(struct sup_instance *i)
{
	struct app *a = i->app;
	struct sup_instance **at = &a->instances;

	while (*at != i)
		at = &(*at)->next;
	*at = i->next;
	instance_free(i);
	if (!a->instances)
		app_event(a, a->state == APP_STOPPING && a->after == AFTER_AGAIN ? EV_NOW : EV_DOWN);
}

static void on_jail_end(struct loop_io *w, unsigned events)
{
	struct sup_instance *i = w->data;

	(void)events;
	loop_io_stop(w);
	if (i->closed)
		leave(i);
}

void sup_instance_gone(struct sup_instance *i)
{
	i->closed = true;
	if (i->jail_fd < 0 || pidfd_is_dead(i->jail_fd))
		leave(i);
}

void stdio_release(struct app *a)
{
	while (a->instances) {
		struct sup_instance *i = a->instances;

		a->instances = i->next;
		instance_free(i);
	}
}

void stdio_stop(struct app *a)
{
	for (struct sup_instance *i = a->instances; i; i = i->next) {
		struct js *m = js_obj();

		js_add_str(m, "t", "stop");
		if (!i->closed)
			i->hooks.tell(i->hooks.data, m, -1);
		else
			js_free(m);
	}
}

/* The jail dies with its parent. */
void stdio_kill(struct app *a)
{
	for (struct sup_instance *i = a->instances; i; i = i->next) {
		(void)pidfd_signal(i->runner_fd, SIGKILL);
		if (i->jail_fd >= 0)
			(void)pidfd_signal(i->jail_fd, SIGKILL);
	}
}

/* --- what it is told --- */

static struct js *rules_message(const struct app *a)
{
	struct js *m = js_obj();

	js_add_str(m, "t", "rules");
	js_add(m, "rules", live_rules(a));
	return m;
}

void stdio_rules(struct app *a)
{
	for (struct sup_instance *i = a->instances; i; i = i->next)
		if (!i->closed)
			i->hooks.tell(i->hooks.data, rules_message(a), -1);
}

void stdio_unit(struct app *a, bool outdated)
{
	for (struct sup_instance *i = a->instances; i; i = i->next) {
		struct js *m = js_obj();

		i->outdated |= outdated;
		js_add_str(m, "t", "unit");
		if (!i->closed)
			i->hooks.tell(i->hooks.data, m, -1);
		else
			js_free(m);
	}
}

/* --- the beginning --- */

/* Of its parent: "claude", "code". */
static char *client_of(pid_t runner)
{
	char path[48], buf[1024], *at;
	int parent = 0;

	(void)snprintf(path, sizeof path, "/proc/%d/stat", (int)runner);
	if (file_read_proc(path, buf, sizeof buf) < 0 || !(at = strrchr(buf, ')')) ||
	    sscanf(at, ") %*c %d", &parent) != 1 || parent < 1)
		return NULL;
	(void)snprintf(path, sizeof path, "/proc/%d/comm", parent);
	if (file_read_proc(path, buf, sizeof buf) < 0)
		return NULL;
	return str_escape(buf, strcspn(buf, "\n"));
}

static int may_join(const struct app *a, struct err **e)
{
	size_t n = 0;

	if (a->broken || !a->unit)
		return err_set(e, EINVAL, "the unit is broken: sbxsv status %s", a->name);
	if (a->unit->mode != UNIT_STDIO || a->newest)
		return err_set(e, EINVAL, "%s is not (yet) an app with Mode=stdio for the supervisor",
			       a->name);
	if (a->state != APP_STOPPED && a->state != APP_FAILED && a->state != APP_RUNNING)
		return err_set(e, EAGAIN, "%s is %s", a->name, app_state_name(a->state));
	for (const struct sup_instance *i = a->instances; i; i = i->next)
		n++;
	if (n >= MANY)
		return err_set(e, EAGAIN, "%s has %d instances already", a->name, MANY);
	return 0;
}

struct sup_instance *sup_instance_join(struct sup *s, const char *name, pid_t runner, int runner_fd,
				       const struct sup_instance_hooks *hooks, struct err **e)
{
	struct app *a = s->down ? NULL : sup_has_app(s, name) ? app_find(s, name) : NULL;
	CLEANUP_FD int log = -1;
	struct sup_instance *i;

	if (a && (!a->unit || a->unit->mode != UNIT_STDIO || a->broken))
		watch_flush(s->watch); /* its unit may have been written just now */
	if (!a || a->removed || a->dead) {
		(void)err_set(e, ENOENT, "%s",
			      s->down ? "the supervisor is shutting down" : "there is no such app");
		return NULL;
	}
	if (may_join(a, e) < 0)
		return NULL;
	i = xcalloc(1, sizeof *i);
	i->app = a;
	i->number = ++a->instance_number;
	i->runner = runner;
	i->runner_fd = runner_fd;
	i->jail_fd = -1;
	i->hooks = *hooks;
	i->since_ms = clk_mono_ms();
	i->client = client_of(runner);
	i->next = a->instances;
	a->instances = i;
	if (a->logs)
		log = logs_open_pipe(a->logs, NULL);
	hooks->tell(hooks->data, rules_message(a), log);
	if (a->state != APP_RUNNING) {
		app_say_nothing(a);
		app_event(a, EV_JOIN);
	}
	return i;
}

/* --- what it says --- */

/* Its connection ended, and it is here by another one: it is one instance. */
static void take_place(struct sup_instance *i)
{
	struct sup_instance **at = &i->app->instances, *old;

	while (*at && ((*at) == i || !(*at)->closed || (*at)->jail != i->jail))
		at = &(*at)->next;
	old = *at;
	if (!old)
		return;
	*at = old->next;
	i->since_ms = old->since_ms;
	i->outdated |= old->outdated;
	instance_free(old);
}

static void started(struct sup_instance *i, const struct instance_says *says)
{
	struct app *a = i->app;
	CLEANUP_FREE char *text = NULL;

	if (i->jail)
		return;
	i->jail_fd = pidfd_open_pid(says->pid);
	if (i->jail_fd < 0) /* it has ended by now */
		return;
	i->jail = says->pid;
	loop_io_init(a->sup->loop, &i->jail_io, i->jail_fd, LOOP_READ, on_jail_end, i);
	i->isolation = says->isolation ? js_copy(says->isolation) : NULL;
	if (says->again) { /* the supervisor was away, it was not */
		take_place(i);
		return;
	}
	a->launches++;
	text = xasprintf("instance %u started, pid %d%s%s", i->number, (int)i->jail, i->client ? ", by " : "",
			 i->client ? i->client : "");
	logs_note(a->logs, text);
	events_note(a->sup->events, "ready", a->name, "%s", text);
}

static void exited(struct sup_instance *i, int status)
{
	struct app *a = i->app;
	CLEANUP_FREE char *note = NULL;
	struct js *ev = js_obj();
	char text[80];

	a->last_exit = (struct last_exit){.known = true,
					  .status = status,
					  .at_wall_ms = clk_wall_ms(),
					  .after_ms = clk_mono_ms() - i->since_ms};
	app_text_of_exit(&a->last_exit, text, sizeof text);
	note = xasprintf("instance %u %s", i->number, text);
	logs_drain(a->logs);
	logs_note(a->logs, note);
	js_add_str(ev, "type", "exit");
	js_add_str(ev, "app", a->name);
	js_add_int(ev, "pid", i->jail);
	js_add_str(ev, "message", note);
	js_add_int(ev, "after_ms", a->last_exit.after_ms);
	js_add_bool(ev, "expected", true); /* whoever began it ends it */
	events_emit(a->sup->events, ev);
}

/* What it was refused. The name of the app is ours to say. */
static void refused(struct sup_instance *i, const struct js *event)
{
	struct app *a = i->app;
	struct js *own = js_copy(event);

	js_remove(own, "app");
	js_add_str(own, "app", a->name);
	refused_add(a->sup->refused, own, clk_wall_ms());
	events_emit(a->sup->events, own);
}

void sup_instance_says(struct sup_instance *i, const struct js *m)
{
	struct instance_says says;

	if (!instance_says_read(m, &says))
		return;
	switch (says.word) {
	case SAYS_STARTED:
		started(i, &says);
		break;
	case SAYS_EXITED:
		exited(i, says.status);
		break;
	case SAYS_REFUSED:
		refused(i, says.event);
		break;
	case SAYS_LOST:
		refused_lost(i->app->sup->refused, i->app->name, says.n);
		break;
	}
}

/* --- what is shown --- */

bool stdio_outdated(const struct app *a)
{
	for (const struct sup_instance *i = a->instances; i; i = i->next)
		if (i->outdated)
			return true;
	return false;
}

bool stdio_usage(const struct app *a, struct usage *ret)
{
	bool any = false;

	*ret = (struct usage){0};
	for (const struct sup_instance *i = a->instances; i; i = i->next) {
		struct usage one;

		if (!i->jail || pidfd_is_dead(i->jail_fd) || usage_read(i->jail, &one) < 0)
			continue;
		any = true;
		ret->processes += one.processes;
		ret->rss_bytes += one.rss_bytes;
		ret->cpu_ms += one.cpu_ms;
	}
	return any;
}

static struct js *one_status(const struct sup_instance *i)
{
	struct js *o = js_obj();

	js_add_int(o, "number", i->number);
	js_add_int(o, "runner", i->runner);
	if (i->jail)
		js_add_int(o, "pid", i->jail);
	if (i->client)
		js_add_str(o, "client", i->client);
	js_add_int(o, "uptime_ms", clk_mono_ms() - i->since_ms);
	js_add_bool(o, "restart_needed", i->outdated);
	if (i->isolation)
		js_add(o, "isolation", js_copy(i->isolation));
	return o;
}

void stdio_status(const struct app *a, struct js *o)
{
	const struct js *isolation = NULL;
	struct js *all = js_arr();

	for (const struct sup_instance *i = a->instances; i; i = i->next) {
		js_push(all, one_status(i));
		isolation = isolation ? isolation : i->isolation;
	}
	js_add(o, "instances", all);
	if (isolation && !js_get(o, "isolation"))
		js_add(o, "isolation", js_copy(isolation));
}

/* --- across an exec of the supervisor: who is connected is src/ctl's to say --- */

static const struct keep_field fields[] = {
	KEEP(sup_instance, UINT, number),  KEEP(sup_instance, INT, runner), KEEP(sup_instance, INT, jail),
	KEEP(sup_instance, FD, runner_fd), KEEP(sup_instance, FD, jail_fd), KEEP(sup_instance, I64, since_ms),
	KEEP(sup_instance, TEXT, client),  KEEP(sup_instance, BOOL, closed), KEEP(sup_instance, BOOL, outdated),
};

struct js *stdio_save(struct keep *k, const struct app *a)
{
	struct js *out = js_arr();

	for (const struct sup_instance *i = a->instances; i; i = i->next) {
		struct js *o = js_obj();

		keep_save(k, o, fields, ELEMENTS(fields), i);
		if (i->isolation)
			js_add(o, "isolation", js_copy(i->isolation));
		js_push(out, o);
	}
	return out;
}

void stdio_restore(struct keep *k, const struct js *list, struct app *a)
{
	struct sup_instance **at = &a->instances;

	for (const struct js *o = js_first(list); o; o = js_next(o)) {
		struct sup_instance *i = *at = xcalloc(1, sizeof *i);

		at = &i->next;
		i->app = a;
		keep_load(k, o, fields, ELEMENTS(fields), i);
		i->isolation = js_get(o, "isolation") ? js_copy(js_get(o, "isolation")) : NULL;
		if (i->jail_fd >= 0)
			loop_io_init(a->sup->loop, &i->jail_io, i->jail_fd, LOOP_READ, on_jail_end, i);
	}
}

void sup_instance_name(const struct sup_instance *i, const char **ret_app, unsigned *ret_number)
{
	*ret_app = i->app->name;
	*ret_number = i->number;
}

struct sup_instance *sup_instance_again(struct sup *s, const char *app, unsigned number,
					const struct sup_instance_hooks *hooks)
{
	struct app *a = app_find(s, app);

	for (struct sup_instance *i = a ? a->instances : NULL; i; i = i->next)
		if (i->number == number && !i->closed && !i->hooks.tell) {
			i->hooks = *hooks;
			return i;
		}
	return NULL;
}

void stdio_go_on(struct app *a)
{
	for (struct sup_instance *i = a->instances, *next; i; i = next) {
		next = i->next;
		if (!i->closed && !i->hooks.tell)
			sup_instance_gone(i);
	}
}
