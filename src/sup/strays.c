/*
 * Processes that got away from an app without a pid namespace (Enforce=off). There "survivors possible" is
 * the truth and is shown; this file makes it rare. sbxsvd is a subreaper, so what double-forks becomes our
 * child:
 *
 *   - its zombie is reaped here, as nobody else knows it. Children of other modules live in our own session
 * and are left to them;
 *   - when the app ends, what is left of its session is killed, and so is an adopted child that carries the
 *     app's SBXSV_APP in its environment, whichever session it made. One that also changed its environment
 * survives until the supervisor ends.
 */
#include "sup/app.h"
#include "base/file.h"
#include "base/log.h"
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

struct stat_line {
	char state;
	pid_t parent, session;
};

static int read_stat(pid_t pid, struct stat_line *ret)
{
	char path[48], buf[512];
	const char *p;

	(void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	if (file_read_proc(path, buf, sizeof buf) < 0)
		return -1;
	p = strrchr(buf, ')'); /* the command may hold anything, parentheses too; proc(5) */
	if (!p || sscanf(p + 1, " %c %d %*d %d", &ret->state, &ret->parent, &ret->session) != 3)
		return -1;
	return 0;
}

static bool known_child(const struct sup *s, pid_t pid)
{
	if (s->proxy && proxyctl_pid(s->proxy) == pid)
		return true;
	for (const struct app *a = s->apps; a; a = a->next)
		if (a->launch && a->pid == pid)
			return true;
	return false;
}

static bool carries_name(pid_t pid, const char *app)
{
	CLEANUP_FREE char *want = app ? xasprintf("SBXSV_APP=%s", app) : NULL;
	CLEANUP_FREE char *buf = xmalloc(65536);
	char path[48];
	int n;

	(void)snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
	n = file_read_proc(path, buf, 65536);
	for (int i = 0; i < n; i += (int)strlen(buf + i) + 1)
		if (want ? str_eq(buf + i, want) : str_starts(buf + i, "SBXSV_APP="))
			return true;
	return false;
}

typedef void stray_fn(struct sup *s, pid_t pid, const struct stat_line *st, const struct app *a);

static void each_process(struct sup *s, const struct app *a, stray_fn *fn)
{
	CLEANUP_DIR DIR *d = opendir("/proc");
	const struct dirent *de;
	struct stat_line st;

	while (d && (de = readdir(d))) {
		pid_t pid = (pid_t)strtol(de->d_name, NULL, 10);

		if (pid > 1 && pid != getpid() && !known_child(s, pid) && read_stat(pid, &st) == 0)
			fn(s, pid, &st, a);
	}
}

/* By pidfd, looked at again after it is open: the number may have gone to another process meanwhile. */
static void kill_checked(pid_t pid, const struct stat_line *before)
{
	CLEANUP_FD int fd = pidfd_open_pid(pid);
	struct stat_line now;

	if (fd >= 0 && read_stat(pid, &now) == 0 && now.session == before->session &&
	    now.parent == before->parent)
		(void)pidfd_signal(fd, SIGKILL);
}

static void kill_of_app(struct sup *s, pid_t pid, const struct stat_line *st, const struct app *a)
{
	(void)s;
	if (st->session == a->pid || (st->parent == getpid() && carries_name(pid, a->name)))
		kill_checked(pid, st);
}

static void kill_adopted(struct sup *s, pid_t pid, const struct stat_line *st, const struct app *a)
{
	(void)s;
	(void)a;
	if (st->parent == getpid() && st->session != getsid(0))
		kill_checked(pid, st);
}

static void reap(struct sup *s, pid_t pid, const struct stat_line *st, const struct app *a)
{
	(void)s;
	(void)a;
	if (st->state == 'Z' && st->parent == getpid() && st->session != getsid(0))
		(void)waitpid(pid, NULL, WNOHANG);
}

void strays_kill(struct app *a)
{
	each_process(a->sup, a, kill_of_app);
}

void strays_kill_all(struct sup *s)
{
	if (s->any_unjailed)
		each_process(s, NULL, kill_adopted);
}

static void on_child(struct loop_signal *w)
{
	struct sup *s = w->data;

	if (s->any_unjailed)
		each_process(s, NULL, reap);
}

void strays_init(struct sup *s)
{
	loop_signal_init(s->loop, &s->child_signal, SIGCHLD, on_child, s);
}
