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
	has(&t, "[{\"rule\":\"default-deny\",\"allowed\":0,\"denied\":2},{\"rule\":\"a.app:1 "
		"Allow=x\",\"allowed\":5,"
		"\"denied\":0}]");
	pc_tally_proxy_died(&t);
	say(&t, "{\"a.app:1 Allow=x\":{\"allowed\":1,\"denied\":0}}");
	has(&t, "[{\"rule\":\"a.app:1 "
		"Allow=x\",\"allowed\":6,\"denied\":0},{\"rule\":\"default-deny\",\"allowed\":0,"
		"\"denied\":2}]");
	/* forgotten and begun again in the same life */
	say(&t, "{\"a.app:1 Allow=x\":{\"allowed\":4,\"denied\":0}}");
	say(&t, "{\"a.app:1 Allow=x\":{\"allowed\":2,\"denied\":0}}");
	assert_int_equal(t.v[0].allowed_0 + t.v[0].allowed, 11);
}

static void test_nonsense(void **state)
{
	CLEANUP(pc_tally_finish) struct pc_tally t = {0};

	(void)state;
	say(&t, "[1,2]");
	say(&t, "7");
	say(&t, "{\"\":{\"allowed\":1},\"a\\u001b[31m\\n\":{\"allowed\":-5,\"denied\":\"x\"},\"b\":9}");
	has(&t, "[{\"rule\":\"b\",\"allowed\":0,\"denied\":0},{\"rule\":\"a?[31m?\",\"allowed\":0,\"denied\":"
		"0}]");
}

static void test_bound(void **state)
{
	CLEANUP(pc_tally_finish) struct pc_tally t = {0};

	(void)state;
	for (int i = 0; i < 1000; i++) {
		CLEANUP_FREE char *text = xasprintf("{\"rule %d\":{\"denied\":2,\"allowed\":1}}", i);

		say(&t, text);
	}
	assert_int_equal(t.n, PC_TALLY_MAX);
	assert_string_equal(t.v[0].rule, "rule 999");
	assert_int_equal(t.denied, 2 * (1000 - PC_TALLY_MAX));
	say(&t, "{\"rule 950\":{\"denied\":3,\"allowed\":1}}"); /* used: it is the last to go now */
	assert_string_equal(t.v[0].rule, "rule 950");
	assert_int_equal(t.n, PC_TALLY_MAX);
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
