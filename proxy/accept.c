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
#define FD_RESERVE   512 /* two full SCM_RIGHTS messages, the loop, resolvers, netlink, log */
#define FDS_PER_CONN 3   /* two, and one more while two addresses of a name race */

static size_t conns, conns_limit = 1024;

void conns_init(size_t nofile_limit)
{
	size_t reserve = nofile_limit > 4 * FD_RESERVE ? FD_RESERVE : nofile_limit / 4;

	conns_limit = (nofile_limit - reserve) / FDS_PER_CONN;
}

bool conns_may_grow(void)
{
	return conns < conns_limit;
}

void conns_add(void)
{
	conns++;
}

void conns_sub(void)
{
	conns--;
}

size_t conns_max(void)
{
	return conns_limit;
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

static void back_off(struct acceptor *a, const char *why)
{
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
	for (int i = 0; i < BATCH; i++) {
		struct sockaddr_storage peer;
		socklen_t len = sizeof peer;
		int fd;

		if (!conns_may_grow()) {
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
		back_off(a, strerror(errno)); /* EMFILE, ENFILE, ENOBUFS, ENOMEM, or a broken listener */
		return;
	}
}

static void on_backoff_over(struct loop_timer *t)
{
	struct acceptor *a = t->data;

	if (a->on)
		loop_io_set(&a->io, LOOP_READ);
}

void acceptor_init(struct acceptor *a, struct loop *l, int fd, acceptor_fn *fn, void *data)
{
	int one = 1;

	*a = (struct acceptor){.fn = fn, .data = data, .fd = fd};
	(void)fd_set_nonblock(fd, true);
	/* Accepted sockets inherit it (net/ipv4/tcp_minisocks.c copies the listener's options): no call for
	 * each. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	loop_io_init(l, &a->io, fd, 0, on_ready, a);
	loop_timer_init(l, &a->backoff, on_backoff_over, a);
}

void acceptor_run(struct acceptor *a, bool on)
{
	if (a->fd < 0 || a->on == on)
		return;
	a->on = on;
	if (!on)
		loop_timer_stop(&a->backoff);
	loop_io_set(&a->io, on ? LOOP_READ : 0);
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
