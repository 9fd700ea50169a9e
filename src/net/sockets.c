/*
 * Sockets made inside a jail's network namespace from outside.
 *
 * setns(CLONE_NEWUSER) is refused to a process with threads or a shared fs_struct, and the supervisor must
 * stay in its own namespaces anyway. So a helper is cloned that shares memory and the fd table
 * (CLONE_VM|CLONE_FILES) but is its own process: it joins the two namespaces, calls socket() n times,
 * straight into our fd table, and is gone. CLONE_VFORK holds us until then, so it may use our data; it runs
 * on its own stack with all signals blocked, and makes system calls only. Joining needs the supervisor to be
 * dumpable when it is not root: its own mm must not count as foreign.
 */
#include "base/fd.h"
#include "net/net.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct job {
	int userns_fd, netns_fd, *fds;
	size_t n, made;
	int error;
	const char *step;
};

__attribute__((no_sanitize("address", "undefined"))) static int fail(struct job *j, const char *step)
{
	j->error = errno;
	j->step = step;
	(void)syscall(SYS_exit, 1);
	return 1;
}

__attribute__((no_sanitize("address", "undefined"))) static int inside(void *p)
{
	struct job *j = p;
	int family = AF_INET6;

	if (syscall(SYS_setns, j->userns_fd, CLONE_NEWUSER) < 0)
		return fail(j, "cannot join the user namespace");
	if (syscall(SYS_setns, j->netns_fd, CLONE_NEWNET) < 0)
		return fail(j, "cannot join the network namespace");
	while (j->made < j->n) {
		long s = syscall(SYS_socket, family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

		if (s < 0 && errno == EAFNOSUPPORT && family == AF_INET6) {
			family = AF_INET;
			continue;
		}
		if (s < 0)
			return fail(j, "cannot make a socket inside");
		j->fds[j->made++] = (int)s;
	}
	(void)syscall(SYS_exit, 0); /* not exit(): the memory is our parent's */
	return 0;
}

int net_make_sockets(int userns_fd, int netns_fd, int *fds, size_t n, struct err **e)
{
	static char stack[32 << 10] __attribute__((aligned(16)));
	struct job j = {.userns_fd = userns_fd, .netns_fd = netns_fd, .fds = fds, .n = n};
	sigset_t all, old;
	pid_t pid, r;
	int error;

	(void)sigfillset(&all);
	(void)sigprocmask(SIG_BLOCK, &all, &old);
	/* no exit signal: the loop has no SIGCHLD to explain; __WALL reaps such a child */
	pid = clone(inside, stack + sizeof stack, CLONE_VM | CLONE_FILES | CLONE_VFORK, &j);
	error = errno;
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	if (pid < 0)
		return err_sys(e, error, "cannot start the socket helper");
	do
		r = waitpid(pid, NULL, __WALL);
	while (r < 0 && errno == EINTR);
	if (j.made == n)
		return 0;
	fd_close_many(fds, j.made);
	if (!j.step) /* killed: out of memory, or somebody's SIGKILL */
		return err_set(e, ECHILD, "the socket helper was killed");
	return err_sys(e, j.error, "%s", j.step);
}
