/* A command line of `sbxsv exec` as a unit and as a plan. */
#pragma once
#include "cli/cli.h"
#include "sandbox/plan.h"

enum {
	EXEC_PROFILE = CLI_LONG,
	EXEC_READ_MODE,
	EXEC_READ,
	EXEC_WRITE,
	EXEC_HIDE,
	EXEC_ALLOW,
	EXEC_DENY,
	EXEC_EGRESS,
	EXEC_LOOPBACK,
	EXEC_ENV,
	EXEC_PASS_ENV,
	EXEC_USER,
	EXEC_UNIX_SOCKET,
	EXEC_QUIET,
	EXEC_ALLOW_READ,
	EXEC_ALLOW_WRITE,
	EXEC_ALLOWLIST,
	EXEC_AUDIT,
	EXEC_REPORT,
};
struct exec_unit {
	struct unit *unit;
	struct conf conf;
	bool cwd_empty; /* the working directory is one that is never granted: nothing is seen in it */
	bool usage;     /* what is wrong is the value of an option */
};
int exec_unit_init(struct exec_unit *x, const struct cli *c, const struct cli_args *a,
		   struct unit_problems *p);
struct plan *exec_unit_plan(const struct exec_unit *x, const struct cli *c, struct unit_problems *p);
void exec_unit_finish(struct exec_unit *x);
