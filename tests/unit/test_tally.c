/* How often each rule decided, added up over the lives of the proxy, whatever it says. */
#include "net/proxyctl_tally.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void say(struct pc_tally *t, const char *json)
{
	CLEANUP_JS struct js *j = js_parse(json, strlen(json), NULL);

	assert_non_null(j);
	pc_tally_read(t, j);
}

static void has(const struct pc_tally *t, const char *want)
{
	CLEANUP_JS struct js *list = pc_tally_list(t);
	CLEANUP_FREE char *text = js_print(list);

	assert_string_equal(text, want);
}

static void test_lives(void **state)
{
	CLEANUP(pc_tally_finish) struct pc_tally t = {0};

	(void)state;
	pc_tally_read(&t, NULL);
	has(&t, "[]");
	say(&t, "{\"a.app:1 Allow=x\":{\"allowed\":3,\"denied\":0}}");
	say(&t, "{\"a.app:1 "
		"Allow=x\":{\"allowed\":5,\"denied\":0},\"default-deny\":{\"allowed\":0,\"denied\":2}}");
	has(&t, "[{\"rule\":\"a.app:1 "
		"Allow=x\",\"allowed\":5,\"denied\":0},{\"rule\":\"default-deny\",\"allowed\":0,"
		"\"denied\":2}]");
	pc_tally_proxy_died(&t);
	say(&t, "{\"default-deny\":{\"allowed\":0,\"denied\":1}}");
	has(&t, "[{\"rule\":\"a.app:1 "
		"Allow=x\",\"allowed\":5,\"denied\":0},{\"rule\":\"default-deny\",\"allowed\":0,"
		"\"denied\":3}]");
}

static void test_nonsense(void **state)
{
	CLEANUP(pc_tally_finish) struct pc_tally t = {0};

	(void)state;
	say(&t, "[1,2]");
	say(&t, "7");
	say(&t, "{\"\":{\"allowed\":1},\"a\\u001b[31m\\n\":{\"allowed\":-5,\"denied\":\"x\"},\"b\":9}");
	has(&t, "[{\"rule\":\"a?[31m?\",\"allowed\":0,\"denied\":0},{\"rule\":\"b\",\"allowed\":0,\"denied\":"
		"0}]");
}

static void test_bound(void **state)
{
	CLEANUP(pc_tally_finish) struct pc_tally t = {0};

	(void)state;
	for (int life = 0; life < 3; life++) {
		CLEANUP_JS struct js *j = js_obj();

		for (int i = 0; i < 1000; i++) {
			CLEANUP_FREE char *name = xasprintf("rule %d", i);
			struct js *one = js_obj();

			js_add_int(one, "denied", 1);
			js_add(j, name, one);
		}
		pc_tally_read(&t, j);
		pc_tally_read(&t, j);
		pc_tally_proxy_died(&t);
	}
	assert_int_equal(t.n, PC_TALLY_MAX + 1);
	assert_string_equal(t.v[PC_TALLY_MAX].rule, PC_TALLY_OTHERS);
	assert_int_equal(t.v[PC_TALLY_MAX].denied_0, 3 * (1000 - PC_TALLY_MAX));
	assert_int_equal(t.v[0].denied_0, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lives),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
