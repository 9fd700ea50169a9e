/*
 * The inside of an app's network namespace: loopback up, AnyIP routes, the listeners of the explicit proxy
 * and of Loopback=, and sockets made there on demand.
 *
 * Theory of operation. Nothing of the host's network namespace is ever given to an app. Sockets are made
 * inside (by the launching child, which has the capabilities of the new namespace, or later by a helper that
 * shares our memory and fd table and joins the namespaces for a moment) and used outside, by sbxsv-proxy.
 */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NET_PROXY_ADDRESS "198.18.0.1" /* RFC 2544 range, as seen inside the jail */
#define NET_PROXY_PORT    3128

struct net_plan {
	int egress;               /* make the explicit-proxy listener */
	const uint16_t *loopback; /* Loopback= ports */
	size_t n_loopback;
};
/*
 * For launch_io.inside_net: runs in the launching child, in the new namespace, with its capabilities.
 * Loopback up, AnyIP routes, NET_PROXY_ADDRESS on lo, pings ignored, low ports free for the app; then the
 * listeners. Order of the sockets made: egress (if any), then for each loopback port v4, v6. Without IPv6 in
 * the kernel only the v4 ones are made, for all ports: net_inside_has_v6() tells from the count. On failure
 * nothing is left open.
 */
int net_inside(const struct net_plan *p, int *fds, size_t max, size_t *ret_n, struct err **e);
static inline bool net_inside_has_v6(const struct net_plan *p, size_t n)
{
	return p->n_loopback && n == (p->egress ? 1u : 0u) + 2 * p->n_loopback;
}

/* Makes n TCP sockets (AF_INET6 dual-stack, or AF_INET where IPv6 is off) inside the namespaces; ~5 us each
 * in a batch. Caller owns the fds. The process must be dumpable and the caller its main thread. */
int net_make_sockets(int userns_fd, int netns_fd, int *fds, size_t n, struct err **e);

/* Listening TCP sockets seen through a sock_diag socket (made inside or on the host). */
struct net_listener {
	int family;
	uint8_t address[16]; /* network order; v4 in the first four bytes */
	uint16_t port;
	uint32_t uid;
	uint64_t inode;
};
/* Lists at most `max`; returns the count or -1. `port` 0 means all. Never blocks for longer than the kernel
 * takes. */
int net_list_listeners(int diag_fd, uint16_t port, struct net_listener *out, size_t max, struct err **e);
int net_open_diag(struct err **e); /* in the current namespace; caller owns */
