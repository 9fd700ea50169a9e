#include "proxy/outgoing.h"
#include "base/str.h"
#include "policy/local.h"
#include "proxy/control.h"
#include "proxy/denied.h"
#include "proxy/dns.h"
#include "proxy/first.h"
#include "proxy/tally.h"
#include "proxy/access.h"
#include "proxy/upstream.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define FIRST_SIZE 2048 /* of the buffer of first bytes; most heads fit */

/* --- life of a connection --- */

static void judged(struct outgoing *c)
{
	if (!c->judging)
		return;
	c->judging = false;
	c->l->judging--;
	egress_run(c->l);
}

/*
 * A setup and its buffer are too large for the quick lists of malloc(), and every connection has one for a moment: some
 * stay here.
 */
#define SPARE_MAX 16
static struct setup *spare[SPARE_MAX];
static size_t spares;

static struct setup *setup_get(void)
{
	struct setup *s;
	char *buf;

	if (!spares)
		return xcalloc(1, sizeof *s);
	s = spare[--spares];
	buf = s->buf;
	memset(s, 0, sizeof *s);
	s->buf = buf;
	return s;
}

void setup_put(struct setup *s)
{
	if (spares < SPARE_MAX && s->cap == FIRST_SIZE) {
		spare[spares++] = s;
		return;
	}
	free(s->buf);
	free(s);
}

static void setup_free(struct outgoing *c)
{
	struct setup *s = TAKE_PTR(c->setup);

	if (!s)
		return;
	outgoing_release(c);
	resolve_stop(&s->waiter);
	dial_stop(&s->dial);
	upstream_free(s->up);
	setup_put(s);
}

static void on_deadline(struct loop_timer *t);

struct outgoing *outgoing_create(struct egress_listener *l, int fd, const struct front *front)
{
	struct outgoing *c = xcalloc(1, sizeof *c);

	c->l = l;
	c->app = l->app;
	c->front = front;
	c->relay.io[0].fd = fd;
	c->relay.io[1].fd = -1;
	c->judging = true;
	l->judging++;
	app_conn_add(l->app, &l->conns, &c->conn);
	loop_timer_init(l->app->proxy->loop, &c->timer, on_deadline, c);
	c->setup = setup_get();
	c->access = access_begin(l->app->proxy->access, fd);
	egress_run(l);
	return c;
}

void outgoing_free(struct outgoing *c)
{
	struct egress_listener *l = c->l;

	relay_abort(&c->relay, false);
	loop_timer_stop(&c->timer);
	setup_free(c);
	outgoing_release(c);
	hello_free(c->hello);
	later_free(c->later);
	http_free(c->http);
	upstream_free(c->absolute);
	access_end(c->app->proxy->access, c->access, c->front->name);
	app_conn_remove(c->app, &l->conns, &c->conn);
	judged(c);
	egress_run(l);
	if (c->stand_in.s_addr)
		names_release(dns_names(c->app->dns), c->stand_in);
	free(c->host);
	free(c->rule);
	free(c);
}

void outgoing_reset(struct outgoing *c)
{
	relay_abort(&c->relay, true);
	outgoing_free(c);
}

void outgoing_done(struct relay *r)
{
	outgoing_free(container_of(r, struct outgoing, relay));
}

bool outgoing_hold(struct outgoing *c, size_t n)
{
	if (c->l->held + n > HELD_MAX)
		return false;
	c->l->held += n;
	c->held += (uint32_t)n;
	return true;
}

void outgoing_release(struct outgoing *c)
{
	c->l->held -= c->held;
	c->held = 0;
}

/* --- answers of our own --- */

static void on_linger(struct loop_io *io, unsigned events)
{
	struct outgoing *c = io->data;
	static char sink[16384];
	ssize_t n = recv(io->fd, sink, sizeof sink, 0);

	(void)events;
	if (n > 0 && (c->lingered += (uint32_t)n) < LINGER_BYTES)
		return;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	outgoing_free(c);
}

/* A close with unread bytes would destroy the answer on its way. */
void outgoing_answer(struct outgoing *c, const void *data, size_t len)
{
	int fd = c->relay.io[0].fd;
	/* The first bytes ever sent there, or nearly: they fit the socket's buffer. */
	bool said = send(fd, data, len, MSG_NOSIGNAL) >= 0 && shutdown(fd, SHUT_WR) == 0;

	loop_io_stop(&c->relay.io[0]);
	setup_free(c); /* `data` may be in it */
	judged(c);
	c->phase = PHASE_LINGER;
	if (!said) {
		outgoing_free(c);
		return;
	}
	loop_io_init(c->app->proxy->loop, &c->relay.io[0], fd, LOOP_READ, on_linger, c);
	loop_timer_start(&c->timer, LINGER_MS);
}

