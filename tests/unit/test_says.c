/* What comes over run.sock, as data: only what makes sense is taken. */
#include "base/str.h"
#include "sup/stdio_says.h"
#include "sup/sup.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

static bool reads(const char *text, struct instance_says *ret)
{
	struct js *m = js_parse(text, strlen(text), NULL);
	bool r = m && instance_says_read(m, ret);

	js_free(m);
	return r;
}

static bool greets(const char *text)
{
	struct js *m = js_parse(text, strlen(text), NULL);
	bool r = sup_instance_hello(m, 1) != NULL;

	js_free(m);
	return r;
}

static void test_only_a_name_in_our_version_is_a_greeting(void **state)
{
	(void)state;
	assert_true(greets("{\"t\":\"run\",\"v\":1,\"app\":\"tools\"}"));
	assert_true(greets("{\"t\":\"run\",\"v\":1,\"app\":\"web@8080\",\"more\":[]}"));
	static const char *const bad[] = {"{}",
					  "[]",
					  "{\"t\":\"run\"}",
					  "{\"t\":\"run\",\"v\":2,\"app\":\"tools\"}",
					  "{\"t\":\"run\",\"v\":\"1\",\"app\":\"tools\"}",
					  "{\"t\":\"run\",\"v\":1}",
					  "{\"t\":\"run\",\"v\":1,\"app\":7}",
					  "{\"t\":\"run\",\"v\":1,\"app\":\"\"}",
					  "{\"t\":\"run\",\"v\":1,\"app\":\"../tools\"}",
					  "{\"t\":\"started\",\"v\":1,\"app\":\"tools\"}"};
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		assert_false(greets(bad[i]));
}

static void test_started_has_a_pid_and_maybe_an_isolation(void **state)
{
	struct instance_says s;

	(void)state;
	assert_true(reads("{\"t\":\"started\",\"pid\":41}", &s));
	assert_int_equal(s.word, SAYS_STARTED);
	assert_int_equal(s.pid, 41);
	assert_false(s.again);
	assert_null(s.isolation);
	assert_true(
		reads("{\"t\":\"started\",\"pid\":2147483647,\"again\":true,\"isolation\":{\"a\":1}}", &s));
	assert_true(s.again);
	assert_non_null(s.isolation);
	assert_true(reads("{\"t\":\"started\",\"pid\":41,\"again\":7,\"isolation\":\"all\"}", &s));
	assert_false(s.again);
	assert_null(s.isolation);
	for (const char *const *pid = (const char *const[]){"0", "1", "-5", "2147483648", "1e300", "4.5",
							    "\"41\"", "null", "{}", NULL};
	     *pid; pid++) {
		CLEANUP_FREE char *text = xasprintf("{\"t\":\"started\",\"pid\":%s}", *pid);

		assert_false(reads(text, &s));
	}
}

static void test_exited_has_a_status_of_waitpid(void **state)
{
	struct instance_says s;

	(void)state;
	assert_true(reads("{\"t\":\"exited\",\"status\":0}", &s));
	assert_int_equal(s.word, SAYS_EXITED);
	assert_true(reads("{\"t\":\"exited\",\"status\":1792}", &s));
	assert_int_equal(s.status, 7 << 8);
	assert_true(reads("{\"t\":\"exited\",\"status\":137}", &s)); /* SIGKILL, with a core */
	assert_false(reads("{\"t\":\"exited\"}", &s));
	assert_false(reads("{\"t\":\"exited\",\"status\":-1}", &s));
	assert_false(reads("{\"t\":\"exited\",\"status\":127}", &s));   /* stopped */
	assert_false(reads("{\"t\":\"exited\",\"status\":65535}", &s)); /* continued */
	assert_false(reads("{\"t\":\"exited\",\"status\":65536}", &s));
	assert_false(reads("{\"t\":\"exited\",\"status\":\"0\"}", &s));
}

static void test_refusals_and_their_number(void **state)
{
	struct instance_says s;

	(void)state;
	assert_true(reads("{\"t\":\"event\",\"event\":{\"type\":\"violation\",\"app\":\"x\"}}", &s));
	assert_int_equal(s.word, SAYS_REFUSED);
	assert_false(reads("{\"t\":\"event\",\"event\":{\"type\":\"state\"}}", &s));
	assert_false(reads("{\"t\":\"event\",\"event\":[\"violation\"]}", &s));
	assert_false(reads("{\"t\":\"event\"}", &s));
	assert_true(reads("{\"t\":\"lost\",\"n\":3}", &s));
	assert_int_equal(s.word, SAYS_LOST);
	assert_int_equal(s.n, 3);
	assert_false(reads("{\"t\":\"lost\"}", &s));
	assert_false(reads("{\"t\":\"lost\",\"n\":0}", &s));
	assert_false(reads("{\"t\":\"lost\",\"n\":-1}", &s));
	assert_false(reads("{\"t\":\"lost\",\"n\":1e300}", &s));
	assert_false(reads("{\"t\":\"stop\"}", &s));
	assert_false(reads("{\"t\":7}", &s));
	assert_false(reads("{}", &s));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_only_a_name_in_our_version_is_a_greeting),
		cmocka_unit_test(test_started_has_a_pid_and_maybe_an_isolation),
		cmocka_unit_test(test_exited_has_a_status_of_waitpid),
		cmocka_unit_test(test_refusals_and_their_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
