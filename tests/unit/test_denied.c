/* A flood of refusals at full speed: few messages, and the counts of them are exact. */
#include "proxy/denied.h"
#include "proxy/control.h"
#include "proxy/tally.h"
#include "base/clock.h"
#include "base/str.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#define FLOOD 100000

/* --- what denied.c calls: the wire and the timer of the counters are not there --- */

static struct {
	uint64_t messages, refusals, others, of_target, unreachable;
} told;

void control_denied(struct app *a, int kind, const char *host, uint16_t port, const char *rule,
		    const char *hint, uint64_t count)
{
	(void)a;
	(void)port;
	(void)rule;
	(void)hint;
	told.messages++;
	if (kind == DENIED_UNREACHABLE)
		told.unreachable += count;
	told.refusals += count;
	if (str_eq(host, DENIED_OTHERS))
		told.others += count;
	if (str_eq(host, "same.test"))
		told.of_target += count;
}

void app_counted(struct app *a)
{
	(void)a;
}

/* --- */

static struct loop *loop;

static void on_end(struct loop_timer *t)
{
	(void)t;
	loop_break(loop);
}

/* Lets the folding of one second, and the quiet second after it, happen. */
static void settle(void)
{
	struct loop_timer t;

	loop_timer_init(loop, &t, on_end, NULL);
	loop_timer_start(&t, 2200);
	loop_run(loop);
	loop_timer_stop(&t);
}

static void test_flood(void **state)
{
	struct proxy proxy = {.loop = NULL};
	struct app app = {.proxy = &proxy};
	struct denied *d;

	(void)state;
	loop = loop_create(0);
	proxy.loop = loop;
	app.tally = tally_create();
	d = denied_create(&app);
	for (int i = 0; i < FLOOD; i++)
		denied_add(d, "same.test", 443, "default-deny", "Allow=same.test", "default-deny");
	assert_int_equal(told.messages, 1);
	settle();
	assert_int_equal(told.of_target, FLOOD);
	assert_true(told.messages <= 3);
	/* each another name, as an app that tries names would */
	memset(&told, 0, sizeof told);
	for (int i = 0; i < FLOOD; i++) {
		char host[32];

		(void)snprintf(host, sizeof host, "h%d.test", i);
		denied_add(d, host, 443, "default-deny", "", "default-deny");
	}
	assert_true(told.messages <= DENIED_TARGETS);
	settle();
	assert_int_equal(told.refusals, FLOOD);
	assert_true(told.messages <= 2 * DENIED_TARGETS + 2);
	assert_true(told.others >= FLOOD - 2 * DENIED_TARGETS);
	assert_int_equal(app.counters.out_denied, 2 * FLOOD);
	/* what is folded when the app goes is not lost */
	memset(&told, 0, sizeof told);
	for (int i = 0; i < 10; i++)
		denied_add(d, "same.test", 443, "default-deny", "", "default-deny");
	denied_destroy(d);
	assert_int_equal(told.of_target, 10);
	assert_int_equal(app.counters.out_denied, 2 * FLOOD + 10);
	/* what is not reached is told the same way, and is no refusal */
	memset(&told, 0, sizeof told);
	d = denied_create(&app);
	for (int i = 0; i < FLOOD; i++) {
		char host[32];

		(void)snprintf(host, sizeof host, "u%d.test", i);
		denied_add_unreachable(d, i % 2 ? "same.test" : host, 443, "the site cannot be reached");
	}
	denied_destroy(d);
	assert_int_equal(told.unreachable, FLOOD);
	assert_int_equal(told.of_target, FLOOD / 2);
	assert_true(told.messages <= DENIED_TARGETS + 2);
	assert_int_equal(app.counters.out_denied, 2 * FLOOD + 10);
	tally_destroy(app.tally);
	loop_destroy(loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_flood)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
