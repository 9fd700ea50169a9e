/* The request-head parser, the head that goes upstream, and the chunk filter. */
#include "proxy/request.h"
#include "base/str.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define HOST "Host: x.com\r\n"

static enum parse feed(struct request *r, const char *text, size_t len)
{
	enum parse whole, p = PARSE_MORE;
	struct request bytewise = {0};

	memset(r, 0, sizeof *r);
	whole = request_parse(r, text, len);
	for (size_t n = 0; n <= len && p == PARSE_MORE; n++)
		p = request_parse(&bytewise, text, n);
	assert_int_equal(whole, p);
	if (p == PARSE_DONE)
		assert_int_equal(r->head_len, bytewise.head_len);
	else if (p == PARSE_BAD)
		assert_int_equal(r->status, bytewise.status);
	return whole;
}

static void refused(const char *text, int status)
{
	struct request r;
	enum parse p = feed(&r, text, strlen(text));

	if (p != PARSE_BAD || r.status != status || strlen(r.reason) < 10)
		fail_msg("%s: parse %d, status %d %s", text, p, r.status, r.reason ? r.reason : "");
}

static void taken(struct request *r, const char *text)
{
	enum parse p = feed(r, text, strlen(text));

	if (p != PARSE_DONE)
		fail_msg("%s: parse %d, status %d %s", text, p, r->status, r->reason ? r->reason : "");
}

static void test_connect(void **state)
{
	struct request r;

	(void)state;
	taken(&r, "CONNECT API.X.com.:443 HTTP/1.1\r\nHost: api.x.com:443\r\n\r\nEARLY");
	assert_true(r.connect && !r.target.literal);
	assert_string_equal(r.target.host, "api.x.com");
	assert_int_equal(r.target.port, 443);
	assert_int_equal(r.head_len, 56);
	assert_int_equal(r.body, BODY_NONE);
	taken(&r, "CONNECT [::FFFF:1.2.3.4]:22 HTTP/1.0\r\n\r\n");
	assert_true(r.target.literal && r.target.addr.family == AF_INET);
	assert_string_equal(r.target.host, "1.2.3.4");
	taken(&r, "\r\nCONNECT [2606::1]:8443 HTTP/1.1\r\nHost: [2606:0::1]\r\nContent-Length: 0\r\n\r\n");
	assert_string_equal(r.target.host, "2606::1");
	assert_int_equal(r.target.port, 8443);
	assert_int_equal(request_build(&r, "", (char[8]){0}, 8), 0);
}

static void test_connect_refused(void **state)
{
	static const char *const targets[] = {
		"x.com",       "x.com:",        "x.com:0",     "x.com:00443",
		"x.com:65536", "x.com:+1",      "x.com:443x",  ":443",
		"u@x.com:443", "x.com:1:2",     "[x.com]:443", "[::1%lo]:1",
		"::1:443",     "http://x.com/", "x.com/:443",  "*",
		"/",           "127.1:443",     "[::1]",       "[::1",
		"[::1]x:1",    "x..com:1",      "x.com?:443",  "[]:443",
		"x.com#:1",    "x.com%00:1",    "[::1]:",      "x.com:999999999999",
	};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(targets); i++) {
		CLEANUP_FREE char *text = xasprintf("CONNECT %s HTTP/1.1\r\nHost: x.com\r\n\r\n", targets[i]);

		refused(text, 400);
	}
	refused("CONNECT x.com:443 HTTP/1.1\r\nHost: x.com\r\nContent-Length: 3\r\n\r\nabc", 400);
	refused("CONNECT x.com:443 HTTP/1.1\r\nHost: x.com\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
	refused("CONNECT x.com:443 HTTP/1.1\r\n\r\n", 400);
	refused("CONNECT x.com:443 HTTP/1.1\r\nHost: y.com\r\n\r\n", 400);
	refused("CONNECT x.com:443 HTTP/1.1\r\nHost: x.com:80\r\n\r\n", 400);
}

