/*
 * CONNECT tunnels. The client's first bytes are held until they are judged; the site's flow at once, so a
 * server that speaks first works. What passed is then an ordinary relay.
 */
#include "base/str.h"
#include "proxy/control.h"
#include "proxy/outgoing.h"
#include "proxy/sni.h"
#include <string.h>
#include <unistd.h>

static const char established[] = "HTTP/1.1 200 Connection established\r\n\r\n";

struct hello {
	struct sni sni;
	char *buf;
	size_t len, cap;
};

void hello_free(struct hello *h)
{
	if (!h)
		return;
	free(h->buf);
	free(h);
}

static bool cut(struct outgoing *c, const char *reason)
{
	const struct hello *h = c->hello;
	CLEANUP_FREE char *rule = *h->sni.host && strcmp(h->sni.host, c->host) != 0
					  ? xasprintf("TLS to %s: %s", h->sni.host, reason)
					  : xasprintf("TLS: %s", reason);

	outgoing_denied(c, rule, "");
	outgoing_reset(c);
	return false;
}

/* All that was held goes on; from here it is a plain relay. */
static bool pass(struct outgoing *c)
{
	struct hello *h = TAKE_PTR(c->hello);
	bool alive;

	loop_timer_stop(&c->timer);
	c->relay.half[0].tap = NULL;
	alive = relay_push(&c->relay, 0, h->buf, h->len);
	hello_free(h);
	return alive;
}

void tunnel_late(struct outgoing *c)
{
	(void)cut(c, "the ClientHello did not come in time");
}

static bool hello_judge(struct outgoing *c)
{
	struct hello *h = c->hello;
	const struct verdict v = {
		.action = VERDICT_ALLOW, .literal = c->literal, .by_address = c->by_address};
	const char *reason = "";
	enum sni_result result;

	crash_page_enter(c->app);
	result = sni_parse(&h->sni, (const uint8_t *)h->buf, h->len);
	crash_page_leave();
	if (result == SNI_MORE)
		return true;
	if (h->sni.ech) {
		c->app->counters.out_ech++;
		app_counted(c->app);
	}
	if (!c->app->policy || !sni_judge(c->app->policy, &v, c->host, c->port, &h->sni, result, &reason))
		return cut(c, reason);
	return pass(c);
}

static bool on_first_bytes(struct relay *r, char *data, size_t len)
{
	struct outgoing *c = container_of(r, struct outgoing, relay);
	struct hello *h = c->hello;

	if (!len) { /* half closed: fine with nothing said, but half a ClientHello is never passed on */
		if (h)
			return cut(c, "the ClientHello was cut off");
		c->relay.half[0].tap = NULL;
		return relay_finish(r, 0);
	}
	if (!h) {
		h = c->hello = xcalloc(1, sizeof *h);
		loop_timer_start(&c->timer, HELLO_LIMIT_MS);
	}
	if (h->len + len > h->cap) {
		h->cap = h->len + len;
		h->buf = xrealloc(h->buf, h->cap);
	}
	memcpy(h->buf + h->len, data, len);
	h->len += len;
	return hello_judge(c);
}

void tunnel_start(struct outgoing *c, int upstream, const char *early, size_t len)
{
	int client = c->relay.io[0].fd;

	/* The first bytes ever sent there: they fit the socket's buffer. */
	if (send(client, established, sizeof established - 1, MSG_NOSIGNAL) < 0) {
		(void)close(upstream);
		outgoing_free(c);
		return;
	}
	relay_start(&c->relay, c->app->proxy->loop, client, upstream, outgoing_done);
	c->relay.half[0].tap = on_first_bytes;
	if (len) {
		CLEANUP_FREE char *copy = xmalloc(len);

		memcpy(copy, early, len);
		(void)on_first_bytes(&c->relay, copy, len);
	}
}
