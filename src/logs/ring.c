#include "logs/ring.h"
#include "base/str.h"
#include <string.h>

#define RING_FIRST 8

static void drop_oldest(struct ring *r)
{
	struct ring_line *l = &r->v[r->first];

	r->bytes -= l->len;
	free(l->text);
	l->text = NULL;
	r->first = (r->first + 1) % r->cap;
	r->n--;
}

static void grow(struct ring *r)
{
	size_t cap = r->cap ? r->cap * 2 : RING_FIRST;
	struct ring_line *v;

	if (cap > RING_LINES)
		cap = RING_LINES;
	v = xcalloc(cap, sizeof *v);
	for (size_t i = 0; i < r->n; i++)
		v[i] = r->v[(r->first + i) % r->cap];
	free(r->v);
	r->v = v;
	r->first = 0;
	r->cap = cap;
}

void ring_add(struct ring *r, const char *text, size_t len, int64_t ms)
{
	struct ring_line *l;

	while (r->n && (r->n == RING_LINES || r->bytes + len > RING_BYTES))
		drop_oldest(r);
	if (r->n == r->cap)
		grow(r);
	l = &r->v[(r->first + r->n) % r->cap];
	l->text = xmalloc(len ? len : 1);
	memcpy(l->text, text, len);
	l->len = len;
	l->ms = ms;
	r->bytes += len;
	r->n++;
}

const struct ring_line *ring_at(const struct ring *r, size_t i)
{
	return &r->v[(r->first + i) % r->cap];
}

void ring_finish(struct ring *r)
{
	while (r->n)
		drop_oldest(r);
	free(r->v);
	r->v = NULL;
	r->cap = 0;
}
