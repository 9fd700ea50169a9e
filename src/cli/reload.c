#include "cli/remote.h"
#include <inttypes.h>
#include <stdio.h>

static void print_names(const struct js *report, const char *key, const char *label)
{
	const struct js *list = js_get(report, key);

	if (!js_len(list))
		return;
	printf("%s", label);
	for (const struct js *v = js_first(list); v; v = js_next(v)) {
		CLEANUP_FREE char *safe = cli_safe(js_value_str(v));

		printf(" %s", safe);
	}
	putchar('\n');
}

static int run(struct cli *c, const struct cli_args *a)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL;
	CLEANUP_JS struct js *report = NULL;
	const struct js *problems;
	int code;

	if (a->n_rest)
		return cli_usage(&cmd_reload, "reload takes no arguments: it reads all units");
	code = remote_open(c, &cl);
	if (!code)
		code = remote_call(cl, "POST", "/v1/reload", NULL, &report);
	if (code)
		return code;
	problems = js_get(report, "problems");
	if (c->json) {
		remote_print_json(report);
	} else {
		print_names(report, "added", "added:");
		print_names(report, "removed", "removed:");
		print_names(report, "restarted", "restarted:");
		print_names(report, "live", "applied without a restart:");
		printf("unchanged: %" PRId64 "\n", js_int_or(report, "unchanged", 0));
		remote_complain(problems);
	}
	return js_len(problems) ? CLI_FAILED : CLI_OK;
}

const struct command cmd_reload = {
	.name = "reload",
	.usage = "reload [--json]",
	.help = "read the units again; only what changed is touched",
	.flags = CLI_JSON,
	.fn = run,
};
