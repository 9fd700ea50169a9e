/*
 * From a definition to a process and to its end.
 *
 *   begin    the newest definition comes into force; its problems, its mode and its ports may refuse it
 *   start    plan, log pipe, clone3; the child builds the jail while the loop goes on
 *   attach   the jail stands: its sockets go to the proxy, readiness is watched
 *   ended    the pidfd and the backend have both reported: nothing of the app is left, a verdict follows
 *
 * The pidfd and the backend's report may come in either order; `ended` waits for both, so that the reason of
 * a failed launch is never lost behind "exited with status 1".
 */
#include "sup/app.h"
#include "base/clock.h"
#include "base/log.h"
#include "ports/ports.h"
#include "sandbox/identity.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

/* The reason is shown beside the app's name: a message that begins with it would say it twice. */
static const char *without_name(const struct app *a, const struct err *e)
{
	const char *text = err_msg(e);
	size_t n = strlen(a->name);

	return str_starts(text, a->name) && str_starts(text + n, ": ") ? text + n + 2 : text;
}

static void fail(struct app *a, const struct err *e, const char *hint)
{
	bool s = shortage_is(err_code(e));
	CLEANUP_FREE char *passing = s ? shortage_hint(err_code(e)) : NULL;

	prepare_stop(a);
	app_say(a, s ? passing : hint, "%s", without_name(a, e));
	free(a->launch_error);
	a->launch_error = xstrdup(without_name(a, e));
	app_event(a, s ? EV_SHORT : EV_REFUSED);
}

/* --- begin --- */

static bool refused_by_definition(struct app *a)
{
	CLEANUP_FREE char *text = NULL;
	const struct unit *u = a->unit;

	if (a->broken || !u) {
		text = unit_problems_text(&a->problems);
		app_say(a, "correct the lines named above; the file is read again as soon as it changes",
			"the unit is broken:\n%s", chomp(text));
		return true;
	}
	text = unit_not_startable(u);
	if (text)
		app_say(a, "remove that line, or wait for a version that acts on it", "%s", text);
	return text != NULL;
}

void run_begin(struct app *a)
{
	a->attempt++;
	a->after = AFTER_STAY;
	free(TAKE_PTR(a->launch_error));
	free(TAKE_PTR(a->because));
	a->prepared = false;
	if (a->sup->down) {
		app_event(a, EV_DOWN);
		return;
	}
	if (a->newest) {
		unit_free(a->unit);
		a->unit = TAKE_PTR(a->newest);
		a->network_told = false;
		sup_configure_logs(a);
	}
	if (refused_by_definition(a)) {
		app_event(a, EV_REFUSED);
		return;
	}
	if (a->unit->mode == UNIT_STDIO) { /* it was something else, or broken, until now */
		listener_release(a);
		proxyctl_remove(a->sup->proxy, a->name);
		a->network_told = a->gate_told = false;
		app_say_nothing(a);
		app_event(a, EV_DOWN);
		return;
	}
	run_ports_again(a);
}

void run_ports_again(struct app *a)
{
	CLEANUP_ERR struct err *port_error = NULL, *error = NULL;
	CLEANUP_FREE char *hint = NULL;
	enum hold h = listener_hold(a, &port_error);
	int r;

	network_gate(a); /* before the listeners: nobody who connects now may be reset */
	/* also when a port could not be had: the proxy must let go of those that the unit no longer names */
	r = network_apply(a, &error);
	loopback_follow(a);
	if (h == HOLD_PENDING)
		return;
	hint = xasprintf("free the port, or choose another Listen= port; then: sbxsv start %s", a->name);
	if (h == HOLD_FAILED)
		fail(a, port_error, hint);
	else if (r < 0)
		fail(a, error, "correct the [Network] section");
	else
		app_event(a, a->state == APP_STARTING && order_blocked(a) ? EV_BLOCKED : EV_HELD);
}

/* --- start --- */

#define EMPTY_ASK_MS 2 /* what has SIGKILL dies in microseconds on an idle machine, in milliseconds on a busy one */

static void ended(struct app *a);

