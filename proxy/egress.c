/* The listeners, and the front of the HTTP proxy: the first byte tells a client of SOCKS5 from one of HTTP. */
#include "proxy/egress.h"
#include "base/str.h"
#include "proxy/control.h"
#include "proxy/denied.h"
#include "proxy/access.h"
#include "proxy/outgoing.h"
#include <string.h>

static const char established[] = "HTTP/1.1 200 Connection established\r\n\r\n";

/* --- front of the HTTP proxy --- */

static void answer_text(struct outgoing *c, const char *text)
{
	outgoing_answer(c, text, strlen(text));
}

static void answer_error(struct outgoing *c, int status, const char *reason)
{
	CLEANUP_FREE char *text = reply_error(status, reason);

	access_error(c->access, reason);
	answer_text(c, text);
}

static void http_refuse(struct outgoing *c, const struct verdict *v)
{
	CLEANUP_FREE char *text = reply_refused(c->app, &c->setup->target, v);

	answer_text(c, text);
}

static void http_closed(struct outgoing *c)
{
	CLEANUP_FREE char *text = reply_closed(c->app, c->app->closed);

	answer_text(c, text);
}

static void http_fail(struct outgoing *c, enum failure why, int errnum, const char *text)
{
	static const int status[] = {[FAIL_NAME] = 502,
				     [FAIL_NAME_LATE] = 504,
				     [FAIL_CONNECT] = 502,
				     [FAIL_LATE] = 504,
				     [FAIL_BUSY] = 503};

	(void)errnum;
	answer_error(c, status[why], text);
}

static void http_gave_up(struct outgoing *c, bool eof)
{
	if (eof || !c->setup->len) /* gone, or half closed before it asked anything */
		outgoing_free(c);
	else
		answer_error(c, 408, "the request head did not come in time");
}

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

static void http_bytes(struct outgoing *c)
{
	static const uint8_t socks4_rejected[8] = {0, 0x5b}; /* SOCKS4: "request rejected or failed" */
	struct setup *s = c->setup;
	enum parse p;

	if (s->buf[0] == 5) { /* no method begins with such a byte */
		c->front = &front_socks;
		front_socks.bytes(c);
		return;
	}
	if (s->buf[0] == 4) { /* its names come after the address that a client made up for them: not here */
		outgoing_answer(c, socks4_rejected, sizeof socks4_rejected);
		return;
	}
	crash_page_enter(c->app);
	p = request_parse(&s->req, s->buf, s->len);
	if (p == PARSE_DONE)
		p = body_check(s);
	crash_page_leave();
	if (p == PARSE_MORE && s->len < REQUEST_HEAD_MAX)
		return;
	if (p == PARSE_DONE) {
		s->target = s->req.target;
		if (s->req.connect) /* a request would have to be written anew */
			(void)outgoing_name_of_address(c);
		outgoing_judge(c);
	} else if (p == PARSE_MORE) {
		answer_error(c, 431, "the request head is too long");
	} else {
		answer_error(c, s->req.status, s->req.reason);
	}
}

static void http_connected(struct outgoing *c, int upstream)
{
	if (c->setup->req.connect)
		tunnel_start(c, upstream, established, sizeof established - 1, c->setup->req.head_len);
	else
		http_start(c, upstream);
}

const struct front front_http = {
	.name = "http",
	.bytes = http_bytes,
	.gave_up = http_gave_up,
	.refuse = http_refuse,
	.closed = http_closed,
	.fail = http_fail,
	.start = http_connected,
};

/* --- the listeners --- */

void egress_run(struct egress_listener *l)
{
	bool on = l->conns.n < OUTGOING_MAX && l->judging < JUDGING_MAX;

	if (on == l->on)
		return;
	l->on = on;
	acceptor_run(&l->acc, on);
	transparent_run(l->tports, on);
}

static bool on_client(struct acceptor *acc, int fd, const struct sockaddr_storage *peer)
{
	struct egress_listener *l = acc->data;
	struct outgoing *c = outgoing_create(l, fd, &front_http);

	(void)peer;
	outgoing_read(c, HEAD_LIMIT_MS);
	return acc->on;
}

struct egress_listener *egress_create(struct app *a, int fd)
{
	struct egress_listener *l = xcalloc(1, sizeof *l);

	l->app = a;
	l->resolver = resolver_create(a);
	l->acc.fd = -1;
	if (fd >= 0)
		acceptor_init(&l->acc, a->proxy->loop, fd, &a->conns, on_client, l);
	egress_run(l);
	return l;
}

void egress_judge_again(struct egress_listener *l)
{
	struct app_conn *next;

	for (struct app_conn *at = l ? l->conns.head : NULL; at; at = next) {
		next = at->next; /* judging one ends none but that one */
		outgoing_judge_again(container_of(at, struct outgoing, conn));
	}
}

void egress_destroy(struct egress_listener *l)
{
	if (!l)
		return;
	while (l->conns.head)
		outgoing_reset(container_of(l->conns.head, struct outgoing, conn));
	acceptor_finish(&l->acc);
	transparent_destroy(l->tports);
	resolver_destroy(l->resolver);
	free(l);
}
