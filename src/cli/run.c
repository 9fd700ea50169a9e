/*
 * One instance of an app with Mode=stdio, on the standard streams of whoever runs this: the command of an MCP client's
 * configuration.
 *
 * Theory of operation. The jail, its network and its end are made here, as by `exec`, from the unit in apps.d: the
 * instance belongs to its client. It ends when the client closes standard input: then it has [Stop] Timeout= without a
 * byte of output, gets [Stop] Signal=, and after that time again SIGKILL. When this process is killed, the jail dies with its
 * parent. A supervisor, if there is one, is told (member.h): it shows the instance, keeps its standard error as the
 * app's log, hands over rules given at run time, and may ask it to end. If there is none, all is the same but for that.
 *
 * All three streams are copied (relay.h), so that the end of the input is seen, and the app holds none of the client's
 * own descriptors. An output whose reader is slow holds up nothing else here: a client may write a large request while
 * the app writes a large answer.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "base/program.h"
#include "cli/cli.h"
#include "cli/member.h"
#include "cli/refusals.h"
#include "cli/relay.h"
#include "cli/run_net.h"
#include "cli/subject.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum {
	ANSWER_MS = 5000,   /* a supervisor that is there, and does not answer for so long, hangs */
	LATE_EVENTS_MS = 20 /* for refusals that are still in the proxy's socket when the app ends */
};

static const int passed_on[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT, SIGINT, SIGQUIT};

struct instance {
	struct cli *cli;
	struct loop *loop;
	struct unit *unit;  /* what the jail was made from */
	struct unit *rules; /* a newer definition, whose network rules are in force; NULL: none */
	struct unit_scan scan;
	struct conf conf;
	struct plan *plan;
	struct run_net net;
	struct proxyctl_hooks proxy_hooks;
	struct member *member;
	int log; /* of the supervisor; -1: none */
	uint64_t log_lost;
	struct launch *launch; /* NULL: not yet */
	struct refusals refusals;
	struct relay relay[3];
	struct loop_signal signals[ELEMENTS(passed_on)];
	struct loop_io dead;
	struct loop_timer answer, patience, late;
	enum { LIVES, EOF_SEEN, ASKED, KILLED } ending;
	bool begun, reaped, judged;
	int code;
};

static void give_up(struct instance *i, int code)
{
	i->code = code;
	loop_break(i->loop);
}

/* --- its end --- */

static void next_step(struct instance *i)
{
	int64_t patience = i->unit->stop_timeout_ms;

	if (i->reaped || !i->launch)
		return;
	i->ending = i->ending < ASKED ? ASKED : KILLED;
	(void)pidfd_signal(launch_pidfd(i->launch), i->ending == KILLED ? SIGKILL : i->unit->stop_signal);
	if (i->ending != KILLED)
		loop_timer_start(&i->patience, patience);
}

static void on_patience(struct loop_timer *w)
{
	next_step(w->data);
}

static bool nobody_reads(void)
{
	struct pollfd p = {.fd = 1};

	return poll(&p, 1, 0) == 1 && (p.revents & (POLLERR | POLLHUP));
}

static void on_eof(void *data)
{
	struct instance *i = data;

	if (i->ending != LIVES)
		return;
	i->ending = EOF_SEEN;
	if (nobody_reads()) /* the client is not just done: it is gone */
		next_step(i);
	else
		loop_timer_start(&i->patience, i->unit->stop_timeout_ms);
}

/* What it was asked before the end of the input is still being read, or answered. */
static void on_output(void *data, const char *bytes, size_t len)
{
	struct instance *i = data;

	(void)bytes;
	(void)len;
	if (i->ending == EOF_SEEN)
		loop_timer_start(&i->patience, i->unit->stop_timeout_ms);
}

static void on_late(struct loop_timer *w)
{
	struct instance *i = w->data;

	if (i->code != 0 && !member_joined(i->member)) {
		CLEANUP_JS struct js *hosts =
			i->net.proxy ? proxyctl_denied(i->net.proxy, i->plan->app) : NULL;

		refusals_add_hosts(&i->refusals, i->plan->app, hosts);
		refusals_print(&i->refusals);
	}
	if (i->refusals.lost) {
		struct js *m = js_obj();

		js_add_str(m, "t", "lost");
		js_add_int(m, "n", (int64_t)i->refusals.lost);
		member_say(i->member, m);
	}
	loop_break(i->loop);
}

