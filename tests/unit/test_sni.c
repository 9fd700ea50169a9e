/* The ClientHello reader: hellos built here, cut into records and segments of every size, and damaged. */
#include "proxy/sni.h"
#include "base/str.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void put16(struct strbuf *b, size_t v)
{
	strbuf_addc(b, (char)(v >> 8));
	strbuf_addc(b, (char)v);
}

static void put_ext(struct strbuf *b, unsigned type, const void *data, size_t len)
{
	put16(b, type);
	put16(b, len);
	strbuf_add(b, data, len);
}

static void put_name(struct strbuf *b, const char *name, size_t len)
{
	CLEANUP_STRBUF struct strbuf ext = STRBUF_INIT;

	put16(&ext, len + 3);
	strbuf_addc(&ext, 0);
	put16(&ext, len);
	strbuf_add(&ext, name, len);
	put_ext(b, 0, ext.p, ext.len);
}

/* The handshake message around the given extensions; NULL: no extensions field at all. */
static void put_hello(struct strbuf *b, const struct strbuf *exts)
{
	CLEANUP_STRBUF struct strbuf body = STRBUF_INIT;

	strbuf_add(&body, "\x03\x03", 2);
	for (int i = 0; i < 32; i++)
		strbuf_addc(&body, (char)i);
	strbuf_add(&body, "\x00", 1);                     /* session id */
	strbuf_add(&body, "\x00\x02\x13\x01\x01\x00", 6); /* one cipher, null compression */
	if (exts) {
		put16(&body, exts->len);
		strbuf_add(&body, exts->p, exts->len);
	}
	strbuf_addc(b, 1);
	strbuf_addc(b, (char)(body.len >> 16));
	put16(b, body.len);
	strbuf_add(b, body.p, body.len);
}

static void put_records(struct strbuf *b, const struct strbuf *hs, size_t record)
{
	for (size_t at = 0; at < hs->len; at += record) {
		size_t n = hs->len - at < record ? hs->len - at : record;

		strbuf_add(b, "\x16\x03\x01", 3);
		put16(b, n);
		strbuf_add(b, hs->p + at, n);
	}
}

/* Whole and byte by byte must agree. The bytes are copied to an exact size for the sanitizer. */
static enum sni_result run(const void *bytes, size_t len, struct sni *s)
{
	uint8_t *copy = xmalloc(len);
	struct sni bytewise = {0};
	enum sni_result whole, r = SNI_MORE;

	memcpy(copy, bytes, len);
	memset(s, 0, sizeof *s);
	whole = sni_parse(s, copy, len);
	for (size_t n = 0; n <= len && r == SNI_MORE; n++) {
		uint8_t *part = xmalloc(n);

		memcpy(part, bytes, n);
		r = sni_parse(&bytewise, part, n);
		free(part);
	}
	free(copy);
	assert_int_equal(whole, r);
	assert_string_equal(s->host, bytewise.host);
	return whole;
}

static enum sni_result run_exts(const struct strbuf *exts, struct sni *s)
{
	CLEANUP_STRBUF struct strbuf hs = STRBUF_INIT, wire = STRBUF_INIT;

	put_hello(&hs, exts);
	put_records(&wire, &hs, 16384);
	return run(wire.p, wire.len, s);
}

static void test_names(void **state)
{
	static const struct {
		const char *name, *want; /* want NULL: refused */
	} rows[] = {
		{"x.com", "x.com"}, {"API.X.Com", "api.x.com"}, {"x.com.", "x.com"},     {"", NULL},
		{".", NULL},        {"1.2.3.4", NULL},          {"::1", NULL},           {"x.com:443", NULL},
		{"x com", NULL},    {"x.com ", NULL},           {"b\303\274.com", NULL}, {"127.1", NULL},
		{"[::1]", NULL},
	};
	struct sni s;

	(void)state;
	for (size_t i = 0; i < ELEMENTS(rows); i++) {
		CLEANUP_STRBUF struct strbuf exts = STRBUF_INIT;
		enum sni_result r;

		put_ext(&exts, 10, "\0\2\0\x1d", 4);
		put_name(&exts, rows[i].name, strlen(rows[i].name));
		put_ext(&exts, 0x0a0a, "", 0);
		r = run_exts(&exts, &s);
		assert_int_equal(r, rows[i].want ? SNI_OK : SNI_BAD);
		assert_string_equal(s.host, rows[i].want ? rows[i].want : "");
		assert_false(s.ech);
	}
}

