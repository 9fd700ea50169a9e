#include "ctl/peer.h"
#include "base/fd.h"
#include "base/file.h"
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

#ifndef SO_PEERPIDFD /* include/uapi/asm-generic/socket.h, Linux 6.5 */
#define SO_PEERPIDFD 77
#endif

int peer_pidfd(int sock, pid_t pid)
{
	int fd = -1;
	socklen_t len = sizeof fd;

	if (getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) == 0)
		return fd;
	if (errno != ENOPROTOOPT)
		return -1; /* ESRCH: the peer has been reaped already */
	return pidfd_open_pid(pid);
}

static int same_ns(pid_t pid, const char *which, struct err **e)
{
	struct stat ours, theirs;
	char path[64];

	(void)snprintf(path, sizeof path, "/proc/self/ns/%s", which);
	if (stat(path, &ours))
		return err_sys(e, errno, "%s", path);
	(void)snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)pid, which);
	if (stat(path, &theirs))
		return err_sys(e, errno, "pid %d: its %s namespace cannot be read", (int)pid, which);
	if (!file_same(&ours, &theirs))
		return err_set(e, EPERM, "pid %d is in another %s namespace (a jail)", (int)pid, which);
	return 0;
}

int peer_check(int sock, struct err **e)
{
	CLEANUP_FD int pidfd = -1;
	struct ucred cred;
	socklen_t len = sizeof cred;

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) || len != sizeof cred)
		return err_sys(e, errno, "SO_PEERCRED");
	/* pid 0: the peer is in a pid namespace that we cannot see into */
	if (cred.pid <= 0)
		return err_set(e, EPERM, "the peer is in a pid namespace outside of ours");
	if (cred.uid != geteuid() && cred.uid != 0)
		return err_set(e, EPERM, "pid %d is uid %u, not uid %u or root", (int)cred.pid, cred.uid,
			       geteuid());
	pidfd = peer_pidfd(sock, cred.pid);
	if (pidfd < 0)
		return err_sys(e, errno, "pid %d: no pidfd", (int)cred.pid);
	if (same_ns(cred.pid, "user", e) || same_ns(cred.pid, "pid", e))
		return -1;
	if (pidfd_is_dead(pidfd))
		return err_set(e, ESRCH, "pid %d ended before it could be checked", (int)cred.pid);
	return 0;
}
