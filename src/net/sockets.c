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
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BACKLOG 1024 /* as of the listeners that a launch makes */

struct job {
	int userns_fd, netns_fd, *fds;
	size_t n, made;
	const uint16_t *ports; /* NULL: plain sockets; else listeners, n ports, v4 and v6 */
	uint16_t *of;
	uint16_t port; /* that it was about */
	bool done;
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

/* 0, or -1 with errno */
__attribute__((no_sanitize("address", "undefined"))) static int listener(int family, uint16_t port, int *ret)
{
	struct sockaddr_in a4 = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	const void *a = family == AF_INET ? (const void *)&a4 : (const void *)&a6;
	socklen_t len = family == AF_INET ? sizeof a4 : sizeof a6;
	long s = syscall(SYS_socket, family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int one = 1;

	if (s < 0)
		return -1;
	*ret = (int)s;
	a6.sin6_addr.s6_addr[15] = 1; /* ::1 */
	(void)syscall(SYS_setsockopt, s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (family == AF_INET6)
		(void)syscall(SYS_setsockopt, s, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
	return syscall(SYS_bind, s, a, len) < 0 || syscall(SYS_listen, s, BACKLOG) < 0 ? -1 : 0;
}

__attribute__((no_sanitize("address", "undefined"))) static int listeners(struct job *j)
{
	static const int families[] = {AF_INET, AF_INET6};

	for (size_t i = 0; i < j->n; i++)
		for (size_t k = 0; k < 2; k++) {
			int fd = -1, r = listener(families[k], j->ports[i], &fd);

			j->port = j->ports[i];
			if (r < 0 && fd >= 0) {
				int error = errno;

				(void)syscall(SYS_close, fd);
				errno = error;
			}
			if (r < 0 && k && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL))
				continue; /* no IPv6 here */
			if (r < 0)
				return fail(j, "cannot listen inside");
			j->fds[j->made] = fd;
			j->of[j->made++] = j->ports[i];
		}
	j->done = true;
	(void)syscall(SYS_exit, 0);
	return 0;
}

__attribute__((no_sanitize("address", "undefined"))) static int inside(void *p)
{
	struct job *j = p;
	int family = AF_INET6;

	if (syscall(SYS_setns, j->userns_fd, CLONE_NEWUSER) < 0)
		return fail(j, "cannot join the user namespace");
	if (syscall(SYS_setns, j->netns_fd, CLONE_NEWNET) < 0)
		return fail(j, "cannot join the network namespace");
	if (j->ports)
		return listeners(j);
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
	j->done = true;
	(void)syscall(SYS_exit, 0); /* not exit(): the memory is our parent's */
	return 0;
}

static int run(struct job *j, struct err **e)
{
	static char stack[32 << 10] __attribute__((aligned(16)));
	sigset_t all, old;
	pid_t pid, r;
	int error;

	(void)sigfillset(&all);
	(void)sigprocmask(SIG_BLOCK, &all, &old);
	/* no exit signal: the loop has no SIGCHLD to explain; __WALL reaps such a child */
	pid = clone(inside, stack + sizeof stack, CLONE_VM | CLONE_FILES | CLONE_VFORK, j);
	error = errno;
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	if (pid < 0)
		return err_sys(e, error, "cannot start the socket helper");
	do
		r = waitpid(pid, NULL, __WALL);
	while (r < 0 && errno == EINTR);
	if (j->done)
		return 0;
	fd_close_many(j->fds, j->made);
	if (!j->step) /* killed: out of memory, or somebody's SIGKILL */
		return err_set(e, ECHILD, "the socket helper was killed");
	return j->port ? err_sys(e, j->error, "%s on port %u", j->step, j->port)
		       : err_sys(e, j->error, "%s", j->step);
}

int net_make_sockets(int userns_fd, int netns_fd, int *fds, size_t n, struct err **e)
{
	struct job j = {.userns_fd = userns_fd, .netns_fd = netns_fd, .fds = fds, .n = n};

	return run(&j, e);
}

int net_make_listeners(int userns_fd, int netns_fd, const uint16_t *ports, size_t n, int *fds, uint16_t *of,
		       size_t *ret_n, struct err **e)
{
	struct job j = {
		.userns_fd = userns_fd, .netns_fd = netns_fd, .fds = fds, .n = n, .ports = ports, .of = of};

	if (n && run(&j, e) < 0)
		return -1;
	*ret_n = j.made;
	return 0;
}
