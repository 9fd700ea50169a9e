/*
 * Theory of operation. Nodes that reach each other are found by Tarjan's algorithm (SIAM J. Comput. 1, 1972) with a
 * stack of its own; it finishes a component after all that is reachable from it, so the order in which components are
 * finished is an order to start apps in. A component of more than one node is a circle (or several): none of its apps
 * could ever start, so each of them is refused by a circle it is in, all lines of it named. The others are not.
 */
#include "unit/order.h"
#include "unit/internal.h"
#include <string.h>

/* --- the graph --- */

/* Numbers of edges sorted by one of their ends: at[node] is where those of a node begin. */
static void sort_edges(struct order *o, bool by_to, uint32_t **ret, uint32_t **ret_at)
{
	uint32_t *at = xcalloc(o->n + 2, sizeof *at), *v = xcalloc(o->n_edges + 1, sizeof *v);

	for (size_t i = 0; i < o->n_edges; i++)
		at[(by_to ? o->edges[i].to : o->edges[i].from) + 2]++;
	for (size_t i = 2; i < o->n + 2; i++)
		at[i] += at[i - 1];
	for (size_t i = 0; i < o->n_edges; i++)
		v[at[(by_to ? o->edges[i].to : o->edges[i].from) + 1]++] = (uint32_t)i;
	*ret = v;
	*ret_at = at;
}

struct search {
	struct order *o;
	uint32_t *number, *low, *next; /* number 0: not seen */
	uint32_t *path, *stack; /* path: the nodes being visited; stack: those without a component yet */
	bool *stacked;
	size_t n_path, n_stack, n_done;
	uint32_t seen, components;
};

static void enter(struct search *s, uint32_t node)
{
	s->number[node] = s->low[node] = ++s->seen;
	s->next[node] = s->o->out_at[node];
	s->path[s->n_path++] = node;
	s->stack[s->n_stack++] = node;
	s->stacked[node] = true;
}

static void leave(struct search *s, uint32_t node)
{
	struct order *o = s->o;
	uint32_t member;
	size_t first = s->n_done;

	s->n_path--;
	if (s->n_path && s->low[node] < s->low[s->path[s->n_path - 1]])
		s->low[s->path[s->n_path - 1]] = s->low[node];
	if (s->low[node] != s->number[node])
		return;
	do {
		member = s->stack[--s->n_stack];
		s->stacked[member] = false;
		o->circle[member] = s->components;
		o->rank[member] = (uint32_t)s->n_done;
		o->sequence[s->n_done++] = member;
	} while (member != node);
	s->components++;
	for (size_t i = first; s->n_done - first > 1 && i < s->n_done; i++)
		o->circular[o->sequence[i]] = true;
}

static void visit(struct search *s, uint32_t root)
{
	const struct order *o = s->o;

	enter(s, root);
	while (s->n_path) {
		uint32_t node = s->path[s->n_path - 1], to;

		if (s->next[node] == o->out_at[node + 1]) {
			leave(s, node);
			continue;
		}
		to = o->edges[o->out[s->next[node]++]].to;
		if (!s->number[to])
			enter(s, to);
		else if (s->stacked[to] && s->number[to] < s->low[node])
			s->low[node] = s->number[to];
	}
}

void order_make(struct order *ret, size_t n, const struct order_edge *edges, size_t n_edges)
{
	struct search s = {.o = ret};

	*ret = (struct order){.n = n, .edges = edges, .n_edges = n_edges};
	ret->sequence = xcalloc(n + 1, sizeof *ret->sequence);
	ret->rank = xcalloc(n + 1, sizeof *ret->rank);
	ret->circle = xcalloc(n + 1, sizeof *ret->circle);
	ret->circular = xcalloc(n + 1, sizeof *ret->circular);
	sort_edges(ret, false, &ret->out, &ret->out_at);
	sort_edges(ret, true, &ret->in, &ret->in_at);
	s.number = xcalloc(n + 1, sizeof *s.number);
	s.low = xcalloc(n + 1, sizeof *s.low);
	s.next = xcalloc(n + 1, sizeof *s.next);
	s.path = xcalloc(n + 1, sizeof *s.path);
	s.stack = xcalloc(n + 1, sizeof *s.stack);
	s.stacked = xcalloc(n + 1, sizeof *s.stacked);
	for (size_t i = 0; i < n; i++)
		if (!s.number[i])
			visit(&s, (uint32_t)i);
	free(s.number);
	free(s.low);
	free(s.next);
	free(s.path);
	free(s.stack);
	free(s.stacked);
}

