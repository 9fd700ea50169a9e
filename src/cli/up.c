/* Starts sbxsvd if it does not run and returns when it answers. What goes wrong is sbxsvd's to say: its
 * stderr is ours. */
#include "cli/remote.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/program.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { OPT_FOREGROUND = CLI_LONG, OPT_WATCH };

/* A supervisor that ends needs its shutdown budget, or the --grace it was given; an hour is the most the API
 * takes. */
#define OLD_GONE_MS (3600 * 1000 + 10000)
/* sbxsvd says itself that it answers, so this only covers another `up` that was faster by a moment. */
#define RIVAL_MS      10000
#define RIVAL_POLL_MS 20

static char *find_sbxsvd(void)
{
	const char *given = getenv("SBXSV_SBXSVD");

	return given && *given ? xstrdup(given) : program_find("sbxsvd", SBXSV_SBINDIR);
}

static void fill_argv(const struct cli *c, const struct cli_args *a, const char *program, struct strv *argv)
{
	strv_add(argv, program);
	/* --config and the like travel in the environment, see main.c */
	if (c->instance) {
		strv_add(argv, "--instance");
		strv_add(argv, c->instance);
	}
	if (cli_has(a, OPT_WATCH)) {
		strv_add(argv, "--watch-pid");
		strv_add(argv, cli_value(a, OPT_WATCH));
	}
	if (cli_has(a, OPT_FOREGROUND))
		strv_add(argv, "--foreground");
}

static int cannot_run(const char *program, int errnum)
{
	return cli_fail(CLI_FAILED, "the supervisor cannot be started: %s: %s%s", program, strerror(errnum),
			errnum == ENOENT ? " (SBXSV_SBXSVD may name another place)" : "");
}

/* Runs it to the end of its start: the process we start is the parent of the daemon. */
static int start(const struct strv *argv)
{
	int status = 0, p[2], errnum = 0;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC))
		return cli_fail(CLI_FAILED, "pipe: %s", strerror(errno));
	(void)fflush(NULL);
	pid = fork();
	if (pid == 0) {
		(void)execv(argv->v[0], argv->v);
		errnum = errno;
		(void)!write(p[1], &errnum, sizeof errnum);
		_exit(127);
	}
	(void)close(p[1]);
	if (pid > 0 && read(p[0], &errnum, sizeof errnum) != sizeof errnum)
		errnum = 0; /* the exec closed the pipe */
	(void)close(p[0]);
	if (pid < 0)
		return cli_fail(CLI_FAILED, "fork: %s", strerror(errno));
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (errnum)
		return cannot_run(argv->v[0], errnum);
	if (WIFSIGNALED(status))
		return cli_fail(CLI_FAILED, "sbxsvd was ended by %s while it started",
				signal_name(WTERMSIG(status)));
	return WEXITSTATUS(status) ? CLI_FAILED : CLI_OK;
}

static int say_running(const struct cli *c, struct ctl_client *cl, const char *how)
{
	const struct js *v = ctl_client_version(cl);

	if (c->json)
		remote_print_json(v);
	else
		printf("sbxsvd %s, pid %" PRId64 "\n", how, js_int_or(v, "pid", 0));
	return CLI_OK;
}

/* One that is shutting down is waited for: the caller wants a supervisor that stays. */
static int wait_old(struct ctl_client *cl)
{
	int64_t pid = js_int_or(ctl_client_version(cl), "pid", 0);
	struct pollfd p = {.fd = pid > 0 ? pidfd_open_pid((pid_t)pid) : -1, .events = POLLIN};
	int r;

	if (p.fd < 0)
		return 0; /* gone */
	fprintf(stderr, "sbxsv: waiting for the supervisor that is shutting down (pid %" PRId64 ")\n", pid);
	do
		r = poll(&p, 1, OLD_GONE_MS);
	while (r < 0 && errno == EINTR);
	(void)close(p.fd);
	return r == 1 ? 0 : -1;
}

