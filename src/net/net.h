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
/* Where nf_tables sends what it captures: addresses that nobody connects to, and the port of the explicit
 * proxy, so that no other port is lost to the app. */
#define NET_TPROXY_ADDRESS  "198.18.0.3"
#define NET_TPROXY_ADDRESS6 "64:ff9b::198.18.0.3"
#define NET_TPROXY_PORT     NET_PROXY_PORT
#define NET_DNS_PORT        53

enum {
	NET_PORTS_MAX = 32,    /* listeners of the fallback, each v4 and v6 */
	NET_LOOPBACK_MAX = 80, /* Loopback= ports, likewise */
	NET_SOCKETS_MAX =
		240, /* 7 + 2 * 32 + 2 * 80 is less; with three more they fit one message of FD_PASS_MAX */
};

struct net_plan {
	bool egress;              /* explicit proxy, capture and DNS */
	bool ports_only;          /* as if this kernel had no nf_tables; net_ports_only() */
	const uint16_t *loopback; /* Loopback= ports */
	size_t n_loopback;
	const uint16_t *ports; /* what is captured without nf_tables; policy_ports() */
	size_t n_ports;
	bool more_ports;     /* these are not all that the rules allow */
	const uint16_t *own; /* the app's own ports, which stay free for it */
	size_t n_own;
};
/* How connections of programs that know of no proxy reach ours. */
enum net_capture {
	NET_CAPTURE_OFF,   /* Egress=off: every connect is refused at once */
	NET_CAPTURE_RULES, /* nf_tables: every address and port */
	NET_CAPTURE_PORTS, /* a listener a port: net_plan.ports only, the rest is refused at once */
};
enum net_kind { NET_EGRESS, NET_TRANSPARENT, NET_DNS_UDP, NET_DNS_TCP, NET_LOOPBACK };
struct net_inside_result { /* plain data: it travels from the launching child to the supervisor */
	uint32_t n;        /* sockets made */
	struct {
		uint8_t kind;  /* enum net_kind */
		uint16_t port; /* of NET_LOOPBACK and NET_TRANSPARENT; 0: any port */
	} of[NET_SOCKETS_MAX];
	uint8_t capture;  /* enum net_capture */
	bool v6;          /* IPv6 is there */
	bool left_out;    /* NET_CAPTURE_PORTS: some ports of the plan have no listener */
	char reason[160]; /* NET_CAPTURE_PORTS: why not nf_tables */
};
/*
 * For launch_io.inside_net: runs in the launching child, in the new namespace, with its capabilities, and
 * uses no heap but for errors. Loopback up, AnyIP routes, NET_PROXY_ADDRESS on lo, pings ignored, low ports
 * free for the app; then the sockets, in the order of enum net_kind, v4 before v6. `fds` has room for
 * NET_SOCKETS_MAX. On failure nothing is left open. A kernel that refuses the nf_tables rules is no failure.
 */
int net_inside(const struct net_plan *p, int *fds, struct net_inside_result *ret, struct err **e);
/* The same, into what a launch passes out (struct launch_sockets): room for `max` fds, and for the result as plain data. */
int net_inside_pack(const struct net_plan *p, int *fds, size_t max, size_t *ret_n, void *facts, size_t room,
		    struct err **e);
void net_inside_unpack(const void *facts, struct net_inside_result *ret);
/* The environment of this process asks for the fallback (SBXSV_NO_NFTABLES, for tests). */
bool net_ports_only(void);
/* "nf_tables", "listed ports only (no nf_tables: REASON)", "off"; owned by caller. */
char *net_capture_text(const struct net_inside_result *r);

/* Makes n TCP sockets (AF_INET6 dual-stack, or AF_INET where IPv6 is off) inside the namespaces; ~5 us each
 * in a batch. Caller owns the fds. The process must be dumpable and the caller its main thread. */
int net_make_sockets(int userns_fd, int netns_fd, int *fds, size_t n, struct err **e);

/* Listeners on 127.0.0.1 and, where there is IPv6, ::1 inside, for Loopback= ports that come later: at most 2 * n,
 * the port of each in `of`. Caller owns the fds; on failure there are none. Conditions as above. */
int net_make_listeners(int userns_fd, int netns_fd, const uint16_t *ports, size_t n, int *fds, uint16_t *of,
		       size_t *ret_n, struct err **e);

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
/* Does a TCP connection to this port of 127.0.0.1 or ::1 find somebody? false also when it cannot be told. Costs two to four
 * system calls however many sockets there are. No heap, no shared state: from any thread, when nobody else uses the socket. */
bool net_loopback_listens(int diag_fd, uint16_t port);
int net_open_diag(struct err **e); /* in the current namespace; caller owns */
