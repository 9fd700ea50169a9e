/*
 * Which sockets an app finds inside.
 *
 * Capture. With nf_tables, a rule gives the first packet of each TCP connection to a transparent listener, one
 * for each family: the accepted socket has the destination the app asked for as its own address. Without, an
 * ordinary listener on the wildcard address for each port of the rules does the same, because every address is
 * local here (AnyIP); ports without one are refused at once by the kernel. Either way nothing that is missed
 * gets out: there is no device but lo.
 * An accepted socket is bound to the port that was asked for, in the app's namespace: hence SO_REUSEADDR on the listeners,
 * which it inherits, so that a server of the app that sets it too can have that port meanwhile.
 *
 * A wildcard listener and one of the same port on an address of its own (Loopback=443 beside Allow=x.com; the
 * explicit proxy's port) exclude each other unless both have SO_REUSEPORT; the more specific one then has the
 * connections to its address. Only contested ports get it: an app that listens with SO_REUSEPORT would share
 * them.
 */
#include "net/capture.h"
#include "base/fd.h"
#include "net/nft.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#ifndef IP_TRANSPARENT
#define IP_TRANSPARENT 19 /* linux/in.h */
#endif
#ifndef IPV6_TRANSPARENT
#define IPV6_TRANSPARENT 75 /* linux/in6.h */
#endif
#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78 /* linux/in6.h, kernel 4.15 */
#endif

enum { BACKLOG = 1024 };
enum { TRANSPARENT = 1, SHARED = 2 };

static const char any4[] = "0.0.0.0", any6[] = "::";

struct maker {
	const struct net_plan *plan;
	int *fds;
	struct net_inside_result *ret;
};

static bool listed(const uint16_t *ports, size_t n, uint16_t port)
{
	for (size_t i = 0; i < n; i++)
		if (ports[i] == port)
			return true;
	return false;
}

static int bound(int family, int type, const char *address, uint16_t port, unsigned flags)
{
	struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	bool v4 = family == AF_INET;
	CLEANUP_FD int s = socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int one = 1;

	if (s < 0)
		return -1;
	(void)inet_pton(family, address, v4 ? (void *)&a4.sin_addr : (void *)&a6.sin6_addr);
	if (type == SOCK_STREAM)
		(void)setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (!v4)
		(void)setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
	if ((flags & SHARED) && setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) < 0)
		return -1;
	if ((flags & TRANSPARENT) && setsockopt(s, v4 ? IPPROTO_IP : IPPROTO_IPV6,
						v4 ? IP_TRANSPARENT : IPV6_TRANSPARENT, &one, sizeof one) < 0)
		return -1;
	if (bind(s, v4 ? (struct sockaddr *)&a4 : (struct sockaddr *)&a6, v4 ? sizeof a4 : sizeof a6) < 0)
		return -1;
	return TAKE_FD(s);
}

static int add(struct maker *m, int fd, enum net_kind kind, uint16_t port)
{
	struct net_inside_result *r = m->ret;

	if (fd < 0)
		return -1;
	if (r->n >= NET_SOCKETS_MAX) {
		(void)close(fd);
		errno = E2BIG;
		return -1;
	}
	m->fds[r->n] = fd;
	r->of[r->n].kind = (uint8_t)kind;
	r->of[r->n++].port = port;
	return 0;
}

/* `tag`: what the result says its port is. -1 with errno. */
static int listener(struct maker *m, enum net_kind kind, uint16_t tag, int family, const char *address,
		    uint16_t port, unsigned flags)
{
	CLEANUP_FD int s = bound(family, SOCK_STREAM, address, port, flags);

	if (s < 0 || listen(s, BACKLOG) < 0)
		return -1;
	return add(m, TAKE_FD(s), kind, tag);
}

static void forget_since(struct maker *m, uint32_t n)
{
	fd_close_many(m->fds + n, m->ret->n - n);
	m->ret->n = n;
}

/* --- transparent listeners --- */

/* -1: not here, and `reason` of the result says why. */
static int with_rules(struct maker *m)
{
	struct net_inside_result *r = m->ret;
	const char *what = "a transparent listener";
	uint32_t before = r->n;

	if (listener(m, NET_TRANSPARENT, 0, AF_INET, NET_TPROXY_ADDRESS, NET_TPROXY_PORT, TRANSPARENT) == 0 &&
	    (!r->v6 || listener(m, NET_TRANSPARENT, 0, AF_INET6, NET_TPROXY_ADDRESS6, NET_TPROXY_PORT,
				TRANSPARENT) == 0)) {
		what = "its rules";
		if (nft_tproxy(r->v6) == 0)
			return 0;
	}
	(void)snprintf(r->reason, sizeof r->reason, "the kernel refuses %s: %s", what, strerror(errno));
	forget_since(m, before);
	return -1;
}

