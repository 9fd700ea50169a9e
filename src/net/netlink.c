#include "net/netlink.h"
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LO_INDEX = 1 }; /* the loopback device is always the first of a namespace, net/core/dev.c */

struct message {
	struct nlmsghdr head;
	char body[256];
};

static void start(struct message *m, uint16_t type, const void *header, size_t len)
{
	memset(m, 0, sizeof *m);
	m->head.nlmsg_type = type;
	m->head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
	m->head.nlmsg_len = NLMSG_LENGTH((uint32_t)len);
	memcpy(NLMSG_DATA(&m->head), header, len);
}

static void attribute(struct message *m, uint16_t type, const void *data, uint16_t len)
{
	struct rtattr *a = (struct rtattr *)(void *)((char *)m + NLMSG_ALIGN(m->head.nlmsg_len));

	a->rta_type = type;
	a->rta_len = (uint16_t)RTA_LENGTH(len);
	memcpy(RTA_DATA(a), data, len);
	m->head.nlmsg_len = NLMSG_ALIGN(m->head.nlmsg_len) + RTA_ALIGN(a->rta_len);
}

/* Sends one request and waits for its acknowledgement, which the kernel queues before send() returns. */
static int talk(int sock, const struct message *m)
{
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		char echo[sizeof *m];
	} reply;
	ssize_t n;

	if (send(sock, m, m->head.nlmsg_len, 0) < 0)
		return -1;
	do
		n = recv(sock, &reply, sizeof reply, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -1;
	if ((size_t)n < sizeof reply.head + sizeof reply.error.error ||
	    reply.head.nlmsg_type != NLMSG_ERROR) {
		errno = EPROTO;
		return -1;
	}
	if (reply.error.error) {
		errno = -reply.error.error;
		return -1;
	}
	return 0;
}

int nl_open(int protocol)
{
	return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
}

int nl_any_ip(int sock, int family, const struct in_addr *source)
{
	struct rtmsg route = {
		.rtm_family = (unsigned char)family,
		.rtm_table = RT_TABLE_LOCAL,
		.rtm_protocol = RTPROT_STATIC,
		.rtm_scope = family == AF_INET ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE,
		.rtm_type = RTN_LOCAL,
	};
	uint32_t lo = LO_INDEX;
	struct message m;

	start(&m, RTM_NEWROUTE, &route, sizeof route);
	attribute(&m, RTA_OIF, &lo, sizeof lo);
	if (source)
		attribute(&m, RTA_PREFSRC, source, sizeof *source);
	return talk(sock, &m);
}

int nl_add_address4(int sock, struct in_addr address)
{
	struct ifaddrmsg head = {
		.ifa_family = AF_INET,
		.ifa_prefixlen = 32,
		.ifa_scope = RT_SCOPE_UNIVERSE, /* glibc's AI_ADDRCONFIG wants an address that is not
						   host-scoped */
		.ifa_index = LO_INDEX,
	};
	struct message m;

	start(&m, RTM_NEWADDR, &head, sizeof head);
	attribute(&m, IFA_LOCAL, &address, sizeof address);
	attribute(&m, IFA_ADDRESS, &address, sizeof address);
	return talk(sock, &m);
}
