/* The supervisor's side of sbxsv-proxy as proxyctl.c and proxyctl_keep.c know it. */
#pragma once
#include "base/wire.h"
#include "net/proxyctl_in.h"
#include "net/proxyctl_sync.h"

#define CRASH_PAGE_BYTES 4096

struct proxyctl {
	struct loop *loop;
	char *program;
	uid_t uid;
	gid_t gid;
	struct proxyctl_hooks hooks;
	struct pc_app *apps;
	struct pc_in in;
	uint64_t launches, gates; /* counted */
	struct pc_syncs syncs;

	pid_t pid; /* 0: none */
	int pidfd;
	struct loop_io exited;
	struct wire *wire;
	struct loop_timer restart;
	bool outdated; /* taken over, and speaks another version of the protocol */
	int64_t started_ms;
	int crash_fd;
	volatile char *crash_page; /* "active byte, name, NUL", see proxy/control.c */
};

struct proxyctl *pc_new(struct loop *l, const char *program, uid_t run_uid, gid_t run_gid,
			const struct proxyctl_hooks *hooks); /* nothing runs yet */
int pc_check_program(const struct proxyctl *p, struct err **e); /* is it there? */
int pc_map_crash_page(struct proxyctl *p, struct err **e);
void pc_watch(struct proxyctl *p, int fd); /* the proxy that is there; owns fd, our end of the wire */
void pc_watch_end(struct proxyctl *p);	   /* its end alone */
void pc_start(struct proxyctl *p);		/* one that is told everything */
