/* The store of what apps were refused, system calls as data, and what is not worth a word. */
#include "trace/call.h"
#include "trace/observer_internal.h"
#include "trace/refused.h"
#include <asm/unistd.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void add(struct refused *r, const char *app, const char *path, int64_t count, int64_t at)
{
	CLEANUP_JS struct js *j = js_obj();

	js_add_str(j, "app", app);
	js_add_str(j, "type", "violation");
	js_add_str(j, "operation", "file-read");
	js_add_str(j, "path", path);
	js_add_str(j, "rule", "nothing grants it");
	js_add_int(j, "pid", at);
	if (count > 1)
		js_add_int(j, "count", count);
	refused_add(r, j, at);
}

static void test_counts(void **state)
{
	struct refused *r = refused_create();
	CLEANUP_JS struct js *all = NULL, *late = NULL, *other = NULL;

	(void)state;
	add(r, "a", "/x", 1, 1000);
	add(r, "a", "/y", 3, 2000);
	add(r, "b", "/x", 1, 2500);
	add(r, "a", "/x", 5, 3000);
	refused_lost(r, "a", 7);
	assert_int_equal(refused_total(r, "a"), 9);
	assert_int_equal(refused_lost_of(r, "a"), 7);
	assert_int_equal(refused_total(r, "nobody"), 0);
	all = refused_list(r, NULL, 0, 10);
	assert_int_equal(js_len(all), 3);
	assert_string_equal(js_str(js_at(all, 0), "path"), "/x"); /* newest first */
	assert_int_equal(js_int_or(js_at(all, 0), "count", 0), 6);
	assert_int_equal(js_int_or(js_at(all, 0), "pid", 0), 3000); /* who did it last */
	assert_string_equal(js_str(js_at(all, 0), "first"), "1970-01-01T00:00:01.000Z");
	assert_string_equal(js_str(js_at(all, 0), "last"), "1970-01-01T00:00:03.000Z");
	assert_null(js_get(js_at(all, 0), "type"));
	assert_string_equal(js_str(js_at(all, 1), "app"), "b");
	late = refused_list(r, "a", 2001, 10);
	assert_int_equal(js_len(late), 1);
	refused_forget(r, "a");
	refused_forget(r, "a");
	other = refused_list(r, NULL, 0, 1);
	assert_int_equal(js_len(other), 1);
	assert_int_equal(refused_total(r, "a"), 0);
	refused_destroy(r);
}

/* However many kinds there are, and however long their names. */
static void test_bounds(void **state)
{
	struct refused *r = refused_create();
	CLEANUP_JS struct js *list = NULL, *big = NULL;
	char path[9000];

	(void)state;
	for (int i = 0; i < 5000; i++) {
		(void)snprintf(path, sizeof path, "/x/%d", i);
		add(r, "a", path, 1, i);
	}
	list = refused_list(r, "a", 0, 100000);
	assert_int_equal(js_len(list), REFUSED_KINDS);
	assert_string_equal(js_str(js_at(list, 0), "path"), "/x/4999");
	assert_int_equal(refused_total(r, "a"), 5000);
	memset(path, 'a', sizeof path - 1);
	path[sizeof path - 1] = 0;
	for (int i = 0; i < 100; i++) {
		path[1] = (char)('a' + i % 26);
		path[2] = (char)('a' + i / 26);
		add(r, "b", path, 1, i);
	}
	big = refused_list(r, "b", 0, 100000);
	assert_true(js_len(big) > 0 && js_len(big) * sizeof path <= REFUSED_BYTES + sizeof path);
	for (int i = 0; i < REFUSED_APPS + 10; i++) {
		(void)snprintf(path, sizeof path, "app%d", i);
		add(r, path, "/x", 1, 10000 + i);
	}
	assert_int_equal(refused_total(r, "a"), 0); /* longest silent */
	assert_int_equal(refused_total(r, path), 1);
	refused_destroy(r);
}

static struct call decoded(int nr, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, int want)
{
	struct seccomp_data data = {.nr = nr, .args = {a, b, c, d, e}};
	struct call out[CALL_PATHS_MAX] = {0};

	assert_int_equal(call_decode(&data, out), want);
	return out[want ? want - 1 : 0];
}

static void test_calls(void **state)
{
	struct call c;

	(void)state;
	c = decoded(__NR_openat, 5, 100, O_RDONLY, 0, 0, 1);
	assert_true(c.kind == CALL_READ && c.follow && !c.creates && c.dirfd == 5 && c.path == 100);
	c = decoded(__NR_openat, (uint64_t)AT_FDCWD, 100, O_RDWR | O_CREAT | O_NOFOLLOW, 0, 0, 1);
	assert_true(c.kind == CALL_WRITE && !c.follow && c.creates && c.dirfd == AT_FDCWD);
	c = decoded(__NR_openat, 5, 100, O_WRONLY | O_CREAT | O_EXCL, 0, 0, 1);
	assert_true(c.kind == CALL_MAKE && !c.follow);
	c = decoded(__NR_openat, 5, 100, O_RDONLY | O_TRUNC, 0, 0, 1);
	assert_true(c.kind == CALL_WRITE);
	c = decoded(__NR_openat, 5, 100, O_TMPFILE | O_RDWR, 0, 0, 1);
	assert_true(c.kind == CALL_WRITE && !c.creates);
	(void)decoded(__NR_openat, 5, 100, O_PATH, 0, 0, 0);
	(void)decoded(__NR_read, 5, 100, 10, 0, 0, 0);
	c = decoded(__NR_renameat2, 3, 100, 4, 200, 0, 2);
	assert_true(c.kind == CALL_MAKE && c.creates && c.dirfd == 4 && c.path == 200 && !c.follow);
	c = decoded(__NR_linkat, 3, 100, 4, 200, AT_SYMLINK_FOLLOW, 2);
	assert_true(c.kind == CALL_MAKE && !c.creates && c.path == 200);
	c = decoded(__NR_symlinkat, 100, 3, 200, 0, 0, 1);
	assert_true(c.kind == CALL_MAKE && c.dirfd == 3 && c.path == 200);
	c = decoded(__NR_fchownat, 3, 100, 0, 0, AT_SYMLINK_NOFOLLOW, 1);
	assert_true(c.kind == CALL_WRITE && !c.follow);
	c = decoded(__NR_execve, 100, 0, 0, 0, 0, 1);
	assert_true(c.kind == CALL_EXEC && c.follow && c.dirfd == AT_FDCWD && c.path == 100);
	c = decoded(__NR_connect, 7, 100, 16, 0, 0, 1);
	assert_true(c.kind == CALL_CONNECT && c.dirfd == 7 && c.len == 16);
}

static void test_habits(void **state)
{
	(void)state;
	assert_true(look_is_habit(OBSERVED_UNIX, "/run/nscd/socket"));
	assert_true(look_is_habit(OBSERVED_READ, "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"));
	assert_true(look_is_habit(OBSERVED_WRITE, "/home/a/lib/__pycache__/x.pyc"));
	assert_false(look_is_habit(OBSERVED_READ, "/home/a/lib/__pycache__/x.pyc"));
	assert_false(look_is_habit(OBSERVED_READ, "/sys/kernelx"));
	assert_false(look_is_habit(OBSERVED_UNIX, "/run/user/1000/bus"));
	assert_false(look_is_habit(OBSERVED_READ, "/home/a/.ssh/id"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts), cmocka_unit_test(test_bounds),
					   cmocka_unit_test(test_calls), cmocka_unit_test(test_habits)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
