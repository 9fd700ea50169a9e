/* Policy DNS without sockets: what is said to which message, byte by byte. */
#include "proxy/dnsanswer.h"
#include "base/cleanup.h"
#include "base/str.h"
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { TYPE_TXT = 16, TYPE_MX = 15, TYPE_SRV = 33, TYPE_CNAME = 5 };

struct world {
	struct policy *policy;
	struct names *names;
	struct dns_denial denial;
	uint8_t out[DNS_ANSWER_MAX];
	size_t len;
};

static int set_up(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);

	w->policy = policy_create(EGRESS_HOSTS);
	w->names = names_open(-1, NULL);
	assert_int_equal(policy_add_allow(w->policy, "x.com", "notes.app:3", NULL), 0);
	assert_int_equal(policy_add_allow(w->policy, "*.wild.example", "notes.app:4", NULL), 0);
	assert_int_equal(policy_add_allow(w->policy, "git.example:22", "notes.app:5", NULL), 0);
	assert_int_equal(policy_add_deny(w->policy, "no.wild.example", "notes.app:6", NULL), 0);
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	policy_destroy(w->policy);
	names_close(w->names);
	free(w);
	return 0;
}

static size_t ask_raw(struct world *w, const void *msg, size_t len, bool udp)
{
	const struct dns_view view = {.app = "notes", .policy = w->policy, .names = w->names};
	CLEANUP_FREE uint8_t *exact =
		xmalloc(len + 1); /* of exactly its size, so that a sanitizer sees a byte too far */

	memcpy(exact, msg, len);
	memset(w->out, 0xaa, sizeof w->out);
	w->len = dns_answer(&view, exact, len, udp, w->out, &w->denial);
	return w->len;
}

static void put16(struct strbuf *b, unsigned v)
{
	strbuf_addc(b, (char)(v >> 8));
	strbuf_addc(b, (char)v);
}

static void put_name(struct strbuf *b, const char *name)
{
	while (*name) {
		size_t n = strcspn(name, ".");

		strbuf_addc(b, (char)n);
		strbuf_add(b, name, n);
		name += n + (name[n] == '.');
	}
	strbuf_addc(b, 0);
}

static void put_query(struct strbuf *b, unsigned flags, const char *name, unsigned type, unsigned additional)
{
	put16(b, 0x1234);
	put16(b, flags);
	put16(b, 1);
	put16(b, 0);
	put16(b, 0);
	put16(b, additional);
	put_name(b, name);
	put16(b, type);
	put16(b, 1);
}

static void put_opt(struct strbuf *b, unsigned size, unsigned version, const void *options, size_t len)
{
	strbuf_addc(b, 0);
	put16(b, DNS_TYPE_OPT);
	put16(b, size);
	put16(b, version);
	put16(b, 0x8000); /* DO */
	put16(b, (unsigned)len);
	strbuf_add(b, options, len);
}

/* rcode, with the upper bits of an OPT; -1: no answer */
static int rcode(const struct world *w)
{
	return w->len ? w->out[3] & 15 : -1;
}

static unsigned answers(const struct world *w)
{
	return (unsigned)(w->out[6] << 8 | w->out[7]);
}

static int ask(struct world *w, const char *name, unsigned type)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;

	put_query(&b, 0x0100, name, type, 0);
	ask_raw(w, b.p, b.len, true);
	assert_int_equal(w->out[0] << 8 | w->out[1], 0x1234);
	assert_int_equal(w->out[2], 0x81);        /* an answer, RD as asked */
	assert_int_equal(w->out[3] & 0xf0, 0x80); /* RA */
	assert_memory_equal(w->out + 12, b.p + 12, b.len - 12);
	return rcode(w);
}

static int ask_edns(struct world *w, const char *name, unsigned type, unsigned size)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;

	put_query(&b, 0x0100, name, type, 1);
	put_opt(&b, size, 0, "", 0);
	ask_raw(w, b.p, b.len, true);
	return rcode(w);
}

static struct in_addr address(const struct world *w)
{
	struct in_addr a;

	assert_int_equal(answers(w), 1);
	memcpy(&a, w->out + w->len - 4, 4);
	return a;
}

