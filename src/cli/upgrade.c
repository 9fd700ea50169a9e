/*
 * Has the supervisor execute its program anew. It answers only when nothing came of that; else the connection ends with the
 * program that held it, and the new one says how often it was upgraded.
 */
#include "cli/remote.h"
#include "base/clock.h"
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define NEW_MS  30000 /* it has nothing to wait for: far more than it needs */
#define POLL_MS 20

/* The one that runs by now; NULL after a message. */
static struct ctl_client *await_new(struct cli *c, int64_t before, const struct err *broke)
{
	int64_t until = clk_mono_ms() + NEW_MS;

	for (;;) {
		CLEANUP_ERR struct err *e = NULL;
		CLEANUP_CTL_CLIENT struct ctl_client *cl = ctl_client_open(&c->dirs, &e);
		int64_t now = cl ? js_int_or(ctl_client_version(cl), "upgrades", 0) : before;

		if (cl && now > before)
			return TAKE_PTR(cl);
		if (!cl && remote_open_code(e) == CLI_NO_SUPERVISOR) {
			(void)cli_fail(CLI_FAILED,
				       "the supervisor ended during the upgrade, and all apps with it; "
				       "sbxsvd.log in the state directory says why; start it with: sbxsv up");
			return NULL;
		}
		if (clk_mono_ms() > until) {
			(void)cli_fail(CLI_FAILED, "%s; whether the supervisor was upgraded is not known",
				       err_msg(cl ? broke : e));
			return NULL;
		}
		(void)poll(NULL, 0, POLL_MS);
	}
}

static int64_t running_apps(struct ctl_client *cl)
{
	CLEANUP_JS struct js *reply = NULL;
	int64_t n = 0;

	if (remote_call(cl, "GET", "/v1/status", NULL, &reply))
		return -1;
	for (const struct js *a = js_first(js_get(reply, "apps")); a; a = js_next(a))
		n += js_get(a, "pid") != NULL;
	return n;
}

static int say_upgraded(struct cli *c, const char *from, struct ctl_client *cl)
{
	const struct js *v = ctl_client_version(cl);
	CLEANUP_FREE char *old = cli_safe(from), *now = cli_safe(js_str(v, "version"));
	int64_t n = running_apps(cl);

	if (n < 0)
		return CLI_FAILED;
	if (c->json)
		remote_print_json(v);
	else
		printf("upgraded %s -> %s, pid %" PRId64 ", %" PRId64 " app%s kept\n", old, now,
		       js_int_or(v, "pid", 0), n, n == 1 ? "" : "s");
	return CLI_OK;
}

static int run(struct cli *c, const struct cli_args *a)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL, *now = NULL;
	CLEANUP_JS struct js *body = js_obj(), *reply = NULL;
	CLEANUP_ERR struct err *e = NULL;
	const char *text;
	long status = 0;
	int code;

	if (a->n_rest)
		return cli_usage(&cmd_upgrade,
				 "upgrade takes no arguments: the program is the file that sbxsvd was "
				 "started from");
	code = remote_open(c, &cl);
	if (code)
		return code;
	js_add_bool(body, "wait", true);
	reply = ctl_client_call(cl, "POST", "/v1/upgrade", body, &status, &e);
	if (reply) {
		text = status == 200 ? js_str(reply, "message") : js_str(reply, "error");
		return cli_fail(CLI_FAILED, "not upgraded, and nothing has changed: %s",
				text ? text : "the supervisor gave no reason");
	}
	now = await_new(c, js_int_or(ctl_client_version(cl), "upgrades", 0), e);
	return now ? say_upgraded(c, js_str(ctl_client_version(cl), "version"), now) : CLI_FAILED;
}

const struct command cmd_upgrade = {
	.name = "upgrade",
	.usage = "upgrade [--json]",
	.help = "replace the supervisor's program by the one installed now; apps and connections stay",
	.flags = CLI_JSON,
	.fn = run,
};
