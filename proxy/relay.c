#include "proxy/relay.h"
#include "base/str.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char shared[RELAY_BUFFER];
static size_t kept; /* bytes of all private buffers */

enum pump { PUMP_OK, PUMP_ENDED };

void fd_close_reset(int fd)
{
	struct linger lg = {.l_onoff = 1, .l_linger = 0};

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &lg, sizeof lg);
	(void)close(fd);
}

static void half_drop(struct relay_half *h)
{
	kept -= h->off + h->len;
	free(h->buf);
	h->buf = NULL;
	h->off = h->len = 0;
}

void relay_abort(struct relay *r, bool reset)
{
	for (int i = 0; i < 2; i++) {
		loop_io_stop(&r->io[i]);
		if (r->io[i].fd >= 0) {
			if (reset)
				fd_close_reset(r->io[i].fd);
			else
				(void)close(r->io[i].fd);
		}
		r->io[i].fd = -1;
		half_drop(&r->half[i]);
		r->half[i] = (struct relay_half){.eof = true, .shut = true};
	}
}

void relay_close(struct relay *r, bool reset)
{
	relay_abort(r, reset);
	r->done(r);
}

/* What each side has to be watched for now. */
static void relay_arm(struct relay *r)
{
	for (int i = 0; i < 2; i++) {
		const struct relay_half *in = &r->half[i], *out = &r->half[1 - i];

		loop_io_set(&r->io[i], (!in->eof && !in->len && !in->broken ? LOOP_READ : 0u) |
					       (out->len ? LOOP_WRITE : 0u));
	}
}

/*
 * One side takes nothing any more, and all it sent was passed on with its end. To close the other side while
 * unread bytes lie there would make the kernel send a reset and forget what that side has not received yet.
 */
static void drain(int fd)
{
	for (int i = 0; i < 8 && recv(fd, shared, sizeof shared, MSG_DONTWAIT) > 0; i++)
		;
}

/* After any change of a half: pass on its end, notice that everything ended. False: the connection is gone.
 */
static bool half_settle(struct relay *r, int i)
{
	struct relay_half *h = &r->half[i];

	if (h->eof && !h->len && !h->shut) {
		h->shut = true;
		if (!h->broken && !r->half[1 - i].shut) { /* else the close says it */
			(void)shutdown(r->io[1 - i].fd, SHUT_WR);
			if (r->ended)
				r->ended(r, i);
		}
	}
	if (!r->half[0].shut || !r->half[1].shut)
		return true;
	for (int k = 0; k < 2; k++)
		if (r->half[k].broken)
			drain(r->io[k].fd);
	relay_close(r, false);
	return false;
}

/* The receiver of half i failed. Its own bytes, if any came before, are still delivered. */
static bool half_broken(struct relay *r, int i)
{
	struct relay_half *h = &r->half[i];

	half_drop(h);
	*h = (struct relay_half){.eof = true, .shut = true, .broken = true};
	return half_settle(r, i);
}

static void half_keep(struct relay_half *h, const char *data, size_t len)
{
	if (h->off) {
		memmove(h->buf, h->buf + h->off, h->len);
		kept -= h->off;
		h->off = 0;
	}
	h->buf = xrealloc(h->buf, h->len + len);
	memcpy(h->buf + h->len, data, len);
	h->len += (uint32_t)len;
	kept += len;
}

/* Writes to the receiver of half i and keeps what it does not take. */
static bool half_write(struct relay *r, int i, const char *data, size_t len)
{
	struct relay_half *h = &r->half[i];
	ssize_t n = 0;

	if (h->broken)
		return true;
	*r->count[i] += len;
	r->moved = true;
	if (!h->len) {
		do
			n = send(r->io[1 - i].fd, data, len, MSG_NOSIGNAL);
		while (n < 0 && errno == EINTR);
		if (n < 0 && errno != EAGAIN)
			return half_broken(r, i);
		if (n < 0)
			n = 0;
	}
	if ((size_t)n < len)
		half_keep(h, data + n, len - (size_t)n);
	return true;
}

bool relay_push(struct relay *r, int i, const void *data, size_t len)
{
	if (!len || r->half[i].shut)
		return true;
	if (!half_write(r, i, data, len))
		return false;
	relay_arm(r);
	return true;
}

bool relay_finish(struct relay *r, int i)
{
	r->half[i].eof = true;
	if (!half_settle(r, i))
		return false;
	relay_arm(r);
	return true;
}

static enum pump half_flush(struct relay *r, int i)
{
	struct relay_half *h = &r->half[i];
	ssize_t n;

	if (!h->len)
		return PUMP_OK;
	do
		n = send(r->io[1 - i].fd, h->buf + h->off, h->len, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return PUMP_OK;
	if (n < 0)
		return half_broken(r, i) ? PUMP_OK : PUMP_ENDED;
	r->moved = true;
	h->off += (uint32_t)n;
	h->len -= (uint32_t)n;
	if (h->len)
		return PUMP_OK;
	half_drop(h);
	return half_settle(r, i) ? PUMP_OK : PUMP_ENDED;
}

/*
 * One read from side i, however much there is: with many bulk connections every one more would be time that
 * all others wait for (measured: four reads in a row quadruple their latency and gain nothing).
 */
static enum pump half_pump(struct relay *r, int i)
{
	struct relay_half *h = &r->half[i];
	size_t room = kept < RELAY_KEPT ? sizeof shared : RELAY_SMALL;
	bool alive = true;
	ssize_t n;

	if (h->eof || h->len)
		return PUMP_OK;
	do
		n = recv(r->io[i].fd, shared, room, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return PUMP_OK;
	if (n < 0) {
		relay_close(r, true);
		return PUMP_ENDED;
	}
	if (h->tap) {
		alive = h->tap(r, shared, (size_t)n);
	} else if (n == 0) {
		h->eof = true;
		alive = half_settle(r, i);
	} else {
		alive = half_write(r, i, shared, (size_t)n);
	}
	return alive ? PUMP_OK : PUMP_ENDED;
}

static void relay_event(struct loop_io *io, unsigned events)
{
	struct relay *r = io->data;
	int i = io == &r->io[1];

	if ((events & LOOP_WRITE) && half_flush(r, 1 - i) == PUMP_ENDED)
		return;
	if ((events & LOOP_READ) && half_pump(r, i) == PUMP_ENDED)
		return;
	relay_arm(r);
}

/* A watcher that its owner had on the same descriptor is taken over: the kernel has it already. */
static void side_watch(struct relay *r, struct loop *l, int i, int fd)
{
	if (r->io[i].loop == l && r->io[i].fd == fd)
		loop_io_rebind(&r->io[i], LOOP_READ, relay_event, r);
	else
		loop_io_init(l, &r->io[i], fd, LOOP_READ, relay_event, r);
}

void relay_start(struct relay *r, struct loop *l, int fd0, int fd1, relay_done_fn *done)
{
	memset(r->half, 0, sizeof r->half);
	r->done = done;
	side_watch(r, l, 0, fd0);
	side_watch(r, l, 1, fd1);
}
