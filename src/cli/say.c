#include "cli/cli.h"
#include <stdio.h>
#include <string.h>

char *cli_safe(const char *s)
{
	return s ? str_escape(s, strlen(s)) : xstrdup("-");
}

char *cli_denied_target(const struct js *d)
{
	CLEANUP_FREE char *host = cli_safe(js_str(d, "host"));

	if (str_eq(js_str(d, "operation"), "resolve"))
		return xasprintf("%s (lookup)", host);
	return xasprintf("%s:%lld", host, (long long)js_int_or(d, "port", 0));
}

static void complain(const char *fmt, va_list ap) __attribute__((format(printf, 1, 0)));
static void complain(const char *fmt, va_list ap)
{
	CLEANUP_FREE char *text = xvasprintf(fmt, ap);

	(void)fflush(stdout);
	/* Texts of several lines come from files and the supervisor; each line is made safe on its own. */
	for (char *line = text, *end; line; line = end) {
		CLEANUP_FREE char *safe = NULL;

		end = strchr(line, '\n');
		if (end)
			*end++ = 0;
		if (!*line && !end)
			break;
		safe = str_escape(line, strlen(line));
		fprintf(stderr, "%s%s\n", line == text ? "sbxsv: " : *safe == ' ' ? "" : "  ", safe);
	}
}

int cli_fail(int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	complain(fmt, ap);
	va_end(ap);
	return code;
}

int cli_bad_name(const char *app)
{
	CLEANUP_FREE char *shown = cli_safe(app);

	return cli_fail(CLI_NO_APP, "\"%s\" is no name of an app", shown);
}

int cli_usage(const struct command *cmd, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	complain(fmt, ap);
	va_end(ap);
	if (cmd)
		fprintf(stderr, "usage: sbxsv %s\n", cmd->usage);
	else
		fputs("usage: sbxsv [OPTION]... COMMAND [ARGUMENT]...; see: sbxsv help\n", stderr);
	return CLI_USAGE;
}
