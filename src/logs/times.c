#include "logs/times.h"
#include "base/str.h"
#include <string.h>

void times_of_file(const struct times *t, uint64_t ino, size_t *lo, size_t *hi)
{
	size_t i = 0;

	while (i < t->n && t->v[i].ino != ino)
		i++;
	*lo = i;
	while (i < t->n && t->v[i].ino == ino)
		i++;
	*hi = i;
}

/* Another file with the number of one that is gone, or one that was emptied. */
static void forget(struct times *t, uint64_t ino)
{
	size_t lo, hi;

	times_of_file(t, ino, &lo, &hi);
	if (lo == hi)
		return;
	memmove(t->v + lo, t->v + hi, (t->n - hi) * sizeof *t->v);
	t->n -= hi - lo;
}

/* Without a mark its lines have the time of the next one: as long as that is near the one before. */
static void thin(struct times *t)
{
	size_t at = t->n - 1; /* the marks that stay are v[at] to the end */
	int64_t now = t->v[at].ms;

	for (size_t i = at; i-- > 0;) {
		const struct time_mark *m = &t->v[i], *next = &t->v[at];

		if (m->ino != next->ino || !m->exact || i == 0 || m->ino != m[-1].ino ||
		    next->ms - m[-1].ms > (now - m->ms) / TIMES_FINE)
			t->v[--at] = *m;
	}
	/* a mark a file: the oldest half is known no more */
	if (t->n - at > TIMES_MAX / 8 * 7)
		at += (t->n - at) / 2;
	memmove(t->v, t->v + at, (t->n - at) * sizeof *t->v);
	t->n -= at;
}

void times_add(struct times *t, uint64_t ino, uint64_t end, int64_t ms, bool exact)
{
	struct time_mark *last = t->n ? &t->v[t->n - 1] : NULL;

	if (last && (last->ino != ino || end < last->end)) {
		forget(t, ino);
		last = NULL;
	}
	if (last && last->exact && exact && ms >= t->began_ms && ms - t->began_ms < TIMES_STEP_MS) {
		last->end = end;
		last->ms = ms;
		return;
	}
	if (!t->v)
		t->v = xmalloc(8 * sizeof *t->v);
	if (t->n == TIMES_MAX)
		thin(t);
	if (t->n >= 8 && (t->n & (t->n - 1)) == 0)
		t->v = xrealloc(t->v, 2 * t->n * sizeof *t->v);
	t->v[t->n++] = (struct time_mark){.ino = ino, .end = end, .ms = ms, .exact = exact};
	t->began_ms = ms;
}

const struct time_mark *times_find(const struct times *t, size_t lo, size_t hi, uint64_t end)
{
	size_t last = hi;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (t->v[mid].end >= end)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo < last ? &t->v[lo] : NULL;
}

void times_copy(struct times *to, const struct times *from)
{
	*to = (struct times){.n = from->n};
	if (!from->n)
		return;
	to->v = xmalloc(from->n * sizeof *to->v);
	memcpy(to->v, from->v, from->n * sizeof *to->v);
}

void times_finish(struct times *t)
{
	free(t->v);
	*t = (struct times){0};
}

/* A list a file, [its number, end, time, exact, end, ...], oldest first. */
struct js *times_save(const struct times *t)
{
	struct js *o = js_obj(), *files = js_arr(), *f = NULL;

	for (size_t i = 0; i < t->n; i++) {
		if (!i || t->v[i].ino != t->v[i - 1].ino) {
			CLEANUP_FREE char *ino = xasprintf("%llu", (unsigned long long)t->v[i].ino);

			f = js_arr();
			js_push_str(f, ino);
			js_push(files, f);
		}
		js_push_int(f, (int64_t)t->v[i].end);
		js_push_int(f, t->v[i].ms);
		js_push_int(f, t->v[i].exact);
	}
	js_add_int(o, "began_ms", t->began_ms);
	js_add(o, "files", files);
	return o;
}

static void add_mark(struct times *t, uint64_t ino, const int64_t m[3])
{
	if (t->n >= 8 ? (t->n & (t->n - 1)) == 0 : t->n == 0)
		t->v = xrealloc(t->v, (t->n ? 2 * t->n : 8) * sizeof *t->v); /* as times_add() has it */
	t->v[t->n++] = (struct time_mark){.ino = ino, .end = (uint64_t)m[0], .ms = m[1], .exact = m[2] != 0};
}

void times_restore(struct keep *k, const struct js *o, struct times *t)
{
	t->n = 0; /* what was found in the directory just now is in there */
	for (const struct js *f = js_first(js_get(o, "files")); f; f = js_next(f)) {
		const char *ino = js_value_str(js_first(f));
		int64_t m[3];
		size_t n = 0;

		for (const struct js *v = js_next(js_first(f)); v && t->n < TIMES_MAX; v = js_next(v)) {
			if (!ino || js_value_int(v, &m[n]) < 0) {
				keep_wrong(k, "the times of a log are damaged");
				return;
			}
			if (++n == ELEMENTS(m)) {
				add_mark(t, strtoull(ino, NULL, 10), m);
				n = 0;
			}
		}
	}
	t->began_ms = js_int_or(o, "began_ms", 0);
}
