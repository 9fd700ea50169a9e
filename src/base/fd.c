#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u /* linux/memfd.h, kernel 6.3 */
#endif

int fd_set_nonblock(int fd, bool on)
{
	int fl = fcntl(fd, F_GETFL);

	if (fl < 0)
		return -1;
	return fcntl(fd, F_SETFL, on ? fl | O_NONBLOCK : fl & ~O_NONBLOCK);
}

int fd_write_all(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int fd_memory(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	/* an older kernel does not know the flag, one with vm.memfd_noexec=2 insists on it */
	return fd < 0 && errno == EINVAL ? memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING) : fd;
}

int fd_sealed(const char *name, const void *data, size_t len)
{
	const int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	CLEANUP_FD int fd = fd_memory(name);

	if (fd < 0 || fd_write_all(fd, data, len) < 0 || fcntl(fd, F_ADD_SEALS, seals) < 0 ||
	    lseek(fd, 0, SEEK_SET) < 0)
		return -1;
	return TAKE_FD(fd);
}

union control {
	char buf[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
	struct cmsghdr align;
};

int fd_send(int sock, const void *data, size_t len, const int *fds, size_t n)
{
	union control c;
	struct iovec io = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
	ssize_t r;

	if (n > FD_PASS_MAX) {
		errno = EINVAL;
		return -1;
	}
	if (n) {
		struct cmsghdr *h;

		memset(&c, 0, sizeof c);
		m.msg_control = c.buf;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * n);
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(int) * n);
		memcpy(CMSG_DATA(h), fds, sizeof(int) * n);
	}
	do
		r = sendmsg(sock, &m, MSG_NOSIGNAL);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return -1;
	if ((size_t)r != len) {
		errno = EMSGSIZE;
		return -1;
	}
	return 0;
}

ssize_t fd_recv(int sock, void *data, size_t cap, int *fds, size_t max, size_t *ret_n)
{
	union control c;
	struct iovec io = {.iov_base = data, .iov_len = cap};
	struct msghdr m = {
		.msg_iov = &io, .msg_iovlen = 1, .msg_control = c.buf, .msg_controllen = sizeof c.buf};
	size_t n = 0;
	bool over = false;
	ssize_t r;

	do
		r = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return -1;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (h->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(h) + i * sizeof fd, sizeof fd);
			if (n < max) {
				fds[n++] = fd;
			} else {
				(void)close(fd);
				over = true;
			}
		}
	}
	if (over || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		fd_close_many(fds, n);
		errno = EMSGSIZE;
		return -1;
	}
	*ret_n = n;
	return r;
}

void fd_close_many(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (fds[i] >= 0)
			(void)close(fds[i]);
		fds[i] = -1;
	}
}

int fd_raise_limit(void)
{
	struct rlimit r;
	rlim_t old;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0)
		return -1;
	old = r.rlim_cur;
	r.rlim_cur = r.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &r) < 0)
		return -1;
	return old > 1 << 20 ? 1 << 20 : (int)old;
}

int pidfd_open_pid(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

int pidfd_signal(int pidfd, int sig)
{
	return (int)syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
}

bool pidfd_is_dead(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

int pidfd_reap(int pidfd, int *ret_status)
{
	siginfo_t si = {0};
	int r;

	do
		r = waitid((idtype_t)3 /* P_PIDFD, waitid(2), kernel 5.4 */, (id_t)pidfd, &si,
			   WEXITED | WNOHANG);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return -1;
	if (si.si_pid == 0)
		return 0;
	if (si.si_code == CLD_EXITED)
		*ret_status = (si.si_status & 0xff) << 8;
	else
		*ret_status = (si.si_status & 0x7f) | (si.si_code == CLD_DUMPED ? 0x80 : 0);
	return 1;
}

int fd_become_service(int wire)
{
	sigset_t none;
	int null;

	for (int s = 1; s < 65; s++)
		if (s != SIGKILL && s != SIGSTOP)
			(void)signal(s, SIG_DFL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	null = open("/dev/null", O_RDWR); /* not close-on-exec: it may be one of these three */
	if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(wire, 3) < 0)
		return -1;
	if (wire == 3 && fcntl(3, F_SETFD, 0) < 0)
		return -1;
	if (syscall(SYS_close_range, 4u, ~0u, 0u) < 0) /* kernel 5.9 */
		for (int fd = 4; fd < 4096; fd++)
			(void)close(fd);
	return 0;
}
