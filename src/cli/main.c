/* sbxsv: find the command, parse its words, apply the global options, run it. */
#include "base/file.h"
#include "cli/cli.h"
#include "sandbox/rules.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The directories given on the command line travel in the environment, so that a supervisor started by `up`
 * has the same ones. They are made absolute here: it runs with / as its working directory. */
static int set_dir(const struct cli_args *a, int id, const char *variable, struct err **e)
{
	const char *value = cli_value(a, id);
	CLEANUP_FREE char *full = NULL, *cwd = NULL;

	if (!value)
		return 0;
	if (!*value)
		return err_set(e, EINVAL, "a directory option has an empty value");
	if (value[0] != '/') {
		cwd = getcwd(NULL, 0);
		if (!cwd)
			return err_sys(e, errno, "working directory");
	}
	full = path_join(cwd ? cwd : "/", value);
	return setenv(variable, full, 1) ? err_sys(e, errno, "setenv %s", variable) : 0;
}

/* A variable names one directory exactly. Another instance in it would be the same supervisor under another
 * name: "down" would end the wrong one. */
static int check_instance(const struct cli_args *a, struct err **e)
{
	static const struct {
		int option;
		const char *variable, *name;
	} dirs[] = {
		{CLI_CONFIG, "SBXSV_CONFIG_DIR", "config"},
		{CLI_APPS, "SBXSV_APPS_DIR", "apps"},
		{CLI_STATE, "SBXSV_STATE_DIR", "state"},
		{CLI_RUNTIME, "SBXSV_RUNTIME_DIR", "runtime"},
	};

	const char *name = cli_value(a, CLI_INSTANCE);

	if (name && (!unit_name_valid(name) || strchr(name, '@')))
		return err_set(e, 0, "--instance %s: the name must be like that of an app: a-z 0-9 _ -",
			       name);
	for (size_t i = 0; name && i < ELEMENTS(dirs); i++) {
		const char *v = getenv(dirs[i].variable);

		if (v && *v && !cli_value(a, dirs[i].option))
			return err_set(
				e, 0,
				"--instance has no directories of its own while %s=%s is set: unset it, or "
				"give --%s DIR",
				dirs[i].variable, v, dirs[i].name);
	}
	return 0;
}

static int set_dirs(struct cli *c, const struct cli_args *a, struct err **e)
{
	if (set_dir(a, CLI_CONFIG, "SBXSV_CONFIG_DIR", e) || set_dir(a, CLI_APPS, "SBXSV_APPS_DIR", e) ||
	    set_dir(a, CLI_STATE, "SBXSV_STATE_DIR", e) || set_dir(a, CLI_RUNTIME, "SBXSV_RUNTIME_DIR", e))
		return -1;
	c->instance = cli_value(a, CLI_INSTANCE);
	if (unit_dirs_init(&c->dirs, c->instance, e))
		return -1;
	rules_wire_checks(&c->dirs);
	return 0;
}

static int run(struct cli *c, const struct command *cmd, const struct cli_args *a)
{
	CLEANUP_ERR struct err *e = NULL;
	int code;

	if (cli_has(a, 'h')) {
		struct cli_args help = {
			.rest = (char *[]){(char *)(uintptr_t)cmd->name, NULL}, .n_rest = 1, .dashes = -1};

		return cmd_help.fn(c, &help);
	}
	c->json = cli_has(a, CLI_JSON_OPTION);
	if (c->json && !(cmd->flags & CLI_JSON))
		return cli_usage(cmd, "%s has no --json", cmd->name);
	c->tty = isatty(STDOUT_FILENO) == 1;
	if (!(cmd->flags & CLI_NO_DIRS) && check_instance(a, &e))
		return cli_usage(cmd, "%s", err_msg(e));
	if (!(cmd->flags & CLI_NO_DIRS) && set_dirs(c, a, &e))
		return cli_fail(CLI_FAILED, "%s", err_msg(e));
	code = cmd->fn(c, a);
	/* A full disk or a closed pipe behind stdout must not look like success. */
	if ((fflush(stdout) || ferror(stdout)) && code == CLI_OK)
		code = cli_fail(CLI_FAILED, "stdout: %s", strerror(errno));
	return code;
}

/* Global options may stand before the command's name too; both lists are one. */
static void prepend(struct cli_args *a, const struct cli_args *before)
{
	struct cli_args all = {
		.rest = a->rest, .n_rest = a->n_rest, .cap_rest = a->cap_rest, .dashes = a->dashes};

	for (size_t pass = 0; pass < 2; pass++) {
		const struct cli_args *from = pass ? a : before;

		for (size_t i = 0; i < from->n_opts; i++) {
			VEC_GROW(all.opts, all.n_opts, all.cap_opts);
			all.opts[all.n_opts++] = from->opts[i];
		}
	}
	free(a->opts);
	*a = all;
}

int main(int argc, char **argv)
{
	CLEANUP(cli_args_finish) struct cli_args before = {0}, a = {0};
	CLEANUP_ERR struct err *e = NULL;
	struct cli c = {0};
	const struct command *cmd;
	int code;

	if (cli_parse(NULL, argc - 1, argv + 1, &before, &e))
		return cli_usage(NULL, "%s", err_msg(e));
	if (!before.n_rest && cli_has(&before, 'h'))
		return cmd_help.fn(&c, &before);
	if (!before.n_rest && cli_has(&before, CLI_VERSION))
		return cmd_version.fn(&c, &before);
	if (!before.n_rest)
		return cli_usage(NULL, "no command given");
	cmd = cli_command(before.rest[0]);
	if (!cmd)
		return cli_no_command(before.rest[0]);
	if (cli_parse(cmd, before.n_rest - 1, before.rest + 1, &a, &e))
		return cli_usage(cmd, "%s: %s", cmd->name, err_msg(e));
	prepend(&a, &before);
	code = run(&c, cmd, &a);
	unit_dirs_finish(&c.dirs);
	return code;
}
