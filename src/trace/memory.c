#include "trace/memory.h"
#include "trace/events.h"
#include "base/str.h"
#include <string.h>

#define EVENTS_APP_FIRST 4 /* a power of two below EVENTS_APP_LINES */

struct line {
	uint64_t seq;
	char *text;
	size_t len;
};

struct app_lines {
	char *app;
	struct line *v; /* circular, `cap` long: it grows, because most apps do little */
	size_t first, n, cap, bytes;
};

struct event_memory {
	struct app_lines **apps;
	size_t n, cap;
};

struct event_memory *event_memory_create(void)
{
	return xcalloc(1, sizeof(struct event_memory));
}

static void drop_oldest(struct app_lines *a)
{
	a->bytes -= a->v[a->first].len;
	free(a->v[a->first].text);
	a->first = (a->first + 1) % a->cap;
	a->n--;
}

static void app_free(struct app_lines *a)
{
	while (a->n)
		drop_oldest(a);
	free(a->app);
	free(a->v);
	free(a);
}

void event_memory_destroy(struct event_memory *m)
{
	for (size_t i = 0; i < m->n; i++)
		app_free(m->apps[i]);
	free(m->apps);
	free(m);
}

static const struct line *at(const struct app_lines *a, size_t i)
{
	return &a->v[(a->first + i) % a->cap];
}

static struct app_lines *find(const struct event_memory *m, const char *app)
{
	for (size_t i = 0; i < m->n; i++)
		if (strcmp(m->apps[i]->app, app) == 0)
			return m->apps[i];
	return NULL;
}

static void forget_longest_silent(struct event_memory *m)
{
	size_t victim = 0;

	for (size_t i = 1; i < m->n; i++)
		if (at(m->apps[i], m->apps[i]->n - 1)->seq < at(m->apps[victim], m->apps[victim]->n - 1)->seq)
			victim = i;
	app_free(m->apps[victim]);
	m->apps[victim] = m->apps[--m->n];
}

static void grow(struct app_lines *a)
{
	size_t cap = a->cap ? a->cap * 2 : EVENTS_APP_FIRST;
	struct line *v = xcalloc(cap, sizeof *v);

	for (size_t i = 0; i < a->n; i++)
		v[i] = *at(a, i);
	free(a->v);
	a->v = v;
	a->first = 0;
	a->cap = cap;
}

void event_memory_add(struct event_memory *m, const char *app, uint64_t seq, const char *json, size_t len)
{
	struct app_lines *a = find(m, app);

	if (!a) {
		if (m->n == EVENTS_APPS)
			forget_longest_silent(m);
		VEC_GROW(m->apps, m->n, m->cap);
		a = m->apps[m->n++] = xcalloc(1, sizeof *a);
		a->app = xstrdup(app);
	}
	while (a->n && (a->n == EVENTS_APP_LINES || a->bytes + len > EVENTS_APP_BYTES))
		drop_oldest(a);
	if (a->n == a->cap)
		grow(a);
	a->v[(a->first + a->n) % a->cap] = (struct line){.seq = seq, .text = xstrndup(json, len), .len = len};
	a->n++;
	a->bytes += len;
}

static int by_seq(const void *x, const void *y)
{
	uint64_t a = (*(const struct line *const *)x)->seq, b = (*(const struct line *const *)y)->seq;

	return a < b ? -1 : a > b;
}

struct js *event_memory_last(const struct event_memory *m, const char *app, size_t n)
{
	CLEANUP_FREE const struct line **all = NULL;
	struct js *ret = js_arr();
	size_t total = 0, cap = 0;

	for (size_t i = 0; i < m->n; i++) {
		if (app && strcmp(m->apps[i]->app, app) != 0)
			continue;
		for (size_t k = 0; k < m->apps[i]->n; k++) {
			VEC_GROW(all, total, cap);
			all[total++] = at(m->apps[i], k);
		}
	}
	if (total)
		qsort(all, total, sizeof *all, by_seq);
	for (size_t i = total > n ? total - n : 0; i < total; i++) {
		struct js *j = js_parse(all[i]->text, all[i]->len, NULL);

		if (j)
			js_push(ret, j);
	}
	return ret;
}

/* A part an app: its name and each line, ended by a NUL, "SEQ" before the text. */
struct js *event_memory_save(struct keep *k, const struct event_memory *m)
{
	struct js *out = js_arr();

	for (size_t i = 0; i < m->n; i++) {
		const struct app_lines *a = m->apps[i];
		struct strbuf b = STRBUF_INIT;
		struct js *o = js_obj();

		for (size_t n = 0; n < a->n; n++) {
			strbuf_addf(&b, "%llu ", (unsigned long long)at(a, n)->seq);
			strbuf_add(&b, at(a, n)->text, at(a, n)->len + 1);
		}
		keep_text(k, o, "app", a->app);
		keep_bytes(k, o, "lines", b.p, b.len);
		js_push(out, o);
		strbuf_finish(&b);
	}
	return out;
}

void event_memory_restore(struct keep *k, const struct js *list, struct event_memory *m)
{
	for (const struct js *o = js_first(list); o; o = js_next(o)) {
		CLEANUP_FREE char *app = keep_get_text(k, o, "app");
		size_t len;
		const char *p = keep_get_bytes(k, o, "lines", &len), *end = p + len, *nul;

		for (; app && p < end && (nul = memchr(p, 0, (size_t)(end - p))); p = nul + 1) {
			char *text;
			uint64_t seq = strtoull(p, &text, 10);

			if (*text == ' ' && text < nul)
				event_memory_add(m, app, seq, text + 1, (size_t)(nul - text - 1));
		}
	}
}
