/* events: format, folding, floods, memory, restarts, a file that cannot be written. */
#include "base/clock.h"
#include "base/file.h"
#include "trace/events.h"
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

struct world {
	char top[64], dir[80];
	struct loop *loop;
	struct events *ev;
	struct strv seen, apps;
};

static int rm_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)st;
	(void)type;
	(void)f;
	return remove(path);
}

static int setup(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);

	(void)snprintf(w->top, sizeof w->top, "/tmp/sbxsv-events-XXXXXX");
	assert_non_null(mkdtemp(w->top));
	(void)snprintf(w->dir, sizeof w->dir, "%s/state", w->top);
	w->loop = loop_create(0);
	w->ev = events_create(w->loop, w->dir, NULL);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	events_destroy(w->ev);
	loop_destroy(w->loop);
	strv_clear(&w->seen);
	strv_clear(&w->apps);
	assert_int_equal(nftw(w->top, rm_one, 16, FTW_DEPTH | FTW_PHYS), 0);
	free(w);
	return 0;
}

static void on_event(void *data, const char *json, size_t len, const char *app)
{
	struct world *w = data;

	strv_take(&w->seen, xstrndup(json, len));
	strv_add(&w->apps, app ? app : "(none)");
}

static void emit(struct world *w, const char *app, const char *host, int pid, int count)
{
	struct js *j = js_obj();

	if (count != 1)
		js_add_int(j, "count", count);
	js_add_str(j, "app", app);
	js_add_str(j, "type", "violation");
	js_add_str(j, "operation", "connect");
	js_add_int(j, "pid", pid);
	js_add_str(j, "host", host);
	js_add_int(j, "port", 443);
	js_add_str(j, "rule", "default-deny");
	js_add_str(j, "action", "denied");
	events_emit(w->ev, j);
}

static void emit_violation(struct world *w, const char *app, const char *host, int pid)
{
	emit(w, app, host, pid, 1);
}

static void emit_counted(struct world *w, const char *app, const char *host, int count)
{
	emit(w, app, host, 1, count);
}

static void break_loop(struct loop_timer *t)
{
	loop_break(t->loop);
}

static void run_for(struct world *w, int64_t ms)
{
	struct loop_timer t;

	loop_timer_init(w->loop, &t, break_loop, NULL);
	loop_timer_start(&t, ms);
	loop_run(w->loop);
}

static char *file_text(struct world *w)
{
	char *text = NULL;

	return file_read(AT_FDCWD, events_path(w->ev), 64 << 20, &text, NULL, NULL) < 0 ? xstrdup("") : text;
}

static void test_format(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *text = NULL;
	CLEANUP_JS struct js *j = NULL;

	(void)events_subscribe(w->ev, on_event, w);
	events_note(w->ev, "state", "notes", "line\nbreak \x1b[31m %d", 41);
	text = file_text(w);
	assert_true(str_starts(text, "{\"seq\":1,\"timestamp\":\"2"));
	assert_true(str_ends(text, "\"}\n"));
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
	assert_null(strchr(text, 0x1b));
	j = js_parse(text, strlen(text) - 1, NULL);
	assert_non_null(j);
	assert_string_equal(js_str(j, "app"), "notes");
	assert_string_equal(js_str(j, "type"), "state");
	assert_string_equal(js_str(j, "message"), "line\nbreak \x1b[31m 41");
	assert_int_equal(strlen(js_str(j, "timestamp")), 24);
	assert_int_equal(w->seen.n, 1);
	assert_memory_equal(text, w->seen.v[0], strlen(w->seen.v[0]));
	events_note(w->ev, "supervisor", NULL, "started");
	assert_string_equal(w->apps.v[0], "notes");
	assert_string_equal(w->apps.v[1], "(none)");
}

