/* The life of observers, with a listener that nobody calls. What they see is tested in jails: tests/it/test_observer.py. */
#include "trace/observer.h"
#include "base/str.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <cmocka.h>

enum { MANY = 16, GUARD_MS = 60000 };

static unsigned decide(const void *judge, const char *path)
{
	(void)judge;
	(void)path;
	return 0;
}

static void words(const void *judge, const char *app, unsigned op, const char *path, bool exists, bool dir,
		  char **ret_rule, char **ret_hint)
{
	(void)judge;
	(void)app;
	(void)op;
	(void)path;
	(void)exists;
	(void)dir;
	(void)ret_rule;
	(void)ret_hint;
	fail();
}

static void gone(void *judge)
{
	++*(unsigned *)judge;
}

static void event(void *data, struct js *event)
{
	(void)data;
	js_free(event);
	fail();
}

static void lost(void *data, uint64_t n)
{
	(void)data;
	(void)n;
	fail();
}

static struct observer *create(struct loop *l, unsigned *n_gone)
{
	struct observer_config c = {.listener = eventfd(0, EFD_CLOEXEC),
				    .root = open("/", O_PATH | O_CLOEXEC),
				    .mntns = open("/", O_PATH | O_CLOEXEC),
				    .diag = open("/", O_PATH | O_CLOEXEC),
				    .app = "a",
				    .program = "/bin/true",
				    .uid = (uid_t)-1,
				    .judge = n_gone,
				    .decide = decide,
				    .words = words,
				    .gone = gone,
				    .event = event,
				    .lost = lost};
	CLEANUP_ERR struct err *e = NULL;
	struct observer *o = observer_create(l, &c, &e);

	assert_non_null(o);
	return o;
}

static void test_all_is_gone_at_the_end(void **state)
{
	struct loop *l = loop_create(0);
	struct observer *o[MANY];
	unsigned n_gone = 0;

	(void)state;
	for (size_t i = 0; i < MANY; i++)
		o[i] = create(l, &n_gone);
	for (size_t i = 0; i < MANY; i++)
		observer_destroy(o[i], 0); /* most of their ears are in poll(2) still */
	observer_finish(GUARD_MS);
	assert_int_equal(n_gone, MANY);
	observer_finish(GUARD_MS);
	assert_int_equal(n_gone, MANY);
	loop_destroy(l);
}

static void check(struct loop_timer *t)
{
	if (*(unsigned *)t->data == MANY)
		loop_break(t->loop);
	else
		loop_timer_start(t, 1);
}

/* Without it the loop frees them, and nothing is left for it. */
static void test_or_from_the_loop(void **state)
{
	struct loop *l = loop_create(0);
	unsigned n_gone = 0;
	struct loop_timer t;

	(void)state;
	for (size_t i = 0; i < MANY; i++)
		observer_destroy(create(l, &n_gone), 0);
	loop_timer_init(l, &t, check, &n_gone);
	loop_timer_start(&t, 1);
	loop_run(l);
	observer_finish(GUARD_MS);
	assert_int_equal(n_gone, MANY);
	loop_destroy(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_is_gone_at_the_end),
		cmocka_unit_test(test_or_from_the_loop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
