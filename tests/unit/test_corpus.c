/*
 * The bypass corpus (tests/corpus/proxy.tsv) against the parsers and the policy, as far as they go without
 * sockets. Prints a table; fails when a row comes out otherwise than the file says, unless
 * tests/corpus/deviations.tsv names the row, the outcome and the reason. A deviation that no longer happens
 * is a failure too.
 *
 * Every row is fed in whole and byte by byte; both must come out the same.
 */
#include "base/str.h"
#include "policy/policy.h"
#include "proxy/first.h"
#include "proxy/request.h"
#include "proxy/sni.h"
#include "proxy/socks_msg.h"
#include <errno.h>
#include <string.h>

#define COLUMNS 6
enum { ID, KIND, BYTES, ALLOWLIST, EXPECTED, REASON };

struct counts {
	const char *kind;
	unsigned rows, agree, deviate, fail, skip;
};
static struct counts counts[] = {{.kind = "http"},        {.kind = "connect-tls"}, {.kind = "addr"},
				 {.kind = "pattern"},     {.kind = "socks5"},      {.kind = "dns"},
				 {.kind = "transparent"}, {.kind = "udp"}};

/* --- reading the file --- */

static int split(char *line, char *cols[], unsigned n)
{
	char *rest = line;

	line[strcspn(line, "\n")] = 0;
	for (unsigned i = 0; i < n; i++)
		if (!(cols[i] = strsep(&rest, "\t")))
			return -1;
	return 0;
}

struct deviation {
	char *id, *got, *reason;
	bool used;
};
static struct deviation *deviations;
static size_t n_deviations, cap_deviations;

static void read_deviations(FILE *f)
{
	CLEANUP_FREE char *line = NULL;
	size_t cap = 0;
	char *cols[3];

	while (getline(&line, &cap, f) > 0) {
		if (line[0] == '#' || split(line, cols, 3) < 0)
			continue;
		VEC_GROW(deviations, n_deviations, cap_deviations);
		deviations[n_deviations++] =
			(struct deviation){xstrdup(cols[0]), xstrdup(cols[1]), xstrdup(cols[2]), 0};
	}
}

static struct deviation *find_deviation(const char *id)
{
	for (size_t i = 0; i < n_deviations; i++)
		if (str_eq(deviations[i].id, id))
			return &deviations[i];
	return NULL;
}

