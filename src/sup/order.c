/*
 * After= and Requires= in force: who waits for whom, who is started or stopped with whom.
 *
 * Theory of operation. The lines of all units make a graph (unit/order.h), made anew when definitions changed. An app
 * whose ports are held asks order_blocked() before its launch: it is blocked by an app it requires that is not
 * available (running, unhealthy, or idle, where the first connection starts it), and by an app it comes after that is
 * on its way there. A blocked one is `waiting`; each change of an app's state is a reason to ask again for those that
 * wait for it. `stuck` is one that waits for something that does not come by itself: its start is answered, and who
 * comes after it by After= alone need not wait. Lines that go in a circle do not count here: the scan refuses the units
 * in it, but an older definition of one may still run.
 *
 * A request is carried out along Requires=: a start starts what is stopped of that first; a stop or a restart is held
 * back (`held_back`) until nothing runs that requires the app, each of those being stopped the same way; after a
 * restart they wait, and so start again in order. A crash, and a restart by a changed unit, are nobody's request:
 * what requires the app runs on. The end of everything does not come by here at all.
 *
 * Nothing recurses: walks have a list of their own, and changes that follow from a change are queued.
 */
#include "sup/order.h"
#include <string.h>

static const enum app_event ev_stop = EV_STOP, ev_restart = EV_RESTART;

/* --- the graph --- */

static const char *name_at(const void *list, size_t i)
{
	return ((struct app *const *)list)[i]->name;
}

struct app *order_app(const struct order_world *w, const char *name)
{
	size_t i = order_find(w->apps, w->n, name_at, name);

	return i < w->n ? w->apps[i] : NULL;
}

static void add_lines(struct order_world *w, const struct app *a, const struct unit_list *l,
		      enum order_kind kind)
{
	for (size_t i = 0; i < l->n; i++) {
		const struct app *to = order_app(w, l->v[i].text);

		if (!to)
			continue;
		VEC_GROW(w->edges, w->n_edges, w->cap_edges);
		w->edges[w->n_edges++] = (struct order_edge){.from = a->node, .to = to->node, .kind = kind};
	}
}

struct order_world *order_world(struct sup *s)
{
	struct order_world *w = s->order;
	size_t i = 0;

	if (!w)
		w = s->order = xcalloc(1, sizeof *w);
	if (w->fresh)
		return w;
	order_finish(&w->order);
	w->fresh = true;
	w->n = s->n_apps;
	w->n_edges = 0;
	w->apps = xrealloc(w->apps, (w->n + 1) * sizeof(struct app *));
	for (struct app *a = s->apps; a; a = a->next) {
		a->node = (uint32_t)i;
		w->apps[i++] = a;
	}
	for (i = 0; i < w->n; i++) {
		const struct unit *u = app_newest(w->apps[i]);

		if (u) {
			add_lines(w, w->apps[i], &u->requires, ORDER_REQUIRES);
			add_lines(w, w->apps[i], &u->after, ORDER_AFTER);
		}
	}
	order_make(&w->order, w->n, w->edges, w->n_edges);
	return w;
}

void order_changed(struct sup *s)
{
	if (s->order)
		s->order->fresh = false;
}

void order_forget(struct app *a)
{
	struct order_world *w = a->sup->order;

	if (!w)
		return;
	w->fresh = false;
	for (size_t i = 0; i < w->n_moved; i++)
		if (w->moved[i] == a)
			w->moved[i] = NULL;
}

void order_release(struct sup *s)
{
	struct order_world *w = s->order;

	if (!w)
		return;
	order_finish(&w->order);
	free(w->apps);
	free(w->edges);
	free(w->moved);
	free(w);
	s->order = NULL;
}

/* The app at the other end of a line; NULL: the line does not count. */
static struct app *neighbour(const struct order_world *w, bool down, uint32_t i, enum order_kind *ret_kind)
{
	const struct order *o = &w->order;
	const struct order_edge *e = &o->edges[down ? o->out[i] : o->in[i]];

	if (o->circle[e->from] == o->circle[e->to])
		return NULL;
	*ret_kind = e->kind;
	return w->apps[down ? e->to : e->from];
}