static void test_lines_refused(void **state)
{
	static const struct {
		const char *text;
		int status;
	} rows[] = {
		{"GET / HTTP/1.1\r\n", 400},
		{"OPTIONS * HTTP/1.1\r\n", 400},
		{"GET https://x.com/ HTTP/1.1\r\n", 400},
		{"GET ftp://x.com/ HTTP/1.1\r\n", 400},
		{"GET http:x.com/ HTTP/1.1\r\n", 400},
		{"GET http:///x.com HTTP/1.1\r\n", 400},
		{"GET http://x.com/#a HTTP/1.1\r\n", 400},
		{"GET http://u@x.com/ HTTP/1.1\r\n", 400},
		{"GET http://x.com\\@y.com/ HTTP/1.1\r\n", 400},
		{"GET http://x.com:0/ HTTP/1.1\r\n", 400},
		{"GET http://x.com/ HTTP/1.1 \r\n", 400},
		{"GET  http://x.com/ HTTP/1.1\r\n", 400},
		{"GET http://x.com/\r\n", 400},
		{"GET http://x.com/ HTTP/1.12\r\n", 400},
		{"GET http://x.com/ http/1.1\r\n", 400},
		{"GET http://x.com/ HTTP/2.0\r\n", 505},
		{"PRI * HTTP/2.0\r\n", 505},
		{"GET http://x.com/ HTTP/1.2\r\n", 505},
		{"TRACE http://x.com/ HTTP/1.1\r\n", 405},
		{"G@T http://x.com/ HTTP/1.1\r\n", 400},
		{" GET", 400},
		{"\r\n\r\n", 400},
		{"GET http://x.com/\n", 400},
		{"GET\thttp", 400},
		{"GET http://x.com/\x7f", 400},
		{"GET http://x.com/\303\274", 400},
		{"\x16\x03\x01", 400},
		{"\x05\x01", 400},
		{"\x80\x2e", 400},
		{"GET\rX", 400},
		{"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 400},
	};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(rows); i++)
		refused(rows[i].text, rows[i].status);
}

