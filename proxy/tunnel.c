/*
 * Tunnels: of CONNECT, of SOCKS5, and captured connections. The client's first bytes are held until they are
 * judged; the site's flow at once, so a server that speaks first works. What passed is then an ordinary relay.
 *
 * One address may serve many sites, so a name that was allowed is worth nothing when the client then names
 * another one inside (fronting). With SniPolicy=match the first thing said to a named target must fit it: a
 * ClientHello has its server name compared (sni.h), a plain HTTP request its Host, and each further request
 * too, because a connection carries one request (http.c). Other protocols have nothing to compare and pass,
 * but not on the ports of TLS. A second ClientHello (HelloRetryRequest) must name the same server as the first.
 */
#include "base/str.h"
#include "proxy/control.h"
#include "proxy/first.h"
#include "proxy/outgoing.h"
#include <string.h>
#include <unistd.h>

#define ODD_REQUEST "a request whose first line is not as RFC 9112 has it"

struct hello {
	struct sni sni;
	struct request *req; /* it is plain HTTP */
	char *buf;
	size_t len, cap;
	uint8_t first;
	bool waiting; /* for more of them, and the timer runs */
	bool second;  /* after a HelloRetryRequest */
};

struct later {                        /* what was said passed; something more may come */
	struct sni_after after;       /* another ClientHello */
	uint8_t held[SNI_AFTER_HELD]; /* the beginning of a record */
	size_t n;
	struct line_watch line; /* or the rest of a request's first line */
};

void hello_free(struct hello *h)
{
	if (!h)
		return;
	free(h->req);
	free(h->buf);
	free(h);
}

void later_free(struct later *l)
{
	free(l);
}

static bool cut(struct outgoing *c, const char *what, const char *reason)
{
	const struct hello *h = c->hello;
	CLEANUP_FREE char *rule = h && *h->sni.host && strcmp(h->sni.host, c->host) != 0
					  ? xasprintf("%s to %s: %s", what, h->sni.host, reason)
					  : xasprintf("%s: %s", what, reason);

	outgoing_denied(c, rule, "");
	outgoing_reset(c);
	return false;
}

static struct hello *judged(struct outgoing *c)
{
	if (c->hello->waiting)
		loop_timer_start(&c->timer, IDLE_MS);
	outgoing_release(c);
	c->relay.half[0].tap = NULL;
	return TAKE_PTR(c->hello);
}

/* All that was held goes on; from here it is a plain relay. */
static bool pass(struct outgoing *c)
{
	struct hello *h = judged(c);
	bool alive = relay_push(&c->relay, 0, h->buf, h->len);

	hello_free(h);
	return alive;
}

/* Somebody at a keyboard: that said nothing yet, and what comes next is the first that counts. */
static bool only_empty_lines(const struct hello *h)
{
	for (size_t i = 0; i < h->len; i++)
		if (!memchr("\r\n\t ", h->buf[i], 4))
			return false;
	return true;
}

static bool on_first_bytes(struct relay *r, char *data, size_t len);

void tunnel_late(struct outgoing *c)
{
	struct hello *h = c->hello;

	if (h->first == FIRST_TLS) {
		(void)cut(c, "TLS", "the ClientHello did not come in time");
	} else if (!only_empty_lines(h)) {
		(void)cut(c, "HTTP", "it begins like a request or TLS, and the rest did not come in time");
	} else if (pass(c)) {
		c->relay.half[0].tap = on_first_bytes;
	}
}

static bool sni_verdict(struct outgoing *c, enum sni_result result)
{
	struct hello *h = c->hello;
	const struct verdict v = {
		.action = VERDICT_ALLOW, .literal = c->literal, .by_address = c->by_address};
	const char *reason = "no policy";
	struct verdict named;

	/* An address that Egress=all or AllowAddress= allows, of a program with a resolver of its own: Deny= wins. */
	if (c->app->policy && c->literal && result == SNI_OK && policy_sni_match(c->app->policy) &&
	    policy_denies_host(c->app->policy, h->sni.host, c->port, &named))
		return cut(c, "TLS", named.rule);
	if (c->app->policy && sni_judge(c->app->policy, &v, c->host, c->port, &h->sni, result, &reason))
		return true;
	return cut(c, "TLS", reason);
}

/* --- after the ClientHello --- */

