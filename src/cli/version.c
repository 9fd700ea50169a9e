#include "cli/cli.h"
#include "config.h"
#include <stdio.h>

static int run(struct cli *c, const struct cli_args *a)
{
	if (a->n_rest)
		return cli_usage(&cmd_version, "version takes no arguments");
	if (c->json) {
		CLEANUP_JS struct js *j = js_obj();
		CLEANUP_FREE char *text = NULL;

		js_add_str(j, "version", PACKAGE_VERSION);
		text = js_print(j);
		puts(text);
	} else {
		puts("sbxsv " PACKAGE_VERSION);
	}
	return CLI_OK;
}

const struct command cmd_version = {
	.name = "version",
	.usage = "version [--json]",
	.help = "the version of this program",
	.flags = CLI_JSON | CLI_NO_DIRS,
	.fn = run,
};
