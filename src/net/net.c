#include "net/net.h"
#include "base/fd.h"
#include "net/netlink.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static int loopback_up(struct err **e)
{
	struct ifreq ifr = {.ifr_name = "lo"};
	CLEANUP_FD int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (s < 0)
		return err_sys(e, errno, "cannot make a socket in the network namespace");
	ifr.ifr_flags = IFF_UP | IFF_RUNNING | IFF_LOOPBACK;
	if (ioctl(s, SIOCSIFFLAGS, &ifr) < 0)
		return err_sys(e, errno, "cannot bring up the loopback device");
	return 0;
}

/* Of the current network namespace, through any mounted /proc. */
static void sysctl_write(const char *path, const char *value)
{
	CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

	/* A refusal costs comfort (pings answered, no low ports), never isolation. */
	if (fd >= 0 && write(fd, value, strlen(value)) < 0)
		return;
}

/* Every address is this namespace's own: a connect ends at a listener of ours or is refused at once, and
 * nothing waits for a route that does not exist. */
static int routes(struct err **e)
{
	CLEANUP_FD int s = nl_open(NETLINK_ROUTE);
	struct in_addr proxy;

	if (s < 0)
		return err_sys(e, errno, "cannot make a netlink socket");
	(void)inet_pton(AF_INET, NET_PROXY_ADDRESS, &proxy);
	if (nl_any_ip(s, AF_INET) < 0)
		return err_sys(e, errno, "cannot route all IPv4 addresses to lo");
	if (nl_add_address4(s, proxy) < 0)
		return err_sys(e, errno, "cannot add %s to lo", NET_PROXY_ADDRESS);
	if (nl_any_ip(s, AF_INET6) < 0 && errno != EAFNOSUPPORT && errno != EOPNOTSUPP && errno != EACCES &&
	    errno != ENODEV)
		return err_sys(e, errno, "cannot route all IPv6 addresses to lo");
	return 0;
}

/* -1 with errno */
static int listener(int family, const char *address, uint16_t port)
{
	struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	const struct sockaddr *a = family == AF_INET ? (struct sockaddr *)&a4 : (struct sockaddr *)&a6;
	socklen_t len = family == AF_INET ? sizeof a4 : sizeof a6;
	CLEANUP_FD int s = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int one = 1;

	if (s < 0)
		return -1;
	(void)inet_pton(family, address, family == AF_INET ? (void *)&a4.sin_addr : (void *)&a6.sin6_addr);
	(void)setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (family == AF_INET6)
		(void)setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
	if (bind(s, a, len) < 0 || listen(s, BACKLOG) < 0)
		return -1;
	return TAKE_FD(s);
}

static int listeners(const struct net_plan *p, int *fds, size_t *n, struct err **e)
{
	bool v6 = true;

	if (p->egress) {
		fds[*n] = listener(AF_INET, NET_PROXY_ADDRESS, NET_PROXY_PORT);
		if (fds[*n] < 0)
			return err_sys(e, errno, "cannot listen on %s:%d inside", NET_PROXY_ADDRESS,
				       NET_PROXY_PORT);
		++*n;
	}
	for (size_t i = 0; i < p->n_loopback; i++) {
		uint16_t port = p->loopback[i];

		fds[*n] = listener(AF_INET, "127.0.0.1", port);
		if (fds[*n] < 0)
			return err_sys(e, errno, "Loopback=%u: cannot listen on 127.0.0.1 inside", port);
		++*n;
		if (!v6)
			continue;
		fds[*n] = listener(AF_INET6, "::1", port);
		if (fds[*n] >= 0)
			++*n;
		else if (i == 0 && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL))
			v6 = false; /* no IPv6 in this kernel, or switched off by ipv6.disable */
		else
			return err_sys(e, errno, "Loopback=%u: cannot listen on ::1 inside", port);
	}
	return 0;
}

int net_inside(const struct net_plan *p, int *fds, size_t max, size_t *ret_n, struct err **e)
{
	size_t n = 0;

	if ((p->egress ? 1u : 0u) + 2 * p->n_loopback > max)
		return err_set(e, E2BIG, "too many Loopback= ports (at most %zu)", (max - 1) / 2);
	if (loopback_up(e) < 0 || routes(e) < 0)
		return -1;
	sysctl_write("/proc/sys/net/ipv4/icmp_echo_ignore_all", "1");
	sysctl_write("/proc/sys/net/ipv6/icmp/echo_ignore_all", "1");
	sysctl_write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
	if (listeners(p, fds, &n, e) < 0) {
		fd_close_many(fds, n);
		return -1;
	}
	*ret_n = n;
	return 0;
}