static void test_allowed(void **state)
{
	struct world *w = *state;
	static const unsigned empty[] = {DNS_TYPE_AAAA, DNS_TYPE_HTTPS, DNS_TYPE_SVCB, DNS_TYPE_SOA, TYPE_TXT,
					 TYPE_MX,       TYPE_SRV,       TYPE_CNAME,    DNS_TYPE_PTR, 9999};
	struct in_addr x;

	assert_int_equal(ask(w, "x.com", DNS_TYPE_A), DNS_NOERROR);
	x = address(w);
	assert_string_equal(names_find(w->names, x), "x.com");
	assert_memory_equal(w->out + w->len - 16, "\xc0\x0c\0\1\0\1\0\0\0", 9);
	assert_int_equal(w->out[w->len - 7], NAMES_TTL_S);
	assert_int_equal(ask(w, "x.com", DNS_TYPE_A), DNS_NOERROR);
	assert_int_equal(address(w).s_addr, x.s_addr);
	for (size_t i = 0; i < ELEMENTS(empty); i++) {
		assert_int_equal(ask(w, "x.com", empty[i]), DNS_NOERROR);
		assert_int_equal(answers(w), 0);
		assert_false(w->denial.denied);
	}
	assert_int_equal(ask(w, "wild.example", DNS_TYPE_A), DNS_NOERROR);
	assert_int_equal(ask(w, "a.b.wild.example", DNS_TYPE_A), DNS_NOERROR);
	assert_int_equal(ask(w, "git.example", DNS_TYPE_A),
			 DNS_NOERROR); /* at one port, and not a usual one */
	assert_false(w->denial.denied);
}

/* No address for a type that gives none: a name is put into the map when its address is asked for. */
static void test_any(void **state)
{
	struct world *w = *state;

	assert_int_equal(ask(w, "x.com", DNS_TYPE_ANY), DNS_NOERROR);
	assert_int_equal(answers(w), 1);
	assert_memory_equal(w->out + w->len - 9, "\7RFC8482", 9);
	assert_int_equal(w->out[w->len - 18], DNS_TYPE_HINFO);
	assert_null(names_find(w->names, (struct in_addr){htonl(0xc6120100)}));
}

static void test_denied(void **state)
{
	struct world *w = *state;
	static const char *const names[] = {"evil.test",
					    "xx.com",
					    "com",
					    "notx.com",
					    "x.com.evil.test",
					    "no.wild.example",
					    "metadata.google.internal",
					    "host.docker.internal",
					    "printer.local",
					    "localhost.localdomain",
					    "x.com.lan"};
	static const unsigned types[] = {DNS_TYPE_A, DNS_TYPE_AAAA, DNS_TYPE_HTTPS, TYPE_TXT, DNS_TYPE_ANY};

	for (size_t i = 0; i < ELEMENTS(names); i++)
		for (size_t k = 0; k < ELEMENTS(types); k++) {
			assert_int_equal(ask(w, names[i], types[k]), DNS_NXDOMAIN);
			assert_int_equal(answers(w), 0);
			assert_true(w->denial.denied);
			assert_string_equal(w->denial.host, names[i]);
			assert_true(w->denial.verdict.rule[0]);
		}
	assert_int_equal(ask(w, "evil.test", DNS_TYPE_A), DNS_NXDOMAIN);
	assert_string_equal(w->denial.verdict.hint, "Allow=evil.test");
	assert_int_equal(ask(w, "no.wild.example", DNS_TYPE_A), DNS_NXDOMAIN);
	assert_string_equal(w->denial.verdict.rule, "notes.app:6 Deny=no.wild.example");
}

static void test_case(void **state)
{
	struct world *w = *state;
	struct in_addr x;

	assert_int_equal(ask(w, "x.com", DNS_TYPE_A), DNS_NOERROR);
	x = address(w);
	assert_int_equal(ask(w, "X.cOM", DNS_TYPE_A), DNS_NOERROR); /* ask() compares the echo */
	assert_int_equal(address(w).s_addr, x.s_addr);
	assert_int_equal(ask(w, "EVIL.test", DNS_TYPE_A), DNS_NXDOMAIN);
	assert_string_equal(w->denial.host, "evil.test");
}

