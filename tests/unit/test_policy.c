/* Rules, decisions, and the JSON form. */
#include "policy/policy.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct policy *make(enum egress egress, const char *allow, const char *deny, const char *address,
			   const char *connect)
{
	struct policy *p = policy_create(egress);
	const struct {
		const char *list;
		int (*add)(struct policy *, const char *, const char *, struct err **);
	} parts[] = {{allow, policy_add_allow},
		     {deny, policy_add_deny},
		     {address, policy_add_address},
		     {connect, policy_add_connect}};
	unsigned line = 1;

	for (size_t i = 0; i < ELEMENTS(parts); i++) {
		CLEANUP_FREE char *copy = xstrdup(parts[i].list ? parts[i].list : "");
		char *rest = copy, *word;

		while ((word = strsep(&rest, ";"))) {
			CLEANUP_FREE char *origin = xasprintf("t.app:%u", line);
			CLEANUP_ERR struct err *e = NULL;

			if (!*word)
				continue;
			line++;
			if (parts[i].add(p, word, origin, &e) < 0)
				fail_msg("%s", err_msg(e));
		}
	}
	return p;
}

static void expect(const struct policy *p, const char *target, uint16_t port, bool allowed, const char *rule,
		   const char *hint)
{
	struct verdict v;
	struct addr a;

	if (host_parse_addr(target, strlen(target), &a) == 0)
		policy_decide_addr(p, &a, port, &v);
	else
		policy_decide_host(p, target, port, &v);
	if ((v.action == VERDICT_ALLOW) != allowed || (rule && strcmp(v.rule, rule) != 0) ||
	    (hint && strcmp(v.hint, hint) != 0))
		fail_msg("%s:%u: action %d rule \"%s\" reason \"%s\" hint \"%s\"", target, port, v.action,
			 v.rule, v.reason, v.hint);
	assert_true(strlen(v.rule) > 0 && strlen(v.reason) > 0);
	assert_true(!allowed || v.hint[0] == 0);
}
#define ALLOWED(p, target, port) expect(p, target, port, true, NULL, NULL)
#define DENIED(p, target, port)  expect(p, target, port, false, NULL, NULL)

static void test_hosts(void **state)
{
	struct policy *p =
		make(EGRESS_HOSTS, "x.com;*.wild.example;svc.example:5432;r.example:8000-8100;x.com:9000",
		     NULL, NULL, NULL);

	(void)state;
	expect(p, "x.com", 443, true, "t.app:1 Allow=x.com", "");
	ALLOWED(p, "x.com", 80);
	ALLOWED(p, "x.com", 8080);
	ALLOWED(p, "x.com", 8443);
	expect(p, "x.com", 9000, true, "t.app:5 Allow=x.com:9000", "");
	expect(p, "x.com", 22, false, "default-deny", "Allow=x.com:22");
	DENIED(p, "a.x.com", 443);
	DENIED(p, "notx.com", 443);
	DENIED(p, "x.com.evil.test", 443);
	expect(p, "wild.example", 443, true, "t.app:2 Allow=*.wild.example", "");
	ALLOWED(p, "a.wild.example", 443);
	ALLOWED(p, "a.b.c.wild.example", 80);
	DENIED(p, "xwild.example", 443);
	DENIED(p, "example", 443);
	ALLOWED(p, "svc.example", 5432);
	DENIED(p, "svc.example", 443);
	ALLOWED(p, "r.example", 8000);
	ALLOWED(p, "r.example", 8100);
	DENIED(p, "r.example", 8101);
	DENIED(p, "r.example", 7999);
	expect(p, "y.com", 443, false, "default-deny", "Allow=y.com");
	DENIED(p, "x.com", 0);
	expect(p, "router", 443, false, "default-deny", ""); /* Allow=router would be an error */
	policy_destroy(p);
}

static void test_not_canonical(void **state)
{
	struct policy *p = make(EGRESS_ALL, "x.com", NULL, NULL, NULL);
	static const char *const names[] = {"X.com", "x.com.", "", "x com", "127.1"};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(names); i++)
		expect(p, names[i], 443, false, "closed: bad name", "");
	policy_destroy(p);
}