void order_finish(struct order *o)
{
	free(o->sequence);
	free(o->rank);
	free(o->circle);
	free(o->circular);
	free(o->out);
	free(o->out_at);
	free(o->in);
	free(o->in_at);
	*o = (struct order){0};
}

/* Breadth first, inside the component; came[node]: 1 + the edge by which it was reached. */
size_t order_circle(const struct order *o, uint32_t node, uint32_t **ret)
{
	CLEANUP_FREE uint32_t *came = xcalloc(o->n + 1, sizeof *came),
			      *queue = xcalloc(o->n + 1, sizeof *queue);
	size_t head = 0, tail = 0, len = 0;
	uint32_t *v;

	queue[tail++] = node;
	while (head < tail && !came[node]) {
		uint32_t at = queue[head++];

		for (uint32_t i = o->out_at[at]; i < o->out_at[at + 1]; i++) {
			uint32_t to = o->edges[o->out[i]].to;

			if (came[to] || to == at || o->circle[to] != o->circle[node])
				continue;
			came[to] = o->out[i] + 1;
			if (to != node)
				queue[tail++] = to;
		}
	}
	if (!came[node])
		return 0;
	v = xcalloc(tail + 1, sizeof *v);
	for (uint32_t at = node; !len || at != node; len++) {
		v[len] = came[at] - 1;
		at = o->edges[v[len]].from;
	}
	for (size_t i = 0; i < len / 2; i++) {
		uint32_t swap = v[i];

		v[i] = v[len - 1 - i];
		v[len - 1 - i] = swap;
	}
	*ret = v;
	return len;
}

size_t order_find(const void *list, size_t n, const char *(*name_at)(const void *list, size_t i),
		  const char *name)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = strcmp(name_at(list, mid), name);

		if (c == 0)
			return mid;
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return n;
}

/* --- units --- */

struct units { /* of a scan, one of them perhaps replaced */
	const struct unit_scan *scan;
	const struct unit *instead; /* NULL: none */
	size_t n;
	struct order_edge *edges;
	const struct unit_value **lines; /* of each edge */
	size_t n_edges, cap_edges, cap_lines;
	struct order order;
};

static const char *entry_name(const void *list, size_t i)
{
	return ((const struct unit_scan *)list)->v[i].name;
}

static size_t node_of(const struct units *w, const char *name)
{
	size_t i = order_find(w->scan, w->scan->n, entry_name, name);

	if (i == w->scan->n && w->instead && str_eq(w->instead->name, name))
		return w->n - 1;
	return i == w->scan->n ? w->n : i;
}

static const struct unit *unit_at(const struct units *w, size_t i)
{
	const struct unit_scan_entry *en;

	if (i == w->scan->n)
		return w->instead;
	en = &w->scan->v[i];
	if (w->instead && str_eq(en->name, w->instead->name))
		return w->instead;
	return en->unit ? en->unit : en->circular;
}

static void add_lines(struct units *w, size_t from, const struct unit_list *l, enum order_kind kind)
{
	for (size_t i = 0; i < l->n; i++) {
		size_t to = node_of(w, l->v[i].text);

		if (to == w->n)
			continue;
		VEC_GROW(w->edges, w->n_edges, w->cap_edges);
		VEC_GROW(w->lines, w->n_edges, w->cap_lines);
		w->edges[w->n_edges] =
			(struct order_edge){.from = (uint32_t)from, .to = (uint32_t)to, .kind = kind};
		w->lines[w->n_edges++] = &l->v[i];
	}
}

static void units_make(struct units *w, const struct unit_scan *scan, const struct unit *instead)
{
	*w = (struct units){.scan = scan, .instead = instead, .n = scan->n};
	if (instead && order_find(scan, scan->n, entry_name, instead->name) == scan->n)
		w->n++;
	for (size_t i = 0; i < w->n; i++) {
		const struct unit *u = unit_at(w, i);

		if (u) {
			add_lines(w, i, &u->requires, ORDER_REQUIRES);
			add_lines(w, i, &u->after, ORDER_AFTER);
		}
	}
	order_make(&w->order, w->n, w->edges, w->n_edges);
}

