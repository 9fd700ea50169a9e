/* A launch as launch.c and launch_keep.c know it. */
#pragma once
#include "sandbox/jail.h"

struct launch {
	struct loop_io watch;
	struct loop_timer deadline;
	struct loop_defer later; /* a failure found before launch_start() returned */
	launch_done_fn *on_done;
	void *data;
	const struct backend *backend;
	char *app, *program;
	pid_t pid;
	int pidfd, sock;
	bool has_jail, finished, has_status, quiet;
	enum audit audit;
	int (*listening)(void *data, const struct launch_audit *fds, struct err **e);
	void (*notified)(void *data, const char *text, size_t len, int error);
	struct loop *loop;
	launch_checked_fn *checked; /* NULL: nobody waits for it */
	void *checked_data;
	bool checking;
	int status;
	struct err *failure;
	struct launch_done done;
};

void launch_on_note(struct loop_io *w, unsigned events); /* what sbxsv-init says of a program that runs */
