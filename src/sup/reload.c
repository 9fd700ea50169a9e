/*
 * apps.d as a diff. The directory is read whole, each unit is compared in meaning with the one that is known,
 * and only then, when every app knows its new definition, the table is told: so that an app that starts
 * already knows which directories of the others it must not see, and a rejected file changes nothing half.
 *
 *   new file             started (Enabled=yes)
 *   file gone            stopped and forgotten
 *   no change            nothing
 *   live keys            applied to the running app
 *   other keys           a new process
 *   broken               what runs goes on, its problems are shown; not started again until corrected
 *   was broken           started
 *   Enabled=no -> yes    started
 *   Enabled=yes -> no    stopped
 *
 * A directory that cannot be read says nothing about its apps: all go on, and status shows the problem.
 */
#include "sup/app.h"
#include "base/file.h"
#include "base/log.h"
#include <errno.h>

static const enum app_event do_start = EV_START, do_stop = EV_STOP, do_restart = EV_RESTART,
			    do_remove = EV_REMOVE, do_idle = EV_IDLE;

/* What an enabled app that does not run is told. */
static const enum app_event *do_begin(const struct unit *u)
{
	return u && u->mode == UNIT_SESSION ? &do_idle : &do_start;
}

struct report {
	struct js *added, *removed, *restarted, *live, *problems;
	int64_t unchanged;
};

static void report_problems(struct report *r, const struct unit_problems *p, bool news)
{
	for (size_t i = 0; i < p->n; i++) {
		CLEANUP_FREE char *text =
			p->v[i].line ? xasprintf("%s:%u: %s", p->v[i].file, p->v[i].line, p->v[i].text)
				     : xasprintf("%s: %s", p->v[i].file, p->v[i].text);

		if (news)
			log_warning("%s", text);
		js_push_str(r->problems, text);
	}
}

static bool same_problems(const struct unit_problems *a, const struct unit_problems *b)
{
	CLEANUP_FREE char *x = unit_problems_text(a), *y = unit_problems_text(b);

	return str_eq(x, y);
}

/* `u` replaces the definition in force; the same process may go on. */
static void put_in_force(struct app *a, struct unit *u)
{
	unit_free(a->unit);
	a->unit = u;
	a->network_told = false;
	sup_configure_logs(a);
}

static void adopt_broken(struct app *a, struct unit_scan_entry *en, struct report *r)
{
	bool news = !a->broken || !same_problems(&a->problems, &en->problems);

	report_problems(r, &en->problems, news);
	unit_problems_clear(&a->problems);
	a->problems = en->problems;
	en->problems = (struct unit_problems){0};
	a->broken = true;
	/* Nothing runs and nobody stopped it: show why by way of the table. */
	if (news && (a->state == APP_FAILED || (a->state == APP_STOPPED && !a->unit)))
		a->todo = &do_start;
	else if (a->state == APP_IDLE) /* its next client could not be served */
		a->todo = &do_idle;
}

static void adopt_changed(struct app *a, struct unit *u, unsigned flags, struct report *r)
{
	bool was_enabled = app_newest(a)->enabled, now_enabled = u->enabled;
	/* what clients started goes on with the definition it has, and ends with its client */
	bool theirs = a->instances && u->mode == UNIT_STDIO;
	bool alive = (app_alive(a) || a->state == APP_STARTING || a->state == APP_STOPPING) && !theirs;
	/* nothing of it runs, but it is past its ports: between two tries of [Prepare], say */
	bool on_its_way = a->state == APP_STARTING && !a->launch;

	if (((flags & UNIT_CHANGE_RESTART) && alive) || on_its_way) {
		unit_free(a->newest);
		a->newest = u;
		if (a->state != APP_STOPPING)
			a->todo = &do_restart;
	} else {
		bool newest = a->newest != NULL;

		if (newest) { /* a still newer one than that which waits for its process */
			unit_free(a->newest);
			a->newest = u;
		} else {
			put_in_force(a, u);
			stdio_unit(a, flags & UNIT_CHANGE_RESTART);
		}
		if (a->state == APP_WAITING)
			a->todo = &do_start;
		else if (a->state == APP_FAILED || a->state == APP_IDLE ||
			 (a->state == APP_BACKOFF && (flags & UNIT_CHANGE_RESTART)))
			a->todo = do_begin(u);
	}
	if (was_enabled && !now_enabled)
		a->todo = &do_stop;
	else if (!was_enabled && now_enabled && !alive && u->mode != UNIT_STDIO)
		a->todo = do_begin(u);
	js_push_str(a->todo == &do_restart ? r->restarted : r->live, a->name);
}

/* An app waits that requires one of this name. */
static bool is_awaited(const struct sup *s, const char *name)
{
	for (const struct app *a = s->apps; a; a = a->next)
		for (size_t i = 0; a->state == APP_WAITING && i < a->unit->requires.n; i++)
			if (str_eq(a->unit->requires.v[i].text, name))
				return true;
	return false;
}

static bool is_wanted(const struct app *a, const struct unit *u)
{
	return (u->enabled || is_awaited(a->sup, a->name)) && u->mode != UNIT_STDIO;
}

