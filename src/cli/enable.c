/* enable, disable: a drop-in of one line; a supervisor that runs applies it. */
#include "cli/remote.h"
#include "cli/units.h"
#include <stdio.h>
#include <unistd.h>

static int one(struct cli *c, const char *name, bool enabled)
{
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FREE char *wrong = NULL, *link = NULL;
	struct unit_problems p = {0};
	struct unit_dropin made = {0};
	int code = units_there(c, name);

	if (!code && enabled)
		code = units_instance(c, name, &link);
	if (code)
		return code;
	if (unit_dropin_enable(&c->dirs, name, enabled, &made, &p, &e) < 0) {
		wrong = unit_problems_text(&p);
		if (link)
			(void)unlink(link);
		code = cli_fail(CLI_FAILED, "%s: nothing was changed: %s%s%s", name, err_msg(e),
				*wrong ? "\n" : "", wrong);
	} else {
		if (link)
			printf("%s: an instance of its template: %s\n", name, link);
		printf("%s: %s%s: %s\n", name, made.changed ? "" : "already ",
		       enabled ? "enabled" : "disabled", made.path);
	}
	unit_problems_clear(&p);
	free(made.path);
	return code;
}

static int run(struct cli *c, const struct command *cmd, const struct cli_args *a, bool enabled)
{
	int worst = CLI_OK, code;

	if (!a->n_rest)
		return cli_usage(cmd, "%s: name the apps", cmd->name);
	for (int i = 0; i < a->n_rest; i++) {
		code = one(c, a->rest[i], enabled);
		if (code > worst)
			worst = code;
	}
	code = units_reload(c);
	return code > worst ? code : worst;
}

static int enable(struct cli *c, const struct cli_args *a)
{
	return run(c, &cmd_enable, a, true);
}

static int disable(struct cli *c, const struct cli_args *a)
{
	return run(c, &cmd_disable, a, false);
}

const struct command cmd_enable = {
	.name = "enable",
	.usage = "enable APP...",
	.help = "start apps now, and with the supervisor",
	.fn = enable,
};
const struct command cmd_disable = {
	.name = "disable",
	.usage = "disable APP...",
	.help = "stop apps, and do not start them with the supervisor",
	.fn = disable,
};
