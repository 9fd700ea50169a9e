/*
 * The proxy confines itself. It keeps sockets, reads /etc for its resolver, and nothing else: no file writes,
 * no exec, no ptrace, no core dump, no capabilities, no new privileges. A kernel without Landlock is said by log
 * and does not stop the proxy: seccomp alone keeps it from writing; everything else here is needed.
 */
#pragma once
#include "base/err.h"
#include <sys/types.h>

struct harden {
	uid_t uid; /* (uid_t)-1: keep */
	gid_t gid;
	pid_t parent; /* 0: not checked */
};
/* User, session, parent death, limits, dumpable. */
int harden_identity(const struct harden *h, struct err **e);
/* Landlock and seccomp. Nothing else may be opened after it. */
int harden_confine(const struct harden *h, const char *resolv_conf, struct err **e);
int harden_seccomp(struct err **e); /* harden_seccomp.c */