static void test_fields_refused(void **state)
{
	static const struct {
		const char *fields;
		int status;
	} rows[] = {
		{"", 400},
		{"Host: y.com\r\n", 400},
		{"Host:\r\n", 400},
		{"Host: x.com, x.com\r\n", 400},
		{HOST HOST, 400},
		{"Host: x.com:81\r\n", 400},
		{HOST " X: a\r\n", 400},
		{" X: a\r\n" HOST, 400},
		{HOST "X : a\r\n", 400},
		{HOST ": a\r\n", 400},
		{HOST "Xa\r\n", 400},
		{HOST "X\303\251: a\r\n", 400},
		{HOST "X: a\x01\r\n", 400},
		{HOST "X: a\n", 400},
		{HOST "X: a\rb", 400},
		{HOST "Content-Length: 1\r\nContent-Length: 1\r\n", 400},
		{HOST "Content-Length: 1, 1\r\n", 400},
		{HOST "Content-Length: +1\r\n", 400},
		{HOST "Content-Length: 0x1\r\n", 400},
		{HOST "Content-Length:\r\n", 400},
		{HOST "Content-Length: 18446744073709551621\r\n", 400},
		{HOST "Content_Length: 1\r\n", 400},
		{HOST "Transfer_Encoding: chunked\r\n", 400},
		{HOST "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", 400},
		{HOST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", 400},
		{HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400},
		{HOST "Transfer-Encoding: gzip, chunked\r\n", 501},
		{HOST "Transfer-Encoding: identity\r\n", 501},
		{HOST "Transfer-Encoding:\r\n", 501},
		{HOST "Transfer-Encoding: \013chunked\r\n", 400},
		{HOST "Expect: 200-ok\r\n", 417},
		{HOST "Connection: close, Content-Length\r\n", 400},
		{HOST "Connection: host\r\n", 400},
		{HOST "Connection: transfer_encoding\r\n", 400},
		{HOST "Connection: a b\r\n", 400},
	};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(rows); i++) {
		CLEANUP_FREE char *text = xasprintf("POST http://x.com/ HTTP/1.1\r\n%s\r\n", rows[i].fields);

		refused(text, rows[i].status);
	}
	refused("POST http://x.com/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
	refused("OPTIONS http://x.com/ HTTP/1.1\r\n" HOST "Max-Forwards: 0\r\n\r\n", 501);
}

static void test_nul(void **state)
{
	static const char nul[] = "GET http://x.com/ HTTP/1.1\r\nHost: x.com\0.y.com\r\n\r\n";
	struct request r;

	(void)state;
	assert_int_equal(feed(&r, nul, sizeof nul - 1), PARSE_BAD);
}

static void test_limits(void **state)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
	struct request r;

	(void)state;
	strbuf_adds(&b, "GET http://x.com/ HTTP/1.1\r\n" HOST);
	for (int i = 1; i < REQUEST_FIELDS_MAX; i++)
		strbuf_adds(&b, "X: y\r\n");
	strbuf_adds(&b, "\r\n");
	taken(&r, b.p);
	assert_int_equal(r.n_fields, REQUEST_FIELDS_MAX);
	b.len -= 2;
	strbuf_adds(&b, "X: y\r\n\r\n");
	refused(b.p, 431);
	strbuf_reset(&b);
	strbuf_adds(&b, "GET http://x.com/");
	while (b.len < REQUEST_LINE_MAX - 9)
		strbuf_addc(&b, 'a');
	strbuf_adds(&b, " HTTP/1.1\r\n" HOST "\r\n");
	taken(&r, b.p);
	strbuf_reset(&b);
	strbuf_adds(&b, "GET http://x.com/");
	while (b.len < REQUEST_LINE_MAX + 1)
		strbuf_addc(&b, 'a');
	refused(b.p, 414);
	strbuf_reset(&b);
	strbuf_adds(&b, "GET http://x.com/ HTTP/1.1\r\n" HOST "X: ");
	while (b.len < REQUEST_HEAD_MAX - 4)
		strbuf_addc(&b, 'a');
	strbuf_adds(&b, "\r\n\r\n");
	taken(&r, b.p);
	assert_int_equal(r.head_len, REQUEST_HEAD_MAX);
	strbuf_reset(&b);
	strbuf_adds(&b, "GET http://x.com/ HTTP/1.1\r\n" HOST "X: ");
	while (b.len < REQUEST_HEAD_MAX - 3)
		strbuf_addc(&b, 'a');
	strbuf_adds(&b, "\r\n\r\n");
	refused(b.p, 431);
}

static void built(const char *head, const char *want)
{
	char out[REQUEST_OUT_MAX];
	struct request r;
	size_t n;

	taken(&r, head);
	n = request_build(&r, head, out, sizeof out);
	assert_true(n > 0);
	out[n] = 0;
	assert_string_equal(out, want);
	for (size_t cap = 0; cap < n; cap++)
		assert_int_equal(request_build(&r, head, out, cap), 0);
}

/* What comes after the byte that made it too long changes nothing. */
static void test_a_long_line_is_too_long_in_whatever_pieces(void **state)
{
	static char line[12000];

	(void)state;
	memset(line, 'a', sizeof line - 1);
	memcpy(line, "GET http://x.com/", 17);
	line[10000] = (char)0xdc;
	refused(line, 414);
	line[10000] = '\n';
	refused(line, 414);
	memset(line, 'a', 64); /* no method either */
	refused(line, 400);
}

