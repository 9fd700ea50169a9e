#include "proxy/idle.h"
#include "base/clock.h"
#include "base/str.h"
#include "proxy/control.h"
#include "proxy/forward.h"

#define QUEUED_MS 100 /* a client is in the queue and will be accepted as soon as there is room */
#define LOOKS     4   /* in the time that counts, where looking is needed */

struct idle {
	struct app *app;
	struct loop_timer timer;
	int64_t since_ms;  /* of the last use, as far as it is known */
	uint64_t wanted_n; /* the gate at which `wanted` was said */
};

static bool serving(const struct idle *i)
{
	return i->app->gate == GATE_SERVE && i->app->idle_ms > 0;
}

static void rest(struct idle *i)
{
	i->app->gate = GATE_HOLD;
	forward_gate_changed(i->app->forward);
	control_use(i->app, "unused");
}

static void by_connections(struct idle *i)
{
	struct forward *f = i->app->forward;
	int64_t left;

	forward_end_gone(f);
	if (forward_clients(f)) { /* the end of the last one comes back */
		if (forward_distant(f))
			loop_timer_start(&i->timer, forward_gone_ms(f) / LOOKS);
		return;
	}
	left = i->since_ms + i->app->idle_ms - clk_mono_ms();
	if (left <= 0 && forward_queued(f))
		left = QUEUED_MS;
	if (left > 0)
		loop_timer_start(&i->timer, left);
	else
		rest(i);
}

static void by_traffic(struct idle *i)
{
	struct forward *f = i->app->forward;
	int64_t now = clk_mono_ms(), look = i->app->idle_ms / LOOKS, left;

	if (forward_moved(f))
		i->since_ms = now;
	left = i->since_ms + i->app->idle_ms - now;
	if (left <= 0 && forward_queued(f))
		left = QUEUED_MS;
	if (left > 0)
		loop_timer_start(&i->timer, left < look ? left : look);
	else
		rest(i);
}

static void look(struct idle *i)
{
	if (!serving(i))
		return;
	if (i->app->idle_by_traffic)
		by_traffic(i);
	else
		by_connections(i);
}

static void on_timer(struct loop_timer *t)
{
	look(t->data);
}

void idle_gate(struct idle *i, enum gate before)
{
	loop_timer_stop(&i->timer);
	if (!serving(i))
		return;
	if (before != GATE_SERVE)
		i->since_ms = clk_mono_ms();
	app_counted(i->app);
	look(i);
}

void idle_used(struct idle *i)
{
	struct forward *f = i->app->forward;

	if (!serving(i))
		return;
	if (i->app->idle_by_traffic)
		i->since_ms = clk_mono_ms();
	else if (forward_distant(f) && !loop_timer_active(&i->timer))
		loop_timer_start(&i->timer, forward_gone_ms(f) / LOOKS);
}

void idle_unused(struct idle *i)
{
	if (!serving(i))
		return;
	i->since_ms = clk_mono_ms();
	if (!loop_timer_active(&i->timer))
		loop_timer_start(&i->timer, i->app->idle_ms);
}

void idle_wanted(struct idle *i)
{
	if (i->app->gate != GATE_REST || i->wanted_n == i->app->gate_n)
		return;
	i->wanted_n = i->app->gate_n;
	control_use(i->app, "wanted");
}

int64_t idle_unused_ms(const struct idle *i)
{
	if (!serving(i) || (!i->app->idle_by_traffic && forward_clients(i->app->forward)))
		return -1;
	return clk_mono_ms() - i->since_ms;
}

struct idle *idle_create(struct app *a)
{
	struct idle *i = xcalloc(1, sizeof *i);

	i->app = a;
	loop_timer_init(a->proxy->loop, &i->timer, on_timer, i);
	return i;
}

void idle_destroy(struct idle *i)
{
	loop_timer_stop(&i->timer);
	free(i);
}
