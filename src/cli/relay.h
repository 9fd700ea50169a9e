/*
 * Standard input and output of `sbxsv exec` and `sbxsv run`.
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
	struct loop_io from_io, to_io, hup_io;
	int hup; /* epoll, for the end of an input that is not being read; -1: none */
	int from, to;     /* from: owned when `in` is false; to: owned when `in` is true */
	int jail_fd;      /* what the jail gets; the caller closes it after the launch, -1 when it is the original */
	bool in, active, socket;
	bool eof;      /* of the input; it was told */
	bool sink;     /* nobody takes the input: it is read and dropped */
	bool own_to;   /* `to` was opened anew: it is ours to close */
	bool cautious; /* `to` may block: no more than PIPE_BUF bytes, and only when there is room */
	size_t at, len;
	void (*on_end)(void *data);
	void *data;
	/* May be set before relay_start(): all that passes; and that nobody writes to the input any more, though what was
	 * written may wait for an app that does not read. */
	void (*on_bytes)(void *data, const char *bytes, size_t len);
	void (*on_eof)(void *data);
	void *tap_data;
	char *buffer;
};
/* Looks at descriptor `fd` (0, 1 or 2) of this process. 0; -1 with *e when it cannot be used (a directory). Sets *ret_fd to what
 * the launch takes. `on_end` is called once when an output has been copied to its end; never for the others. */
int relay_init(struct relay *r, int fd, int *ret_fd, struct err **e);
/* The same, but whatever it is is copied, so that its end is seen; and an output whose reader is slow never holds up
 * the rest of this process. */
int relay_init_copied(struct relay *r, int fd, int *ret_fd, struct err **e);
void relay_start(struct relay *r, struct loop *l, void (*on_end)(void *data), void *data);
void relay_finish(struct relay *r);
