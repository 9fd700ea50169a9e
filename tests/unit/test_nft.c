/* The rules of transparent capture, as messages: whole, bounded, and saying what they should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/nft.h"
#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct found {
	uint16_t type, flags;
	uint8_t family;
	char expressions[256]; /* names, each followed by a space */
};

static int note_expression(const struct nlattr *a, void *data)
{
	struct found *f = data;

	if (mnl_attr_get_type(a) == NFTA_EXPR_NAME) {
		(void)strcat(f->expressions, mnl_attr_get_str(a));
		(void)strcat(f->expressions, " ");
	}
	return MNL_CB_OK;
}

static int each_expression(const struct nlattr *a, void *data)
{
	assert_int_equal(mnl_attr_get_type(a), NFTA_LIST_ELEM);
	return mnl_attr_parse_nested(a, note_expression, data);
}

static int each_attribute(const struct nlattr *a, void *data)
{
	if (mnl_attr_get_type(a) == NFTA_RULE_EXPRESSIONS)
		return mnl_attr_parse_nested(a, each_expression, data);
	return MNL_CB_OK;
}

static size_t read_batch(const char *buf, size_t len, struct found *found, size_t max)
{
	int left = (int)len;
	size_t n = 0;

	for (const struct nlmsghdr *h = (const void *)buf; mnl_nlmsg_ok(h, left);
	     h = mnl_nlmsg_next(h, &left)) {
		const struct nfgenmsg *g = mnl_nlmsg_get_payload(h);

		assert_true(n < max);
		found[n] = (struct found){
			.type = h->nlmsg_type, .flags = h->nlmsg_flags, .family = g->nfgen_family};
		assert_int_equal(h->nlmsg_seq, n + 1);
		if (h->nlmsg_type == (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWRULE))
			assert_int_equal(mnl_attr_parse(h, sizeof *g, each_attribute, &found[n]), MNL_CB_OK);
		n++;
	}
	assert_int_equal(left, 0);
	return n;
}

static const char rule4[] =
	"meta cmp payload bitwise cmp payload cmp payload cmp payload cmp cmp immediate immediate tproxy ";
static const char rule6[] =
	"meta cmp payload bitwise cmp payload cmp payload cmp cmp immediate immediate tproxy ";

static void check_family(const struct found *f, uint8_t family, const char *expressions, bool last)
{
	static const uint16_t types[] = {NFT_MSG_NEWTABLE, NFT_MSG_NEWCHAIN, NFT_MSG_NEWRULE};

	for (int i = 0; i < 3; i++) {
		assert_int_equal(f[i].type, NFNL_SUBSYS_NFTABLES << 8 | types[i]);
		assert_int_equal(f[i].family, family);
		assert_int_equal(!!(f[i].flags & NLM_F_ACK), last && i == 2); /* one answer for all */
		assert_true(f[i].flags & NLM_F_CREATE);
	}
	assert_string_equal(f[2].expressions, expressions);
}

static void test_batch(void **state)
{
	_Alignas(struct nlmsghdr) char buf[NFT_BATCH_MAX];
	struct found f[16];
	size_t len;

	(void)state;
	memset(buf, 0xff, sizeof buf); /* nothing may depend on what was there */
	len = nft_tproxy_batch(buf, true);
	assert_true(len < NFT_BATCH_MAX / 2 + NFT_BATCH_MAX / 4);
	for (size_t i = len; i < sizeof buf; i++)
		assert_int_equal((unsigned char)buf[i], 0xff);
	assert_int_equal(read_batch(buf, len, f, 16), 8);
	assert_int_equal(f[0].type, NFNL_MSG_BATCH_BEGIN);
	check_family(f + 1, NFPROTO_IPV4, rule4, false);
	check_family(f + 4, NFPROTO_IPV6, rule6, true);
	assert_int_equal(f[7].type, NFNL_MSG_BATCH_END);
}

static void test_without_ipv6(void **state)
{
	_Alignas(struct nlmsghdr) char buf[NFT_BATCH_MAX];
	struct found f[16];

	(void)state;
	assert_int_equal(read_batch(buf, nft_tproxy_batch(buf, false), f, 16), 5);
	check_family(f + 1, NFPROTO_IPV4, rule4, true);
}

/* Without the capability the kernel says no, and that is what comes back. */
static void test_refused(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0) {
		if (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0)
			_exit(2);
		_exit(nft_tproxy(true) == -1 && (errno == EPERM || errno == EPROTONOSUPPORT) ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_batch),
		cmocka_unit_test(test_without_ipv6),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
