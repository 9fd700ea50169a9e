#include "cli/remote.h"
#include "cli/table.h"
#include <inttypes.h>
#include <stdio.h>

static int run(struct cli *c, const struct cli_args *a)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL;
	CLEANUP_JS struct js *ports = NULL;
	struct table t = {.columns = 6};
	int code;

	if (a->n_rest)
		return cli_usage(&cmd_ports, "ports takes no arguments");
	code = remote_open(c, &cl);
	if (!code)
		code = remote_call(cl, "GET", "/v1/ports", NULL, &ports);
	if (code)
		return code;
	if (c->json) {
		remote_print_json(ports);
		return CLI_OK;
	}
	if (!js_len(ports)) {
		puts("no app has a port (Listen= in its unit)");
		return CLI_OK;
	}
	table_add(&t, "APP");
	table_add(&t, "ADDRESS");
	table_add(&t, "PORT");
	table_add(&t, "APP PORT");
	table_add(&t, "STATE");
	table_add(&t, "HOLDER");
	for (const struct js *p = js_first(ports); p; p = js_next(p)) {
		table_add(&t, js_str(p, "app"));
		table_add(&t, js_str(p, "address"));
		table_addf(&t, "%" PRId64, js_int_or(p, "host", 0));
		table_addf(&t, "%" PRId64, js_int_or(p, "app_port", 0));
		table_add(&t, js_str(p, "state"));
		table_add(&t, js_str(p, "holder"));
	}
	table_print(&t);
	return CLI_OK;
}

const struct command cmd_ports = {
	.name = "ports",
	.usage = "ports [--json]",
	.help = "the ports of this machine that belong to apps",
	.flags = CLI_JSON,
	.fn = run,
};
