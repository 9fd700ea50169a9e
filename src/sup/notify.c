/*
 * What an app says of itself: sd_notify messages from its jail (Type=notify, WatchdogSec=), or a line on its
 * descriptor 3 (Type=fd).
 *
 * All of it belongs to one launch: it begins with the plan and ends with run_release(), so that nothing an earlier
 * process said is held for the word of this one. sbxsv-init has told the jail's own processes from all others (see
 * src/init/init.c). MAINPID= is never followed: which process of a jail counts is not the app's to say.
 */
#include "sup/app.h"
#include "base/clock.h"
#include "base/log.h"
#include "monitor/notify.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

struct notices {
	struct app *app;
	bool said_ready, attached, reloading, stopping;
	char *status;          /* escaped */
	uint64_t foreign, odd; /* messages that were dropped */
	bool told_foreign, told_odd, told_main_pid;
	int64_t begun_ms, late_ms; /* when the start began and when it is late; monotonic */
	struct loop_timer watchdog;
	int64_t watchdog_ms; /* of this process; 0: none */
	/* Type=fd */
	int fd;
	bool ended; /* it was closed without a line */
	struct loop_io io;
};

/* --- Type=fd --- */

static void close_fd(struct notices *n)
{
	loop_io_stop(&n->io);
	fd_close_many(&n->fd, 1);
}

static void say_ready(struct notices *n, const char *what)
{
	CLEANUP_FREE char *text = NULL;

	n->said_ready = true;
	if (!n->attached || n->app->state != APP_STARTING)
		return;
	text = xasprintf("%s after %lld ms", what, (long long)(clk_mono_ms() - n->begun_ms));
	run_ready(n->app, text);
}

static void on_line(struct loop_io *w, unsigned events)
{
	struct notices *n = w->data;
	char buf[256];
	ssize_t len = read(n->fd, buf, sizeof buf);

	(void)events;
	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (len > 0 && !memchr(buf, '\n', (size_t)len))
		return;
	n->ended = len <= 0;
	close_fd(n);
	if (!n->ended)
		say_ready(n, "a line on descriptor " PLAN_READY_FD);
}

static int open_fd(struct notices *n, int *ret_write, struct err **e)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(e, errno, "[Ready] Type=fd: cannot make a pipe");
	n->fd = p[0];
	(void)fd_set_nonblock(p[0], true); /* the other end is the app's, and blocks */
	loop_io_init(n->app->sup->loop, &n->io, p[0], LOOP_READ, on_line, n);
	*ret_write = p[1];
	return 0;
}

/* --- the watchdog --- */

static bool works(const struct app *a)
{
	return a->state == APP_RUNNING || a->state == APP_UNHEALTHY;
}

static void bitten(struct notices *n, const char *how)
{
	struct app *a = n->app;

	if (!works(a))
		return;
	app_say(a, "it has to send WATCHDOG=1 more often than that, or its WatchdogSec= is too short", "%s",
		how);
	app_event(a, EV_HUNG);
}

static void on_watchdog(struct loop_timer *w)
{
	struct notices *n = w->data;
	CLEANUP_FREE char *text = xasprintf("no sign of life (WATCHDOG=1) for %lld ms, WatchdogSec=",
					    (long long)n->watchdog_ms);

	bitten(n, text);
}

static void sign_of_life(struct notices *n)
{
	if (n->watchdog_ms && works(n->app))
		loop_timer_start(&n->watchdog, n->watchdog_ms);
}

/* --- messages --- */

static void dropped(struct notices *n, int error)
{
	struct app *a = n->app;
	bool foreign = error == EPERM, *told = foreign ? &n->told_foreign : &n->told_odd;

	if (foreign)
		n->foreign++;
	else
		n->odd++;
	if (*told)
		return;
	*told = true;
	log_warning("%s: a message to its $NOTIFY_SOCKET was ignored: %s", a->name,
		    foreign ? "the sender is not a process of this jail"
			    : "it is too long, or no sd_notify message");
}

/* Never earlier than [Ready] Timeout= has it: an app may only ask for more. */
static void extend(struct notices *n, int64_t ms)
{
	int64_t now = clk_mono_ms();

	if (n->app->state != APP_STARTING || !n->attached || now + ms <= n->late_ms)
		return;
	n->late_ms = now + ms;
	loop_timer_start(&n->app->timer, ms);
}

static void main_pid(struct notices *n)
{
	if (n->told_main_pid)
		return;
	n->told_main_pid = true;
	log_warning("%s: MAINPID= is not followed: the process that sbxsv started is the one that counts",
		    n->app->name);
}

