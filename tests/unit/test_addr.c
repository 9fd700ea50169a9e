/* host_parse_addr, addr_classify and friends. */
#include "policy/policy.h"
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const struct {
	const char *text;
	enum addr_class class;
} classes[] = {
	/* both edges of every block, and the neighbours outside */
	{"0.0.0.0", ADDR_UNSPECIFIED},
	{"0.0.0.1", ADDR_RESERVED},
	{"0.255.255.255", ADDR_RESERVED},
	{"1.0.0.0", ADDR_PUBLIC},
	{"9.255.255.255", ADDR_PUBLIC},
	{"10.0.0.0", ADDR_PRIVATE},
	{"10.255.255.255", ADDR_PRIVATE},
	{"11.0.0.0", ADDR_PUBLIC},
	{"100.63.255.255", ADDR_PUBLIC},
	{"100.64.0.0", ADDR_PRIVATE},
	{"100.100.100.200", ADDR_METADATA},
	{"100.127.255.255", ADDR_PRIVATE},
	{"100.128.0.0", ADDR_PUBLIC},
	{"126.255.255.255", ADDR_PUBLIC},
	{"127.0.0.0", ADDR_LOOPBACK},
	{"127.255.255.255", ADDR_LOOPBACK},
	{"128.0.0.0", ADDR_PUBLIC},
	{"168.63.129.15", ADDR_PUBLIC},
	{"168.63.129.16", ADDR_METADATA},
	{"169.253.255.255", ADDR_PUBLIC},
	{"169.254.0.0", ADDR_LINK_LOCAL},
	{"169.254.169.254", ADDR_LINK_LOCAL},
	{"169.255.0.0", ADDR_PUBLIC},
	{"172.15.255.255", ADDR_PUBLIC},
	{"172.16.0.0", ADDR_PRIVATE},
	{"172.31.255.255", ADDR_PRIVATE},
	{"172.32.0.0", ADDR_PUBLIC},
	{"191.255.255.255", ADDR_PUBLIC},
	{"192.0.0.0", ADDR_RESERVED},
	{"192.0.0.192", ADDR_METADATA},
	{"192.0.0.255", ADDR_RESERVED},
	{"192.0.1.0", ADDR_PUBLIC},
	{"192.0.2.255", ADDR_RESERVED},
	{"192.0.3.0", ADDR_PUBLIC},
	{"192.31.196.7", ADDR_RESERVED},
	{"192.52.193.7", ADDR_RESERVED},
	{"192.88.99.1", ADDR_RESERVED},
	{"192.167.255.255", ADDR_PUBLIC},
	{"192.168.0.0", ADDR_PRIVATE},
	{"192.168.255.255", ADDR_PRIVATE},
	{"192.169.0.0", ADDR_PUBLIC},
	{"192.175.48.7", ADDR_RESERVED},
	{"198.17.255.255", ADDR_PUBLIC},
	{"198.18.0.0", ADDR_RESERVED},
	{"198.19.255.255", ADDR_RESERVED},
	{"198.20.0.0", ADDR_PUBLIC},
	{"198.51.100.1", ADDR_RESERVED},
	{"203.0.113.1", ADDR_RESERVED},
	{"223.255.255.255", ADDR_PUBLIC},
	{"224.0.0.0", ADDR_MULTICAST},
	{"239.255.255.255", ADDR_MULTICAST},
	{"240.0.0.0", ADDR_RESERVED},
	{"255.255.255.255", ADDR_RESERVED},
	{"::", ADDR_UNSPECIFIED},
	{"::1", ADDR_LOOPBACK},
	{"::2", ADDR_RESERVED},
	{"::ffff:8.8.8.8", ADDR_PUBLIC},
	{"::ffff:127.0.0.1", ADDR_LOOPBACK},
	{"::ffff:a9fe:a9fe", ADDR_LINK_LOCAL},
	{"::ffff:0.0.0.0", ADDR_UNSPECIFIED},
	{"::127.0.0.1", ADDR_LOOPBACK},
	{"::10.0.0.1", ADDR_PRIVATE},
	{"::8.8.8.8", ADDR_RESERVED},
	{"::fffe:127.0.0.1", ADDR_RESERVED},
	{"64:ff9b::8.8.8.8", ADDR_PUBLIC},
	{"64:ff9b::127.0.0.1", ADDR_LOOPBACK},
	{"64:ff9b::10.0.0.1", ADDR_PRIVATE},
	{"64:ff9b::169.254.169.254", ADDR_LINK_LOCAL},
	{"64:ff9b:1::8.8.8.8", ADDR_RESERVED},
	{"64:ff9b:0:1::8.8.8.8", ADDR_RESERVED},
	{"100::1", ADDR_RESERVED},
	{"1fff::1", ADDR_RESERVED},
	{"2001::1", ADDR_RESERVED},
	{"2001:0:4136:e378:8000:63bf:3fff:fdd2", ADDR_RESERVED},
	{"2001:20::1", ADDR_RESERVED},
	{"2001:1ff:ffff::", ADDR_RESERVED},
	{"2001:200::1", ADDR_PUBLIC},
	{"2001:db7:ffff::1", ADDR_PUBLIC},
	{"2001:db8::1", ADDR_RESERVED},
	{"2001:db9::1", ADDR_PUBLIC},
	{"2002:7f00:1::", ADDR_LOOPBACK},
	{"2002:a00:1::1", ADDR_PRIVATE},
	{"2002:a9fe:a9fe::", ADDR_LINK_LOCAL},
	{"2002:808:808::1", ADDR_PUBLIC},
	{"2606:2800:220:1:248:1893:25c8:1946", ADDR_PUBLIC},
	{"2620:4f:8000::1", ADDR_RESERVED},
	{"3ffe::1", ADDR_PUBLIC},
	{"3fff::1", ADDR_RESERVED},
	{"3fff:1000::1", ADDR_PUBLIC},
	{"4000::1", ADDR_RESERVED},
	{"5f00::1", ADDR_RESERVED},
	{"fbff::1", ADDR_RESERVED},
	{"fc00::", ADDR_PRIVATE},
	{"fd00:ec2::254", ADDR_METADATA},
	{"fd20:ce::254", ADDR_METADATA},
	{"fdff:ffff::1", ADDR_PRIVATE},
	{"fe00::1", ADDR_RESERVED},
	{"fe80::", ADDR_LINK_LOCAL},
	{"febf:ffff::1", ADDR_LINK_LOCAL},
	{"fec0::1", ADDR_RESERVED},
	{"ff02::1", ADDR_MULTICAST},
};