static void test_closed(void **state)
{
	struct policy *all = make(EGRESS_ALL, NULL, NULL, NULL, NULL);

	(void)state;
	expect(all, "localhost", 5432, false, "closed: loopback", "Loopback=5432");
	expect(all, "a.localhost", 80, false, "closed: loopback", "Loopback=80");
	expect(all, "metadata.google.internal", 80, false, "closed: metadata", "");
	expect(all, "127.0.0.1", 80, false, "closed: loopback", "Loopback=80");
	expect(all, "::1", 80, false, "closed: loopback", "Loopback=80");
	expect(all, "::ffff:127.0.0.1", 80, false, "closed: loopback", "Loopback=80");
	expect(all, "169.254.169.254", 80, false, "closed: link-local", "");
	expect(all, "fe80::1", 80, false, "closed: link-local", "");
	expect(all, "0.0.0.0", 80, false, "closed: unspecified", "");
	expect(all, "168.63.129.16", 80, false, "closed: metadata", "");
	expect(all, "240.0.0.1", 80, false, "closed: reserved", "");
	expect(all, "224.0.0.1", 80, false, "closed: multicast", "");
	expect(all, "10.0.0.1", 80, false, "default-deny", "AllowAddress=10.0.0.1:80");
	expect(all, "fd00::1", 80, false, "default-deny", "AllowAddress=[fd00::1]:80");
	expect(all, "64:ff9b::7f00:1", 80, false, "closed: loopback", NULL);
	expect(all, "2002:a00:1::", 80, false, "default-deny", NULL);
	policy_destroy(all);
}

static void test_egress_all(void **state)
{
	struct policy *any = make(EGRESS_ALL, NULL, "bad.example", NULL, NULL);
	struct policy *web = make(EGRESS_ALL, "git.example:22", NULL, NULL, "443, 8000-8100");

	(void)state;
	expect(any, "x.com", 25, true, "Egress=all", "");
	ALLOWED(any, "93.184.216.34", 1);
	expect(any, "bad.example", 443, false, "t.app:1 Deny=bad.example", "");
	ALLOWED(any, "a.bad.example", 443);
	ALLOWED(web, "x.com", 443);
	ALLOWED(web, "x.com", 8050);
	expect(web, "x.com", 80, false, "default-deny", "Connect=80");
	ALLOWED(web, "git.example", 22);
	DENIED(web, "93.184.216.34", 80);
	ALLOWED(web, "93.184.216.34", 443);
	policy_destroy(any);
	policy_destroy(web);
}

static void test_deny_wins(void **state)
{
	struct policy *p = make(EGRESS_HOSTS, "*.x.com;*.x.com:1000-2000;93.184.216.34",
				"bad.x.com;*.worse.x.com;"
				"port.x.com:443;192.168.1.1",
				"192.168.1.0/24:*", NULL);

	(void)state;
	ALLOWED(p, "x.com", 443);
	expect(p, "bad.x.com", 443, false, "t.app:4 Deny=bad.x.com", "");
	DENIED(p, "bad.x.com", 1500);
	ALLOWED(p, "a.bad.x.com", 443);
	DENIED(p, "a.worse.x.com", 80);
	DENIED(p, "worse.x.com", 80);
	DENIED(p, "port.x.com", 443);
	ALLOWED(p, "port.x.com", 80);
	expect(p, "192.168.1.1", 80, false, "t.app:7 Deny=192.168.1.1", "");
	ALLOWED(p, "192.168.1.2", 80);
	policy_destroy(p);
}

/* A name that resolves to a translated form of a denied address reaches that address all the same. */
static void test_deny_embedded(void **state)
{
	static const char *const forms[] = {"93.184.216.34", "::ffff:93.184.216.34", "64:ff9b::5db8:d822",
					    "2002:5db8:d822::1"};
	struct policy *p = make(EGRESS_ALL, NULL, "93.184.216.34", NULL, NULL);
	struct verdict by, v;

	(void)state;
	policy_decide_host(p, "x.com", 443, &by);
	assert_int_equal(by.action, VERDICT_ALLOW);
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		struct addr a;

		assert_int_equal(host_parse_addr(forms[i], strlen(forms[i]), &a), 0);
		policy_decide_addr(p, &a, 443, &v);
		assert_int_equal(v.action, VERDICT_DENY);
		policy_decide_answer(p, "x.com", 443, &by, &a, 1, &v);
		assert_int_equal(v.action, VERDICT_DENY);
	}
	ALLOWED(p, "64:ff9b::5db8:d823", 443);
	policy_destroy(p);
}

