/*
 * Who holds a TCP port of the host, and taking it back from a verified orphan of the app. See doc/design.md
 * "Reclaim": only a process of the app's uid, whose cwd lies inside the app's directory (by device and inode walk in our
 * own mount namespace), that is an orphan without a terminal, is ever ended; it is checked again after pidfd_open.
 */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <sys/types.h>

struct port_holder {
	pid_t pid;        /* 0: not visible to us (another user's) */
	uid_t uid;
	uint64_t start;   /* /proc/PID/stat field 22, clock ticks since boot */
	char *command;    /* cmdline, spaces between; may be NULL */
	char *cwd;        /* as /proc shows it; may be NULL */
	char address[46];
};
struct port_holders {
	struct port_holder *v;
	size_t n, cap;
};
void port_holders_finish(struct port_holders *h);
enum ports_method { PORTS_AUTO, PORTS_SOCK_DIAG, PORTS_LSOF };
int ports_find(uint16_t port, enum ports_method how, struct port_holders *ret, struct err **e);

struct reclaim_request {
	uint16_t port;
	uid_t app_uid;
	const char *app_directory;
	/* pid and start time recorded by an earlier run of ours, or 0: then it must be reparented */
	pid_t recorded_pid;
	uint64_t recorded_start;
};
/* Is this holder a verified orphan of the app? true, or false with the reason in *why (owned by caller). */
bool ports_is_orphan(const struct reclaim_request *r, const struct port_holder *h, char **why);
/* Opens a pidfd of a verified orphan and checks again. -1 with *e when it is none. The caller signals and waits. */
int ports_orphan_pidfd(const struct reclaim_request *r, const struct port_holder *h, struct err **e);
uint64_t ports_start_time(pid_t pid); /* field 22, or 0 */