static void test_classes(void **state)
{
	(void)state;
	for (size_t i = 0; i < ELEMENTS(classes); i++) {
		struct addr a = {0};
		enum addr_class c;

		if (strchr(classes[i].text, ':')) { /* not host_parse_addr: it unmaps */
			a.family = AF_INET6;
			assert_int_equal(inet_pton(AF_INET6, classes[i].text, &a.v6), 1);
		} else {
			assert_int_equal(host_parse_addr(classes[i].text, strlen(classes[i].text), &a), 0);
		}
		c = addr_classify(&a);
		if (c != classes[i].class)
			fail_msg("%s is %s, want %s", classes[i].text, addr_class_name(c),
				 addr_class_name(classes[i].class));
	}
	assert_int_equal(addr_classify(&(struct addr){.family = AF_UNIX}), ADDR_RESERVED);
}

static void test_parse(void **state)
{
	static const char *const bad[] = {
		"",
		"1",
		"1.2.3",
		"1.2.3.4.5",
		"1.2.3.4.",
		".1.2.3.4",
		"1..3.4",
		"01.2.3.4",
		"1.2.3.04",
		"256.1.1.1",
		"1.2.3.1000",
		"0x1.2.3.4",
		"1.2.3.4 ",
		" 1.2.3.4",
		"+1.2.3.4",
		"1.2.3.-4",
		"1,2.3.4",
		"::1%lo",
		"[::1]",
		"12345::",
		":::",
		"::1 ",
		"1::2::3",
		"::ffff:1.2.3",
		"::ffff:01.2.3.4",
		"::g",
		"x.com",
		"0000:0000:0000:0000:0000:0000:0000:0000:0001",
		"1.2.3.4\n",
	};
	char text[INET6_ADDRSTRLEN];
	struct addr a;

	(void)state;
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		if (host_parse_addr(bad[i], strlen(bad[i]), &a) == 0)
			fail_msg("accepted: %s", bad[i]);
	assert_int_equal(host_parse_addr("1.2.3.4\0", 8, &a), -1);
	assert_int_equal(host_parse_addr("::1\0", 4, &a), -1);
	assert_int_equal(host_parse_addr("::FFFF:7F00:1", 13, &a), 0);
	addr_format(&a, text);
	assert_string_equal(text, "127.0.0.1");
	assert_int_equal(a.family, AF_INET);
	assert_int_equal(host_parse_addr("0000:0000:0000:0000:0000:0000:0000:0001", 39, &a), 0);
	addr_format(&a, text);
	assert_string_equal(text, "::1");
}