static void test_addresses(void **state)
{
	struct policy *p =
		make(EGRESS_HOSTS, "93.184.216.34;[2606:2800::1]:9000", NULL,
		     "192.168.1.100:5432;10.0.0.0/8:8000-8100;[fd12::]/16:*;198.0.0.0/8:443", NULL);
	struct verdict v;
	struct addr a;

	(void)state;
	ALLOWED(p, "93.184.216.34", 443);
	ALLOWED(p, "::ffff:93.184.216.34", 443);
	expect(p, "93.184.216.35", 443, false, "default-deny", "Allow=93.184.216.35");
	expect(p, "2606:2800::2", 9000, false, "default-deny", "Allow=[2606:2800::2]:9000");
	ALLOWED(p, "2606:2800::1", 9000);
	DENIED(p, "2606:2800::1", 443);
	expect(p, "192.168.1.100", 5432, true, "t.app:3 AllowAddress=192.168.1.100:5432", "");
	DENIED(p, "192.168.1.100", 5433);
	DENIED(p, "192.168.1.101", 5432);
	ALLOWED(p, "10.255.255.255", 8100);
	DENIED(p, "10.0.0.1", 80);
	ALLOWED(p, "fd12:1::1", 1);
	DENIED(p, "fd13::1", 1);
	ALLOWED(p, "198.1.2.3", 443);
	expect(p, "198.18.0.1", 443, false, "closed: reserved",
	       ""); /* inside a granted range, still closed */
	assert_int_equal(host_parse_addr("10.0.0.1", 8, &a), 0);
	policy_decide_addr(p, &a, 8000, &v);
	assert_true(v.by_address && v.literal);
	policy_decide_host(p, "x.com", 443, &v);
	assert_false(v.literal);
	policy_destroy(p);
	p = make(EGRESS_OFF, "x.com", NULL, "10.0.0.1:80", NULL);
	expect(p, "x.com", 443, false, "default-deny", "Allow=x.com");
	DENIED(p, "10.0.0.1", 80);
	policy_destroy(p);
}

static enum verdict_action answer(const struct policy *p, const char *list, uint16_t port, struct verdict *v)
{
	CLEANUP_FREE char *copy = xstrdup(list);
	char *rest = copy, *word;
	struct addr a[8];
	struct verdict by;
	size_t n = 0;

	while ((word = strsep(&rest, ",")))
		if (*word)
			assert_int_equal(host_parse_addr(word, strlen(word), &a[n++]), 0);
	policy_decide_host(p, "x.com", port, &by);
	policy_decide_answer(p, "x.com", port, &by, a, n, v);
	return v->action;
}

static void test_answers(void **state)
{
	struct policy *p = make(EGRESS_HOSTS, "x.com;x.com:5432", "93.184.216.99", "10.0.0.5:5432", NULL);
	struct policy *all = make(EGRESS_ALL, NULL, NULL, NULL, NULL);
	static const char *const refused[] = {
		"127.0.0.1",
		"93.184.216.34,127.0.0.1",
		"93.184.216.34,10.0.0.5",
		"10.1.2.3",
		"169.254.169.254",
		"0.0.0.0",
		"::",
		"::ffff:10.0.0.1",
		"64:ff9b::7f00:1",
		"2002:a9fe:a9fe::",
		"fd00:ec2::254",
		"fe80::1",
		"93.184.216.99",
		"",
		"::1",
		"198.18.0.5",
	};
	struct verdict v;

	(void)state;
	assert_int_equal(answer(p, "93.184.216.34,2606:2800::1", 443, &v), VERDICT_ALLOW);
	assert_string_equal(v.rule, "t.app:1 Allow=x.com");
	assert_false(v.by_address);
	for (size_t i = 0; i < ELEMENTS(refused); i++) {
		if (answer(p, refused[i], 443, &v) != VERDICT_DENY)
			fail_msg("accepted %s", refused[i]);
		assert_true(strlen(v.rule) > 0 && strlen(v.reason) > 0);
		if (strcmp(refused[i], "93.184.216.99") != 0)
			assert_int_equal(answer(all, refused[i], 443, &v), VERDICT_DENY);
	}
	assert_int_equal(answer(p, "10.0.0.5", 5432, &v), VERDICT_ALLOW);
	assert_true(v.by_address);
	assert_int_equal(answer(p, "10.0.0.6", 5432, &v), VERDICT_DENY);
	assert_string_equal(v.hint, "AllowAddress=10.0.0.6:5432");
	assert_false(v.by_address);
	assert_int_equal(answer(p, "10.0.0.5,10.0.0.6", 5432, &v), VERDICT_DENY);
	assert_false(v.by_address);
	policy_decide_answer(p, "x.com", 443, &v, NULL, 0, &v); /* a denial stays one */
	assert_int_equal(v.action, VERDICT_DENY);
	policy_destroy(p);
	policy_destroy(all);
}