static void test_nul_and_long(void **state)
{
	CLEANUP_STRBUF struct strbuf exts = STRBUF_INIT, lng = STRBUF_INIT;
	char name[300];
	struct sni s;

	(void)state;
	put_name(&exts, "x.com\0.y.com", 12);
	assert_int_equal(run_exts(&exts, &s), SNI_BAD);
	memset(name, 'a', sizeof name);
	put_name(&lng, name, sizeof name);
	assert_int_equal(run_exts(&lng, &s), SNI_BAD);
}

static void test_ambiguous(void **state)
{
	static const struct {
		const char *ext;
		size_t len;
	} bad[] = {
		{"", 0},
		{"\0", 1},
		{"\0\0", 2},
		{"\0\4\0\0\1a\0\4\0\0\1b", 12},
		{"\0\010\0\0\1a\0\0\1b", 10}, /* two names */
		{"\0\4\1\0\1a", 6},           /* type 1 */
		{"\0\5\0\0\1ab", 7},          /* a byte after the name */
		{"\0\4\0\0\2a", 6},           /* name too long for the list */
		{"\0\5\0\0\1a", 6},           /* list longer than the extension */
		{"\0\3\0\0\1a", 6},           /* list shorter than the extension */
		{"\0\3\0\0\0", 5},            /* empty name */
	};
	CLEANUP_STRBUF struct strbuf twice = STRBUF_INIT;
	struct sni s;

	(void)state;
	for (size_t i = 0; i < ELEMENTS(bad); i++) {
		CLEANUP_STRBUF struct strbuf exts = STRBUF_INIT;

		put_ext(&exts, 0, bad[i].ext, bad[i].len);
		put_ext(&exts, 23, "", 0);
		assert_int_equal(run_exts(&exts, &s), SNI_BAD);
		assert_string_equal(s.host, "");
	}
	put_name(&twice, "x.com", 5);
	put_ext(&twice, 23, "", 0);
	put_name(&twice, "x.com", 5);
	assert_int_equal(run_exts(&twice, &s), SNI_BAD);
	assert_string_equal(s.host, "");
}

static void test_absent(void **state)
{
	CLEANUP_STRBUF struct strbuf other = STRBUF_INIT, hs = STRBUF_INIT, wire = STRBUF_INIT;
	struct sni s;

	(void)state;
	put_ext(&other, 10, "\0\2\0\x1d", 4);
	assert_int_equal(run_exts(&other, &s), SNI_OK);
	assert_string_equal(s.host, "");
	put_hello(&hs, NULL);
	put_records(&wire, &hs, 16384);
	assert_int_equal(run(wire.p, wire.len, &s), SNI_OK);
	assert_string_equal(s.host, "");
}

static void test_ech(void **state)
{
	static const unsigned types[] = {0xfe0d, 0xffce};
	struct sni s;

	(void)state;
	for (size_t i = 0; i < ELEMENTS(types); i++) {
		CLEANUP_STRBUF struct strbuf exts = STRBUF_INIT;

		put_ext(&exts, types[i], "\0\0\1\0\1\7", 6);
		put_name(&exts, "x.com", 5);
		assert_int_equal(run_exts(&exts, &s), SNI_OK);
		assert_true(s.ech);
	}
}

static void test_records(void **state)
{
	CLEANUP_STRBUF struct strbuf exts = STRBUF_INIT, hs = STRBUF_INIT;
	char key[1700] = {0};
	struct sni s;

	(void)state;
	put_ext(&exts, 51, key, sizeof key); /* a post-quantum share before the name */
	put_name(&exts, "x.com", 5);
	put_hello(&hs, &exts);
	for (size_t n = 1; n < hs.len; n += n < 40 ? 1 : 131) {
		CLEANUP_STRBUF struct strbuf wire = STRBUF_INIT;

		put_records(&wire, &hs, n);
		strbuf_add(&wire, "\x14\x03\x03\x00\x01\x01", 6); /* what follows is not looked at */
		memset(&s, 0, sizeof s);
		assert_int_equal(sni_parse(&s, (uint8_t *)wire.p, wire.len), SNI_OK);
		assert_string_equal(s.host, "x.com");
	}
}

