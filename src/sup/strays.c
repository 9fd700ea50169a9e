/*
 * Processes of apps without a pid namespace (Enforce=off). There "survivors possible" is the truth and is
 * shown; this file makes it rare.
 *
 *   - Below the app's init, a subreaper, everything can be found by its parents and killed.
 *   - If that init itself was killed, what it had adopted becomes our child (we are a subreaper too). A child
 * that nobody knows, in a session that is not ours, is such an orphan: its zombie is reaped here, and it is
 * killed as soon as the app that its SBXSV_APP names does not run. Children of other modules live in our own
 * session and are left to them.
 *   - As pid 1 of a container every orphan becomes our child (main.c gave us a session of our own by then): the
 * same reaping.
 */
#include "sup/app.h"
#include "base/file.h"
#include "base/log.h"
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

struct process {
	pid_t pid, parent, session;
	char state;
	bool wanted;
};
struct processes {
	struct process *v;
	size_t n, cap;
};

static int read_process(pid_t pid, struct process *ret)
{
	char path[48], buf[512];
	const char *p;

	(void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	if (file_read_proc(path, buf, sizeof buf) < 0)
		return -1;
	p = strrchr(buf, ')'); /* the command may hold anything, parentheses too; proc(5) */
	*ret = (struct process){.pid = pid};
	if (!p || sscanf(p + 1, " %c %d %*d %d", &ret->state, &ret->parent, &ret->session) != 3)
		return -1;
	return 0;
}

static void list_processes(struct processes *ret)
{
	CLEANUP_DIR DIR *d = opendir("/proc");
	const struct dirent *de;

	while (d && (de = readdir(d))) {
		pid_t pid = (pid_t)strtol(de->d_name, NULL, 10);
		struct process p;

		if (pid <= 1 || read_process(pid, &p) < 0)
			continue;
		VEC_GROW(ret->v, ret->n, ret->cap);
		ret->v[ret->n++] = p;
	}
}

/* By pidfd, looked at again after it is open: the number may have gone to another process meanwhile. */
static void kill_checked(const struct process *p)
{
	CLEANUP_FD int fd = pidfd_open_pid(p->pid);
	struct process now;

	if (fd >= 0 && read_process(p->pid, &now) == 0 && now.session == p->session &&
	    now.parent == p->parent)
		(void)pidfd_signal(fd, SIGKILL);
}

static bool is_wanted(const struct processes *all, pid_t pid)
{
	for (size_t i = 0; i < all->n; i++)
		if (all->v[i].pid == pid)
			return all->v[i].wanted;
	return false;
}

void strays_kill_below(pid_t init)
{
	struct processes all = {0};
	bool more = true;

	list_processes(&all);
	while (more) { /* as often as the tree is deep */
		more = false;
		for (size_t i = 0; i < all.n; i++) {
			struct process *p = &all.v[i];

			if (p->wanted || (p->parent != init && !is_wanted(&all, p->parent)))
				continue;
			p->wanted = more = true;
		}
	}
	for (size_t i = 0; i < all.n; i++)
		if (all.v[i].wanted)
			kill_checked(&all.v[i]);
	free(all.v);
}

static bool known_child(const struct sup *s, pid_t pid)
{
	if (proxyctl_pid(s->proxy) == pid || hooks_knows(s, pid))
		return true;
	for (const struct app *a = s->apps; a; a = a->next)
		if (a->launch && a->pid == pid)
			return true;
	return false;
}

static bool its_app_runs(const struct sup *s, pid_t pid)
{
	CLEANUP_FREE char *buf = xmalloc(65536);
	static const char key[] = "SBXSV_APP=";
	const struct app *a;
	char path[48];
	int n;

	(void)snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
	n = file_read_proc(path, buf, 65536);
	for (int i = 0; i < n; i += (int)strlen(buf + i) + 1)
		if (str_starts(buf + i, key)) {
			a = app_find(s, buf + i + sizeof key - 1);
			return a && app_alive(a);
		}
	return true; /* nobody's: left alone until the supervisor ends */
}

/* Our children that nobody knows, as the kernel lists them. False: not to be had (CONFIG_PROC_CHILDREN), too many, or we have
 * threads, which have children of their own. A child that ends meanwhile can hide another (proc(5)): its SIGCHLD brings
 * us here again. */
static bool list_children(const struct sup *s, struct processes *ret)
{
	char path[48], buf[16384];
	struct stat tasks;
	int n;

	(void)snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	n = file_read_proc(path, buf, sizeof buf);
	if (n < 0 || n >= (int)sizeof buf - 1 || stat("/proc/self/task", &tasks) < 0 || tasks.st_nlink != 3)
		return false;
	for (char *at = buf, *end; *at; at = end) {
		pid_t pid = (pid_t)strtol(at, &end, 10);
		struct process p;

		if (end == at)
			break;
		if (known_child(s, pid) || read_process(pid, &p) < 0)
			continue;
		VEC_GROW(ret->v, ret->n, ret->cap);
		ret->v[ret->n++] = p;
	}
	return true;
}

static void each_orphan(struct sup *s, bool kill_all)
{
	struct processes all = {0};

	if (kill_all || !list_children(s, &all))
		list_processes(&all);
	for (size_t i = 0; i < all.n; i++) {
		const struct process *p = &all.v[i];

		if (p->parent != getpid() || p->session == getsid(0) || known_child(s, p->pid))
			continue;
		if (p->state == 'Z')
			(void)waitpid(p->pid, NULL, WNOHANG);
		else if (kill_all || !its_app_runs(s, p->pid))
			kill_checked(p);
	}
	free(all.v);
}

void strays_kill_all(struct sup *s)
{
	if (s->any_unjailed)
		each_orphan(s, true);
}

static void on_child(struct loop_signal *w)
{
	struct sup *s = w->data;

	if (s->any_unjailed)
		each_orphan(s, false);
}

void strays_look(struct sup *s)
{
	on_child(&s->child_signal);
}

void strays_init(struct sup *s)
{
	s->any_unjailed |= getpid() == 1;
	loop_signal_init(s->loop, &s->child_signal, SIGCHLD, on_child, s);
}
