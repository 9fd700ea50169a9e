#include "cli/lines.h"
#include "cli/remote.h"
#include <stdio.h>

enum { OPT_RAW = CLI_LONG, OPT_SINCE };

static int print_safe(void *data, const char *text, size_t len)
{
	CLEANUP_FREE char *safe = str_escape(text, len);

	(void)data;
	puts(safe);
	return lines_written();
}

static int print_raw(void *data, const char *text, size_t len)
{
	(void)data;
	(void)fwrite(text, 1, len, stdout);
	putchar('\n');
	return lines_written();
}

static int run(struct cli *c, const struct cli_args *a)
{
	CLEANUP_FREE char *suffix = NULL, *path = NULL;
	bool raw = cli_has(a, OPT_RAW);
	unsigned n = 0;
	int code;

	if (a->n_rest != 1)
		return cli_usage(&cmd_logs, "logs: name one app");
	if (cli_has(a, OPT_SINCE))
		return cli_fail(CLI_FAILED,
				"logs --since: not there yet: lines are not indexed by time; use -n");
	if (raw && c->tty)
		return cli_usage(&cmd_logs, "logs --raw: not to a terminal, which an app could then control");
	code = lines_wanted(&cmd_logs, a, 50, &n);
	if (code)
		return code;
	suffix = xasprintf("/logs?lines=%u&follow=%d", n, cli_has(a, 'f'));
	path = remote_app_path(a->rest[0], suffix);
	return path ? lines_stream(c, path, raw ? print_raw : print_safe) : CLI_NO_APP;
}

static const struct cli_option options[] = {
	{'f', "follow", NULL, "go on with the lines to come"},
	{'n', "lines", "N", "how many old lines (50)"},
	{OPT_RAW, "raw", NULL, "bytes as the app wrote them; not to a terminal"},
	{OPT_SINCE, "since", "T", "not there yet"},
	{0, NULL, NULL, NULL},
};

const struct command cmd_logs = {
	.name = "logs",
	.usage = "logs APP [-f] [-n N] [--raw]",
	.help = "what an app wrote to its standard output and error",
	.options = options,
	.fn = run,
};