#define EACH_NEIGHBOUR(w, a, down, i)                                                                        \
	for (uint32_t i = (down) ? (w)->order.out_at[(a)->node] : (w)->order.in_at[(a)->node],               \
		      end_##i = (down) ? (w)->order.out_at[(a)->node + 1] : (w)->order.in_at[(a)->node + 1]; \
	     i < end_##i; i++)

static bool is_session(const struct app *a)
{
	const struct unit *u = app_newest(a);

	return u && u->mode == UNIT_SESSION;
}

static int by_rank(const void *x, const void *y, void *order)
{
	const struct order *o = order;
	uint32_t a = o->rank[(*(struct app *const *)x)->node], b = o->rank[(*(struct app *const *)y)->node];

	return a < b ? -1 : a > b;
}

/* All that `a` requires (down), or that requires it, however far, without `a`; what is needed first comes first. */
static size_t collect(struct order_world *w, struct app *a, bool down, struct app ***ret)
{
	bool *seen = xcalloc(w->n + 1, sizeof *seen);
	struct app **v = NULL;
	size_t n = 0, cap = 0, at = 0;
	enum order_kind kind;

	seen[a->node] = true;
	for (struct app *x = a; x; x = at < n ? v[at++] : NULL)
		EACH_NEIGHBOUR(w, x, down, i)
		{
			struct app *y = neighbour(w, down, i, &kind);

			if (!y || kind != ORDER_REQUIRES || seen[y->node])
				continue;
			if (down && x != a &&
			    is_session(x)) /* idle is enough: what it requires its client wakes */
				continue;
			seen[y->node] = true;
			VEC_GROW(v, n, cap);
			v[n++] = y;
		}
	free(seen);
	if (n)
		qsort_r(v, n, sizeof(struct app *), by_rank, &w->order);
	*ret = v;
	return n;
}

size_t order_all(struct sup *s, struct app ***ret)
{
	struct order_world *w = order_world(s);
	struct app **v = xcalloc(w->n + 1, sizeof(struct app *));

	for (size_t i = 0; i < w->n; i++)
		v[i] = w->apps[w->order.sequence[i]];
	*ret = v;
	return w->n;
}

/* --- who waits asks again --- */

static void note(struct order_world *w, struct app *a)
{
	VEC_GROW(w->moved, w->n_moved, w->cap_moved);
	w->moved[w->n_moved++] = a;
}

static void review(struct order_world *w, struct app *a)
{
	bool was = a->stuck;

	if (a->state != APP_WAITING)
		return;
	if (!wait_look(a)) {
		app_event(a, EV_CLEAR);
		return;
	}
	if (a->stuck == was)
		return;
	order_hold_gate(a);
	network_gate(a);
	command_settle(a, NULL);
	note(w, a);
}

/* --- stops and restarts that are held back --- */

static bool runs(const struct app *a)
{
	return a->state == APP_STARTING || a->state == APP_RUNNING || a->state == APP_UNHEALTHY ||
	       a->state == APP_STOPPING;
}

/* Does something run that has to end before? A restart spares those whose new definition could not start. */
static bool is_needed(struct app *a)
{
	const struct order_world *w = order_world(a->sup);
	enum order_kind kind;

	EACH_NEIGHBOUR(w, a, false, i)
	{
		const struct app *x = neighbour(w, false, i, &kind);

		if (x && kind == ORDER_REQUIRES && runs(x) && !(*a->held_back == EV_RESTART && x->broken))
			return true;
	}
	return false;
}

static void let_go(struct app *a)
{
	const enum app_event *e = a->held_back;

	if (!e || is_needed(a))
		return;
	a->held_back = NULL;
	app_event(a, *e);
}

/* Whoever waits for a request that is overtaken by another is told now. */
static void hold_back(struct app *a, const enum app_event *e)
{
	const enum app_event *before = a->held_back;

	a->held_back = e;
	if (before && before != e)
		command_overtaken(a, *before);
}

static void tell_others(struct order_world *w, struct app *a)
{
	enum order_kind kind;

	if (!runs(a))
		EACH_NEIGHBOUR(w, a, true, i)
		{
			struct app *r = neighbour(w, true, i, &kind);

			if (r && kind == ORDER_REQUIRES)
				let_go(r);
		}
	EACH_NEIGHBOUR(w, a, false, i)
	{
		struct app *x = neighbour(w, false, i, &kind);

		if (x)
			review(w, x);
	}
}

static void drain(struct sup *s)
{
	struct order_world *w = order_world(s);

	if (w->telling)
		return;
	w->telling = true;
	for (size_t at = 0; at < w->n_moved; at++)
		if (w->moved[at] && !w->moved[at]->dead)
			tell_others(w, w->moved[at]);
	w->n_moved = 0;
	w->telling = false;
}

/* Called from within a step: what follows is queued. */
void order_moved(struct app *a)
{
	struct order_world *w = order_world(a->sup);

	if (a->sup->down || !w->n_edges)
		return;
	note(w, a);
	drain(a->sup);
}

void order_review(struct sup *s)
{
	CLEANUP_FREE struct app **all = NULL;
	size_t n = s->down ? 0 : order_all(s, &all);

	for (size_t i = 0; i < n; i++)
		review(s->order, all[i]);
	drain(s);
}

/* --- requests --- */

static void start_first(struct app *a, bool person, struct strv *with)
{
	CLEANUP_FREE struct app **v = NULL;
	size_t n = collect(order_world(a->sup), a, true, &v);

	for (size_t i = 0; i < n; i++) {
		struct app *r = v[i];
		const struct unit *u = app_newest(r);
		bool tried = r->state == APP_FAILED || r->state == APP_BACKOFF;
		bool ending = r->state == APP_STOPPING && r->after == AFTER_STAY;

		if (r->removed || (u && u->mode == UNIT_STDIO))
			continue;
		if (r->held_back == &ev_stop) { /* the latest wish counts */
			app_say_nothing(r);
			hold_back(r, NULL);
		} else if (r->state != APP_STOPPED && !ending && !(tried && person))
			continue;
		if (with)
			strv_add(with, r->name);
		if (person)
			restart_reset(&r->restart);
		app_event(r, is_session(r) ? EV_IDLE : EV_START);
	}
}

void order_need(struct app *a)
{
	if (!order_world(a->sup)->n_edges)
		return;
	a->sup->walks++;
	start_first(a, false, NULL);
	a->sup->walks--;
	app_bury(a->sup);
}

static bool ends_anyway(const struct app *x, const enum app_event *e)
{
	if (e == &ev_restart)
		return !runs(x) || x->state == APP_STOPPING || x->broken;
	return x->state == APP_STOPPED || x->state == APP_FAILED ||
	       (x->state == APP_STOPPING && (x->after == AFTER_STAY || x->after == AFTER_FORGET));
}

/* What requires it ends before it does. */
static void end_after_others(struct app *a, const enum app_event *e, struct strv *with)
{
	CLEANUP_FREE struct app **v = NULL;
	size_t n = collect(order_world(a->sup), a, false, &v);

	free(TAKE_PTR(a->because));
	hold_back(a, e);
	for (size_t i = n; i--;) {
		struct app *x = v[i];
		bool decided = x->held_back && (x->held_back == e || e == &ev_restart); /* a stop overtakes a restart */

		if (decided || ends_anyway(x, e))
			continue;
		if (with)
			strv_add(with, x->name);
		hold_back(x, e);
		free(x->because);
		x->because = e == &ev_stop ? xasprintf("stopped with %s, which it requires", a->name) : NULL;
		let_go(x);
	}
	let_go(a);
	if (a->held_back)
		app_say(a, "", "it %s when nothing that requires it runs any more",
			e == &ev_stop ? "stops" : "restarts");
}

/* Its unit is gone: what requires it cannot run without it, and waits for a unit of that name. */
static void end_with(struct app *a)
{
	CLEANUP_FREE struct app **v = NULL;
	enum order_kind kind;
	size_t n = 0;

	v = xcalloc(a->sup->n_apps + 1, sizeof(struct app *));
	EACH_NEIGHBOUR(order_world(a->sup), a, false, i)
	{
		struct app *x = neighbour(a->sup->order, false, i, &kind);

		if (x && kind == ORDER_REQUIRES && runs(x) && x->state != APP_STOPPING && !x->broken)
			v[n++] = x;
	}
	for (size_t i = 0; i < n; i++)
		order_request(v[i], EV_RESTART, false, NULL);
	app_event(a, EV_REMOVE);
}

void order_request(struct app *a, enum app_event e, bool person, struct strv *with)
{
	struct sup *s = a->sup;

	if (!order_world(s)->n_edges) {
		app_event(a, e);
		return;
	}
	s->walks++; /* nothing is freed under us */
	switch (e) {
	case EV_START:
	case EV_IDLE:
		if (a->held_back == &ev_stop) {
			app_say_nothing(a);
			hold_back(a, NULL);
		}
		if (e == EV_START && a->state != APP_RUNNING && a->state != APP_UNHEALTHY)
			start_first(a, person, with);
		app_event(a, e);
		break;
	case EV_STOP:
		end_after_others(a, &ev_stop, with);
		break;
	case EV_RESTART:
		start_first(a, person, NULL);
		end_after_others(a, &ev_restart, with);
		break;
	case EV_REMOVE:
		end_with(a);
		break;
	default:
		app_event(a, e);
	}
	s->walks--;
	app_bury(s);
}

/* --- across an exec of the supervisor --- */

const char *order_save(const struct app *a)
{
	return a->held_back ? app_event_name(*a->held_back) : NULL;
}

void order_restore(struct app *a, const char *held_back)
{
	a->held_back = str_eq(held_back, app_event_name(EV_STOP))      ? &ev_stop
		       : str_eq(held_back, app_event_name(EV_RESTART)) ? &ev_restart
								       : NULL;
}
