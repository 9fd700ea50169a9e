/* host_canon: the one canonical form of a host name. */
#include "policy/policy.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void good(const char *text, const char *want)
{
	char out[HOST_MAX] = "";

	assert_int_equal(host_canon(text, strlen(text), out, NULL), 0);
	assert_string_equal(out, want);
	assert_int_equal(host_canon(out, strlen(out), out, NULL),
			 0); /* canonical is a fixed point, in place too */
	assert_string_equal(out, want);
}

static void bad_n(const char *text, size_t len)
{
	char out[HOST_MAX] = "untouched";
	CLEANUP_ERR struct err *e = NULL;

	if (host_canon(text, len, out, &e) == 0)
		fail_msg("accepted: %.*s", (int)len, text);
	assert_string_equal(out, "untouched");
	assert_true(strlen(err_msg(e)) > 10);
}

static void test_good(void **state)
{
	(void)state;
	good("x.com", "x.com");
	good("API.X.Com", "api.x.com");
	good("x.com.", "x.com");
	good("_dmarc.x.com", "_dmarc.x.com");
	good("xn--bcher-kva.example", "xn--bcher-kva.example");
	good("localhost", "localhost");
	good("1.2.3.4.nip.io", "1.2.3.4.nip.io");
	good("0x.com", "0x.com");
	good("a--b.c", "a--b.c");
	good("4chan.org", "4chan.org");
	good("x.4you", "x.4you");
}

static void test_bad(void **state)
{
	static const char *const bad[] = {
		"",
		".",
		"..",
		".x.com",
		"x..com",
		"x.com..",
		"-x.com",
		"x-.com",
		"x.-com",
		"x.com-",
		"x com",
		" x.com",
		"x.com ",
		"x.com\n",
		"x.com\r",
		"x\tcom",
		"x%2ecom",
		"x.com:443",
		"[x.com]",
		"u@x.com",
		"x.com/",
		"x\\com",
		"x.com#",
		"x.com?",
		"*.x.com",
		"x.com\x7f",
		"\x01x.com",
		"b\303\274cher.example",
		"x\343\200\202com",
		"x\357\274\216com",
		"\xef\xbb\xbfx.com",
		"x.com\xa0",
		"x|y.com",
		"x,y.com",
		"127.0.0.1",
		"127.1",
		"127.0.0.1.",
		"0x7f.1",
		"0x7f000001",
		"0X7F.0.0.1",
		"2130706433",
		"0",
		"1.2.3.4.5",
		"x.123",
		"x.0x1f",
		"x.0x",
		"::1",
		"fe80::1%eth0",
		"017700000001",
		"1.2.3.08",
	};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		bad_n(bad[i], strlen(bad[i]));
	bad_n("x.com\0.y.com", 12);
	bad_n("x.com\0", 6);
}

static void test_lengths(void **state)
{
	char text[512], out[HOST_MAX];

	(void)state;
	memset(text, 'a', sizeof text);
	memcpy(text + 63, ".b", 2);
	assert_int_equal(host_canon(text, 65, out, NULL), 0);
	bad_n("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.b", 66);
	for (size_t i = 0; i < sizeof text; i++)
		text[i] = i % 50 == 49 ? '.' : 'a';
	assert_int_equal(host_canon(text, 253, out, NULL), 0);
	assert_int_equal(strlen(out), 253);
	text[253] = '.';
	assert_int_equal(host_canon(text, 254, out, NULL), 0);
	text[253] = 'a';
	bad_n(text, 254);
	bad_n(text, 512);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_lengths),
	};

	return cmocka_run_group_tests_name("host", tests, NULL, NULL);
}
