/* sd_notify messages: what is taken, what is not, and that no bytes make it stumble. */
#include "base/str.h"
#include "monitor/notify.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct notify_message parsed(const char *text)
{
	struct notify_message m;

	assert_true(notify_parse(text, strlen(text), &m));
	return m;
}

static void words(void **state)
{
	struct notify_message m = parsed("READY=1\nWATCHDOG=1\nSTOPPING=1\nRELOADING=1\nMAINPID=1\n");

	(void)state;
	assert_true(m.ready && m.watchdog && m.stopping && m.reloading && m.main_pid);
	assert_false(m.has_status || m.watchdog_trigger);
	assert_int_equal(m.extend_ms, 0);
	m = parsed("WATCHDOG=trigger");
	assert_true(m.watchdog_trigger && !m.watchdog);
	m = parsed("READY=0\nREADY=11\nREADY=\nready=1\nREADY =1\nWATCHDOG=2\nFDSTORE=1\nX=READY=1");
	assert_false(m.ready || m.watchdog || m.watchdog_trigger);
	m = parsed("no line\nREADY=1");
	assert_true(m.ready);
}

static void status_is_bounded_and_printable(void **state)
{
	struct notify_message m = parsed("STATUS=a=b \x1b[31m\nSTATUS=caf\xc3\xa9 \xff");
	char big[4096];

	(void)state;
	assert_string_equal(m.status, "caf\xc3\xa9 \\xff");
	notify_message_finish(&m);
	m = parsed("STATUS=");
	assert_true(m.has_status);
	assert_null(m.status);
	memset(big, 'x', sizeof big);
	memcpy(big, "STATUS=", 7);
	assert_true(notify_parse(big, sizeof big, &m));
	assert_int_equal(strlen(m.status), NOTIFY_STATUS_MAX);
	notify_message_finish(&m);
}

static void extension(void **state)
{
	(void)state;
	assert_int_equal(parsed("EXTEND_TIMEOUT_USEC=5000000").extend_ms, 5000);
	assert_int_equal(parsed("EXTEND_TIMEOUT_USEC=18446744073709551615").extend_ms, NOTIFY_EXTEND_MAX_MS);
	assert_int_equal(parsed("EXTEND_TIMEOUT_USEC=99999999999999999999999999").extend_ms, 0);
	assert_int_equal(parsed("EXTEND_TIMEOUT_USEC=-1").extend_ms, 0);
	assert_int_equal(parsed("EXTEND_TIMEOUT_USEC=").extend_ms, 0);
}

static void no_message(void **state)
{
	static const char *const bad[] = {"", "\n", "READY", "=1", "\n\n=\n"};
	struct notify_message m = {.extend_ms = 77};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		assert_false(notify_parse(bad[i], strlen(bad[i]), &m));
	assert_false(notify_parse("READY=1\0x", 9, &m));
	assert_int_equal(m.extend_ms, 77);
	assert_true(notify_parse("READY=1\0", 8, &m)); /* with the end of a C string */
	assert_true(m.ready);
}

static void any_bytes(void **state)
{
	static const char *const words_of[] = {"READY",
					       "STATUS",
					       "WATCHDOG",
					       "=",
					       "1",
					       "\n",
					       "trigger",
					       "EXTEND_TIMEOUT_USEC",
					       "\x1b",
					       "\xff",
					       "99999999999999999999"};
	(void)state;
	srand(7);
	for (int i = 0; i < 200000; i++) {
		struct strbuf b = STRBUF_INIT;
		struct notify_message m;

		for (int k = rand() % 12; k >= 0; k--) {
			if (rand() % 4)
				strbuf_adds(&b, words_of[(size_t)rand() % ELEMENTS(words_of)]);
			else
				strbuf_addc(&b, (char)rand());
		}
		if (notify_parse(b.p, b.len, &m)) {
			assert_true(m.extend_ms >= 0 && m.extend_ms <= NOTIFY_EXTEND_MAX_MS);
			for (const char *s = m.status; s && *s; s++)
				assert_true(((unsigned char)*s >= 32 && *s != 127) || *s == 9);
			notify_message_finish(&m);
		}
		strbuf_finish(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words),     cmocka_unit_test(status_is_bounded_and_printable),
		cmocka_unit_test(extension), cmocka_unit_test(no_message),
		cmocka_unit_test(any_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