/* A wildcard listener lies over one of an address. */
static bool contested(const struct maker *m, uint16_t port)
{
	const struct net_plan *p = m->plan;
	bool wildcard = port == NET_DNS_PORT ||
			(m->ret->capture == NET_CAPTURE_PORTS && listed(p->ports, p->n_ports, port));

	return p->egress && wildcard && (port == NET_PROXY_PORT || listed(p->loopback, p->n_loopback, port));
}

static int on_all_addresses(struct maker *m, enum net_kind kind, uint16_t port)
{
	unsigned flags = contested(m, port) ? SHARED : 0;

	if (listener(m, kind, port, AF_INET, any4, port, flags) < 0)
		return -1;
	return m->ret->v6 ? listener(m, kind, port, AF_INET6, any6, port, flags) : 0;
}

/* What cannot be listened on is refused to the app, which is no danger; but it is said. */
static void with_listeners(struct maker *m)
{
	const struct net_plan *p = m->plan;

	m->ret->left_out = p->more_ports;
	for (size_t i = 0; i < p->n_ports; i++) {
		uint16_t port = p->ports[i];
		uint32_t before = m->ret->n;

		if (port == NET_DNS_PORT || listed(p->ports, i, port))
			continue;
		if (i < NET_PORTS_MAX && !listed(p->own, p->n_own, port) &&
		    on_all_addresses(m, NET_TRANSPARENT, port) == 0)
			continue;
		forget_since(m, before);
		m->ret->left_out = true;
	}
}

/* --- the rest --- */

static int dns_udp(struct maker *m, int family)
{
	bool v4 = family == AF_INET;
	CLEANUP_FD int s = bound(family, SOCK_DGRAM, v4 ? any4 : any6, NET_DNS_PORT, 0);
	int one = 1;

	if (s < 0)
		return -1;
	/* the answer must come from the address that was asked; IPv6 wants FREEBIND for one that no device
	 * has */
	if (v4 && setsockopt(s, IPPROTO_IP, IP_PKTINFO, &one, sizeof one) < 0)
		return -1;
	if (!v4 && (setsockopt(s, IPPROTO_IPV6, IPV6_RECVPKTINFO, &one, sizeof one) < 0 ||
		    setsockopt(s, IPPROTO_IPV6, IPV6_FREEBIND, &one, sizeof one) < 0))
		return -1;
	return add(m, TAKE_FD(s), NET_DNS_UDP, NET_DNS_PORT);
}

static int dns(struct maker *m)
{
	if (dns_udp(m, AF_INET) < 0 || (m->ret->v6 && dns_udp(m, AF_INET6) < 0))
		return -1;
	if (listed(m->plan->own, m->plan->n_own, NET_DNS_PORT))
		return 0; /* an app that serves TCP there asks by UDP */
	return on_all_addresses(m, NET_DNS_TCP, NET_DNS_PORT);
}

static int egress(struct maker *m, struct err **e)
{
	m->ret->capture = NET_CAPTURE_RULES;
	if (m->plan->ports_only)
		(void)snprintf(m->ret->reason, sizeof m->ret->reason, "SBXSV_NO_NFTABLES is set");
	if (m->plan->ports_only || with_rules(m) < 0)
		m->ret->capture = NET_CAPTURE_PORTS;
	if (listener(m, NET_EGRESS, 0, AF_INET, NET_PROXY_ADDRESS, NET_PROXY_PORT,
		     contested(m, NET_PROXY_PORT) ? SHARED : 0) < 0)
		return err_sys(e, errno, "cannot listen on %s:%d inside", NET_PROXY_ADDRESS, NET_PROXY_PORT);
	if (m->ret->capture == NET_CAPTURE_PORTS)
		with_listeners(m);
	if (dns(m) < 0)
		return err_sys(e, errno, "cannot listen on port %d inside", NET_DNS_PORT);
	return 0;
}

static int loopback(struct maker *m, uint16_t port, struct err **e)
{
	unsigned flags = contested(m, port) ? SHARED : 0;

	if (listener(m, NET_LOOPBACK, port, AF_INET, "127.0.0.1", port, flags) < 0)
		return err_sys(e, errno, "Loopback=%u: cannot listen on 127.0.0.1 inside", port);
	if (m->ret->v6 && listener(m, NET_LOOPBACK, port, AF_INET6, "::1", port, flags) < 0 &&
	    errno != EADDRNOTAVAIL)
		return err_sys(e, errno, "Loopback=%u: cannot listen on ::1 inside", port);
	return 0;
}

int capture_sockets(const struct net_plan *p, int *fds, struct net_inside_result *ret, struct err **e)
{
	struct maker m = {.plan = p, .fds = fds, .ret = ret};

	if (p->egress && egress(&m, e) < 0)
		return -1;
	for (size_t i = 0; i < p->n_loopback; i++)
		if (loopback(&m, p->loopback[i], e) < 0)
			return -1;
	return 0;
}
