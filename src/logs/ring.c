#include "logs/ring.h"
#include "base/str.h"
#include <stdio.h>
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

/* Of each line "MS LEN\n" and its bytes. */
void ring_save(struct keep *k, struct js *o, const char *key, const struct ring *r)
{
	struct strbuf b = STRBUF_INIT;

	for (size_t i = 0; i < r->n; i++) {
		const struct ring_line *l = ring_at(r, i);

		strbuf_addf(&b, "%lld %zu\n", (long long)l->ms, l->len);
		strbuf_add(&b, l->text, l->len);
	}
	keep_bytes(k, o, key, b.p, b.len);
	strbuf_finish(&b);
}

void ring_restore(struct keep *k, const struct js *o, const char *key, struct ring *r)
{
	size_t left;
	const char *p = keep_get_bytes(k, o, key, &left);

	while (left) {
		const char *nl = memchr(p, '\n', left < 48 ? left : 48);
		CLEANUP_FREE char *head = nl ? xstrndup(p, (size_t)(nl - p)) : NULL;
		long long ms;
		size_t len;

		if (!head || sscanf(head, "%lld %zu", &ms, &len) != 2 || len > left - (size_t)(nl + 1 - p) ||
		    len > RING_BYTES) {
			keep_wrong(k, "the last lines of a log are damaged");
			return;
		}
		ring_add(r, nl + 1, len, ms);
		left -= (size_t)(nl + 1 - p) + len;
		p = nl + 1 + len;
	}
}
