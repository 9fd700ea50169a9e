#include "proxy/forward.h"
#include "proxy/idle.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "proxy/inner.h"
#include "proxy/pool.h"
#include "proxy/relay.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define RETRY_MS       20
#define RETRY_LIMIT_MS 10000
#define PENDING_MAX    256  /* more wait in the listen queue */
#define OPEN_MAX       8192 /* of one app, so that one cannot use up everybody's descriptors */
#define GONE_MIN_MS    10000
#define GONE_MAX_MS    60000
#define GONE_UNHEARD   3 /* times that something was sent again, or asked, without an answer */

struct port {
	struct acceptor acc;
	struct port *next;
	struct forward *f;
	uint16_t host, app;
	int family; /* that answered last: AF_INET or AF_INET6 */
	bool stale; /* between begin and end */
};

enum phase {
	WAIT_POOL,  /* needs a socket */
	CONNECTING, /* asked, no answer yet */
	WAIT_RETRY, /* refused */
	OPEN,
};

struct inbound {
	struct relay relay; /* io[0] the client, io[1] the app */
	struct inbound *prev, *next;
	struct forward *f;
	struct addr peer; /* family 0: loopback */
	int64_t deadline_ms;
	int inner[2]; /* unconnected sockets of this connection, for 127.0.0.1 and for ::1 */
	uint16_t app_port;
	uint8_t phase, trying; /* trying: index of inner[] */
	uint8_t refused;       /* bit for each family refused in this round */
};

struct list {
	struct inbound *head, *tail;
	size_t n;
};

struct forward {
	struct app *app;
	struct port *ports;
	struct pool pool;
	struct list pending, open;
	size_t distant; /* of both: clients that are not of this machine */
	struct loop_timer retry;
};

static void list_add(struct list *l, struct inbound *c)
{
	c->next = NULL;
	c->prev = l->tail;
	if (l->tail)
		l->tail->next = c;
	else
		l->head = c;
	l->tail = c;
	l->n++;
}

static void list_del(struct list *l, struct inbound *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		l->head = c->next;
	if (c->next)
		c->next->prev = c->prev;
	else
		l->tail = c->prev;
	l->n--;
}

/* --- listeners and gate --- */

static void ports_run(struct forward *f)
{
	enum gate g = f->app->gate;
	bool room = f->pending.n < PENDING_MAX && f->open.n + f->pending.n < OPEN_MAX;

	for (struct port *p = f->ports; p; p = p->next)
		if (g == GATE_REST)
			acceptor_wait(&p->acc);
		else
			acceptor_run(&p->acc, g == GATE_RESET || (g == GATE_SERVE && room));
	if (g == GATE_REST && f->pending.n)
		idle_wanted(f->app->idle);
}

int64_t forward_gone_ms(const struct forward *f)
{
	int64_t ms = f->app->idle_ms;

	return ms < GONE_MIN_MS ? GONE_MIN_MS : ms > GONE_MAX_MS ? GONE_MAX_MS : ms;
}

/* Of a session app, connections of clients that are gone must end; one of this machine is never gone without a word. Half of the
 * time until the first probe, then four of them. Not the listener's to pass on: who connected before it was told of has another. */
