/* The real file system behind plan code: bounded, no symlink followed, sockets asked without disturbing
 * anybody. */
#include "sandbox/plan.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <cmocka.h>

static char dir[] = "/tmp/sbxsv-test-plan-XXXXXX";

static char *in(const char *name)
{
	return xasprintf("%s/%s", dir, name);
}

static int setup(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_all(void **state)
{
	CLEANUP_FREE char *command = xasprintf("rm -rf %s", dir);

	(void)state;
	return system(command) == 0 ? 0 : -1;
}

static void put_file(const char *name, const char *text)
{
	CLEANUP_FREE char *path = in(name);
	CLEANUP_FILE FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
}

static int bound(const char *name, int type)
{
	CLEANUP_FREE char *path = in(name);
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	assert_true(strlen(path) < sizeof a.sun_path);
	(void)strcpy(a.sun_path, path);
	assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof a), 0);
	if (type != SOCK_DGRAM)
		assert_int_equal(listen(fd, 4), 0);
	return fd;
}

static void test_head(void **state)
{
	struct plan_fs fs = plan_fs_real();
	CLEANUP_FREE char *file = in("file"), *link = in("link"), *fifo = in("fifo"), *text = NULL;

	(void)state;
	put_file("file", "0123456789");
	assert_int_equal(symlink(file, link), 0);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	text = fs.head(fs.data, file, 4);
	assert_string_equal(text, "0123");
	free(text);
	text = fs.head(fs.data, file, 100);
	assert_string_equal(text, "0123456789");
	assert_null(fs.head(fs.data, link, 100));
	assert_int_equal(errno, ELOOP);
	assert_null(fs.head(fs.data, fifo, 100)); /* at once, though nobody writes */
	assert_null(fs.head(fs.data, dir, 100));
}

static void test_list_and_scan(void **state)
{
	struct plan_fs fs = plan_fs_real();
	CLEANUP_STRV struct strv names = {0}, dirs = {0}, specials = {0};
	CLEANUP_FREE char *sub = in("tree/sub"), *tree = in("tree"), *link = in("tree/link"),
			  *fifo = in("tree/fifo");
	CLEANUP_FREE char *to_tree = in("to-tree"), *slashes = in("tree//");
	CLEANUP_FD int sock = -1;

	(void)state;
	assert_int_equal(mkdir(tree, 0700), 0);
	assert_int_equal(mkdir(sub, 0700), 0);
	assert_int_equal(symlink(sub, link), 0);
	assert_int_equal(symlink(tree, to_tree), 0);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	put_file("tree/file", "x");
	sock = bound("tree/sock", SOCK_STREAM);
	assert_int_equal(fs.list(fs.data, slashes, &names), 0);
	assert_int_equal(names.n, 5);
	assert_true(strv_has(&names, "link"));
	assert_int_equal(fs.scan(fs.data, tree, &dirs, &specials), 0);
	assert_int_equal(dirs.n, 1);
	assert_string_equal(dirs.v[0], "sub");
	assert_int_equal(specials.n, 2);
	assert_true(strv_has(&specials, "fifo"));
	assert_true(strv_has(&specials, "sock"));
	assert_int_equal(fs.scan(fs.data, to_tree, &dirs, &specials), -1);
	assert_int_equal(fs.list(fs.data, to_tree, &names), -1);
}

/* A listener hears nothing of the question: no connection waits, no datagram arrives. */
static void test_socket_live(void **state)
{
	static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM};
	struct plan_fs fs = plan_fs_real();

	(void)state;
	for (size_t i = 0; i < ELEMENTS(types); i++) {
		CLEANUP_FREE char *name = xasprintf("live%zu", i), *path = in(name);
		int fd = bound(name, types[i]);
		char byte;

		assert_true(fs.socket_live(fs.data, path));
		if (types[i] == SOCK_DGRAM)
			assert_int_equal(recv(fd, &byte, 1, 0), -1);
		else
			assert_int_equal(accept(fd, NULL, NULL), -1);
		assert_int_equal(errno, EAGAIN);
		assert_int_equal(close(fd), 0);
		assert_false(fs.socket_live(fs.data, path));
	}
}

/* Of each kind, however many there are, and by their whole name; nothing abstract, and none that is gone. */
static void test_bound(void **state)
{
	enum { MANY = 700 }; /* more than one message of the kernel holds */
	struct plan_fs fs = plan_fs_real();
	CLEANUP_STRV struct strv all = {0}, after = {0};
	struct sockaddr_un abstract = {.sun_family = AF_UNIX, .sun_path = "\0/test_plan_fs"};
	int fd[MANY], other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)state;
	(void)bind(other, (const struct sockaddr *)&abstract, sizeof abstract);
	for (int i = 0; i < MANY; i++) {
		CLEANUP_FREE char *name = xasprintf("bound %d", i);

		fd[i] = bound(name, i % 2 ? SOCK_STREAM : SOCK_DGRAM);
	}
	assert_int_equal(fs.bound(fs.data, &all), 0);
	for (int i = 0; i < MANY; i++) {
		CLEANUP_FREE char *name = xasprintf("bound %d", i), *path = in(name);

		assert_true(strv_has(&all, path));
		assert_int_equal(close(fd[i]), 0);
	}
	for (size_t i = 0; i < all.n; i++)
		assert_true(all.v[i][0] == '/');
	assert_false(strv_has(&all, "/test_plan_fs"));
	assert_int_equal(fs.bound(fs.data, &after), 0);
	for (int i = 0; i < MANY; i++) {
		CLEANUP_FREE char *name = xasprintf("bound %d", i), *path = in(name);

		assert_false(strv_has(&after, path));
	}
	assert_int_equal(close(other), 0);
}

/* What cannot be told counts as alive. */
static void test_socket_unknown(void **state)
{
	struct plan_fs fs = plan_fs_real();
	CLEANUP_FREE char *absent = in("nothing-here");

	(void)state;
	assert_true(fs.socket_live(fs.data, absent));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_head),           cmocka_unit_test(test_list_and_scan),
		cmocka_unit_test(test_socket_live),    cmocka_unit_test(test_bound),
		cmocka_unit_test(test_socket_unknown),
	};

	return cmocka_run_group_tests(tests, setup, remove_all);
}