static void test_local(void **state)
{
	struct world *w = *state;

	assert_int_equal(ask(w, "localhost", DNS_TYPE_A), DNS_NOERROR);
	assert_int_equal(address(w).s_addr, htonl(INADDR_LOOPBACK));
	assert_int_equal(ask(w, "a.LOCALHOST", DNS_TYPE_AAAA), DNS_NOERROR);
	assert_int_equal(answers(w), 1);
	assert_memory_equal(w->out + w->len - 16, &in6addr_loopback, 16);
	assert_int_equal(ask(w, "localhost", TYPE_TXT), DNS_NOERROR);
	assert_int_equal(answers(w), 0);
	assert_int_equal(ask(w, "localhost", DNS_TYPE_ANY), DNS_NOERROR);
	assert_int_equal(answers(w), 2);
	assert_int_equal(ask(w, "", 2), DNS_NOERROR); /* the root's name servers */
	assert_int_equal(answers(w), 0);
	assert_false(w->denial.denied);
}

static void assert_ptr(struct world *w, const char *reverse, const char *name)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;

	assert_int_equal(ask(w, reverse, DNS_TYPE_PTR), name ? DNS_NOERROR : DNS_NXDOMAIN);
	assert_int_equal(answers(w), name ? 1 : 0);
	assert_false(w->denial.denied);
	if (!name)
		return;
	put_name(&b, name);
	assert_memory_equal(w->out + w->len - b.len, b.p, b.len);
	assert_int_equal(ask(w, reverse, TYPE_TXT), DNS_NOERROR);
	assert_int_equal(answers(w), 0);
}

static void test_reverse(void **state)
{
	struct world *w = *state;

	(void)ask(w, "x.com", DNS_TYPE_A);
	assert_ptr(w, "0.1.18.198.in-addr.arpa", "x.com");
	assert_ptr(w, "1.0.0.127.in-addr.arpa", "localhost");
	assert_ptr(w, "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa",
		   "localhost");
	assert_ptr(w, "1.1.18.198.in-addr.arpa", NULL);
	assert_ptr(w, "8.8.8.8.in-addr.arpa", NULL);
	assert_ptr(w, "9.0.1.18.198.in-addr.arpa", NULL);
	assert_ptr(w, "1.18.198.in-addr.arpa", NULL);
	assert_ptr(w, "00.1.18.198.in-addr.arpa", NULL);
	assert_ptr(w, "256.1.18.198.in-addr.arpa", NULL);
	assert_ptr(w, "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa", NULL);
	assert_ptr(w, "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.10.ip6.arpa", NULL);
	assert_ptr(w, "g.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa", NULL);
	assert_ptr(w, "8.8.8.8.8.8.8.8.8.8.8.8.8.8.8.8.8.8.8.8.8.8.8.8.8.8.8.8.8.8.8.2.ip6.arpa", NULL);
}

/* The OPT at the end of an answer, and its Extended DNS Error. */
static void test_edns(void **state)
{
	struct world *w = *state;
	static const char why[] = "sbxsv: notes may not reach evil.test: no Allow= line names this host";
	const uint8_t *opt;

	assert_int_equal(ask_edns(w, "x.com", DNS_TYPE_A, 4096), DNS_NOERROR);
	assert_int_equal(w->out[11], 1);
	assert_memory_equal(w->out + w->len - 11, "\0\0\x29\x04\xd0\0\0\x80\0\0\0", 11);

	assert_int_equal(ask_edns(w, "evil.test", DNS_TYPE_A, 4096), DNS_NXDOMAIN);
	opt = w->out + 12 + 11 + 4;
	assert_memory_equal(opt, "\0\0\x29\x04\xd0\0\0\x80\0", 9);
	assert_int_equal(opt[9] << 8 | opt[10], (long)(w->out + w->len - opt) - 11);
	assert_memory_equal(opt + 11, "\0\x0f", 2); /* Extended DNS Error */
	assert_memory_equal(opt + 15, "\0\x0f", 2); /* Blocked */
	assert_memory_equal(opt + 17, why, strlen(why));
	assert_non_null(memmem(w->out, w->len, "Allow=evil.test", 15));

	assert_int_equal(ask(w, "evil.test", DNS_TYPE_A), DNS_NXDOMAIN); /* no EDNS, none back */
	assert_int_equal(w->out[11], 0);
	assert_int_equal(w->len, 12 + 11 + 4);
}

