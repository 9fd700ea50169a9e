/* Rules given at run time: the set, its ends by a clock of the test, and what they do to the unit's own. */
#include "sup/liverules.h"
#include "sandbox/rules.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#define WALL INT64_C(1893456000000) /* 2030-01-01T00:00:00Z */

static void set(struct liverules *l, enum policy_key key, const char *text, int64_t for_ms, int64_t now)
{
	CLEANUP_ERR struct err *e = NULL;

	if (liverules_set(l, key, text, for_ms, now, WALL, &e) < 0)
		fail_msg("%s", err_msg(e));
}

static void test_ends(void **state)
{
	CLEANUP(liverules_finish) struct liverules l = {0};
	struct liverule r;

	(void)state;
	assert_int_equal(liverules_next(&l), 0);
	set(&l, POLICY_ALLOW, "a.test", 0, 1000);
	set(&l, POLICY_ALLOW, "b.test", 500, 1000);
	set(&l, POLICY_DENY, "b.test", 300, 1000);
	set(&l, POLICY_ADDRESS, "10.0.0.1:5432", 900, 1000);
	assert_int_equal(l.n, 4);
	assert_int_equal(liverules_next(&l), 1300);
	assert_false(liverules_expired(&l, 1299, &r));
	assert_true(liverules_expired(&l, 1300, &r));
	assert_string_equal(r.text, "b.test");
	assert_int_equal(r.key, POLICY_DENY);
	liverule_finish(&r);
	/* given again: a new end, not a second rule */
	set(&l, POLICY_ALLOW, "b.test", 5000, 1400);
	assert_int_equal(l.n, 3);
	assert_int_equal(liverules_next(&l), 1900);
	assert_true(liverules_expired(&l, 100000, &r));
	liverule_finish(&r);
	assert_true(liverules_expired(&l, 100000, &r));
	liverule_finish(&r);
	assert_false(liverules_expired(&l, INT64_MAX, &r)); /* what has no end stays */
	assert_int_equal(liverules_next(&l), 0);
	assert_true(liverules_drop(&l, POLICY_ALLOW, "a.test"));
	assert_false(liverules_drop(&l, POLICY_ALLOW, "a.test"));
	assert_int_equal(l.n, 0);
}

static void test_origin(void **state)
{
	CLEANUP(liverules_finish) struct liverules l = {0}, copy = {0};

	(void)state;
	set(&l, POLICY_ALLOW, "a.test", 0, 0);
	set(&l, POLICY_DENY, "a.test", 3600000, 0);
	assert_string_equal(l.v[0].origin, "allowed at run time");
	assert_string_equal(l.v[1].origin, "denied at run time until 01:00:00");
	set(&l, POLICY_DENY, "a.test", 60000, 0);
	liverules_copy(&copy, &l);
	assert_int_equal(copy.n, 2);
	assert_string_equal(copy.v[1].origin, "denied at run time until 00:01:00");
	assert_ptr_not_equal(copy.v[1].text, l.v[1].text);
	assert_non_null(liverules_find(&copy, POLICY_DENY, "a.test"));
	assert_null(liverules_find(&copy, POLICY_ADDRESS, "a.test"));
}

static void test_bound(void **state)
{
	CLEANUP(liverules_finish) struct liverules l = {0};
	CLEANUP_ERR struct err *e = NULL;

	(void)state;
	for (int i = 0; i < LIVERULES_MAX; i++) {
		CLEANUP_FREE char *host = xasprintf("h%d.test", i);

		set(&l, POLICY_ALLOW, host, 0, 0);
	}
	assert_int_equal(liverules_set(&l, POLICY_ALLOW, "more.test", 0, 0, WALL, &e), -1);
	assert_non_null(strstr(err_msg(e), "into the unit"));
	set(&l, POLICY_ALLOW, "h7.test", 5, 0); /* one that is there still changes */
	assert_int_equal(l.n, LIVERULES_MAX);
}

/* --- with a unit --- */

static struct verdict decide(const struct policy *p, const char *host, uint16_t port)
{
	struct verdict v;

	policy_decide_host(p, host, port, &v);
	return v;
}

static void test_merged(void **state)
{
	struct unit_value allow = {(char[]){"a.test"}, (char[]){"t.app:4"}};
	struct unit u = {.egress = UNIT_EGRESS_HOSTS, .allow = {&allow, 1, 1}, .sni_match = true};
	const struct rules_extra extra[] = {{POLICY_ALLOW, "b.test", "allowed at run time"},
					    {POLICY_DENY, "*.a.test", "denied at run time"},
					    {POLICY_ADDRESS, "10.0.0.1:5432", "allowed at run time"}};
	struct policy *p = rules_with(&u, extra, ELEMENTS(extra), NULL);
	struct verdict v;
	struct addr a;

	(void)state;
	assert_non_null(p);
	v = decide(p, "a.test", 443);
	assert_int_equal(v.action, VERDICT_DENY);
	assert_string_equal(v.rule, "denied at run time Deny=*.a.test");
	v = decide(p, "b.test", 443);
	assert_int_equal(v.action, VERDICT_ALLOW);
	assert_string_equal(v.rule, "allowed at run time Allow=b.test");
	assert_int_equal(host_parse_addr("10.0.0.1", 8, &a), 0);
	policy_decide_addr(p, &a, 5432, &v);
	assert_int_equal(v.action, VERDICT_ALLOW);
	policy_destroy(p);
	/* one bad rule refuses the whole */
	assert_null(rules_with(&u, &(struct rules_extra){POLICY_ALLOW, "*.com", "x"}, 1, NULL));
}

static void test_egress(void **state)
{
	struct unit u = {.egress = UNIT_EGRESS_OFF};
	const struct rules_extra grant = {POLICY_ALLOW, "b.test", "x"}, deny = {POLICY_DENY, "b.test", "x"};

	(void)state;
	assert_int_equal(rules_egress(&u, NULL, 0), EGRESS_OFF);
	assert_int_equal(rules_egress(&u, &deny, 1), EGRESS_OFF);
	assert_int_equal(rules_egress(&u, &grant, 1), EGRESS_HOSTS);
	u.egress_origin = (char[]){"t.app:3"}; /* written by a person: nothing at run time overrules it */
	assert_int_equal(rules_egress(&u, &grant, 1), EGRESS_OFF);
	u.egress = UNIT_EGRESS_ALL;
	assert_int_equal(rules_egress(&u, &grant, 1), EGRESS_ALL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ends),   cmocka_unit_test(test_origin), cmocka_unit_test(test_bound),
		cmocka_unit_test(test_merged), cmocka_unit_test(test_egress),
	};

	(void)setenv("TZ", "UTC", 1);
	tzset();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
