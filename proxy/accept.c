#include "proxy/accept.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#define BATCH        64
#define BACKOFF_MS   100
#define LOG_EVERY_MS 10000
#define FD_RESERVE   448 /* a full SCM_RIGHTS message, the loop, resolvers, netlink, log, listeners */
#define FDS_PER_CONN 3   /* two, and one more while two addresses of a name race */

static size_t fds, fds_limit = 1024; /* in use, as far as they are counted */
static struct conns *members;
static size_t n_members;

void conns_init(size_t nofile_limit)
{
	size_t reserve = nofile_limit > 4 * FD_RESERVE ? FD_RESERVE : nofile_limit / 4;

	fds_limit = nofile_limit - reserve;
}

void conns_join(struct conns *c)
{
	c->prev = NULL;
	c->next = members;
	if (members)
		members->prev = c;
	members = c;
	n_members++;
}

void conns_leave(struct conns *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		members = c->next;
	if (c->next)
		c->next->prev = c->prev;
	n_members--;
}

/* Descriptors that must stay free for the others' shares. */
static size_t promised(const struct conns *to)
{
	size_t share = fds_limit / 2 / FDS_PER_CONN / n_members, left = 0;

	for (const struct conns *c = members; c; c = c->next)
		if (c != to && c->n < share)
			left += (share - c->n) * FDS_PER_CONN;
	return left;
}

bool conns_may_grow(const struct conns *c)
{
	if (fds + FDS_PER_CONN <= fds_limit / 2) /* the shares are no more than the other half */
		return true;
	return fds + FDS_PER_CONN + promised(c) <= fds_limit;
}

void conns_add(struct conns *c)
{
	c->n++;
	fds += FDS_PER_CONN;
}

void conns_dialled(void)
{
	fds--;
}

void conns_sub(struct conns *c, bool dialled)
{
	c->n--;
	fds -= dialled ? FDS_PER_CONN - 1 : FDS_PER_CONN;
}

size_t fds_take(size_t n)
{
	size_t left = fds < fds_limit ? (fds_limit - fds) / 4 : 0; /* connections come first */

	if (n > left)
		n = left;
	fds += n;
	return n;
}

void fds_give_back(size_t n)
{
	fds -= n;
}

void fds_hold(size_t n)
{
	fds += n;
}

static void say_exhausted(const char *what)
{
	static int64_t last = -LOG_EVERY_MS;
	int64_t now = clk_mono_ms();

	if (now - last < LOG_EVERY_MS)
		return;
	last = now;
	log_warning("cannot accept connections for the moment: %s; they wait in the listen queue", what);
}

/* `why` NULL: nothing to say. */
static void back_off(struct acceptor *a, const char *why)
{
	if (why)
		say_exhausted(why);
	loop_io_set(&a->io, 0);
	loop_timer_start(&a->backoff, BACKOFF_MS);
}

/* Errors of the connection itself, accept(2) "Error handling": the listener is fine. */
static bool only_this_connection(int e)
{
	return e == ECONNABORTED || e == EINTR || e == EPROTO || e == ENETDOWN || e == ENOPROTOOPT ||
	       e == EHOSTDOWN || e == ENONET || e == EHOSTUNREACH || e == EOPNOTSUPP || e == ENETUNREACH ||
	       e == EPERM;
}

static void on_ready(struct loop_io *io, unsigned events)
{
	struct acceptor *a = io->data;

	(void)events;
	if (a->waiting) {
		a->waiting = false;
		loop_io_set(&a->io, 0);
		(void)a->fn(a, -1, NULL);
		return;
	}
	for (int i = 0; i < BATCH; i++) {
		struct sockaddr_storage peer;
		socklen_t len = sizeof peer;
		int fd;

		if (!conns_may_grow(a->conns)) {
			back_off(a, "too many connections are open");
			return;
		}
		fd = accept4(a->fd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0) {
			if (!a->fn(a, fd, &peer))
				return;
			continue;
		}
		if (errno == EAGAIN)
			return;
		if (only_this_connection(errno))
			continue;
		/* EINVAL: the supervisor has shut the listener down, and will tell us in a moment. The rest is
		 * EMFILE, ENFILE, ENOBUFS, ENOMEM. */
		back_off(a, errno == EINVAL ? NULL : strerror(errno));
		return;
	}
}

static void on_backoff_over(struct loop_timer *t)
{
	struct acceptor *a = t->data;

	if (a->on)
		loop_io_set(&a->io, LOOP_READ);
}

void acceptor_init(struct acceptor *a, struct loop *l, int fd, struct conns *conns, acceptor_fn *fn,
		   void *data)
{
	int one = 1;

	*a = (struct acceptor){.fn = fn, .data = data, .conns = conns, .fd = fd};
	(void)fd_set_nonblock(fd, true);
	/* Accepted sockets inherit it (net/ipv4/tcp_minisocks.c copies the listener's options): no call for
	 * each. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	/* A client that vanished without a word is noticed some day. */
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
	loop_io_init(l, &a->io, fd, 0, on_ready, a);
	loop_timer_init(l, &a->backoff, on_backoff_over, a);
}

void acceptor_run(struct acceptor *a, bool on)
{
	if (a->fd < 0 || (a->on == on && !a->waiting))
		return;
	a->waiting = false;
	a->on = on;
	if (!on)
		loop_timer_stop(&a->backoff);
	loop_io_set(&a->io, on ? LOOP_READ : 0);
}

void acceptor_wait(struct acceptor *a)
{
	if (a->fd < 0)
		return;
	acceptor_run(a, false);
	a->waiting = true;
	loop_io_set(&a->io, LOOP_READ);
}

void acceptor_finish(struct acceptor *a)
{
	if (a->fd < 0)
		return;
	acceptor_run(a, false);
	loop_timer_stop(&a->backoff);
	loop_io_stop(&a->io);
	(void)close(a->fd);
	a->fd = -1;
}
