/*
 * The supervisor's side of sbxsv-proxy: starts it, keeps what it needs to know (listeners, policies, pools),
 * tells it again after a crash, and makes sockets inside the apps' namespaces when it asks for more.
 * Crash-only: a proxy that dies is started again at once with the same listeners; a crash-loop is slowed to
 * one start per 100 ms. Wire messages are described in doc/design.md, "Proxy protocol".
 */
#pragma once
#include "base/json.h"
#include "base/keep.h"
#include "base/loop.h"
#include "net/net.h"
#include "policy/policy.h"

enum proxy_gate {
	PROXY_GATE_HOLD,  /* connections wait in the listen queue */
	PROXY_GATE_SERVE, /* relayed to the app; a refused inner connect is tried again for a while */
	PROXY_GATE_RESET, /* accepted and reset at once */
	PROXY_GATE_REST,  /* wait as in hold; PROXY_WANTED when one does */
};
enum proxy_use { /* of an app with proxyctl_idle() */
	PROXY_WANTED, /* a client waits at gate `rest` */
	PROXY_UNUSED, /* nobody is connected, and nobody will be: gate `serve` has become `hold` */
};
struct proxyctl;
struct proxyctl_listen { /* fd: a listening socket of the host, dup()ed by us */
	int fd;
	uint16_t host_port, app_port;
};
struct proxyctl_socket {
	int fd;
	uint16_t port; /* inside */
	uint16_t to;   /* of a Loopback= listener: the host's port, mostly the same */
	bool held;     /* as in struct proxyctl_loopback */
};
struct proxyctl_loopback { /* a Loopback= port: what the app connects to, and what that is outside */
	uint16_t inside, host;
	bool held; /* only while that port is of an app's listeners here: nobody else who has it is meant */
};
struct proxyctl_jail { /* all fds are taken over */
	int userns_fd, netns_fd;
	int egress_fd; /* -1: none */
	struct proxyctl_socket transparent[2 * NET_PORTS_MAX], loopback[2 * NET_LOOPBACK_MAX];
	size_t n_transparent, n_loopback;
	int dns_udp[2], dns_tcp[2];
	size_t n_dns_udp, n_dns_tcp;
};
/* From what net_inside() made: takes the fds (sets them to -1) and both namespaces. */
void proxyctl_jail_fill(struct proxyctl_jail *j, int *userns_fd, int *netns_fd,
			const struct net_inside_result *r, int *fds);
struct proxyctl_hooks {
	/* one object of the event format of doc/design.md without seq and timestamp: {"app":..,"type":..,...}
	 */
	void (*event)(void *data, const struct js *event);
	void (*restarted)(void *data, const char *why); /* the proxy died and is being started again */
	/* What the proxy says at the gate it was told last. Not believed: to be tried again by proxyctl_gate(). */
	void (*use)(void *data, const char *app, enum proxy_use use);
	void *data;
	const char
		*where; /* WHERE_EXEC, or NULL: refusals name the unit as the place for a line that allows */
};
struct proxyctl_app_counters {
	uint64_t in_open, in_total, out_open, out_allowed, out_denied, bytes_in, bytes_out;
	uint64_t out_ech; /* tunnels whose ClientHello carried encrypted_client_hello */
	int64_t unused_ms; /* with proxyctl_idle(), at gate `serve`: for so long; -1: in use, or not known */
};
/* `program`: path of sbxsv-proxy. `run_as`: uid/gid for the proxy under root, (uid_t)-1 keeps. NULL with *e.
 */
struct proxyctl *proxyctl_create(struct loop *l, const char *program, uid_t run_uid, gid_t run_gid,
				 const struct proxyctl_hooks *hooks, struct err **e);
/* Kills and reaps the proxy (waits at most 50 ms for it), closes everything. */
void proxyctl_destroy(struct proxyctl *p);
int proxyctl_pidfd(const struct proxyctl *p); /* -1 while it is being restarted */
pid_t proxyctl_pid(const struct proxyctl *p); /* 0 likewise */

/* Calls fn once, when the proxy has taken everything it was told so far; when it dies before, the next proxy
 * counts. Never from within this call. proxyctl_destroy() calls those that still wait. */
typedef void proxyctl_sync_fn(void *data);
void proxyctl_sync(struct proxyctl *p, proxyctl_sync_fn *fn, void *data);

/* Per app; unknown apps are made on first use. A policy that is refused leaves the one before in force. */
bool proxyctl_policy_fits(const struct policy *policy); /* is it small enough to be handed over? */
int proxyctl_set_policy(struct proxyctl *p, const char *app, const struct policy *policy, struct err **e);
int proxyctl_set_listeners(struct proxyctl *p, const char *app, const struct proxyctl_listen *v, size_t n,
			   struct err **e);
void proxyctl_gate(struct proxyctl *p, const char *app, enum proxy_gate gate);
/* At gate `serve`, PROXY_UNUSED follows when nobody was connected for idle_ms (by_traffic: no byte came or went). 0: never. */
void proxyctl_idle(struct proxyctl *p, const char *app, int64_t idle_ms, bool by_traffic);
/* A new launch: the previous jail's sockets, pool and connections are dropped. */
void proxyctl_set_jail(struct proxyctl *p, const char *app, struct proxyctl_jail *jail);
/* Other Loopback= ports for the jail that is there: listeners of new ports are made inside, those of ports that are no
 * longer named go, with their connections. On failure all is as it was. */
int proxyctl_set_loopback(struct proxyctl *p, const char *app, const struct proxyctl_loopback *v, size_t n,
			  struct err **e);
void proxyctl_drop_jail(struct proxyctl *p, const char *app);
void proxyctl_remove(struct proxyctl *p, const char *app); /* listeners too */
void proxyctl_counters(const struct proxyctl *p, const char *app, struct proxyctl_app_counters *ret);
/* How often each rule decided: [{"rule","allowed","denied"}], the one that decided last first; owned by caller. */
struct js *proxyctl_rules(const struct proxyctl *p, const char *app);
/* Last denied targets, newest first: [{"host","port","count","rule","hint","last"}], or "operation":"resolve"
 * in place of the port; owned by caller. */
struct js *proxyctl_denied(const struct proxyctl *p, const char *app);
/* Allowed sites that could not be reached: [{"host","port","count","reason","last"}] */
struct js *proxyctl_unreachable(const struct proxyctl *p, const char *app);

/* --- across an exec of the supervisor, base/keep.h --- */
bool proxyctl_can_be_saved(const struct proxyctl *p); /* false: messages wait to be sent, or for an answer */
struct js *proxyctl_save(struct keep *k, const struct proxyctl *p);
/* The proxy goes on, unless another version of the protocol was spoken with it: then it is outdated, is told nothing, and is
 * to be replaced, as after a crash. */
struct proxyctl *proxyctl_restore(struct keep *k, const struct js *o, struct loop *l, const char *program,
				  uid_t run_uid, gid_t run_gid, const struct proxyctl_hooks *hooks, struct err **e);
bool proxyctl_outdated(const struct proxyctl *p);
void proxyctl_replace(struct proxyctl *p);
