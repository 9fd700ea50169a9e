/* After= and Requires= as a graph: sequences, circles, sizes. */
#include "unit/order.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void check_sequence(const struct order *o)
{
	CLEANUP_FREE bool *seen = xcalloc(o->n + 1, sizeof *seen);

	for (size_t i = 0; i < o->n; i++) {
		assert_true(o->sequence[i] < o->n && !seen[o->sequence[i]]);
		seen[o->sequence[i]] = true;
		assert_int_equal(o->rank[o->sequence[i]], i);
	}
	for (size_t i = 0; i < o->n_edges; i++)
		if (o->circle[o->edges[i].from] != o->circle[o->edges[i].to])
			assert_true(o->rank[o->edges[i].from] > o->rank[o->edges[i].to]);
}

static void check_circle(const struct order *o, uint32_t node)
{
	CLEANUP_FREE uint32_t *way = NULL;
	CLEANUP_FREE bool *seen = xcalloc(o->n + 1, sizeof *seen);
	size_t n = order_circle(o, node, &way);

	assert_true(n > 1);
	assert_int_equal(o->edges[way[0]].from, node);
	assert_int_equal(o->edges[way[n - 1]].to, node);
	for (size_t i = 0; i < n; i++) {
		assert_false(seen[o->edges[way[i]].from]);
		seen[o->edges[way[i]].from] = true;
		if (i)
			assert_int_equal(o->edges[way[i]].from, o->edges[way[i - 1]].to);
	}
}

static void what_is_needed_comes_first(void **state)
{
	static const struct order_edge e[] = {{0, 3, ORDER_REQUIRES}, {3, 1, ORDER_AFTER},
					      {2, 3, ORDER_REQUIRES}, {2, 0, ORDER_AFTER},
					      {1, 1, ORDER_AFTER},    {0, 3, ORDER_AFTER}};
	struct order o;
	uint32_t *none = NULL;

	(void)state;
	order_make(&o, 5, e, ELEMENTS(e));
	check_sequence(&o);
	for (uint32_t i = 0; i < 5; i++) {
		assert_false(o.circular[i]);
		assert_int_equal(order_circle(&o, i, &none), 0);
	}
	assert_null(none);
	assert_int_equal(o.out_at[1] - o.out_at[0], 2);
	assert_int_equal(o.in_at[4] - o.in_at[3], 3);
	for (uint32_t i = o.in_at[3]; i < o.in_at[4]; i++)
		assert_int_equal(e[o.in[i]].to, 3);
	order_finish(&o);
	order_make(&o, 0, NULL, 0);
	order_finish(&o);
}

static void only_the_circle_is_circular(void **state)
{
	/* 0 -> 1 -> 2 -> 0, 3 requires 0, 4 is required by 1; 5 <-> 6, and 2 -> 5 */
	static const struct order_edge e[] = {
		{0, 1, ORDER_REQUIRES}, {1, 2, ORDER_AFTER}, {2, 0, ORDER_REQUIRES}, {3, 0, ORDER_REQUIRES},
		{1, 4, ORDER_AFTER},    {5, 6, ORDER_AFTER}, {6, 5, ORDER_AFTER},    {2, 5, ORDER_AFTER}};
	static const bool want[] = {true, true, true, false, false, true, true};
	struct order o;

	(void)state;
	order_make(&o, ELEMENTS(want), e, ELEMENTS(e));
	check_sequence(&o);
	for (uint32_t i = 0; i < ELEMENTS(want); i++) {
		assert_int_equal(o.circular[i], want[i]);
		if (want[i])
			check_circle(&o, i);
	}
	assert_int_equal(o.circle[0], o.circle[2]);
	assert_int_not_equal(o.circle[0], o.circle[5]);
	order_finish(&o);
}

/* Against a plain way to say what reaches what. */
static void random_graphs(void **state)
{
	enum { N = 12 };

	(void)state;
	srand(7);
	for (int round = 0; round < 3000; round++) {
		struct order_edge e[40];
		bool reach[N][N] = {{false}};
		size_t n = (size_t)(rand() % 40);
		struct order o;

		for (size_t i = 0; i < n; i++) {
			e[i] = (struct order_edge){(uint32_t)(rand() % N), (uint32_t)(rand() % N),
						   ORDER_AFTER};
			if (e[i].from != e[i].to)
				reach[e[i].from][e[i].to] = true;
		}
		for (int k = 0; k < N; k++)
			for (int i = 0; i < N; i++)
				for (int j = 0; j < N; j++)
					reach[i][j] |= reach[i][k] && reach[k][j];
		order_make(&o, N, e, n);
		check_sequence(&o);
		for (uint32_t i = 0; i < N; i++) {
			assert_int_equal(o.circular[i], reach[i][i]);
			for (uint32_t j = 0; j < N; j++)
				assert_int_equal(i == j || (reach[i][j] && reach[j][i]),
						 o.circle[i] == o.circle[j]);
			if (o.circular[i])
				check_circle(&o, i);
		}
		order_finish(&o);
	}
}

