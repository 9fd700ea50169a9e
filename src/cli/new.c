/*
 * A first unit for a command. What is written is read back by the reader of src/unit and compared with what
 * was asked for, so that a word that the unit format cannot carry is an error here and not a different
 * command later.
 */
#include "cli/cli.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/parse.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* A word that means itself in Exec=: no quoting needed. */
static bool is_plain(const char *s)
{
	static const char safe[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:,+@-=";

	return *s && s[strspn(s, safe)] == 0;
}

static bool has_control(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			return true;
	return false;
}

static size_t port_word(const char *s)
{
	return str_starts(s, "${PORT}") ? 7 : str_starts(s, "$PORT") ? 5 : 0;
}

static void add_percent_safe(struct strbuf *b, const char *s)
{
	for (; *s; s++)
		strbuf_adds(b, *s == '%' ? "%%" : (char[]){*s, 0});
}

/* In double quotes, where $PORT is expanded and nothing else is. */
static void add_with_port(struct strbuf *b, const char *s)
{
	strbuf_addc(b, '"');
	while (*s) {
		size_t n = port_word(s);

		if (n) {
			strbuf_adds(b, "${PORT}");
			s += n;
			continue;
		}
		if (strchr("\"\\$`", *s))
			strbuf_addc(b, '\\');
		if (*s == '%')
			strbuf_addc(b, '%');
		strbuf_addc(b, *s++);
	}
	strbuf_addc(b, '"');
}

static void add_quoted(struct strbuf *b, const char *s)
{
	strbuf_addc(b, '\'');
	for (; *s; s++)
		strbuf_adds(b, *s == '\'' ? "'\\''" : *s == '%' ? "%%" : (char[]){*s, 0});
	strbuf_addc(b, '\'');
}

static void add_exec(struct strbuf *b, char *const *words, bool port)
{
	strbuf_adds(b, "Exec=");
	for (size_t i = 0; words[i]; i++) {
		if (i)
			strbuf_addc(b, ' ');
		if (is_plain(words[i]))
			strbuf_adds(b, words[i]);
		else if (port && (str_eq(words[i], "$PORT") || str_eq(words[i], "${PORT}")))
			strbuf_adds(b, "$PORT");
		else if (port && strstr(words[i], "$PORT"))
			add_with_port(b, words[i]);
		else if (port && strstr(words[i], "${PORT}"))
			add_with_port(b, words[i]);
		else
			add_quoted(b, words[i]);
	}
	strbuf_addc(b, '\n');
}

struct wish {
	const char *name;
	char *cwd;
	char *const *words;
	const char *port; /* or NULL */
	struct strv allow;
};

static void finish(struct wish *w)
{
	free(w->cwd);
	strv_clear(&w->allow);
}

static char *unit_text(const struct wish *w)
{
	struct strbuf b = STRBUF_INIT;

	strbuf_addf(&b,
		    "# %s: written by sbxsv new. The keys are in sbxsv.app(5); what they amount to: sbxsv "
		    "cat %s --effective\n",
		    w->name, w->name);
	strbuf_adds(&b, "[App]\n");
	add_exec(&b, w->words, w->port != NULL);
	strbuf_adds(&b, "WorkingDirectory=");
	add_percent_safe(&b, w->cwd);
	strbuf_adds(&b, "\n");
	if (w->port || w->allow.n)
		strbuf_adds(&b, "\n[Network]\n");
	if (w->port)
		strbuf_addf(&b, "Listen=%s\n", w->port);
	for (size_t i = 0; i < w->allow.n; i++)
		strbuf_addf(&b, "Allow=%s\n", w->allow.v[i]);
	return strbuf_take(&b);
}

/* $PORT is expanded when the unit is read; everything else must come back byte by byte. */
static char *expanded(const char *word, const char *port)
{
	struct strbuf b = STRBUF_INIT;

	strbuf_adds(&b, "");
	while (*word) {
		size_t n = port ? port_word(word) : 0;

		if (n)
			strbuf_adds(&b, port);
		else
			strbuf_addc(&b, *word);
		word += n ? n : 1;
	}
	return strbuf_take(&b);
}

static bool says_what_was_asked(const struct unit *u, const struct wish *w)
{
	size_t n = 0;

	for (; w->words[n]; n++) {
		CLEANUP_FREE char *want = expanded(w->words[n], w->port);

		if (n >= u->exec.n || strcmp(u->exec.v[n], want) != 0)
			return false;
	}
	if (n != u->exec.n || !str_eq(u->working_directory, w->cwd) || u->allow.n != w->allow.n ||
	    u->n_listen != (w->port ? 1u : 0u))
		return false;
	for (size_t i = 0; i < u->allow.n; i++)
		if (strcmp(u->allow.v[i].text, w->allow.v[i]) != 0)
			return false;
	return true;
}

static int verify(const struct cli *c, const struct wish *w, const char *text)
{
	struct unit_problems problems = {0};
	CLEANUP_FREE char *file = xasprintf("%s.app", w->name), *wrong = NULL;
	CLEANUP_UNIT struct unit *u =
		unit_parse_buffer(&c->dirs, w->name, file, text, strlen(text), &problems);
	struct unit_scan scan = {0};

	if (u && u->n_listen && unit_scan_dir(&c->dirs, &scan, NULL) == 0) {
		unit_clash_check(u, &scan, scan.n, &problems);
		unit_scan_finish(&scan);
	}

	wrong = unit_problems_text(&problems);
	unit_problems_clear(&problems);
	if (str_eq(w->cwd, c->dirs.home))
		return cli_fail(CLI_FAILED,
				"nothing was written: an app gets a directory of its own, never %s "
				"as a whole; make one, go there and say it again",
				w->cwd);
	if (*wrong)
		return cli_fail(CLI_FAILED, "nothing was written, because the unit would not be valid:\n%s",
				wrong);
	if (!says_what_was_asked(u, w))
		return cli_fail(
			CLI_FAILED,
			"nothing was written: a unit file cannot carry this command, directory or rule as "
			"it is; write the unit by hand (sbxsv.app(5)), or put the command into a script");
	return CLI_OK;
}

/* Never over a file that is there. A rename is one event to whoever watches the directory, a link and an
 * unlink are easily taken for a file that is still being written; but not every file system has it
 * (renameat2(2)). */
static int publish(int dir, const char *tmp, const char *file)
{
	if (renameat2(dir, tmp, dir, file, RENAME_NOREPLACE) == 0)
		return 0;
	return errno == EINVAL || errno == ENOSYS ? linkat(dir, tmp, dir, file, 0) : -1;
}

/* 0, or -1 with errno: EEXIST when a unit of that name is there. A watcher never sees half a file. */
static int write_new(int dir, const char *name, const char *text)
{
	CLEANUP_FREE char *tmp = xasprintf(".%s.app.%d", name, (int)getpid()),
			  *file = xasprintf("%s.app", name);
	CLEANUP_FD int fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	int r, saved;

	if (fd < 0)
		return -1;
	r = fd_write_all(fd, text, strlen(text)) || fsync(fd) ? -1 : publish(dir, tmp, file);
	saved = errno;
	(void)unlinkat(dir, tmp, 0);
	if (r == 0)
		(void)fsync(dir);
	errno = saved;
	return r;
}

static int store(const struct cli *c, const struct wish *w, const char *text)
{
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FREE char *path = xasprintf("%s/%s.app", c->dirs.apps, w->name);
	CLEANUP_FD int dir = open(c->dirs.apps, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0 && errno == ENOENT)
		dir = file_private_dir(c->dirs.apps, &e);
	else if (dir < 0)
		(void)err_sys(&e, errno, "%s", c->dirs.apps);
	if (dir < 0)
		return cli_fail(CLI_FAILED, "%s", err_msg(e));
	if (write_new(dir, w->name, text)) {
		if (errno == EEXIST)
			return cli_fail(CLI_FAILED, "%s is there already; nothing was changed", path);
		return cli_fail(CLI_FAILED, "%s: %s", path, strerror(errno));
	}
	printf("wrote %s\n"
	       "what it may do: sbxsv cat %s --effective\n"
	       "is it right:    sbxsv check %s\n"
	       "start it:       sbxsv up (a running supervisor starts it by itself), then sbxsv status %s\n",
	       path, w->name, w->name, w->name);
	return CLI_OK;
}

static int wish_of(const struct cli_args *a, struct wish *w)
{
	uint16_t port;
	int code = CLI_OK;

	w->name = a->rest[0];
	w->words = a->rest + 1;
	w->port = cli_value(a, 'p');
	w->cwd = getcwd(NULL, 0);
	for (size_t i = 0; i < a->n_opts; i++)
		if (a->opts[i].id == 'a')
			strv_add(&w->allow, a->opts[i].value);
	if (!unit_name_valid(w->name) || strchr(w->name, '@'))
		return cli_usage(&cmd_new,
				 "new: \"%s\" is no name of an app: a-z, 0-9, _ and -, at most 63 characters",
				 w->name);
	if (w->port && parse_port(w->port, &port))
		return cli_usage(&cmd_new, "new --port: a number from 1 to 65535 is needed");
	if (!w->cwd)
		return cli_fail(CLI_FAILED, "the working directory: %s", strerror(errno));
	for (size_t i = 0; w->words[i]; i++)
		if (has_control(w->words[i]))
			code = cli_fail(CLI_FAILED, "a unit file cannot hold a word with control characters; "
						    "put the command into a "
						    "script");
	for (size_t i = 0; i < w->allow.n; i++)
		if (has_control(w->allow.v[i]))
			code = cli_fail(CLI_FAILED, "--allow: a host has no control characters");
	if (has_control(w->cwd) || strstr(w->cwd, "$PORT") || strstr(w->cwd, "${PORT}"))
		code = cli_fail(CLI_FAILED,
				"the working directory's name cannot be written into a unit file");
	return code;
}

static int run(struct cli *c, const struct cli_args *a)
{
	CLEANUP(finish) struct wish w = {0};
	CLEANUP_FREE char *text = NULL;
	int code;

	if (a->dashes != 1 || a->n_rest < 2)
		return cli_usage(&cmd_new, "new: a name, then \"--\", then the command");
	code = wish_of(a, &w);
	if (code)
		return code;
	text = unit_text(&w);
	code = verify(c, &w, text);
	return code ? code : store(c, &w, text);
}

static const struct cli_option options[] = {
	{'p', "port", "N", "the port it serves; the unit's Listen="},
	{'a', "allow", "HOST", "a site it may reach; may be given several times"},
	{0, NULL, NULL, NULL},
};

const struct command cmd_new = {
	.name = "new",
	.usage = "new NAME [--port N] [--allow HOST]... -- COMMAND [ARGUMENT]...",
	.help = "write a unit that runs COMMAND in this directory; $PORT in it becomes the port",
	.options = options,
	.fn = run,
};
