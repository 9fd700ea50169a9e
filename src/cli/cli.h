/*
 * sbxsv, the command.
 *
 * Theory of operation. main.c holds one table of commands; each command is one file that exports a `struct
 * command` with its options. The whole command line is parsed against that table before anything else
 * happens, global options are applied (they choose the directories), and then the command's function runs and
 * returns the exit code. Help, usage errors and the test that compares the man page with the program all read
 * the same table.
 *
 * Output that people read goes to stdout, complaints to stderr ("sbxsv: text"). Text that an app controls
 * (its name in a log line, a host it asked for, a reason) passes cli_safe() first: no byte of it reaches a
 * terminal unescaped.
 */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "unit/unit.h"
#include <stdbool.h>
#include <stddef.h>

/* Exit codes, doc/design.md section 7. `exec` passes the command's own. */
enum cli_exit {
	CLI_OK = 0,
	CLI_FAILED = 1,
	CLI_USAGE = 2,
	CLI_NOT_RUNNING = 3,
	CLI_NO_APP = 4,
	CLI_NO_SUPERVISOR = 5,
	CLI_REFUSED = 6,
	CLI_NO_JAIL = 125,
};

struct cli {
	struct unit_dirs dirs; /* with the syntax checks of src/policy wired in */
	const char *instance;  /* --instance, or NULL */
	bool json;             /* --json */
	bool tty;              /* stdout is a terminal */
};

/* One option. `id`: its letter, or a number from CLI_LONG on for an option without a letter. */
enum {
	CLI_LONG = 256,
	CLI_INSTANCE = 1024,
	CLI_CONFIG,
	CLI_APPS,
	CLI_STATE,
	CLI_RUNTIME,
	CLI_JSON_OPTION,
	CLI_VERSION
};
struct cli_option {
	int id;
	const char *name; /* without the dashes; NULL ends the list */
	const char *arg;  /* name of its value, or NULL for a flag */
	const char *help;
};

struct cli_args {
	struct { /* in the order given; an option may be given several times */
		int id;
		const char *value;
	} * opts;
	size_t n_opts, cap_opts;
	char **rest; /* operands, NULL-terminated */
	int n_rest, cap_rest;
	int dashes; /* number of operands before a "--", or -1 when there was none */
};
bool cli_has(const struct cli_args *a, int id);
const char *cli_value(const struct cli_args *a, int id); /* of the last one given, or NULL */

enum {
	CLI_STOP_AT_OPERAND =
		1,       /* options end at the first operand: what follows belongs to another program */
	CLI_JSON = 2,    /* knows --json; the others refuse it */
	CLI_NO_DIRS = 4, /* works without directories: version, help */
};
struct command {
	const char *name;
	const char *usage; /* "status [APP] [--json]" */
	const char *help;  /* one line */
	unsigned flags;
	const struct cli_option *options; /* NULL: none of its own */
	int (*fn)(struct cli *c, const struct cli_args *a);
};
extern const struct command *const cli_commands[]; /* NULL-terminated; commands.c */
extern const struct cli_option cli_globals[];      /* accepted before and after the command's name */

extern const struct command cmd_up, cmd_down, cmd_new, cmd_cat, cmd_status, cmd_start, cmd_stop, cmd_restart,
	cmd_kill, cmd_allow, cmd_deny, cmd_top, cmd_reload, cmd_logs, cmd_events, cmd_check, cmd_doctor, cmd_exec, cmd_ports, cmd_version,
	cmd_help, cmd_import, cmd_autostart, cmd_edit, cmd_enable, cmd_disable, cmd_remove, cmd_run, cmd_upgrade, cmd_violations;

/* NULL when there is no such command; a planned one is in cli_planned. */
const struct command *cli_command(const char *name);
/* Commands of doc/design.md section 7 whose feature is not there yet: they say so instead of doing nothing.
 */
struct cli_planned {
	const char *name, *what; /* "learn", "rules are not learned from what an app tries yet" */
};
extern const struct cli_planned cli_planned[]; /* ends with a NULL name */
/* Complains about an unknown or planned command; returns the exit code. */
int cli_no_command(const char *name);

/* Words of `argv` (without the command's name) into `ret`. 0, or -1 with a text for people. Global options
 * are collected like the others. */
int cli_parse(const struct command *cmd, int argc, char **argv, struct cli_args *ret, struct err **e);
void cli_args_finish(struct cli_args *a);

/* --- messages --- */

/* "sbxsv: text" on stderr. Returns `code`, so that `return cli_fail(CLI_FAILED, ...)` works. */
int cli_fail(int code, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The same with "try sbxsv help COMMAND"; returns CLI_USAGE. */
int cli_usage(const struct command *cmd, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* That this is no name of an app; returns CLI_NO_APP. */
int cli_bad_name(const char *app);
/* Escaped copy of a text an app, a file or a peer chose; "-" for NULL. Owned by caller. */
char *cli_denied_target(const struct js *d); /* of a "denied" list: "x.com:443", or "x.com (lookup)"; safe, owned by caller */
char *cli_safe(const char *s);