static void inbound_keepalive(const struct inbound *c)
{
	int s = (int)(forward_gone_ms(c->f) / 1000), idle = s / 2, every = s / 8, count = 4,
	    fd = c->relay.io[0].fd;

	if (!c->peer.family || !c->f->app->idle_ms)
		return;
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

static struct port *port_find(struct forward *f, uint16_t app_port)
{
	for (struct port *p = f->ports; p; p = p->next)
		if (p->app == app_port)
			return p;
	return NULL;
}

static void inbound_free(struct inbound *c)
{
	struct forward *f = c->f;

	list_del(c->phase == OPEN ? &f->open : &f->pending, c);
	for (int i = 0; i < 2; i++)
		if (c->inner[i] >= 0)
			(void)close(c->inner[i]);
	f->app->counters.in_open--;
	f->distant -= c->peer.family != 0;
	app_counted(f->app);
	conns_sub(&f->app->conns, false);
	free(c);
	if (!forward_clients(f))
		idle_unused(f->app->idle);
	ports_run(f);
}

static void inbound_reset(struct inbound *c)
{
	if (c->phase != OPEN) { /* io[1] may be watching one of inner[] */
		loop_io_stop(&c->relay.io[1]);
		c->relay.io[1].fd = -1;
	}
	relay_abort(&c->relay, true); /* closes the client; io[1] is -1 or the connected app */
	inbound_free(c);
}

static void on_relay_done(struct relay *r)
{
	inbound_free(container_of(r, struct inbound, relay));
}

/* --- the inner connection --- */

static void inbound_try(struct inbound *c);

static void inbound_open(struct inbound *c)
{
	struct forward *f = c->f;
	struct port *p = port_find(f, c->app_port);
	int client = c->relay.io[0].fd, app = TAKE_FD(c->inner[c->trying]);

	if (p)
		p->family = c->trying ? AF_INET6 : AF_INET;
	if (c->inner[!c->trying] >= 0)
		(void)close(TAKE_FD(c->inner[!c->trying]));
	list_del(&f->pending, c);
	c->phase = OPEN;
	list_add(&f->open, c);
	c->relay.count[0] = &f->app->counters.bytes_in;
	c->relay.count[1] = &f->app->counters.bytes_out;
	relay_start(&c->relay, f->app->proxy->loop, client, app, on_relay_done);
	ports_run(f); /* there is room for another pending one */
}

static void retry_soon(struct forward *f)
{
	if (!loop_timer_active(&f->retry))
		loop_timer_start(&f->retry, RETRY_MS);
}

/* The answer of one connect. True: try the next. */
static bool inbound_answer(struct inbound *c, int error)
{
	if (error == 0) {
		inbound_open(c);
		return false;
	}
	if (error == INNER_NO_ADDRESS || error == ETIMEDOUT) {
		log_warning("%s: inner connection to port %u: %s", c->f->app->name, c->app_port,
			    error == ETIMEDOUT ? strerror(error)
					       : "the client's address cannot be used inside");
		inbound_reset(c);
		return false;
	}
	c->refused |= (uint8_t)(1u << c->trying);
	if (error != ECONNREFUSED && c->inner[c->trying] >= 0)
		(void)close(TAKE_FD(c->inner[c->trying]));
	return true;
}

static void on_inner_connected(struct loop_io *io, unsigned events)
{
	struct inbound *c = io->data;
	int error = inner_connect_result(io->fd);

	(void)events;
	if (error == EINPROGRESS)
		return;
	loop_io_stop(io);
	io->fd = -1;
	if (inbound_answer(c, error))
		inbound_try(c);
}

/* Next family to try in this round, or -1 when both were refused. A client that is not loopback has a family
 * of its own: an app that listens on both is to see its address, not a stand-in of the other family. */
static int next_family(const struct inbound *c)
{
	const struct port *p = port_find(c->f, c->app_port);
	int first = c->peer.family ? c->peer.family == AF_INET6 : p && p->family == AF_INET6;

	if (c->f->pool.family == AF_INET)
		return c->refused & 1 ? -1 : 0;
	if (!(c->refused & (1u << first)))
		return first;
	return c->refused & (1u << !first) ? -1 : !first;
}

static void inbound_try(struct inbound *c)
{
	struct forward *f = c->f;

	for (;;) {
		int k = next_family(c), error;

		if (k < 0) {
			c->refused = 0;
			c->phase = WAIT_RETRY;
			retry_soon(f);
			return;
		}
		if (c->inner[k] < 0)
			c->inner[k] = pool_take(&f->pool, f->app);
		if (c->inner[k] < 0) {
			c->phase = WAIT_POOL;
			retry_soon(f); /* for its deadline, and should the supervisor have none to give */
			return;
		}
		c->trying = (uint8_t)k;
		error = inner_connect(c->inner[k], f->pool.family, k ? AF_INET6 : AF_INET, &c->peer,
				      c->app_port);
		if (error == EINPROGRESS) {
			c->phase = CONNECTING;
			loop_io_init(f->app->proxy->loop, &c->relay.io[1], c->inner[k], LOOP_WRITE,
				     on_inner_connected, c);
			return;
		}
		if (!inbound_answer(c, error))
			return;
	}
}

/* Tries those that wait, when the gate lets them; those whose time is over are reset. */
static void pending_try(struct forward *f)
{
	int64_t now = clk_mono_ms();
	struct inbound *next;

	if (f->app->gate != GATE_SERVE)
		return; /* forward_gate_changed() comes back here */
	for (struct inbound *c = f->pending.head; c; c = next) {
		next = c->next;
		if (c->phase == CONNECTING)
			continue;
		if (now >= c->deadline_ms)
			inbound_reset(c);
		else
			inbound_try(c);
	}
}

static void on_retry(struct loop_timer *t)
{
	pending_try(t->data);
}

/* --- clients --- */

static bool on_client(struct acceptor *a, int fd, const struct sockaddr_storage *peer)
{
	struct port *p = a->data;
	struct forward *f = p->f;
	struct inbound *c;

	if (fd < 0) {
		idle_wanted(f->app->idle);
		return false;
	}
	f->app->counters.in_total++;
	if (f->app->gate == GATE_RESET) {
		fd_close_reset(fd);
		app_counted(f->app);
		return true;
	}
	c = xcalloc(1, sizeof *c);
	c->f = f;
	c->app_port = p->app;
	c->inner[0] = c->inner[1] = -1;
	c->relay.io[0].fd = fd;
	c->relay.io[1].fd = -1;
	c->deadline_ms = clk_mono_ms() + RETRY_LIMIT_MS;
	inner_peer(peer, &c->peer);
	conns_add(&f->app->conns);
	f->app->counters.in_open++;
	app_counted(f->app);
	list_add(&f->pending, c);
	f->distant += c->peer.family != 0;
	inbound_keepalive(c);
	idle_used(f->app->idle);
	inbound_try(c);
	ports_run(f);
	return a->on;
}

void forward_gate_changed(struct forward *f)
{
	int64_t deadline = clk_mono_ms() + RETRY_LIMIT_MS;
	struct inbound *next;

	for (struct inbound *c = f->distant ? f->open.head : NULL; c; c = c->next)
		inbound_keepalive(c);
	for (struct inbound *c = f->pending.head; c; c = next) {
		next = c->next;
		c->deadline_ms = deadline;
		inbound_keepalive(c);
		if (f->app->gate == GATE_RESET)
			inbound_reset(c);
	}
	ports_run(f);
	pending_try(f);
}

void forward_jail_ready(struct forward *f)
{
	if (f->ports || f->pending.n)
		pool_want(&f->pool, f->app, f->pending.n);
}

void forward_pool(struct forward *f, int *fds, size_t n)
{
	pool_put(&f->pool, fds, n);
	if (n)
		pending_try(f);
	else if (f->pending.n)
		retry_soon(f); /* the supervisor could not make any: not at once again */
}

void forward_drop(struct forward *f)
{
	while (f->open.head)
		inbound_reset(f->open.head);
	for (struct inbound *c = f->pending.head; c; c = c->next) {
		loop_io_stop(&c->relay.io[1]);
		c->relay.io[1].fd = -1;
		for (int i = 0; i < 2; i++)
			if (c->inner[i] >= 0)
				(void)close(TAKE_FD(c->inner[i]));
		c->phase = WAIT_POOL;
		c->refused = 0;
	}
	pool_clear(&f->pool);
}

/* --- for idle.c --- */

size_t forward_clients(const struct forward *f)
{
	return f->pending.n + f->open.n;
}

size_t forward_distant(const struct forward *f)
{
	return f->distant;
}

bool forward_queued(const struct forward *f)
{
	for (const struct port *p = f->ports; p; p = p->next) {
		struct pollfd in = {.fd = p->acc.fd, .events = POLLIN};

		if (poll(&in, 1, 0) > 0)
			return true;
	}
	return false;
}

bool forward_moved(struct forward *f)
{
	bool moved = f->pending.n > 0;

	for (struct inbound *c = f->open.head; c; c = c->next) {
		moved |= c->relay.moved;
		c->relay.moved = false;
	}
	return moved;
}

/* Sent again and again, or probed, and nothing came back. A client that only does not read answers. */
static bool is_gone(const struct inbound *c, int64_t ms)
{
	struct tcp_info i = {0};
	socklen_t len = sizeof i;

	return c->peer.family && getsockopt(c->relay.io[0].fd, IPPROTO_TCP, TCP_INFO, &i, &len) == 0 &&
	       i.tcpi_last_ack_recv > ms &&
	       (i.tcpi_retransmits >= GONE_UNHEARD || i.tcpi_probes >= GONE_UNHEARD);
}

void forward_end_gone(struct forward *f)
{
	int64_t ms = forward_gone_ms(f);
	struct inbound *next;

	for (struct inbound *c = f->distant ? f->open.head : NULL; c; c = next) {
		next = c->next;
		if (is_gone(c, ms))
			inbound_reset(c);
	}
}

/* --- life --- */

void forward_listeners_begin(struct forward *f)
{
	for (struct port *p = f->ports; p; p = p->next)
		p->stale = true;
}

void forward_listener(struct forward *f, int fd, uint16_t host_port, uint16_t app_port)
{
	struct port *p;

	for (p = f->ports; p; p = p->next)
		if (p->stale && p->host == host_port && p->app == app_port)
			break;
	if (p) {
		acceptor_finish(&p->acc);
		p->stale = false;
	} else {
		p = xcalloc(1, sizeof *p);
		p->f = f;
		p->host = host_port;
		p->app = app_port;
		p->family = AF_INET;
		p->next = f->ports;
		f->ports = p;
	}
	acceptor_init(&p->acc, f->app->proxy->loop, fd, &f->app->conns, on_client, p);
}

int forward_family(const struct forward *f, uint16_t host_port)
{
	struct sockaddr_storage sa = {.ss_family = AF_UNSPEC};
	socklen_t len = sizeof sa;
	const struct port *p = f->ports;

	while (p && p->host != host_port)
		p = p->next;
	return p && getsockname(p->acc.fd, (struct sockaddr *)&sa, &len) == 0 ? sa.ss_family : AF_UNSPEC;
}

void forward_listeners_end(struct forward *f)
{
	struct port **at = &f->ports;

	while (*at) {
		struct port *p = *at;

		if (!p->stale) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		acceptor_finish(&p->acc);
		free(p);
	}
	ports_run(f);
	forward_jail_ready(f);
}

struct forward *forward_create(struct app *a)
{
	struct forward *f = xcalloc(1, sizeof *f);

	f->app = a;
	pool_init(&f->pool);
	loop_timer_init(a->proxy->loop, &f->retry, on_retry, f);
	return f;
}

void forward_destroy(struct forward *f)
{
	forward_listeners_begin(f);
	forward_listeners_end(f);
	forward_drop(f);
	while (f->pending.head)
		inbound_reset(f->pending.head);
	loop_timer_stop(&f->retry);
	free(f);
}