static void test_rule_errors(void **state)
{
	static const char *const bad[] = {
		"",
		"*",
		"*.",
		"*.com",
		"*.co.uk",
		"*.com.au",
		"api.*.x.com",
		"*x.com",
		"x.*",
		"*.*.x.com",
		"**.x.com",
		".x.com",
		"https://x.com",
		"u@x.com",
		"x.com/a",
		"10.0.0.0/8",
		"0177.0.0.1",
		"2001:db8::1:443",
		"[fe80::1%e]",
		"x.com:0443",
		"x.com:",
		"x.com:0",
		"x.com:65536",
		"x.com:80-",
		"x.com:-80",
		"x.com:90-80",
		"x.com:80,443",
		"x.com:*",
		"localhost",
		"*.localhost",
		"a.localhost",
		"com",
		"^x\\.com$",
		"!x.com",
		"# x.com",
		"x.com y.com",
		"127.0.0.1",
		"10.0.0.1",
		"10.0.0.1:80",
		"169.254.169.254",
		"0.0.0.0",
		"[::1]",
		"[::ffff:127.0.0.1]",
		"[fd00::1]",
		"[1.2.3.4]",
		"[x.com]",
		"[2606::1",
		"[2606::1]x",
		"[2606::1]:",
		"[2606::1]/64",
		"*.3.4",
		"1.2.3",
		"metadata.google.internal",
		"b\303\274cher.example",
		"203.0.113.1",
		"[2002:7f00:1::]",
		"*.1.2.3.4",
		"x.com ",
	};
	static const char *const good[] = {"x.com",           "X.COM.",           "*.x.com",
					   "x.com:1",         "x.com:1-65535",    "*.x.com:443",
					   "93.184.216.34",   "93.184.216.34:22", "[2606::1]",
					   "[2606::1]:80-90", "*.github.io",      "*.s3.amazonaws.com"};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(bad); i++) {
		CLEANUP_ERR struct err *e = NULL;

		if (policy_check_host_rule(bad[i], &e) == 0)
			fail_msg("accepted: %s", bad[i]);
		assert_true(strlen(err_msg(e)) > 10);
	}
	for (size_t i = 0; i < ELEMENTS(good); i++) {
		CLEANUP_ERR struct err *e = NULL;

		if (policy_check_host_rule(good[i], &e) < 0)
			fail_msg("refused: %s: %s", good[i], err_msg(e));
	}
	assert_int_equal(policy_check_deny_rule("*.com", NULL), 0);
	assert_int_equal(policy_check_deny_rule("192.168.1.1", NULL), 0);
	assert_int_equal(policy_check_deny_rule("nas", NULL), 0);
	assert_int_equal(policy_check_deny_rule("*", NULL), -1);
	assert_int_equal(policy_check_deny_rule("10.0.0.0/8", NULL), -1);
}

