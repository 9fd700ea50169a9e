/*
 * One command in a jail, without a daemon.
 *
 * The command line is turned into a unit, the unit into a plan by the same code that serves apps, and the
 * plan into a process by the same backend. What a daemon would do for an app is done here for the one
 * command: its standard streams are relayed (relay.h), signals are passed on, and when it may use the network
 * an own sbxsv-proxy judges what it asks for.
 */
#include "base/fd.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/program.h"
#include "base/wire.h"
#include "cli/cli.h"
#include "cli/exec_unit.h"
#include "cli/refusals.h"
#include "cli/relay.h"
#include "cli/run_net.h"
#include "net/net.h"
#include "net/proxyctl.h"
#include "sandbox/backend.h"
#include "sandbox/identity.h"
#include "sandbox/rules.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { LATE_EVENTS_MS = 20 }; /* for refusals that are still in the proxy's socket when the command ends */

static const int passed_on[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT, SIGINT, SIGQUIT};

struct run {
	struct loop *loop;
	const struct exec_unit *x;
	struct plan *plan;
	struct net_plan net;
	uint16_t ports[NET_PORTS_MAX];
	struct proxyctl *proxy;
	struct launch *launch;
	enum audit audit;
	struct refusals refusals;
	int report; /* --report; -1: none */
	struct relay relay[3];
	struct loop_signal signals[ELEMENTS(passed_on)];
	struct loop_io dead;
	struct loop_timer late;
	bool terminal, reaped, judged;
	int code;
};

struct wish { /* of the command line, beside the unit */
	bool quiet;
	const char *audit;
	int report;
};

/* --- the end --- */

static void tell_refusals(struct run *r)
{
	CLEANUP_JS struct js *hosts = r->proxy ? proxyctl_denied(r->proxy, r->plan->app) : NULL;

	refusals_add_hosts(&r->refusals, r->plan->app, hosts);
	if (r->code != 0)
		refusals_print(&r->refusals);
	if (r->report >= 0 && refusals_report(&r->refusals, r->report, r->code) < 0)
		(void)cli_fail(0, "--report: %s", strerror(errno));
}

static void on_late(struct loop_timer *w)
{
	struct run *r = w->data;

	tell_refusals(r);
	loop_break(r->loop);
}

/* The process is gone, what it wrote is written, and what it was refused is known. */
static void maybe_over(void *data)
{
	struct run *r = data;
	bool wanted = r->code != 0 || r->report >= 0;

	if (!r->reaped || !r->judged || r->relay[1].active || r->relay[2].active ||
	    loop_timer_active(&r->late))
		return;
	loop_timer_start(&r->late, r->proxy && wanted ? LATE_EVENTS_MS : 0);
}

static void on_judged(void *data)
{
	struct run *r = data;

	r->judged = true;
	maybe_over(r);
}

static void on_dead(struct loop_io *w, unsigned events)
{
	struct run *r = w->data;
	int status = 0, app;

	(void)events;
	if (pidfd_reap(w->fd, &status) == 0)
		return;
	loop_io_stop(w);
	launch_settle(r->launch);
	r->reaped = true;
	if (launch_exit_status(r->launch, &app) == 0)
		status = app;
	if (r->code == 0)
		r->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	r->judged = (r->code == 0 && r->report < 0) || refusals_drain(&r->refusals, on_judged, r);
	maybe_over(r);
}

/* --- the start --- */

static void give_to_proxy(struct run *r, struct launch_done *done)
{
	struct net_inside_result made;
	struct proxyctl_jail jail;

	net_inside_unpack(done->sockets.facts, &made);
	proxyctl_jail_fill(&jail, &done->userns_fd, &done->netns_fd, &made, done->sockets.fds);
	done->sockets.n = 0;
	if (made.capture == NET_CAPTURE_PORTS) {
		CLEANUP_FREE char *text = net_capture_text(&made);

		(void)cli_fail(0, "transparent: %s; what else the command connects to is refused", text);
	}
	proxyctl_set_jail(r->proxy, r->plan->app, &jail);
}

