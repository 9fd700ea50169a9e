#include "logs/ring.h"
#include "base/str.h"
#include <string.h>

static void drop_oldest(struct ring *r)
{
	struct ring_line *l = &r->v[r->first];

	r->bytes -= l->len;
	free(l->text);
	l->text = NULL;
	r->first = (r->first + 1) % RING_LINES;
	r->n--;
}

void ring_add(struct ring *r, const char *text, size_t len, int64_t ms)
{
	struct ring_line *l;

	if (!r->v)
		r->v = xcalloc(RING_LINES, sizeof *r->v);
	while (r->n && (r->n == RING_LINES || r->bytes + len > RING_BYTES))
		drop_oldest(r);
	l = &r->v[(r->first + r->n) % RING_LINES];
	l->text = xmalloc(len ? len : 1);
	memcpy(l->text, text, len);
	l->len = len;
	l->ms = ms;
	r->bytes += len;
	r->n++;
}

const struct ring_line *ring_at(const struct ring *r, size_t i)
{
	return &r->v[(r->first + i) % RING_LINES];
}

void ring_finish(struct ring *r)
{
	while (r->n)
		drop_oldest(r);
	free(r->v);
	r->v = NULL;
}
