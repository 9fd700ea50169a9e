#include "proxy/egress.h"
#include "base/log.h"
#include "base/str.h"
#include "proxy/control.h"
#include "proxy/denied.h"
#include "policy/local.h"
#include "proxy/outgoing.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define HEAD_FIRST 2048 /* of the buffer; most heads fit */

struct egress_listener {
	struct app *app;
	struct acceptor acc;
	struct resolver *resolver;
	struct outgoing *conns;
	size_t n;
};

static void judge(struct outgoing *c);

/* --- life of a connection --- */

static void setup_free(struct setup *s)
{
	if (!s)
		return;
	resolve_stop(&s->waiter);
	dial_stop(&s->dial);
	free(s->buf);
	free(s);
}

void outgoing_free(struct outgoing *c)
{
	struct egress_listener *l = c->l;

	relay_abort(&c->relay, false);
	if (c->prev)
		c->prev->next = c->next;
	else
		l->conns = c->next;
	if (c->next)
		c->next->prev = c->prev;
	l->n--;
	acceptor_run(&l->acc, l->n < OUTGOING_MAX);
	c->app->counters.out_open--;
	app_counted(c->app);
	conns_sub(&c->app->conns);
	loop_timer_stop(&c->timer);
	setup_free(c->setup);
	hello_free(c->hello);
	http_free(c->http);
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

static void on_deadline(struct loop_timer *t);

/* Sends the answer and waits for the client to read it: a close with unread bytes would destroy it on its
 * way. */
static void answer(struct outgoing *c, const char *text)
{
	int fd = c->relay.io[0].fd;

	loop_io_stop(&c->relay.io[0]);
	setup_free(c->setup);
	c->setup = NULL;
	c->phase = PHASE_LINGER;
	/* The first bytes ever sent there: they fit the socket's buffer. */
	if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0 || shutdown(fd, SHUT_WR) < 0) {
		outgoing_free(c);
		return;
	}
	loop_io_init(c->app->proxy->loop, &c->relay.io[0], fd, LOOP_READ, on_linger, c);
	loop_timer_start(&c->timer, LINGER_MS);
}

static void answer_error(struct outgoing *c, int status, const char *reason)
{
	CLEANUP_FREE char *text = reply_error(status, reason);

	answer(c, text);
}

/* Not a byte of this app is parsed any more. */
static void answer_closed(struct outgoing *c)
{
	CLEANUP_FREE char *text = reply_closed(c->app, c->app->closed);

	denied_add(c->app->denied, "", 0, "egress closed", "");
	answer(c, text);
}

static void refuse(struct outgoing *c, const struct verdict *v)
{
	const struct request *r = &c->setup->req;
	CLEANUP_FREE char *text = reply_refused(c->app, r->host, r->port, v);

	denied_add(c->app->denied, r->host, r->port, v->rule, v->hint);
	answer(c, text);
}

void outgoing_denied(struct outgoing *c, const char *rule, const char *hint)
{
	denied_add(c->app->denied, c->host, c->port, rule, hint);
}

/* --- a connection that is over, but for somebody who does not say so --- */

/*
 * Nobody can tell a client that closed from one that only said all it had to say. A site that then neither
 * answers nor closes would keep the connection for ever, and an app has only OUTGOING_MAX.
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

	if (to_client->len || (!to_client->eof && c->relay.moved)) { /* not all was said, or taken */
		c->relay.moved = false;
		loop_timer_start(&c->timer, SILENCE_MS);
	} else if (to_client->eof) {
		outgoing_free(c);
	} else {
		outgoing_reset(c);
	}
}

/* --- connect --- */

/* By the rules of this moment; `v` are the addresses that the target stands for. */
static bool target_allowed(struct outgoing *c, const struct addr *v, size_t n)
{
	const struct request *r = &c->setup->req;
	struct verdict by, *out = &c->setup->verdict;

	if (r->literal) {
		policy_decide_addr(c->app->policy, &r->addr, r->port, out);
		return out->action == VERDICT_ALLOW;
	}
	policy_decide_host(c->app->policy, r->host, r->port, &by);
	if (by.action == VERDICT_ALLOW)
		policy_decide_answer(c->app->policy, r->host, r->port, &by, v, n, out);
	else
		*out = by;
	return out->action == VERDICT_ALLOW;
}