static void test_repeats_are_counted_not_repeated(void **state)
{
	struct world *w = *state;
	CLEANUP_JS struct js *j = NULL;

	(void)events_subscribe(w->ev, on_event, w);
	for (int i = 0; i < 1000; i++)
		emit_violation(w, "a", "x.com", 100 + i); /* another pid is no other event */
	emit_violation(w, "a", "y.com", 1);
	emit_violation(w, "b", "x.com", 1);
	assert_int_equal(w->seen.n, 3);
	run_for(w, 1300);
	assert_int_equal(w->seen.n, 4);
	j = js_parse(w->seen.v[3], strlen(w->seen.v[3]), NULL);
	assert_int_equal(js_int_or(j, "count", 0), 999);
	assert_string_equal(js_str(j, "host"), "x.com");
	assert_string_equal(js_str(j, "app"), "a");
	assert_int_equal(events_dropped(w->ev), 0);
	/* the next one after the second is written again */
	emit_violation(w, "a", "x.com", 1);
	assert_int_equal(w->seen.n, 5);
}

/* sbxsv-proxy folds by itself: its events may stand for many. None may get lost, whichever second they fall
 * into. */
static void test_repeats_that_come_with_a_count_are_added_up(void **state)
{
	struct world *w = *state;
	CLEANUP_JS struct js *first = NULL, *rest = NULL;

	(void)events_subscribe(w->ev, on_event, w);
	emit_counted(w, "a", "x.com", 40);
	emit_counted(w, "a", "x.com", 500);
	emit_violation(w, "a", "x.com", 1);
	run_for(w, 1300);
	assert_int_equal(w->seen.n, 2);
	first = js_parse(w->seen.v[0], strlen(w->seen.v[0]), NULL);
	rest = js_parse(w->seen.v[1], strlen(w->seen.v[1]), NULL);
	assert_int_equal(js_int_or(first, "count", 0), 40);
	assert_int_equal(js_int_or(rest, "count", 0), 501);
	assert_ptr_equal(strstr(strstr(w->seen.v[1], "\"count\"") + 1, "\"count\""), NULL);
	for (int i = 0; i < EVENTS_APP_RATE; i++) {
		CLEANUP_FREE char *host = xasprintf("h%d.example", i);

		emit_violation(w, "b", host, 1);
	}
	emit_counted(w, "b", "(other targets)", 9000);
	assert_int_equal(events_dropped(w->ev), 9000);
}

static void test_states_are_never_folded(void **state)
{
	struct world *w = *state;

	(void)events_subscribe(w->ev, on_event, w);
	for (int i = 0; i < 100; i++)
		events_note(w->ev, "state", "a", "running");
	assert_int_equal(w->seen.n, 100);
}

static void test_one_apps_flood_is_bounded_and_leaves_the_others_alone(void **state)
{
	struct world *w = *state;
	CLEANUP_JS struct js *last = NULL, *all = NULL, *drop = NULL;

	events_note(w->ev, "state", "quiet", "running");
	(void)events_subscribe(w->ev, on_event, w);
	for (int i = 0; i < 20000; i++) {
		CLEANUP_FREE char *host = xasprintf("h%d.example", i);

		emit_violation(w, "flood", host, 1);
	}
	assert_int_equal(w->seen.n, EVENTS_APP_RATE);
	assert_int_equal(events_dropped(w->ev), 20000 - EVENTS_APP_RATE);
	run_for(w, 1300);
	assert_int_equal(w->seen.n, EVENTS_APP_RATE + 1);
	drop = js_parse(w->seen.v[EVENTS_APP_RATE], strlen(w->seen.v[EVENTS_APP_RATE]), NULL);
	assert_int_equal(js_int_or(drop, "dropped", 0), 20000 - EVENTS_APP_RATE);
	assert_string_equal(js_str(drop, "app"), "flood");
	last = events_last(w->ev, "quiet", 10);
	assert_int_equal(js_len(last), 1);
	all = events_last(w->ev, NULL, 100000);
	assert_int_equal(js_len(all), 1 + EVENTS_APP_LINES);
	for (size_t i = 1; i < js_len(all); i++)
		assert_true(js_int_or(js_at(all, i - 1), "seq", 0) < js_int_or(js_at(all, i), "seq", 0));
}

static void test_last(void **state)
{
	struct world *w = *state;
	CLEANUP_JS struct js *last = NULL;

	for (int i = 0; i < 10; i++)
		events_note(w->ev, "state", i % 2 ? "odd" : "even", "%d", i);
	last = events_last(w->ev, "odd", 2);
	assert_int_equal(js_len(last), 2);
	assert_string_equal(js_str(js_at(last, 0), "message"), "7");
	assert_string_equal(js_str(js_at(last, 1), "message"), "9");
	js_free(TAKE_PTR(last));
	last = events_last(w->ev, "nobody", 2);
	assert_int_equal(js_len(last), 0);
}

