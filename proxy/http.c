/*
 * One request and its response: absolute-form, sent to the proxy, or what a program says that believes it talks to
 * the site itself (tunnel.c).
 *
 * The request head was written anew by request_build(); its body passes a tap that knows where it ends, so
 * what a client sends after it never reaches the site: one request a connection, and each is judged. The
 * response head passes a tap that takes out what belongs to the connection and says "Connection: close"; its
 * body passes as it is, up to the site's end of file. A granted WebSocket upgrade becomes a tunnel.
 */
#include "base/log.h"
#include "base/str.h"
#include "proxy/control.h"
#include "proxy/access.h"
#include "proxy/outgoing.h"
#include "proxy/upstream.h"
#include <string.h>
#include <strings.h>

#define RESPONSE_HEAD_MAX 65536
#define INTERIM_MAX       16 /* 1xx heads before the answer: an honest site sends one or two (RFC 9110 15.2) */

struct http {
	enum request_body body;
	uint64_t left;
	struct chunk chunk;
	bool websocket;
	bool body_done;
	bool answered; /* something of the response went to the client */
	bool head_done;
	unsigned interim; /* 1xx heads so far */
	char *head;
	size_t head_len, scanned; /* no head ends before `scanned` */
};

void http_free(struct http *h)
{
	if (!h)
		return;
	free(h->head);
	free(h);
}

static struct outgoing *outgoing_of(struct relay *r)
{
	return container_of(r, struct outgoing, relay);
}

/* --- client to site --- */

static bool request_ended(struct outgoing *c)
{
	c->http->body_done = true;
	return true;
}

static bool body_chunked(struct outgoing *c, char *data, size_t len)
{
	struct http *h = c->http;

	while (len) {
		size_t used = 0, out = 0;
		enum parse p;

		crash_page_enter(c->app);
		p = chunk_filter(&h->chunk, data, len, &used, &out);
		crash_page_leave();
		if (p == PARSE_BAD) {
			log_debug("%s: malformed chunked body to %s", c->app->name, c->host);
			outgoing_reset(c);
			return false;
		}
		if (!relay_push(&c->relay, 0, data, out))
			return false;
		if (p == PARSE_DONE)
			return request_ended(c);
		if (!used)
			return true;
		data += used;
		len -= used;
	}
	return true;
}

static bool on_request_bytes(struct relay *r, char *data, size_t len)
{
	struct outgoing *c = outgoing_of(r);
	struct http *h = c->http;
	size_t n;

	if (!len)
		return relay_finish(r, 0);
	if (h->body_done) { /* another request, or rubbish: not judged, so not sent */
		if (!h->websocket)
			return true;
		outgoing_reset(c); /* a frame before the upgrade was granted: it could not be kept in order */
		return false;
	}
	if (h->body == BODY_CHUNKED)
		return body_chunked(c, data, len);
	n = len < h->left ? len : (size_t)h->left;
	h->left -= n;
	if (!relay_push(r, 0, data, n))
		return false;
	return h->left ? true : request_ended(c);
}

/* --- site to client --- */

static bool on_response_body(struct relay *r, char *data, size_t len)
{
	struct outgoing *c = outgoing_of(r);

	if (len)
		return relay_push(r, 1, data, len);
	/* The site is done. The client has a moment to read it all and close. */
	loop_timer_start(&c->timer, LINGER_MS);
	c->http->body_done = true;
	c->http->websocket = false;
	if (!relay_finish(r, 1))
		return false;
	return true;
}

static bool bad_gateway(struct outgoing *c, const char *reason)
{
	CLEANUP_FREE char *text = reply_error(502, reason);

	access_error(c->access, reason);
	c->relay.half[1].tap = on_response_body;
	free(TAKE_PTR(c->http->head));
	outgoing_release(c);
	if (!c->http->answered && !relay_push(&c->relay, 1, text, strlen(text)))
		return false;
	return on_response_body(&c->relay, NULL, 0);
}

static bool is_field(const char *line, size_t len, const char *name)
{
	size_t n = strlen(name);

	return len > n && line[n] == ':' && strncasecmp(line, name, n) == 0;
}

/* Copies a head without what belongs to the connection between us and the site. */
static void head_rewrite(const char *head, size_t len, bool final, struct strbuf *out)
{
	bool first = true, dropped = false;

	while (len) {
		const char *nl = memchr(head, '\n', len);
		size_t n = nl ? (size_t)(nl - head) + 1 : len;
		bool empty = n <= 2 && (head[0] == '\n' || head[0] == '\r');

		if (empty)
			break;
		if (head[0] != ' ' && head[0] != '\t') /* a folded line belongs to the one before */
			dropped = !first &&
				  (is_field(head, n, "connection") || is_field(head, n, "keep-alive") ||
				   is_field(head, n, "proxy-connection") ||
				   is_field(head, n, "proxy-authenticate") || is_field(head, n, "upgrade"));
		if (!dropped)
			strbuf_add(out, head, n);
		first = false;
		head += n;
		len -= n;
	}
	strbuf_adds(out, final ? "Connection: close\r\n\r\n" : "\r\n");
}