/* The rules changed, or egress was closed, while we waited for somebody. False: answered. */
static bool still_allowed(struct outgoing *c, const struct addr *v, size_t n)
{
	if (c->app->closed) {
		answer_closed(c);
		return false;
	}
	if (target_allowed(c, v, n))
		return true;
	refuse(c, &c->setup->verdict);
	return false;
}

static void connected(struct outgoing *c, int fd)
{
	struct setup *s = c->setup;

	if (c->generation != c->app->generation && !still_allowed(c, s->dial.v, s->dial.n)) {
		(void)close(fd);
		return;
	}
	c->generation = c->app->generation;
	c->host = xstrdup(s->req.host);
	c->port = s->req.port;
	c->rule = xstrdup(s->verdict.rule);
	c->literal = s->req.literal;
	c->by_address = s->verdict.by_address;
	c->app->counters.out_allowed++;
	app_counted(c->app);
	loop_timer_stop(&c->timer);
	c->phase = PHASE_RELAY;
	c->relay.ended = on_half_closed;
	c->relay.count[0] = &c->app->counters.bytes_out;
	c->relay.count[1] = &c->app->counters.bytes_in;
	if (!s->req.connect) {
		http_start(c, fd);
		return;
	}
	c->setup = NULL;
	tunnel_start(c, fd, s->buf + s->req.head_len, s->len - s->req.head_len);
	setup_free(s); /* c may be gone */
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
		policy_decide_own(c->setup->req.port, &v);
		refuse(c, &v);
		return;
	}
	c->app->counters.out_allowed++;
	app_counted(c->app);
	if (result == DIAL_TIMEOUT) {
		answer_error(c, 504, "the site did not answer the connection in time");
		return;
	}
	why = xasprintf("the site cannot be reached: %s", strerror(errnum));
	answer_error(c, 502, why);
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
		policy_decide_own(s->req.port, &local);
		refuse(c, &local);
		return;
	}
	c->generation = c->app->generation;
	c->phase = PHASE_DIAL;
	loop_timer_stop(&c->timer); /* the dial has its own */
	dial_start(&s->dial, c->app->proxy->loop, v, n, s->req.port, on_dialled, c);
}

static void on_resolved(void *data, enum resolve_result result, const struct addr *v, size_t n,
			const char *why)
{
	struct outgoing *c = data;
	struct setup *s = c->setup;
	CLEANUP_FREE char *text = NULL;

	if (result != RESOLVE_OK) {
		text = xasprintf("%s cannot be resolved: %s", s->req.host, why);
		answer_error(c, result == RESOLVE_TIMEOUT ? 504 : 502, text);
		return;
	}
	if (still_allowed(c, v, n))
		connect_to(c, v, n);
}

static void judge(struct outgoing *c)
{
	struct setup *s = c->setup;
	const struct request *r = &s->req;

	if (!c->app->policy) {
		(void)snprintf(s->verdict.rule, sizeof s->verdict.rule, "default-deny");
		(void)snprintf(s->verdict.reason, sizeof s->verdict.reason, "no policy yet");
		refuse(c, &s->verdict);
		return;
	}
	if (r->literal)
		policy_decide_addr(c->app->policy, &r->addr, r->port, &s->verdict);
	else
		policy_decide_host(c->app->policy, r->host, r->port, &s->verdict);
	if (s->verdict.action != VERDICT_ALLOW) {
		refuse(c, &s->verdict);
		return;
	}
	if (r->literal) {
		connect_to(c, &r->addr, 1);
		return;
	}
	c->phase = PHASE_RESOLVE;
	loop_timer_stop(&c->timer); /* the resolver has its own */
	resolve_start(c->l->resolver, &s->waiter, r->host, on_resolved, c);
}

/* --- the head --- */

/* What came of a chunked body together with the head: a request that is malformed there already is refused
 * before anything is looked up or dialled. (What comes later is judged as it passes, http.c.) */
