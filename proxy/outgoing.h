/* One connection of the explicit proxy. Shared by egress.c (until it is connected) and tunnel.c, http.c
 * (after). */
#pragma once
#include "proxy/app.h"
#include "proxy/dial.h"
#include "proxy/relay.h"
#include "proxy/request.h"
#include "proxy/resolve.h"

#define HEAD_LIMIT_MS  15000
#define HELLO_LIMIT_MS 10000
#define LINGER_MS      3000
#define LINGER_BYTES   (256u << 10)
#define SILENCE_MS     120000 /* a half-closed connection on which nothing goes is over */
#define OUTGOING_MAX   1024   /* of one app */

enum outgoing_phase {
	PHASE_HEAD,    /* reading the request head */
	PHASE_RESOLVE, /* waiting for an answer of the resolver */
	PHASE_DIAL,
	PHASE_RELAY,  /* the relay has both sockets, perhaps with taps */
	PHASE_LINGER, /* the answer is out; waiting for the client to close */
};

/* What is needed until the connection is made. */
struct setup {
	struct request req;
	char *buf; /* the client's bytes: the head, then what came with it */
	size_t len, cap;
	struct verdict verdict;
	struct resolve_waiter waiter;
	struct dial dial;
};

struct outgoing {
	struct relay relay; /* io[0] the app's client, io[1] the site */
	struct outgoing *prev, *next;
	struct egress_listener *l;
	struct app *app;
	struct loop_timer timer; /* deadline of the phase */
	uint8_t phase;
	bool literal;    /* the target was an address */
	bool by_address; /* allowed by AllowAddress= */
	uint16_t port;
	uint32_t lingered;
	uint64_t generation; /* of the policy that allowed it */
	char *host, *rule;   /* what was judged and what allowed it: for re-judging when rules change */
	struct setup *setup; /* until connected */
	struct hello *hello; /* tunnel.c, until the verdict */
	struct http *http;   /* http.c */
};

void outgoing_free(struct outgoing *c); /* the sockets are closed already, or will be here */
void outgoing_reset(struct outgoing *c);
void outgoing_done(struct relay *r); /* relay_done_fn */
/* A refusal after the connection was made, counted and reported like any other. */
void outgoing_denied(struct outgoing *c, const char *rule, const char *hint);

/* The tunnel of a CONNECT: judges the ClientHello. Owns the upstream fd; `early` are bytes that came with the
 * head. */
void tunnel_start(struct outgoing *c, int upstream, const char *early, size_t len);
void tunnel_late(struct outgoing *c); /* the deadline of the ClientHello passed: ends the connection */
void hello_free(struct hello *h);     /* NULL is fine */
/* One absolute-form request, one response. c->setup is still there and is released. */
void http_start(struct outgoing *c, int upstream);
void http_free(struct http *h);

/* Texts for the client (reply.c). */
char *reply_refused(const struct app *a, const char *host, uint16_t port, const struct verdict *v);
char *reply_closed(const struct app *a, const char *why);
char *reply_error(int status, const char *reason);