static void test_seq_and_memory_go_on_after_a_restart(void **state)
{
	struct world *w = *state;
	CLEANUP_JS struct js *last = NULL;
	int fd;

	events_note(w->ev, "state", "a", "one");
	emit_violation(w, "a", "x.com", 1);
	emit_violation(w, "a", "x.com", 1);
	events_destroy(w->ev); /* writes what is folded: seq 3 */
	{
		CLEANUP_FREE char *path = xasprintf("%s/" EVENTS_FILE, w->dir);

		fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	}
	assert_int_equal(write(fd, "{\"seq\":9,\"broken", 16), 16); /* a crash in the middle */
	(void)close(fd);
	w->ev = events_create(w->loop, w->dir, NULL);
	events_note(w->ev, "state", "a", "two");
	last = events_last(w->ev, "a", 10);
	assert_int_equal(js_len(last), 4);
	assert_string_equal(js_str(js_at(last, 0), "message"), "one");
	assert_int_equal(js_int_or(js_at(last, 2), "count", 0), 1);
	assert_int_equal(js_int_or(js_at(last, 3), "seq", 0), 4);
}

static void test_nonsense_is_dropped_and_counted(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *big = xmalloc(EVENTS_LINE_MAX + 1);
	struct js *j = js_obj();

	(void)events_subscribe(w->ev, on_event, w);
	memset(big, 'x', EVENTS_LINE_MAX);
	big[EVENTS_LINE_MAX] = 0;
	events_note(w->ev, "state", "a", "%s", big);
	js_add_str(j, "app", "a");
	events_emit(w->ev, j);
	assert_int_equal(w->seen.n, 0);
	assert_int_equal(events_dropped(w->ev), 2);
}

static void test_an_unwritable_file_is_counted_and_mended(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *text = NULL;
	CLEANUP_JS struct js *mark = NULL;
	int fd = open(w->dir, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	(void)close(fd);
	(void)events_subscribe(w->ev, on_event, w);
	events_note(w->ev, "state", "a", "lost");
	assert_int_equal(w->seen.n, 1); /* the stream has it */
	assert_int_equal(events_dropped(w->ev), 1);
	assert_non_null(events_error(w->ev));
	assert_int_equal(unlink(w->dir), 0);
	events_note(w->ev, "state", "a", "kept");
	text = file_text(w);
	mark = js_parse(text, (size_t)(strchr(text, '\n') - text), NULL);
	assert_int_equal(js_int_or(mark, "dropped", 0), 1);
	assert_non_null(js_str(mark, "error"));
	assert_non_null(strstr(text, "\"kept\""));
}

struct both {
	struct world *w;
	struct events_sub *me, *other;
};

static void leave(void *data, const char *json, size_t len, const char *app)
{
	struct both *b = data;

	(void)json;
	(void)len;
	(void)app;
	events_unsubscribe(b->me);
	events_unsubscribe(b->other);
	events_note(b->w->ev, "log", "a", "from inside"); /* and emits */
}

static void test_subscribers_may_leave_and_emit_inside(void **state)
{
	struct world *w = *state;
	struct both b = {.w = w};

	b.me = events_subscribe(w->ev, leave, &b);
	b.other = events_subscribe(w->ev, on_event, w);
	(void)events_subscribe(w->ev, on_event, w);
	events_note(w->ev, "state", "a", "x");
	events_note(w->ev, "state", "a", "y");
	assert_int_equal(w->seen.n, 3);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_format),
		T(test_repeats_are_counted_not_repeated),
		T(test_repeats_that_come_with_a_count_are_added_up),
		T(test_states_are_never_folded),
		T(test_one_apps_flood_is_bounded_and_leaves_the_others_alone),
		T(test_last),
		T(test_seq_and_memory_go_on_after_a_restart),
		T(test_nonsense_is_dropped_and_counted),
		T(test_an_unwritable_file_is_counted_and_mended),
		T(test_subscribers_may_leave_and_emit_inside),
	};

	return cmocka_run_group_tests_name("events", tests, NULL, NULL);
}
