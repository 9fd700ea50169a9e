/* What apps were refused, and what to type to allow it. */
#include "base/clock.h"
#include "base/parse.h"
#include "cli/remote.h"
#include "cli/violation.h"
#include <inttypes.h>
#include <stdio.h>

enum { OPT_SINCE = CLI_LONG };

static void print_one(const struct js *v)
{
	const char *app = js_str(v, "app");
	CLEANUP_FREE char *when = cli_safe(js_str(v, "last")), *name = cli_safe(app),
			  *text = violation_text(v), *advice = violation_advice(v, app);

	printf("%s %s %s\n", when, name, text);
	if (advice)
		printf("    %s\n", advice);
}

/* What is not in the list, and apps nobody listens to: an empty list must not say more than it knows. */
static void print_app(const struct js *a)
{
	CLEANUP_FREE char *name = cli_safe(js_str(a, "app"));
	int64_t lost = js_int_or(a, "lost", 0);

	if (lost)
		printf("%s: %" PRId64 " calls came too fast to be judged\n", name, lost);
	if (str_eq(js_str(a, "mode"), "writes"))
		printf("%s: reads are not looked at; for those: Violations=all in [Audit]\n", name);
	else if (str_eq(js_str(a, "mode"), "off"))
		printf("%s: file calls are not looked at%s\n", name,
		       js_bool_or(a, "running", false)
			       ? " (Violations=off, NestedSandbox=yes, or no jail; see "
				 "sbxsv status)"
			       : " while it does not run");
}

static void print_all(const struct js *reply)
{
	const struct js *list = js_get(reply, "violations");

	for (const struct js *v = js_first(list); v; v = js_next(v))
		print_one(v);
	if (!js_len(list))
		puts("nothing was refused");
	for (const struct js *a = js_first(js_get(reply, "apps")); a; a = js_next(a))
		print_app(a);
}

/* "10m": so long ago. 0, or the exit code. */
static int since_of(const struct cli_args *a, int64_t *ret_ms)
{
	const char *since = cli_value(a, OPT_SINCE);
	int64_t ms;

	*ret_ms = 0;
	if (!since)
		return CLI_OK;
	if (parse_duration_ms(since, &ms) || ms < 0)
		return cli_usage(&cmd_violations,
				 "violations --since: a time such as 30s, 10min or 2h is needed");
	*ret_ms = clk_wall_ms() - ms;
	return CLI_OK;
}

static int run(struct cli *c, const struct cli_args *a)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL;
	CLEANUP_FREE char *path = NULL;
	CLEANUP_JS struct js *reply = NULL;
	int64_t since;
	int code = since_of(a, &since);

	if (code)
		return code;
	if (a->n_rest > 1)
		return cli_usage(&cmd_violations, "violations: name one app, or none for all");
	if (a->n_rest && !unit_name_valid(a->rest[0]))
		return cli_bad_name(a->rest[0]);
	path = xasprintf("/v1/violations?since_ms=%" PRId64 "%s%s", since > 0 ? since : 0,
			 a->n_rest ? "&app=" : "", a->n_rest ? a->rest[0] : "");
	code = remote_open(c, &cl);
	if (!code)
		code = remote_call(cl, "GET", path, NULL, &reply);
	if (code)
		return code;
	if (c->json)
		remote_print_json(reply);
	else
		print_all(reply);
	return CLI_OK;
}

static const struct cli_option options[] = {
	{OPT_SINCE, "since", "T", "only what was refused in the last T (30s, 10min, 2h)"},
	{0, NULL, NULL, NULL},
};

const struct command cmd_violations = {
	.name = "violations",
	.usage = "violations [APP] [--since T] [--json]",
	.help = "what apps were refused, newest first, and the command that would allow it",
	.flags = CLI_JSON,
	.options = options,
	.fn = run,
};