static void test_address_errors(void **state)
{
	static const char *const bad[] = {
		"",
		"10.0.0.1",
		"10.0.0.0/8",
		"10.0.0.1:",
		"10.0.0.1:0",
		"10.0.0.1/33:80",
		"10.0.0.1/8:80",
		"10.0.0.0/08:80",
		"10.0.0.0/:80",
		"10.0.0.0/-1:80",
		"0.0.0.0/0:443",
		"8.0.0.0/6:1",
		"127.0.0.1:80",
		"127.0.0.0/8:*",
		"169.254.0.0/16:*",
		"169.254.169.254:80",
		"0.0.0.0:80",
		"0.0.0.0/8:*",
		"224.0.0.0/8:*",
		"240.0.0.0/8:*",
		"[::1]:80",
		"[fe80::]/10:*",
		"[::]/0:*",
		"fd00::1:80",
		"fd00::/8:80",
		"[fd00::1]",
		"[fd00::]/8",
		"[10.0.0.1]:80",
		"x.com:443",
		"nas:80",
		"[fd00:ec2::254]:80",
		"168.63.129.16:80",
		"100.100.100.200:80",
		"[::ffff:10.0.0.0]/104:80",
		"[::ffff:127.0.0.1]:80",
		"10.0.0.1:80,90",
		"10.0.0.1:**",
		"[fd00::1]x:80",
		"[fd00::1]/64/64:80",
		"10.0.0.0/8/8:80",
		"010.0.0.1:80",
		"[fd00::1%eth0]:80",
		"10.0.0.1 :80",
	};
	static const char *const good[] = {"192.168.1.100:5432", "10.0.0.0/8:*",     "10.1.0.0/16:80-90",
					   "[fd00::1]:443",      "[fd12::]/16:*",    "[fc00::]/7:*",
					   "8.8.8.0/24:53",      "100.64.0.0/10:443"};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(bad); i++) {
		CLEANUP_ERR struct err *e = NULL;

		if (policy_check_address_rule(bad[i], &e) == 0)
			fail_msg("accepted: %s", bad[i]);
		assert_true(strlen(err_msg(e)) > 10);
	}
	for (size_t i = 0; i < ELEMENTS(good); i++) {
		CLEANUP_ERR struct err *e = NULL;

		if (policy_check_address_rule(good[i], &e) < 0)
			fail_msg("refused: %s: %s", good[i], err_msg(e));
	}
}

static void test_ports(void **state)
{
	static const char *const bad[] = {"",    ",",   "80,",   "0",    "65536", "080",
					  "80-", "-80", "90-80", "http", "80 90", "*"};
	static const char *const good[] = {"443", "443,8000-8100", "1-65535", "80, 443"};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		if (policy_check_ports(bad[i], NULL) == 0)
			fail_msg("accepted: %s", bad[i]);
	for (size_t i = 0; i < ELEMENTS(good); i++)
		assert_int_equal(policy_check_ports(good[i], NULL), 0);
}

static void test_json(void **state)
{
	struct policy *p = make(EGRESS_HOSTS, "x.com;*.y.com:1-9;[2606::1]", "bad.y.com", "10.0.0.0/8:*",
				"443,80-90"),
		      *q;
	struct js *j, *k;
	char *a, *b;

	(void)state;
	policy_set_sni_match(p, false);
	policy_set_ech_refuse(p, true);
	j = policy_to_json(p);
	q = policy_from_json(j, NULL);
	assert_non_null(q);
	k = policy_to_json(q);
	a = js_print(j);
	b = js_print(k);
	assert_string_equal(a, b);
	assert_false(policy_sni_match(q));
	assert_true(policy_ech_refuse(q));
	assert_int_equal(policy_egress(q), EGRESS_HOSTS);
	expect(q, "x.com", 443, true, "t.app:1 Allow=x.com", "");
	expect(q, "bad.y.com", 5, false, "t.app:4 Deny=bad.y.com", "");
	ALLOWED(q, "10.1.1.1", 7);
	free(a);
	free(b);
	js_free(j);
	js_free(k);
	policy_destroy(p);
	policy_destroy(q);
}

static void test_port_open(void **state)
{
	static const struct {
		enum egress egress;
		const char *allow, *connect;
		uint16_t port;
		bool open;
	} cases[] = {
		{EGRESS_HOSTS, "a.test", "", 443, true},
		{EGRESS_HOSTS, "a.test", "", 22, false},
		{EGRESS_HOSTS, "a.test:22", "", 22, true},
		{EGRESS_HOSTS, "a.test:22", "", 443, false},
		{EGRESS_HOSTS, "11.2.0.9", "", 443, false},
		{EGRESS_HOSTS, "11.2.0.9;*.b.test:20-30", "", 25, true},
		{EGRESS_HOSTS, "", "", 443, false},
		{EGRESS_OFF, "a.test", "", 443, false},
		{EGRESS_ALL, "", "", 22, true},
		{EGRESS_ALL, "", "443", 22, false},
		{EGRESS_ALL, "a.test:22", "443", 22, true},
	};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(cases); i++) {
		struct policy *p = make(cases[i].egress, cases[i].allow, "", "", cases[i].connect);

		if (policy_port_open(p, cases[i].port) != cases[i].open)
			fail_msg("case %zu", i);
		policy_destroy(p);
	}
}

