/* What goes upstream in place of the client's head, and the first line of the answer. See request.h. */
#include "proxy/request.h"
#include <string.h>

struct out {
	char *p;
	size_t len, cap;
	bool full;
};

static void put(struct out *o, const char *s, size_t n)
{
	if (o->full || n > o->cap - o->len) {
		o->full = true;
		return;
	}
	memcpy(o->p + o->len, s, n);
	o->len += n;
}

static void put_text(struct out *o, const char *s)
{
	put(o, s, strlen(s));
}

static void put_span(struct out *o, const char *buf, struct span s)
{
	put(o, buf + s.at, s.len);
}

static void put_port(struct out *o, uint16_t port)
{
	char text[6];
	size_t i = sizeof text;

	do
		text[--i] = (char)('0' + port % 10);
	while ((port = (uint16_t)(port / 10)) > 0);
	put(o, text + i, sizeof text - i);
}

static void put_target(struct out *o, const struct request *r, const char *buf)
{
	bool options = r->method.len == 7 && memcmp(buf + r->method.at, "OPTIONS", 7) == 0;

	put_span(o, buf, r->method);
	put_text(o, " ");
	if (r->path.len == 0)
		put_text(o, options ? "*" : "/"); /* RFC 9112 3.2.4 */
	else if (buf[r->path.at] == '?')
		put_text(o, "/");
	put_span(o, buf, r->path);
	put_text(o, r->http10 ? " HTTP/1.0\r\nHost: " : " HTTP/1.1\r\nHost: ");
	if (r->target.literal && r->target.addr.family == AF_INET6)
		put_text(o, "[");
	put_text(o, r->target.host);
	if (r->target.literal && r->target.addr.family == AF_INET6)
		put_text(o, "]");
	if (r->target.port != 80) {
		put_text(o, ":");
		put_port(o, r->target.port);
	}
	put_text(o, "\r\n");
}

size_t request_build(const struct request *r, const char *buf, char *out, size_t cap)
{
	struct out o = {.p = out, .cap = cap};

	if (r->connect)
		return 0;
	put_target(&o, r, buf);
	for (unsigned i = 0; i < r->n_fields; i++) {
		const struct request_field *f = &r->fields[i];

		if (f->drop)
			continue;
		put_span(&o, buf, f->name);
		put_text(&o, ": ");
		put_span(&o, buf, f->value);
		put_text(&o, "\r\n");
	}
	put_text(&o, r->websocket ? "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
				  : "Connection: close\r\n\r\n");
	return o.full ? 0 : o.len;
}

size_t response_head_end(const char *p, size_t from, size_t len)
{
	for (size_t i = from; i + 1 < len; i++) {
		if (p[i] != '\n')
			continue;
		if (p[i + 1] == '\n')
			return i + 2;
		if (i + 2 < len && p[i + 1] == '\r' && p[i + 2] == '\n')
			return i + 3;
	}
	return 0;
}

enum parse response_status(const char *buf, size_t len, int *ret_status)
{
	static const char want[] = "HTTP/1.v ddd "; /* v: 0 or 1, d: a digit */

	for (size_t i = 0; i < 13 && i < len; i++) {
		char c = buf[i];
		bool digit = c >= '0' && c <= '9';

		if (want[i] == 'v'   ? c != '0' && c != '1'
		    : want[i] == 'd' ? !digit
				     : c != want[i] && !(i == 12 && c == '\r'))
			return PARSE_BAD;
	}
	if (len < 13)
		return PARSE_MORE;
	*ret_status = (buf[9] - '0') * 100 + (buf[10] - '0') * 10 + (buf[11] - '0');
	return PARSE_DONE;
}