/* Not a byte of this app is parsed any more. */
void outgoing_closed(struct outgoing *c)
{
	denied_add(c->app->denied, "", 0, "egress closed", "", "egress closed");
	c->front->closed(c);
}

static void refuse(struct outgoing *c, const struct verdict *v)
{
	const struct target *t = &c->setup->target;

	denied_add(c->app->denied, t->host, t->port, v->rule, v->hint, v->rule);
	access_verdict(c->access, ACCESS_DENIED, v->rule);
	c->front->refuse(c, v);
}

void outgoing_denied(struct outgoing *c, const char *rule, const char *hint)
{
	denied_add(c->app->denied, c->host, c->port, rule, hint, c->rule);
	access_verdict(c->access, ACCESS_DENIED, rule);
}

static void fail(struct outgoing *c, enum failure why, int errnum, const char *text)
{
	const struct target *t = &c->setup->target;

	access_error(c->access, text);
	if (why != FAIL_BUSY)
		denied_add_unreachable(c->app->denied, t->host, t->port, text);
	c->front->fail(c, why, errnum, text);
}

/* --- a connection that is over, but for somebody who does not say so --- */

/*
 * Nobody can tell a client that closed from one that only said all it had to say. A site that then neither
 * answers nor closes would keep the connection for ever, and an app has only so many.
 */
static void on_half_closed(struct relay *r, int i)
{
	struct outgoing *c = container_of(r, struct outgoing, relay);

	if (i == 0)
		loop_timer_start(&c->timer, SILENCE_MS);
}

static void relay_late(struct outgoing *c)
{
	const struct relay_half *to_client = &c->relay.half[1];
	bool whole = !c->relay.half[0].eof && !to_client->eof;

	if (to_client->len || (!to_client->eof && c->relay.moved)) { /* not all was said, or taken */
		c->relay.moved = false;
		loop_timer_start(&c->timer, whole ? IDLE_MS : SILENCE_MS);
	} else if (to_client->eof) {
		outgoing_free(c);
	} else {
		outgoing_reset(c);
	}
}

/* --- the verdict --- */

/* By the rules of this moment; `v` are the addresses that a name stands for. NULL: another proxy resolves it. */
static bool allowed(const struct policy *p, const struct target *t, const struct addr *v, size_t n,
		    struct verdict *out)
{
	struct verdict by;

	if (t->literal) {
		policy_decide_addr(p, &t->addr, t->port, out);
		return out->action == VERDICT_ALLOW;
	}
	policy_decide_host(p, t->host, t->port, &by);
	if (by.action == VERDICT_ALLOW && v)
		policy_decide_answer(p, t->host, t->port, &by, v, n, out);
	else
		*out = by;
	return out->action == VERDICT_ALLOW;
}

/* The rules changed, or egress was closed, while we waited for somebody. False: refused. */
static bool still_allowed(struct outgoing *c, const struct addr *v, size_t n)
{
	if (c->app->closed) {
		outgoing_closed(c);
		return false;
	}
	if (allowed(c->app->policy, &c->setup->target, v, n, &c->setup->verdict))
		return true;
	refuse(c, &c->setup->verdict);
	return false;
}

void outgoing_judge_again(struct outgoing *c)
{
	struct target t = {.literal = c->literal, .port = c->port};
	CLEANUP_FREE char *rule = NULL;
	struct verdict v;

	if (c->phase != PHASE_RELAY) /* it is judged when the client, the resolver, the dial are done */
		return;
	if (c->app->closed) {
		outgoing_denied(c, "egress closed", "");
		outgoing_reset(c);
		return;
	}
	(void)snprintf(t.host, sizeof t.host, "%s", c->host);
	t.addr = c->peer;
	if (allowed(c->app->policy, &t, c->via ? NULL : &c->peer, 1, &v)) {
		c->generation = c->app->generation;
		c->by_address = v.by_address;
		if (!str_eq(c->rule, v.rule)) {
			free(c->rule);
			c->rule = xstrdup(v.rule);
		}
		return;
	}
	rule = str_eq(v.rule, "default-deny") ? xasprintf("rule removed: %s", c->rule)
					      : xasprintf("rule removed: %s, now %s", c->rule, v.rule);
	outgoing_denied(c, rule, v.hint);
	outgoing_reset(c);
}

/* --- resolve, dial --- */

