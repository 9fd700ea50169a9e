/* What proxyctl keeps of one app: enough to tell a new proxy everything. Private to proxyctl. */
#pragma once
#include "net/proxyctl.h"
#include "net/proxyctl_tally.h"

#define PC_DENIED_MAX 32
#define PC_POOL_RATE  50000 /* sockets a second; ten times what the kernel connects here */
#define PC_CLOSED_BY_CRASHES                                                                                 \
	"sbxsv-proxy crashed 3 times on this app's bytes; change its [Network] rules to try again"

struct pc_denied {
	char *host, *rule, *hint;
	uint16_t port;
	bool lookup;      /* the name was only asked for, at no port */
	bool unreachable; /* allowed, but not reached: `rule` is why */
	uint64_t count;
	int64_t last_ms; /* wall clock */
};

struct pc_app {
	struct pc_app *next;
	char *name;
	struct js *policy;
	struct proxyctl_listen *listen;
	size_t n_listen;
	enum proxy_gate gate;
	uint64_t gate_n; /* number of the order: what the proxy says of use, it says at one */
	int64_t idle_ms; /* 0: it is no session app */
	bool idle_by_traffic;
	int64_t unused_since_ms; /* monotonic; 0: in use, or not known */
	uint64_t launch; /* 0: no jail */
	struct proxyctl_jail jail;
	int names_fd; /* the proxy's map of names and addresses, over its restarts and the app's; -1: none yet */
	unsigned crashes; /* of the proxy, on this app's bytes */
	int64_t pool_failed_ms;
	int64_t pool_second; /* for the bound on what the proxy may have made, and how many in it */
	size_t pool_made;
	uint64_t pool_message; /* number of the last answer to a `need` among the messages of this wire; 0:
				  none */
	/* before: of earlier proxies; now: of this one */
	struct proxyctl_app_counters before, now;
	struct pc_tally tally;
	struct pc_denied *denied; /* newest first, PC_DENIED_MAX at most */
	size_t n_denied, cap_denied;
};

struct pc_app *pc_app_find(struct pc_app *list, const char *name); /* NULL name: NULL */
struct pc_app *pc_app_get(struct pc_app **list, const char *name);
void pc_app_free(struct pc_app **list, struct pc_app *a);
bool pc_policy_fits(const struct js *policy); /* in one message, if a large one */
/* Owns policy. True when it differs from the one before. */
bool pc_app_policy(struct pc_app *a, struct js *policy);
/* dup()s the fds. On failure the earlier set stays. */
int pc_app_listeners(struct pc_app *a, const struct proxyctl_listen *v, size_t n, struct err **e);
void pc_app_drop_jail(struct pc_app *a);
/* The jail's Loopback= listeners become those of `v`; on failure they stay as they are. */
int pc_app_loopback(struct pc_app *a, const struct proxyctl_loopback *v, size_t n, struct err **e);
void pc_app_names(struct pc_app *a); /* makes names_fd; without it the proxy forgets names when it dies */
void pc_app_counters(struct pc_app *a, const struct js *j);
void pc_app_totals(const struct pc_app *a, struct proxyctl_app_counters *ret);
void pc_app_proxy_died(struct pc_app *a); /* its counters become history, nothing is open */
/* How many of `n` sockets the proxy may have now: it is the process that hostile bytes reach. */
size_t pc_app_pool_grant(struct pc_app *a, size_t n);
/* One `denied` or `unreachable` message, checked: texts of bounded length without control bytes. */
struct pc_refusal {
	char host[256], rule[640], hint[384]; /* HOST_MAX and the texts of struct verdict, with room */
	uint16_t port;
	bool lookup;      /* the name was only asked for */
	bool unreachable; /* no refusal: `rule` is why the site was not reached */
	uint64_t count;
};
int pc_refusal_read(const struct js *message, struct pc_refusal *ret); /* -1: makes no sense */
void pc_app_denied(struct pc_app *a, const struct pc_refusal *r);
struct js *pc_app_denied_list(const struct pc_app *a, bool unreachable);
/* The event object of doc/design.md section 8. */
struct js *pc_denied_event(const struct pc_app *a, const struct pc_refusal *r);