static void on_message(void *data, const char *text, size_t len, int error)
{
	struct app *a = data;
	struct notices *n = a->notices;
	struct notify_message m;

	if (!n)
		return;
	if (!text || !notify_parse(text, len, &m)) {
		dropped(n, text ? EINVAL : error);
		return;
	}
	if (m.has_status) {
		free(n->status);
		n->status = TAKE_PTR(m.status);
	}
	if (m.main_pid)
		main_pid(n);
	if (m.extend_ms)
		extend(n, m.extend_ms);
	n->stopping |= m.stopping;
	if (m.reloading || m.ready)
		n->reloading = m.reloading && !m.ready;
	if (m.ready && a->unit->ready == UNIT_READY_NOTIFY && !n->said_ready)
		say_ready(n, "READY=1");
	if (m.watchdog)
		sign_of_life(n);
	if (m.watchdog_trigger && n->watchdog_ms)
		bitten(n, "the app said itself that it hangs (WATCHDOG=trigger)");
	notify_message_finish(&m);
}

/* --- for run.c, action.c and status.c --- */

static struct notices *notices_new(struct app *a)
{
	struct notices *n = a->notices = xcalloc(1, sizeof *n);

	n->app = a;
	n->fd = -1;
	loop_timer_init(a->sup->loop, &n->watchdog, on_watchdog, n);
	return n;
}

int notices_prepare(struct app *a, struct launch_io *io, struct err **e)
{
	const struct unit *u = a->unit;
	struct notices *n;

	io->notified = NULL;
	io->ready_fd = 0;
	notices_release(a);
	if (u->ready != UNIT_READY_NOTIFY && u->ready != UNIT_READY_FD && !u->watchdog_ms)
		return 0;
	n = notices_new(a);
	n->watchdog_ms = u->watchdog_ms;
	n->begun_ms = clk_mono_ms();
	if (u->ready == UNIT_READY_NOTIFY || u->watchdog_ms)
		io->notified = on_message;
	return u->ready == UNIT_READY_FD ? open_fd(n, &io->ready_fd, e) : 0;
}

void notices_attach(struct app *a)
{
	struct notices *n = a->notices;

	n->attached = true;
	n->late_ms = n->begun_ms + a->unit->ready_timeout_ms;
	if (n->said_ready)
		say_ready(n, a->unit->ready == UNIT_READY_FD ? "a line on descriptor " PLAN_READY_FD
							     : "READY=1");
}

void notices_ready(struct app *a)
{
	if (a->notices && !loop_timer_active(&a->notices->watchdog))
		sign_of_life(a->notices);
}

const char *notices_waiting_for(const struct app *a)
{
	const struct notices *n = a->notices;

	if (!n)
		return NULL;
	if (a->unit->ready == UNIT_READY_NOTIFY)
		return n->foreign ? "no READY=1 came from inside of its jail, and what came from outside is "
				    "ignored"
				  : "it sent no READY=1 to $NOTIFY_SOCKET";
	if (a->unit->ready == UNIT_READY_FD)
		return n->ended ? "it closed descriptor " PLAN_READY_FD " without writing a line"
				: "it wrote no line to descriptor " PLAN_READY_FD;
	return NULL;
}

void notices_release(struct app *a)
{
	struct notices *n = a->notices;

	a->notices = NULL;
	if (!n)
		return;
	close_fd(n);
	loop_timer_stop(&n->watchdog);
	free(n->status);
	free(n);
}

struct js *notices_status(const struct app *a)
{
	const struct notices *n = a->notices;
	struct js *o;

	if (!n || !app_alive(a))
		return NULL;
	o = js_obj();
	if (n->status)
		js_add_str(o, "status", n->status);
	js_add_bool(o, "reloading", n->reloading);
	js_add_bool(o, "stopping", n->stopping);
	js_add_int(o, "ignored", (int64_t)(n->foreign + n->odd));
	if (n->watchdog_ms)
		js_add_int(o, "watchdog_ms", n->watchdog_ms);
	return o;
}

/* --- across an exec of the supervisor --- */

static const struct keep_field fields[] = {
	KEEP(notices, BOOL, said_ready), KEEP(notices, BOOL, attached), KEEP(notices, BOOL, reloading),
	KEEP(notices, BOOL, stopping),	 KEEP(notices, TEXT, status),	KEEP(notices, U64, foreign),
	KEEP(notices, U64, odd),	 KEEP(notices, BOOL, told_foreign), KEEP(notices, BOOL, told_odd),
	KEEP(notices, BOOL, told_main_pid), KEEP(notices, I64, begun_ms), KEEP(notices, I64, late_ms),
	KEEP(notices, TIMER, watchdog),	 KEEP(notices, I64, watchdog_ms), KEEP(notices, FD, fd),
	KEEP(notices, BOOL, ended),
};

struct js *notices_save(struct keep *k, const struct app *a)
{
	struct js *o;

	if (!a->notices)
		return NULL;
	o = js_obj();
	keep_save(k, o, fields, ELEMENTS(fields), a->notices);
	return o;
}

launch_notified_fn *notices_restore(struct keep *k, const struct js *o, struct app *a)
{
	struct notices *n;

	if (!o)
		return NULL;
	n = notices_new(a);
	keep_load(k, o, fields, ELEMENTS(fields), n);
	if (n->fd >= 0)
		loop_io_init(a->sup->loop, &n->io, n->fd, LOOP_READ, on_line, n);
	return on_message;
}
