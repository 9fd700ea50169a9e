#include "proxy/denied.h"
#include "base/str.h"
#include "proxy/control.h"
#include "proxy/tally.h"

#define FOLD_MS 1000

struct refusal {
	char *host, *rule, *hint;
	uint16_t port;
	bool lookup;
	uint64_t count; /* since it was last reported */
};

struct denied {
	struct app *app;
	struct loop_timer timer;
	struct refusal v[DENIED_TARGETS];
	size_t n;
	uint64_t others;
};

static void report(const struct denied *d, const struct refusal *t, uint64_t count)
{
	control_denied(d->app, t->lookup, t->host, t->port, t->rule, t->hint, count);
}

static void report_others(const struct denied *d)
{
	control_denied(d->app, false, DENIED_OTHERS, 0, "too many targets", "", d->others);
}

static void refusal_finish(struct refusal *t)
{
	free(t->host);
	free(t->rule);
	free(t->hint);
}

/* Every target is reported when it is first seen; after FOLD_MS the repeats of that time, and the quiet ones
 * go. */
static void on_fold(struct loop_timer *timer)
{
	struct denied *d = timer->data;
	size_t kept = 0;

	for (size_t i = 0; i < d->n; i++) {
		struct refusal *t = &d->v[i];

		if (!t->count) {
			refusal_finish(t);
			continue;
		}
		report(d, t, t->count);
		t->count = 0;
		d->v[kept++] = *t;
	}
	d->n = kept;
	if (d->others)
		report_others(d);
	d->others = 0;
	if (d->n)
		loop_timer_start(&d->timer, FOLD_MS);
}

static void add(struct denied *d, bool lookup, const char *host, uint16_t port, const char *rule,
		const char *hint, const char *by)
{
	tally_add(d->app->tally, by, false);
	d->app->counters.out_denied++;
	app_counted(d->app);
	if (!loop_timer_active(&d->timer))
		loop_timer_start(&d->timer, FOLD_MS);
	for (size_t i = 0; i < d->n; i++) {
		struct refusal *t = &d->v[i];

		if (t->lookup == lookup && t->port == port && str_eq(t->host, host) &&
		    str_eq(t->rule, rule)) {
			t->count++;
			return;
		}
	}
	if (d->n == DENIED_TARGETS) {
		d->others++;
		return;
	}
	d->v[d->n] = (struct refusal){.host = xstrdup(host),
				      .rule = xstrdup(rule),
				      .hint = xstrdup(hint),
				      .port = port,
				      .lookup = lookup};
	report(d, &d->v[d->n++], 1);
}

void denied_add(struct denied *d, const char *host, uint16_t port, const char *rule, const char *hint,
		const char *by)
{
	add(d, false, host, port, rule, hint, by);
}

void denied_add_lookup(struct denied *d, const char *host, const char *rule, const char *hint)
{
	add(d, true, host, 0, rule, hint, rule);
}

struct denied *denied_create(struct app *a)
{
	struct denied *d = xcalloc(1, sizeof *d);

	d->app = a;
	loop_timer_init(a->proxy->loop, &d->timer, on_fold, d);
	return d;
}

void denied_destroy(struct denied *d)
{
	loop_timer_stop(&d->timer);
	for (size_t i = 0; i < d->n; i++) {
		struct refusal *t = &d->v[i];

		if (t->count)
			report(d, t, t->count);
		refusal_finish(t);
	}
	if (d->others)
		report_others(d);
	free(d);
}
