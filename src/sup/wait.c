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

static void look(struct app *a, struct wait *x)
{
	const struct order_world *w = order_world(a->sup);
	const struct unit *u = a->unit;

	for (size_t i = 0; i < u->requires.n; i++) {
		const struct app *r = order_app(w, u->requires.v[i].text);

		if (r && (available(r) || w->order.circle[r->node] == w->order.circle[a->node]))
			continue;
		x->n++;
		describe(x, u->requires.v[i].text, r);
		if (r && on_its_way(r))
			continue;
		x->stuck = true;
		advise(x, &u->requires.v[i], r, a->sup);
	}
	for (size_t i = 0; i < u->after.n; i++) {
		const struct app *r = order_app(w, u->after.v[i].text);

		if (!r || !on_its_way(r) || w->order.circle[r->node] == w->order.circle[a->node])
			continue;
		x->n++;
		describe(x, r->name, r);
	}
	if (x->n > SHOWN_MAX)
		strbuf_addf(&x->text, " and %zu more", x->n - SHOWN_MAX);
}

/* Those who connect wait as long as they do for an app in backoff. */
void wait_hold_gate(struct app *a)
{
	int64_t left = APP_BACKOFF_HOLD_MS - (a->state == APP_WAITING ? clk_mono_ms() - a->since_ms : 0);

	if (a->stuck && left > 0)
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
	if ((!a->unit->requires.n && !a->unit->after.n) || !wait_look(a))
		return false;
	wait_hold_gate(a);
	return true;
}