static void count_allowed(struct outgoing *c, const char *rule)
{
	c->app->counters.out_allowed++;
	tally_add(c->app->tally, rule, true);
	app_counted(c->app);
}

/* The link has done its work; requests in absolute form still need what it knows. */
static void take_upstream(struct outgoing *c)
{
	struct upstream_link *up = TAKE_PTR(c->setup->up);

	access_connected(c->access, &c->peer, up ? upstream_shown(up) : NULL);
	if (up && upstream_absolute(up))
		c->absolute = up;
	else
		upstream_free(up);
}

static void connected(struct outgoing *c, int fd)
{
	struct setup *s = c->setup;
	uint64_t *in = &c->app->counters.bytes_in, *out = &c->app->counters.bytes_out;

	if (c->generation != c->app->generation && !still_allowed(c, c->via ? NULL : s->dial.v, s->dial.n)) {
		(void)close(fd);
		return;
	}
	c->generation = c->app->generation;
	c->host = xstrdup(s->target.host);
	c->port = s->target.port;
	c->rule = xstrdup(s->verdict.rule);
	c->literal = s->target.literal;
	c->peer = s->target.literal ? s->target.addr : c->via ? (struct addr){0} : s->dial.v[s->dial.won];
	c->by_address = s->verdict.by_address;
	count_allowed(c, c->rule);
	take_upstream(c);
	c->phase = PHASE_RELAY;
	app_conn_dialled(&c->conn);
	judged(c);
	loop_timer_start(&c->timer, IDLE_MS);
	c->relay.ended = on_half_closed;
	c->relay.count[0] = access_bytes(c->access, 0, out);
	c->relay.count[1] = access_bytes(c->access, 1, in);
	access_verdict(c->access, ACCESS_ALLOWED, c->rule);
	c->front->start(c, fd);
}

static void on_dialled(void *data, enum dial_result result, int fd, int errnum)
{
	struct outgoing *c = data;
	CLEANUP_FREE char *why = NULL;
	struct verdict v;

	if (result == DIAL_OK) {
		connected(c, fd);
		return;
	}
	if (result == DIAL_LOCAL) {
		policy_decide_own(c->setup->target.port, &v);
		refuse(c, &v);
		return;
	}
	count_allowed(c, c->setup->verdict.rule);
	if (result == DIAL_TIMEOUT) {
		fail(c, FAIL_LATE, ETIMEDOUT, "the site did not answer the connection in time");
		return;
	}
	why = xasprintf("the site cannot be reached: %s", strerror(errnum));
	fail(c, FAIL_CONNECT, errnum, why);
}

/* All judged, all allowed by the policy; the kernel has the last word. */
static void connect_to(struct outgoing *c, const struct addr *v, size_t n)
{
	struct setup *s = c->setup;
	struct verdict local;

	/* An answer that names this machine is refused whole; the one address of others is checked by the
	 * dial. */
	for (size_t i = 0; i < n && n > 1; i++) {
		if (local_route(&v[i]) != ROUTE_LOCAL)
			continue;
		policy_decide_own(s->target.port, &local);
		refuse(c, &local);
		return;
	}
	c->generation = c->app->generation;
	c->phase = PHASE_DIAL;
	loop_timer_start(&c->timer, IDLE_MS); /* the dial has its own */
	dial_start(&s->dial, c->app->proxy->loop, v, n, s->target.port, on_dialled, c);
}

static void on_resolved(void *data, enum resolve_result result, const struct addr *v, size_t n,
			const char *why)
{
	struct outgoing *c = data;
	CLEANUP_FREE char *text = NULL;

	if (result != RESOLVE_OK) {
		text = xasprintf("%s cannot be resolved: %s", c->setup->target.host, why);
		fail(c, result == RESOLVE_TIMEOUT ? FAIL_NAME_LATE : FAIL_NAME, 0, text);
		return;
	}
	if (still_allowed(c, v, n))
		connect_to(c, v, n);
}

static void on_upstream(struct outgoing *c, int fd, enum failure why, int errnum, const char *text)
{
	if (fd >= 0) {
		connected(c, fd);
		return;
	}
	count_allowed(c, c->setup->verdict.rule);
	fail(c, why, errnum, text);
}

/* A request that http.c sends on as one; else it is a tunnel. */
static bool is_request(const struct outgoing *c)
{
	const struct setup *s = c->setup;

	if (c->front == &front_http)
		return !s->req.connect && !s->req.websocket;
	return c->front == &front_transparent && s->first == FIRST_HTTP && !s->req.websocket;
}