static const struct upstream *via(struct policy *p, const char *host, const char *address, uint16_t port)
{
	struct addr a;

	if (address)
		assert_int_equal(host_parse_addr(address, strlen(address), &a), 0);
	return policy_upstream(p, host, address ? &a : NULL, port);
}

static void test_upstream(void **state)
{
	struct policy *p = policy_create(EGRESS_ALL), *q;
	const struct upstream *u;
	struct js *j;

	(void)state;
	assert_null(via(p, "x.com", NULL, 443));
	assert_int_equal(
		policy_set_upstream(p, "http://al%40ice:p%3Aw%25@Proxy.Corp.test:3128/", "t.app:9", NULL), 0);
	assert_int_equal(policy_set_upstream(p, "http://other:1", NULL, NULL), -1);
	assert_int_equal(policy_add_no_proxy(p, "*.corp.test", NULL, NULL), 0);
	assert_int_equal(policy_add_no_proxy(p, "y.com:80", NULL, NULL), 0);
	assert_int_equal(policy_add_no_proxy(p, "10.0.0.0/8", NULL, NULL), 0);
	assert_int_equal(policy_add_no_proxy(p, "93.184.216.34", NULL, NULL), 0);
	j = policy_to_json(p);
	q = policy_from_json(j, NULL);
	assert_non_null(q);
	u = via(q, "x.com", NULL, 443);
	assert_non_null(u);
	assert_string_equal(u->host, "proxy.corp.test");
	assert_int_equal(u->port, 3128);
	assert_string_equal(u->shown, "http://proxy.corp.test:3128");
	assert_string_equal(u->origin, "t.app:9");
	assert_string_equal(u->authorization, "Basic YWxAaWNlOnA6dyU="); /* "al@ice:p:w%" */
	assert_null(via(q, "git.corp.test", NULL, 443));
	assert_null(via(q, "corp.test", NULL, 443));
	assert_null(via(q, "y.com", NULL, 80));
	assert_non_null(via(q, "y.com", NULL, 443));
	assert_null(via(q, NULL, "10.1.2.3", 5432));
	assert_non_null(via(q, NULL, "11.1.2.3", 5432));
	assert_null(via(q, NULL, "93.184.216.34", 443));
	js_free(j);
	policy_destroy(p);
	policy_destroy(q);
}

static void test_upstream_urls(void **state)
{
	static const char *const bad[] = {
		"",
		"p:3128",
		"http://",
		"http://p",
		"http://p:0",
		"http://p:99999",
		"http://:3128",
		"http://u@p:3128",
		"http://:pw@p:3128",
		"http://u:%4@p:1",
		"http://u:%zz@p:1",
		"http://u:a%0ab@p:1",
		"http://u:a b@p:1",
		"http://u%3av:w@p:1",
		"http://p:3128/x",
		"http://p:3128?x",
		"http://::1:3128",
		"http://[p]:3128",
		"http://[127.0.0.1]:1",
		"socks5://p:1080",
		"https://p:443",
		"http://p:3128 ",
		"http://u:w@@p:1",
		"http://u:w@",
		"HTTP://p:1",
	};
	static const char *const secret = "http://u:hunter2@p q:1";
	CLEANUP_ERR struct err *e = NULL;
	struct policy *p = policy_create(EGRESS_ALL);

	(void)state;
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		if (policy_check_upstream(bad[i], NULL) == 0)
			fail_msg("accepted: %s", bad[i]);
	assert_int_equal(policy_set_upstream(p, secret, NULL, &e), -1);
	assert_null(strstr(err_msg(e), "hunter2"));
	assert_int_equal(policy_set_upstream(p, "http://localhost:8080", NULL, NULL), 0);
	assert_true(via(p, "x.com", NULL, 80)->literal);
	assert_string_equal(via(p, "x.com", NULL, 80)->host, "127.0.0.1");
	assert_null(via(p, "x.com", NULL, 80)->authorization);
	policy_destroy(p);
	assert_int_equal(policy_check_upstream("http://[fd00::1]:3128", NULL), 0);
	assert_int_equal(policy_check_upstream("http://u:@p:3128", NULL), 0);
	assert_int_equal(policy_check_no_proxy("0.0.0.0/0", NULL), -1);
	assert_int_equal(policy_check_no_proxy("10.0.0.0/8:443", NULL), -1);
	assert_int_equal(policy_check_no_proxy("*", NULL), -1);
}

