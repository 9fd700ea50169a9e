/*
 * Starting with the person's session: a unit of systemd's user manager where one runs, else an entry of XDG
 * autostart. Only files with our mark are replaced or removed. A supervisor of root is the administrator's: the
 * command is said, nothing is done.
 */
#include "cli/cli.h"
#include "base/file.h"
#include "base/program.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define MARK "# Written by `sbxsv autostart on`; `sbxsv autostart off` removes it."

struct place {
	bool systemd;
	char *dir, *file; /* file: base name */
	char *unit;       /* "sbxsv" or "sbxsv-INSTANCE" */
};

static void place_finish(struct place *p)
{
	free(p->dir);
	free(p->file);
	free(p->unit);
}

/* What systemctl --user talks to, see systemd's src/basic/bus-util: absent without a user manager. */
static bool has_user_manager(void)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	CLEANUP_FREE char *path =
		runtime && *runtime == '/' ? xasprintf("%s/systemd/private", runtime) : NULL;

	return path && access(path, F_OK) == 0;
}

static void place_of(const struct cli *c, bool systemd, struct place *p)
{
	const char *config = getenv("XDG_CONFIG_HOME");
	CLEANUP_FREE char *base =
		config && *config == '/' ? xstrdup(config) : path_join(c->dirs.home, ".config");

	p->systemd = systemd;
	p->unit = xasprintf("sbxsv%s%s", c->instance ? "-" : "", c->instance ? c->instance : "");
	p->dir = path_join(base, systemd ? "systemd/user" : "autostart");
	p->file = xasprintf("%s.%s", p->unit, systemd ? "service" : "desktop");
}

/* Neither format takes any path: blanks, quotes, % and \ are refused rather than escaped. */
static bool is_plain(const char *path)
{
	static const char safe[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+@-";

	return path && path[0] == '/' && path[strspn(path, safe)] == 0;
}

static char *text_of(const struct cli *c, const struct place *p, const char *program)
{
	CLEANUP_FREE char *instance = c->instance ? xasprintf(" --instance %s", c->instance) : xstrdup("");

	if (p->systemd)
		return xasprintf(
			MARK
			"\n[Unit]\nDescription=Supervisor of sandboxed local "
			"apps%s%s\n\n[Service]\nType=notify\nNotifyAccess=main\n"
			"ExecStart=%s%s --foreground\nExecReload=/bin/kill -HUP $MAINPID\nKillMode=mixed\n"
			"TimeoutStopSec=10\nRestart=on-failure\nRestartSec=1\nDelegate=yes\nEnvironment="
			"SBXSV_DELEGATED=1\n"
			"OOMPolicy=continue\n\n[Install]\n"
			"WantedBy=default.target\n",
			c->instance ? ", " : "", c->instance ? c->instance : "", program, instance);
	return xasprintf("[Desktop Entry]\n" MARK "\nType=Application\nName=%s\n"
			 "Comment=Start the supervisor of sandboxed local apps\nExec=%s%s "
			 "up\nTerminal=false\nNoDisplay=true\n",
			 p->unit, program, instance);
}

/* 1: ours, 0: absent, -1: somebody else's, after a message. */
static int is_ours(const struct place *p)
{
	CLEANUP_FREE char *path = path_join(p->dir, p->file), *text = NULL;
	CLEANUP_ERR struct err *e = NULL;
	size_t len;

	if (file_read(AT_FDCWD, path, 65536, &text, &len, &e)) {
		if (err_code(e) == ENOENT)
			return 0;
		(void)cli_fail(CLI_FAILED, "%s", err_msg(e));
		return -1;
	}
	if (strstr(text, MARK))
		return 1;
	(void)cli_fail(CLI_FAILED, "%s is not of sbxsv autostart; nothing was changed", path);
	return -1;
}

static int systemctl(const char *verb, const char *unit)
{
	int status = 0;
	pid_t pid;

	(void)fflush(NULL);
	pid = fork();
	if (pid == 0) {
		if (unit)
			(void)execlp("systemctl", "systemctl", "--user", "--quiet", verb, unit, (char *)NULL);
		else
			(void)execlp("systemctl", "systemctl", "--user", verb, (char *)NULL);
		_exit(127);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return CLI_OK;
	return cli_fail(CLI_FAILED, "this failed: systemctl --user %s %s", verb, unit ? unit : "");
}

static int on(const struct cli *c, const struct place *p)
{
	CLEANUP_FREE char *program = p->systemd ? program_find("sbxsvd", SBXSV_SBINDIR)
						: program_find("sbxsv", SBXSV_BINDIR),
			  *text = NULL;
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FD int dir = -1;
	int code;

	if (!is_plain(program))
		return cli_fail(CLI_FAILED,
				"the program is not found, or its path cannot be written there: %s",
				program ? program : "");
	if (is_ours(p) < 0)
		return CLI_FAILED;
	text = text_of(c, p, program);
	dir = file_private_dir(p->dir, &e);
	if (dir < 0 || file_write_atomic(dir, p->file, text, strlen(text), 0644, &e))
		return cli_fail(CLI_FAILED, "%s", err_msg(e));
	printf("wrote %s/%s\n", p->dir, p->file);
	if (!p->systemd)
		return CLI_OK;
	code = systemctl("daemon-reload", NULL);
	return code ? code : systemctl("enable", p->unit);
}

static int off(const struct place *p, bool *any)
{
	CLEANUP_FREE char *path = path_join(p->dir, p->file);
	int ours = is_ours(p), code = CLI_OK;

	if (ours <= 0)
		return ours < 0 ? CLI_FAILED : CLI_OK;
	if (p->systemd && has_user_manager())
		code = systemctl("disable", p->unit);
	if (unlink(path) < 0 && errno != ENOENT)
		return cli_fail(CLI_FAILED, "%s: %s", path, strerror(errno));
	printf("removed %s\n", path);
	*any = true;
	return code;
}

static int run(struct cli *c, const struct cli_args *a)
{
	CLEANUP(place_finish) struct place unit = {0}, entry = {0};
	bool is_on = a->n_rest == 1 && str_eq(a->rest[0], "on"), any = false;
	int code;

	if (a->n_rest != 1 || (!is_on && !str_eq(a->rest[0], "off")))
		return cli_usage(&cmd_autostart, "autostart: on or off");
	if (c->dirs.root_mode)
		return cli_fail(CLI_FAILED,
				"a supervisor of root starts with the machine, which is the administrator's "
				"to set up; "
				"with the unit of contrib/systemd: systemctl %s sbxsv",
				is_on ? "enable --now" : "disable --now");
	place_of(c, true, &unit);
	place_of(c, false, &entry);
	if (is_on)
		return on(c, has_user_manager() ? &unit : &entry);
	code = off(&unit, &any);
	code = code ? code : off(&entry, &any);
	if (!code && !any)
		puts("it was not on");
	return code;
}

const struct command cmd_autostart = {
	.name = "autostart",
	.usage = "autostart on|off",
	.help = "start the supervisor with your session, or do not",
	.fn = run,
};
