/*
 * Policy DNS over TCP (RFC 7766): a length of two bytes before each message, questions pipelined, answers in
 * order. One question at a time is in the buffer; while an answer waits to be written nothing is read, so that
 * a connection costs what its struct says and no more.
 */
#include "base/fd.h"
#include "base/str.h"
#include "proxy/dns_internal.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define CONNS_MAX 32    /* of one app; more wait in the listen queue */
#define IDLE_MS   10000 /* RFC 7766 6.2.3: "a few seconds" */

struct conn {
	struct conn *prev, *next;
	struct dns_listener *l;
	struct loop_io io;
	struct loop_timer idle; /* runs from the last whole question */
	size_t in_len, out_len, out_at;
	uint8_t in[2 + DNS_QUERY_MAX + 1], out[2 + DNS_ANSWER_MAX];
};

struct dns_listener {
	struct dns_listener *next;
	struct dns *dns;
	struct acceptor acc;
	struct conn *conns;
	size_t n;
	bool paused;
};

static void conn_free(struct conn *c)
{
	struct dns_listener *l = c->l;

	if (c->prev)
		c->prev->next = c->next;
	else
		l->conns = c->next;
	if (c->next)
		c->next->prev = c->prev;
	l->n--;
	loop_io_stop(&c->io);
	loop_timer_stop(&c->idle);
	(void)close(c->io.fd);
	conns_sub(&l->dns->app->conns, false);
	acceptor_run(&l->acc, !l->paused && l->n < CONNS_MAX);
	free(c);
}

static void on_idle(struct loop_timer *t)
{
	conn_free(t->data);
}

/* 1: all is out, 0: the rest waits, -1: the connection is over. */
static int flush(struct conn *c)
{
	while (c->out_at < c->out_len) {
		ssize_t n = send(c->io.fd, c->out + c->out_at, c->out_len - c->out_at,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -1;
		c->out_at += (size_t)n;
	}
	c->out_at = c->out_len = 0;
	return 1;
}

/* Takes the first message out of `in` and answers it. 1: done, 0: it is not there yet, -1: end. */
static int next_message(struct conn *c)
{
	size_t len, n;

	if (c->in_len < 2)
		return 0;
	len = (size_t)c->in[0] << 8 | c->in[1];
	if (len > DNS_QUERY_MAX) /* to skip it would be to read it: no question is that long */
		return -1;
	if (c->in_len < 2 + len)
		return 0;
	n = dns_reply(c->l->dns, c->in + 2, len, false, c->out + 2);
	if (!n)
		return -1; /* no question: whoever sends it speaks something else */
	c->out[0] = (uint8_t)(n >> 8);
	c->out[1] = (uint8_t)n;
	c->out_len = 2 + n;
	c->in_len -= 2 + len;
	memmove(c->in, c->in + 2 + len, c->in_len);
	loop_timer_start(&c->idle, IDLE_MS);
	return 1;
}

/* 1: go on, 0: wait, -1: end. */
static int fill(struct conn *c)
{
	ssize_t n = recv(c->io.fd, c->in + c->in_len, sizeof c->in - c->in_len, MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	c->in_len += (size_t)n;
	return n ? 1 : -1;
}

/* One recv() a turn: a connection that always has more to say leaves the others their turns. */
static void on_conn(struct loop_io *io, unsigned events)
{
	struct conn *c = io->data;
	struct dns *d = c->l->dns;
	size_t asked = 0;
	int r = flush(c);

	if (r > 0 && events & LOOP_READ)
		r = fill(c) < 0 ? -1 : 1;
	while (r > 0 && (r = next_message(c)) > 0) {
		asked++;
		r = flush(c);
	}
	if (r < 0)
		conn_free(c);
	else
		loop_io_set(&c->io, c->out_len ? LOOP_WRITE : c->l->paused ? 0 : LOOP_READ);
	if (asked)
		(void)dns_spend(d, asked);
}

static bool on_client(struct acceptor *acc, int fd, const struct sockaddr_storage *peer)
{
	struct dns_listener *l = acc->data;
	struct loop *loop = l->dns->app->proxy->loop;
	struct conn *c = xcalloc(1, sizeof *c);

	(void)peer;
	c->l = l;
	c->next = l->conns;
	if (c->next)
		c->next->prev = c;
	l->conns = c;
	l->n++;
	conns_add(&l->dns->app->conns);
	loop_io_init(loop, &c->io, fd, LOOP_READ, on_conn, c);
	loop_timer_init(loop, &c->idle, on_idle, c);
	loop_timer_start(&c->idle, IDLE_MS);
	acceptor_run(&l->acc, l->n < CONNS_MAX);
	return acc->on;
}

void dns_tcp(struct dns *d, int fd)
{
	struct dns_listener *l = xcalloc(1, sizeof *l);

	l->dns = d;
	l->next = d->tcp;
	d->tcp = l;
	acceptor_init(&l->acc, d->app->proxy->loop, fd, &d->app->conns, on_client, l);
	acceptor_run(&l->acc, true);
}

void dns_tcp_run(struct dns *d, bool on)
{
	for (struct dns_listener *l = d->tcp; l; l = l->next) {
		l->paused = !on;
		acceptor_run(&l->acc, on && l->n < CONNS_MAX);
		for (struct conn *c = l->conns; c; c = c->next)
			if (!c->out_len)
				loop_io_set(&c->io, on ? LOOP_READ : 0);
	}
}

void dns_tcp_destroy(struct dns *d)
{
	while (d->tcp) {
		struct dns_listener *l = d->tcp;

		d->tcp = l->next;
		while (l->conns)
			conn_free(l->conns);
		acceptor_finish(&l->acc);
		free(l);
	}
}
