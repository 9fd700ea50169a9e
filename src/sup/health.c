/*
 * [Health] of a running app: the first port is asked every Interval=, inside its jail and past the proxy, so that a
 * check counts neither as a connection nor as use; or sbxsv-init runs a command beside the app. A failed one makes the app unhealthy, an answer makes it well again,
 * and Retries= failures in a row replace it, as if it had failed by itself.
 *
 * The checks of a launch end with it: none says anything about the next process. What this machine is short of
 * (descriptors, memory) is not the app's failure, and neither is a time in which the supervisor did not run: the loop
 * shifts the deadlines.
 */
#include "sup/app.h"
#include "base/clock.h"
#include "monitor/probe.h"
#include <errno.h>
#include <string.h>
#include <sys/wait.h>

struct health {
	struct app *app;
	struct loop_timer next;
	struct tcp_probe *probe;
	struct strv exec;
	struct loop_timer deadline; /* of that command; the probe has its own */
	bool overdue;               /* it was killed and has not ended yet */
	char *path;                 /* NULL: tcp */
	int64_t interval_ms, timeout_ms;
	unsigned retries, failures; /* in a row */
	uint64_t checks;
	bool given_up; /* Policy=no: it was said that it stays */
	char *last;    /* what the last check found */
	int64_t last_ms;
};

static bool works(const struct app *a)
{
	return (a->state == APP_RUNNING || a->state == APP_UNHEALTHY) && !a->reaped;
}

static bool wanted(const struct unit *u)
{
	return u->health_exec.n || ((u->health_http || u->health_tcp) && u->n_listen);
}

static bool is_as_written(const struct health *h, const struct unit *u)
{
	return strv_eq(&h->exec, &u->health_exec) && str_eq(h->path, u->health_http) &&
	       h->interval_ms == u->health_interval_ms && h->timeout_ms == u->health_timeout_ms &&
	       h->retries == u->health_retries;
}

static void emit(const struct health *h, const char *message)
{
	const struct app *a = h->app;
	struct js *ev = js_obj();

	js_add_str(ev, "type", "health");
	js_add_str(ev, "app", a->name);
	js_add_int(ev, "pid", a->pid);
	js_add_int(ev, "launch", (int64_t)a->launches);
	js_add_bool(ev, "healthy", h->failures == 0);
	js_add_int(ev, "failures", h->failures);
	js_add_str(ev, "message", message);
	events_emit(a->sup->events, ev);
}

static void well(struct health *h)
{
	struct app *a = h->app;

	h->failures = 0;
	h->given_up = false;
	if (a->state != APP_UNHEALTHY)
		return;
	emit(h, h->last);
	app_event(a, EV_READY);
}

static void sick(struct health *h)
{
	struct app *a = h->app;
	bool enough = ++h->failures >= h->retries;

	if (enough && a->unit->restart != UNIT_RESTART_NO) {
		CLEANUP_FREE char *text = xasprintf("%u health check%s in a row failed: %s", h->failures,
						    h->failures == 1 ? "" : "s", h->last);

		app_say(a, "", "%s", text);
		emit(h, text);
		app_event(a, EV_HUNG);
		return;
	}
	app_say(a,
		enough ? "it is not restarted, for its [Restart] Policy= is no"
		       : "more failures in a row, and it is restarted",
		"unhealthy: %s (%u in a row)", h->last, h->failures);
	if (h->failures == 1)
		emit(h, h->last);
	else if (enough && !h->given_up)
		emit(h, a->reason);
	h->given_up |= enough;
	app_event(a, EV_SICK);
}

static void on_answer(void *data, enum probe_result r, const char *what)
{
	struct health *h = data;
	struct app *a = h->app;

	free(h->last);
	h->last = xstrdup(what);
	h->last_ms = clk_mono_ms();
	h->checks++;
	probe_stop(h->probe);
	h->probe = NULL;
	if (!works(a)) /* it is being stopped */
		return;
	loop_timer_start(&h->next, h->interval_ms);
	if (r == PROBE_OK)
		well(h);
	else if (r == PROBE_FAILED)
		sick(h);
}

/* --- Exec= --- */

static void on_checked(void *data, int status)
{
	struct health *h = data;
	CLEANUP_FREE char *what = NULL;
	struct last_exit x = {.status = status};
	char text[80];

	loop_timer_stop(&h->deadline);
	if (status < 0) {
		what = xasprintf("cannot run %s: %s", h->exec.v[0], strerror(-status));
		on_answer(h, PROBE_UNKNOWN, what);
		return;
	}
	app_text_of_exit(&x, text, sizeof text);
	what = xasprintf("%s %s%s", h->exec.v[0], text,
			 WIFEXITED(status) && WEXITSTATUS(status) == 127 ? " (no such program in its jail?)"
									 : "");
	on_answer(h, WIFEXITED(status) && WEXITSTATUS(status) == 0 ? PROBE_OK : PROBE_FAILED, what);
}

