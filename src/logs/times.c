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
