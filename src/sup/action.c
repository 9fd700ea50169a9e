/* What the actions of the state table do. Each is short; the longer ones live in run.c and network.c. */
#include "sup/app.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#define STDIO_LATE_MS 1000 /* a process of `sbxsv run` that should have ended its app by now hangs */
#define UNKILLED_MS 5000 /* SIGKILL was sent and nothing happened: say so, and send it again */

static void timer_fired(struct loop_timer *w)
{
	struct app *a = w->data;

	switch (a->state) {
	case APP_STARTING:
		app_event(a, EV_LATE);
		break;
	case APP_STOPPING:
		app_event(a, EV_TIMEOUT);
		break;
	case APP_BACKOFF:
	case APP_IDLE:
		app_event(a, EV_DUE);
		break;
	default:
		break;
	}
}

static void gate_timer_fired(struct loop_timer *w)
{
	struct app *a = w->data;

	network_gate(a);
}

void action_init(struct app *a)
{
	loop_timer_init(a->sup->loop, &a->timer, timer_fired, a);
	loop_timer_init(a->sup->loop, &a->gate_timer, gate_timer_fired, a);
}

void action_finish(struct app *a)
{
	loop_timer_stop(&a->timer);
	loop_timer_stop(&a->gate_timer);
}

void action_left_state(struct app *a)
{
	loop_timer_stop(&a->timer);
	loop_timer_stop(&a->gate_timer);
	a->next_start_ms = 0;
}

/* --- ends of a process --- */

bool app_exit_is_success(const struct unit *u, int status)
{
	unsigned code;

	if (!WIFEXITED(status))
		return false;
	code = (unsigned)WEXITSTATUS(status);
	return code == 0 || (u->success_status[code / 8] & (1u << (code % 8)));
}

void app_text_of_exit(const struct last_exit *x, char *buf, size_t cap)
{
	CLEANUP_FREE char *limit = limits_text(x);
	const char *sep = limit ? ": " : "";

	if (WIFSIGNALED(x->status))
		(void)snprintf(buf, cap, "was killed by %s%s%s", signal_name(WTERMSIG(x->status)), sep,
			       limit ? limit : "");
	else
		(void)snprintf(buf, cap, "exited with status %d%s%s", WEXITSTATUS(x->status), sep,
			       limit ? limit : "");
}

static bool policy_wants_more(const struct unit *u, bool success)
{
	return u->restart == UNIT_RESTART_ALWAYS || (u->restart == UNIT_RESTART_ON_FAILURE && !success);
}

/* hint: what to do about this cause, "" when there is nothing special. */
static enum app_event retry(struct app *a, const char *cause, const char *hint)
{
	const struct unit *u = a->unit;
	bool never = u->restart == UNIT_RESTART_NO;

	violations_ended(a, true);
	if (never || restart_exhausted(&a->restart, u->limit_burst, u->limit_interval_ms, clk_mono_ms())) {
		explain_giveup(a, cause, hint, !never);
		return EV_GIVEUP;
	}
	app_say(a, hint, "%s", cause);
	return EV_AGAIN;
}

static void calm(struct app *a)
{
	CLEANUP_FREE char *hint = a->because ? xasprintf("sbxsv start %s starts both", a->name) : NULL;

	if (a->because)
		app_say(a, hint, "%s", a->because);
	else
		app_say_nothing(a);
}

static enum app_event verdict_stopping(struct app *a)
{
	CLEANUP_FREE char *cause = NULL, *hint = NULL;

	switch (a->after) {
	case AFTER_AGAIN:
		return EV_NOW;
	case AFTER_RETRY:
		cause = xstrdup(a->reason ? a->reason : "it did not get ready");
		hint = xstrdup(a->hint ? a->hint : "");
		return retry(a, cause, hint);
	case AFTER_IDLE:
		violations_ended(a, false);
		restart_reset(&a->restart);
		return EV_RESTED;
	case AFTER_STAY:
	case AFTER_FORGET:
		break;
	}
	violations_ended(a, false);
	calm(a);
	return EV_DOWN;
}

