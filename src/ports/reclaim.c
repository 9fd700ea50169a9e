/* Is a holder an orphan of the app? See ports.h. */
#include "ports/internal.h"
#include "base/fd.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#define DEPTH_MAX 512 /* levels walked up; PATH_MAX / 8 */

static bool no(char **why, const char *fmt, ...) PRINTF_LIKE(2, 3);
static bool no(char **why, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	*why = xvasprintf(fmt, ap);
	va_end(ap);
	return false;
}

/* Real, effective, saved and file-system uid, all of them. */
static bool runs_as(pid_t pid, uid_t uid, char **why)
{
	char path[64], buf[4096], *line;
	unsigned v[4];

	(void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	if (file_read_proc(path, buf, sizeof buf) <= 0 || !(line = strstr(buf, "\nUid:")) ||
	    sscanf(line, "\nUid: %u %u %u %u", &v[0], &v[1], &v[2], &v[3]) != 4)
		return no(why, "its user cannot be read");
	for (size_t i = 0; i < ELEMENTS(v); i++)
		if (v[i] != uid)
			return no(why, "it runs as uid %u, the app as uid %u", v[i], uid);
	return true;
}

static bool in_our_mount_namespace(pid_t pid, char **why)
{
	char path[64];
	struct stat ours, its;

	(void)snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)pid);
	if (stat("/proc/self/ns/mnt", &ours) < 0 || stat(path, &its) < 0)
		return no(why, "its mount namespace cannot be read");
	return file_same(&ours, &its) ||
	       no(why, "it is in another mount namespace (a container or a sandbox)");
}

/* From the directory object itself upwards. ".." of a directory is what the kernel says it is. */
static bool cwd_inside(pid_t pid, const char *dir, char **why)
{
	CLEANUP_FD int top = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	CLEANUP_FD int at = -1;
	struct stat want, st, before;
	char path[64];

	if (top < 0 || fstat(top, &want) < 0)
		return no(why, "the app's directory %s: %s", dir, strerror(errno));
	(void)snprintf(path, sizeof path, "/proc/%d/cwd", (int)pid);
	at = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (at < 0 || fstat(at, &st) < 0)
		return no(why, "its working directory cannot be opened: %s", strerror(errno));
	for (unsigned i = 0; i < DEPTH_MAX; i++) {
		int up;

		if (file_same(&st, &want))
			return true;
		before = st;
		up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (up < 0 || fstat(up, &st) < 0) {
			int saved = errno;

			if (up >= 0)
				(void)close(up);
			return no(why, "the way up from its working directory is closed: %s",
				  strerror(saved));
		}
		(void)close(at);
		at = up;
		if (file_same(&st, &before))
			break; /* the root */
	}
	return no(why, "its working directory is not inside %s", dir);
}

/* The last part of the cgroup v2 path (or of systemd's own hierarchy on v1), cgroups(7). "" when there is
 * none. */
static void cgroup_leaf(pid_t pid, char *ret, size_t cap)
{
	char path[64], buf[4096], *save = NULL;

	ret[0] = 0;
	(void)snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
	if (file_read_proc(path, buf, sizeof buf) <= 0)
		return;
	for (char *line = strtok_r(buf, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (str_starts(line, "0::") || strstr(line, ":name=systemd:"))
			(void)snprintf(ret, cap, "%s", path_basename(line));
}

/* There is no file that says "subreaper": init is one, we may be one, and so is systemd's user manager, which
 * the name of its cgroup gives away (systemd.special(7), init.scope). */
static bool is_reaper(pid_t pid, char **why)
{
	char leaf[256], path[64], comm[64];
	int self = 0;

	if (pid == 1)
		return true;
	if (pid == getpid() && prctl(PR_GET_CHILD_SUBREAPER, &self, 0, 0, 0) == 0 && self)
		return true;
	(void)snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
	cgroup_leaf(pid, leaf, sizeof leaf);
	if (file_read_proc(path, comm, sizeof comm) > 0 && str_eq(comm, "systemd\n") &&
	    str_eq(leaf, "init.scope"))
		return true;
	return no(why, "it was started by pid %d, which is still there", (int)pid);
}

/* A service of systemd has init (or the user manager) as its parent from birth: it is in somebody's care. */
static bool is_no_service(pid_t pid, char **why)
{
	char its[256], ours[256];

	cgroup_leaf(pid, its, sizeof its);
	cgroup_leaf(getpid(), ours, sizeof ours);
	return !str_ends(its, ".service") || str_eq(its, ours) ||
	       no(why, "it belongs to the service %s", its);
}

static bool nobody_is_in_charge(const struct reclaim_request *r, const struct port_holder *h,
				const struct ports_stat *st, char **why)
{
	if (st->tty_nr != 0)
		return no(why, "it has a controlling terminal");
	if (r->recorded_pid == h->pid && r->recorded_start == h->start && r->recorded_start)
		return true;
	return is_reaper(st->ppid, why) && is_no_service(h->pid, why);
}

bool ports_is_orphan(const struct reclaim_request *r, const struct port_holder *h, char **why)
{
	struct ports_stat st;

	if (h->pid <= 0)
		return no(why, "it belongs to another user (uid %u)", h->uid);
	if (h->pid == 1 || h->pid == getpid() || h->pid == getppid())
		return no(why, "it is init, or this supervisor, or what started it");
	if (ports_stat(h->pid, &st) < 0)
		return no(why, "it is gone");
	if (st.start != h->start)
		return no(why, "its pid has been given to another process");
	return runs_as(h->pid, r->app_uid, why) && in_our_mount_namespace(h->pid, why) &&
	       cwd_inside(h->pid, r->app_directory, why) && nobody_is_in_charge(r, h, &st, why);
}

static bool still_holds(uint16_t port, pid_t pid, char **why)
{
	struct port_holders now = {0};
	bool found = false;

	if (ports_find(port, PORTS_AUTO, &now, NULL) < 0)
		return no(why, "who holds the port cannot be read again");
	for (size_t i = 0; i < now.n; i++)
		found |= now.v[i].pid == pid;
	port_holders_finish(&now);
	return found || no(why, "it no longer holds the port");
}

int ports_orphan_pidfd(const struct reclaim_request *r, const struct port_holder *h, struct err **e)
{
	CLEANUP_FREE char *why = NULL;
	CLEANUP_FREE char *who = ports_describe(h);
	CLEANUP_FD int fd = h->pid > 1 ? pidfd_open_pid(h->pid) : -1;

	if (h->pid > 1 && fd < 0)
		return err_sys(e, errno, "%s", who);
	/* While the pidfd is alive the pid is its: what is read now is about the process that will be
	 * signalled. */
	if (!ports_is_orphan(r, h, &why) || !still_holds(r->port, h->pid, &why))
		return err_set(e, EPERM, "%s is left alone: %s", who, why);
	if (pidfd_is_dead(fd))
		return err_set(e, ESRCH, "%s has just ended", who);
	return TAKE_FD(fd);
}
