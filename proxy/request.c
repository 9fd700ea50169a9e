#include "proxy/request.h"
#include "base/cleanup.h"
#include <string.h>
#include <strings.h>

#define CONNECTION_TOKENS_MAX 32 /* a bound on tokens x fields */

enum { PHASE_LINE, PHASE_FIELDS };

static enum parse bad(struct request *r, int status, const char *reason)
{
	r->status = status;
	r->reason = reason;
	return PARSE_BAD;
}

/* RFC 9110 5.6.2 */
static bool is_token_byte(char c)
{
	if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
		return true;
	return c && strchr("!#$%&'*+-.^_`|~", c);
}

static bool is_control(char c)
{
	return ((unsigned char)c < 0x20 && c != '\t') || c == 0x7f;
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static bool text_is(const char *s, size_t n, const char *lower_word)
{
	if (strlen(lower_word) != n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (lower(s[i]) != lower_word[i])
			return false;
	return true;
}

static bool text_starts(const char *s, size_t n, const char *lower_word)
{
	return n >= strlen(lower_word) && text_is(s, strlen(lower_word), lower_word);
}

/* As origins see a name that read fields through CGI variables: '_' is '-'. */
static bool name_is(const char *s, size_t n, const char *lower_name)
{
	if (strlen(lower_name) != n)
		return false;
	for (size_t i = 0; i < n; i++)
		if ((s[i] == '_' ? '-' : lower(s[i])) != lower_name[i])
			return false;
	return true;
}

/* --- authority --- */

struct authority {
	char host[HOST_MAX];
	struct addr addr;
	bool literal, has_port;
	uint16_t port;
};

static int port_parse(const char *s, size_t n, uint16_t *ret)
{
	unsigned v = 0;

	if (n == 0 || n > 5 || s[0] == '0')
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (s[i] < '0' || s[i] > '9')
			return -1;
		v = v * 10 + (unsigned)(s[i] - '0');
	}
	if (v > UINT16_MAX)
		return -1;
	*ret = (uint16_t)v;
	return 0;
}

/* host, host:port, v4, v4:port, [v6], [v6]:port. An empty port is `empty_port` when that is not 0 (RFC
 * 3986 3.2.3). NULL, or what is wrong. */
static const char *authority_parse(const char *s, size_t n, uint16_t empty_port, struct authority *ret)
{
	struct authority a = {0};
	const char *port = NULL, *end = s + n, *host = s;
	size_t host_len = n;

	if (n > 0 && s[0] == '[') {
		const char *close = memchr(s, ']', n);

		if (!close || (close + 1 < end && close[1] != ':'))
			return "brackets hold one IPv6 address, with :port after them";
		host = s + 1;
		host_len = (size_t)(close - host);
		if (!memchr(host, ':', host_len) || host_parse_addr(host, host_len, &a.addr) < 0)
			return "brackets hold one IPv6 address without a zone";
		a.literal = true;
		port = close + 1 < end ? close + 2 : NULL;
	} else {
		const char *colon = memchr(s, ':', n);

		if (colon) {
			port = colon + 1;
			host_len = (size_t)(colon - s);
			if (memchr(port, ':', (size_t)(end - port)))
				return "more than one colon: an IPv6 address needs brackets, and there is "
				       "one port";
		}
		a.literal = host_parse_addr(host, host_len, &a.addr) == 0;
		if (!a.literal && host_canon(host, host_len, a.host, NULL) < 0)
			return "the host is neither a valid name nor an address";
	}
	if (a.literal)
		addr_format(&a.addr, a.host);
	if (port && port == end && empty_port) {
		a.port = empty_port;
		a.has_port = true;
	} else if (port) {
		if (port_parse(port, (size_t)(end - port), &a.port) < 0)
			return "the port is a number from 1 to 65535";
		a.has_port = true;
	}
	*ret = a;
	return NULL;
}

/* --- request line --- */

static void set_target(struct request *r, const struct authority *a, uint16_t port)
{
	memcpy(r->target.host, a->host, sizeof r->target.host);
	r->target.literal = a->literal;
	r->target.addr = a->addr;
	r->target.port = port;
}

static enum parse parse_connect_target(struct request *r, const char *s, size_t n)
{
	struct authority a;
	const char *wrong = authority_parse(s, n, 0, &a);

	if (wrong)
		return bad(r, 400, wrong);
	if (!a.has_port)
		return bad(r, 400, "CONNECT needs host:port");
	r->connect = true;
	set_target(r, &a, a.port);
	return PARSE_DONE;
}

static enum parse set_origin(struct request *r, const struct authority *a);

static enum parse parse_absolute_target(struct request *r, const char *buf, size_t at, size_t n)
{
	const char *s = buf + at, *wrong;
	struct authority a;
	size_t len = 0;

	if (r->origin && (s[0] == '/' || (n == 1 && s[0] == '*'))) {
		r->path = (struct span){(uint16_t)at, (uint16_t)(s[0] == '*' ? 0 : n)};
		return memchr(s, '#', n) ? bad(r, 400, "a fragment (#) is not part of a request")
					 : PARSE_DONE;
	}
	if (s[0] == '/')
		return bad(r, 400,
			   "this is a proxy: send the whole http:// address (is the client set up for a "
			   "proxy?)");
	if (text_starts(s, n, "https://"))
		return bad(r, 400, "https:// goes through CONNECT host:443");
	if (!text_starts(s, n, "http://"))
		return bad(r, 400, "the target must be an http:// address, or host:port with CONNECT");
	if (memchr(s, '#', n))
		return bad(r, 400, "a fragment (#) is not part of a request");
	s += 7;
	n -= 7;
	while (len < n && s[len] != '/' && s[len] != '?')
		len++;
	wrong = authority_parse(s, len, 80, &a);
	if (wrong)
		return bad(r, 400, wrong);
	r->path = (struct span){(uint16_t)(at + 7 + len), (uint16_t)(n - len)};
	if (r->origin)
		return set_origin(r, &a);
	set_target(r, &a, a.has_port ? a.port : 80);
	return PARSE_DONE;
}

/* What a client names that talks to "the site itself": the host that was judged, or the first it names. */
static enum parse set_origin(struct request *r, const struct authority *a)
{
	if (a->has_port && a->port != r->target.port)
		return bad(r, 400, "another port is named than the one that was connected to");
	if (r->target.host[0] && strcmp(a->host, r->target.host) != 0)
		return bad(r, 400, "another host is named than the one that was connected to");
	set_target(r, a, r->target.port);
	return PARSE_DONE;
}

static enum parse parse_version(struct request *r, const char *s, size_t n)
{
	if (n != 8 || memcmp(s, "HTTP/", 5) != 0 || s[5] < '0' || s[5] > '9' || s[6] != '.' || s[7] < '0' ||
	    s[7] > '9')
		return bad(r, 400, "the first line must end in HTTP/1.1 or HTTP/1.0");
	if (s[5] != '1' || s[7] > '1')
		return bad(r, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
	r->http10 = s[7] == '0';
	return PARSE_DONE;
}

static enum parse parse_method(struct request *r, const char *s, size_t n)
{
	if (n == 0 || n > REQUEST_METHOD_MAX)
		return bad(r, 400, "the first line must begin with a method");
	for (size_t i = 0; i < n; i++)
		if (!is_token_byte(s[i]))
			return bad(r, 400, "the method holds a byte that no method has");
	return PARSE_DONE;
}

/* METHOD SP TARGET SP VERSION, single spaces (RFC 9112 3). The scan has let only visible ASCII and space
 * through. */
static enum parse parse_request_line(struct request *r, const char *buf, size_t at, size_t end)
{
	const char *s = buf + at, *sp1, *sp2, *stop = buf + end;
	size_t method_len, target_len;

	sp1 = memchr(s, ' ', end - at);
	sp2 = sp1 ? memchr(sp1 + 1, ' ', (size_t)(stop - sp1 - 1)) : NULL;
	if (!sp2 || sp2 == sp1 + 1)
		return bad(r, 400, "the first line must be: METHOD, one space, target, one space, HTTP/1.1");
	method_len = (size_t)(sp1 - s);
	target_len = (size_t)(sp2 - sp1 - 1);
	r->method = (struct span){(uint16_t)at, (uint16_t)method_len};
	if (parse_method(r, s, method_len) != PARSE_DONE ||
	    parse_version(r, sp2 + 1, (size_t)(stop - sp2 - 1)) != PARSE_DONE)
		return PARSE_BAD;
	if (method_len == 7 && memcmp(s, "CONNECT", 7) == 0 && r->origin)
		return bad(r, 405, "CONNECT to something that is no proxy");
	if (method_len == 7 && memcmp(s, "CONNECT", 7) == 0)
		return parse_connect_target(r, sp1 + 1, target_len);
	if (method_len == 5 && memcmp(s, "TRACE", 5) == 0)
		return bad(r, 405, "TRACE is not forwarded");
	return parse_absolute_target(r, buf, (size_t)(sp1 + 1 - buf), target_len);
}

/* --- fields --- */

/* Fields that decide where a message ends or goes: one spelling only, and Connection must not take them away.
 */
static const char *const framing_names[] = {"host", "content-length", "transfer-encoding", "expect"};
/* RFC 9110 7.6.1, and what belongs to the hop by nature. Trailer goes because trailers are not sent on. */
static const char *const hop_names[] = {"connection", "keep-alive", "te",    "trailer",
					"upgrade",    "host",       "proxy", "http2-settings"};

static enum parse parse_length(struct request *r, const char *s, size_t n)
{
	uint64_t v = 0;

	if (r->has_cl)
		return bad(r, 400, "two Content-Length fields");
	if (n == 0 || n > 18) /* below 10^18: no sum of lengths can overflow */
		return bad(r, 400, "Content-Length is one decimal number");
	for (size_t i = 0; i < n; i++) {
		if (s[i] < '0' || s[i] > '9')
			return bad(r, 400, "Content-Length is one decimal number");
		v = v * 10 + (uint64_t)(s[i] - '0');
	}
	r->has_cl = true;
	r->content_length = v;
	return PARSE_DONE;
}

static enum parse parse_coding(struct request *r, const char *s, size_t n)
{
	if (r->has_te)
		return bad(r, 400, "two Transfer-Encoding fields");
	if (!text_is(s, n, "chunked"))
		return bad(r, 501, "chunked is the only transfer coding taken here");
	r->has_te = true;
	return PARSE_DONE;
}

static enum parse parse_known(struct request *r, const char *buf, struct request_field *f)
{
	const char *name = buf + f->name.at, *value = buf + f->value.at;
	size_t n = f->name.len, vn = f->value.len;

	for (size_t i = 0; i < ELEMENTS(framing_names); i++)
		if (name_is(name, n, framing_names[i]) && !text_is(name, n, framing_names[i]))
			return bad(r, 400, "a field that frames the message is spelled with an underscore");
	if (text_is(name, n, "host")) {
		if (r->has_host)
			return bad(r, 400, "two Host fields");
		r->has_host = true;
		r->host_value = f->value;
	} else if (text_is(name, n, "content-length")) {
		return parse_length(r, value, vn);
	} else if (text_is(name, n, "transfer-encoding")) {
		return parse_coding(r, value, vn);
	} else if (text_is(name, n, "expect")) {
		if (r->has_expect || !text_is(value, vn, "100-continue"))
			return bad(r, 417, "the only expectation is one 100-continue");
		r->has_expect = true;
	} else if (text_is(name, n, "upgrade")) {
		r->upgrade_ws = text_is(value, vn, "websocket");
	} else if (text_is(name, n, "max-forwards")) {
		r->has_max_forwards = true;
	}
	return PARSE_DONE;
}

static enum parse parse_field(struct request *r, const char *buf, size_t at, size_t end)
{
	struct request_field *f = &r->fields[r->n_fields];
	size_t colon = at, from, to = end;

	if (r->n_fields == REQUEST_FIELDS_MAX)
		return bad(r, 431, "too many header fields");
	if (buf[at] == ' ' || buf[at] == '\t')
		return bad(r, 400, "a folded header line");
	while (colon < end && is_token_byte(buf[colon]))
		colon++;
	if (colon == end || buf[colon] != ':' || colon == at)
		return bad(r, 400, "a header line is a name, a colon without space before it, and a value");
	for (from = colon + 1; from < to && (buf[from] == ' ' || buf[from] == '\t'); from++)
		;
	for (; to > from && (buf[to - 1] == ' ' || buf[to - 1] == '\t'); to--)
		;
	*f = (struct request_field){.name = {(uint16_t)at, (uint16_t)(colon - at)},
				    .value = {(uint16_t)from, (uint16_t)(to - from)}};
	for (size_t i = 0; i < ELEMENTS(hop_names); i++)
		f->drop |= name_is(buf + at, f->name.len, hop_names[i]);
	f->drop |= f->name.len > 6 && name_is(buf + at, 6, "proxy-");
	r->n_fields++;
	return parse_known(r, buf, f);
}

/* --- the head as a whole --- */

static enum parse connection_token(struct request *r, const char *buf, const char *s, size_t n)
{
	r->conn_close |= text_is(s, n, "close");
	r->conn_keep |= text_is(s, n, "keep-alive");
	r->conn_upgrade |= text_is(s, n, "upgrade");
	for (size_t i = 0; i < n; i++)
		if (!is_token_byte(s[i]))
			return bad(r, 400, "Connection is a list of names");
	for (size_t i = 0; i < ELEMENTS(framing_names); i++)
		if (name_is(s, n, framing_names[i]))
			return bad(r, 400, "Connection names a field that frames the message");
	for (unsigned i = 0; i < r->n_fields; i++) {
		struct request_field *f = &r->fields[i];

		f->drop |= f->name.len == n && strncasecmp(buf + f->name.at, s, n) == 0;
	}
	return PARSE_DONE;
}

static enum parse parse_connection(struct request *r, const char *buf)
{
	unsigned tokens = 0;

	for (unsigned i = 0; i < r->n_fields; i++) {
		const struct request_field *f = &r->fields[i];
		const char *s = buf + f->value.at, *end = s + f->value.len;

		/* Proxy-Connection never was in a standard, but old clients say close in it. */
		if (text_is(buf + f->name.at, f->name.len, "proxy-connection"))
			r->conn_close |= text_is(s, f->value.len, "close");
		if (!text_is(buf + f->name.at, f->name.len, "connection"))
			continue;
		while (s < end) {
			const char *comma = memchr(s, ',', (size_t)(end - s)), *stop = comma ? comma : end;
			const char *from = s, *to = stop;

			for (; from < to && (*from == ' ' || *from == '\t'); from++)
				;
			for (; to > from && (to[-1] == ' ' || to[-1] == '\t'); to--)
				;
			if (++tokens > CONNECTION_TOKENS_MAX)
				return bad(r, 400, "too many names in Connection");
			if (to > from && connection_token(r, buf, from, (size_t)(to - from)) != PARSE_DONE)
				return PARSE_BAD;
			s = stop + 1;
		}
	}
	return PARSE_DONE;
}

/* Host is rewritten, so a different one could do no harm; but its sender means something else than it will
 * get. */
static enum parse check_host(struct request *r, const char *buf)
{
	struct authority a;

	if (!r->has_host && r->origin && !r->target.host[0])
		return bad(r, 400, "no Host field names the site");
	if (!r->has_host)
		return r->http10 ? PARSE_DONE : bad(r, 400, "HTTP/1.1 needs a Host field");
	if (authority_parse(buf + r->host_value.at, r->host_value.len, r->target.port, &a) != NULL)
		return bad(r, 400, "the Host field is neither a valid name nor an address");
	if (r->origin)
		return set_origin(r, &a);
	if (strcmp(a.host, r->target.host) != 0 || (a.has_port && a.port != r->target.port))
		return bad(r, 400, "the Host field names another host or port than the target");
	return PARSE_DONE;
}

static enum parse check_body(struct request *r)
{
	if (r->has_te && r->has_cl)
		return bad(r, 400, "both Transfer-Encoding and Content-Length");
	if (r->has_te && r->http10)
		return bad(r, 400, "HTTP/1.0 has no Transfer-Encoding");
	if (r->connect && (r->has_te || r->content_length > 0))
		return bad(r, 400, "CONNECT has no body");
	r->body = r->has_te ? BODY_CHUNKED : r->content_length > 0 ? BODY_LENGTH : BODY_NONE;
	r->expect_continue = r->has_expect && !r->http10 && r->body != BODY_NONE;
	return PARSE_DONE;
}

static enum parse finish(struct request *r, const char *buf, size_t head_len)
{
	const char *method = buf + r->method.at;

	if (check_host(r, buf) != PARSE_DONE || parse_connection(r, buf) != PARSE_DONE ||
	    check_body(r) != PARSE_DONE)
		return PARSE_BAD;
	if (r->has_max_forwards && r->method.len == 7 && memcmp(method, "OPTIONS", 7) == 0)
		return bad(r, 501, "OPTIONS with Max-Forwards is not answered here");
	r->keep_alive = !r->conn_close && (!r->http10 || r->conn_keep);
	r->websocket = r->upgrade_ws && r->conn_upgrade && !r->http10 && r->body == BODY_NONE &&
		       r->method.len == 3 && memcmp(method, "GET", 3) == 0;
	r->head_len = head_len;
	return PARSE_DONE;
}

/* --- lines --- */

/* What there is of a first line that has not ended. Asked when no more bytes are there, and where the line gets too
 * long: the same bytes get the same answer, in whatever pieces they come. */
static enum parse check_first_line(struct request *r, const char *buf, size_t len)
{
	size_t have = len - r->line, n = have <= REQUEST_METHOD_MAX ? have : REQUEST_METHOD_MAX + 1;

	if (!memchr(buf + r->line, ' ', n) && have > REQUEST_METHOD_MAX)
		return bad(r, 400, "the first line must begin with a method");
	if (buf[r->line] != '\r' && !is_token_byte(buf[r->line]))
		return bad(r, 400, "the first line must begin with a method");
	if (r->scan - r->line > REQUEST_LINE_MAX) /* not counting a CR that waits for its LF */
		return bad(r, 414, "the address is too long");
	return PARSE_MORE;
}

/* Finds the CRLF that ends the line at r->line. Judges every byte once. */
static enum parse scan_line(struct request *r, const char *buf, size_t len, size_t *ret_end)
{
	for (; r->scan < len; r->scan++) {
		char c = buf[r->scan];

		if (r->phase == PHASE_LINE && r->scan - r->line > REQUEST_LINE_MAX)
			return check_first_line(r, buf, r->scan);
		if (c == '\r') {
			if ((size_t)r->scan + 1 == len)
				return PARSE_MORE;
			if (buf[r->scan + 1] != '\n')
				return bad(r, 400, "a carriage return without a line feed");
			*ret_end = r->scan;
			r->scan = (uint16_t)(r->scan + 2);
			return PARSE_DONE;
		}
		if (c == '\n')
			return bad(r, 400, "a line feed without a carriage return");
		if (is_control(c))
			return bad(r, 400, "a control byte in the request head (is this HTTP?)");
		if (r->phase == PHASE_LINE && (c == '\t' || (unsigned char)c >= 0x80))
			return bad(r, 400, "a byte in the first line that must be percent-encoded");
	}
	return PARSE_MORE;
}

static enum parse take_line(struct request *r, const char *buf, size_t end)
{
	size_t at = r->line;

	r->line = r->scan;
	if (r->phase == PHASE_FIELDS)
		return at == end ? finish(r, buf, r->scan) : parse_field(r, buf, at, end);
	if (at == end) /* RFC 9112 2.2: one empty line before the first may be skipped */
		return r->leading++ == 0 ? PARSE_MORE : bad(r, 400, "empty lines instead of a request");
	if (parse_request_line(r, buf, at, end) != PARSE_DONE)
		return PARSE_BAD;
	r->phase = PHASE_FIELDS;
	return PARSE_MORE;
}

/* No complete line: is it already clear that none can come? */
static enum parse check_partial(struct request *r, const char *buf, size_t len)
{
	if (r->phase == PHASE_LINE && len > r->line && check_first_line(r, buf, len) == PARSE_BAD)
		return PARSE_BAD;
	if (len == REQUEST_HEAD_MAX)
		return bad(r, 431, "the request head is too long");
	return PARSE_MORE;
}

enum parse request_parse(struct request *r, const char *buf, size_t len)
{
	size_t end = 0;
	enum parse p;

	if (len > REQUEST_HEAD_MAX)
		len = REQUEST_HEAD_MAX;
	while ((p = scan_line(r, buf, len, &end)) == PARSE_DONE) {
		bool last = r->phase == PHASE_FIELDS && r->line == end;

		p = take_line(r, buf, end);
		if (p == PARSE_BAD || last)
			return p;
	}
	return p == PARSE_BAD ? p : check_partial(r, buf, len);
}
