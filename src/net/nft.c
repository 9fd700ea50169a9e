#include "net/nft.h"
#include "base/cleanup.h"
#include "net/net.h"
#include "net/netlink.h"
#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <stddef.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#define TABLE "sbxsv"
#define CHAIN "capture"

enum { PRIORITY = -150 }; /* mangle, NF_IP_PRI_MANGLE; where tproxy rules belong, before routing is asked */

struct batch {
	char *buf;
	size_t len;
	uint32_t seq;
	struct nlmsghdr *h; /* being written */
};

static void message(struct batch *b, uint16_t type, uint16_t flags, uint8_t family, uint16_t res_id)
{
	struct nfgenmsg *g;

	b->h = mnl_nlmsg_put_header(b->buf + b->len);
	b->h->nlmsg_type = type;
	b->h->nlmsg_flags = NLM_F_REQUEST | flags;
	b->h->nlmsg_seq = ++b->seq;
	g = mnl_nlmsg_put_extra_header(b->h, sizeof *g);
	g->nfgen_family = family;
	g->version = NFNETLINK_V0;
	g->res_id = htons(res_id);
}

static void message_end(struct batch *b)
{
	b->len += MNL_ALIGN(b->h->nlmsg_len);
}

static void edge(struct batch *b, uint16_t type)
{
	message(b, type, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
	message_end(b);
}

static void be32(struct batch *b, uint16_t type, uint32_t v)
{
	mnl_attr_put_u32(b->h, type, htonl(v));
}

/* --- expressions of a rule: an element of the list, with a name and its data --- */

struct expression {
	struct nlattr *element, *data;
};

static struct expression begin(struct batch *b, const char *name)
{
	struct expression x;

	x.element = mnl_attr_nest_start(b->h, NFTA_LIST_ELEM);
	mnl_attr_put_strz(b->h, NFTA_EXPR_NAME, name);
	x.data = mnl_attr_nest_start(b->h, NFTA_EXPR_DATA);
	return x;
}

static void end(struct batch *b, struct expression x)
{
	mnl_attr_nest_end(b->h, x.data);
	mnl_attr_nest_end(b->h, x.element);
}

static void value(struct batch *b, uint16_t type, const void *v, size_t len)
{
	struct nlattr *n = mnl_attr_nest_start(b->h, type);

	mnl_attr_put(b->h, NFTA_DATA_VALUE, len, v);
	mnl_attr_nest_end(b->h, n);
}

static void load_protocol(struct batch *b)
{
	struct expression x = begin(b, "meta");

	be32(b, NFTA_META_DREG, NFT_REG_1);
	be32(b, NFTA_META_KEY, NFT_META_L4PROTO);
	end(b, x);
}

static void load_bytes(struct batch *b, enum nft_payload_bases base, size_t offset, size_t len)
{
	struct expression x = begin(b, "payload");

	be32(b, NFTA_PAYLOAD_DREG, NFT_REG_1);
	be32(b, NFTA_PAYLOAD_BASE, base);
	be32(b, NFTA_PAYLOAD_OFFSET, (uint32_t)offset);
	be32(b, NFTA_PAYLOAD_LEN, (uint32_t)len);
	end(b, x);
}

static void mask_byte(struct batch *b, uint8_t mask)
{
	struct expression x = begin(b, "bitwise");
	const uint8_t zero = 0;

	be32(b, NFTA_BITWISE_SREG, NFT_REG_1);
	be32(b, NFTA_BITWISE_DREG, NFT_REG_1);
	be32(b, NFTA_BITWISE_LEN, sizeof mask);
	value(b, NFTA_BITWISE_MASK, &mask, sizeof mask);
	value(b, NFTA_BITWISE_XOR, &zero, sizeof zero);
	end(b, x);
}

/* The rule ends here for a packet that does not compare like this. */
static void go_on_if(struct batch *b, enum nft_cmp_ops op, const void *v, size_t len)
{
	struct expression x = begin(b, "cmp");

	be32(b, NFTA_CMP_SREG, NFT_REG_1);
	be32(b, NFTA_CMP_OP, op);
	value(b, NFTA_CMP_DATA, v, len);
	end(b, x);
}

static void constant(struct batch *b, uint32_t reg, const void *v, size_t len)
{
	struct expression x = begin(b, "immediate");

	be32(b, NFTA_IMMEDIATE_DREG, reg);
	value(b, NFTA_IMMEDIATE_DATA, v, len);
	end(b, x);
}

static void tproxy(struct batch *b, uint8_t family, const void *address, size_t len)
{
	const uint16_t port = htons(NET_TPROXY_PORT);
	struct expression x;

	constant(b, NFT_REG_1, address, len);
	constant(b, NFT_REG_2, &port, sizeof port);
	x = begin(b, "tproxy");
	be32(b, NFTA_TPROXY_FAMILY, family);
	be32(b, NFTA_TPROXY_REG_ADDR, NFT_REG_1);
	be32(b, NFTA_TPROXY_REG_PORT, NFT_REG_2);
	end(b, x);
}

/* --- table, chain, rule --- */

static void table_and_chain(struct batch *b, uint8_t family)
{
	struct nlattr *hook;

	message(b, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWTABLE, NLM_F_CREATE, family, 0);
	mnl_attr_put_strz(b->h, NFTA_TABLE_NAME, TABLE);
	message_end(b);
	message(b, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWCHAIN, NLM_F_CREATE, family, 0);
	mnl_attr_put_strz(b->h, NFTA_CHAIN_TABLE, TABLE);
	mnl_attr_put_strz(b->h, NFTA_CHAIN_NAME, CHAIN);
	hook = mnl_attr_nest_start(b->h, NFTA_CHAIN_HOOK);
	be32(b, NFTA_HOOK_HOOKNUM, NF_INET_PRE_ROUTING);
	be32(b, NFTA_HOOK_PRIORITY, (uint32_t)PRIORITY);
	mnl_attr_nest_end(b->h, hook);
	mnl_attr_put_strz(b->h, NFTA_CHAIN_TYPE, "filter");
	message_end(b);
}

/* TCP, and a SYN alone: what follows finds its socket by itself, because every address is local here. So an
 * answer of the app to a client of its port, whose address is any, is never taken for a connection. */
static void match_new_tcp(struct batch *b)
{
	static const uint8_t tcp = IPPROTO_TCP, syn = TH_SYN;

	load_protocol(b);
	go_on_if(b, NFT_CMP_EQ, &tcp, sizeof tcp);
	load_bytes(b, NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1); /* RFC 9293 3.1: the flags */
	mask_byte(b, TH_SYN | TH_ACK | TH_RST | TH_FIN);
	go_on_if(b, NFT_CMP_EQ, &syn, sizeof syn);
}

/* Port 53 has listeners of its own, on every address; a connection to port 0 would be an accepted socket
 * without a port. */
static void match_port(struct batch *b)
{
	static const uint8_t dns[2] = {0, 53}, none[2];

	load_bytes(b, NFT_PAYLOAD_TRANSPORT_HEADER, 2, sizeof dns);
	go_on_if(b, NFT_CMP_NEQ, dns, sizeof dns);
	go_on_if(b, NFT_CMP_NEQ, none, sizeof none);
}

static void rule_v4(struct batch *b)
{
	static const uint8_t loopback = 127;
	struct in_addr proxy, to;

	(void)inet_pton(AF_INET, NET_PROXY_ADDRESS, &proxy);
	(void)inet_pton(AF_INET, NET_TPROXY_ADDRESS, &to);
	load_bytes(b, NFT_PAYLOAD_NETWORK_HEADER, offsetof(struct iphdr, daddr), 1);
	go_on_if(b, NFT_CMP_NEQ, &loopback, 1);
	load_bytes(b, NFT_PAYLOAD_NETWORK_HEADER, offsetof(struct iphdr, daddr), sizeof proxy);
	go_on_if(b, NFT_CMP_NEQ, &proxy, sizeof proxy);
	match_port(b);
	tproxy(b, NFPROTO_IPV4, &to, sizeof to);
}

static void rule_v6(struct batch *b)
{
	const struct in6_addr loopback = IN6ADDR_LOOPBACK_INIT;
	struct in6_addr to;

	(void)inet_pton(AF_INET6, NET_TPROXY_ADDRESS6, &to);
	load_bytes(b, NFT_PAYLOAD_NETWORK_HEADER, offsetof(struct ip6_hdr, ip6_dst), sizeof loopback);
	go_on_if(b, NFT_CMP_NEQ, &loopback, sizeof loopback);
	match_port(b);
	tproxy(b, NFPROTO_IPV6, &to, sizeof to);
}

static void rule(struct batch *b, uint8_t family, bool last)
{
	struct nlattr *list;

	message(b, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWRULE,
		NLM_F_CREATE | NLM_F_APPEND | (last ? NLM_F_ACK : 0), family, 0);
	mnl_attr_put_strz(b->h, NFTA_RULE_TABLE, TABLE);
	mnl_attr_put_strz(b->h, NFTA_RULE_CHAIN, CHAIN);
	list = mnl_attr_nest_start(b->h, NFTA_RULE_EXPRESSIONS);
	match_new_tcp(b);
	if (family == NFPROTO_IPV4)
		rule_v4(b);
	else
		rule_v6(b);
	mnl_attr_nest_end(b->h, list);
	message_end(b);
}

size_t nft_tproxy_batch(char buf[NFT_BATCH_MAX], bool v6)
{
	struct batch b = {.buf = buf};

	edge(&b, NFNL_MSG_BATCH_BEGIN);
	table_and_chain(&b, NFPROTO_IPV4);
	rule(&b, NFPROTO_IPV4, !v6);
	if (v6) {
		table_and_chain(&b, NFPROTO_IPV6);
		rule(&b, NFPROTO_IPV6, true);
	}
	edge(&b, NFNL_MSG_BATCH_END);
	return b.len;
}

/* The errors of a batch and the acknowledgement of its last rule are queued before send() returns. 1: it was
 * acknowledged and nothing was refused. */
static int answers(int sock)
{
	_Alignas(struct nlmsghdr) char buf[8192];
	int done = 0;
	ssize_t n;

	while ((n = recv(sock, buf, sizeof buf, MSG_DONTWAIT)) > 0) {
		int len = (int)n;

		for (const struct nlmsghdr *h = (const void *)buf; mnl_nlmsg_ok(h, len);
		     h = mnl_nlmsg_next(h, &len)) {
			const struct nlmsgerr *e = mnl_nlmsg_get_payload(h);

			if (h->nlmsg_type != NLMSG_ERROR || mnl_nlmsg_get_payload_len(h) < sizeof e->error)
				continue;
			if (e->error) {
				errno = -e->error;
				return -1;
			}
			done = 1;
		}
	}
	if (n < 0 && errno != EAGAIN)
		return -1;
	return done;
}

int nft_tproxy(bool v6)
{
	_Alignas(struct nlmsghdr) char buf[NFT_BATCH_MAX];
	size_t len = nft_tproxy_batch(buf, v6);
	CLEANUP_FD int s = nl_open(NETLINK_NETFILTER);
	int r;

	if (s < 0 || send(s, buf, len, 0) < 0)
		return -1;
	r = answers(s);
	if (r == 0)
		errno = EPROTO; /* no answer at all: not a kernel we know */
	return r > 0 ? 0 : -1;
}
