/*
 * Who is at the other end of the control socket?
 *
 * A program inside a jail runs with the same uid as we do, so SO_PEERCRED alone proves nothing: the peer must
 * also be in our own user and pid namespaces. They are compared by the device and inode of
 * /proc/PID/ns/{user,pid}. What cannot be read is refused. The pid is pinned by a pidfd from the socket
 * itself (SO_PEERPIDFD, Linux 6.5): if that process is still alive after we looked at /proc/PID, we looked at
 * the right one. On older kernels the pidfd is opened by pid, which leaves a window in which a dead peer's
 * pid could have been given to another process.
 */
#pragma once
#include "base/err.h"
#include <sys/types.h>

/* 0, or -1 with the reason in *e: the connection must be closed. */
int peer_check(int sock, struct err **e);
/* Of the process at the other end when it connected, pid by SO_PEERCRED: not of another one that has that number by now,
 * where the kernel can tell (6.5). -1 with errno. */
int peer_pidfd(int sock, pid_t pid);