/* A session app, with success. */
static enum app_event ended_by_itself(struct app *a, const char *cause)
{
	bool failed;
	enum app_event e = session_verdict(a, &failed);

	if (failed)
		return retry(a, cause,
			     "a session app stays until it is stopped: this one ends before its clients are "
			     "served");
	violations_ended(a, false);
	return e;
}

/* Nothing of the app runs any more: what follows? */
enum app_event action_verdict(struct app *a)
{
	CLEANUP_FREE char *cause = NULL, *hint = NULL;
	char text[160];
	bool success;

	restart_ended(&a->restart, a->ready_ms ? clk_mono_ms() - a->ready_ms : 0);
	if (a->state == APP_STOPPING)
		return verdict_stopping(a);
	if (a->launch_error && !a->up) {
		hint = a->short_of ? shortage_hint(a->short_of) : explain_repair(a);
		app_say(a, hint, "%s", a->launch_error);
		return a->short_of ? EV_SHORT : EV_REFUSED;
	}
	success = app_exit_is_success(a->unit, a->last_exit.status);
	app_text_of_exit(&a->last_exit, text, sizeof text);
	cause = xasprintf("%s%safter %lld ms%s", text, a->last_exit.limit ? ", " : " ",
			  (long long)a->last_exit.after_ms, a->ready_ms ? "" : ", before it was ready");
	if (success && !policy_wants_more(a->unit, success)) {
		app_say(a, "", "%s", cause);
		return session_is(a) ? ended_by_itself(a, cause) : EV_DOWN;
	}
	return retry(a, cause, limits_hint(&a->last_exit));
}

/* --- stopping --- */

void action_nothing_runs(struct app *a)
{
	app_event(a, a->after == AFTER_AGAIN   ? EV_NOW
		     : a->after == AFTER_RETRY ? EV_AGAIN
		     : a->after == AFTER_IDLE  ? EV_RESTED
					       : EV_DOWN);
}

static void tell_to_end(struct app *a)
{
	int sig = a->unit ? a->unit->stop_signal : SIGTERM;

	if (a->instances) { /* each ends its own by Stop Signal= and Timeout= */
		stdio_stop(a);
		if (!a->sup->down)
			loop_timer_start(&a->timer, a->unit->stop_timeout_ms + STDIO_LATE_MS);
		return;
	}
	if (!app_alive(a)) {
		reclaim_stop(a);
		prepare_stop(a);
		if (!needs_stop(a))
			action_nothing_runs(a);
		return;
	}
	if (a->reaped) /* the end of the launch is on its way through the loop */
		return;
	/*
	 * While the jail is being built every signal is blocked and stays so in sbxsv-init: one sent now is
	 * delivered to the program as its first thing. We cannot know whether it runs already (the report may
	 * be on its way), so it gets its signal and its time; only a shutdown, or a jail that takes too long,
	 * kills.
	 */
	if (!a->up && (a->sup->down || a->after == AFTER_RETRY))
		sig = SIGKILL;
	if (pidfd_signal(launch_pidfd(a->launch), sig) < 0 && errno != ESRCH)
		log_warning("%s: cannot send %s: %s", a->name, signal_name(sig), strerror(errno));
	if (a->sup->down) /* a shutdown has a clock of its own */
		return;
	loop_timer_start(&a->timer, a->unit->stop_timeout_ms);
}

/*
 * SIGKILL. A control group dies as a whole. Of a jail it is enough to kill pid 1. Without one, what runs below our init is killed and the init
 * then ends by itself, having killed what it adopted; killing it first would let all that loose. `again`: it
 * did not.
 */
void app_kill(struct app *a, bool again)
{
	stdio_kill(a);
	if (!a->launch || a->reaped)
		return;
	if (limits_kill(a) && !again)
		return;
	if (a->no_jail && a->up)
		strays_kill_below(a->pid);
	if (!a->no_jail || !a->up || again)
		(void)pidfd_signal(launch_pidfd(a->launch), SIGKILL);
}

