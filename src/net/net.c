#include "net/net.h"
#include "base/fd.h"
#include "base/str.h"
#include "net/capture.h"
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
static int routes(bool *ret_v6, struct err **e)
{
	CLEANUP_FD int s = nl_open(NETLINK_ROUTE);
	struct in_addr proxy;

	if (s < 0)
		return err_sys(e, errno, "cannot make a netlink socket");
	(void)inet_pton(AF_INET, NET_PROXY_ADDRESS, &proxy);
	if (nl_add_address4(s, proxy) < 0)
		return err_sys(e, errno, "cannot add %s to lo", NET_PROXY_ADDRESS);
	if (nl_any_ip(s, AF_INET, &proxy) < 0)
		return err_sys(e, errno, "cannot route all IPv4 addresses to lo");
	*ret_v6 = nl_any_ip(s, AF_INET6, NULL) == 0;
	if (!*ret_v6 && errno != EAFNOSUPPORT && errno != EOPNOTSUPP && errno != EACCES && errno != ENODEV)
		return err_sys(e, errno, "cannot route all IPv6 addresses to lo");
	return 0;
}

int net_inside(const struct net_plan *p, int *fds, struct net_inside_result *ret, struct err **e)
{
	struct net_inside_result r = {0};

	if (p->n_loopback > NET_LOOPBACK_MAX)
		return err_set(e, E2BIG, "too many Loopback= ports (at most %d)", NET_LOOPBACK_MAX);
	if (loopback_up(e) < 0 || routes(&r.v6, e) < 0)
		return -1;
	sysctl_write("/proc/sys/net/ipv4/icmp_echo_ignore_all", "1");
	sysctl_write("/proc/sys/net/ipv6/icmp/echo_ignore_all", "1");
	sysctl_write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
	if (capture_sockets(p, fds, &r, e) < 0) {
		fd_close_many(fds, r.n);
		return -1;
	}
	*ret = r;
	return 0;
}

int net_inside_pack(const struct net_plan *p, int *fds, size_t max, size_t *ret_n, void *facts, size_t room,
		    struct err **e)
{
	struct net_inside_result r;

	if (max < ELEMENTS(r.of) || room < sizeof r)
		return err_set(e, E2BIG, "no room for the sockets of a network");
	if (net_inside(p, fds, &r, e) < 0)
		return -1;
	*ret_n = r.n;
	memcpy(facts, &r, sizeof r);
	return 0;
}

void net_inside_unpack(const void *facts, struct net_inside_result *ret)
{
	memcpy(ret, facts, sizeof *ret);
}

bool net_ports_only(void)
{
	return getenv("SBXSV_NO_NFTABLES") != NULL;
}

char *net_capture_text(const struct net_inside_result *r)
{
	switch (r->capture) {
	case NET_CAPTURE_RULES:
		return xstrdup("nf_tables");
	case NET_CAPTURE_PORTS:
		return xasprintf("listed ports only%s (no nf_tables: %.*s)",
				 r->left_out ? ", not all of them" : "", (int)sizeof r->reason, r->reason);
	default:
		return xstrdup("off");
	}
}