/* A long name: the text is cut to what the asker takes, and never the answer to more than that. */
static void test_sizes(void **state)
{
	struct world *w = *state;
	char name[HOST_MAX];

	memset(name, 'a', sizeof name);
	for (size_t i = 50; i < sizeof name; i += 51)
		name[i] = '.';
	name[253] = 0;
	memcpy(name + 253 - 5, ".test", 5);
	for (unsigned size = 0; size < 2000; size += 100) {
		assert_int_equal(ask_edns(w, name, DNS_TYPE_A, size), DNS_NXDOMAIN);
		assert_true(w->len <= (size < 512 ? 512 : size));
		assert_string_equal(w->denial.host, name);
		assert_int_equal(w->out[2] & 2, 0);
	}
	memcpy(name + 253 - 13, ".wild.example", 13);
	assert_int_equal(ask(w, name, DNS_TYPE_A), DNS_NOERROR);
	assert_string_equal(names_find(w->names, address(w)), name);
	assert_true(w->len <= 512);
}

static void expect_raw(struct world *w, const char *what, const char *msg, size_t len, int want)
{
	ask_raw(w, msg, len, true);
	if (rcode(w) != want)
		fail_msg("%s: rcode %d, not %d", what, rcode(w), want);
	if (w->len) {
		assert_true(w->len >= 12);
		assert_int_equal(answers(w), 0);
		assert_true(w->out[2] & 0x80);
	}
}
#define RAW(what, msg, want) expect_raw(w, what, msg, sizeof(msg) - 1, want)

#define HEAD(flags, counts) "\x12\x34" flags counts
#define ONE                 "\0\1\0\0\0\0\0\0"
#define X_COM               "\1x\3com\0"
#define A_IN                "\0\1\0\1"

static void test_malformed(void **state)
{
	struct world *w = *state;

	RAW("nothing", "", -1);
	RAW("eleven bytes", "\x12\x34\1\0\0\1\0\0\0\0\0", -1);
	RAW("an answer", HEAD("\x81\x80", ONE) X_COM A_IN, -1);
	RAW("an answer with another opcode", HEAD("\xa0\0", ONE) X_COM A_IN, -1);
	RAW("header only", HEAD("\1\0", ONE), DNS_FORMERR);
	RAW("no question", HEAD("\1\0", "\0\0\0\0\0\0\0\0"), DNS_FORMERR);
	RAW("two questions", HEAD("\1\0", "\0\2\0\0\0\0\0\0") X_COM A_IN X_COM A_IN, DNS_FORMERR);
	RAW("an answer record",
	    HEAD("\1\0", "\0\1\0\1\0\0\0\0") X_COM A_IN "\xc0\x0c" A_IN "\0\0\0\1\0\4\1\2\3\4", DNS_FORMERR);
	RAW("authority", HEAD("\1\0", "\0\1\0\0\0\1\0\0") X_COM A_IN, DNS_FORMERR);
	RAW("a pointer to itself", HEAD("\1\0", ONE) "\xc0\x0c" A_IN, DNS_FORMERR);
	RAW("a pointer in the name", HEAD("\1\0", ONE) "\1x\xc0\x0c" A_IN, DNS_FORMERR);
	RAW("an extended label", HEAD("\1\0", ONE) "\x41\1x" A_IN, DNS_FORMERR);
	RAW("another one", HEAD("\1\0", ONE) "\x81\1x" A_IN, DNS_FORMERR);
	RAW("no end of the name", HEAD("\1\0", ONE) "\1x\3com", DNS_FORMERR);
	RAW("a label too far",
	    HEAD("\1\0", ONE) "\1x\x3f"
			      "com\0" A_IN,
	    DNS_FORMERR);
	RAW("no class", HEAD("\1\0", ONE) X_COM "\0\1", DNS_FORMERR);
	RAW("bytes after it", HEAD("\1\0", ONE) X_COM A_IN "\0", DNS_FORMERR);
	RAW("TC in a question", HEAD("\3\0", ONE) X_COM A_IN, DNS_FORMERR);
	RAW("OPT as a question", HEAD("\1\0", ONE) X_COM "\0\x29\0\1", DNS_FORMERR);
	RAW("type 0", HEAD("\1\0", ONE) X_COM "\0\0\0\1", DNS_FORMERR);
	RAW("STATUS", HEAD("\x11\0", ONE) X_COM A_IN, DNS_NOTIMP);
	RAW("UPDATE, cut", HEAD("\x28\0", ONE) "\1", DNS_NOTIMP);
	RAW("CHAOS", HEAD("\1\0", ONE) "\7version\4bind\0\0\x10\0\3", DNS_REFUSED);
	RAW("class ANY", HEAD("\1\0", ONE) X_COM "\0\1\0\xff", DNS_REFUSED);
}