static void kill_now(struct app *a)
{
	app_kill(a, clk_mono_ms() - a->since_ms > UNKILLED_MS);
	if (clk_mono_ms() - a->since_ms > UNKILLED_MS)
		app_say(a,
			"a process waits for hardware or a network file system that does not answer; see ps "
			"-o stat,wchan",
			"SIGKILL was sent and the kernel has not ended it yet");
	loop_timer_start(&a->timer, UNKILLED_MS);
}

static void stop(struct app *a, enum app_after after)
{
	a->after = after;
	if (after != AFTER_RETRY)
		app_say_nothing(a);
	tell_to_end(a);
}

static void late(struct app *a)
{
	explain_late(a);
	if (a->logs)
		logs_note(a->logs, a->reason);
	stop(a, AFTER_RETRY);
}

/* Who raised the event has said why. */
static void hung(struct app *a)
{
	if (a->logs && a->reason)
		logs_note(a->logs, a->reason);
	stop(a, AFTER_RETRY);
}

/* --- the rest of the table --- */

static void wait_for_next(struct app *a, bool short_of)
{
	const struct unit *u = a->unit;
	unsigned n = short_of ? ++a->restart.shorts : a->restart.failures;
	int64_t delay = restart_delay(n, short_of && !u->restart_ms ? 100 : u->restart_ms, u->restart_max_ms);

	a->next_start_ms = clk_mono_ms() + delay;
	loop_timer_start(&a->timer, delay);
	loop_timer_start(&a->gate_timer, APP_BACKOFF_HOLD_MS);
}

static void ready(struct app *a)
{
	if (!a->ready_ms) /* not when it is well again */
		a->ready_ms = clk_mono_ms();
	a->restart.shorts = 0;
	loop_timer_stop(&a->timer);
	app_say_nothing(a);
	notices_ready(a);
	health_begin(a);
}

static void rest(struct app *a)
{
	if (a->removed)
		app_forget(a);
}

void app_act(struct app *a, enum app_action act)
{
	switch (act) {
	case ACT_NONE:
	case ACT_MAX:
		break;
	case ACT_BEGIN:
		run_begin(a);
		break;
	case ACT_LAUNCH:
		run_start(a);
		break;
	case ACT_ATTACH:
		run_attach(a);
		break;
	case ACT_READY:
		ready(a);
		break;
	case ACT_STOP:
		stop(a, AFTER_STAY);
		break;
	case ACT_AGAIN:
		stop(a, AFTER_AGAIN);
		break;
	case ACT_LATE:
		late(a);
		break;
	case ACT_HUNG:
		hung(a);
		break;
	case ACT_REMOVE:
		listener_release(a); /* at once: a renamed unit wants the same port */
		stop(a, AFTER_FORGET);
		break;
	case ACT_TO_STAY:
		a->after = AFTER_STAY;
		break;
	case ACT_TO_AGAIN:
		a->after = AFTER_AGAIN;
		break;
	case ACT_TO_FORGET:
		listener_release(a);
		a->after = AFTER_FORGET;
		break;
	case ACT_KILL:
		kill_now(a);
		break;
	case ACT_WAIT:
		wait_for_next(a, a->launch_error != NULL);
		break;
	case ACT_REST:
		rest(a);
		break;
	case ACT_BLOCKED:
		order_hold_gate(a);
		break;
	case ACT_CALM:
		reclaim_stop(a);
		calm(a);
		break;
	case ACT_FORGET:
		reclaim_stop(a);
		app_forget(a);
		break;
	case ACT_HOLD:
		session_hold(a);
		break;
	case ACT_HELD:
		session_held(a);
		break;
	case ACT_HOLD_LATER:
		session_hold_later(a);
		break;
	case ACT_WAKE:
		session_wake(a);
		break;
	case ACT_UNUSED:
		stop(a, AFTER_IDLE);
		session_say_unused(a);
		break;
	case ACT_TO_IDLE:
		if (a->after == AFTER_STAY || a->after == AFTER_FORGET)
			a->after = AFTER_IDLE;
		break;
	case ACT_RESTED:
		session_rested(a);
		break;
	}
}
