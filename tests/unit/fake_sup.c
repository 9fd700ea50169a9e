#include "fake_sup.h"
#include "base/str.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

struct sup {
	struct logs *logs;
	struct events *ev;
	struct loop_timer slow;
	sup_done_fn *done;
	void *done_data;
	struct {
		sup_done_fn *done;
		void *data;
	} never[128]; /* commands that are done when the supervisor ends */
	size_t n_never;
	bool down;
};

static void on_slow(struct loop_timer *w)
{
	struct sup *s = w->data;

	s->done(s->done_data, 0, "slow is running");
}

struct sup *fake_sup_create(struct loop *l, const char *dir)
{
	struct sup *s = xcalloc(1, sizeof *s);
	struct logs_config c = {.dir = dir, .file = "notes.log", .max_size = 1 << 20, .max_files = 2};

	s->logs = logs_create(l, &c, NULL);
	s->ev = events_create(l, dir, NULL);
	loop_timer_init(l, &s->slow, on_slow, s);
	return s;
}

void fake_sup_destroy(struct sup *s)
{
	for (size_t i = 0; i < s->n_never; i++)
		s->never[i].done(s->never[i].data, 1, "the supervisor ends");
	loop_timer_stop(&s->slow);
	logs_destroy(s->logs);
	events_destroy(s->ev);
	free(s);
}

bool sup_has_app(struct sup *s, const char *app)
{
	(void)s;
	return str_eq(app, "notes") || str_eq(app, "slow") || str_eq(app, "never") || str_eq(app, "bad");
}

char *sup_no_app(const struct sup *s, const char *name)
{
	(void)s;
	return xasprintf("there is no app \"%s\"", name);
}

void sup_command(struct sup *s, enum sup_verb verb, const char *app, bool wait, sup_done_fn *done, void *data)
{
	CLEANUP_FREE char *text = xasprintf("verb %d of %s", verb, app ? app : "all");

	if (!app || !wait || str_eq(app, "notes")) {
		done(data, 0, text);
	} else if (str_eq(app, "bad")) {
		done(data, 1, "bad: exited with 1");
	} else if (str_eq(app, "slow")) {
		s->done = done;
		s->done_data = data;
		loop_timer_start(&s->slow, 50);
	} else {
		s->never[s->n_never].done = done;
		s->never[s->n_never++].data = data;
	}
}

static void say_event(struct sup *s, const char *app, size_t pad)
{
	CLEANUP_FREE char *filler = xcalloc(1, pad + 1);
	struct js *j = js_obj();

	memset(filler, 'x', pad);
	js_add_str(j, "app", app);
	js_add_str(j, "type", "state");
	js_add_str(j, "filler", filler);
	events_emit(s->ev, j);
}

int sup_kill(struct sup *s, const char *app, int sig, struct err **e)
{
	char line[1024];

	if (!sup_has_app(s, app))
		return err_set(e, ENOENT, "there is no app \"%s\"", app);
	if (!str_eq(app, "notes"))
		return err_set(e, ESRCH, "%s is not running", app);
	memset(line, 'y', sizeof line - 1);
	line[sizeof line - 1] = 0;
	if (sig == SIGUSR1)
		for (int i = 0; i < 3; i++)
			logs_note(s->logs, "a line");
	else if (sig == SIGUSR2)
		say_event(s, "notes", 1), say_event(s, "other", 1);
	else if (sig == SIGURG)
		for (int i = 0; i < 4096; i++)
			logs_note(s->logs, line);
	else if (sig == SIGPIPE)
		for (int i = 0; i < 4096; i++)
			say_event(s, "notes", 1024);
	else if (sig == SIGHUP)
		logs_destroy(TAKE_PTR(s->logs));
	return 0;
}

void sup_rule(struct sup *s, const char *app, const struct sup_rule *r, sup_rule_done_fn *done, void *data)
{
	struct js *j = js_obj();

	js_add_int(j, "code", sup_has_app(s, app) ? 0 : 4);
	js_add_str(j, "message", r->deny ? "denied" : "allowed");
	js_add_str(j, "rule", r->host);
	js_add_int(j, "for_ms", r->for_ms);
	js_add_bool(j, "saved", r->saved);
	done(data, j);
}

void sup_settle_rules(struct sup *s, void (*done)(void *data), void *data)
{
	(void)s;
	done(data);
}

struct js *sup_reload(struct sup *s)
{
	struct js *j = js_obj();

	(void)s;
	js_add(j, "added", js_arr());
	js_add_int(j, "unchanged", 2);
	return j;
}

void sup_instance_name(const struct sup_instance *i, const char **ret_app, unsigned *ret_number)
{
	(void)i;
	*ret_app = "notes";
	*ret_number = 1;
}

struct sup_instance *sup_instance_again(struct sup *s, const char *app, unsigned number,
					const struct sup_instance_hooks *hooks)
{
	(void)s;
	(void)app;
	(void)number;
	(void)hooks;
	return NULL;
}

unsigned sup_upgrades(const struct sup *s)
{
	(void)s;
	return 0;
}

void sup_upgrade(struct sup *s, sup_done_fn *done, void *data)
{
	(void)s;
	if (done)
		done(data, 1, "another program is no sbxsvd");
}

bool sup_shutting_down(const struct sup *s)
{
	return s->down;
}

struct js *sup_app_status(struct sup *s, const char *app)
{
	struct js *j;

	if (!sup_has_app(s, app))
		return NULL;
	j = js_obj();
	js_add_str(j, "name", app);
	js_add_str(j, "state", "running");
	return j;
}

struct js *sup_status(struct sup *s, bool usage)
{
	struct js *j = js_obj(), *apps = js_arr();

	(void)usage;
	js_push(apps, sup_app_status(s, "notes"));
	js_add(j, "apps", apps);
	return j;
}

struct js *sup_violations(struct sup *s, const char *app, int64_t since_ms)
{
	struct js *j = js_obj();

	(void)s;
	js_add_str(j, "app", app ? app : "*");
	js_add_int(j, "since_ms", since_ms);
	return j;
}

struct js *sup_ports(struct sup *s)
{
	(void)s;
	return js_arr();
}

struct logs *sup_app_logs(struct sup *s, const char *app)
{
	return str_eq(app, "notes") ? s->logs : NULL;
}

struct events *sup_events(struct sup *s)
{
	return s->ev;
}

struct sup_instance *sup_instance_join(struct sup *s, const char *app, pid_t runner, int runner_fd,
				       const struct sup_instance_hooks *hooks, struct err **e)
{
	(void)s;
	(void)app;
	(void)runner;
	(void)runner_fd;
	(void)hooks;
	(void)err_set(e, ENOENT, "there is no such app");
	return NULL;
}

void sup_instance_says(struct sup_instance *i, const struct js *message)
{
	(void)i;
	(void)message;
}

void sup_instance_gone(struct sup_instance *i)
{
	(void)i;
}

void sup_prepare_again(struct sup *s, const char *app)
{
	(void)s;
	(void)app;
}
