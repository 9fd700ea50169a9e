#include "policy/local.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>
#include <string.h>

#define REMEMBER_MS 1000
#define REMOTE      64 /* a power of two */
#define DRAIN       64 /* messages read in a row */

static struct mnl_socket *netlink;
static uint32_t sequence;

/* linux/rtnetlink.h, rtnetlink(7): all that can make an address local, or send it another way. */
static const unsigned groups[] = {
	RTNLGRP_LINK,       RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV4_ROUTE,
	RTNLGRP_IPV6_ROUTE, RTNLGRP_IPV4_RULE,   RTNLGRP_IPV6_RULE,   RTNLGRP_NEXTHOP,
};
static struct mnl_socket *changes; /* NULL: nothing is remembered */
static struct {
	struct addr addr;
	int64_t until_ms;
} remote[REMOTE];

static bool join_groups(struct mnl_socket *s)
{
	for (size_t i = 0; i < ELEMENTS(groups); i++) {
		unsigned group = groups[i];

		if (mnl_socket_setsockopt(s, NETLINK_ADD_MEMBERSHIP, &group, sizeof group) < 0)
			return false;
	}
	return true;
}

/* A kernel that cannot report one of them: all is asked for each time. */
static void changes_open(void)
{
	changes = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC | SOCK_NONBLOCK);
	/* without an address of its own the kernel takes it for the sender of what the kernel sends itself */
	if (changes && (mnl_socket_bind(changes, 0, MNL_SOCKET_AUTOPID) < 0 || !join_groups(changes))) {
		(void)mnl_socket_close(changes);
		changes = NULL;
	}
}

/* Anything but "nothing came" counts: ENOBUFS says that more came than the socket holds. */
static void forget_when_changed(void)
{
	char message[16]; /* the rest of it is of no interest */

	for (int i = 0; i < DRAIN; i++) {
		ssize_t n = recv(mnl_socket_get_fd(changes), message, sizeof message, MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0 && errno == EINTR)
			continue;
		memset(remote, 0, sizeof remote);
	}
}

static size_t slot(const struct addr *a)
{
	uint32_t h = 0, word;

	for (size_t i = 0; i < (a->family == AF_INET ? 4u : 16u); i += sizeof word) {
		memcpy(&word, a->v6.s6_addr + i, sizeof word);
		h = (h ^ word) * 0x9e3779b1u; /* Knuth's multiplicative hash: no more than which slot it is */
	}
	return h >> 16 & (REMOTE - 1);
}

static bool known_remote(const struct addr *a)
{
	const struct addr *known = &remote[slot(a)].addr;

	if (!changes)
		return false;
	forget_when_changed();
	return known->family == a->family && a->family != AF_UNSPEC &&
	       memcmp(&known->v6, &a->v6, a->family == AF_INET ? 4 : 16) == 0 &&
	       clk_mono_ms() < remote[slot(a)].until_ms;
}

static void remember(const struct addr *a)
{
	remote[slot(a)].addr = *a;
	remote[slot(a)].until_ms = clk_mono_ms() + REMEMBER_MS;
}