static void test_build(void **state)
{
	(void)state;
	built("GET http://x.com/a?b=c HTTP/1.1\r\nAccept: */*\r\nHOST:\tX.com:80 \r\nProxy-Authorization: "
	      "Basic Zm9v\r\n"
	      "Proxy_Authorization: x\r\nproxy: y\r\nConnection: keep-alive, X-Hop\r\nx-hop: "
	      "1\r\nKeep-Alive: 5\r\n"
	      "TE: trailers\r\nTrailer: x\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\nCookie:a\r\n\r\n",
	      "GET /a?b=c HTTP/1.1\r\nHost: x.com\r\nAccept: */*\r\nCookie: a\r\nConnection: close\r\n\r\n");
	built("GET http://x.com HTTP/1.0\r\n\r\n",
	      "GET / HTTP/1.0\r\nHost: x.com\r\nConnection: close\r\n\r\n");
	built("GET HTTP://x.com:8080?q HTTP/1.1\r\nHost: x.com:8080\r\n\r\n",
	      "GET /?q HTTP/1.1\r\nHost: x.com:8080\r\nConnection: close\r\n\r\n");
	built("GET http://x.com:/ HTTP/1.1\r\n" HOST "\r\n",
	      "GET / HTTP/1.1\r\nHost: x.com\r\nConnection: close\r\n\r\n");
	built("OPTIONS http://x.com HTTP/1.1\r\n" HOST "\r\n",
	      "OPTIONS * HTTP/1.1\r\nHost: x.com\r\nConnection: close\r\n\r\n");
	built("GET http://[2606::1]:81/ HTTP/1.1\r\nHost: [2606::1]:81\r\n\r\n",
	      "GET / HTTP/1.1\r\nHost: [2606::1]:81\r\nConnection: close\r\n\r\n");
	built("POST http://x.com/ HTTP/1.1\r\n" HOST "Content-Length: 12\r\nExpect: 100-Continue\r\n\r\n",
	      "POST / HTTP/1.1\r\nHost: x.com\r\nContent-Length: 12\r\nExpect: 100-Continue\r\nConnection: "
	      "close\r\n\r\n");
	built("GET http://x.com/ws HTTP/1.1\r\n" HOST
	      "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
	      "Sec-WebSocket-Version: 13\r\n\r\n",
	      "GET /ws HTTP/1.1\r\nHost: x.com\r\nSec-WebSocket-Version: 13\r\nConnection: Upgrade\r\n"
	      "Upgrade: websocket\r\n\r\n");
}

