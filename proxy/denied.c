#include "proxy/denied.h"
#include "base/str.h"
#include "proxy/control.h"
#include "proxy/tally.h"

#define FOLD_MS  1000
#define TOO_MANY "too many targets"

struct refusal {
	char *host, *rule, *hint; /* rule: of an unreachable site, why */
	uint16_t port;
	enum denied_kind kind;
	uint64_t count; /* since it was last reported */
};

struct denied {
	struct app *app;
	struct loop_timer timer;
	struct refusal v[DENIED_TARGETS];
	size_t n;
	uint64_t others, unreached; /* beyond those: refused, not reached */
};

static void report(const struct denied *d, const struct refusal *t, uint64_t count)
{
	control_denied(d->app, t->kind, t->host, t->port, t->rule, t->hint, count);
}

static void report_others(const struct denied *d)
{
	if (d->others)
		control_denied(d->app, DENIED_CONNECT, DENIED_OTHERS, 0, TOO_MANY, "", d->others);
	if (d->unreached)
		control_denied(d->app, DENIED_UNREACHABLE, DENIED_OTHERS, 0, TOO_MANY, "", d->unreached);
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
	report_others(d);
	d->others = d->unreached = 0;
	if (d->n)
		loop_timer_start(&d->timer, FOLD_MS);
}

static void add(struct denied *d, enum denied_kind kind, const char *host, uint16_t port, const char *rule,
		const char *hint)
{
	if (!loop_timer_active(&d->timer))
		loop_timer_start(&d->timer, FOLD_MS);
	for (size_t i = 0; i < d->n; i++) {
		struct refusal *t = &d->v[i];

		if (t->kind == kind && t->port == port && str_eq(t->host, host) && str_eq(t->rule, rule)) {
			t->count++;
			return;
		}
	}
	if (d->n == DENIED_TARGETS) {
		*(kind == DENIED_UNREACHABLE ? &d->unreached : &d->others) += 1;
		return;
	}
	d->v[d->n] = (struct refusal){.host = xstrdup(host),
				      .rule = xstrdup(rule),
				      .hint = xstrdup(hint),
				      .port = port,
				      .kind = kind};
	report(d, &d->v[d->n++], 1);
}

static void count(struct denied *d, const char *by)
{
	tally_add(d->app->tally, by, false);
	d->app->counters.out_denied++;
	app_counted(d->app);
}

void denied_add(struct denied *d, const char *host, uint16_t port, const char *rule, const char *hint,
		const char *by)
{
	count(d, by);
	add(d, DENIED_CONNECT, host, port, rule, hint);
}

void denied_add_lookup(struct denied *d, const char *host, const char *rule, const char *hint)
{
	count(d, rule);
	add(d, DENIED_LOOKUP, host, 0, rule, hint);
}

void denied_add_unreachable(struct denied *d, const char *host, uint16_t port, const char *why)
{
	add(d, DENIED_UNREACHABLE, host, port, why, "");
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
	report_others(d);
	free(d);
}
