/* The messages of SOCKS5, cut at every byte and joined; and what the first bytes of a connection begin. */
#include "proxy/first.h"
#include "proxy/socks_msg.h"
#include "base/str.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define NAME_REQUEST "\5\1\0\5\1\0\3\17allowed.example\1\273"

/* Feeds the first n bytes for n = 1, 2, ...; collects the replies. */
static enum parse bytewise(struct socks *s, const char *buf, size_t len, struct strbuf *replies)
{
	enum parse p = PARSE_MORE;

	for (size_t n = 1; n <= len && p == PARSE_MORE; n++) {
		p = socks_parse(s, buf, n);
		strbuf_add(replies, s->reply, s->reply_len);
		s->reply_len = 0;
	}
	return p;
}

static void check(const char *buf, size_t len, enum parse want, const char *replies, size_t n_replies)
{
	CLEANUP_STRBUF struct strbuf got = STRBUF_INIT;
	struct socks whole = {0}, cut = {0};

	assert_int_equal(socks_parse(&whole, buf, len), want);
	assert_int_equal(whole.reply_len, n_replies);
	assert_memory_equal(whole.reply, replies, n_replies);
	assert_int_equal(bytewise(&cut, buf, len, &got), want);
	assert_int_equal(got.len, n_replies);
	assert_memory_equal(got.p, replies, n_replies);
	if (want != PARSE_DONE)
		return;
	assert_string_equal(whole.target.host, cut.target.host);
	assert_int_equal(whole.used, cut.used);
	assert_int_equal(whole.target.port, cut.target.port);
}
#define CHECK(text, want, replies) check((text), sizeof(text) - 1, (want), (replies), sizeof(replies) - 1)

static void test_targets(void **state)
{
	struct socks s = {0};

	(void)state;
	assert_int_equal(socks_parse(&s, NAME_REQUEST "early", sizeof NAME_REQUEST + 4), PARSE_DONE);
	assert_string_equal(s.target.host, "allowed.example");
	assert_int_equal(s.target.port, 443);
	assert_false(s.target.literal);
	assert_int_equal(s.used, sizeof NAME_REQUEST - 1); /* what follows is the tunnel's */
	s = (struct socks){0};
	assert_int_equal(socks_parse(&s, "\5\1\0\5\1\0\4\0\0\0\0\0\0\0\0\0\0\377\377\12\0\0\1\0\120", 25),
			 PARSE_DONE);
	assert_true(s.target.literal && s.target.addr.family == AF_INET); /* v4-mapped is IPv4 */
	assert_string_equal(s.target.host, "10.0.0.1");
	assert_int_equal(s.target.port, 80);
	s = (struct socks){0};
	assert_int_equal(socks_parse(&s,
				     "\5\1\0\5\1\0\3\11"
				     "127.0.0.1\0\120",
				     19),
			 PARSE_DONE);
	assert_true(s.target.literal); /* an address as text is an address */
	s = (struct socks){0};
	assert_int_equal(socks_parse(&s, "\5\1\0\5\1\0\1\1\2\3\4\0\120", 13), PARSE_DONE);
	assert_string_equal(s.target.host, "1.2.3.4");
}

static void test_messages(void **state)
{
	(void)state;
	CHECK(NAME_REQUEST, PARSE_DONE, "\5\0");
	CHECK("\5\2\1\0\5\1\0\3\17ALLOWED.example\1\273", PARSE_DONE, "\5\0"); /* the second of two methods */
	CHECK("\5\1\0\5\1\0\3\17allowed.example\1", PARSE_MORE, "\5\0");
	CHECK("\5\1", PARSE_MORE, "");
	CHECK("\5\1\2", PARSE_BAD, "\5\377");     /* user and password only */
	CHECK("\5\0", PARSE_BAD, "\5\377");       /* no method at all */
	CHECK("\4\1\1\273", PARSE_BAD, "\5\377"); /* not ours */
	CHECK("\5\1\0\4\1", PARSE_BAD, "\5\0\5\1\0\1\0\0\0\0\0\0");
	CHECK("\5\1\0\5\2", PARSE_BAD, "\5\0\5\7\0\1\0\0\0\0\0\0"); /* BIND */
	CHECK("\5\1\0\5\3", PARSE_BAD, "\5\0\5\7\0\1\0\0\0\0\0\0"); /* UDP ASSOCIATE */
	CHECK("\5\1\0\5\1\1", PARSE_BAD, "\5\0\5\1\0\1\0\0\0\0\0\0");
	CHECK("\5\1\0\5\1\0\2", PARSE_BAD, "\5\0\5\10\0\1\0\0\0\0\0\0");
	CHECK("\5\1\0\5\1\0\3\1a\0\0", PARSE_BAD, "\5\0\5\1\0\1\0\0\0\0\0\0");  /* port 0 */
	CHECK("\5\1\0\5\1\0\3\0\1\273", PARSE_BAD, "\5\0\5\1\0\1\0\0\0\0\0\0"); /* no name */
	CHECK("\5\1\0\5\1\0\3\3a\0b\1\273", PARSE_BAD, "\5\0\5\1\0\1\0\0\0\0\0\0");
	CHECK("\5\1\0\5\1\0\3\5[::1]\1\273", PARSE_BAD, "\5\0\5\1\0\1\0\0\0\0\0\0");
	CHECK("\5\1\0\5\1\0\3\4a:80\1\273", PARSE_BAD, "\5\0\5\1\0\1\0\0\0\0\0\0");
}