static void units_finish(struct units *w)
{
	order_finish(&w->order);
	free(w->edges);
	free(w->lines);
}

enum { SHOWN_MAX = 8 }; /* lines of a circle that are named */

/* "Requires=b goes in a circle: b requires c (b.app:4), c comes after a (c.app:5)" */
static void report(const struct units *w, uint32_t node, struct unit_problems *p)
{
	CLEANUP_FREE uint32_t *way = NULL;
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
	size_t n = order_circle(&w->order, node, &way);

	if (!n)
		return;
	strbuf_addf(&b, "[App] %s=%s goes in a circle: ",
		    w->edges[way[0]].kind == ORDER_AFTER ? "After" : "Requires", w->lines[way[0]]->text);
	for (size_t i = 1; i < n && i <= SHOWN_MAX; i++) {
		const struct order_edge *e = &w->edges[way[i]];

		strbuf_addf(&b, "%s%s %s %s (%s)", i > 1 ? ", " : "", unit_at(w, e->from)->name,
			    e->kind == ORDER_AFTER ? "comes after" : "requires", w->lines[way[i]]->text,
			    w->lines[way[i]]->origin);
	}
	if (n > SHOWN_MAX + 1)
		strbuf_addf(&b, ", and so on over %zu apps back to %s", n - SHOWN_MAX - 1,
			    unit_at(w, node)->name);
	strbuf_adds(&b, "; remove one of these lines");
	unit_problem_add_at(p, w->lines[way[0]]->origin, b.p);
}

void unit_order_check(struct unit_scan *scan)
{
	struct units w;

	units_make(&w, scan, NULL);
	for (size_t i = 0; i < scan->n; i++)
		if (w.order.circular[i])
			report(&w, (uint32_t)i, &scan->v[i].problems);
	for (size_t i = 0; i < scan->n; i++)
		if (w.order.circular[i]) {
			scan->v[i].circular = scan->v[i].unit;
			scan->v[i].unit = NULL;
		}
	units_finish(&w);
}

void unit_order_check_one(const struct unit *u, const struct unit_scan *scan, struct unit_problems *p)
{
	struct units w;
	size_t node;

	units_make(&w, scan, u);
	node = node_of(&w, u->name);
	if (w.order.circular[node])
		report(&w, (uint32_t)node, p);
	units_finish(&w);
}

static void note_unknown(const struct unit_value *v, const char *key, const struct unit_scan *scan,
			 struct strv *ret)
{
	CLEANUP_FREE const char **names = NULL;
	const char *near;

	if (order_find(scan, scan->n, entry_name, v->text) < scan->n)
		return;
	names = xcalloc(scan->n + 1, sizeof *names);
	for (size_t i = 0; i < scan->n; i++)
		names[i] = scan->v[i].name;
	near = str_nearest(v->text, names);
	strv_addf(ret, "%s: %s=%s: there is no app %s%s%s%s%s", v->origin, key, v->text, v->text,
		  near ? "; did you mean " : "", near ? near : "", near ? "?" : "",
		  str_eq(key, "Requires") ? "; the app waits until there is one" : "");
}

void unit_order_notes(const struct unit *u, const struct unit_scan *scan, struct strv *ret)
{
	for (size_t i = 0; i < u->requires.n; i++) {
		size_t at = order_find(scan, scan->n, entry_name, u->requires.v[i].text);
		const struct unit *o = at < scan->n ? scan->v[at].unit : NULL;

		note_unknown(&u->requires.v[i], "Requires", scan, ret);
		if (o && o->mode == UNIT_STDIO)
			strv_addf(ret,
				  "%s: Requires=%s: %s is Mode=stdio, which the supervisor never starts; the "
				  "app "
				  "waits until a client runs it",
				  u->requires.v[i].origin, o->name, o->name);
	}
	for (size_t i = 0; i < u->after.n; i++)
		note_unknown(&u->after.v[i], "After", scan, ret);
}