static void test_record_errors(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		enum sni_result want;
	} rows[] = {
		{"GET / HTTP/1.1", 14, SNI_NOT_TLS},
		{"SSH-2.0-x", 9, SNI_NOT_TLS},
		{"\x15\x03\x01\x00\x02\x01\x5a\x16\x03\x01", 10, SNI_BAD}, /* a warning before it */
		{"\x14\x03\x01\x00\x01\x01", 6, SNI_BAD},
		{"\x80\x2e\x01\x03\x01", 5, SNI_BAD}, /* of SSL 2 */
		{"\x16", 1, SNI_MORE},
		{"\x16\x03\x01", 3, SNI_MORE},
		{"\x16\xfe\xfd", 3, SNI_BAD},
		{"\x16\x01\x01", 3, SNI_BAD},
		{"\x16\x03\x05", 3, SNI_BAD},
		{"\x16\x03\x01\x00\x00", 5, SNI_BAD},
		{"\x16\x03\x01\x40\x01", 5, SNI_BAD},
		{"\x16\x03\x01\x00\x04\x02\x00\x00\x10", 9, SNI_BAD},      /* ServerHello */
		{"\x16\x03\x01\x00\x04\x01\x00\xff\xff", 9, SNI_BAD},      /* longer than the limit */
		{"\x16\x03\x01\x00\x04\x01\x00\x00\x10\x15", 10, SNI_BAD}, /* an alert inside */
		{"\x16\x03\x01\x00\x05\x01\x00\x00\x00\x00", 10, SNI_BAD}, /* bytes after it in its record */
		{"\x16\x03\x01\x00\x04\x01\x00\x00\x00", 9, SNI_BAD},      /* nothing in it */
	};
	struct sni s;

	(void)state;
	for (size_t i = 0; i < ELEMENTS(rows); i++) {
		enum sni_result r = run(rows[i].bytes, rows[i].len, &s);

		if (r != rows[i].want)
			fail_msg("row %zu: %d, want %d", i, r, rows[i].want);
		assert_true(r != SNI_BAD || strlen(s.reason) > 10);
	}
}

/* Every truncation and every changed length byte: never a name out of a damaged hello that claims more than
 * it has. */
static void test_damage(void **state)
{
	CLEANUP_STRBUF struct strbuf exts = STRBUF_INIT, hs = STRBUF_INIT;
	struct sni s;

	(void)state;
	put_name(&exts, "x.com", 5);
	put_hello(&hs, &exts);
	for (size_t cut = 4; cut < hs.len; cut++) { /* shorter, with a length that says so */
		CLEANUP_STRBUF struct strbuf wire = STRBUF_INIT, part = STRBUF_INIT;

		strbuf_add(&part, hs.p, cut);
		part.p[3] = (char)(cut - 4);
		put_records(&wire, &part, 16384);
		/* cut right before the extensions it is a whole hello of old; nowhere else */
		assert_int_equal(run(wire.p, wire.len, &s), cut == 4 + 2 + 32 + 1 + 4 + 2 ? SNI_OK : SNI_BAD);
		assert_string_equal(s.host, "");
	}
	for (size_t at = 4; at < hs.len; at++)
		for (int v = 0; v < 256; v += 5) {
			CLEANUP_STRBUF struct strbuf wire = STRBUF_INIT;
			char old = hs.p[at];

			hs.p[at] = (char)v;
			put_records(&wire, &hs, 7);
			memset(&s, 0, sizeof s);
			if (sni_parse(&s, (uint8_t *)wire.p, wire.len) != SNI_OK)
				assert_string_equal(s.host, "");
			hs.p[at] = old;
		}
}

static void test_too_long(void **state)
{
	CLEANUP_STRBUF struct strbuf exts = STRBUF_INIT, hs = STRBUF_INIT, wire = STRBUF_INIT;
	char key[7000] = {0};
	struct sni s = {0};

	(void)state;
	put_ext(&exts, 51, key, sizeof key);
	put_name(&exts, "x.com", 5);
	put_hello(&hs, &exts);
	put_records(&wire, &hs, 1); /* 42,000 bytes of records */
	assert_int_equal(sni_parse(&s, (uint8_t *)wire.p, SNI_BYTES_MAX - 1), SNI_MORE);
	assert_int_equal(sni_parse(&s, (uint8_t *)wire.p, SNI_BYTES_MAX), SNI_BAD);
}

