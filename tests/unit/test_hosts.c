/* The hosts file: what counts as a line with a name, and when it is read again. */
#include "proxy/hosts.h"
#include "base/cleanup.h"
#include "base/str.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char path[64];

static void put(const char *text, size_t len)
{
	static unsigned written;
	int fd;

	/* another file each time, as an editor makes: the clock of a file system is too coarse to tell two writes apart */
	(void)unlink(path);
	(void)snprintf(path, sizeof path, "/tmp/test-hosts-%d-%u", (int)getpid(), written++);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, len), len);
	close(fd);
}
#define PUT(text) put(text, sizeof(text) - 1)

static void expect(const char *host, const char *want)
{
	struct addr v[4];
	size_t n = hosts_find(path, host, v, ELEMENTS(v));
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
	char text[INET6_ADDRSTRLEN];

	for (size_t i = 0; i < n && i < ELEMENTS(v); i++) {
		addr_format(&v[i], text);
		strbuf_addf(&b, "%s%s", i ? " " : "", text);
	}
	assert_string_equal(b.p ? b.p : "", want);
}

static void test_lines(void **state)
{
	(void)state;
	PUT("127.0.0.1\tlocalhost\n"
	    "# 1.1.1.1 comment.test\n"
	    "1.1.1.2 a.test b.test # c.test\n"
	    "  1.1.1.3\t \tTabs.Test\tmore.test  \n"
	    "1.1.1.4 crlf.test\r\n"
	    "::1 six.test\n"
	    "2a0e::1 six.test a.test\n"
	    "1.1.1.2 a.test\n"
	    "fe80::1%lo zone.test\n"
	    "not-an-address x.test\n"
	    "1.2.3 x.test\n"
	    "010.1.1.1 x.test\n"
	    "1.1.1.5 glued.test#comment\n"
	    "1.1.1.6\n"
	    "\n"
	    "y.test\n"
	    "1.1.1.7 last.test");
	expect("localhost", "127.0.0.1");
	expect("a.test", "1.1.1.2 2a0e::1");
	expect("b.test", "1.1.1.2");
	expect("tabs.test", "1.1.1.3");
	expect("more.test", "1.1.1.3");
	expect("crlf.test", "1.1.1.4");
	expect("six.test", "::1 2a0e::1");
	expect("glued.test", "1.1.1.5");
	expect("last.test", "1.1.1.7");
	expect("c.test", "");
	expect("comment.test", "");
	expect("zone.test", "");
	expect("x.test", "");
	expect("y.test", "");
	expect("test", "");
	expect(".test", "");
	expect("st.tes", "");
	expect("six.test.more", "");
	expect("1.1.1.6", "");
}

static void test_odd_files(void **state)
{
	(void)state;
	PUT("");
	expect("a.test", "");
	PUT("a.test");
	expect("a.test", "");
	PUT("1.1.1.1 a.test\0 b.test\n1.1.1.2 b.test\n");
	expect("a.test", "");
	expect("b.test", "1.1.1.2");
	PUT("1.1.1.1 a.test 1.1.1.1\n\n\n   \n#\n");
	expect("a.test", "1.1.1.1");
	(void)unlink(path);
	expect("a.test", "");
	assert_int_equal(mkdir(path, 0700), 0);
	expect("a.test", "");
	assert_int_equal(rmdir(path), 0);
}

static void test_changes(void **state)
{
	int fd;

	(void)state;
	PUT("1.1.1.1 a.test\n");
	expect("a.test", "1.1.1.1");
	fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	assert_int_equal(write(fd, "1.1.1.2 a.test\n", 15), 15);
	close(fd);
	expect("a.test", "1.1.1.1 1.1.1.2");
	PUT("1.1.1.3 a.test\n");
	expect("a.test", "1.1.1.3");
	(void)unlink(path);
	expect("a.test", "");
}

static void test_many(void **state)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
	struct addr v[4];

	(void)state;
	for (unsigned i = 0; i < 100000; i++)
		strbuf_addf(&b, "0.0.0.0 ad%u.blocked.test\n", i);
	for (unsigned i = 1; i < 10; i++)
		strbuf_addf(&b, "1.1.1.%u many.test\n", i);
	put(b.p, b.len);
	expect("ad99999.blocked.test", "0.0.0.0");
	expect("d99999.blocked.test", "");
	expect("blocked.test", "");
	assert_int_equal(hosts_find(path, "many.test", v, ELEMENTS(v)), 9);
	strbuf_reset(&b);
	while (b.len <= HOSTS_BYTES_MAX)
		strbuf_adds(&b, "1.1.1.1 a.test                                                        \n");
	put(b.p, b.len);
	expect("a.test", "");
	(void)unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_lines), cmocka_unit_test(test_odd_files),
					   cmocka_unit_test(test_changes), cmocka_unit_test(test_many)};

	return cmocka_run_group_tests_name("hosts", tests, NULL, NULL);
}
