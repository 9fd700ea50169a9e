/* A unit in the person's editor: on a private copy, which replaces the unit only when the whole is without errors. */
#include "cli/units.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

struct editing {
	const char *name;
	char *path;       /* of the unit */
	char *dir, *copy; /* private */
	char *before;
	bool keep; /* the copy, because it was not taken */
};

static void finish(struct editing *x)
{
	if (x->copy && !x->keep) {
		(void)unlink(x->copy);
		(void)rmdir(x->dir); /* an editor may have left a backup: then both stay */
	}
	free(x->path);
	free(x->dir);
	free(x->copy);
	free(x->before);
}

static int make_copy(struct editing *x)
{
	const char *tmp = getenv("TMPDIR");
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FD int fd = -1;
	CLEANUP_FREE char *file = xasprintf("%s.app", x->name);
	size_t len;

	if (file_read(AT_FDCWD, x->path, 256 * 1024, &x->before, &len, &e))
		return cli_fail(CLI_FAILED, "%s", err_msg(e));
	x->dir = xasprintf("%s/sbxsv-edit-XXXXXX", tmp && *tmp == '/' ? tmp : "/tmp");
	if (!mkdtemp(x->dir))
		return cli_fail(CLI_FAILED, "%s: %s", x->dir, strerror(errno));
	x->copy = path_join(x->dir, file);
	fd = open(x->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || file_write_atomic(fd, file, x->before, len, 0600, &e))
		return cli_fail(CLI_FAILED, "%s: %s", x->copy, e ? err_msg(e) : strerror(errno));
	return CLI_OK;
}

/* The variable may hold options: a shell splits it, as everywhere (environ(7)). */
static int run_editor(const struct editing *x)
{
	const char *editor = getenv("VISUAL");
	int status = 0;
	pid_t pid;

	if (!editor || !*editor)
		editor = getenv("EDITOR");
	if (!editor || !*editor)
		editor = access("/usr/bin/editor", X_OK) == 0 ? "/usr/bin/editor" : "vi";
	(void)fflush(NULL);
	pid = fork();
	if (pid < 0)
		return cli_fail(CLI_FAILED, "fork: %s", strerror(errno));
	if (pid == 0) {
		CLEANUP_FREE char *line = xasprintf("%s \"$1\"", editor);

		(void)execl("/bin/sh", "sh", "-c", line, "sh", x->copy, (char *)NULL);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return cli_fail(CLI_FAILED, "the editor (%s) failed: %s is as it was", editor, x->path);
	return CLI_OK;
}

/* Somebody else may have saved it meanwhile: theirs is not overwritten. */
static int replace(struct editing *x, const char *text, size_t len)
{
	CLEANUP_FREE char *now = NULL, *dir = path_dirname(x->path);
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FD int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;
	size_t n = 0;

	if (fd < 0 || stat(x->path, &st) < 0)
		return cli_fail(CLI_FAILED, "%s: %s", x->path, strerror(errno));
	if (file_read(AT_FDCWD, x->path, 256 * 1024, &now, &n, &e))
		return cli_fail(CLI_FAILED, "%s", err_msg(e));
	if (!str_eq(now, x->before))
		return cli_fail(CLI_FAILED,
				"%s was changed by somebody else meanwhile; nothing was changed here",
				x->path);
	if (file_write_atomic(fd, path_basename(x->path), text, len, st.st_mode & 0755, &e))
		return cli_fail(CLI_FAILED, "%s", err_msg(e));
	return CLI_OK;
}

static int take(struct cli *c, struct editing *x)
{
	CLEANUP_FREE char *text = NULL, *wrong = NULL;
	CLEANUP_ERR struct err *e = NULL;
	struct unit_problems p = {0};
	CLEANUP_UNIT struct unit *u = NULL;
	struct stat st;
	bool is_link;
	size_t len = 0;
	int code;

	x->keep = true;
	if (file_read(AT_FDCWD, x->copy, 256 * 1024, &text, &len, &e))
		return cli_fail(CLI_FAILED, "%s\n%s is as it was; your text is kept there", err_msg(e),
				x->path);
	if (str_eq(text, x->before) && strlen(text) == len) {
		x->keep = false;
		puts("nothing was changed");
		return CLI_OK;
	}
	if (strlen(text) != len)
		unit_problem_add(&p, x->copy, 0, "it contains a NUL byte");
	else
		u = unit_load_edited(&c->dirs, x->name, text, &p);
	wrong = unit_problems_text(&p);
	unit_problems_clear(&p);
	if (!u || *wrong)
		return cli_fail(CLI_FAILED, "%s%s is as it was; your text is kept in %s", wrong, x->path,
				x->copy);
	is_link = lstat(x->path, &st) == 0 && S_ISLNK(st.st_mode);
	code = replace(x, text, len);
	if (code)
		return cli_fail(code, "your text is kept in %s", x->copy);
	x->keep = false;
	printf("wrote %s\n", x->path);
	if (is_link)
		puts("it was a link, and is a file of its own from now on; what it led to is as it was");
	return units_reload(c);
}

static int run(struct cli *c, const struct cli_args *a)
{
	CLEANUP(finish) struct editing x = {0};
	int code;

	if (a->n_rest != 1)
		return cli_usage(&cmd_edit, "edit: name one app");
	code = units_there(c, a->rest[0]);
	if (code)
		return code;
	x.name = a->rest[0];
	x.path = xasprintf("%s/%s.app", c->dirs.apps, x.name);
	if (access(x.path, F_OK) < 0)
		return cli_fail(CLI_FAILED, "%s has no file of its own, it comes from a template", x.name);
	code = make_copy(&x);
	code = code ? code : run_editor(&x);
	return code ? code : take(c, &x);
}

const struct command cmd_edit = {
	.name = "edit",
	.usage = "edit APP",
	.help = "change a unit in $VISUAL or $EDITOR; it is replaced when it has no errors",
	.fn = run,
};
