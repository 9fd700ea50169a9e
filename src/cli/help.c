#include "cli/completion.h"
#include <stdio.h>

enum { OPT_COMPLETION = CLI_LONG };

static void print_options(const struct cli_option *o, bool json)
{
	for (; o && o->name; o++) {
		CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;

		if (o->id == CLI_JSON_OPTION && !json)
			continue;
		if (o->id < CLI_LONG)
			strbuf_addf(&b, "-%c, ", o->id);
		strbuf_addf(&b, "--%s", o->name);
		if (o->arg)
			strbuf_addf(&b, " %s", o->arg);
		printf("  %-26s %s\n", b.p, o->help);
	}
}

static int one(const char *name)
{
	const struct command *cmd = cli_command(name);

	if (!cmd)
		return cli_no_command(name);
	printf("usage: sbxsv %s\n\n%s\n", cmd->usage, cmd->help);
	if (cmd->options) {
		puts("\nOptions:");
		print_options(cmd->options, true);
	}
	puts("\nGlobal options:");
	print_options(cli_globals, (cmd->flags & CLI_JSON) != 0);
	return CLI_OK;
}

static int run(struct cli *c, const struct cli_args *a)
{
	(void)c;
	if (cli_value(a, OPT_COMPLETION))
		return completion_print(cli_value(a, OPT_COMPLETION));
	if (a->n_rest > 1)
		return cli_usage(&cmd_help, "help takes one command");
	if (a->n_rest == 1)
		return one(a->rest[0]);
	puts("usage: sbxsv [OPTION]... COMMAND [ARGUMENT]...\n\nsbxsv runs local apps, each in its own "
	     "jail.\n\nCommands:");
	for (const struct command *const *p = cli_commands; *p; p++)
		printf("  %-10s %s\n", (*p)->name, (*p)->help);
	puts("\nGlobal options:");
	print_options(cli_globals, true);
	puts("\nMore: sbxsv help COMMAND, and man sbxsv");
	return CLI_OK;
}

static const struct cli_option options[] = {
	{OPT_COMPLETION, "completion", "SHELL", "print the completions of bash, zsh or fish, or the syntax of units for vim"},
	{0, NULL, NULL, NULL},
};

const struct command cmd_help = {
	.name = "help",
	.usage = "help [COMMAND] [--completion SHELL]",
	.options = options,
	.help = "this text, or the usage and options of one command",
	.flags = CLI_NO_DIRS,
	.fn = run,
};