static void test_first(void **state)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;

	(void)state;
#define FIRST(text) first_bytes(text, sizeof(text) - 1)
	assert_int_equal(FIRST(""), FIRST_MORE);
	assert_int_equal(FIRST("\026\3"), FIRST_TLS);
	assert_int_equal(FIRST("\r\n"), FIRST_MORE);
	assert_int_equal(FIRST("\r\n\r\nGET / HTTP/1.1\r\n"), FIRST_HTTP);
	assert_int_equal(FIRST("\r\n\026\3"), FIRST_RAW);
	assert_int_equal(FIRST("G"), FIRST_MORE);
	assert_int_equal(FIRST("GET / HTTP/1.1"), FIRST_MORE);
	assert_int_equal(FIRST("GET / HTTP/1.1\r\n"), FIRST_HTTP);
	assert_int_equal(FIRST("GET\t/\thttp/1.1\n"), FIRST_HTTP); /* some servers take it */
	assert_int_equal(FIRST("M-SEARCH_ * HTTP/1.1\r\n"), FIRST_HTTP);
	assert_int_equal(FIRST("GET /\r\n"), FIRST_HTTP); /* HTTP/0.9 names nobody, but some servers read on */
	assert_int_equal(FIRST("GET key\r\n"), FIRST_RAW);
	assert_int_equal(FIRST("GETS /\r\n"), FIRST_RAW);
	/* TLS that does not begin with its ClientHello, or with one of SSL 2 */
	assert_int_equal(FIRST("\25"), FIRST_MORE);
	assert_int_equal(FIRST("\25\3"), FIRST_TLS);
	assert_int_equal(FIRST("\25\0"), FIRST_RAW);
	assert_int_equal(FIRST("\200\56"), FIRST_MORE);
	assert_int_equal(FIRST("\200\56\1"), FIRST_MORE);
	assert_int_equal(FIRST("\200\56\1\3\1"), FIRST_TLS);
	assert_int_equal(FIRST("\200\1\0\1"), FIRST_RAW); /* Thrift */
	assert_int_equal(FIRST("\377\375\1\3"), FIRST_RAW); /* Telnet */
	assert_int_equal(FIRST("SSH-2.0-x\r\n"), FIRST_RAW);
	assert_int_equal(FIRST("EHLO me\r\n"), FIRST_RAW);
	assert_int_equal(FIRST("OPTIONS sip:x SIP/2.0\r\n"), FIRST_RAW);
	assert_int_equal(FIRST("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), FIRST_HTTP2);
	assert_int_equal(FIRST("*1\r\n$4\r\nPING\r\n"), FIRST_RAW);
	assert_int_equal(FIRST("\0\0\0\10\4\322\26\57"), FIRST_RAW); /* PostgreSQL asks for TLS */
	assert_int_equal(FIRST("hello"), FIRST_RAW);
	strbuf_adds(&b, "GET /");
	while (b.len <= REQUEST_LINE_MAX)
		strbuf_addc(&b, 'a');
	assert_int_equal(first_bytes(b.p, b.len), FIRST_HTTP); /* never passed on unread */
}

static void test_line(void **state)
{
	static const struct {
		const char *text;
		enum line want;
	} cases[] = {
		{"get / HTTP/1.1\r\n", LINE_HTTP},
		{"\r\nGet\t/\thttp/1.0\n", LINE_HTTP},
		{"g.t / HHTTP/", LINE_HTTP},
		{"get /\r\nHTTP/1.1", LINE_OVER},
		{"early", LINE_MORE},
		{"get / HTTP", LINE_MORE},
		{"SSH-2.0-x HTTP\r\n", LINE_OVER},
		{"SSH-2.0-x\r\n", LINE_OVER},
		{"{\"a\": 1}", LINE_OVER},
		/* as str.split() of Python, and others, separate words */
		{"GET\v/\fHTTP/1.1\r\n", LINE_HTTP},
		{"\v\240GET / HTTP/1.1\r\n", LINE_HTTP},
		{"get\205/\240HTTP/1.1\r\n", LINE_HTTP},
		{"get\r/ HTTP/1.1\r\n", LINE_HTTP},
		{"get\nHTTP/1.1\r\n", LINE_OVER},
		{"\1\2", LINE_OVER},
	};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(cases); i++) {
		struct line_watch whole = {0}, pieces = {0};
		enum line r = LINE_MORE;

		assert_int_equal(first_line(&whole, cases[i].text, strlen(cases[i].text)), cases[i].want);
		for (const char *p = cases[i].text; *p && r == LINE_MORE; p++)
			r = first_line(&pieces, p, 1);
		assert_int_equal(r, cases[i].want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_targets),
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_first),
		cmocka_unit_test(test_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
