/*
 * A listening socket. Connections are accepted in batches. When descriptors run out it pauses for a moment,
 * with the connections waiting in the kernel's queue, instead of spinning; the log says so once in ten
 * seconds. The process keeps a reserve of descriptors (`conns_may_grow`), so that the control channel can
 * always receive some.
 */
#pragma once
#include "base/loop.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

struct acceptor;
/* Owns fd (non-blocking, close-on-exec). False: enough for now, the callback paused or closed the acceptor.
 */
typedef bool acceptor_fn(struct acceptor *a, int fd, const struct sockaddr_storage *peer);
struct acceptor {
	struct loop_io io;
	struct loop_timer backoff;
	acceptor_fn *fn;
	void *data;
	int fd;
	bool on;
};

/* Owns fd. Paused at first. */
void acceptor_init(struct acceptor *a, struct loop *l, int fd, acceptor_fn *fn, void *data);
void acceptor_run(struct acceptor *a, bool on);
void acceptor_finish(
	struct acceptor *a); /* closes the socket; once finished, or zeroed with fd -1, is fine */

/* Connections of the whole process, each counted as the descriptors it may need at most. */
void conns_init(size_t nofile_limit);
bool conns_may_grow(void);
void conns_add(void);
void conns_sub(void);
size_t conns_max(void);
