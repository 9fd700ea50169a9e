/*
 * Standard input and output of `sbxsv exec`.
 *
 * A terminal, a pipe and a character device are given to the jail as they are. Everything else is copied through a pipe of
 * ours: a socket could be disconnected and connected to a service of the host, or carry descriptors; a file could be
 * opened again through /proc/self/fd with more rights; a directory would be a door to the host's mounts.
 */
#pragma once
#include "base/err.h"
#include "base/loop.h"
#include <stdbool.h>
#include <stddef.h>

enum { RELAY_BUFFER = 64 << 10 };
struct relay {
	struct loop_io from_io, to_io;
	int from, to;     /* from: owned when `in` is false; to: owned when `in` is true */
	int jail_fd;      /* what the jail gets; the caller closes it after the launch, -1 when it is the original */
	bool in, active, socket, eof;
	size_t at, len;
	void (*on_end)(void *data);
	void *data;
	char *buffer;
};
/* Looks at descriptor `fd` (0, 1 or 2) of this process. 0; -1 with *e when it cannot be used (a directory). Sets *ret_fd to what
 * the launch takes. `on_end` is called once when an output has been copied to its end; never for the others. */
int relay_init(struct relay *r, int fd, int *ret_fd, struct err **e);
void relay_start(struct relay *r, struct loop *l, void (*on_end)(void *data), void *data);
void relay_finish(struct relay *r);