#define REST "\"sni_match\":true,\"ech_refuse\":false,\"deny\":[],\"address\":[],\"connect\":[]"
static void test_json_strict(void **state)
{
	static const char *const bad[] = {
		"{}",
		"[]",
		"null",
		"\"x\"",
		"1",
		"{\"egress\":\"hosts\"}",
		"{\"egress\":\"open\",\"allow\":[]," REST "}",
		"{\"egress\":0,\"allow\":[]," REST "}",
		"{\"egress\":\"hosts\",\"allow\":{}," REST "}",
		"{\"egress\":\"hosts\",\"allow\":[\"x.com\"]," REST "}",
		"{\"egress\":\"hosts\",\"allow\":[[\"x.com\"]]," REST "}",
		"{\"egress\":\"hosts\",\"allow\":[[\"x.com\",1]]," REST "}",
		"{\"egress\":\"hosts\",\"allow\":[[\"x.com\",\"o\",\"o\"]]," REST "}",
		"{\"egress\":\"hosts\",\"allow\":[[\"*\",\"o\"]]," REST "}",
		"{\"egress\":\"hosts\",\"allow\":[]," REST ",\"extra\":1}",
		"{\"egress\":\"hosts\",\"allow\":[],\"allow\":[]," REST "}",
		"{\"egress\":\"hosts\",\"Allow\":[]," REST "}",
		"{\"egress\":\"hosts\",\"allow\":[],\"sni_match\":1,\"ech_refuse\":false,\"deny\":[],"
		"\"address\":[],\"connect\":[]}",
		"{\"egress\":\"hosts\",\"allow\":[],\"sni_match\":true,\"ech_refuse\":null,\"deny\":[],"
		"\"address\":[],\"connect\":[]}",
	};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(bad); i++) {
		CLEANUP_ERR struct err *e = NULL;
		struct js *j = js_parse(bad[i], strlen(bad[i]), NULL);
		struct policy *p;

		assert_non_null(j);
		p = policy_from_json(j, &e);
		if (p)
			fail_msg("accepted: %s", bad[i]);
		assert_true(strlen(err_msg(e)) > 10);
		js_free(j);
	}
}

static void test_many(void **state)
{
	struct policy *p = policy_create(EGRESS_HOSTS);
	char text[64];

	(void)state;
	for (unsigned i = 0; i < 20000; i++) {
		snprintf(text, sizeof text, "%sh%u.example.com", i % 2 ? "*." : "", i);
		assert_int_equal(policy_add_allow(p, text, NULL, NULL), 0);
	}
	for (unsigned i = 0; i < 20000; i++) {
		snprintf(text, sizeof text, "h%u.example.com", i);
		ALLOWED(p, text, 443);
		snprintf(text, sizeof text, "a.b.h%u.example.com", i);
		expect(p, text, 443, i % 2, NULL, NULL);
	}
	DENIED(p, "example.com", 443);
	policy_destroy(p);
}

/* Looked up at all: when some port is allowed; by the verdict of that port. */
static void expect_name(const struct policy *p, const char *host, bool allowed, const char *rule,
			const char *hint)
{
	struct verdict v;

	policy_decide_name(p, host, &v);
	if ((v.action == VERDICT_ALLOW) != allowed)
		fail_msg("%s: %s by %s", host, allowed ? "denied" : "allowed", v.rule);
	assert_string_equal(v.rule, rule);
	assert_string_equal(v.hint, hint);
	assert_true(v.reason[0]);
}

