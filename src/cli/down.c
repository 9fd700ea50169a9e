/* Shuts everything down and returns when the supervisor's process is gone: it is the last one to go. */
#include "cli/remote.h"
#include "base/fd.h"
#include "base/parse.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

/* The supervisor keeps its budget by itself; this much later something is wrong and the user is told. */
#define LATE_MS 30000

static int wait_gone(int pidfd, int64_t pid, int64_t grace_ms)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};
	int64_t limit = LATE_MS + (grace_ms > 0 ? grace_ms : 0);
	int r;

	do
		r = poll(&p, 1, (int)limit);
	while (r < 0 && errno == EINTR);
	if (r != 1)
		return cli_fail(CLI_FAILED,
				"the supervisor (pid %" PRId64 ") is still there after %" PRId64
				" s; see sbxsv logs, and "
				"end it with: kill -KILL %" PRId64 " (its apps end with it)",
				pid, limit / 1000, pid);
	return CLI_OK;
}

static int run(struct cli *c, const struct cli_args *a)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL;
	CLEANUP_JS struct js *body = js_obj(), *reply = NULL;
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FD int pidfd = -1;
	const char *grace = cli_value(a, 'g');
	int64_t grace_ms = -1, pid;
	int code;

	if (a->n_rest)
		return cli_usage(&cmd_down, "down takes no arguments; for one app there is: sbxsv stop APP");
	if (grace && (parse_duration_ms(grace, &grace_ms) || grace_ms > 3600 * 1000))
		return cli_usage(&cmd_down, "down --grace: a time such as 10s is needed, at most 1h");
	cl = ctl_client_open(&c->dirs, &e);
	if (!cl && remote_open_code(e) == CLI_NO_SUPERVISOR) {
		puts("the supervisor is not running");
		return CLI_OK;
	}
	if (!cl)
		return cli_fail(remote_open_code(e), "%s", err_msg(e));
	pid = js_int_or(ctl_client_version(cl), "pid", 0);
	/* before the request: the process that answers it is then the one that the pidfd means */
	pidfd = pid > 0 ? pidfd_open_pid((pid_t)pid) : -1;
	if (pidfd < 0 && errno != ESRCH)
		return cli_fail(CLI_FAILED, "the supervisor, pid %" PRId64 ": %s", pid, strerror(errno));
	if (grace)
		js_add_int(body, "grace_ms", grace_ms);
	code = pidfd < 0 ? CLI_OK : remote_call(cl, "POST", "/v1/shutdown", body, &reply);
	/* it may have ended between the two requests, for another's sake */
	if (code && !pidfd_is_dead(pidfd))
		return code;
	code = pidfd < 0 ? CLI_OK : wait_gone(pidfd, pid, grace_ms);
	if (code == CLI_OK)
		puts("the supervisor and all apps have ended");
	return code;
}

static const struct cli_option options[] = {
	{'g', "grace", "T", "time for the apps to end by themselves (ShutdownBudget= of sbxsv.conf, 300ms)"},
	{0, NULL, NULL, NULL},
};

const struct command cmd_down = {
	.name = "down",
	.usage = "down [--grace T]",
	.help = "stop all apps and the supervisor, and wait until everything is gone",
	.options = options,
	.fn = run,
};