/* The process is gone, what it wrote is written, and what it was refused is known. */
static void maybe_over(void *data)
{
	struct instance *i = data;

	if (i->reaped && i->judged && !i->relay[1].active && !i->relay[2].active &&
	    !loop_timer_active(&i->late))
		loop_timer_start(&i->late, i->net.proxy ? LATE_EVENTS_MS : 0);
}

static void on_judged(void *data)
{
	struct instance *i = data;

	i->judged = true;
	maybe_over(i);
}

static void on_dead(struct loop_io *w, unsigned events)
{
	struct instance *i = w->data;
	struct js *m;
	int status = 0, app;

	(void)events;
	if (pidfd_reap(w->fd, &status) == 0)
		return;
	loop_io_stop(w);
	loop_timer_stop(&i->patience);
	i->reaped = true;
	if (launch_exit_status(i->launch, &app) == 0)
		status = app;
	if (i->code == 0)
		i->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	m = js_obj();
	js_add_str(m, "t", "exited");
	js_add_int(m, "status", status);
	member_say(i->member, m);
	i->judged = refusals_drain(&i->refusals, on_judged, i);
	maybe_over(i);
}

/* --- what it is refused, and what it says --- */

static void tell_event(void *data, const struct js *event)
{
	struct instance *i = data;
	struct js *m = js_obj();

	js_add_str(m, "t", "event");
	js_add(m, "event", js_copy(event));
	member_say(i->member, m);
}

static void on_proxy_restart(void *data, const char *why)
{
	(void)data;
	(void)why; /* proxyctl says it */
}

/* Its standard error, for the log too; the log never holds it up. */
static void on_errors(void *data, const char *bytes, size_t len)
{
	struct instance *i = data;
	ssize_t n;

	on_output(data, bytes, len);
	if (i->log < 0)
		return;
	if (i->log_lost) {
		char text[80];

		(void)snprintf(text, sizeof text, "\n[sbxsv] %" PRIu64 " bytes were lost\n", i->log_lost);
		n = write(i->log, text, strlen(text));
		i->log_lost = n > 0 ? 0 : i->log_lost;
	}
	n = i->log_lost ? -1 : write(i->log, bytes, len);
	i->log_lost += n < 0 ? len : len - (size_t)n;
}

/* --- its beginning --- */

static int on_listening(void *data, const struct launch_audit *fds, struct err **e)
{
	struct instance *i = data;

	return refusals_listen(&i->refusals, i->loop, i->plan, i->unit, fds, e);
}

static void on_done(void *data, struct launch *l, struct launch_done *done, const struct err *error)
{
	struct instance *i = data;
	struct js *m;

	if (error) {
		i->code = cli_fail(CLI_NO_JAIL, "%s", err_msg(error));
		return;
	}
	for (size_t k = 0; k < done->isolation.missing.n; k++)
		(void)cli_fail(0, "not in force: %s", done->isolation.missing.v[k]);
	run_net_attach(&i->net, done);
	m = js_obj();
	js_add_int(m, "pid", launch_pid(l));
	js_add(m, "isolation", isolation_js(&done->isolation));
	member_started(i->member, m);
}

static void on_signal(struct loop_signal *w)
{
	struct instance *i = w->data;

	if (i->launch)
		(void)pidfd_signal(launch_pidfd(i->launch), w->signum);
	else if (w->signum != SIGCONT)
		give_up(i, 128 + w->signum);
}

static int make_plan(struct instance *i)
{
	struct unit_problems problems = {0};
	CLEANUP_FREE char *text = NULL;

	i->plan = subject_plan_with(i->cli, i->unit, &i->scan, run_net_reaches_out(&i->net), &problems);
	if (!i->plan)
		text = unit_problems_text(&problems);
	unit_problems_clear(&problems);
	return i->plan ? 0 : cli_fail(CLI_NO_JAIL, "%s", text);
}

