/* Shared inside src/ports. */
#pragma once
#include "ports/ports.h"

struct ports_stat { /* /proc/PID/stat, proc(5) */
	pid_t ppid;
	int tty_nr;
	uint64_t start;
};
int ports_stat(pid_t pid, struct ports_stat *ret);
/* Adds a holder and fills command, cwd, start and uid from /proc. A process that is gone is not added. */
void ports_add_process(struct port_holders *h, pid_t pid, const char *address);
void ports_add_unseen(struct port_holders *h, uid_t socket_uid, const char *address);
int ports_find_diag(uint16_t port, struct port_holders *ret, struct err **e);
int ports_find_lsof(uint16_t port, struct port_holders *ret, struct err **e);