/* Every byte in every place, as inet_ntop() writes it. */
static void test_format4(void **state)
{
	(void)state;
	for (unsigned place = 0; place < 4; place++) {
		for (unsigned b = 0; b < 256; b++) {
			struct addr a = {.family = AF_INET};
			char ours[INET6_ADDRSTRLEN], theirs[INET6_ADDRSTRLEN];

			a.v4.s_addr = htonl(0xff000964u ^ b << 8 * place);
			addr_format(&a, ours);
			assert_non_null(inet_ntop(AF_INET, &a.v4, theirs, sizeof theirs));
			assert_string_equal(ours, theirs);
		}
	}
}

static void test_sockaddr(void **state)
{
	struct sockaddr_storage ss;
	struct addr a, b;

	(void)state;
	assert_int_equal(host_parse_addr("192.0.2.7", 9, &a), 0);
	assert_int_equal(addr_to_sockaddr(&a, 443, &ss), sizeof(struct sockaddr_in));
	assert_int_equal(ntohs(((struct sockaddr_in *)&ss)->sin_port), 443);
	addr_from_sockaddr(&b, &ss);
	assert_true(addr_equal(&a, &b));
	assert_int_equal(host_parse_addr("2001:db8::7", 11, &a), 0);
	assert_false(addr_equal(&a, &b));
	assert_int_equal(addr_to_sockaddr(&a, 80, &ss), sizeof(struct sockaddr_in6));
	addr_from_sockaddr(&b, &ss);
	assert_true(addr_equal(&a, &b));
	a = (struct addr){.family = AF_INET6};
	assert_int_equal(inet_pton(AF_INET6, "::ffff:10.1.2.3", &a.v6), 1);
	(void)addr_to_sockaddr(&a, 80, &ss);
	addr_from_sockaddr(&b, &ss);
	assert_int_equal(b.family, AF_INET);
	assert_int_equal(addr_classify(&b), ADDR_PRIVATE);
	memset(&ss, 0, sizeof ss);
	addr_from_sockaddr(&b, &ss);
	assert_int_equal(addr_classify(&b), ADDR_RESERVED);
}

static void test_embedded(void **state)
{
	static const char *const with[] = {"64:ff9b::1.2.3.4", "2002:102:304::5", "::1.2.3.4"};
	struct addr a, in, want;

	(void)state;
	assert_int_equal(host_parse_addr("1.2.3.4", 7, &want), 0);
	for (size_t i = 0; i < ELEMENTS(with); i++) {
		assert_int_equal(host_parse_addr(with[i], strlen(with[i]), &a), 0);
		assert_true(addr_embedded(&a, &in));
		assert_true(addr_equal(&in, &want));
	}
	assert_false(addr_embedded(&want, &in));
	assert_int_equal(host_parse_addr("::1", 3, &a), 0);
	assert_false(addr_embedded(&a, &in));
	assert_int_equal(host_parse_addr("2606::1", 7, &a), 0);
	assert_false(addr_embedded(&a, &in));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_classes),
		cmocka_unit_test(test_parse),
		cmocka_unit_test(test_format4),
		cmocka_unit_test(test_sockaddr),
		cmocka_unit_test(test_embedded),
	};

	return cmocka_run_group_tests_name("addr", tests, NULL, NULL);
}
