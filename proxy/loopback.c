#include "proxy/loopback.h"
#include "base/log.h"
#include "base/str.h"
#include "proxy/control.h"
#include "proxy/denied.h"
#include "proxy/inner.h"
#include "proxy/relay.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define OPEN_MAX 1024
#define NOT_HELD "Loopback=app: its port is not held for that app"

struct lport {
	struct acceptor acc;
	struct lport *next;
	struct loopback *l;
	uint16_t port, to; /* inside, and on the host */
	bool held;         /* nobody but an app's listener is meant */
};

struct lconn {
	struct relay relay; /* io[0] the app, io[1] the host's service */
	struct app_conn conn;
	struct loopback *l;
	uint16_t port, to;
	bool second; /* trying ::1 */
	bool one;    /* and nothing else */
};

struct loopback {
	struct app *app;
	struct lport *ports;
	struct app_conns conns;
};

static void ports_run(struct loopback *l)
{
	for (struct lport *p = l->ports; p; p = p->next)
		acceptor_run(&p->acc, l->conns.n < OPEN_MAX);
}

static void lconn_free(struct lconn *c)
{
	struct loopback *l = c->l;

	app_conn_remove(l->app, &l->conns, &c->conn);
	free(c);
	ports_run(l);
}

static void lconn_reset(struct lconn *c)
{
	relay_abort(&c->relay, true);
	lconn_free(c);
}

static void on_relay_done(struct relay *r)
{
	lconn_free(container_of(r, struct lconn, relay));
}

static void lconn_answer(struct lconn *c, int error);

static void on_connected(struct loop_io *io, unsigned events)
{
	int error = inner_connect_result(io->fd);

	(void)events;
	if (error == EINPROGRESS)
		return;
	loop_io_stop(io);
	lconn_answer(io->data, error);
}

static void lconn_dial(struct lconn *c)
{
	static const struct addr from_loopback;
	int family = c->second ? AF_INET6 : AF_INET;
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error = fd < 0 ? errno : inner_connect(fd, family, family, &from_loopback, c->to);

	c->relay.io[1].fd = fd;
	if (error == EINPROGRESS)
		loop_io_init(c->l->app->proxy->loop, &c->relay.io[1], fd, LOOP_WRITE, on_connected, c);
	else
		lconn_answer(c, error);
}

static void lconn_answer(struct lconn *c, int error)
{
	struct app *a = c->l->app;

	if (!error) {
		c->relay.count[0] = &a->counters.bytes_out;
		c->relay.count[1] = &a->counters.bytes_in;
		relay_start(&c->relay, a->proxy->loop, c->relay.io[0].fd, c->relay.io[1].fd, on_relay_done);
		return;
	}
	if (c->second || c->one || error == EMFILE || error == ENFILE) {
		lconn_reset(c);
		return;
	}
	(void)close(c->relay.io[1].fd);
	c->relay.io[1].fd = -1;
	c->second = true;
	lconn_dial(c);
}

static bool on_client(struct acceptor *acc, int fd, const struct sockaddr_storage *peer)
{
	struct lport *p = acc->data;
	struct loopback *l = p->l;
	int family = p->held ? app_port_family(l->app->proxy, p->to) : AF_UNSPEC;
	struct lconn *c;

	(void)peer;
	if (p->held && family == AF_UNSPEC) {
		denied_add(l->app->denied, "localhost", p->port, NOT_HELD, "", NOT_HELD);
		fd_close_reset(fd);
		return true;
	}
	c = xcalloc(1, sizeof *c);
	c->one = p->held;
	c->second = family == AF_INET6;
	c->l = l;
	c->port = p->port;
	c->to = p->to;
	c->relay.io[0].fd = fd;
	c->relay.io[1].fd = -1;
	l->app->counters.out_allowed++;
	app_conn_add(l->app, &l->conns, &c->conn);
	lconn_dial(c);
	ports_run(l);
	return acc->on;
}

struct loopback *loopback_create(struct app *a)
{
	struct loopback *l = xcalloc(1, sizeof *l);

	l->app = a;
	return l;
}

void loopback_listener(struct loopback *l, int fd, uint16_t port, uint16_t to, bool held)
{
	struct lport *p = xcalloc(1, sizeof *p);

	p->l = l;
	p->port = port;
	p->to = to;
	p->held = held;
	p->next = l->ports;
	l->ports = p;
	acceptor_init(&p->acc, l->app->proxy->loop, fd, &l->app->conns, on_client, p);
	acceptor_run(&p->acc, l->conns.n < OPEN_MAX);
}

void loopback_listeners_begin(struct loopback *l)
{
	while (l->ports) {
		struct lport *p = l->ports;

		l->ports = p->next;
		acceptor_finish(&p->acc);
		free(p);
	}
}

static bool named(const struct loopback *l, uint16_t port)
{
	for (const struct lport *p = l->ports; p; p = p->next)
		if (p->port == port)
			return true;
	return false;
}

void loopback_listeners_end(struct loopback *l)
{
	for (struct app_conn *at = l->conns.head, *next; at; at = next) {
		struct lconn *c = container_of(at, struct lconn, conn);

		next = at->next;
		if (!named(l, c->port))
			lconn_reset(c);
	}
}

void loopback_destroy(struct loopback *l)
{
	if (!l)
		return;
	loopback_listeners_begin(l);
	while (l->conns.head)
		lconn_reset(container_of(l->conns.head, struct lconn, conn));
	free(l);
}
