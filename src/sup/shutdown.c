/*
 * The end of everything, inside a budget.
 *
 * Theory of operation. Every app is told at once (SIGTERM or its Stop Signal=; a jail that is still being
 * built is killed: nobody is in it yet). SIGKILL leaves some time before the end of the budget, because the
 * kernel needs time to take processes and pid namespaces apart: measured on two cores, 50 namespaces of 7
 * processes each need 140 to 180 ms from SIGKILL to the last reap, that is 3.5 ms an app; a base covers the
 * proxy, the control socket and our own exit. So with the default budget of 300 ms and 50 living apps they
 * have 105 ms of grace; with one app 276 ms. At least 20 ms of grace are always given, so 80 apps or more may
 * run over 300 ms rather than never be asked.
 *
 * There are no other deadlines: no Stop Timeout=, no restart, no reclaim. A second request (a second SIGTERM)
 * kills at once. An app in the middle of its start is like any other: it has a pidfd from the first moment.
 */
#include "sup/app.h"
#include "base/clock.h"
#include "base/log.h"
#include <signal.h>

/* Twice so long after SIGKILL a process is in the kernel's hands alone. The next `up` waits for it. */
#define LOST_MS 2500

static size_t living(const struct sup *s)
{
	size_t n = 0;

	for (const struct app *a = s->apps; a; a = a->next)
		n += app_alive(a) || needs_asking(a);
	return n + hooks_running(s);
}

static void over(struct sup *s)
{
	void (*done)(void *) = s->down_done;

	loop_timer_stop(&s->kill_timer);
	s->down_done = NULL;
	if (!done)
		return;
	strays_kill_all(s);
	events_note(s->events, "supervisor", NULL, "all apps are gone");
	done(s->down_data);
}

static void kill_all(struct sup *s)
{
	s->killed = true;
	for (struct app *a = s->apps; a; a = a->next)
		app_kill(a, false);
	loop_timer_start(&s->kill_timer, LOST_MS);
}

static void on_kill_timer(struct loop_timer *w)
{
	struct sup *s = w->data;

	if (!s->killed) {
		kill_all(s);
		return;
	}
	if (!s->lost) { /* once more, whatever it takes */
		s->lost = true;
		for (struct app *a = s->apps; a; a = a->next)
			app_kill(a, true);
		loop_timer_start(w, LOST_MS);
		return;
	}
	for (struct app *a = s->apps; a; a = a->next)
		if (app_alive(a))
			log_error("%s: pid %d does not end, though SIGKILL was sent", a->name, (int)a->pid);
	over(s);
}

void shutdown_step(struct sup *s)
{
	if (s->down && !s->stepping && s->down_done && !living(s))
		over(s);
}

void sup_shutdown(struct sup *s, int64_t grace_ms, void (*done)(void *data), void *data)
{
	int64_t budget = grace_ms >= 0 ? grace_ms : s->conf.shutdown_budget_ms;

	if (s->down) {
		if (!s->killed)
			kill_all(s);
		return;
	}
	s->down = true;
	upgrade_abandon(s);
	loop_timer_init(s->loop, &s->kill_timer, on_kill_timer, s);
	loop_timer_start(&s->kill_timer, shutdown_grace(budget, living(s)));
	events_note(s->events, "supervisor", NULL, "shutting down, %zu apps run", living(s));
	for (struct app *a = s->apps, *next; a; a = next) {
		next = a->next;
		command_abandon(a, true, "the supervisor is shutting down");
		if (!a->dead)
			app_event(a, EV_STOP);
	}
	hooks_kill(s);
	s->down_data = data;
	s->down_done = done; /* only now: it must not be called while some are not told yet */
	shutdown_step(s);
}

bool sup_shutting_down(const struct sup *s)
{
	return s->down;
}