#define WITH_OPT "\0\1\0\0\0\0\0\1"
static void test_malformed_edns(void **state)
{
	struct world *w = *state;
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;

	RAW("no OPT where one is counted", HEAD("\1\0", WITH_OPT) X_COM A_IN, DNS_FORMERR);
	RAW("half an OPT", HEAD("\1\0", WITH_OPT) X_COM A_IN "\0\0\x29\4\xd0\0\0\0\0\0", DNS_FORMERR);
	RAW("OPT with a name", HEAD("\1\0", WITH_OPT) X_COM A_IN "\1x\0\0\x29\4\xd0\0\0\0\0\0\0",
	    DNS_FORMERR);
	RAW("another record", HEAD("\1\0", WITH_OPT) X_COM A_IN "\0" A_IN "\0\0\0\1\0\4\1\2\3\4",
	    DNS_FORMERR);
	RAW("rdlength too far", HEAD("\1\0", WITH_OPT) X_COM A_IN "\0\0\x29\4\xd0\0\0\0\0\0\1", DNS_FORMERR);
	RAW("option too far", HEAD("\1\0", WITH_OPT) X_COM A_IN "\0\0\x29\4\xd0\0\0\0\0\0\4\0\x0a\0\1",
	    DNS_FORMERR);
	RAW("half an option", HEAD("\1\0", WITH_OPT) X_COM A_IN "\0\0\x29\4\xd0\0\0\0\0\0\3\0\x0a\0",
	    DNS_FORMERR);
	RAW("two OPT",
	    HEAD("\1\0", "\0\1\0\0\0\0\0\2") X_COM A_IN
	    "\0\0\x29\4\xd0\0\0\0\0\0\0\0\0\x29\4\xd0\0\0\0\0\0\0",
	    DNS_FORMERR);
	/* version 1: BADVERS is 16, its low bits 0 */
	RAW("version 1", HEAD("\1\0", WITH_OPT) X_COM A_IN "\0\0\x29\4\xd0\0\1\0\0\0\0", 0);
	assert_memory_equal(w->out + w->len - 11, "\0\0\x29\4\xd0\1\0\0\0\0\0", 11);

	put_query(&b, 0x0100, "x.com", DNS_TYPE_A, 1); /* a cookie and padding are skipped */
	put_opt(&b, 4096, 0,
		"\0\x0a\0\x08"
		"01234567\0\x0c\0\3\0\0\0",
		19);
	ask_raw(w, b.p, b.len, true);
	assert_int_equal(rcode(w), DNS_NOERROR);
	assert_int_equal(answers(w), 1);
}

static void test_too_long(void **state)
{
	struct world *w = *state;
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;

	put_query(&b, 0x0100, "x.com", DNS_TYPE_A, 0);
	while (b.len <= DNS_QUERY_MAX)
		strbuf_addc(&b, 0);
	assert_int_equal(ask_raw(w, b.p, b.len, true), 12);
	assert_int_equal(rcode(w), DNS_FORMERR);
}