static void on_process_end(struct loop_io *w, unsigned events)
{
	struct app *a = w->data;
	int status = 0, r = pidfd_reap(w->fd, &status);

	(void)events;
	if (r == 0)
		return;
	if (r < 0) { /* cannot happen to a child of ours; SIGKILL is the honest guess */
		log_warning("%s: cannot reap pid %d: %s", a->name, (int)a->pid, strerror(errno));
		status = SIGKILL;
	}
	loop_io_stop(&a->exit_io);
	a->reaped = true;
	a->reaped_ms = clk_mono_ms();
	a->last_exit = (struct last_exit){.known = true,
					  .status = status,
					  .at_wall_ms = clk_wall_ms(),
					  .after_ms = a->up_ms ? clk_mono_ms() - a->up_ms : 0};
	if (a->launch_done)
		ended(a);
}

static void on_done(void *data, struct launch *l, struct launch_done *done, const struct err *error)
{
	struct app *a = data;

	(void)l;
	a->launch_done = true;
	if (error) {
		free(a->launch_error);
		a->launch_error = xstrdup(without_name(a, error));
		a->short_of = shortage_is(err_code(error)) ? err_code(error) : 0;
		if (!a->reaped)
			(void)pidfd_signal(launch_pidfd(a->launch), SIGKILL);
	} else {
		isolation_finish(&a->isolation);
		a->isolation = done->isolation;
		memset(&done->isolation, 0, sizeof done->isolation);
		a->isolation_known = true;
		limits_attach(a);
		a->up = true;
		a->up_ms = clk_mono_ms();
		a->diag_fd = TAKE_FD(done->diag_fd);
		network_attach(a, done);
		if (!a->prepare)
			status_hook_start(a);
		if (!a->reaped && !a->prepare)
			app_event(a, EV_UP);
	}
	if (a->reaped)
		ended(a);
}

void batch_begin(struct sup *s)
{
	s->memo = plan_memo_create(plan_fs_real());
	s->walks++;
}

void batch_end(struct sup *s)
{
	plan_memo_destroy(s->memo);
	s->memo = NULL;
	s->walks--;
	app_bury(s);
}

/* Others' directories, EnvironmentFile= and logs are hidden from this app; plan_make() spares those that are
 * its own too. */
static void others_of(const struct app *a, struct strv *ret, struct strv *ret_data)
{
	for (const struct app *o = a->sup->apps; o; o = o->next) {
		const struct unit *u = app_newest(o);

		if (o == a || !u)
			continue;
		plan_unit_places(u, ret);
		if (str_eq(u->user, a->unit->user))
			plan_unit_data(u, ret_data);
	}
}

/* of_app: of the app itself, not of a hook. */
static struct plan *plan_by(struct app *a, const struct unit *u, bool of_app, struct err **e)
{
	CLEANUP_STRV struct strv others = {0}, others_data = {0};
	struct unit_problems problems = {0};
	struct plan_world w = {.dirs = a->sup->dirs,
			       .conf = &a->sup->conf,
			       .others = &others,
			       .others_data = &others_data,
			       .environ = a->sup->environ,
			       .fs = a->sup->memo ? plan_memo_fs(a->sup->memo) : plan_fs_real(),
			       .memo = a->sup->memo,
			       .reaches_out = of_app && network_egress(a) != EGRESS_OFF};
	CLEANUP_FREE char *text = NULL;
	struct plan *p = NULL;

	if (identity_find(u, a->sup->dirs, &a->sup->conf, &w.user, e) < 0)
		return NULL;
	if (of_app) {
		free(a->run_user);
		a->run_user = xstrdup(w.user.name);
	}
	others_of(a, &others, &others_data);
	p = plan_make(u, &w, &problems);
	identity_finish(&w.user);
	if (of_app)
		newcomers_launched(a, &others);
	if (!p) {
		text = unit_problems_text(&problems);
		(void)err_set(e, 0, "%s", chomp(text));
	}
	unit_problems_clear(&problems);
	return p;
}

struct plan *run_plan(struct app *a, const struct unit *u, struct err **e)
{
	return plan_by(a, u, true, e);
}

struct plan *run_plan_of_hook(struct app *a, const struct unit *u, struct err **e)
{
	return plan_by(a, u, false, e);
}