static bool later_bytes(struct outgoing *c, char *data, size_t len)
{
	struct later *l = c->later;
	enum sni_later what;
	size_t n;

	crash_page_enter(c->app);
	what = sni_after(&l->after, (const uint8_t *)data, len, &n);
	crash_page_leave();
	if (what != LATER_MORE) {
		c->later = NULL;
		c->relay.half[0].tap = what == LATER_HELLO ? on_first_bytes : NULL;
		later_free(l);
	} else {
		l->n = len - n;
		memcpy(l->held, data + n, l->n);
	}
	if (!relay_push(&c->relay, 0, data, n))
		return false;
	if (what != LATER_HELLO)
		return true;
	c->hello = xcalloc(1, sizeof *c->hello);
	c->hello->second = true;
	return on_first_bytes(&c->relay, data + n, len - n);
}

static bool on_later_bytes(struct relay *r, char *data, size_t len)
{
	struct outgoing *c = container_of(r, struct outgoing, relay);
	struct later *l = c->later;
	CLEANUP_FREE char *joined = NULL;

	if (!len) {
		c->later = NULL;
		r->half[0].tap = NULL;
		if (!relay_push(r, 0, l->held, l->n)) {
			later_free(l);
			return false;
		}
		later_free(l);
		return relay_finish(r, 0);
	}
	if (l->n) {
		joined = xmalloc(l->n + len);
		memcpy(joined, l->held, l->n);
		memcpy(joined + l->n, data, len);
		data = joined;
		len += l->n;
		l->n = 0;
	}
	return later_bytes(c, data, len);
}

/* `buf` begins with the ClientHello that was found in order, and goes on as it goes on. */
static bool hello_passed(struct outgoing *c, const struct sni *sni, char *buf, size_t len)
{
	if (!relay_push(&c->relay, 0, buf, sni->record))
		return false;
	c->later = xcalloc(1, sizeof *c->later);
	c->later->after.early = sni->early;
	c->relay.half[0].tap = on_later_bytes;
	return len > sni->record ? later_bytes(c, buf + sni->record, len - sni->record) : true;
}

/* --- the first bytes --- */

static bool tls_judge(struct outgoing *c)
{
	struct hello *h = c->hello;
	enum sni_result result;
	bool alive;

	crash_page_enter(c->app);
	result = sni_parse(&h->sni, (const uint8_t *)h->buf, h->len);
	crash_page_leave();
	if (result == SNI_MORE)
		return true;
	if (h->sni.ech && !h->second) {
		c->app->counters.out_ech++;
		app_counted(c->app);
	}
	if (!sni_verdict(c, result))
		return false;
	if (result != SNI_OK || h->second || c->literal || !policy_sni_match(c->app->policy))
		return pass(c);
	h = judged(c);
	alive = hello_passed(c, &h->sni, h->buf, h->len);
	hello_free(h);
	return alive;
}

static bool http_judge(struct outgoing *c)
{
	struct hello *h = c->hello;
	enum parse p;
	bool alive;

	if (!h->req) {
		h->req = xcalloc(1, sizeof *h->req);
		h->req->origin = true;
		memcpy(h->req->target.host, c->host, strlen(c->host) + 1);
		h->req->target.port = c->port;
	}
	crash_page_enter(c->app);
	p = request_parse(h->req, h->buf, h->len);
	crash_page_leave();
	if (p == PARSE_MORE)
		return true;
	if (p == PARSE_BAD)
		return cut(c, "HTTP", h->req->reason);
	h = judged(c);
	alive = http_begin(c, h->req, h->buf, h->len);
	hello_free(h);
	return alive;
}

/* --- neither --- */

static enum line watch(struct outgoing *c, struct line_watch *line, const char *data, size_t len)
{
	enum line what;

	crash_page_enter(c->app);
	what = first_line(line, data, len);
	crash_page_leave();
	return what;
}

static bool on_line(struct relay *r, char *data, size_t len)
{
	struct outgoing *c = container_of(r, struct outgoing, relay);
	enum line what = watch(c, &c->later->line, data, len);

	if (what == LINE_HTTP)
		return cut(c, "HTTP", ODD_REQUEST);
	if (!len || what == LINE_OVER) {
		r->half[0].tap = NULL;
		later_free(TAKE_PTR(c->later));
	}
	return len ? relay_push(r, 0, data, len) : relay_finish(r, 0);
}

