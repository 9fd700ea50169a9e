#include "trace/fold.h"
#include "trace/events.h"
#include "base/str.h"
#include <string.h>

#define FOLD_MS   1000
#define FOLD_APPS 4096 /* apps with violations in one second; above, an app shares the last slot */

struct entry {
	char *key;
	struct js *event;
	uint64_t count; /* repeats after the first */
	int64_t until;
};

struct app_fold {
	char *app;
	struct entry v[EVENTS_APP_RATE];
	size_t n;
	uint64_t dropped;
	int64_t dropped_until;
};

struct fold {
	struct app_fold **apps;
	size_t n, cap;
};

struct fold *fold_create(void)
{
	return xcalloc(1, sizeof(struct fold));
}

static void entry_finish(struct entry *e)
{
	free(e->key);
	js_free(e->event);
}

static void app_free(struct app_fold *a)
{
	for (size_t i = 0; i < a->n; i++)
		entry_finish(&a->v[i]);
	free(a->app);
	free(a);
}

void fold_destroy(struct fold *f)
{
	for (size_t i = 0; i < f->n; i++)
		app_free(f->apps[i]);
	free(f->apps);
	free(f);
}

static struct app_fold *app_of(struct fold *f, const char *app)
{
	for (size_t i = 0; i < f->n; i++)
		if (strcmp(f->apps[i]->app, app) == 0)
			return f->apps[i];
	if (f->n == FOLD_APPS)
		return f->apps[f->n - 1];
	VEC_GROW(f->apps, f->n, f->cap);
	f->apps[f->n] = xcalloc(1, sizeof **f->apps);
	f->apps[f->n]->app = xstrdup(app);
	return f->apps[f->n++];
}

/* What makes two violations the same: everything but who exactly did it and when. */
static char *key_of(const struct js *event)
{
	static const char *const parts[] = {"operation", "path", "host", "address", "rule", "action", NULL};
	struct strbuf b = STRBUF_INIT;

	for (const char *const *p = parts; *p; p++) {
		const char *v = js_str(event, *p);

		strbuf_adds(&b, v ? v : "");
		strbuf_addc(&b, '\n');
	}
	strbuf_addf(&b, "%lld", (long long)js_int_or(event, "port", 0));
	return strbuf_take(&b);
}

uint64_t fold_weight(const struct js *event)
{
	int64_t n = js_int_or(event, "count", 1);

	return n > 0 ? (uint64_t)n : 1;
}

enum fold_verdict fold_add(struct fold *f, const struct js *event, int64_t now_ms)
{
	const char *app = js_str(event, "app");
	struct app_fold *a = app_of(f, app ? app : "");
	CLEANUP_FREE char *key = key_of(event);

	for (size_t i = 0; i < a->n; i++) {
		if (strcmp(a->v[i].key, key) == 0) {
			a->v[i].count += fold_weight(event);
			return FOLD_COUNTED;
		}
	}
	if (a->n == EVENTS_APP_RATE) {
		if (!a->dropped)
			a->dropped_until = now_ms + FOLD_MS;
		a->dropped += fold_weight(event);
		return FOLD_DROPPED;
	}
	a->v[a->n++] =
		(struct entry){.key = TAKE_PTR(key), .event = js_copy(event), .until = now_ms + FOLD_MS};
	return FOLD_WRITE;
}

static struct js *dropped_note(const struct app_fold *a)
{
	struct js *j = js_obj();
	CLEANUP_FREE char *text = xasprintf("%llu more violations in a second were not recorded one by one",
					    (unsigned long long)a->dropped);

	js_add_str(j, "app", a->app);
	js_add_str(j, "type", "violation");
	js_add_int(j, "dropped", (int64_t)a->dropped);
	js_add_str(j, "message", text);
	return j;
}

/* What is to be emitted is collected first: a subscriber may emit violations itself. */
struct due {
	struct js **v;
	size_t n, cap;
};

static void due_add(struct due *d, struct js *event)
{
	VEC_GROW(d->v, d->n, d->cap);
	d->v[d->n++] = event;
}

/* Returns when this app is next due, or INT64_MAX. */
static int64_t expire_app(struct app_fold *a, int64_t now_ms, struct due *due)
{
	int64_t next = INT64_MAX;
	size_t kept = 0;

	for (size_t i = 0; i < a->n; i++) {
		struct entry *e = &a->v[i];

		if (e->until > now_ms) {
			next = e->until < next ? e->until : next;
			a->v[kept++] = *e;
			continue;
		}
		if (e->count) {
			js_remove(e->event, "count"); /* that of the first, which is written */
			js_add_int(e->event, "count", (int64_t)e->count);
			due_add(due, TAKE_PTR(e->event));
		}
		entry_finish(e);
	}
	a->n = kept;
	if (a->dropped && a->dropped_until <= now_ms) {
		due_add(due, dropped_note(a));
		a->dropped = 0;
	} else if (a->dropped && a->dropped_until < next) {
		next = a->dropped_until;
	}
	return next;
}

int64_t fold_expire(struct fold *f, int64_t now_ms, void (*emit)(void *data, struct js *event), void *data)
{
	int64_t next = INT64_MAX;
	struct due due = {0};

	for (size_t i = 0; i < f->n;) {
		int64_t at = expire_app(f->apps[i], now_ms, &due);

		next = at < next ? at : next;
		if (f->apps[i]->n == 0 && f->apps[i]->dropped == 0) {
			app_free(f->apps[i]);
			f->apps[i] = f->apps[--f->n];
		} else {
			i++;
		}
	}
	for (size_t i = 0; i < due.n; i++)
		emit(data, due.v[i]);
	free(due.v);
	return next == INT64_MAX ? -1 : next;
}
