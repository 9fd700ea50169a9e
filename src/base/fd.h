/* File descriptors, pidfds, and fds passed over Unix sockets. Every fd made here is close-on-exec. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <sys/types.h>

#define FD_PASS_MAX 253 /* SCM_MAX_FD of the kernel, include/net/scm.h */

int fd_set_nonblock(int fd, bool on);
int fd_write_all(int fd, const void *data, size_t len); /* retries EINTR and short writes; -1 with errno */
/* Sends one message with fds (which stay the caller's). -1 with errno; EAGAIN when the socket is full. */
int fd_send(int sock, const void *data, size_t len, const int *fds, size_t n);
/* Receives one message. Returns its length (0: peer closed), -1 with errno. The caller owns the fds in `fds`;
 * fds beyond `max` are closed and the call fails with EMSGSIZE, as it does for a truncated message. */
ssize_t fd_recv(int sock, void *data, size_t cap, int *fds, size_t max, size_t *ret_n);
/* Memory that can be sealed, and that no machine takes for a program. -1 with errno. */
int fd_memory(const char *name);
/* The same with `len` bytes in it that nobody changes any more, read from the beginning. -1 with errno. */
int fd_sealed(const char *name, const void *data, size_t len);
void fd_close_many(int *fds, size_t n); /* closes those >= 0 and sets them to -1 */
int fd_raise_limit(void); /* RLIMIT_NOFILE soft to hard; returns the old soft limit (for children), or -1 */

int pidfd_open_pid(pid_t pid);        /* -1 with errno */
int pidfd_signal(int pidfd, int sig); /* -1 with errno */
bool pidfd_is_dead(int pidfd);        /* the process (and for a pid-namespace init, its namespace) is gone */
/* Reaps a child. 1: reaped, *ret_status as waitpid(2) gives it; 0: still runs; -1 with errno (ECHILD: not
 * ours). */
int pidfd_reap(int pidfd, int *ret_status);

/* In a child, between fork and exec: default signals, /dev/null on 0 and 1, `wire` on 3, nothing above. Calls that are
 * async-signal-safe only. -1 with errno. */
int fd_become_service(int wire);