static int on_listening(void *data, const struct launch_audit *fds, struct err **e)
{
	struct run *r = data;

	return refusals_listen(&r->refusals, r->loop, r->plan, r->x->unit, fds, e);
}

static void on_done(void *data, struct launch *l, struct launch_done *done, const struct err *error)
{
	struct run *r = data;

	(void)l;
	if (error) {
		r->code = cli_fail(CLI_NO_JAIL, "%s", err_msg(error));
		return;
	}
	for (size_t i = 0; i < done->isolation.missing.n; i++)
		(void)cli_fail(0, "not in force: %s", done->isolation.missing.v[i]);
	if (r->proxy && done->netns_fd >= 0)
		give_to_proxy(r, done);
}

static void on_signal(struct loop_signal *w)
{
	struct run *r = w->data;

	(void)pidfd_signal(launch_pidfd(r->launch), w->signum);
}

/* On a terminal the command is in our process group and has the keys ^C and ^\ itself. */
static void watch_signals(struct run *r)
{
	for (size_t i = 0; i < ELEMENTS(passed_on); i++) {
		bool key = passed_on[i] == SIGINT || passed_on[i] == SIGQUIT;

		if (key && r->terminal)
			(void)signal(passed_on[i], SIG_IGN);
		else
			loop_signal_init(r->loop, &r->signals[i], passed_on[i], on_signal, r);
	}
}

static void count_left_out(const struct run *r)
{
	extern char **environ;
	size_t n = 0;

	for (char **v = environ; *v; v++) {
		size_t len = strcspn(*v, "="), i = 0;

		while (i < r->plan->env.n &&
		       (strncmp(r->plan->env.v[i], *v, len) || r->plan->env.v[i][len] != '='))
			i++;
		n += i == r->plan->env.n;
	}
	if (n)
		(void)cli_fail(0,
			       "%zu environment variable%s left out (--pass-env NAME passes one, --quiet "
			       "says nothing)",
			       n, n == 1 ? " was" : "s were");
}

/* Refusals are asked for at the end; nothing is shown while the command has the terminal. */
static void on_proxy_event(void *data, const struct js *event)
{
	(void)data;
	(void)event;
}

static void on_proxy_restart(void *data, const char *why)
{
	(void)data;
	(void)why; /* proxyctl says it */
}

static int start_proxy(struct run *r, struct err **e)
{
	static const struct proxyctl_hooks hooks = {
		.event = on_proxy_event, .restarted = on_proxy_restart, .where = WHERE_EXEC};
	CLEANUP_FREE char *program = program_find("sbxsv-proxy", SBXSV_SBINDIR);
	struct policy *policy;
	uid_t uid;
	gid_t gid;
	int code;

	r->net = (struct net_plan){.egress = r->x->unit->egress != UNIT_EGRESS_OFF,
				   .ports_only = net_ports_only(),
				   .ports = r->ports,
				   .loopback = r->x->unit->loopback,
				   .n_loopback = r->x->unit->n_loopback};
	if (!r->plan->netns || (!r->net.egress && !r->net.n_loopback))
		return 0;
	if (identity_of_proxy(&r->x->conf, &uid, &gid, e) < 0)
		return -1;
	policy = rules_of_unit(r->x->unit, e);
	if (!policy)
		return -1;
	r->net.n_ports = policy_ports(policy, r->ports, NET_PORTS_MAX, &r->net.more_ports);
	r->proxy = proxyctl_create(r->loop, program, uid, gid, &hooks, e);
	code = r->proxy ? proxyctl_set_policy(r->proxy, r->plan->app, policy, e) : -1;
	policy_destroy(policy);
	return code;
}

