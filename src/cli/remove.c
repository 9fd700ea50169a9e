/*
 * An app's unit and drop-ins, and with --purge its logs. The app is stopped first; its own directories are never
 * touched: nothing here follows a path that a unit names.
 */
#include "cli/remote.h"
#include "cli/units.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { OPT_PURGE = CLI_LONG };

/* Regular files and links of a directory for which `ours` holds, and the directory when nothing is left. */
static int empty(int at, const char *dir, const char *shown, bool (*ours)(const char *file, const char *name),
		 const char *name, bool rmdir)
{
	CLEANUP_FD int fd = openat(at, dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	CLEANUP_DIR DIR *d = fd < 0 ? NULL : fdopendir(fd);
	int code = CLI_OK;

	if (!d)
		return errno == ENOENT ? CLI_OK : cli_fail(CLI_FAILED, "%s: %s", shown, strerror(errno));
	fd = -1; /* d's */
	for (struct dirent *ent; (ent = readdir(d));) {
		CLEANUP_FREE char *safe = cli_safe(ent->d_name);

		if (str_eq(ent->d_name, ".") || str_eq(ent->d_name, "..") || !ours(ent->d_name, name))
			continue;
		if (unlinkat(dirfd(d), ent->d_name, 0) < 0 && errno != ENOENT)
			code = cli_fail(CLI_FAILED, "%s/%s: %s", shown, safe, strerror(errno));
		else
			printf("removed %s/%s\n", shown, safe);
	}
	if (rmdir && unlinkat(at, dir, AT_REMOVEDIR) < 0 && errno != ENOENT)
		code = cli_fail(CLI_FAILED, "%s: %s", shown, strerror(errno));
	return code;
}

static bool any(const char *file, const char *name)
{
	(void)file;
	(void)name;
	return true;
}

/* NAME.log, and NAME.log.1 and so on. */
static bool is_log(const char *file, const char *name)
{
	size_t n = strlen(name);

	if (strncmp(file, name, n) != 0 || !str_starts(file + n, ".log"))
		return false;
	file += n + 4;
	return !*file || (*file == '.' && file[1] && file[1 + strspn(file + 1, "0123456789")] == 0);
}

/* CLI_OK also when no supervisor runs. */
static int stop(struct cli *c, const char *name)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL;
	CLEANUP_JS struct js *body = js_obj(), *reply = NULL;
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FREE char *path = xasprintf("/v1/apps/%s/stop", name);
	long status = 0;

	cl = ctl_client_open(&c->dirs, &e);
	if (!cl)
		return remote_open_code(e) == CLI_NO_SUPERVISOR
			       ? CLI_OK
			       : cli_fail(remote_open_code(e), "%s", err_msg(e));
	js_add_bool(body, "wait", true);
	reply = ctl_client_call(cl, "POST", path, body, &status, &e);
	if (!reply)
		return cli_fail(CLI_FAILED, "%s could not be stopped, nothing was removed: %s", name,
				err_msg(e));
	/* one that the supervisor does not know has nothing to stop */
	if (js_int_or(reply, "code", 0) == CLI_NO_APP)
		return CLI_OK;
	if (status == 200 && js_str(reply, "message")) /* which others were stopped with it */
		remote_print_lines("", js_str(reply, "message"));
	if (status == 200)
		return CLI_OK;
	return cli_fail(CLI_FAILED, "%s could not be stopped, nothing was removed: %s", name,
			js_str(reply, "error") ? js_str(reply, "error") : "refused");
}

static int unit_files(struct cli *c, const char *name)
{
	CLEANUP_FD int apps = open(c->dirs.apps, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CLEANUP_FREE char *file = xasprintf("%s.app", name), *dir = xasprintf("%s.app.d", name),
			  *shown = xasprintf("%s/%s", c->dirs.apps, dir);

	if (apps < 0)
		return cli_fail(CLI_FAILED, "%s: %s", c->dirs.apps, strerror(errno));
	if (unlinkat(apps, file, 0) < 0)
		return errno == ENOENT
			       ? cli_fail(CLI_NO_APP, "there is no unit %s/%s", c->dirs.apps, file)
			       : cli_fail(CLI_FAILED, "%s/%s: %s", c->dirs.apps, file, strerror(errno));
	printf("removed %s/%s\n", c->dirs.apps, file);
	return empty(apps, dir, shown, any, name, true);
}

static int one(struct cli *c, const char *name, bool purge)
{
	CLEANUP_FREE char *logs = xasprintf("%s/logs", c->dirs.state),
			  *prepared = xasprintf("%s/prepared/%s", c->dirs.state, name),
			  *file = xasprintf("%s/%s.app", c->dirs.apps, name);
	int code = units_there(c, name), more;
	struct stat st;

	if (code)
		return code;
	if (lstat(file, &st) < 0) /* a link whose template is gone is one to remove */
		return cli_fail(CLI_FAILED,
				"%s is no app, there is only its template: sbxsv remove removes an instance, not a "
				"template",
				name);
	code = stop(c, name);
	code = code ? code : unit_files(c, name);
	more = code ? CLI_OK : units_reload(c);
	code = code ? code : more;
	if (code == CLI_OK && purge)
		code = empty(AT_FDCWD, logs, logs, is_log, name, false);
	if (code == CLI_OK && purge)
		(void)unlink(prepared);
	return code;
}

static int run(struct cli *c, const struct cli_args *a)
{
	int worst = CLI_OK;

	if (!a->n_rest)
		return cli_usage(&cmd_remove, "remove: name the apps");
	for (int i = 0; i < a->n_rest; i++) {
		int code = one(c, a->rest[i], cli_has(a, OPT_PURGE));

		if (code > worst)
			worst = code;
	}
	return worst;
}

static const struct cli_option options[] = {
	{OPT_PURGE, "purge", NULL, "its logs too; the directories of the app itself always stay"},
	{0, NULL, NULL, NULL},
};

const struct command cmd_remove = {
	.name = "remove",
	.usage = "remove APP... [--purge]",
	.help = "stop apps, and remove their units and drop-ins",
	.options = options,
	.fn = run,
};
