/* The table of commands, in the order in which help shows them. */
#include "cli/cli.h"

const struct command *const cli_commands[] = {
	&cmd_up,     &cmd_down,       &cmd_new,     &cmd_edit, &cmd_cat, &cmd_enable, &cmd_disable, &cmd_remove,   &cmd_status, &cmd_start,
	&cmd_stop,   &cmd_restart,    &cmd_kill,    &cmd_allow, &cmd_deny,   &cmd_top,
	&cmd_autostart, &cmd_reload, &cmd_upgrade, &cmd_logs,       &cmd_events,  &cmd_check, &cmd_doctor, &cmd_exec, &cmd_run,
	&cmd_ports,  &cmd_violations, &cmd_import, &cmd_version, &cmd_help,  NULL,
};

const struct cli_planned cli_planned[] = {
	{"learn",
	 "rules are not learned from what an app tries yet; sbxsv violations APP shows what was refused, and "
	 "what would allow it"},
	{"mcp", "there is no MCP server for sbxsv itself yet"},
	{"ps", "the processes of one app are not listed yet; sbxsv status APP shows how many there are"},
	{"shell", "a shell inside a running jail is not there yet; sbxsv exec starts a fresh one"},
	{"suggest",
	 "a whole unit is not suggested yet; sbxsv violations APP has a command for each thing refused"},
	{"trace", "what an app does is not recorded yet, only what it is refused: sbxsv violations APP"},
	{"ui", "there is no dashboard yet; use: sbxsv status"},
	{NULL, NULL},
};

const struct command *cli_command(const char *name)
{
	for (const struct command *const *c = cli_commands; *c; c++)
		if (str_eq((*c)->name, name))
			return *c;
	return NULL;
}

int cli_no_command(const char *name)
{
	CLEANUP_FREE char *shown = cli_safe(name);
	const char *names[64], *near;
	size_t n = 0;

	for (const struct cli_planned *p = cli_planned; p->name; p++)
		if (str_eq(p->name, name))
			return cli_fail(CLI_FAILED, "%s: not there yet: %s", name, p->what);
	for (const struct command *const *c = cli_commands; *c && n < ELEMENTS(names) - 1; c++)
		names[n++] = (*c)->name;
	for (const struct cli_planned *p = cli_planned; p->name && n < ELEMENTS(names) - 1; p++)
		names[n++] = p->name;
	names[n] = NULL;
	near = str_nearest(name, names);
	return near ? cli_usage(NULL, "no command \"%s\"; did you mean \"%s\"?", shown, near)
		    : cli_usage(NULL, "no command \"%s\"", shown);
}