/* One escape or plain byte of the bytes column; moves *p on. */
static char unescape(const char **p)
{
	const char *s = *p;

	*p = s + 1;
	if (*s != '\\')
		return *s;
	*p = s + 2;
	switch (s[1]) {
	case 'r':
		return '\r';
	case 'n':
		return '\n';
	case 't':
		return '\t';
	case '\\':
	case 0:
		*p = s[1] ? s + 2 : s + 1;
		return '\\';
	default:
		*p = s + 4;
		return (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
	}
}

/* <<REP:n:text>> is written out; the other markers are about time and segments, which both feeds cover. */
static void expand(const char *s, struct strbuf *out)
{
	while (*s) {
		if (str_starts(s, "<<REP:")) {
			char *end;
			unsigned long n = strtoul(s + 6, &end, 10);
			const char *text = end + 1, *stop = strstr(text, ">>");

			for (; n > 0; n--)
				for (const char *p = text; p < stop;)
					strbuf_addc(out, unescape(&p));
			s = stop + 2;
		} else if (str_starts(s, "<<")) {
			s = strstr(s, ">>") + 2;
		} else {
			strbuf_addc(out, unescape(&s));
		}
	}
}

static struct policy *make_policy(const char *allowlist)
{
	struct policy *p = policy_create(EGRESS_HOSTS);
	CLEANUP_FREE char *copy = xstrdup(allowlist);
	char *rest = copy, *word;

	while ((word = strsep(&rest, ";")))
		if (policy_add_allow(p, word, NULL, NULL) < 0) {
			policy_destroy(p);
			return NULL;
		}
	return p;
}

/* --- judging --- */

static enum parse feed_request(struct request *r, const char *buf, size_t len, bool bytewise)
{
	enum parse p = PARSE_MORE;

	if (!bytewise)
		return request_parse(r, buf, len);
	for (size_t n = 1; n <= len && p == PARSE_MORE; n++)
		p = request_parse(r, buf, n);
	return p;
}

static enum parse feed_chunks(const char *buf, size_t len, bool bytewise, size_t *ret_used)
{
	CLEANUP_FREE char *copy = xstrndup(buf, len);
	struct chunk c = {0};
	enum parse p = PARSE_MORE;
	size_t at = 0;

	memcpy(copy, buf, len); /* xstrndup stops at a NUL */
	while (p == PARSE_MORE && at < len) {
		size_t used, out;

		p = chunk_filter(&c, copy + at, bytewise ? 1 : len - at, &used, &out);
		at += used;
	}
	*ret_used = at;
	return p;
}

static const char *judge_target(const struct policy *p, const struct request *r, struct verdict *v)
{
	if (r->target.literal)
		policy_decide_addr(p, &r->target.addr, r->target.port, v);
	else
		policy_decide_host(p, r->target.host, r->target.port, v);
	return v->action == VERDICT_ALLOW ? "allow" : "deny";
}

/* Length of the body after the head, or -1 when the bytes refuse the request. */
static long body_length(const struct request *r, const char *body, size_t len, bool bytewise)
{
	size_t used = 0;

	if (r->body == BODY_LENGTH)
		return (long)(r->content_length < len ? r->content_length : len);
	if (r->body == BODY_CHUNKED && feed_chunks(body, len, bytewise, &used) == PARSE_BAD)
		return -1;
	return (long)used;
}

/* Every request of the bytes is judged; the first that is refused is the outcome. */
static const char *judge_http(const struct policy *p, const char *buf, size_t len, bool bytewise)
{
	for (;;) {
		struct request r = {0};
		struct verdict v;
		enum parse parsed = feed_request(&r, buf, len, bytewise);
		const char *outcome;
		long body;

		if (parsed == PARSE_BAD)
			return "bad-request";
		if (parsed == PARSE_MORE)
			return "timeout";
		outcome = judge_target(p, &r, &v);
		if (!str_eq(outcome, "allow") || r.connect)
			return outcome;
		body = body_length(&r, buf + r.head_len, len - r.head_len, bytewise);
		if (body < 0)
			return "bad-request";
		buf += r.head_len + (size_t)body;
		len -= r.head_len + (size_t)body;
		if (len == 0)
			return outcome;
	}
}

static const char *judge_tls(const struct policy *p, const char *buf, size_t len, bool bytewise)
{
	struct request r = {0};
	struct verdict v;
	struct sni s = {0};
	enum sni_result result = SNI_MORE;
	const char *reason = "", *outcome;
	struct request inner = {.origin = true};
	const uint8_t *first;
	size_t n;

	if (feed_request(&r, buf, len, bytewise) != PARSE_DONE)
		return "bad-request";
	outcome = judge_target(p, &r, &v);
	if (!str_eq(outcome, "allow"))
		return outcome;
	first = (const uint8_t *)buf + r.head_len;
	n = len - r.head_len;
	for (size_t i = bytewise ? 1 : n; i <= n && result == SNI_MORE; i++)
		result = sni_parse(&s, first, i);
	if (!sni_judge(p, &v, r.target.host, r.target.port, &s, result, &reason))
		return "deny";
	if (policy_sni_match(p) && first_bytes((const char *)first, n) == FIRST_HTTP) {
		inner.target = r.target;
		return request_parse(&inner, (const char *)first, n) == PARSE_BAD ? "deny" : "allow";
	}
	return "allow";
}

/* A command that exists, but not here, is refused like a target. */
static const char *judge_socks(const struct policy *p, const char *buf, size_t len, bool bytewise)
{
	struct request r = {0};
	struct socks s = {0};
	struct verdict v;
	enum parse result = PARSE_MORE;
	uint8_t command;

	for (size_t i = bytewise ? 1 : len; i <= len && result == PARSE_MORE; i++)
		result = socks_parse(&s, buf, i);
	command = result == PARSE_BAD && s.reply_len >= SOCKS_REPLY_LEN && len > s.used + 1
			  ? (uint8_t)buf[s.used + 1]
			  : 0;
	if (command == 2 || command == 3 || command == 0xf0) /* BIND, UDP ASSOCIATE, RESOLVE of Tor */
		return "deny";
	if (result != PARSE_DONE)
		return result == PARSE_MORE && len < 2 ? "timeout" : "bad-request";
	r.target = s.target;
	return judge_target(p, &r, &v);
}

static const char *judge_addr(const char *text)
{
	struct addr a;

	if (host_parse_addr(text, strlen(text), &a) < 0)
		return "bad-request";
	return addr_classify(&a) == ADDR_PUBLIC ? "allow" : "deny";
}

static const char *judge_pattern(const char *text)
{
	if (str_eq(text, "<20000 entries>")) {
		struct policy *p = policy_create(EGRESS_HOSTS);
		int bad = 0;

		for (unsigned i = 0; i < 20000; i++) {
			CLEANUP_FREE char *rule = xasprintf("*.h%u.example", i);

			bad |= policy_add_allow(p, rule, NULL, NULL);
		}
		policy_destroy(p);
		return bad ? "config-error" : "accept";
	}
	return policy_check_host_rule(text, NULL) == 0 ? "accept" : "config-error";
}

static const char *judge(char *cols[], bool bytewise)
{
	CLEANUP_STRBUF struct strbuf bytes = STRBUF_INIT;
	struct policy *p;
	const char *outcome;

	expand(cols[BYTES], &bytes);
	if (str_eq(cols[KIND], "addr"))
		return judge_addr(cols[BYTES]);
	if (str_eq(cols[KIND], "pattern"))
		return judge_pattern(bytes.p ? bytes.p : "");
	p = make_policy(cols[ALLOWLIST]);
	if (!p)
		return "config-error";
	if (str_eq(cols[KIND], "socks5"))
		outcome = judge_socks(p, bytes.p, bytes.len, bytewise);
	else if (str_eq(cols[KIND], "http"))
		outcome = judge_http(p, bytes.p, bytes.len, bytewise);
	else
		outcome = judge_tls(p, bytes.p, bytes.len, bytewise);
	policy_destroy(p);
	return outcome;
}

/* --- the table --- */

static void take_row(char *cols[])
{
	struct counts *c = NULL;
	struct deviation *d = find_deviation(cols[ID]);
	const char *got, *other;

	for (size_t i = 0; i < ELEMENTS(counts); i++)
		if (str_eq(counts[i].kind, cols[KIND]))
			c = &counts[i];
	if (!c)
		return;
	c->rows++;
	if (c >= counts + 5) { /* kinds that need sockets: tests/it/test_corpus_live.py */
		c->skip++;
		if (d)
			d->used = true;
		return;
	}
	got = judge(cols, false);
	other = judge(cols, true);
	if (!str_eq(got, other)) {
		c->fail++;
		printf("FAIL %s: whole %s, byte by byte %s\n", cols[ID], got, other);
	} else if (d && str_eq(d->got, got) && !str_eq(got, cols[EXPECTED])) {
		d->used = true;
		c->deviate++;
		printf("deviates %-22s corpus %s, here %s: %s\n", cols[ID], cols[EXPECTED], got, d->reason);
	} else if (str_eq(got, cols[EXPECTED])) {
		c->agree++;
	} else {
		c->fail++;
		printf("FAIL %s: got %s, want %s (%s)\n", cols[ID], got, cols[EXPECTED], cols[REASON]);
	}
}

static int print_table(void)
{
	unsigned failed = 0;

	for (size_t i = 0; i < n_deviations; i++)
		if (!deviations[i].used) {
			printf("FAIL %s: listed as a deviation, but is none\n", deviations[i].id);
			failed++;
		}
	printf("\n%-12s %5s %6s %8s %5s %8s\n", "kind", "rows", "agree", "deviate", "fail", "skipped");
	for (size_t i = 0; i < ELEMENTS(counts); i++) {
		const struct counts *c = &counts[i];

		printf("%-12s %5u %6u %8u %5u %8u%s\n", c->kind, c->rows, c->agree, c->deviate, c->fail,
		       c->skip, c->skip ? "  (what needs sockets: tests/it)" : "");
		failed += c->fail;
	}
	return failed == 0 && counts[0].rows > 0 ? 0 : 1;
}

static FILE *open_corpus(const char *name)
{
	const char *srcdir = getenv("srcdir");
	CLEANUP_FREE char *path = xasprintf("%s/tests/corpus/%s", srcdir ? srcdir : ".", name);
	FILE *f = fopen(path, "re");

	if (!f) {
		fprintf(stderr, "%s: %s (srcdir must name the source tree)\n", path, strerror(errno));
		exit(1);
	}
	return f;
}

int main(void)
{
	CLEANUP_FILE FILE *rows = open_corpus("proxy.tsv"), *known = open_corpus("deviations.tsv");
	CLEANUP_FREE char *line = NULL;
	char *cols[COLUMNS];
	size_t cap = 0;
	int status;

	read_deviations(known);
	while (getline(&line, &cap, rows) > 0)
		if (split(line, cols, COLUMNS) == 0)
			take_row(cols);
	status = print_table();
	for (size_t i = 0; i < n_deviations; i++) {
		free(deviations[i].id);
		free(deviations[i].got);
		free(deviations[i].reason);
	}
	free(deviations);
	return status;
}