/* Linear, and without a stack frame a node: a chain, a circle, a star and a dense graph, each of many edges. */
static void large_graphs(void **state)
{
	enum { N = 200000, DENSE = 1000 };
	struct order_edge *e = xcalloc(DENSE * DENSE, sizeof *e);
	struct order o;
	size_t n = 0;

	(void)state;
	for (uint32_t i = 0; i + 1 < N; i++)
		e[i] = (struct order_edge){i, i + 1, ORDER_REQUIRES};
	order_make(&o, N, e, N - 1);
	check_sequence(&o);
	assert_int_equal(o.sequence[0], N - 1);
	assert_false(o.circular[0]);
	order_finish(&o);
	e[N - 1] = (struct order_edge){N - 1, 0, ORDER_AFTER};
	order_make(&o, N, e, N);
	assert_true(o.circular[0] && o.circular[N / 2]);
	check_circle(&o, N / 2);
	order_finish(&o);
	for (uint32_t i = 1; i < N; i++)
		e[i - 1] = (struct order_edge){i, 0, ORDER_REQUIRES};
	order_make(&o, N, e, N - 1);
	check_sequence(&o);
	assert_int_equal(o.sequence[0], 0);
	order_finish(&o);
	for (uint32_t i = 0; i < DENSE; i++)
		for (uint32_t j = 0; j < i; j++)
			e[n++] = (struct order_edge){j, i, ORDER_AFTER};
	order_make(&o, DENSE, e, n);
	check_sequence(&o);
	assert_int_equal(o.sequence[0], DENSE - 1);
	order_finish(&o);
	free(e);
}

/* --- units --- */

static void add(struct unit_scan *s, const char *name, const char *order)
{
	static char home[] = "/home/x";
	const struct unit_dirs dirs = {.home = home};
	CLEANUP_FREE char *shown = xasprintf("%s.app", name),
			  *text = xasprintf("[App]\nExec=/bin/x\nWorkingDirectory=/srv/x\n%s", order);
	struct unit_scan_entry *en;

	VEC_GROW(s->v, s->n, s->cap);
	en = &s->v[s->n++];
	*en = (struct unit_scan_entry){.name = xstrdup(name)};
	en->unit = unit_parse_buffer(&dirs, name, shown, text, strlen(text), &en->problems);
	assert_int_equal(en->problems.n, 0);
}

static void circles_are_named_with_their_lines(void **state)
{
	struct unit_scan s = {0};
	struct unit_problems p = {0};
	CLEANUP_STRV struct strv notes = {0};
	CLEANUP_FREE char *text = NULL;

	(void)state;
	add(&s, "a", "After=free\nRequires=b\n");
	add(&s, "b", "After=c\n");
	add(&s, "c", "Requires=free a\n");
	add(&s, "free", "Requires=nobody\nAfter=fre\n");
	add(&s, "later", "Requires=a\n");
	unit_order_check(&s);
	for (size_t i = 0; i < 3; i++)
		assert_true(!s.v[i].unit && s.v[i].circular && s.v[i].problems.n == 1);
	assert_true(s.v[3].unit && s.v[4].unit && !s.v[3].problems.n && !s.v[4].problems.n);
	text = unit_problems_text(&s.v[0].problems);
	assert_string_equal(
		text, "a.app:5: [App] Requires=b goes in a circle: b comes after c (b.app:4), c requires a "
		      "(c.app:4); remove one of these lines\n");
	unit_order_check_one(s.v[1].circular, &s, &p);
	assert_int_equal(p.n, 1);
	assert_int_equal(p.v[0].line, 4);
	unit_problems_clear(&p);
	unit_order_check_one(s.v[4].unit, &s, &p);
	assert_int_equal(p.n, 0);
	unit_order_notes(s.v[3].unit, &s, &notes);
	assert_int_equal(notes.n, 2);
	assert_string_equal(notes.v[0],
			    "free.app:4: Requires=nobody: there is no app nobody; the app waits until there "
			    "is one");
	assert_string_equal(notes.v[1], "free.app:5: After=fre: there is no app fre; did you mean free?");
	unit_scan_finish(&s);
}

/* A file outside of apps.d is judged in place of the unit of its name, or beside them all. */
static void one_file_among_the_others(void **state)
{
	struct unit_scan s = {0}, other = {0};
	struct unit_problems p = {0};

	(void)state;
	add(&s, "a", "Requires=b\n");
	add(&s, "b", "");
	add(&other, "b", "After=a\n");
	add(&other, "new", "Requires=a b\n");
	unit_order_check(&s);
	assert_true(s.v[0].unit && s.v[1].unit);
	unit_order_check_one(other.v[0].unit, &s, &p);
	assert_int_equal(p.n, 1);
	assert_string_equal(p.v[0].file, "b.app");
	unit_problems_clear(&p);
	unit_order_check_one(other.v[1].unit, &s, &p);
	assert_int_equal(p.n, 0);
	unit_scan_finish(&s);
	unit_scan_finish(&other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_needed_comes_first),
		cmocka_unit_test(only_the_circle_is_circular),
		cmocka_unit_test(random_graphs),
		cmocka_unit_test(large_graphs),
		cmocka_unit_test(circles_are_named_with_their_lines),
		cmocka_unit_test(one_file_among_the_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