static int launch(struct instance *i, struct err **e)
{
	CLEANUP_FREE char *program = program_find("sbxsv-init", SBXSV_LIBEXECDIR);
	CLEANUP_FD int init = open(program, O_PATH | O_CLOEXEC), self = pidfd_open_pid(getpid());
	const struct backend *b = backend_for(i->unit, e);
	struct launch_io io = {
		.init_fd = init, .supervisor_pidfd = self, .new_session = true, .listening = on_listening};
	int *const to[] = {&io.stdin_fd, &io.stdout_fd, &io.stderr_fd};

	if (!b)
		return -1;
	if (init < 0)
		return err_sys(e, errno, "sbxsv-init is missing: %s", program);
	if (!i->plan->nested_sandbox && i->plan->netns)
		io.audit = audit_from(i->unit->audit_violations);
	for (int fd = 0; fd < 3; fd++)
		if (relay_init_copied(&i->relay[fd], fd, to[fd], e) < 0)
			return -1;
	if (i->plan->netns) {
		io.inside_net = run_net_inside;
		io.inside_net_data = &i->net.plan;
	}
	i->launch = b->launch(i->loop, i->plan, &io, on_done, i, e);
	if (!i->launch)
		return -1;
	i->relay[0].on_eof = on_eof;
	i->relay[0].on_bytes = on_output;
	i->relay[1].on_bytes = on_output;
	i->relay[2].on_bytes = on_errors;
	for (int fd = 0; fd < 3; fd++) {
		i->relay[fd].tap_data = i;
		relay_start(&i->relay[fd], i->loop, maybe_over, i);
	}
	loop_io_init(i->loop, &i->dead, launch_pidfd(i->launch), LOOP_READ, on_dead, i);
	return 0;
}

/* The rules are known. */
static void begin(struct instance *i)
{
	CLEANUP_ERR struct err *e = NULL;
	int code;

	i->begun = true;
	loop_timer_stop(&i->answer);
	code = make_plan(i);
	if (!code && (run_net_start(&i->net, i->loop, &i->conf, &i->scan, &i->proxy_hooks, &e) < 0 ||
		      launch(i, &e) < 0))
		code = cli_fail(CLI_NO_JAIL, "%s", err_msg(e));
	if (code)
		give_up(i, code);
}

/* --- the supervisor --- */

static void apply(struct instance *i)
{
	CLEANUP_ERR struct err *e = NULL;

	if (run_net_apply(&i->net, &e) < 0)
		(void)cli_fail(0, "the new rules are not in force: %s", err_msg(e));
	else if (!i->net.plan.egress && run_net_reaches_out(&i->net))
		(void)cli_fail(0, "the new rules open the network, which this instance was started without: "
				  "start it again");
}

static void on_rules(void *data, const struct js *rules, int *log)
{
	struct instance *i = data;

	run_net_take(&i->net, rules);
	if (*log >= 0) {
		fd_close_many(&i->log, 1);
		i->log = TAKE_FD(*log);
		(void)fd_set_nonblock(i->log, true);
	}
	if (i->begun)
		apply(i);
	else
		begin(i);
}

static void on_unit(void *data)
{
	struct instance *i = data;
	struct unit_problems problems = {0};
	struct unit *u = unit_load(&i->cli->dirs, i->unit->name, &problems);

	unit_problems_clear(&problems);
	if (!u) /* broken, or gone: what runs goes on as it is */
		return;
	unit_free(i->rules);
	i->rules = u;
	i->net.unit = u;
	if (i->begun)
		apply(i);
}

static void on_stop(void *data)
{
	struct instance *i = data;

	if (!i->launch)
		give_up(i, cli_fail(CLI_FAILED, "%s was stopped", i->unit->name));
	else if (i->ending < ASKED)
		next_step(i);
}

static void on_refused(void *data, const char *text)
{
	struct instance *i = data;
	CLEANUP_FREE char *safe = cli_safe(text);

	if (!i->begun)
		give_up(i, cli_fail(CLI_FAILED, "the supervisor: %s", safe));
}

static void on_alone(void *data)
{
	struct instance *i = data;

	fd_close_many(&i->log, 1);
	run_net_keep_denials(&i->net);
	if (i->begun)
		apply(i);
	else
		begin(i);
}

static void on_no_answer(struct loop_timer *w)
{
	give_up(w->data,
		cli_fail(CLI_NO_JAIL, "the supervisor does not answer, so that its rules are not known"));
}

/* --- all --- */