static void on_deadline(struct loop_timer *w)
{
	struct health *h = w->data;
	CLEANUP_FREE char *what = xasprintf("%s took longer than %lld ms and was killed", h->exec.v[0],
					    (long long)h->timeout_ms);

	launch_check_stop(h->app->launch);
	h->overdue = true;
	on_answer(h, PROBE_FAILED, what);
}

static void run_command(struct health *h)
{
	CLEANUP_FREE char *what = NULL;

	if (launch_check(h->app->launch, &h->exec, on_checked, h) == 0) {
		h->overdue = false;
		loop_timer_start(&h->deadline, h->timeout_ms);
		return;
	}
	what = xasprintf("cannot run %s: %s", h->exec.v[0],
			 errno == EBUSY ? "that of the last check has not ended yet" : strerror(errno));
	on_answer(h, errno == EBUSY && h->overdue ? PROBE_FAILED : PROBE_UNKNOWN, what);
}

/* --- all --- */

static void ask(struct loop_timer *w)
{
	struct health *h = w->data;
	struct app *a = h->app;
	struct probe_config c = {
		.http_path = h->path, .timeout_ms = h->timeout_ms, .connect = network_connect, .data = a};

	if (!works(a))
		return;
	if (h->exec.n) {
		run_command(h);
		return;
	}
	c.port = a->unit->listen[0].app_port;
	h->probe = probe_start(a->sup->loop, &c, on_answer, h);
}

static struct health *health_new(struct app *a)
{
	struct health *h = a->health = xcalloc(1, sizeof *h);

	h->app = a;
	loop_timer_init(a->sup->loop, &h->deadline, on_deadline, h);
	loop_timer_init(a->sup->loop, &h->next, ask, h);
	return h;
}

void health_begin(struct app *a)
{
	const struct unit *u = a->unit;
	struct health *h;

	if (a->health || !wanted(u))
		return;
	h = health_new(a);
	h->path = xstrdup(u->health_http);
	strv_copy(&h->exec, &u->health_exec);
	h->interval_ms = u->health_interval_ms;
	h->timeout_ms = u->health_timeout_ms;
	h->retries = u->health_retries;
	loop_timer_start(&h->next, h->interval_ms);
}

/* --- across an exec of the supervisor --- */

static const struct keep_field fields[] = {
	KEEP(health, TIMER, next),     KEEP(health, TIMER, deadline), KEEP(health, BOOL, overdue),
	KEEP(health, STRV, exec),      KEEP(health, TEXT, path),      KEEP(health, I64, interval_ms),
	KEEP(health, I64, timeout_ms), KEEP(health, UINT, retries),   KEEP(health, UINT, failures),
	KEEP(health, U64, checks),     KEEP(health, BOOL, given_up),  KEEP(health, TEXT, last),
	KEEP(health, I64, last_ms),
};

struct js *health_save(struct keep *k, const struct app *a)
{
	struct js *o;

	if (!a->health)
		return NULL;
	o = js_obj();
	keep_save(k, o, fields, ELEMENTS(fields), a->health);
	return o;
}

/* A command that was asked goes on, and its answer comes; what was asked over a socket is asked again. */
void health_restore(struct keep *k, const struct js *o, struct app *a)
{
	struct health *h;

	if (!o)
		return;
	h = health_new(a);
	keep_load(k, o, fields, ELEMENTS(fields), h);
	if (h->exec.n && loop_timer_active(&h->deadline))
		launch_check_again(a->launch, on_checked, h);
	else if (!loop_timer_active(&h->next))
		loop_timer_start(&h->next, 0);
}

void health_follow(struct app *a)
{
	if (!works(a) ||
	    (a->health ? wanted(a->unit) && is_as_written(a->health, a->unit) : !wanted(a->unit)))
		return;
	health_release(a);
	health_begin(a);
	if (a->state == APP_UNHEALTHY) /* by checks that are not made any more */
		app_event(a, EV_READY);
}

void health_release(struct app *a)
{
	struct health *h = a->health;

	a->health = NULL;
	if (!h)
		return;
	loop_timer_stop(&h->next);
	loop_timer_stop(&h->deadline);
	if (h->exec.n && a->launch)
		launch_check_stop(a->launch);
	probe_stop(h->probe);
	strv_clear(&h->exec);
	free(h->path);
	free(h->last);
	free(h);
}

struct js *health_status(const struct app *a)
{
	const struct health *h = a->health;
	struct js *o;

	if (!h || !works(a))
		return NULL;
	o = js_obj();
	js_add_bool(o, "healthy", h->failures == 0);
	js_add_int(o, "checks", (int64_t)h->checks);
	js_add_int(o, "failures", h->failures);
	js_add_int(o, "retries", h->retries);
	if (h->last) {
		js_add_str(o, "last", h->last);
		js_add_int(o, "last_ms", clk_mono_ms() - h->last_ms);
	}
	return o;
}