static bool raw_judge(struct outgoing *c)
{
	struct line_watch line = {0};
	enum line what = watch(c, &line, c->hello->buf, c->hello->len);

	if (what == LINE_HTTP)
		return cut(c, "HTTP", ODD_REQUEST);
	if (!pass(c))
		return false;
	if (what == LINE_MORE) {
		c->later = xcalloc(1, sizeof *c->later);
		c->later->line = line;
		c->relay.half[0].tap = on_line;
	}
	return true;
}

static bool hello_judge(struct outgoing *c)
{
	struct hello *h = c->hello;

	if (h->first == FIRST_MORE) {
		h->first = (uint8_t)first_bytes(h->buf, h->len);
		/* On a port of TLS anything else is refused by its first byte. */
		if (h->first != FIRST_TLS && !sni_verdict(c, SNI_NOT_TLS))
			return false;
		/* Who has no name to compare, or need not, says what it likes. */
		if (h->first != FIRST_TLS && (c->literal || !policy_sni_match(c->app->policy)))
			return pass(c);
	}
	switch ((enum first)h->first) {
	case FIRST_MORE:
		return true;
	case FIRST_TLS:
		return tls_judge(c);
	case FIRST_HTTP:
		return http_judge(c);
	case FIRST_HTTP2:
		if (c->port == 80 || c->port == 8080)
			return cut(c, "HTTP", "HTTP/2 without TLS, whose requests cannot be judged");
		break;
	case FIRST_RAW:
		return raw_judge(c);
	}
	return pass(c);
}

static bool on_first_bytes(struct relay *r, char *data, size_t len)
{
	struct outgoing *c = container_of(r, struct outgoing, relay);
	struct hello *h = c->hello;

	if (!len) { /* half closed: fine with nothing said, but half of something is never passed on */
		if (h)
			return cut(c, h->first == FIRST_TLS ? "TLS" : "HTTP",
				   "it was cut off before it named the site");
		c->relay.half[0].tap = NULL;
		return relay_finish(r, 0);
	}
	if (!h)
		h = c->hello = xcalloc(1, sizeof *h);
	if (!outgoing_hold(c, len))
		return cut(c, "TLS", "too many connections of this app wait for a verdict");
	if (h->len + len > h->cap) {
		h->cap = h->len + len;
		h->buf = xrealloc(h->buf, h->cap);
	}
	memcpy(h->buf + h->len, data, len);
	h->len += len;
	if (!hello_judge(c))
		return false;
	if (c->hello && !c->hello->waiting) {
		c->hello->waiting = true;
		loop_timer_start(&c->timer, HELLO_LIMIT_MS);
	}
	return true;
}

/* Neither a lookup nor a dial is left in it: whoever takes it puts it back. */
static struct setup *take_setup(struct outgoing *c)
{
	outgoing_release(c);
	return TAKE_PTR(c->setup);
}

static void start(struct outgoing *c, int upstream, const void *granted, size_t granted_len, char *first,
		  size_t len)
{
	int client = c->relay.io[0].fd;

	/* The first bytes ever sent there, or nearly: they fit the socket's buffer. */
	if (granted_len && send(client, granted, granted_len, MSG_NOSIGNAL) < 0) {
		(void)close(upstream);
		outgoing_free(c);
		return;
	}
	relay_start(&c->relay, c->app->proxy->loop, client, upstream, outgoing_done);
	c->relay.half[0].tap = on_first_bytes;
	if (len)
		(void)on_first_bytes(&c->relay, first, len);
}

void tunnel_start(struct outgoing *c, int upstream, const void *granted, size_t granted_len, size_t used)
{
	struct setup *s = take_setup(c);

	if (s->len > used)
		start(c, upstream, granted, granted_len, s->buf + used, s->len - used);
	else
		start(c, upstream, granted, granted_len, NULL, 0);
	setup_put(s);
}

void tunnel_pass(struct outgoing *c, int upstream)
{
	struct setup *s = take_setup(c);

	relay_start(&c->relay, c->app->proxy->loop, c->relay.io[0].fd, upstream, outgoing_done);
	(void)hello_passed(c, &s->sni, s->buf, s->len);
	setup_put(s);
}
