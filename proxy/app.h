/*
 * What the proxy knows of one app: exactly what the supervisor told it (control.c), and its connections.
 *
 * Connections of three kinds hang on the app: inbound (forward.c), Loopback= (loopback.c) and egress
 * (egress.c). A new launch, a drop or a removal takes the sockets of the earlier jail and every connection
 * through it down, but an inbound client that was not connected to the app yet stays and is served by the
 * next launch.
 */
#pragma once
#include "base/json.h"
#include "base/loop.h"
#include "policy/policy.h"
#include "proxy/accept.h"
#include <stdbool.h>
#include <stdint.h>

enum gate { GATE_HOLD, GATE_SERVE, GATE_RESET, GATE_REST };

struct app_counters {
	uint64_t in_open, in_total, out_open, out_allowed, out_denied, out_ech, bytes_in, bytes_out;
};

/* A connection that an app makes, in the list of whoever has it. */
struct app_conn {
	struct app_conn *prev, *next;
	bool dialled;
};
struct app_conns { /* zero-initialise */
	struct app_conn *head;
	size_t n;
};

struct app {
	struct app *next;
	struct proxy *proxy;
	char *name;

	/* Policy. Immutable once set; a new one is a new generation. */
	struct policy *policy;
	uint64_t generation;
	char *where;  /* in refusals: the place for the line that would allow it; NULL: the unit */
	char *closed; /* not NULL: egress is closed without parsing a byte, for this reason */

	enum gate gate;
	uint64_t gate_n; /* its number */
	int64_t idle_ms; /* of a session app; 0: it is none */
	bool idle_by_traffic;
	uint64_t launch; /* 0: no jail */
	size_t jail_fds; /* its egress listeners and DNS sockets, in the budget of accept.h */

	struct forward *forward;        /* host listeners, pool, inbound connections */
	struct idle *idle;              /* is anybody using it? */
	struct loopback *loopback;      /* Loopback= listeners of this launch */
	struct egress_listener *egress; /* explicit proxy of this launch */
	struct dns *dns;                /* policy DNS of this launch, and the names it gave out */
	struct denied *denied;          /* refusals being folded */
	struct tally *tally;            /* per rule */
	struct conns conns;             /* its share of the descriptors */

	struct app_counters counters;
	bool counters_changed;
};

struct proxy {
	struct loop *loop;
	struct wire *wire;
	struct app *apps;
	const char *nameserver, *resolv_conf; /* options; NULL */
	struct accesslog *access;             /* of a stand-alone proxy, or NULL */
	struct loop_timer counters_timer;
};

struct app *app_find(struct proxy *p, const char *name);
/* Of the listener that an app has on that port of the host; AF_UNSPEC: none has. */
int app_port_family(const struct proxy *p, uint16_t host_port);
struct app *app_get(struct proxy *p, const char *name); /* makes it */
void app_remove(struct app *a);
/* Owns policy. */
void app_set_policy(struct app *a, struct policy *policy, const char *closed);
struct app_gate { /* an order of the supervisor */
	enum gate gate;
	uint64_t n;
	int64_t idle_ms;
	bool idle_by_traffic;
};
void app_set_gate(struct app *a, const struct app_gate *g);
/* Ends everything of the current launch. */
void app_drop(struct app *a);
/* Linked and counted, and the opposite: once each. */
void app_conn_add(struct app *a, struct app_conns *l, struct app_conn *c);
void app_conn_dialled(struct app_conn *c); /* it has the descriptors it needs */
void app_conn_remove(struct app *a, struct app_conns *l, struct app_conn *c);
/* Call after changing counters: they are reported within a second. */
void app_counted(struct app *a);