static int open_streams(struct run *r, struct launch_io *io, struct err **e)
{
	int *const to[] = {&io->stdin_fd, &io->stdout_fd, &io->stderr_fd};
	struct stat out, err;

	for (int fd = 0; fd < 3; fd++) {
		/* one file for both keeps its order only through one pipe */
		if (fd == 2 && r->relay[1].active && fstat(1, &out) == 0 && fstat(2, &err) == 0 &&
		    file_same(&out, &err))
			io->stderr_fd = io->stdout_fd;
		else if (relay_init(&r->relay[fd], fd, to[fd], e) < 0)
			return -1;
	}
	return 0;
}

static int launch(struct run *r, struct err **e)
{
	CLEANUP_FREE char *program = program_find("sbxsv-init", SBXSV_LIBEXECDIR);
	CLEANUP_FD int init = open(program, O_PATH | O_CLOEXEC), self = pidfd_open_pid(getpid());
	const struct backend *b = backend_for(r->x->unit, e);
	struct launch_io io = {
		.init_fd = init,
		.supervisor_pidfd = self,
		.new_session = !r->terminal,
		.audit = r->audit,
		.listening = on_listening,
		/* nobody waits for its sockets, no layer can be missing, and nobody looks at its calls */
		.quiet = !r->proxy && r->plan->enforce == UNIT_ENFORCE_REQUIRED && !r->audit};

	if (!b)
		return -1;
	if (init < 0)
		return err_sys(e, errno, "sbxsv-init is missing: %s", program);
	if (open_streams(r, &io, e) < 0)
		return -1;
	if (r->plan->netns) {
		io.inside_net = run_net_inside;
		io.inside_net_data = &r->net;
	}
	r->launch = b->launch(r->loop, r->plan, &io, on_done, r, e);
	if (!r->launch)
		return -1;
	for (int fd = 0; fd < 3; fd++)
		relay_start(&r->relay[fd], r->loop, maybe_over, r);
	loop_io_init(r->loop, &r->dead, launch_pidfd(r->launch), LOOP_READ, on_dead, r);
	loop_timer_init(r->loop, &r->late, on_late, r);
	watch_signals(r);
	return 0;
}

static void finish(struct run *r)
{
	for (int fd = 0; fd < 3; fd++)
		relay_finish(&r->relay[fd]);
	for (size_t i = 0; i < ELEMENTS(passed_on); i++)
		if (r->signals[i].loop)
			loop_signal_stop(&r->signals[i]);
	launch_destroy(r->launch);
	refusals_finish(&r->refusals);
	if (r->proxy)
		proxyctl_destroy(r->proxy);
	loop_destroy(r->loop);
}

/* Which calls are looked at. With NestedSandbox= the paths of a jail inside the jail would be taken for those of this one. */
static enum audit audit_of(const struct plan *p, const char *wish)
{
	return p->nested_sandbox || !p->netns ? AUDIT_OFF : audit_from(wish ? wish : "all");
}

static int run_plan(const struct exec_unit *x, struct plan *plan, const struct wish *wish)
{
	CLEANUP_ERR struct err *e = NULL;
	struct run r = {.x = x,
			.plan = plan,
			.loop = loop_create(0),
			.audit = audit_of(plan, wish->audit),
			.report = wish->report};
	bool quiet = wish->quiet;

	refusals_init(&r.refusals);
	for (int i = 0; i < 3; i++)
		r.relay[i].from = r.relay[i].to = r.relay[i].jail_fd = r.relay[i].hup = -1;
	r.terminal = isatty(0) == 1 || isatty(1) == 1 || isatty(2) == 1;
	(void)signal(SIGPIPE, SIG_IGN);
	if (!quiet)
		count_left_out(&r);
	if (!quiet && x->cwd_empty)
		(void)cli_fail(0,
			       "the working directory %s is never granted as a whole: the command sees "
			       "nothing in it but what --read PATH and --write PATH name",
			       x->unit->working_directory);
	if (!r.loop)
		r.code = cli_fail(CLI_NO_JAIL, "cannot make an event loop: %s", strerror(errno));
	else if (start_proxy(&r, &e) < 0 || launch(&r, &e) < 0)
		r.code = cli_fail(CLI_NO_JAIL, "%s", err_msg(e));
	else
		loop_run(r.loop);
	finish(&r);
	return r.code;
}