static void test_judge(void **state)
{
	struct policy *p = policy_create(EGRESS_ALL);
	struct verdict named = {.action = VERDICT_ALLOW},
		       literal = {.action = VERDICT_ALLOW, .literal = true};
	struct sni x = {.host = "x.com"}, none = {0}, ech = {.host = "x.com", .ech = true},
		   bad = {.reason = "bad"};
	const char *why = NULL;

	(void)state;
	assert_true(sni_judge(p, &named, "x.com", 443, &x, SNI_OK, &why));
	assert_true(sni_judge(p, &named, "x.com", 443, &ech, SNI_OK, &why));
	assert_null(why);
	assert_false(sni_judge(p, &named, "y.com", 443, &x, SNI_OK, &why));
	assert_non_null(why);
	assert_false(sni_judge(p, &named, "x.com", 25, &none, SNI_OK, &why));
	assert_false(sni_judge(p, &named, "x.com", 25, &bad, SNI_BAD, &why));
	assert_string_equal(why, "bad");
	assert_false(sni_judge(p, &named, "x.com", 443, &none, SNI_NOT_TLS, &why));
	assert_true(sni_judge(p, &named, "x.com", 22, &none, SNI_NOT_TLS, &why));
	assert_false(sni_judge(p, &named, "x.com", 443, &none, SNI_MORE, &why));
	assert_true(sni_judge(p, &literal, "1.2.3.4", 443, &x, SNI_OK, &why));
	assert_true(sni_judge(p, &literal, "1.2.3.4", 443, &none, SNI_OK, &why));
	policy_set_ech_refuse(p, true);
	assert_false(sni_judge(p, &named, "x.com", 443, &ech, SNI_OK, &why));
	assert_false(sni_judge(p, &literal, "1.2.3.4", 443, &ech, SNI_OK, &why));
	policy_set_sni_match(p, false);
	assert_true(sni_judge(p, &named, "y.com", 443, &x, SNI_OK, &why));
	assert_false(sni_judge(p, &named, "x.com", 443, &ech, SNI_OK, &why));
	policy_set_ech_refuse(p, false);
	assert_true(sni_judge(p, &named, "x.com", 443, &bad, SNI_BAD, &why));
	policy_destroy(p);
}

/* Feeds in pieces of `step`; returns the verdict and how many bytes went before it. */
static enum sni_later feed_after(const char *buf, size_t len, size_t step, bool early, size_t *ret)
{
	struct sni_after a = {.early = early};
	enum sni_later r = LATER_MORE;
	size_t from = 0, passed = 0;

	for (size_t to = step < len ? step : len; r == LATER_MORE; to = len - to < step ? len : to + step) {
		size_t n;

		r = sni_after(&a, (const uint8_t *)buf + from, to - from, &n);
		from += n;
		if (r != LATER_OVER)
			passed = from;
		assert_true(r != LATER_MORE || to - from < SNI_AFTER_HELD);
		if (to == len)
			break;
	}
	*ret = passed;
	return r;
}

static void check_after(const char *buf, size_t len, bool early, enum sni_later want, size_t passed)
{
	for (size_t step = 1; step <= len; step++) {
		size_t n;

		assert_int_equal(feed_after(buf, len, step, early, &n), want);
		assert_true(want == LATER_OVER || n == passed); /* then all of it goes */
	}
}
#define AFTER(text, early, want, passed) check_after((text), sizeof(text) - 1, (early), (want), (passed))

static void test_after(void **state)
{
	(void)state;
	/* a second ClientHello: at once, after change_cipher_spec, cut up into records, after early data */
	AFTER("\26\3\1\0\100\1\0\0\74\3\3", false, LATER_HELLO, 0);
	AFTER("\24\3\3\0\1\1\26\3\3\0\100\1\0\0\74\3\3", false, LATER_HELLO, 6);
	AFTER("\26\3\3\0\1\1", false, LATER_HELLO, 0);
	AFTER("\27\3\3\0\2xy\24\3\3\0\1\1\26\3\3\0\2\1\0", true, LATER_HELLO, 13);
	/* after a warning or a heartbeat; after an empty record, which its parser refuses */
	AFTER("\25\3\3\0\2\1\132\26\3\3\0\100\1\0\0\74\3\3", false, LATER_HELLO, 7);
	AFTER("\30\3\3\0\2xy\24\3\3\0\2\1\1\26\3\3\0\2\1\0", false, LATER_HELLO, 14);
	AFTER("\26\3\3\0\0", false, LATER_HELLO, 0);
	AFTER("\25\3\3\0\2\2\50", false, LATER_MORE, 7);
	/* none can come: application data, another handshake message, an encrypted one, rubbish */
	AFTER("\27\3\3\0\2xy", false, LATER_OVER, 0);
	AFTER("\26\3\3\0\100\20\0\0\74\3\3", false, LATER_OVER, 0);
	AFTER("\24\3\3\0\1\1\26\3\3\0\100\1\44\113\250\341\2", false, LATER_OVER, 0);
	AFTER("hello", false, LATER_OVER, 0);
	AFTER("\26\3\3\0\100\1\0\0", false, LATER_MORE, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_after),        cmocka_unit_test(test_names),
		cmocka_unit_test(test_nul_and_long), cmocka_unit_test(test_ambiguous),
		cmocka_unit_test(test_absent),       cmocka_unit_test(test_ech),
		cmocka_unit_test(test_records),      cmocka_unit_test(test_record_errors),
		cmocka_unit_test(test_damage),       cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_judge),
	};

	return cmocka_run_group_tests_name("sni", tests, NULL, NULL);
}
