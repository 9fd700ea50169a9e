/* The front of SOCKS5. */
#include "proxy/access.h"
#include "proxy/control.h"
#include "proxy/outgoing.h"
#include <errno.h>
#include <sys/socket.h>

static void answer(struct outgoing *c, enum socks_reply code)
{
	uint8_t reply[SOCKS_REPLY_LEN];

	socks_reply(code, reply);
	outgoing_answer(c, reply, sizeof reply);
}

static void on_bytes(struct outgoing *c)
{
	struct setup *s = c->setup;
	uint8_t *reply = s->socks.reply;
	enum parse p;

	crash_page_enter(c->app);
	p = socks_parse(&s->socks, s->buf, s->len);
	crash_page_leave();
	if (p == PARSE_BAD) {
		access_error(c->access, "no SOCKS5 request that this proxy understands");
		outgoing_answer(c, reply, s->socks.reply_len);
		return;
	}
	/* The first two bytes ever sent there: they fit the socket's buffer. */
	if (s->socks.reply_len && send(c->relay.io[0].fd, reply, s->socks.reply_len, MSG_NOSIGNAL) < 0) {
		outgoing_free(c);
		return;
	}
	s->socks.reply_len = 0;
	if (p == PARSE_MORE)
		return;
	s->target = s->socks.target;
	(void)outgoing_name_of_address(c); /* of a client that looks names up by itself, as with socks5:// */
	outgoing_judge(c);
}

static void on_gave_up(struct outgoing *c, bool eof)
{
	(void)eof;
	outgoing_free(c);
}

static void on_refuse(struct outgoing *c, const struct verdict *v)
{
	(void)v;
	answer(c, SOCKS_NOT_ALLOWED);
}

static void on_closed(struct outgoing *c)
{
	answer(c, SOCKS_NOT_ALLOWED);
}

static void on_fail(struct outgoing *c, enum failure why, int errnum, const char *text)
{
	(void)text;
	if (why == FAIL_BUSY)
		answer(c, SOCKS_FAILED);
	else if (why == FAIL_CONNECT && errnum == ECONNREFUSED)
		answer(c, SOCKS_REFUSED);
	else if (why == FAIL_CONNECT && errnum == ENETUNREACH)
		answer(c, SOCKS_NET_UNREACHABLE);
	else
		answer(c, SOCKS_HOST_UNREACHABLE);
}

static void on_start(struct outgoing *c, int upstream)
{
	uint8_t reply[SOCKS_REPLY_LEN];

	socks_reply(SOCKS_GRANTED, reply);
	tunnel_start(c, upstream, reply, sizeof reply, c->setup->socks.used);
}

const struct front front_socks = {
	.name = "socks5",
	.bytes = on_bytes,
	.gave_up = on_gave_up,
	.refuse = on_refuse,
	.closed = on_closed,
	.fail = on_fail,
	.start = on_start,
};
