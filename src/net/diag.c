/* Listening TCP sockets through NETLINK_SOCK_DIAG, sock_diag(7). */
#include "base/fd.h"
#include "net/net.h"
#include "net/netlink.h"
#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

enum { TCP_LISTEN_STATE = 10 }; /* TCP_LISTEN, include/net/tcp_states.h */

struct sink {
	struct net_listener *out;
	size_t max, n;
};

int net_open_diag(struct err **e)
{
	int fd = nl_open(NETLINK_SOCK_DIAG);

	if (fd < 0)
		return err_sys(e, errno, "cannot open a sock_diag socket");
	return fd;
}

/* Listening TCP sockets: all that have this port (0: any), by a dump, or the one that a connection to `to` would meet. */
static int ask(int fd, int family, const void *to, size_t to_len, uint16_t port, uint32_t seq)
{
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 req;
	} m = {
		.head = {.nlmsg_len = sizeof m,
			 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			 .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | (to ? 0 : NLM_F_DUMP)),
			 .nlmsg_seq = seq},
		.req = {.sdiag_family = (uint8_t)family,
			.sdiag_protocol = IPPROTO_TCP,
			.idiag_states = 1u << TCP_LISTEN_STATE,
			.id = {.idiag_sport = htons(port),
			       .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}},
	};
	ssize_t r;

	if (to)
		memcpy(m.req.id.idiag_src, to, to_len);
	do
		r = send(fd, &m, sizeof m, 0);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -1 : 0;
}

static void take(struct sink *s, const struct nlmsghdr *h)
{
	const struct inet_diag_msg *m = NLMSG_DATA(h);
	struct net_listener *l;

	if (h->nlmsg_len < NLMSG_LENGTH(sizeof *m) || s->n >= s->max)
		return;
	l = &s->out[s->n++];
	memset(l, 0, sizeof *l);
	l->family = m->idiag_family;
	memcpy(l->address, m->id.idiag_src, m->idiag_family == AF_INET ? 4 : 16);
	l->port = ntohs(m->id.idiag_sport);
	l->uid = m->idiag_uid;
	l->inode = m->idiag_inode;
}

/* 1: the dump is over; 0: more to come; -1 with errno. Messages of an earlier, broken-off dump are skipped.
 */
static int digest(struct sink *s, const char *buf, size_t len, uint32_t seq)
{
	size_t left = len;

	for (const struct nlmsghdr *h = (const void *)buf; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
		if (h->nlmsg_seq != seq)
			continue;
		if (h->nlmsg_type == NLMSG_DONE)
			return 1;
		if (h->nlmsg_type == NLMSG_ERROR) {
			const struct nlmsgerr *er = NLMSG_DATA(h);

			errno = er->error ? -er->error : EPROTO;
			return -1;
		}
		if (h->nlmsg_type == SOCK_DIAG_BY_FAMILY)
			take(s, h);
	}
	return 0;
}

static int dump(int fd, int family, uint16_t port, struct sink *s)
{
	static uint32_t last_seq;
	uint32_t seq = ++last_seq;
	char buf[16384] __attribute__((aligned(NLMSG_ALIGNTO)));
	int r = 0;

	if (ask(fd, family, NULL, 0, port, seq) < 0)
		return -1;
	while (r == 0) {
		ssize_t n = recv(fd, buf, sizeof buf, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		r = digest(s, buf, (size_t)n, seq);
	}
	return r < 0 ? -1 : 0;
}

/* What a connection to this address and port would meet: 1 a listener, 0 nobody, -1 with errno. */
static int lookup(int fd, int family, const void *to, size_t to_len, uint16_t port, uint32_t seq)
{
	struct {
		struct nlmsghdr head;
		char rest[1024];
	} answer;
	ssize_t n;

	if (ask(fd, family, to, to_len, port, seq) < 0)
		return -1;
	do /* what is left of an earlier question, broken off, is skipped */
		n = recv(fd, &answer, sizeof answer, 0);
	while ((n < 0 && errno == EINTR) ||
	       (n >= (ssize_t)sizeof answer.head && answer.head.nlmsg_seq != seq));
	return n < (ssize_t)sizeof answer.head ? -1 : answer.head.nlmsg_type == SOCK_DIAG_BY_FAMILY;
}

bool net_loopback_listens(int diag_fd, uint16_t port)
{
	static const uint32_t v4_seq = 0xfffffff4, v6_seq = 0xfffffff6; /* no dump counts so far */
	const struct in_addr v4 = {htonl(INADDR_LOOPBACK)};

	return lookup(diag_fd, AF_INET, &v4, sizeof v4, port, v4_seq) > 0 ||
	       lookup(diag_fd, AF_INET6, &in6addr_loopback, sizeof in6addr_loopback, port, v6_seq) > 0;
}

int net_list_listeners(int diag_fd, uint16_t port, struct net_listener *out, size_t max, struct err **e)
{
	struct sink s = {.out = out, .max = max};

	if (dump(diag_fd, AF_INET, port, &s) < 0)
		return err_sys(e, errno, "cannot list listening sockets");
	/* a kernel without IPv6 answers ENOENT: no handler for the family */
	if (dump(diag_fd, AF_INET6, port, &s) < 0 && errno != ENOENT)
		return err_sys(e, errno, "cannot list listening IPv6 sockets");
	return (int)s.n;
}