/* 255 bytes of name are the most; a label of 63 too. */
static void test_name_limits(void **state)
{
	struct world *w = *state;

	for (unsigned total = 240; total < 262; total++) {
		CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
		unsigned left = total - 1;

		put16(&b, 1);
		strbuf_add(&b, "\1\0" ONE, 10);
		while (left) {
			unsigned n = left > 64 ? 63 : left - 1;

			if (left - n - 1 == 1)
				n--;
			strbuf_addc(&b, (char)n);
			for (unsigned i = 0; i < n; i++)
				strbuf_addc(&b, 'a');
			left -= n + 1;
		}
		strbuf_add(&b, "\0" A_IN, 5);
		assert_int_equal(b.len, 12 + total + 4);
		ask_raw(w, b.p, b.len, true);
		assert_int_equal(rcode(w), total <= 255 ? DNS_NXDOMAIN : DNS_FORMERR);
	}
}

/* Labels whose bytes are of no host name are echoed and refused; nothing in them is decoded or cut. */
static void test_bytes(void **state)
{
	struct world *w = *state;
	char msg[] = HEAD("\1\0", ONE) "\3x\0y\3com\0" A_IN;

	for (unsigned c = 0; c < 256; c++) {
		bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			    c == '-' || c == '_';

		msg[14] = (char)c;
		ask_raw(w, msg, sizeof msg - 1, true);
		assert_int_equal(rcode(w), DNS_NXDOMAIN);
		assert_true(w->denial.denied);
		assert_int_equal(w->denial.host[0] != 0, good);
		assert_memory_equal(w->out + 12, msg + 12, sizeof msg - 13);
	}
	/* "x.com" in one label is not x.com, nor is "x.com\0" */
	RAW("one label", HEAD("\1\0", ONE) "\5x.com\0" A_IN, DNS_NXDOMAIN);
	RAW("a NUL", HEAD("\1\0", ONE) "\1x\4com\0\0" A_IN, DNS_NXDOMAIN);
	RAW("evil, a NUL, then allowed", HEAD("\1\0", ONE) "\5evil\0\1x\3com\0" A_IN, DNS_NXDOMAIN);
	RAW("a number", HEAD("\1\0", ONE) "\0011\0011\0011\0011\0" A_IN, DNS_NXDOMAIN);
	assert_string_equal(w->denial.host, "");
}

static void test_no_policy(void **state)
{
	struct world *w = *state;
	struct policy *kept = TAKE_PTR(w->policy);

	assert_int_equal(ask(w, "x.com", DNS_TYPE_A), DNS_SERVFAIL);
	assert_int_equal(ask(w, "localhost", DNS_TYPE_A), DNS_NOERROR);
	w->policy = kept;
}

static void test_full(void **state)
{
	struct world *w = *state;
	char name[64];

	for (unsigned i = 0; i < NAMES_MAX; i++) {
		(void)snprintf(name, sizeof name, "h%u.wild.example", i);
		assert_int_equal(ask(w, name, DNS_TYPE_A), DNS_NOERROR);
	}
	assert_int_equal(ask_edns(w, "one-more.wild.example", DNS_TYPE_A, 1232), DNS_SERVFAIL);
	assert_false(w->denial.denied);
	assert_non_null(memmem(w->out, w->len, "too many names", 14));
	assert_int_equal(ask(w, "h7.wild.example", DNS_TYPE_A), DNS_NOERROR);
}

static void test_unread(void **state)
{
	uint8_t out[12];
	static const uint8_t query[] = "\x12\x34\1\0garbage that is not looked at";

	(void)state;
	assert_int_equal(dnsmsg_refuse_unread(query, sizeof query, out), 12);
	assert_memory_equal(out, "\x12\x34\x81\x85\0\0\0\0\0\0\0\0", 12);
	assert_int_equal(dnsmsg_refuse_unread(query, 11, out), 0);
	assert_int_equal(dnsmsg_refuse_unread((const uint8_t *)"\0\0\x80\0\0\0\0\0\0\0\0\0", 12, out), 0);
}

#define WORLD(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD(test_allowed),        WORLD(test_any),       WORLD(test_denied),
		WORLD(test_case),           WORLD(test_local),     WORLD(test_reverse),
		WORLD(test_edns),           WORLD(test_sizes),     WORLD(test_malformed),
		WORLD(test_malformed_edns), WORLD(test_too_long),  WORLD(test_name_limits),
		WORLD(test_bytes),          WORLD(test_no_policy), WORLD(test_full),
		WORLD(test_unread),
	};

	return cmocka_run_group_tests_name("dns", tests, NULL, NULL);
}