static void adopt_good(struct app *a, struct unit_scan_entry *en, struct report *r)
{
	struct unit *u = TAKE_PTR(en->unit);
	bool was_broken = a->broken, first = !a->unit;
	CLEANUP_ERR struct err *e = NULL;
	unsigned flags;

	/* Rules that the proxy would refuse are an error like any other: what runs keeps those it has. */
	if (!first && unit_diff(app_newest(a), u) && app_jailed(u) &&
	    network_policy_fits(u, &a->live, &e) < 0) {
		unit_problem_add(&en->problems, path_basename(u->file), 0, "%s", err_msg(e));
		unit_free(u);
		adopt_broken(a, en, r);
		return;
	}
	a->broken = false;
	unit_problems_clear(&a->problems);
	if (first) {
		put_in_force(a, u);
		if (is_wanted(a, u))
			a->todo = do_begin(u);
		js_push_str(r->added, a->name);
		return;
	}
	flags = unit_diff(app_newest(a), u);
	if (flags || app_newest(a)->enabled != u->enabled) {
		adopt_changed(a, u, flags, r);
		return;
	}
	unit_free(u);
	r->unchanged++;
	if (was_broken && a->state == APP_FAILED)
		a->todo = do_begin(app_newest(a));
}

static void adopt(struct sup *s, struct unit_scan_entry *en, struct report *r)
{
	struct app *a = app_find(s, en->name);

	if (!a)
		a = app_create(s, en->name);
	a->seen = true;
	if (a->removed) { /* it came back before its last process was gone */
		a->removed = false;
		a->todo = !en->unit || is_wanted(a, en->unit) ? do_begin(en->unit) : NULL;
	}
	if (en->unit)
		adopt_good(a, en, r);
	else
		adopt_broken(a, en, r);
	sup_configure_logs(a);
}

static void forget_missing(struct sup *s, struct report *r)
{
	for (struct app *a = s->apps; a; a = a->next) {
		if (a->seen || a->removed)
			continue;
		a->removed = true;
		a->todo = &do_remove;
		js_push_str(r->removed, a->name);
	}
}

/* Live rules of a running app. They were checked when the unit was read; if the proxy still refuses them, a
 * new process will say why rather than the old one go on with rules that are no longer written anywhere. */
static void apply_live(struct app *a)
{
	CLEANUP_ERR struct err *e = NULL;

	if (!a->launch || a->network_told || a->todo)
		return;
	if ((app_jailed(a->unit) && listener_move(a, &e) < 0) || network_apply(a, &e) < 0 ||
	    loopback_renew(a, &e) < 0) {
		log_error("%s: %s", a->name, err_msg(e));
		a->todo = &do_restart;
		return;
	}
	loopback_follow(a);
	events_note(a->sup->events, "policy", a->name, "the rules of the unit were applied");
}

static void carry_out(struct sup *s)
{
	CLEANUP_FREE struct app **all = NULL;
	size_t n;

	order_changed(s);
	n = order_all(s, &all);
	batch_begin(s);
	for (size_t i = 0; i < n; i++) {
		struct app *a = all[i];
		const enum app_event *todo;

		apply_live(a);
		todo = a->todo;
		a->todo = NULL;
		if (!todo) {
			health_follow(a);
			continue;
		}
		restart_reset(&a->restart);
		if (todo == &do_restart) { /* a changed unit: only this app, and what it requires now */
			order_need(a);
			app_event(a, *todo);
		} else
			order_request(a, *todo, false, NULL);
	}
	order_review(s);
	batch_end(s);
}

static void read_conf(struct sup *s, struct report *r)
{
	struct conf c = {0};
	struct unit_problems p = {0};

	if (conf_load(s->dirs, &c, &p) == 0) {
		conf_finish(&s->conf);
		s->conf = c;
	} else {
		conf_finish(&c); /* the settings in force stay */
	}
	report_problems(r, &p, true);
	for (size_t i = 0; i < p.n; i++)
		unit_problem_add(&s->problems, p.v[i].file, p.v[i].line, "%s", p.v[i].text);
	unit_problems_clear(&p);
}

static void trouble(struct sup *s, struct report *r, const char *text)
{
	CLEANUP_FREE char *line = xasprintf("%s: %s", s->dirs->apps, text);

	log_error("%s", line);
	js_push_str(r->problems, line);
	unit_problem_add(&s->problems, s->dirs->apps, 0, "%s", text);
}

static void scan(struct sup *s, struct report *r)
{
	CLEANUP_ERR struct err *e = NULL;
	struct unit_scan sc = {0};

	for (struct app *a = s->apps; a; a = a->next)
		a->seen = false;
	if (s->apps && access(s->dirs->apps, F_OK) < 0 && errno == ENOENT) {
		trouble(s, r,
			"the directory is gone; the apps go on as they are, and stop when it is there again "
			"without them");
		return;
	}
	if (unit_scan_dir(s->dirs, &sc, &e) < 0) {
		trouble(s, r, err_msg(e));
		return;
	}
	report_problems(r, &sc.problems, true);
	for (size_t i = 0; i < sc.problems.n; i++)
		unit_problem_add(&s->problems, sc.problems.v[i].file, sc.problems.v[i].line, "%s",
				 sc.problems.v[i].text);
	for (size_t i = 0; i < sc.n; i++)
		adopt(s, &sc.v[i], r);
	forget_missing(s, r);
	unit_scan_finish(&sc);
	carry_out(s);
	newcomers_check(s);
}

struct js *sup_reload(struct sup *s)
{
	struct report r = {.added = js_arr(),
			   .removed = js_arr(),
			   .restarted = js_arr(),
			   .live = js_arr(),
			   .problems = js_arr()};
	struct js *out = js_obj();

	if (s->down) {
		js_push_str(r.problems, "the supervisor is shutting down");
	} else {
		unit_problems_clear(&s->problems);
		watch_renew(s->watch); /* first: what changes during the scan is seen by the next one */
		read_conf(s, &r);
		scan(s, &r);
	}
	js_add(out, "added", r.added);
	js_add(out, "removed", r.removed);
	js_add(out, "restarted", r.restarted);
	js_add(out, "live", r.live);
	js_add_int(out, "unchanged", r.unchanged);
	js_add(out, "problems", r.problems);
	return out;
}
