#include "trace/refused.h"
#include "base/clock.h"
#include "base/str.h"
#include "trace/observer.h"
#include <string.h>

struct kind {
	struct js *event;
	size_t bytes;
	uint64_t count;
	int64_t first_ms, last_ms;
};
struct app_refused {
	char *app;
	struct kind *v; /* newest first */
	size_t n, cap, bytes;
	uint64_t total, lost;
	int64_t last_ms;
};
struct refused {
	struct app_refused *apps;
	size_t n, cap;
};

struct refused *refused_create(void)
{
	return xcalloc(1, sizeof(struct refused));
}

static void app_finish(struct app_refused *a)
{
	for (size_t i = 0; i < a->n; i++)
		js_free(a->v[i].event);
	free(a->v);
	free(a->app);
}

void refused_destroy(struct refused *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->n; i++)
		app_finish(&r->apps[i]);
	free(r->apps);
	free(r);
}

static struct app_refused *find(const struct refused *r, const char *app)
{
	for (size_t i = 0; i < r->n; i++)
		if (strcmp(r->apps[i].app, app) == 0)
			return &r->apps[i];
	return NULL;
}

static struct app_refused *app_of(struct refused *r, const char *app)
{
	struct app_refused *a = find(r, app);
	size_t i = r->n;

	if (a)
		return a;
	if (r->n == REFUSED_APPS) { /* the one longest silent goes */
		for (size_t k = i = 0; k < r->n; k++)
			if (r->apps[k].last_ms < r->apps[i].last_ms)
				i = k;
		app_finish(&r->apps[i]);
	} else {
		VEC_GROW(r->apps, r->n, r->cap);
		r->n++;
	}
	r->apps[i] = (struct app_refused){.app = xstrdup(app)};
	return &r->apps[i];
}

static void drop_oldest(struct app_refused *a)
{
	struct kind *k = &a->v[--a->n];

	a->bytes -= k->bytes;
	js_free(k->event);
}

static struct js *stripped(const struct js *event)
{
	struct js *j = js_copy(event);

	js_remove(j, "type");
	js_remove(j, "action");
	js_remove(j, "count");
	return j;
}

/* The newest event of a kind is kept: who did it last, and what to do by now. */
static void put_first(struct app_refused *a, struct kind k)
{
	VEC_GROW(a->v, a->n, a->cap);
	memmove(&a->v[1], &a->v[0], a->n * sizeof *a->v);
	a->v[0] = k;
	a->n++;
	a->bytes += k.bytes;
	while (a->n > 1 && (a->n > REFUSED_KINDS || a->bytes > REFUSED_BYTES))
		drop_oldest(a);
}

void refused_add(struct refused *r, const struct js *event, int64_t wall_ms)
{
	const char *name = js_str(event, "app");
	int64_t n = js_int_or(event, "count", 1);
	struct kind k = {.count = n > 0 ? (uint64_t)n : 1, .first_ms = wall_ms, .last_ms = wall_ms};
	CLEANUP_FREE char *text = NULL;
	struct app_refused *a;

	if (!name)
		return;
	a = app_of(r, name);
	a->total += k.count;
	a->last_ms = wall_ms;
	for (size_t i = 0; i < a->n; i++) {
		struct kind *old = &a->v[i];

		if (!observed_same(old->event, event))
			continue;
		k.count += old->count;
		k.first_ms = old->first_ms;
		a->bytes -= old->bytes;
		js_free(old->event);
		memmove(old, old + 1, (a->n - i - 1) * sizeof *old);
		a->n--;
		break;
	}
	k.event = stripped(event);
	text = js_print(k.event);
	k.bytes = strlen(text) + sizeof k;
	put_first(a, k);
}

void refused_lost(struct refused *r, const char *app, uint64_t n)
{
	app_of(r, app)->lost += n;
}

void refused_forget(struct refused *r, const char *app)
{
	struct app_refused *a = find(r, app);

	if (!a)
		return;
	app_finish(a);
	*a = r->apps[--r->n];
}

/* --- reading --- */

static struct js *shown(const struct kind *k)
{
	struct js *j = js_copy(k->event);
	char stamp[CLK_STAMP_LEN];

	js_add_int(j, "count", (int64_t)k->count);
	js_add_str(j, "first", clk_stamp(k->first_ms, stamp, sizeof stamp));
	js_add_str(j, "last", clk_stamp(k->last_ms, stamp, sizeof stamp));
	return j;
}

static int newest_first(const void *a, const void *b)
{
	const struct kind *x = *(const struct kind *const *)a, *y = *(const struct kind *const *)b;

	return (x->last_ms < y->last_ms) - (x->last_ms > y->last_ms);
}

struct js *refused_list(const struct refused *r, const char *app, int64_t since_ms, size_t max)
{
	CLEANUP_FREE const struct kind **v = NULL;
	struct js *out = js_arr();
	size_t n = 0, cap = 0;

	for (size_t i = 0; i < r->n; i++) {
		const struct app_refused *a = &r->apps[i];

		if (app && strcmp(a->app, app) != 0)
			continue;
		for (size_t k = 0; k < a->n && a->v[k].last_ms >= since_ms; k++) {
			VEC_GROW(v, n, cap);
			v[n++] = &a->v[k];
		}
	}
	if (n && !app) /* of one app they are in order */
		qsort(v, n, sizeof *v, newest_first);
	for (size_t i = 0; i < n && i < max; i++)
		js_push(out, shown(v[i]));
	return out;
}

uint64_t refused_total(const struct refused *r, const char *app)
{
	const struct app_refused *a = find(r, app);

	return a ? a->total : 0;
}

uint64_t refused_lost_of(const struct refused *r, const char *app)
{
	const struct app_refused *a = find(r, app);

	return a ? a->lost : 0;
}

/* --- across an exec --- */

struct js *refused_save(struct keep *k, const struct refused *r, const char *app)
{
	const struct app_refused *a = find(r, app);
	struct js *o, *kinds;

	if (!a)
		return NULL;
	o = js_obj();
	kinds = js_arr();
	keep_u64(o, "total", a->total);
	keep_u64(o, "lost", a->lost);
	js_add_int(o, "last_ms", a->last_ms);
	for (size_t i = 0; i < a->n; i++) {
		struct js *one = js_obj();

		keep_js(k, one, "event", js_copy(a->v[i].event));
		keep_u64(one, "count", a->v[i].count);
		js_add_int(one, "first_ms", a->v[i].first_ms);
		js_add_int(one, "last_ms", a->v[i].last_ms);
		js_push(kinds, one);
	}
	js_add(o, "kinds", kinds);
	return o;
}

void refused_restore(struct keep *k, const struct js *o, struct refused *r, const char *app)
{
	struct app_refused *a;

	if (!o)
		return;
	a = app_of(r, app);
	a->total = keep_get_u64(k, o, "total");
	a->lost = keep_get_u64(k, o, "lost");
	a->last_ms = js_int_or(o, "last_ms", 0);
	for (const struct js *one = js_first(js_get(o, "kinds")); one; one = js_next(one)) {
		struct kind kind = {.event = keep_get_js(k, one, "event"),
				    .count = keep_get_u64(k, one, "count"),
				    .first_ms = js_int_or(one, "first_ms", 0),
				    .last_ms = js_int_or(one, "last_ms", 0)};
		CLEANUP_FREE char *text = NULL;

		if (!kind.event)
			return;
		text = js_print(kind.event);
		kind.bytes = strlen(text) + sizeof kind;
		VEC_GROW(a->v, a->n, a->cap);
		a->v[a->n++] = kind;
		a->bytes += kind.bytes;
	}
}
