/* Another program's file as a unit on stdout. Reads one file, writes nothing. */
#include "cli/cli.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/parse.h"
#include "unit/import.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { OPT_FROM = CLI_LONG, OPT_NAME, OPT_DIRECTORY, OPT_PORT };

static int read_input(const char *file, char **ret, size_t *ret_len, struct err **e)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
	char chunk[16384];
	ssize_t n;

	if (!str_eq(file, "-"))
		return file_read(AT_FDCWD, file, IMPORT_MAX_BYTES, ret, ret_len, e);
	while ((n = read(STDIN_FILENO, chunk, sizeof chunk)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, errno, "stdin");
		strbuf_add(&b, chunk, (size_t)n);
		if (b.len > IMPORT_MAX_BYTES)
			return err_set(e, EFBIG, "stdin: more than %zu bytes", IMPORT_MAX_BYTES);
	}
	*ret_len = b.len;
	*ret = strbuf_take(&b);
	return 0;
}

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

static char *directory_of(const char *file)
{
	CLEANUP_FREE char *real = str_eq(file, "-") ? NULL : realpath(file, NULL);

	return real ? path_dirname(real) : getcwd(NULL, 0);
}

/* A manifest's directory is the one the file lies in; the others say theirs. */
static int convert(struct cli *c, const struct cli_args *a, enum import_kind *kind, const char *text,
		   size_t len)
{
	const char *file = a->rest[0];
	CLEANUP_FREE char *dir = directory_of(file), *given = NULL, *cwd = getcwd(NULL, 0);
	CLEANUP(unit_import_finish) struct import_result got = {0};
	CLEANUP_ERR struct err *e = NULL;
	struct import_request r = {
		.dirs = &c->dirs,
		.text = text,
		.len = len,
		.shown = path_basename(file),
		.name = cli_value(a, OPT_NAME),
		.file_name = path_basename(file),
		.file_dir = dir,
		.port = cli_value(a, OPT_PORT),
		.command = a->dashes == 1 ? a->rest + 1 : NULL,
		.exists = exists,
	};

	if (cli_value(a, OPT_DIRECTORY))
		r.directory = given = path_join(cwd ? cwd : "/", cli_value(a, OPT_DIRECTORY));
	if (!cli_value(a, OPT_FROM) && unit_import_recognise(text, len, kind, &e))
		return cli_fail(CLI_FAILED, "%s: %s", r.shown, err_msg(e));
	if (r.command && *kind != IMPORT_SRT)
		return cli_usage(&cmd_import,
				 "import: only srt settings take a command, the others have one");
	if (r.port && *kind != IMPORT_MANIFEST)
		return cli_usage(&cmd_import, "import --port is for a manifest without a port");
	if (unit_import(&r, *kind, &got, &e))
		return cli_fail(CLI_FAILED, "%s: not imported: %s", r.shown, err_msg(e));
	(void)fputs(got.text, stdout);
	if (got.notes)
		(void)cli_fail(CLI_OK, "%zu thing%s could not be carried over as %s; see the comments",
			       got.notes, got.notes == 1 ? "" : "s", got.notes == 1 ? "it is" : "they are");
	return CLI_OK;
}

static int run(struct cli *c, const struct cli_args *a)
{
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FREE char *text = NULL;
	enum import_kind kind = IMPORT_MANIFEST;
	const char *from = cli_value(a, OPT_FROM), *port = cli_value(a, OPT_PORT);
	uint16_t number;
	size_t len = 0;

	if (a->n_rest < 1 || (a->dashes < 0 && a->n_rest > 1) ||
	    (a->dashes >= 0 && (a->dashes != 1 || a->n_rest < 2)))
		return cli_usage(&cmd_import, "import: name one file (- is standard input)");
	if (from && unit_import_kind(from, &kind))
		return cli_usage(&cmd_import, "import --from: manifest, systemd, supervisord or srt");
	if (port && parse_port(port, &number))
		return cli_usage(&cmd_import, "import --port: a number from 1 to 65535 is needed");
	if (read_input(a->rest[0], &text, &len, &e))
		return cli_fail(CLI_FAILED, "%s", err_msg(e));
	return convert(c, a, &kind, text, len);
}

static const struct cli_option options[] = {
	{OPT_FROM, "from", "KIND",
	 "manifest, systemd, supervisord or srt; unless given, seen from its content"},
	{OPT_NAME, "name", "NAME", "the name of the app; of several programs, the one"},
	{OPT_DIRECTORY, "directory", "DIR", "the app's working directory"},
	{OPT_PORT, "port", "N", "the port of a manifest that has none"},
	{0, NULL, NULL, NULL},
};

const struct command cmd_import = {
	.name = "import",
	.usage = "import [--from KIND] [--name NAME] [--directory DIR] [--port N] FILE [-- COMMAND...]",
	.help = "another program's file as a unit on standard output",
	.options = options,
	.fn = run,
};