static int open_report(const char *path, struct wish *w)
{
	w->report = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
	if (path && w->report < 0)
		return cli_fail(CLI_FAILED, "--report %s: %s", path, strerror(errno));
	return 0;
}

static int run(struct cli *c, const struct cli_args *a)
{
	CLEANUP(exec_unit_finish) struct exec_unit x = {0};
	CLEANUP_PLAN struct plan *plan = NULL;
	struct unit_problems problems = {0};
	CLEANUP_FREE char *text = NULL;
	struct wish wish = {.quiet = cli_has(a, EXEC_QUIET), .audit = cli_value(a, EXEC_AUDIT), .report = -1};
	int code;

	if (!a->n_rest)
		return cli_usage(&cmd_exec, "exec: name the command to run, after --");
	if (wish.audit && audit_from(wish.audit) == AUDIT_OFF && !str_eq(wish.audit, "off"))
		return cli_usage(&cmd_exec, "exec: --violations is one of: writes all off");
	if (exec_unit_init(&x, c, a, &problems) == 0)
		plan = exec_unit_plan(&x, c, &problems);
	if (!plan) {
		text = unit_problems_text(&problems);
		unit_problems_clear(&problems);
		return cli_fail(x.usage ? CLI_USAGE : CLI_NO_JAIL, "%s",
				text ? text : "the jail cannot be planned");
	}
	unit_problems_clear(&problems);
	if (open_report(cli_value(a, EXEC_REPORT), &wish))
		return CLI_NO_JAIL;
	code = run_plan(&x, plan, &wish);
	if (wish.report >= 0)
		(void)close(wish.report);
	return code;
}

static const struct cli_option options[] = {
	{EXEC_PROFILE, "profile", "NAME", "defaults of this profile (strict)"},
	{EXEC_READ_MODE, "read-mode", "MODE", "strict, allowlist or open: how much of the disk is readable"},
	{EXEC_READ, "read", "PATH", "may read it; again for more"},
	{EXEC_WRITE, "write", "PATH",
	 "may read and write it; the working directory is only readable without: --write ."},
	{EXEC_HIDE, "hide", "PATH", "may not see it"},
	{EXEC_ALLOW, "allow", "HOST", "may reach it: host, *.host, host:port; again for more"},
	{EXEC_DENY, "deny", "HOST", "may not reach it, whatever --allow says"},
	{EXEC_EGRESS, "egress", "MODE", "off (default), hosts (implied by --allow) or all"},
	{EXEC_LOOPBACK, "loopback", "PORT", "may reach this port of this machine's loopback"},
	{EXEC_ENV, "env", "NAME=VALUE", "set a variable; the environment is built, not inherited"},
	{EXEC_PASS_ENV, "pass-env", "NAME", "pass a variable of this environment"},
	{EXEC_USER, "user", "NAME", "as root: run as this user"},
	{EXEC_UNIX_SOCKET, "unix-socket", "PATH", "may connect to this socket"},
	{EXEC_AUDIT, "violations", "MODE",
	 "what it is refused, told when it fails: all (default), writes (not what it only reads), off"},
	{EXEC_REPORT, "report", "FILE", "write what it was refused into this file, as JSON"},
	{EXEC_QUIET, "quiet", NULL, "do not count the variables left out"},
	{EXEC_ALLOW_READ, "allow-read", "PATH", "the same as --read"},
	{EXEC_ALLOW_WRITE, "allow-write", "PATH", "the same as --write"},
	{EXEC_ALLOWLIST, "network-allowlist", "HOSTS", "the same as --allow, with commas between"},
	{0, NULL, NULL, NULL},
};

const struct command cmd_exec = {
	.name = "exec",
	.usage = "exec [OPTIONS] -- COMMAND [ARG...]",
	.help = "run one command in a jail; its exit status is passed on, 125: no jail",
	.flags = CLI_STOP_AT_OPERAND,
	.options = options,
	.fn = run,
};