/* Who holds the instance lock, as the lock file says; 0 when nobody that lives. */
static pid_t lock_holder(const struct cli *c)
{
	CLEANUP_FREE char *path = xasprintf("%s/sbxsvd.lock", c->dirs.runtime);
	CLEANUP_FD int pidfd = -1;
	char text[32];
	uint64_t pid;

	if (file_read_proc(path, text, sizeof text) < 0)
		return 0;
	text[strcspn(text, "\n")] = 0;
	if (parse_u64(text, INT_MAX, &pid) || !pid)
		return 0;
	pidfd = pidfd_open_pid((pid_t)pid);
	return pidfd >= 0 && !pidfd_is_dead(pidfd) ? (pid_t)pid : 0;
}

/* Somebody holds the lock: either it is about to answer (another `up` was faster), or it is about to go (its
 * socket goes first, its process last). Returns its connection, or NULL when it is gone or nothing happens in
 * time. */
static struct ctl_client *await_holder(struct cli *c)
{
	int64_t until = clk_mono_ms() + RIVAL_MS;
	struct ctl_client *cl = NULL;

	while (lock_holder(c) && !(cl = ctl_client_open(&c->dirs, NULL)) && clk_mono_ms() < until)
		(void)poll(NULL, 0, RIVAL_POLL_MS);
	return cl;
}

static int start_and_check(struct cli *c, const struct strv *argv)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = await_holder(c);
	CLEANUP_JS struct js *status = NULL;
	int code;

	if (cl)
		return say_running(c, cl, "is running already");
	code = start(argv);
	if (code)
		cl = await_holder(c); /* one that began in this moment; our sbxsvd has said that it lost */
	if (cl)
		return say_running(c, cl, "is running already");
	if (code)
		return code;
	code = remote_open(c, &cl);
	if (code)
		return code;
	code = remote_call(cl, "GET", "/v1/status", NULL, &status);
	if (code)
		return code;
	remote_complain(js_get(js_get(status, "supervisor"), "problems")); /* a default is never silent */
	return say_running(c, cl, "started");
}

static int run(struct cli *c, const struct cli_args *a)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL;
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FREE char *program = find_sbxsvd();
	CLEANUP_STRV struct strv argv = {0};
	const char *watch = cli_value(a, OPT_WATCH);
	uint64_t pid;

	if (a->n_rest)
		return cli_usage(&cmd_up, "up takes no arguments; it starts all enabled apps");
	if (watch && (parse_u64(watch, INT_MAX, &pid) || pid == 0))
		return cli_usage(&cmd_up, "up --watch-pid: a process id is needed");
	cl = ctl_client_open(&c->dirs, &e);
	if (!cl && remote_open_code(e) != CLI_NO_SUPERVISOR)
		return cli_fail(remote_open_code(e), "%s", err_msg(e));
	if (cl && !js_bool_or(ctl_client_version(cl), "shutting_down", false)) {
		if (watch)
			(void)cli_fail(CLI_OK,
				       "the supervisor runs already; --watch-pid has no effect on it");
		return say_running(c, cl, "is running already");
	}
	if (cl && wait_old(cl))
		return cli_fail(CLI_FAILED, "the old supervisor does not end");
	fill_argv(c, a, program, &argv);
	if (cli_has(a, OPT_FOREGROUND)) {
		(void)execv(program, argv.v);
		return cannot_run(program, errno);
	}
	return start_and_check(c, &argv);
}

static const struct cli_option options[] = {
	{OPT_FOREGROUND, "foreground", NULL, "become the supervisor; its messages go to stderr"},
	{OPT_WATCH, "watch-pid", "PID", "shut everything down when process PID ends"},
	{0, NULL, NULL, NULL},
};

const struct command cmd_up = {
	.name = "up",
	.usage = "up [--foreground] [--watch-pid PID] [--json]",
	.help = "start the supervisor, unless it runs, and wait until it answers",
	.flags = CLI_JSON,
	.options = options,
	.fn = run,
};