static bool upgraded(struct outgoing *c)
{
	struct http *h = TAKE_PTR(c->http);
	bool alive;

	c->relay.half[0].tap = c->relay.half[1].tap = NULL;
	outgoing_release(c);
	alive = relay_push(&c->relay, 1, h->head, h->head_len);
	http_free(h);
	return alive;
}

/* One complete head of `n` bytes lies at the front. False: the connection is gone. */
static bool response_head(struct outgoing *c, size_t n)
{
	struct http *h = c->http;
	CLEANUP_STRBUF struct strbuf out = STRBUF_INIT;
	int status = 0;

	if (response_status(h->head, n, &status) != PARSE_DONE)
		return bad_gateway(c, "the site's answer is not HTTP");
	if (c->absolute && (status == 407 || status == 101)) { /* between us and that proxy */
		CLEANUP_FREE char *trouble = upstream_trouble(c->absolute, status),
				  *text = xasprintf("the upstream proxy %s %s", upstream_shown(c->absolute),
						    trouble);

		return bad_gateway(c, text);
	}
	if (status == 101)
		return h->websocket ? upgraded(c)
				    : bad_gateway(c, "the site switched protocols without being asked");
	if (status < 200 && ++h->interim > INTERIM_MAX)
		return bad_gateway(c, "the site sends one interim answer after the other");
	head_rewrite(h->head, n, status >= 200, &out);
	memmove(h->head, h->head + n, h->head_len - n);
	h->head_len -= n;
	h->scanned = 0;
	h->answered = true;
	h->head_done = status >= 200;
	return relay_push(&c->relay, 1, out.p, out.len);
}

static bool on_response_head(struct relay *r, char *data, size_t len)
{
	struct outgoing *c = outgoing_of(r);
	struct http *h = c->http;
	CLEANUP_FREE char *rest = NULL;
	size_t n;

	if (!len)
		return bad_gateway(c, "the site closed the connection without an answer");
	if (!outgoing_hold(c, len))
		return bad_gateway(c, "too many answers to this app are unfinished");
	h->head = xrealloc(h->head, h->head_len + len);
	memcpy(h->head + h->head_len, data, len);
	h->head_len += len;
	while (!h->head_done && (n = response_head_end(h->head, h->scanned, h->head_len)) != 0) {
		bool alive, gone;

		crash_page_enter(c->app);
		alive = response_head(c, n);
		crash_page_leave();
		if (!alive)
			return false;
		gone = c->http != h || r->half[1].tap != on_response_head;
		if (gone) /* a tunnel now, or refused */
			return true;
	}
	if (!h->head_done && h->head_len > RESPONSE_HEAD_MAX)
		return bad_gateway(c, "the head of the site's answer is too long");
	if (!h->head_done) {
		h->scanned = h->head_len > 2 ? h->head_len - 2 : 0; /* an empty line may be half here */
		return true;
	}
	r->half[1].tap = on_response_body;
	outgoing_release(c);
	rest = TAKE_PTR(h->head);
	return relay_push(r, 1, rest, h->head_len);
}

/* --- start --- */

bool http_begin(struct outgoing *c, const struct request *r, char *buf, size_t len)
{
	struct http *h = c->http = xcalloc(1, sizeof *h);
	CLEANUP_FREE char *out = xmalloc(REQUEST_OUT_MAX);
	size_t n = request_build(r, buf, out, REQUEST_OUT_MAX), at = r->head_len;

	h->body = r->body;
	h->left = h->body == BODY_LENGTH ? r->content_length : 0;
	h->body_done = h->body == BODY_NONE || (h->body == BODY_LENGTH && !h->left);
	h->websocket = r->websocket;
	c->relay.half[0].tap = on_request_bytes;
	c->relay.half[1].tap = on_response_head;
	if (!n)
		return bad_gateway(c, "the request is too long to send on");
	if (c->absolute) {
		char *whole = upstream_head(c->absolute, &r->target, out, n, &n);

		free(out);
		out = whole;
	}
	if (!relay_push(&c->relay, 0, out, n))
		return false;
	return len > at ? on_request_bytes(&c->relay, buf + at, len - at) : true;
}

void http_start(struct outgoing *c, int upstream)
{
	struct setup *s = TAKE_PTR(c->setup);

	outgoing_release(c);
	relay_start(&c->relay, c->app->proxy->loop, c->relay.io[0].fd, upstream, outgoing_done);
	(void)http_begin(c, &s->req, s->buf, s->len);
	setup_put(s); /* neither a lookup nor a dial was left in it */
}