static int start_process(struct app *a, const struct backend *b, const struct plan *p, struct err **e)
{
	CLEANUP_FD int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC), out = -1, ready = -1, group = -1;
	struct launch_io io = {.init_fd = a->sup->init_fd,
			       .supervisor_pidfd = a->sup->self_pidfd,
			       .new_session = true,
			       .audit = violations_mode(a, p),
			       .listening = violations_listening};
	struct network_plan net;

	if (null_fd < 0)
		return err_sys(e, errno, "/dev/null");
	if (!a->logs) /* there was no memory or descriptor for it; now there may be */
		sup_configure_logs(a);
	out = a->logs ? logs_open_pipe_marked(a->logs, a->prepare ? "[prepare] " : "", e)
		      : err_set(e, ENOMEM, "%s: its log cannot be opened", a->name);
	if (out < 0)
		return -1;
	io.stdin_fd = null_fd;
	io.stdout_fd = io.stderr_fd = out;
	if (p->netns) {
		if (network_plan(a, &net, e) < 0)
			return -1;
		io.inside_net = network_inside;
		io.inside_net_data = &net.net;
	}
	if (!a->prepare && notices_prepare(a, &io, e) < 0)
		return -1;
	if (io.ready_fd > 0)
		ready = io.ready_fd;
	limits_prepare(a, b != &backend_none, &io);
	if (io.group_fd > 0)
		group = io.group_fd;
	violations_plan(a, p);
	a->launch_done = a->reaped = a->up = a->judged = false;
	a->short_of = 0;
	a->up_ms = a->ready_ms = 0;
	a->launch = b->launch(a->sup->loop, p, &io, on_done, a, e);
	return a->launch ? 0 : -1;
}

static void launched(struct app *a)
{
	char text[64];

	a->launches++;
	(void)snprintf(text, sizeof text, "started, pid %d", (int)a->pid);
	logs_note_soon(a->logs, text);
	restart_started(&a->restart, a->unit->limit_burst, clk_mono_ms());
	loop_timer_start(&a->timer, a->unit->ready_timeout_ms);
}

void run_start(struct app *a)
{
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_PLAN struct plan *p = NULL;
	CLEANUP_FREE char *hint = NULL;
	const struct backend *b;

	a->launch_later = a->sup->hand_over; /* until then, see upgrade.c */
	if (a->launch_later)
		return;
	if (a->broken && refused_by_definition(a)) { /* since it began: it waited, or its [Prepare] did */
		prepare_stop(a);
		app_event(a, EV_REFUSED);
		return;
	}
	if (shortage_of_room(a, &e) < 0) {
		fail(a, e, "");
		return;
	}
	switch (needs_check(a, &e)) {
	case NEEDS_MET:
		break;
	case NEEDS_PENDING:
		return;
	case NEEDS_LACKS:
		prepare_stop(a);
		app_event(a, EV_REFUSED);
		return;
	case NEEDS_ERROR:
		hint = explain_repair(a);
		fail(a, e, hint);
		return;
	}
	if (prepare_next(a, &e) == PREPARE_FAILED) {
		fail(a, e, "correct the [Prepare] section, or make what is missing");
		return;
	}
	p = run_plan(a, prepare_unit(a), &e);
	if (!p) {
		hint = explain_repair(a);
		fail(a, e, hint);
		return;
	}
	b = backend_for(a->unit, &e);
	if (!b || start_process(a, b, p, &e) < 0) {
		fail(a, e, "sbxsv doctor shows what this machine can do");
		return;
	}
	a->no_jail = b == &backend_none;
	a->pid = launch_pid(a->launch);
	a->pid_start = ports_start_time(a->pid);
	a->sup->any_unjailed |= a->no_jail;
	loop_io_init(a->sup->loop, &a->exit_io, launch_pidfd(a->launch), LOOP_READ, on_process_end, a);
	sup_record(a->sup);
	/* before the loop can read a line of it */
	if (a->prepare)
		prepare_launched(a);
	else
		launched(a);
}

/* --- attach: readiness --- */

static int listens(void *data, uint16_t port)
{
	struct app *a = data;
	struct net_listener found[16];
	int fd = a->diag_fd >= 0 ? a->diag_fd : a->sup->host_diag_fd;
	int n = fd < 0 ? -1 : net_list_listeners(fd, port, found, ELEMENTS(found), NULL);
	struct in_addr ours;

	if (n < 0)
		return -1;
	(void)inet_pton(AF_INET, NET_PROXY_ADDRESS, &ours);
	for (int i = 0; i < n; i++)
		if (found[i].family != AF_INET || memcmp(found[i].address, &ours, sizeof ours) != 0)
			return 1;
	return 0;
}

