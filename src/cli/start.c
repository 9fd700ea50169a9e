/* start, stop, restart: one request for each app, the worst exit code wins. */
#include "cli/remote.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { OPT_ALL = CLI_LONG, OPT_NO_WAIT, OPT_PREPARE };

struct how {
	const char *verb;
	bool wait, prepare;
};

/* One block an app: lines that go on with it are indented. */
static void complain(const char *text)
{
	CLEANUP_FREE char *copy = xstrdup(text);

	for (char *block = copy, *end; block && *block; block = end) {
		end = block;
		do
			end = strchr(end, '\n');
		while (end && *++end == ' ');
		if (end)
			end[-1] = 0;
		(void)cli_fail(CLI_FAILED, "%s", block);
	}
}

static int one(struct ctl_client *cl, const struct how *h, const char *app)
{
	CLEANUP_FREE char *path = str_eq(app, "*") ? xasprintf("/v1/apps/*/%s", h->verb) : NULL,
			  *suffix = xasprintf("/%s", h->verb);
	CLEANUP_JS struct js *body = js_obj(), *reply = NULL;
	const char *text;
	int64_t result;
	int code;

	if (!path)
		path = remote_app_path(app, suffix);
	if (!path)
		return CLI_NO_APP;
	js_add_bool(body, "wait", h->wait);
	if (h->prepare)
		js_add_bool(body, "prepare", true);
	code = remote_call(cl, "POST", path, body, &reply);
	if (code)
		return code;
	text = js_str(reply, "message");
	result = js_int_or(reply, "code", CLI_FAILED);
	if (result) {
		complain(text && *text ? text : "failed");
		return result > 0 && result <= CLI_REFUSED ? (int)result : CLI_FAILED;
	}
	if (text && *text)
		remote_print_lines("", text);
	return CLI_OK;
}

/* Several apps: each request waits for its app, so each has a process and a connection of its own. */
#define AT_ONCE_MAX 16

static int child(struct cli *c, const struct command *cmd, const struct how *h, const char *app)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL;
	int code = str_eq(app, "*") ? cli_usage(cmd, "%s: for all apps, give --all", h->verb)
				    : remote_open(c, &cl);

	return code ? code : one(cl, h, app);
}

static void reap(int *worst)
{
	int status = 0, code;

	while (waitpid(-1, &status, 0) < 0 && errno == EINTR)
		;
	code = WIFEXITED(status) ? WEXITSTATUS(status) : CLI_FAILED;
	if (code > *worst)
		*worst = code;
}

static int at_once(struct cli *c, const struct command *cmd, const struct how *h, const struct cli_args *a)
{
	int worst = CLI_OK, running = 0;

	for (int i = 0; i < a->n_rest; i++) {
		pid_t pid;

		if (running == AT_ONCE_MAX) {
			reap(&worst);
			running--;
		}
		(void)fflush(NULL);
		pid = fork();
		if (pid == 0) {
			int code = child(c, cmd, h, a->rest[i]);

			(void)fflush(stdout);
			_exit(code);
		}
		if (pid < 0) { /* one after another, then */
			int code = child(c, cmd, h, a->rest[i]);

			worst = code > worst ? code : worst;
			continue;
		}
		running++;
	}
	while (running--)
		reap(&worst);
	return worst;
}

static int for_apps(struct cli *c, const struct command *cmd, const char *verb, const struct cli_args *a)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL;
	const struct how h = {verb, !cli_has(a, OPT_NO_WAIT), cli_has(a, OPT_PREPARE)};
	bool all = cli_has(a, OPT_ALL);
	int code, worst = CLI_OK;

	if (all == (a->n_rest > 0))
		return cli_usage(cmd, "%s: name the apps, or give --all", verb);
	code = remote_open(c, &cl);
	if (code)
		return code;
	if (all)
		return one(cl, &h, "*");
	if (a->n_rest > 1 && h.wait)
		return at_once(c, cmd, &h, a);
	for (int i = 0; i < a->n_rest; i++) {
		/* "*" typed by a person is no name: --all is said in words */
		code = str_eq(a->rest[i], "*") ? cli_usage(cmd, "%s: for all apps, give --all", verb)
					       : one(cl, &h, a->rest[i]);
		if (code > worst)
			worst = code;
	}
	return worst;
}

static int start(struct cli *c, const struct cli_args *a)
{
	return for_apps(c, &cmd_start, "start", a);
}

static int stop(struct cli *c, const struct cli_args *a)
{
	return for_apps(c, &cmd_stop, "stop", a);
}

static int restart(struct cli *c, const struct cli_args *a)
{
	return for_apps(c, &cmd_restart, "restart", a);
}

static const struct cli_option options[] = {
	{OPT_ALL, "all", NULL, "all apps"},
	{OPT_NO_WAIT, "no-wait", NULL, "do not wait for the result"},
	{0, NULL, NULL, NULL},
};
static const struct cli_option start_options[] = {
	{OPT_ALL, "all", NULL, "all apps"},
	{OPT_NO_WAIT, "no-wait", NULL, "do not wait for the result"},
	{OPT_PREPARE, "prepare", NULL, "run [Prepare] again, whatever its files are"},
	{0, NULL, NULL, NULL},
};

const struct command cmd_start = {
	.name = "start",
	.usage = "start APP...|--all [--no-wait] [--prepare]",
	.help = "start apps and wait until they are ready; resets a start limit",
	.options = start_options,
	.fn = start,
};
const struct command cmd_stop = {
	.name = "stop",
	.usage = "stop APP...|--all [--no-wait]",
	.help = "stop apps and wait until all of their processes are gone",
	.options = options,
	.fn = stop,
};
const struct command cmd_restart = {
	.name = "restart",
	.usage = "restart APP...|--all [--no-wait] [--prepare]",
	.help = "stop and start; connections to the app's ports wait meanwhile",
	.options = start_options,
	.fn = restart,
};