static void watch(struct instance *i)
{
	const struct member_hooks hooks = {.rules = on_rules,
					   .unit = on_unit,
					   .stop = on_stop,
					   .refused = on_refused,
					   .alone = on_alone,
					   .data = i};

	loop_timer_init(i->loop, &i->answer, on_no_answer, i);
	loop_timer_init(i->loop, &i->patience, on_patience, i);
	loop_timer_init(i->loop, &i->late, on_late, i);
	loop_timer_start(&i->answer, ANSWER_MS);
	for (size_t k = 0; k < ELEMENTS(passed_on); k++)
		loop_signal_init(i->loop, &i->signals[k], passed_on[k], on_signal, i);
	i->member = member_create(i->loop, i->cli->dirs.runtime, i->unit->name, &hooks);
}

static void finish(struct instance *i)
{
	for (int fd = 0; fd < 3; fd++)
		relay_finish(&i->relay[fd]);
	for (size_t k = 0; k < ELEMENTS(passed_on); k++)
		loop_signal_stop(&i->signals[k]);
	if (i->launch && !i->reaped)
		(void)pidfd_signal(launch_pidfd(i->launch), SIGKILL);
	launch_destroy(i->launch);
	refusals_finish(&i->refusals);
	run_net_finish(&i->net);
	member_destroy(i->member);
	fd_close_many(&i->log, 1);
	loop_destroy(i->loop);
}

static int serve(struct instance *i)
{
	i->loop = loop_create(0);
	if (!i->loop)
		return cli_fail(CLI_NO_JAIL, "cannot make an event loop: %s", strerror(errno));
	refusals_init(&i->refusals);
	i->refusals.app = true;
	i->refusals.on_event = tell_event;
	i->refusals.event_data = i;
	i->proxy_hooks =
		(struct proxyctl_hooks){.event = tell_event, .restarted = on_proxy_restart, .data = i};
	i->net.unit = i->unit;
	i->log = -1;
	for (int k = 0; k < 3; k++)
		i->relay[k].from = i->relay[k].to = i->relay[k].jail_fd = i->relay[k].hup = -1;
	(void)signal(SIGPIPE, SIG_IGN);
	watch(i);
	loop_run(i->loop);
	finish(i);
	return i->code;
}

/* The words of the command line come after those of the unit. */
static void add_words(struct unit *u, const struct cli_args *a)
{
	if (u->shell && a->n_rest > 1) {
		strv_add(&u->exec, "/bin/sh");
		strv_add(&u->exec, "-c");
		strv_add(&u->exec, u->shell);
		strv_add(&u->exec, u->name); /* $0 */
		free(TAKE_PTR(u->shell));
	}
	for (int k = 1; k < a->n_rest; k++)
		strv_add(&u->exec, a->rest[k]);
}

static int run(struct cli *c, const struct cli_args *a)
{
	struct instance i = {.cli = c};
	struct unit_problems problems = {0};
	CLEANUP_FREE char *text = NULL;
	int code = CLI_OK;

	if (!a->n_rest)
		return cli_usage(&cmd_run, "run: name the app");
	i.unit = subject_load(c, a->rest[0], &code);
	if (!i.unit)
		return code == CLI_NO_APP ? code : CLI_NO_JAIL;
	text = unit_not_startable(i.unit);
	if (i.unit->mode != UNIT_STDIO)
		code = cli_fail(CLI_FAILED, "%s has Mode=%s: the supervisor runs it: sbxsv start %s",
				i.unit->name, unit_mode_name(i.unit->mode), i.unit->name);
	else if (text)
		code = cli_fail(CLI_NO_JAIL, "%s", text);
	else if (conf_load(&c->dirs, &i.conf, &problems) < 0 || unit_scan_dir(&c->dirs, &i.scan, NULL) < 0)
		code = cli_fail(CLI_NO_JAIL, "%s and sbxsv.conf cannot be read: sbxsv check", c->dirs.apps);
	if (!code) {
		add_words(i.unit, a);
		code = serve(&i);
	}
	unit_problems_clear(&problems);
	unit_scan_finish(&i.scan);
	conf_finish(&i.conf);
	plan_free(i.plan);
	unit_free(i.rules);
	unit_free(i.unit);
	return code;
}

const struct command cmd_run = {
	.name = "run",
	.usage = "run APP [ARG...]",
	.help = "one instance of an app with Mode=stdio on standard input and output; its exit status is "
		"passed on",
	.flags = CLI_STOP_AT_OPERAND,
	.fn = run,
};
