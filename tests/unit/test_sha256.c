/* The examples of FIPS 180-4 and of NIST's CAVP, and every way to cut a text. */
#include "base/sha256.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void is(const char *text, size_t len, size_t part, const char *want)
{
	uint8_t sum[SHA256_BYTES];
	char hex[2 * SHA256_BYTES + 1];
	struct sha256 s;

	sha256_init(&s);
	for (size_t at = 0; at < len; at += part)
		sha256_add(&s, text + at, len - at < part ? len - at : part);
	sha256_end(&s, sum);
	for (size_t i = 0; i < sizeof sum; i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", sum[i]);
	assert_string_equal(hex, want);
}

static void test_examples(void **state)
{
	static char million[1000000];

	(void)state;
	is("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	is("abc", 3, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	is("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, 56,
	   "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
	memset(million, 'a', sizeof million);
	is(million, sizeof million, 4096, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void test_pieces(void **state)
{
	static const char text[] =
		"The quick brown fox jumps over the lazy dog; and then once more, because it is fun to jump.";

	(void)state;
	for (size_t part = 1; part < 70; part++)
		is("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrl"
		   "mnopqrsmnopqrstnopqrstu",
		   112, part, "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
	for (size_t len = 0; len + 1 < sizeof text;
	     len++) { /* around the ends of a block: as a whole and byte by byte */
		uint8_t a[SHA256_BYTES], b[SHA256_BYTES];
		struct sha256 s;

		sha256_init(&s);
		sha256_add(&s, text, len);
		sha256_end(&s, a);
		sha256_init(&s);
		for (size_t i = 0; i < len; i++)
			sha256_add(&s, text + i, 1);
		sha256_end(&s, b);
		assert_memory_equal(a, b, sizeof a);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_examples), cmocka_unit_test(test_pieces)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
