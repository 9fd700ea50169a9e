/* The rules of a stand-alone proxy: proxy/policyfile.c. */
#include "proxy/policyfile.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct policy *parse(const char *text, const struct strv *options, struct strv *problems)
{
	return policyfile_parse(text, strlen(text), "r.conf", options, problems);
}

/* The only problem of `text`. */
static void bad(const char *text, const char *want)
{
	CLEANUP_STRV struct strv problems = {0};
	struct policy *p = parse(text, NULL, &problems);

	if (p)
		fail_msg("accepted: %s", text);
	if (problems.n != 1 || !strstr(problems.v[0], want))
		fail_msg("%s: wanted \"%s\", got %zu: %s", text, want, problems.n,
			 problems.n ? problems.v[0] : "");
}

static struct policy *good(const char *text)
{
	CLEANUP_STRV struct strv problems = {0};
	struct policy *p = parse(text, NULL, &problems);

	if (!p)
		fail_msg("%s: %s", text, problems.n ? problems.v[0] : "no reason");
	return p;
}

static void is(const struct policy *p, const char *host, uint16_t port, bool allowed, const char *rule)
{
	struct verdict v;

	policy_decide_host(p, host, port, &v);
	assert_int_equal(v.action == VERDICT_ALLOW, allowed);
	assert_string_equal(v.rule, rule);
}

static void test_good(void **state)
{
	struct policy *p = good("# rules\n; too\n\n[Network]\nAllow=x.com  *.y.com:8000-8100\n"
				"Allow = z.com \nDeny=bad.y.com\nAllowAddress=10.0.0.1:5432\nSniPolicy=off\n"
				"Ech=refuse\nUpstreamProxy=http://u:p%40@proxy.test:3128\nNoProxy=*.y.com\n");
	const struct upstream *u;

	(void)state;
	is(p, "x.com", 443, true, "r.conf:5 Allow=x.com");
	is(p, "a.y.com", 8001, true, "r.conf:5 Allow=*.y.com:8000-8100");
	is(p, "z.com", 80, true, "r.conf:6 Allow=z.com");
	is(p, "bad.y.com", 8001, false, "r.conf:7 Deny=bad.y.com");
	is(p, "w.com", 443, false, "default-deny");
	assert_int_equal(policy_egress(p), EGRESS_HOSTS);
	assert_false(policy_sni_match(p));
	assert_true(policy_ech_refuse(p));
	u = policy_upstream(p, "x.com", NULL, 443);
	assert_string_equal(u->shown, "http://proxy.test:3128");
	assert_null(policy_upstream(p, "a.y.com", NULL, 8001));
	policy_destroy(p);
	p = good("");
	assert_int_equal(policy_egress(p), EGRESS_OFF);
	policy_destroy(p);
	p = good("Egress=all\nConnect=443\nConnect=22,80\nSniPolicy=match\nEch=allow");
	is(p, "x.com", 22, true, "Egress=all");
	policy_destroy(p);
}

/* An empty value forgets what the lines before it said, as in a drop-in. */
static void test_clear(void **state)
{
	struct policy *p = good("Allow=x.com\nAllow=\nAllow=y.com\n");

	(void)state;
	is(p, "x.com", 443, false, "default-deny");
	is(p, "y.com", 443, true, "r.conf:3 Allow=y.com");
	policy_destroy(p);
}

static void test_options(void **state)
{
	CLEANUP_STRV struct strv options = {0}, problems = {0};
	struct policy *p;

	(void)state;
	strv_add(&options, "Allow=y.com");
	strv_add(&options, "Egress=hosts");
	p = parse("Allow=x.com\n", &options, &problems);
	assert_non_null(p);
	is(p, "x.com", 443, true, "r.conf:1 Allow=x.com");
	is(p, "y.com", 443, true, "command line Allow=y.com");
	policy_destroy(p);
	strv_add(&options, "Allow=localhost");
	assert_null(parse("Egress=all\n", &options, &problems));
	assert_int_equal(problems.n, 2);
	assert_string_equal(problems.v[0], "command line: Egress= is set twice (first in r.conf:1)");
	assert_true(str_starts(problems.v[1], "command line: Allow=localhost: "));
}

