/* The command line: words against a table of options. No getopt: its state is global, it cannot hand out its
 * table for the help and the tests, and its permutation would reorder the words of another program's command
 * line. */
#include "cli/cli.h"
#include <errno.h>
#include <string.h>

const struct cli_option cli_globals[] = {
	{CLI_INSTANCE, "instance", "NAME", "use a separate set of directories, named NAME"},
	{CLI_CONFIG, "config", "DIR", "configuration directory (sbxsv.conf)"},
	{CLI_APPS, "apps", "DIR", "directory of the unit files"},
	{CLI_STATE, "state", "DIR", "directory of logs and events"},
	{CLI_RUNTIME, "runtime", "DIR", "directory of the control socket"},
	{CLI_JSON_OPTION, "json", NULL, "machine-readable output"},
	{CLI_VERSION, "version", NULL, "the version of this program"},
	{'h', "help", NULL, "help for the command"},
	{0, NULL, NULL, NULL},
};

bool cli_has(const struct cli_args *a, int id)
{
	for (size_t i = 0; i < a->n_opts; i++)
		if (a->opts[i].id == id)
			return true;
	return false;
}

const char *cli_value(const struct cli_args *a, int id)
{
	for (size_t i = a->n_opts; i-- > 0;)
		if (a->opts[i].id == id)
			return a->opts[i].value;
	return NULL;
}

void cli_args_finish(struct cli_args *a)
{
	free(a->opts);
	free(a->rest);
	memset(a, 0, sizeof *a);
}

static void add_opt(struct cli_args *a, int id, const char *value)
{
	VEC_GROW(a->opts, a->n_opts, a->cap_opts);
	a->opts[a->n_opts].id = id;
	a->opts[a->n_opts++].value = value;
}

static void add_rest(struct cli_args *a, char *word)
{
	VEC_GROW(a->rest, a->n_rest + 1, a->cap_rest);
	a->rest[a->n_rest++] = word;
	a->rest[a->n_rest] = NULL;
}

static const struct cli_option *in_table(const struct cli_option *o, const char *name, size_t len, int letter)
{
	for (; o && o->name; o++)
		if (letter ? o->id == letter : strlen(o->name) == len && memcmp(o->name, name, len) == 0)
			return o;
	return NULL;
}

static const struct cli_option *find(const struct command *cmd, const char *name, size_t len, int letter)
{
	const struct cli_option *o = cmd ? in_table(cmd->options, name, len, letter) : NULL;

	return o ? o : in_table(cli_globals, name, len, letter);
}

static int unknown(const struct command *cmd, const char *word, size_t len, struct err **e)
{
	const char *names[64];
	size_t n = 0;
	CLEANUP_FREE char *name = xstrndup(word + 2, len), *shown = str_escape(word, len + 2);
	const char *near;

	for (const struct cli_option *o = cmd ? cmd->options : NULL; o && o->name && n < ELEMENTS(names) - 1;
	     o++)
		names[n++] = o->name;
	for (const struct cli_option *o = cli_globals; o->name && n < ELEMENTS(names) - 1; o++)
		names[n++] = o->name;
	names[n] = NULL;
	near = str_nearest(name, names);
	return near ? err_set(e, EINVAL, "no option %s; did you mean --%s?", shown, near)
		    : err_set(e, EINVAL, "no option %s", shown);
}

/* "--name", "--name=value", "--name value". Returns how many words it took, or -1. */
static int long_option(const struct command *cmd, char **w, struct cli_args *ret, struct err **e)
{
	const char *eq = strchr(w[0], '=');
	size_t len = eq ? (size_t)(eq - w[0]) - 2 : strlen(w[0]) - 2;
	const struct cli_option *o = find(cmd, w[0] + 2, len, 0);

	if (!o)
		return unknown(cmd, w[0], len, e);
	if (!o->arg) {
		if (eq)
			return err_set(e, EINVAL, "--%s takes no value", o->name);
		add_opt(ret, o->id, NULL);
		return 1;
	}
	if (!eq && !w[1])
		return err_set(e, EINVAL, "--%s needs a value (%s)", o->name, o->arg);
	add_opt(ret, o->id, eq ? eq + 1 : w[1]);
	return eq ? 1 : 2;
}

/* "-f", "-fn5", "-n 5". Returns how many words it took, or -1. */
static int short_options(const struct command *cmd, char **w, struct cli_args *ret, struct err **e)
{
	for (const char *p = w[0] + 1; *p; p++) {
		const struct cli_option *o = find(cmd, NULL, 0, (unsigned char)*p);

		if (!o) {
			CLEANUP_FREE char *shown = str_escape(p, 1);

			return err_set(e, EINVAL, "no option -%s", shown);
		}
		if (!o->arg) {
			add_opt(ret, o->id, NULL);
			continue;
		}
		if (!p[1] && !w[1])
			return err_set(e, EINVAL, "-%c needs a value (%s)", *p, o->arg);
		add_opt(ret, o->id, p[1] ? p + 1 : w[1]);
		return p[1] ? 1 : 2;
	}
	return 1;
}

int cli_parse(const struct command *cmd, int argc, char **argv, struct cli_args *ret, struct err **e)
{
	struct cli_args a = {.dashes = -1};
	bool stop = false;

	for (int i = 0; i < argc;) {
		int took = 1;

		if (stop || argv[i][0] != '-' || !argv[i][1]) {
			/* without a command we are before its name: options end there */
			stop = stop || !cmd || (cmd->flags & CLI_STOP_AT_OPERAND);
			add_rest(&a, argv[i]);
		} else if (str_eq(argv[i], "--")) {
			a.dashes = a.n_rest;
			stop = true;
		} else if (argv[i][1] == '-') {
			took = long_option(cmd, argv + i, &a, e);
		} else {
			took = short_options(cmd, argv + i, &a, e);
		}
		if (took < 0) {
			cli_args_finish(&a);
			return -1;
		}
		i += took;
	}
	if (!a.rest) {
		a.rest = xcalloc(1, sizeof *a.rest);
		a.cap_rest = 1;
	}
	*ret = a;
	return 0;
}