/* Allowed. False: the way is direct. */
static bool through_another(struct outgoing *c)
{
	const struct target *t = &c->setup->target;
	const struct upstream *u =
		policy_upstream(c->app->policy, t->host, t->literal ? &t->addr : NULL, t->port);
	struct verdict own;

	if (!u)
		return false;
	if (t->literal && local_route(&t->addr) == ROUTE_LOCAL) {
		policy_decide_own(t->port, &own);
		refuse(c, &own);
		return true;
	}
	c->via = true;
	c->generation = c->app->generation;
	c->phase = PHASE_DIAL;
	loop_timer_start(&c->timer, IDLE_MS); /* it has its own */
	c->setup->up = upstream_create(c, u, is_request(c));
	upstream_start(c, c->l->acc.fd, on_upstream);
	return true;
}

bool outgoing_name_of_address(struct outgoing *c)
{
	struct names *names = dns_names(c->app->dns);
	struct target *t = &c->setup->target;
	const char *name;

	if (!names || !t->literal || !names_is_fake(&t->addr))
		return false;
	name = names_find(names, t->addr.v4);
	if (!name)
		return false;
	c->stand_in = t->addr.v4;
	names_hold(names, c->stand_in);
	(void)snprintf(t->host, sizeof t->host, "%s", name);
	t->literal = false;
	return true;
}

void outgoing_judge(struct outgoing *c)
{
	struct setup *s = c->setup;
	const struct target *t = &s->target;

	loop_io_stop(&c->relay.io[0]);
	access_target(c->access, t, c->front == &front_socks ? NULL : &s->req, s->buf);
	if (!c->app->policy) {
		(void)snprintf(s->verdict.rule, sizeof s->verdict.rule, "default-deny");
		(void)snprintf(s->verdict.reason, sizeof s->verdict.reason, "no policy yet");
		refuse(c, &s->verdict);
		return;
	}
	if (t->literal)
		policy_decide_addr(c->app->policy, &t->addr, t->port, &s->verdict);
	else
		policy_decide_host(c->app->policy, t->host, t->port, &s->verdict);
	if (s->verdict.action != VERDICT_ALLOW) {
		refuse(c, &s->verdict);
		return;
	}
	if (through_another(c))
		return;
	if (t->literal) {
		connect_to(c, &t->addr, 1);
		return;
	}
	c->phase = PHASE_RESOLVE;
	loop_timer_start(&c->timer, IDLE_MS); /* the resolver has its own */
	resolve_start(c->l->resolver, &s->waiter, t->host, on_resolved, c);
}

/* --- the first bytes --- */

static bool first_room(struct outgoing *c)
{
	struct setup *s = c->setup;
	size_t cap = s->cap ? s->cap * 2 : FIRST_SIZE;

	if (s->len < s->cap)
		return true;
	if (!outgoing_hold(c, cap - s->cap))
		return false;
	if (s->cap || !s->buf)
		s->buf = xrealloc(s->buf, cap);
	s->cap = cap;
	return true;
}

static void on_first(struct loop_io *io, unsigned events)
{
	struct outgoing *c = io->data;
	struct setup *s = c->setup;
	ssize_t n;

	(void)events;
	if (c->app->closed) { /* since it was accepted */
		outgoing_closed(c);
		return;
	}
	if (!first_room(c)) {
		fail(c, FAIL_BUSY, 0, "too many requests of this app are unfinished");
		return;
	}
	n = recv(io->fd, s->buf + s->len, s->cap - s->len, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		outgoing_free(c);
		return;
	}
	if (n == 0) {
		c->front->gave_up(c, true);
		return;
	}
	s->len += (size_t)n;
	c->front->bytes(c);
}

void outgoing_read(struct outgoing *c, int64_t limit_ms)
{
	struct loop *loop = c->app->proxy->loop;

	if (c->app->closed) {
		outgoing_closed(c);
		return;
	}
	loop_io_init(loop, &c->relay.io[0], c->relay.io[0].fd, LOOP_READ, on_first, c);
	loop_timer_start(&c->timer, limit_ms);
	on_first(&c->relay.io[0], LOOP_READ); /* they may be there already */
}

static void on_deadline(struct loop_timer *t)
{
	struct outgoing *c = t->data;

	if (c->phase == PHASE_FIRST)
		c->front->gave_up(c, false);
	else if (c->phase == PHASE_RELAY && c->hello)
		tunnel_late(c);
	else if (c->phase == PHASE_RELAY)
		relay_late(c);
	else
		outgoing_free(c);
}