int local_open(struct err **e)
{
	/* The answer is always there at once; this is against hanging for ever should it not be. */
	const struct timeval limit = {.tv_sec = 1};

	netlink = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
	if (!netlink || mnl_socket_bind(netlink, 0, MNL_SOCKET_AUTOPID) < 0)
		return err_sys(e, errno,
			       "a netlink socket, needed to tell this machine's addresses, cannot be made");
	(void)setsockopt(mnl_socket_get_fd(netlink), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	changes_open();
	return 0;
}

/* The kernel answers within sendto(), so the answer is there when it returns. */
static int ask(const struct addr *a, char *buf, size_t cap)
{
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct rtmsg *r;
	ssize_t n;

	h->nlmsg_type = RTM_GETROUTE;
	h->nlmsg_flags = NLM_F_REQUEST;
	h->nlmsg_seq = ++sequence;
	r = mnl_nlmsg_put_extra_header(h, sizeof *r);
	r->rtm_family = (unsigned char)a->family;
	r->rtm_dst_len = a->family == AF_INET ? 32 : 128;
	mnl_attr_put(h, RTA_DST, a->family == AF_INET ? 4 : 16, &a->v4);
	if (mnl_socket_sendto(netlink, h, h->nlmsg_len) < 0)
		return -1;
	do
		n = mnl_socket_recvfrom(netlink, buf, cap);
	while ((n < 0 && errno == EINTR) ||
	       (n >= (ssize_t)sizeof *h && ((struct nlmsghdr *)(void *)buf)->nlmsg_seq != sequence));
	return n < 0 || !mnl_nlmsg_ok((struct nlmsghdr *)(void *)buf, (int)n) ? -1 : 0;
}

static enum route route_of_error(int errnum)
{
	/* fib_lookup() gives these for no route and for unreachable, prohibit and blackhole routes */
	return errnum == ENETUNREACH || errnum == EHOSTUNREACH || errnum == EACCES || errnum == EINVAL ||
			       errnum == EAFNOSUPPORT || errnum == EOPNOTSUPP
		       ? ROUTE_NONE
		       : ROUTE_LOCAL;
}

static enum route ask_route(const struct addr *a)
{
	char buf[8192] __attribute__((aligned(NLMSG_ALIGNTO)));
	const struct nlmsghdr *h = (const struct nlmsghdr *)(const void *)buf;
	const struct rtmsg *r;

	if (ask(a, buf, sizeof buf) < 0)
		return ROUTE_LOCAL;
	if (h->nlmsg_type == NLMSG_ERROR) {
		const struct nlmsgerr *e = mnl_nlmsg_get_payload(h);

		return mnl_nlmsg_get_payload_len(h) >= sizeof *e ? route_of_error(-e->error) : ROUTE_LOCAL;
	}
	if (h->nlmsg_type != RTM_NEWROUTE || mnl_nlmsg_get_payload_len(h) < sizeof *r)
		return ROUTE_LOCAL;
	r = mnl_nlmsg_get_payload(h);
	switch (r->rtm_type) {
	case RTN_UNICAST:
		return ROUTE_REMOTE;
	case RTN_UNREACHABLE:
	case RTN_BLACKHOLE:
	case RTN_PROHIBIT:
		return ROUTE_NONE;
	default:
		return ROUTE_LOCAL;
	}
}

static enum route route_one(const struct addr *a)
{
	enum route r;

	if (known_remote(a))
		return ROUTE_REMOTE;
	r = ask_route(a);
	if (r == ROUTE_REMOTE && changes)
		remember(a);
	return r;
}

void local_unmap(struct addr *a)
{
	struct addr v4 = {.family = AF_INET};

	if (a->family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&a->v6))
		return;
	memcpy(&v4.v4, a->v6.s6_addr + 12, 4);
	*a = v4;
}

/* The IPv4 address that a translator or tunnel would make of it; RFC 6052 2.1, RFC 3056 2, RFC 4291 2.5.5. */
static bool embedded_v4(const struct addr *a, struct addr *ret)
{
	static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b};
	static const uint8_t nat64_local[6] = {0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}; /* RFC 8215 */
	static const uint8_t compatible[12] = {0};
	const uint8_t *b = a->v6.s6_addr;

	if (a->family != AF_INET6)
		return false;
	memset(ret, 0, sizeof *ret);
	ret->family = AF_INET;
	if (b[0] == 0x20 && b[1] == 0x02)
		memcpy(&ret->v4, b + 2, 4);
	else if (!memcmp(b, nat64, sizeof nat64) || !memcmp(b, compatible, sizeof compatible) ||
		 !memcmp(b, nat64_local, sizeof nat64_local))
		memcpy(&ret->v4, b + 12, 4);
	else
		return false;
	return true;
}

enum route local_route(const struct addr *a)
{
	struct addr dialled = *a, v4;

	local_unmap(&dialled);
	if (embedded_v4(&dialled, &v4) && route_one(&v4) == ROUTE_LOCAL)
		return ROUTE_LOCAL;
	return route_one(&dialled);
}
