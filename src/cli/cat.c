#include "cli/subject.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { OPT_EFFECTIVE = CLI_LONG };

#define FILE_MAX ((size_t)1 << 20)

static void print_text(const char *text, size_t len)
{
	for (size_t i = 0; i < len;) {
		const char *nl = memchr(text + i, '\n', len - i);
		size_t n = nl ? (size_t)(nl - text) - i : len - i;
		CLEANUP_FREE char *safe = str_escape(text + i, n);

		puts(safe);
		i += n + 1;
	}
}

/* CLI_OK, CLI_NO_APP when there is no such file, CLI_FAILED after a message. */
static int print_file(const char *path)
{
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FREE char *text = NULL, *shown = cli_safe(path);
	size_t len = 0;

	if (file_read(AT_FDCWD, path, FILE_MAX, &text, &len, &e))
		return err_code(e) == ENOENT ? CLI_NO_APP : cli_fail(CLI_FAILED, "%s", err_msg(e));
	printf("# %s\n", shown);
	print_text(text, len);
	return CLI_OK;
}

/* The unit as it lies on the disk, and its drop-ins; also of a unit with errors. */
static int plain(struct cli *c, const char *name)
{
	const char *at = strchr(name, '@');
	CLEANUP_FREE char *path = xasprintf("%s/%s.app", c->dirs.apps, name);
	int code = print_file(path);

	if (code == CLI_NO_APP && at) {
		CLEANUP_FREE char *template = xasprintf("%s/%.*s@.app", c->dirs.apps, (int)(at - name), name);

		code = print_file(template);
	}
	return code == CLI_NO_APP ? subject_complain(c, name) : code;
}

static int drop_ins(struct cli *c, const char *name)
{
	struct unit_problems problems = {0};
	CLEANUP_UNIT struct unit *u = unit_load(&c->dirs, name, &problems);
	CLEANUP_FREE char *text = unit_problems_text(&problems);
	int code = CLI_OK;

	unit_problems_clear(&problems);
	if (!u) /* the text is shown all the same, and what is wrong with it */
		return cli_fail(CLI_FAILED, "%s", text);
	for (size_t i = 0; i < u->sources.n && code == CLI_OK; i++)
		if (path_is_below(u->sources.v[i], c->dirs.apps) && strstr(u->sources.v[i], ".app.d/")) {
			putchar('\n');
			code = print_file(u->sources.v[i]);
		}
	return code;
}

static int run(struct cli *c, const struct cli_args *a)
{
	struct unit_problems problems = {0};
	CLEANUP_FREE char *text = NULL, *wrong = NULL;
	int code;

	if (a->n_rest != 1)
		return cli_usage(&cmd_cat, "cat: name one app");
	if (!unit_name_valid(a->rest[0]))
		return cli_bad_name(a->rest[0]);
	if (!cli_has(a, OPT_EFFECTIVE)) {
		code = plain(c, a->rest[0]);
		return code ? code : drop_ins(c, a->rest[0]);
	}
	text = unit_effective(&c->dirs, a->rest[0], &problems);
	wrong = unit_problems_text(&problems);
	unit_problems_clear(&problems);
	if (!text)
		return cli_fail(CLI_FAILED, "%s", wrong);
	print_text(text, strlen(text));
	return CLI_OK;
}

static const struct cli_option options[] = {
	{OPT_EFFECTIVE, "effective", NULL, "merged with profile and drop-ins, with the origin of each line"},
	{0, NULL, NULL, NULL},
};

const struct command cmd_cat = {
	.name = "cat",
	.usage = "cat NAME [--effective]",
	.help = "show a unit and its drop-ins",
	.options = options,
	.fn = run,
};
