#include "proxy/socks_msg.h"
#include <string.h>

#define VERSION     5
#define NO_AUTH     0
#define NO_METHOD   0xff
#define CONNECT     1
#define TYPE_V4     1
#define TYPE_DOMAIN 3
#define TYPE_V6     4

void socks_reply(enum socks_reply code, uint8_t out[SOCKS_REPLY_LEN])
{
	/* BND.ADDR and BND.PORT: 0.0.0.0:0. Which address the proxy has is nobody's business. */
	const uint8_t reply[SOCKS_REPLY_LEN] = {VERSION, (uint8_t)code, 0, TYPE_V4};

	memcpy(out, reply, sizeof reply);
}

static enum parse bad(struct socks *s, enum socks_reply code)
{
	socks_reply(code, s->reply + s->reply_len);
	s->reply_len = (uint8_t)(s->reply_len + SOCKS_REPLY_LEN);
	return PARSE_BAD;
}

static enum parse method(struct socks *s, uint8_t m)
{
	s->reply[s->reply_len++] = VERSION;
	s->reply[s->reply_len++] = m;
	return m == NO_METHOD ? PARSE_BAD : PARSE_DONE;
}

static enum parse greeting(struct socks *s, const uint8_t *p, size_t len)
{
	if (len >= 1 && p[0] != VERSION)
		return method(s, NO_METHOD);
	if (len < 2 || len - 2 < p[1])
		return PARSE_MORE;
	s->used = 2u + p[1];
	s->greeted = true;
	return method(s, memchr(p + 2, NO_AUTH, p[1]) ? NO_AUTH : NO_METHOD);
}

/* Bytes of the address field with what is before it in it; 0: not known yet. */
static size_t address_len(const uint8_t *p, size_t len)
{
	if (p[3] == TYPE_V4)
		return 4;
	if (p[3] == TYPE_V6)
		return 16;
	return len > 4 ? 1u + p[4] : 0;
}

static bool take_domain(struct target *t, const char *name, size_t n)
{
	t->literal = host_parse_addr(name, n, &t->addr) == 0;
	return t->literal || host_canon(name, n, t->host, NULL) == 0;
}

static bool take_address(struct target *t, uint8_t type, const uint8_t *p)
{
	struct sockaddr_storage sa = {0};

	if (type == TYPE_DOMAIN) {
		if (!take_domain(t, (const char *)p + 1, p[0]))
			return false;
	} else if (type == TYPE_V4) {
		t->literal = true;
		t->addr.family = AF_INET;
		memcpy(&t->addr.v4, p, 4);
	} else {
		t->literal = true;
		sa.ss_family = AF_INET6;
		memcpy(&((struct sockaddr_in6 *)(void *)&sa)->sin6_addr, p, 16);
		addr_from_sockaddr(&t->addr, &sa); /* v4-mapped becomes IPv4 */
	}
	if (t->literal)
		addr_format(&t->addr, t->host);
	return true;
}

/* Each byte is judged as soon as it is there. */
static enum parse request(struct socks *s, const uint8_t *p, size_t len)
{
	size_t n;

	if (len >= 1 && p[0] != VERSION)
		return bad(s, SOCKS_FAILED);
	if (len >= 2 && p[1] != CONNECT)
		return bad(s, SOCKS_COMMAND);
	if (len >= 3 && p[2] != 0)
		return bad(s, SOCKS_FAILED);
	if (len >= 4 && p[3] != TYPE_V4 && p[3] != TYPE_DOMAIN && p[3] != TYPE_V6)
		return bad(s, SOCKS_ADDRESS_TYPE);
	if (len < 4)
		return PARSE_MORE;
	n = address_len(p, len);
	if (n == 0 || len < 4 + n + 2)
		return PARSE_MORE;
	s->target.port = (uint16_t)(p[4 + n] << 8 | p[4 + n + 1]);
	if (!take_address(&s->target, p[3], p + 4) || s->target.port == 0)
		return bad(s, SOCKS_FAILED);
	s->used += 4 + n + 2;
	return PARSE_DONE;
}

enum parse socks_parse(struct socks *s, const char *buf, size_t len)
{
	const uint8_t *p = (const uint8_t *)buf;
	enum parse r;

	if (!s->greeted) {
		r = greeting(s, p, len);
		if (r != PARSE_DONE)
			return r;
	}
	return request(s, p + s->used, len - s->used);
}
