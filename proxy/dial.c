#include "proxy/dial.h"
#include "policy/local.h"
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

static void attempt_close(struct dial_attempt *a)
{
	loop_io_stop(&a->io);
	if (a->io.fd >= 0)
		(void)close(a->io.fd);
	a->io.fd = -1;
}

void dial_stop(struct dial *d)
{
	if (!d->busy)
		return;
	d->busy = false;
	loop_timer_stop(&d->stagger);
	loop_timer_stop(&d->limit);
	for (size_t i = 0; i < d->next; i++)
		attempt_close(&d->attempt[i]);
}

static void dial_end(struct dial *d, enum dial_result result, int fd)
{
	dial_stop(d);
	d->fn(d->data, result, fd, d->errnum);
}

static void dial_win(struct dial *d, struct dial_attempt *a)
{
	int fd = a->io.fd;

	loop_io_stop(&a->io);
	a->io.fd = -1;
	d->won = (size_t)(a - d->attempt);
	dial_end(d, DIAL_OK, fd);
}

static void dial_more(struct dial *d);

static void on_connected(struct loop_io *io, unsigned events)
{
	struct dial_attempt *a = io->data;
	struct dial *d = a->dial;
	socklen_t len = sizeof d->errnum;
	int error = 0;

	(void)events;
	if (getsockopt(io->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	if (!error) {
		dial_win(d, a);
		return;
	}
	d->errnum = error;
	attempt_close(a);
	d->open--;
	dial_more(d);
}

enum attempt { ATTEMPT_FAILED, ATTEMPT_UNDER_WAY, ATTEMPT_DONE, ATTEMPT_LOCAL };

/*
 * To a neighbour without delay the handshake is over when connect() returns, only nobody waited for it: asking
 * again costs less than a turn of the loop.
 */
static enum attempt attempt_connect(struct dial *d, int fd, const struct sockaddr *sa, socklen_t len)
{
	if (connect(fd, sa, len) == 0)
		return ATTEMPT_DONE;
	if (errno == EINPROGRESS) {
		if (connect(fd, sa, len) == 0)
			return ATTEMPT_DONE;
		if (errno == EALREADY)
			return ATTEMPT_UNDER_WAY;
	}
	d->errnum = errno;
	return ATTEMPT_FAILED;
}

static enum attempt attempt_start(struct dial *d, struct dial_attempt *a, const struct addr *to)
{
	struct sockaddr_storage sa;
	socklen_t len = addr_to_sockaddr(to, d->port, &sa);
	const unsigned stall = DIAL_STALL_MS;
	enum attempt r;
	int one = 1, fd;

	a->dial = d;
	a->io.fd = -1;
	switch (d->own ? ROUTE_REMOTE : local_route(to)) {
	case ROUTE_LOCAL:
		return ATTEMPT_LOCAL;
	case ROUTE_NONE:
		d->errnum = ENETUNREACH;
		return ATTEMPT_FAILED;
	case ROUTE_REMOTE:
		break;
	}
	fd = socket(to->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		d->errnum = errno;
		return ATTEMPT_FAILED;
	}
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	/* A peer that vanished without a word is noticed some day. */
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
	/* One that takes nothing of what we have for it: sooner (tcp(7), zero windows count too). */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &stall, sizeof stall);
	r = attempt_connect(d, fd, (struct sockaddr *)&sa, len);
	if (r == ATTEMPT_FAILED)
		(void)close(fd);
	else if (r == ATTEMPT_DONE)
		a->io.fd = fd;
	else
		loop_io_init(d->loop, &a->io, fd, LOOP_WRITE, on_connected, a);
	return r;
}

/* Starts the next attempt that can be started; ends the dial when there is none and none is under way. */
static void dial_more(struct dial *d)
{
	while (d->next < d->n) {
		size_t i = d->next++;
		enum attempt r = attempt_start(d, &d->attempt[i], &d->v[i]);

		if (r == ATTEMPT_FAILED)
			continue;
		if (r == ATTEMPT_LOCAL)
			dial_end(d, DIAL_LOCAL, -1);
		if (r == ATTEMPT_DONE)
			dial_win(d, &d->attempt[i]);
		if (r != ATTEMPT_UNDER_WAY)
			return;
		d->open++;
		if (!loop_timer_active(&d->limit)) /* the first one: this is the start */
			loop_timer_start(&d->limit, DIAL_LIMIT_MS);
		if (d->next < d->n)
			loop_timer_start(&d->stagger, DIAL_STAGGER_MS);
		return;
	}
	if (!d->open)
		dial_end(d, d->errnum == ETIMEDOUT ? DIAL_TIMEOUT : DIAL_FAILED, -1);
}

static void on_stagger(struct loop_timer *t)
{
	dial_more(t->data);
}

static void on_limit(struct loop_timer *t)
{
	dial_end(t->data, DIAL_TIMEOUT, -1);
}

/* Families in turn, beginning with IPv6; the order within a family is the resolver's. */
static void dial_order(struct dial *d, const struct addr *v, size_t n)
{
	size_t at[2] = {0, 0};

	for (int turn = 0; d->n < DIAL_MAX && (at[0] < n || at[1] < n); turn = !turn) {
		int family = turn ? AF_INET : AF_INET6;

		while (at[turn] < n && v[at[turn]].family != family)
			at[turn]++;
		if (at[turn] < n)
			d->v[d->n++] = v[at[turn]++];
	}
}

static void start(struct dial *d, struct loop *l, const struct addr *v, size_t n, uint16_t port, bool own,
		  dial_fn *fn, void *data)
{
	memset(d, 0, sizeof *d);
	d->own = own;
	d->loop = l;
	d->fn = fn;
	d->data = data;
	d->port = port;
	d->errnum = ENETUNREACH;
	d->busy = true;
	dial_order(d, v, n);
	for (size_t i = 0; i < d->n; i++)
		local_unmap(&d->v[i]);
	loop_timer_init(l, &d->stagger, on_stagger, d);
	loop_timer_init(l, &d->limit, on_limit, d);
	dial_more(d);
}

void dial_start(struct dial *d, struct loop *l, const struct addr *v, size_t n, uint16_t port, dial_fn *fn,
		void *data)
{
	start(d, l, v, n, port, false, fn, data);
}

void dial_start_own(struct dial *d, struct loop *l, const struct addr *v, size_t n, uint16_t port,
		    dial_fn *fn, void *data)
{
	start(d, l, v, n, port, true, fn, data);
}
