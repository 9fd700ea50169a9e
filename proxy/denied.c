#include "proxy/denied.h"
#include "base/str.h"
#include "proxy/control.h"

#define FOLD_MS 1000

struct target {
	char *host, *rule, *hint;
	uint16_t port;
	uint64_t count; /* since it was last reported */
};

struct denied {
	struct app *app;
	struct loop_timer timer;
	struct target v[DENIED_TARGETS];
	size_t n;
	uint64_t others;
};

static void target_finish(struct target *t)
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
		struct target *t = &d->v[i];

		if (!t->count) {
			target_finish(t);
			continue;
		}
		control_denied(d->app, t->host, t->port, t->rule, t->hint, t->count);
		t->count = 0;
		d->v[kept++] = *t;
	}
	d->n = kept;
	if (d->others)
		control_denied(d->app, DENIED_OTHERS, 0, "too many targets", "", d->others);
	d->others = 0;
	if (d->n)
		loop_timer_start(&d->timer, FOLD_MS);
}

void denied_add(struct denied *d, const char *host, uint16_t port, const char *rule, const char *hint)
{
	d->app->counters.out_denied++;
	app_counted(d->app);
	if (!loop_timer_active(&d->timer))
		loop_timer_start(&d->timer, FOLD_MS);
	for (size_t i = 0; i < d->n; i++) {
		struct target *t = &d->v[i];

		if (t->port == port && str_eq(t->host, host) && str_eq(t->rule, rule)) {
			t->count++;
			return;
		}
	}
	if (d->n == DENIED_TARGETS) {
		d->others++;
		return;
	}
	d->v[d->n++] = (struct target){xstrdup(host), xstrdup(rule), xstrdup(hint), port, 0};
	control_denied(d->app, host, port, rule, hint, 1);
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
		struct target *t = &d->v[i];

		if (t->count)
			control_denied(d->app, t->host, t->port, t->rule, t->hint, t->count);
		target_finish(t);
	}
	if (d->others)
		control_denied(d->app, DENIED_OTHERS, 0, "too many targets", "", d->others);
	free(d);
}