static enum parse body_check(struct setup *s)
{
	size_t len = s->len - s->req.head_len, used, out;
	CLEANUP_FREE char *copy = NULL;
	struct chunk c = {0};

	if (s->req.body != BODY_CHUNKED || !len)
		return PARSE_DONE;
	copy = xmalloc(len);
	memcpy(copy, s->buf + s->req.head_len, len);
	if (chunk_filter(&c, copy, len, &used, &out) != PARSE_BAD)
		return PARSE_DONE;
	s->req.status = 400;
	s->req.reason = "the chunked body is malformed";
	return PARSE_BAD;
}

static void head_parse(struct outgoing *c)
{
	struct setup *s = c->setup;
	enum parse p;

	crash_page_enter(c->app);
	p = request_parse(&s->req, s->buf, s->len);
	if (p == PARSE_DONE)
		p = body_check(s);
	crash_page_leave();
	if (p == PARSE_MORE && s->len < REQUEST_HEAD_MAX)
		return;
	loop_io_stop(&c->relay.io[0]);
	if (p == PARSE_DONE)
		judge(c);
	else if (p == PARSE_MORE)
		answer_error(c, 431, "the request head is too long");
	else
		answer_error(c, s->req.status, s->req.reason);
}

static void on_head(struct loop_io *io, unsigned events)
{
	struct outgoing *c = io->data;
	struct setup *s = c->setup;
	ssize_t n;

	(void)events;
	if (c->app->closed) { /* since it was accepted */
		answer_closed(c);
		return;
	}
	if (s->len == s->cap) {
		s->cap = s->cap ? s->cap * 2 : HEAD_FIRST;
		if (s->cap > REQUEST_HEAD_MAX)
			s->cap = REQUEST_HEAD_MAX;
		s->buf = xrealloc(s->buf, s->cap);
	}
	n = recv(io->fd, s->buf + s->len, s->cap - s->len, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) { /* gone, or half closed before it asked anything */
		outgoing_free(c);
		return;
	}
	s->len += (size_t)n;
	head_parse(c);
}

static void on_deadline(struct loop_timer *t)
{
	struct outgoing *c = t->data;

	if (c->phase == PHASE_HEAD && c->setup->len)
		answer_error(c, 408, "the request head did not come in time");
	else if (c->phase == PHASE_RELAY && c->hello)
		tunnel_late(c);
	else if (c->phase == PHASE_RELAY)
		relay_late(c);
	else
		outgoing_free(c);
}

static bool on_client(struct acceptor *acc, int fd, const struct sockaddr_storage *peer)
{
	struct egress_listener *l = acc->data;
	struct outgoing *c = xcalloc(1, sizeof *c);
	struct loop *loop = l->app->proxy->loop;

	(void)peer;
	c->l = l;
	c->app = l->app;
	c->relay.io[1].fd = -1;
	c->next = l->conns;
	if (c->next)
		c->next->prev = c;
	l->conns = c;
	l->n++;
	acceptor_run(&l->acc, l->n < OUTGOING_MAX);
	c->app->counters.out_open++;
	conns_add(&c->app->conns);
	loop_timer_init(loop, &c->timer, on_deadline, c);
	if (l->app->closed) {
		c->relay.io[0].fd = fd;
		answer_closed(c);
		return acc->on;
	}
	c->setup = xcalloc(1, sizeof *c->setup);
	loop_io_init(loop, &c->relay.io[0], fd, LOOP_READ, on_head, c);
	loop_timer_start(&c->timer, HEAD_LIMIT_MS);
	return acc->on;
}

/* --- the listener --- */

struct egress_listener *egress_create(struct app *a, int fd)
{
	struct egress_listener *l = xcalloc(1, sizeof *l);

	l->app = a;
	l->resolver = resolver_create(a);
	acceptor_init(&l->acc, a->proxy->loop, fd, &a->conns, on_client, l);
	acceptor_run(&l->acc, true);
	return l;
}

void egress_destroy(struct egress_listener *l)
{
	if (!l)
		return;
	while (l->conns)
		outgoing_reset(l->conns);
	acceptor_finish(&l->acc);
	resolver_destroy(l->resolver);
	free(l);
}
