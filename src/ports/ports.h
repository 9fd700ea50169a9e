/*
 * Who holds a TCP port of the host, and taking it back from a verified orphan of the app.
 *
 * Theory of operation. sock_diag gives the listening sockets of a port (inode, owner, address) in
 * microseconds, for every user; a pass over /proc/PID/fd finds who has them open. Other users' fds are closed
 * to an ordinary user: such a holder is reported with pid 0. Where netlink is missing, lsof is asked, as a
 * child with a hard limit of 2 s.
 *
 * Reclaim (doc/design.md section 5) ends a process only when all of this is true: it runs wholly as the app's
 * user; it is in our own mount namespace; its working directory is inside the app's directory, by device and
 * inode on the way up from the directory object itself (never by a string, which the process can choose);
 * nobody is in charge of it: we recorded it, or its parent is init or a subreaper and it is not a service of
 * a service manager; it has no controlling terminal; it still has the port. All of it is checked again after
 * pidfd_open, so that the pid cannot have become another process's. What cannot be verified is a stranger.
 */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <sys/types.h>

struct port_holder {
	pid_t pid;      /* 0: not visible to us (another user's) */
	uid_t uid;      /* of the process; of the socket when pid is 0 */
	uint64_t start; /* /proc/PID/stat field 22, clock ticks since boot */
	char *command;  /* cmdline, spaces between; may be NULL */
	char *cwd;      /* as /proc shows it; may be NULL */
	char address[46];
};
struct port_holders { /* sorted by pid, one entry a pid and address */
	struct port_holder *v;
	size_t n, cap;
};
void port_holders_finish(struct port_holders *h);
enum ports_method { PORTS_AUTO, PORTS_SOCK_DIAG, PORTS_LSOF };
/* 0 with n == 0: nobody listens. lsof does not report what it may not see. Adds to nothing: *ret is
 * overwritten. */
int ports_find(uint16_t port, enum ports_method how, struct port_holders *ret, struct err **e);

struct reclaim_request {
	uint16_t port;
	uid_t app_uid;
	const char *app_directory;
	/* pid and start time recorded by an earlier run of ours (in this boot), or 0: then it must be
	 * reparented */
	pid_t recorded_pid;
	uint64_t recorded_start;
};
/* Is this holder a verified orphan of the app? true, or false with the reason in *why (owned by caller). */
bool ports_is_orphan(const struct reclaim_request *r, const struct port_holder *h, char **why);
/* Opens a pidfd of a verified orphan and checks again. -1 with *e when it is none. The caller signals and
 * waits. */
int ports_orphan_pidfd(const struct reclaim_request *r, const struct port_holder *h, struct err **e);
uint64_t ports_start_time(pid_t pid); /* field 22, or 0 */
/* "pid 41 (node server.js, in /home/x/notes)"; escaped for people; owned by caller. */
char *ports_describe(const struct port_holder *h);