static void test_bad(void **state)
{
	static const char long_line[9000] = {[0 ... 8998] = 'a'};
	CLEANUP_STRV struct strv problems = {0};

	(void)state;
	bad("Allow=x.com\nAlow=y.com\n", "r.conf:2: Alow= is not a key of [Network]: did you mean Allow=?");
	bad("Wibble=1\n", "r.conf:1: Wibble= is not a key of [Network]");
	bad("Listen=80\n", "r.conf:1: Listen= has no meaning here: give --listen");
	bad("Loopback=80\n", "r.conf:1: Loopback= has no meaning here");
	bad("[App]\nAllow=x.com\n", "r.conf:1: the only section here is [Network]");
	bad("[Network] # x\n", "r.conf:1: the only section here is [Network]");
	bad("Allow\n", "r.conf:1: neither [Network] nor KEY=VALUE");
	bad("Allow: x.com\n", "r.conf:1: neither [Network] nor KEY=VALUE");
	bad("=x\n", "r.conf:1: neither [Network] nor KEY=VALUE");
	bad(" Allow=x.com\n", "r.conf:1: the line begins with a space");
	bad("Allow=x.com\\\n", "r.conf:1: Allow= ends with a backslash");
	bad("Allow=x.com\r\n", "r.conf:1: a control character (a carriage return?)");
	bad("Allow=x.com # why\n", "r.conf:1: Allow=: a comment needs its own line");
	bad("Egress=some\n", "r.conf:1: Egress=some is not one of off, hosts, all");
	bad("Egress=hosts\nEgress=all\n", "r.conf:2: Egress= is set twice (first in r.conf:1)");
	bad("Egress=\n", "r.conf:1: Egress= is empty");
	bad("Egress=off\nAllow=x.com\n", "r.conf:2: Allow= beside Egress=off (r.conf:1)");
	bad("Connect=443\n", "r.conf:1: Connect= needs Egress=all");
	bad("NoProxy=x.com\n", "r.conf:1: NoProxy= needs UpstreamProxy=");
	bad("AllowAddress=127.0.0.1:80\n", "r.conf:1: AllowAddress=127.0.0.1:80: ");
	bad("Allow=*.com\n", "r.conf:1: Allow=*.com: ");
	bad(long_line, "the limit is 8192");
	assert_null(policyfile_parse("Allow=x.com\0\n", 13, "r.conf", NULL, &problems));
	assert_string_equal(problems.v[0], "r.conf:1: the line contains a NUL byte");
}

/* However many there are, and without the password. */
static void test_problems(void **state)
{
	CLEANUP_STRV struct strv problems = {0}, secret = {0};
	CLEANUP_STRBUF struct strbuf text = STRBUF_INIT;

	(void)state;
	for (int i = 0; i < 1000; i++)
		strbuf_adds(&text, "Allow=*\nnonsense\n");
	assert_null(parse(text.p, NULL, &problems));
	assert_int_equal(problems.n, POLICYFILE_PROBLEMS + 1);
	assert_string_equal(problems.v[POLICYFILE_PROBLEMS], "too many errors: the others are not shown");
	assert_null(parse("UpstreamProxy=http://u:hunter2@p:x\nUpstreamProxy http://u:hunter2@p:1\n", NULL,
			  &secret));
	assert_int_equal(secret.n, 2);
	assert_null(strstr(secret.v[0], "hunter2"));
	assert_null(strstr(secret.v[1], "hunter2"));
}

static void read_is(const char *path, mode_t mode, const char *want)
{
	CLEANUP_STRV struct strv problems = {0};
	struct policy *p;

	assert_int_equal(chmod(path, mode), 0);
	p = policyfile_read(path, NULL, &problems);
	if (want) {
		assert_null(p);
		assert_int_equal(problems.n, 1);
		if (!strstr(problems.v[0], want))
			fail_msg("wanted \"%s\", got %s", want, problems.v[0]);
	} else if (!p) {
		fail_msg("%s", problems.v[0]);
	}
	policy_destroy(p);
}

static void test_file(void **state)
{
	static const char text[] = "Allow=x.com\n", more[] = "UpstreamProxy=http://u:p@h:1\n";
	char path[] = "/tmp/sbxsv-policyfile-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	read_is(path, 0644, NULL);
	read_is(path, 0664, "others can change it: chmod go-w");
	read_is(path, 0602, "others can change it: chmod go-w");
	assert_int_equal(write(fd, more, strlen(more)), strlen(more));
	read_is(path, 0600, NULL);
	read_is(path, 0640, "it holds a password and others can read it");
	assert_int_equal(close(fd), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	read_is(path, 0700, "not a regular file");
	assert_int_equal(rmdir(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good), cmocka_unit_test(test_clear),    cmocka_unit_test(test_options),
		cmocka_unit_test(test_bad),  cmocka_unit_test(test_problems), cmocka_unit_test(test_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
