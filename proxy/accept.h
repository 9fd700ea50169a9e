/*
 * A listening socket. Connections are accepted in batches. When descriptors run out it pauses for a moment,
 * with the connections waiting in the kernel's queue, instead of spinning; the log says so once in ten
 * seconds.
 *
 * Descriptors are a budget of the whole process: a connection counts as FDS_PER_CONN, and as one less
 * when it has dialled; a socket waiting in a pool as one, and a reserve stays free, so that the control channel can always receive some. Half of the
 * budget is shared out evenly among the apps: that many connections an app can always have, whatever the
 * others do. The other half goes to whoever comes first.
 */
#pragma once
#include "base/loop.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/* What one app has of the budget. Zero-initialise, then conns_join(). */
struct conns {
	struct conns *prev, *next;
	size_t n;
};

struct acceptor;
/* Owns fd (non-blocking, close-on-exec). False: enough for now, the callback paused or closed the acceptor. fd -1: after
 * acceptor_wait(). */
typedef bool acceptor_fn(struct acceptor *a, int fd, const struct sockaddr_storage *peer);
struct acceptor {
	struct loop_io io;
	struct loop_timer backoff;
	acceptor_fn *fn;
	void *data;
	struct conns *conns;
	int fd;
	bool on;
	bool waiting;
};

/* Owns fd. Paused at first. `conns`: of the app whose connections these are; the callback counts them. */
void acceptor_init(struct acceptor *a, struct loop *l, int fd, struct conns *conns, acceptor_fn *fn,
		   void *data);
void acceptor_run(struct acceptor *a, bool on);
/* Paused; but the callback is called once, with fd -1, when there is a connection to accept. */
void acceptor_wait(struct acceptor *a);
void acceptor_finish(
	struct acceptor *a); /* closes the socket; once finished, or zeroed with fd -1, is fine */

void conns_init(size_t nofile_limit);
void conns_join(struct conns *c);
void conns_leave(struct conns *c); /* all its connections were subtracted */
bool conns_may_grow(const struct conns *c);
void conns_add(struct conns *c);
void conns_dialled(void); /* a connection does not need its third descriptor any more... */
void conns_sub(struct conns *c, bool dialled); /* ...and that was said */
/* Descriptors that are no connection yet. Grants at most `n`, maybe none; every one is given back when it is
 * closed, or has become part of a connection. */
size_t fds_take(size_t n);
void fds_give_back(size_t n);
void fds_hold(size_t n); /* those that are here already, whether there is room or not: listeners */
