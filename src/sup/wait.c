/* Must an app wait for others, for which, and in which words? See order.c. */
#include "sup/order.h"
#include "base/clock.h"
#include <string.h>

static bool available(const struct app *r)
{
	return !r->held_back && !r->removed &&
	       (r->state == APP_RUNNING || r->state == APP_UNHEALTHY || r->state == APP_IDLE);
}

/* It will be there without anybody doing anything, unless it fails first. */
static bool on_its_way(const struct app *r)
{
	if (r->removed || r->dead)
		return false;
	if (r->held_back)
		return *r->held_back == EV_RESTART;
	switch (r->state) {
	case APP_STARTING:
		return true;
	case APP_WAITING:
		return !r->stuck;
	case APP_STOPPING:
		return r->after == AFTER_AGAIN || r->after == AFTER_IDLE;
	default:
		return false;
	}
}

enum { SHOWN_MAX = 3 }; /* apps that are named with their state */

struct wait {
	size_t n;
	bool stuck;
	struct strbuf text, hint;
};

/* "db (failed: exited with status 3 after 5 ms)" */
static void describe(struct wait *x, const char *name, const struct app *r)
{
	const char *reason = r ? r->reason : NULL;
	int len = reason ? (int)strcspn(reason, "\n") : 0;

	if (x->n > SHOWN_MAX)
		return;
	strbuf_addf(&x->text, "%s%s", x->n > 1 ? ", " : "waiting for ", name);
	while (len && reason[len - 1] == ':')
		len--;
	if (!r || r->removed)
		strbuf_adds(&x->text, " (there is no such app)");
	else if (r->held_back)
		strbuf_addf(&x->text, " (it is about to be %s)",
			    *r->held_back == EV_STOP ? "stopped" : "restarted");
	else if (len && r->state != APP_STARTING && r->state != APP_WAITING)
		strbuf_addf(&x->text, " (%s: %.*s)", app_state_name(r->state), len, reason);
	else
		strbuf_addf(&x->text, " (%s)", app_state_name(r->state));
}

static void advise(struct wait *x, const struct unit_value *v, const struct app *r, const struct sup *s)
{
	CLEANUP_FREE const char **names = NULL;
	const char *near;
	size_t n = 0;

	if (x->hint.len)
		return;
	if (r && !r->removed) {
		strbuf_addf(&x->hint, "it starts as soon as %s is ready; sbxsv status %s says more", v->text,
			    v->text);
		return;
	}
	names = xcalloc(s->n_apps + 1, sizeof *names);
	for (const struct app *a = s->apps; a; a = a->next)
		if (!a->dead && !a->removed)
			names[n++] = a->name;
	near = str_nearest(v->text, names);
	strbuf_addf(&x->hint, "%s names it%s%s%s; it starts as soon as there is a unit of that name",
		    v->origin, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static const struct unit_value *line_at(const struct unit *u, size_t i)
{
	return i < u->requires.n ? &u->requires.v[i] : &u->after.v[i - u->requires.n];
}

/* The next app that `a` must wait for, from line *i on, those of Requires= first, each app once; NULL: no more.
 * *ret: the app, or NULL when there is none of that name. */
static const struct unit_value *next_awaited(const struct app *a, size_t *i, const struct app **ret)
{
	const struct order_world *w = order_world(a->sup);
	const struct unit *u = a->unit;

	for (; *i < u->requires.n + u->after.n; (*i)++) {
		const struct unit_value *v = line_at(u, *i);
		const struct app *r = order_app(w, v->text);
		bool needed = *i < u->requires.n ? !r || !available(r) : r && on_its_way(r);

		if (!needed || (r && w->order.circle[r->node] == w->order.circle[a->node]))
			continue;
		for (size_t k = 0; k < *i && needed; k++)
			needed = !str_eq(line_at(u, k)->text, v->text);
		if (!needed)
			continue;
		*ret = r;
		(*i)++;
		return v;
	}
	return NULL;
}

static void look(struct app *a, struct wait *x)
{
	const struct unit_value *v;
	const struct app *r;
	size_t i = 0;

	while ((v = next_awaited(a, &i, &r))) {
		x->n++;
		describe(x, v->text, r);
		if (i > a->unit->requires.n || (r && on_its_way(r)))
			continue;
		x->stuck = true;
		advise(x, v, r, a->sup);
	}
	if (x->n > SHOWN_MAX)
		strbuf_addf(&x->text, " and %zu more", x->n - SHOWN_MAX);
}

struct js *order_awaited(const struct app *a)
{
	struct js *list = js_arr();
	const struct unit_value *v;
	const struct app *r;
	size_t i = 0;

	while (a->unit && (v = next_awaited(a, &i, &r))) {
		struct js *o = js_obj();

		js_add_str(o, "app", v->text);
		if (r && !r->removed)
			js_add_str(o, "state", app_state_name(r->state));
		js_push(list, o);
	}
	return list;
}

/* Those who connect wait as long as they do for an app in backoff. */
void order_hold_gate(struct app *a)
{
	int64_t left = APP_BACKOFF_HOLD_MS - (clk_mono_ms() - a->since_ms);

	if (a->state == APP_WAITING && a->stuck && left > 0)
		loop_timer_start(&a->gate_timer, left);
}

/* Sets reason, hint and `stuck`. */
bool wait_look(struct app *a)
{
	struct wait x = {0};

	look(a, &x);
	a->stuck = x.stuck;
	if (x.n)
		app_say(a, x.hint.p ? x.hint.p : "", "%s", x.text.p);
	else if (a->state == APP_WAITING)
		app_say_nothing(a);
	strbuf_finish(&x.text);
	strbuf_finish(&x.hint);
	return x.n > 0;
}

bool order_blocked(struct app *a)
{
	return (a->unit->requires.n || a->unit->after.n) && wait_look(a);
}