static void test_semantics(void **state)
{
	struct request r;

	(void)state;
	taken(&r,
	      "POST http://x.com/ HTTP/1.1\r\n" HOST "Content-Length: 0012\r\nExpect: 100-continue\r\n\r\n");
	assert_int_equal(r.body, BODY_LENGTH);
	assert_int_equal(r.content_length, 12);
	assert_true(r.expect_continue && r.keep_alive);
	taken(&r, "POST http://x.com/ HTTP/1.1\r\n" HOST
		  "Transfer-Encoding: CHUNKED\r\nConnection: Close\r\n\r\n");
	assert_int_equal(r.body, BODY_CHUNKED);
	assert_false(r.keep_alive);
	taken(&r, "GET http://x.com/ HTTP/1.0\r\n\r\n");
	assert_false(r.keep_alive);
	taken(&r, "GET http://x.com/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
	assert_true(r.keep_alive);
	taken(&r, "GET http://x.com/ HTTP/1.1\r\n" HOST "Proxy-Connection: close\r\n\r\n");
	assert_false(r.keep_alive);
	taken(&r,
	      "GET http://x.com/ HTTP/1.1\r\n" HOST "Connection: ,, upgrade ,\r\nUpgrade: websocket\r\n\r\n");
	assert_true(r.websocket);
	taken(&r, "POST http://x.com/ HTTP/1.1\r\n" HOST "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n");
	assert_false(r.websocket);
	taken(&r, "GET http://x.com/ HTTP/1.1\r\n" HOST "Upgrade: websocket\r\n\r\n");
	assert_false(r.websocket);
	taken(&r,
	      "GET http://x.com/ HTTP/1.1\r\n" HOST "Connection: upgrade\r\nUpgrade: h2c, websocket\r\n\r\n");
	assert_false(r.websocket);
	taken(&r, "GET http://x.com/ HTTP/1.1\r\n" HOST "Connection: connection\r\nX: \xff\r\n\r\n");
}

/* Feeds `text` in pieces of every size and compares what is left. NULL: must be refused. */
/* As said to the site itself, at port 80 or `port`; `host` is what was judged before, or "". NULL: refused. */
static void origin(const char *host, uint16_t port, const char *text, const char *want)
{
	struct request r = {.origin = true, .target.port = port};
	char out[REQUEST_OUT_MAX];
	enum parse p;
	size_t n;

	(void)snprintf(r.target.host, sizeof r.target.host, "%s", host);
	p = request_parse(&r, text, strlen(text));
	if (!want) {
		if (p != PARSE_BAD)
			fail_msg("%s: taken", text);
		return;
	}
	if (p != PARSE_DONE)
		fail_msg("%s: %s", text, r.reason ? r.reason : "not complete");
	n = request_build(&r, text, out, sizeof out - 1);
	out[n] = 0;
	assert_string_equal(out, want);
}

static void test_origin(void **state)
{
	static const char plain[] = "GET /x?y HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";

	(void)state;
	for (int known = 0; known < 2; known++) {
		const char *host = known ? "a.test" : "";

		origin(host, 80, "GET /x?y HTTP/1.1\r\nHost: A.test\r\nConnection: keep-alive\r\n\r\n",
		       plain);
		origin(host, 80, "GET /x?y HTTP/1.1\r\nHost: a.test:80\r\n\r\n", plain);
		origin(host, 80, "GET http://a.test/x?y HTTP/1.1\r\nHost: a.test\r\n\r\n", plain);
		origin(host, 80, "OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n",
		       "OPTIONS * HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
		origin(host, 8080, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
		       "GET / HTTP/1.1\r\nHost: a.test:8080\r\nConnection: close\r\n\r\n");
		origin(host, 80, "GET / HTTP/1.1\r\nHost: a.test:81\r\n\r\n", NULL);
		origin(host, 80, "GET / HTTP/1.1\r\n\r\n", NULL);
		origin(host, 80, "GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", NULL);
		origin(host, 80, "GET http://a.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n", NULL);
		origin(host, 80, "GET https://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", NULL);
		origin(host, 80, "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n", NULL);
		origin(host, 80, "GET /#x HTTP/1.1\r\nHost: a.test\r\n\r\n", NULL);
		origin(host, 80, "GET x HTTP/1.1\r\nHost: a.test\r\n\r\n", NULL);
		origin(host, 80, "GET / HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n", NULL);
		origin(host, 80, "GET / HTTP/1.1\r\nHost: a_\r\n b.test\r\n\r\n", NULL);
	}
	/* without a Host the name must be known */
	origin("a.test", 80, "GET / HTTP/1.0\r\n\r\n",
	       "GET / HTTP/1.0\r\nHost: a.test\r\nConnection: close\r\n\r\n");
	origin("", 80, "GET / HTTP/1.0\r\n\r\n", NULL);
	origin("a.test", 80, "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n", NULL);
	origin("", 80, "GET / HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n",
	       "GET / HTTP/1.1\r\nHost: 10.0.0.1\r\nConnection: close\r\n\r\n");
}

static void chunked(const char *text, const char *want, const char *rest)
{
	size_t len = strlen(text);

	for (size_t piece = 1; piece <= len; piece++) {
		CLEANUP_STRBUF struct strbuf got = STRBUF_INIT;
		struct chunk c = {0};
		enum parse p = PARSE_MORE;
		size_t at = 0;

		while (at < len && p == PARSE_MORE) {
			size_t n = len - at < piece ? len - at : piece, used = 0, out = 0;
			char *copy = xmalloc(n); /* exact size: the sanitizer sees a byte too far */

			memcpy(copy, text + at, n);
			p = chunk_filter(&c, copy, n, &used, &out);
			assert_true(out <= used && used <= n);
			strbuf_add(&got, copy, out);
			at += used;
			free(copy);
		}
		assert_int_equal(p, want ? PARSE_DONE : PARSE_BAD);
		if (want) {
			assert_string_equal(got.p, want);
			assert_string_equal(text + at, rest);
		}
	}
}

static void test_chunks(void **state)
{
	static const char *const bad[] = {
		"\r\n",
		"-1\r\n",
		"x",
		"5\rX",
		"5\n",
		" 5\r\n",
		"5 \r\n",
		"5\r\nhello0\r\n",
		"5\r\nhello\n",
		"5;a\n",
		"5;a\rb",
		"FFFFFFFFFFFFFFFF0\r\n",
		"8000000000000000\r\n",
		"00000000000000001\r\n",
		"0x5\r\n",
		"0\r\n X: y",
		"0\r\nX: y\n",
		"0\r\nX: y\r\r",
		"0\r\n\rX",
		"5;\x01",
		";a\r\n",
	};

	(void)state;
	chunked("0\r\n\r\n", "0\r\n\r\n", "");
	chunked("5\r\nhello\r\n0A\r\n0123456789\r\n0\r\n\r\nGET",
		"5\r\nhello\r\n0A\r\n0123456789\r\n0\r\n\r\n", "GET");
	chunked("5;a=b\r\nhello\r\n0 ;x=\"y\"\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", "");
	chunked("3\r\nabc\r\n0\r\nHost: evil.test\r\nX: y\r\n\r\nZ", "3\r\nabc\r\n0\r\n\r\n", "Z");
	chunked("2\r\n\r\n\r\n0\r\n\r\n", "2\r\n\r\n\r\n0\r\n\r\n", "");
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		chunked(bad[i], NULL, NULL);
}

static void test_chunk_limits(void **state)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
	struct chunk c = {0};
	size_t used, out;

	(void)state;
	strbuf_adds(&b, "5;");
	for (int i = 0; i < CHUNK_LINE_MAX + 1; i++)
		strbuf_addc(&b, 'a');
	assert_int_equal(chunk_filter(&c, b.p, b.len, &used, &out), PARSE_BAD);
	assert_int_equal(chunk_filter(&c, b.p, b.len, &used, &out), PARSE_BAD); /* stays broken */
	strbuf_reset(&b);
	c = (struct chunk){0};
	strbuf_adds(&b, "0\r\n");
	for (int i = 0; i < CHUNK_TRAILER_MAX; i++)
		strbuf_adds(&b, "X: y\r\n");
	assert_int_equal(chunk_filter(&c, b.p, b.len, &used, &out), PARSE_BAD);
}

static void test_response(void **state)
{
	static const char *const bad[] = {"HTTP/2",      "HTTP/1.1101",   "http/1.1",
					  "HTTP/1.1 1x", "HTTP/1.1 1011", "\x15"};
	const char *good = "HTTP/1.1 101 Switching Protocols\r\n";
	int status = 0;

	(void)state;
	for (size_t n = 0; n < 13; n++)
		assert_int_equal(response_status(good, n, &status), PARSE_MORE);
	assert_int_equal(response_status(good, strlen(good), &status), PARSE_DONE);
	assert_int_equal(status, 101);
	assert_int_equal(response_status("HTTP/1.0 200\r\n", 14, &status), PARSE_DONE);
	assert_int_equal(status, 200);
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		assert_int_equal(response_status(bad[i], strlen(bad[i]), &status), PARSE_BAD);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connect),
		cmocka_unit_test(test_connect_refused),
		cmocka_unit_test(test_lines_refused),
		cmocka_unit_test(test_fields_refused),
		cmocka_unit_test(test_a_long_line_is_too_long_in_whatever_pieces),
		cmocka_unit_test(test_nul),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_origin),
		cmocka_unit_test(test_build),
		cmocka_unit_test(test_semantics),
		cmocka_unit_test(test_chunks),
		cmocka_unit_test(test_chunk_limits),
		cmocka_unit_test(test_response),
	};

	return cmocka_run_group_tests_name("request", tests, NULL, NULL);
}