void run_ready(struct app *a, const char *what)
{
	if (a->state != APP_STARTING) /* it is being stopped: nobody waits for it any more */
		return;
	logs_note(a->logs, what);
	status_emit_ready(a, what);
	app_event(a, EV_READY);
}

static void on_ready(void *data, const char *what)
{
	run_ready(data, what);
}

static void ask_ready(struct app *a, int64_t begun_ms)
{
	const struct unit *u = a->unit;
	uint16_t ports[64];
	struct ready_config c = {
		.ports = ports, .listens = listens, .connect = network_connect, .data = a, .begun_ms = begun_ms};

	for (size_t i = 0; i < u->n_listen && c.n_ports < ELEMENTS(ports); i++)
		ports[c.n_ports++] = u->listen[i].app_port;
	if (u->ready == UNIT_READY_HTTP)
		c.http_path = u->ready_path ? u->ready_path : "/";
	a->ready = ready_start(a->sup->loop, &c, on_ready, a);
}

void run_attach(struct app *a)
{
	const struct unit *u = a->unit;

	if (a->notices && (u->ready == UNIT_READY_NOTIFY || u->ready == UNIT_READY_FD)) {
		notices_attach(a);
		return;
	}
	if (u->ready == UNIT_READY_EXEC || !u->n_listen) {
		status_emit_ready(a, "the program was started");
		app_event(a, EV_READY);
		return;
	}
	ask_ready(a, 0);
}

/* --- across an exec of the supervisor --- */

void run_watch(struct app *a, int64_t ready_begun_ms)
{
	if (!a->reaped)
		loop_io_init(a->sup->loop, &a->exit_io, launch_pidfd(a->launch), LOOP_READ, on_process_end, a);
	if (ready_begun_ms)
		ask_ready(a, ready_begun_ms);
}

void run_go_on(struct sup *s)
{
	for (struct app *a = s->apps, *next; a; a = next) {
		next = a->next;
		if (!a->launch_later)
			continue;
		a->launch_later = false;
		if (!a->dead && a->state == APP_STARTING)
			run_start(a);
	}
	hooks_go_on(s);
}

/* --- the end --- */

void run_release(struct app *a)
{
	loop_io_stop(&a->exit_io);
	loop_timer_stop(&a->empty_timer);
	ready_stop(a->ready);
	a->ready = NULL;
	notices_release(a);
	health_release(a);
	network_detach(a);
	violations_release(a);
	limits_release(a);
	fd_close_many(&a->diag_fd, 1);
	launch_destroy(a->launch);
	a->launch = NULL;
	a->pid = 0;
	a->up = false;
	a->up_ms = a->ready_ms = 0;
	isolation_finish(&a->isolation);
	memset(&a->isolation, 0, sizeof a->isolation);
	a->isolation_known = false;
	a->sees_newcomer = false;
}

static void on_judged(void *data)
{
	ended(data);
}

static void on_empty_timer(struct loop_timer *w)
{
	ended(w->data);
}

static void ended(struct app *a)
{
	enum app_event verdict;
	char text[160];

	if (!limits_drain(a)) {
		loop_timer_init(a->sup->loop, &a->empty_timer, on_empty_timer, a);
		loop_timer_start(&a->empty_timer, EMPTY_ASK_MS);
		return;
	}
	if (!a->judged) { /* what it was refused belongs to the reason of its end */
		a->judged = true;
		if (!violations_drain(a, on_judged))
			return;
	}
	/* The init's own status cannot tell "killed by signal 9" from "exit 137". */
	if (a->up)
		(void)launch_exit_status(a->launch, &a->last_exit.status);
	limits_ended(a);
	logs_drain(a->logs);
	if (a->prepare) {
		prepare_ended(a);
		return;
	}
	if (a->up) {
		app_text_of_exit(&a->last_exit, text, sizeof text);
		logs_note(a->logs, text);
	} else if (a->launch_error) {
		logs_note(a->logs, a->launch_error);
	}
	verdict = action_verdict(a);
	status_emit_exit(a);
	run_release(a);
	sup_record(a->sup);
	app_event(a, verdict);
}