static void test_lookups(void **state)
{
	static const struct {
		const char *key, *text;
	} rules[] = {
		{"A", "x.com"},
		{"A", "*.w.com"},
		{"A", "git.com:22"},
		{"A", "range.com:1000-2000"},
		{"D", "no.w.com"},
		{"D", "range.com:1-1499"},
		{"D", "range.com:1500"},
		{"A", "gone.com:22"},
		{"D", "gone.com:20-30"},
		{"A", "two.com:22"},
		{"A", "two.com"},
		{"D", "two.com:22"},
		{"A", "last.com:65535"},
		{"D", "last.com:1-65534"},
		{"A", "shut.com:65535"},
		{"D", "*.shut.com:65535"},
		{"D", "pieces.com:1-79"},
		{"D", "pieces.com:80"},
		{"D", "*.pieces.com:81-65535"},
		{"A", "pieces.com:1-65535"},
	};
	struct policy *p = policy_create(EGRESS_HOSTS), *off = policy_create(EGRESS_OFF);

	(void)state;
	for (size_t i = 0; i < ELEMENTS(rules); i++)
		assert_int_equal(rules[i].key[0] == 'A' ? policy_add_allow(p, rules[i].text, "f:1", NULL)
							: policy_add_deny(p, rules[i].text, "f:2", NULL),
				 0);
	expect_name(p, "x.com", true, "f:1 Allow=x.com", "");
	expect_name(p, "w.com", true, "f:1 Allow=*.w.com", "");
	expect_name(p, "a.b.w.com", true, "f:1 Allow=*.w.com", "");
	expect_name(p, "no.w.com", false, "f:2 Deny=no.w.com", "");
	expect_name(p, "a.no.w.com", true, "f:1 Allow=*.w.com", "");
	expect_name(p, "git.com", true, "f:1 Allow=git.com:22", "");
	expect_name(p, "range.com", true, "f:1 Allow=range.com:1000-2000", "");
	expect_name(p, "gone.com", false, "f:2 Deny=gone.com:20-30", "");
	expect_name(p, "two.com", true, "f:1 Allow=two.com", "");
	expect_name(p, "last.com", true, "f:1 Allow=last.com:65535", "");
	expect_name(p, "shut.com", false, "f:2 Deny=*.shut.com:65535", "");
	expect_name(p, "pieces.com", false, "f:2 Deny=pieces.com:1-79", "");
	expect_name(p, "evil.com", false, "default-deny", "Allow=evil.com");
	expect_name(p, "com", false, "default-deny", "");
	expect_name(p, "localhost", false, "closed: loopback", "Loopback=443");
	expect_name(p, "metadata.google.internal", false, "closed: metadata", "");
	expect_name(p, "X.com", false, "closed: bad name", "");
	expect_name(p, "", false, "closed: bad name", "");

	assert_int_equal(policy_add_allow(off, "x.com", "f:1", NULL), 0);
	expect_name(off, "x.com", false, "default-deny", "Allow=x.com");
	policy_destroy(p);
	policy_destroy(off);
}

static void test_lookups_all(void **state)
{
	struct policy *p = policy_create(EGRESS_ALL);

	(void)state;
	expect_name(p, "x.com", true, "Egress=all", "");
	assert_int_equal(policy_add_deny(p, "x.com:1-100", "f:2", NULL), 0);
	assert_int_equal(policy_add_deny(p, "y.com", "f:3", NULL), 0);
	expect_name(p, "x.com", true, "Egress=all", "");
	expect_name(p, "y.com", false, "f:3 Deny=y.com", "");
	assert_int_equal(policy_add_connect(p, "50,60-70", "f:4", NULL), 0);
	expect_name(p, "x.com", false, "f:2 Deny=x.com:1-100", "");
	expect_name(p, "z.com", true, "Egress=all", "");
	assert_int_equal(policy_add_connect(p, "443", "f:5", NULL), 0);
	expect_name(p, "x.com", true, "Egress=all", "");
	expect_name(p, "metadata.google.internal", false, "closed: metadata", "");
	policy_destroy(p);
}

static void test_empty(void **state)
{
	struct policy *p = policy_create(EGRESS_HOSTS);

	(void)state;
	DENIED(p, "x.com", 443);
	DENIED(p, "93.184.216.34", 443);
	assert_true(policy_sni_match(p));
	assert_false(policy_ech_refuse(p));
	policy_destroy(p);
	policy_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_upstream),       cmocka_unit_test(test_upstream_urls),
		cmocka_unit_test(test_port_open),      cmocka_unit_test(test_hosts),
		cmocka_unit_test(test_not_canonical),  cmocka_unit_test(test_closed),
		cmocka_unit_test(test_egress_all),     cmocka_unit_test(test_deny_embedded),
		cmocka_unit_test(test_deny_wins),      cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_answers),        cmocka_unit_test(test_rule_errors),
		cmocka_unit_test(test_address_errors), cmocka_unit_test(test_ports),
		cmocka_unit_test(test_json),           cmocka_unit_test(test_json_strict),
		cmocka_unit_test(test_many),           cmocka_unit_test(test_empty),
		cmocka_unit_test(test_lookups),        cmocka_unit_test(test_lookups_all),
	};

	return cmocka_run_group_tests_name("policy", tests, NULL, NULL);
}
