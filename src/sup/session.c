/*
 * Session apps: the ports are held, the first client starts the app, and it ends when nobody has used it for
 * IdleTimeout=.
 *
 * Theory of operation. Who is connected is known in one place only, sbxsv-proxy, so that is where it is decided
 * (proxy/idle.h). While the app runs and has had no client for so long, the proxy stops accepting and says so, in
 * one step: from then on a client can only be in the listen queue of the kernel, where the next process of the app
 * finds it. So no client is ever accepted and then left behind, and nobody has to be asked whether it is safe to
 * stop. While the app is idle the proxy watches the queues, accepts nothing, and says when somebody waits. Both
 * words carry the number of the gate they were said at: one that crossed another order of ours on the way is void,
 * and the proxy looks again at the newer gate.
 *
 *   idle      gate `rest`: "wanted" -> starting
 *   starting  gate `hold`: clients wait
 *   running   gate `serve` with IdleTimeout=: "unused" -> stopping
 *   stopping  gate `hold`: a client that comes now waits; idle follows, and with it the next "wanted"
 *
 * A proxy that dies takes its connections along; the next one is told the gate and begins to count. One that was
 * taken over can make an app start and stop, but not faster than IdleTimeout= allows.
 *
 * The start limit counts starts that nobody ended in good order: a stop for idleness forgets them. An app that
 * ends by itself with success rests too; when it does that before it was ready, or at once and again and again, it
 * failed, because its clients would start it for ever.
 *
 * Nothing here is kept but what struct app has: the state, `after`, and the gate.
 */
#include "sup/app.h"
#include "base/clock.h"
#include "base/log.h"
#include <fcntl.h>
#include <sys/resource.h>

#define HOLD_AGAIN_MS 1000 /* ports that could not be had because the machine is short of something */
#define FDS_LEFT      32   /* for the control socket and a start */
#define USED_MS       1000 /* it was ready for so long: ending by itself is no failure, however often */
#define EARLY_MS      5    /* clocks of two processes read one after the other */

bool session_is(const struct app *a)
{
	return a->unit && a->unit->mode == UNIT_SESSION;
}

/* --- idle --- */

/* Idle apps would take every descriptor there is, and leave none for a person to ask, or for one of them to start. The
 * kernel gives the lowest free number. */
static bool have_room(const struct app *a)
{
	CLEANUP_FD int fd = fcntl(a->sup->self_pidfd, F_DUPFD_CLOEXEC, 0);
	struct rlimit limit = {0};

	return fd >= 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)fd + FDS_LEFT < limit.rlim_cur;
}

void session_hold(struct app *a)
{
	loop_timer_stop(&a->timer);
	reclaim_stop(a);
	if (a->n_listeners || have_room(a)) {
		run_begin(a);
		return;
	}
	app_say(a,
		"this may pass: it is tried again by itself; a higher limit helps: ulimit -n, LimitNOFILE= "
		"of systemd",
		"its ports are not held: too many open files");
	app_event(a, EV_SHORT);
}

void session_held(struct app *a)
{
	app_say_nothing(a);
}

void session_hold_later(struct app *a)
{
	loop_timer_start(&a->timer, HOLD_AGAIN_MS);
}

void session_wake(struct app *a)
{
	reclaim_stop(a);
	app_say_nothing(a);
	order_need(a);
	run_begin(a);
}

static bool ports_held(const struct app *a)
{
	bool held = a->n_listeners == a->unit->n_listen;

	for (size_t i = 0; i < a->n_listeners; i++)
		held = held && a->listeners[i].fd >= 0;
	return held;
}

void session_rested(struct app *a)
{
	app_say_nothing(a);
	if (a->removed)
		app_forget(a);
	else if (a->newest && a->newest->mode != UNIT_SESSION)
		app_event(a, a->newest->mode == UNIT_BACKGROUND && a->newest->enabled ? EV_START : EV_STOP);
	else if (a->newest || a->broken || !ports_held(a))
		app_event(a, EV_IDLE);
}

/* --- the end of use --- */

void session_say_unused(struct app *a)
{
	int64_t ms = a->unit->idle_timeout_ms;

	app_say(a, "the next client starts it", "nobody has used it for %lld.%03d s", (long long)ms / 1000,
		(int)(ms % 1000));
	if (a->logs)
		logs_note(a->logs, a->reason);
}

enum app_event session_verdict(struct app *a, bool *ret_failed)
{
	const struct unit *u = a->unit;
	int64_t now = clk_mono_ms(), ready_ms = a->ready_ms ? now - a->ready_ms : 0;

	*ret_failed = !a->ready_ms || (ready_ms < USED_MS && restart_exhausted(&a->restart, u->limit_burst,
									       u->limit_interval_ms, now));
	if (ready_ms >= USED_MS)
		restart_reset(&a->restart);
	return EV_RESTED;
}

static bool served_long_enough(const struct app *a)
{
	return a->ready_ms && clk_mono_ms() - a->ready_ms + EARLY_MS >= a->unit->idle_timeout_ms;
}

void session_proxy_says(struct sup *s, const char *name, enum proxy_use use)
{
	struct app *a = app_find(s, name);

	if (!a)
		return;
	if (use == PROXY_WANTED) {
		app_event(a, EV_WAKE);
	} else if (session_is(a) && served_long_enough(a)) {
		app_event(a, EV_UNUSED);
	} else { /* the proxy has closed the gate by itself */
		a->gate_told = false;
		network_gate(a);
	}
}

/* --- what is shown --- */

struct js *session_status(const struct app *a)
{
	const struct unit *u = a->unit;
	struct proxyctl_app_counters c;
	struct js *o;

	if (!session_is(a))
		return NULL;
	o = js_obj();
	js_add_int(o, "idle_timeout_ms", u->idle_timeout_ms);
	js_add_str(o, "idle_by", u->idle_by_traffic ? "traffic" : "connections");
	if (a->state == APP_IDLE)
		js_add_int(o, "idle_ms", clk_mono_ms() - a->since_ms);
	if (a->state != APP_RUNNING && a->state != APP_UNHEALTHY)
		return o;
	proxyctl_counters(a->sup->proxy, a->name, &c);
	js_add_int(o, "connections", (int64_t)c.in_open);
	if (c.unused_ms >= 0) {
		js_add_int(o, "idle_ms", c.unused_ms);
		js_add_int(o, "rests_in_ms",
			   c.unused_ms < u->idle_timeout_ms ? u->idle_timeout_ms - c.unused_ms : 0);
	}
	return o;
}
