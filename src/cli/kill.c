#include "cli/remote.h"

static int run(struct cli *c, const struct cli_args *a)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL;
	CLEANUP_JS struct js *body = js_obj();
	const char *signal = cli_value(a, 's');
	int code, worst = CLI_OK;

	if (!a->n_rest)
		return cli_usage(&cmd_kill, "kill: name the app");
	js_add_str(body, "signal", signal ? signal : "TERM");
	code = remote_open(c, &cl);
	if (code)
		return code;
	for (int i = 0; i < a->n_rest; i++) {
		CLEANUP_FREE char *path = remote_app_path(a->rest[i], "/kill");
		CLEANUP_JS struct js *reply = NULL;

		code = path ? remote_call(cl, "POST", path, body, &reply) : CLI_NO_APP;
		if (code > worst)
			worst = code;
	}
	return worst;
}

static const struct cli_option options[] = {
	{'s', "signal", "SIGNAL", "the signal, by name or number (TERM)"},
	{0, NULL, NULL, NULL},
};

const struct command cmd_kill = {
	.name = "kill",
	.usage = "kill [-s SIGNAL] APP...",
	.help = "send a signal to an app's first process and its group",
	.options = options,
	.fn = run,
};
