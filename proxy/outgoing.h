/*
 * One outgoing connection of an app, however it came.
 *
 * The target (target.h) is where it wants to go; the front is how it came and how a refusal looks: the HTTP
 * proxy (egress.c), SOCKS5 (socks.c), a captured connect (transparent.c). Between them one core (outgoing.c)
 * judges, resolves, dials, and judges again when rules change. What passes then goes through tunnel.c or
 * http.c.
 */
#pragma once
#include "proxy/app.h"
#include "proxy/dial.h"
#include "proxy/relay.h"
#include "proxy/request.h"
#include "proxy/resolve.h"
#include "proxy/sni.h"
#include "proxy/socks_msg.h"
#include "proxy/target.h"

#define HEAD_LIMIT_MS  15000
#define HELLO_LIMIT_MS 10000
#define LINGER_MS      3000
#define LINGER_BYTES   (256u << 10)
#define SILENCE_MS     120000  /* a half-closed connection on which nothing goes is over */
#define IDLE_MS        7440000 /* and any other after two hours and four minutes (RFC 5382 REQ-5) */

/* Of one app. Connections in all are bounded by its descriptors too (accept.h). */
#define OUTGOING_MAX 16384
#define JUDGING_MAX  1024       /* not connected yet: beyond, nobody is accepted for the moment */
#define HELD_MAX     (8u << 20) /* bytes of clients that wait for a verdict, and of heads of answers that are not whole */

enum outgoing_phase {
	PHASE_FIRST,   /* reading the client's first bytes: what it wants is not known yet */
	PHASE_RESOLVE, /* waiting for an answer of the resolver */
	PHASE_DIAL,
	PHASE_RELAY,  /* the relay has both sockets, perhaps with taps */
	PHASE_LINGER, /* the answer is out; waiting for the client to close */
};

struct outgoing;
struct hello;
struct later;
struct http;
enum failure { FAIL_NAME, FAIL_NAME_LATE, FAIL_CONNECT, FAIL_LATE, FAIL_BUSY };

/* Each of these may free the connection, and all but `bytes` and `start` end it. */
struct front {
	const char *name;                              /* in the access log */
	void (*bytes)(struct outgoing *c);             /* more of the client's first bytes are in c->setup */
	void (*gave_up)(struct outgoing *c, bool eof); /* ... but no more will come, or not in time */
	void (*refuse)(struct outgoing *c, const struct verdict *v); /* c->setup->target, by the policy */
	void (*closed)(struct outgoing *c);                          /* the app's egress is closed */
	void (*fail)(struct outgoing *c, enum failure why, int errnum, const char *text);
	void (*start)(struct outgoing *c, int upstream); /* connected; c->setup is released */
};
extern const struct front front_http, front_socks, front_transparent;

/* What is needed until the connection is made. */
struct setup {
	struct target target;
	union { /* of the front */
		struct request req;
		struct socks socks;
	};
	struct sni sni;
	char *buf; /* the client's first bytes */
	size_t len, cap;
	uint8_t first; /* enum first: what they are, of a captured connection */
	struct verdict verdict;
	struct resolve_waiter waiter;
	struct dial dial;
	struct upstream_link *up; /* upstream.c; NULL: the way is direct */
};

struct outgoing {
	struct relay relay;   /* io[0] the app's client, io[1] the site */
	struct app_conn conn; /* in l->conns */
	struct egress_listener *l;
	struct app *app;
	const struct front *front;
	struct loop_timer timer; /* deadline of the phase */
	uint8_t phase;
	bool judging;    /* counted in l->judging */
	bool literal;    /* the target was an address */
	bool by_address; /* allowed by AllowAddress= */
	bool via;        /* through another proxy: the name was not resolved here */
	uint16_t port;
	uint32_t lingered;
	uint32_t held;           /* part of l->held */
	uint64_t generation;     /* of the policy that allowed it */
	struct in_addr stand_in; /* the address that policy DNS gave out for the name; held. Or 0 */
	struct addr peer;        /* the judged address that was dialled */
	char *host, *rule;     /* what was judged and what allowed it: for judging again when rules change */
	struct setup *setup;   /* until connected */
	struct hello *hello;   /* tunnel.c, until the verdict */
	struct later *later;   /* tunnel.c, until no second ClientHello can come */
	struct http *http;     /* http.c */
	struct access *access; /* access.c, or NULL */
	struct upstream_link *absolute; /* requests go to that proxy in absolute form (http.c) */
};

struct egress_listener {
	struct app *app;
	struct acceptor acc;   /* of the explicit proxy */
	struct tports *tports; /* transparent.c */
	struct resolver *resolver;
	struct app_conns conns;
	size_t judging;
	size_t held;
	bool on; /* accepting */
};

/* --- outgoing.c --- */

/* A client was accepted. It reads the first bytes at once, unless the front has decided already. */
struct outgoing *outgoing_create(struct egress_listener *l, int fd, const struct front *front);
void outgoing_read(struct outgoing *c, int64_t limit_ms); /* front->bytes is called as they come */
void outgoing_free(struct outgoing *c); /* the sockets are closed already, or will be here */
void outgoing_reset(struct outgoing *c);
void outgoing_done(struct relay *r); /* relay_done_fn */
/* Sends an answer of our own, waits for the client to read it, closes. */
void outgoing_answer(struct outgoing *c, const void *data, size_t len);
/* The app's egress is closed: reports that and ends it. */
void outgoing_closed(struct outgoing *c);
/* When the target is an address that policy DNS gave out, the name it stands for is the target from here on; else false. */
bool outgoing_name_of_address(struct outgoing *c);
/* c->setup->target is known: judge it, and go on. */
void outgoing_judge(struct outgoing *c);
/* A refusal after the connection was made, counted and reported like any other. */
void outgoing_denied(struct outgoing *c, const char *rule, const char *hint);
/* The same without what it asks others for, once that is over. */
void setup_put(struct setup *s);
/* Bytes kept for a verdict count; false: the app has too many already. */
bool outgoing_hold(struct outgoing *c, size_t n);
void outgoing_release(struct outgoing *c); /* none any more */
/* The rules changed: ends it when the new ones do not allow it. */
void outgoing_judge_again(struct outgoing *c);
/* egress.c: starts or pauses the listeners. */
void egress_run(struct egress_listener *l);

/* --- transparent.c --- */
void transparent_run(struct tports *t, bool on); /* NULL is fine */
void transparent_destroy(struct tports *t);      /* NULL is fine */

/* --- tunnel.c: anything but a request to a proxy --- */

/* Owns the upstream fd, releases c->setup. `granted` is said to the client first; the tunnel begins `used`
 * bytes after the start of c->setup->buf. */
void tunnel_start(struct outgoing *c, int upstream, const void *granted, size_t granted_len, size_t used);
void tunnel_pass(struct outgoing *c, int upstream); /* its first bytes were judged already */
void tunnel_late(struct outgoing *c); /* the deadline of the first bytes passed: ends the connection */
void hello_free(struct hello *h);     /* NULL is fine */
void later_free(struct later *l);     /* NULL is fine */

/* --- http.c: one request, one response --- */

/* c->setup->req, released. */
void http_start(struct outgoing *c, int upstream);
/* The same where the relay runs already. `buf` begins with the head and may be changed. False: c is gone. */
bool http_begin(struct outgoing *c, const struct request *r, char *buf, size_t len);
void http_free(struct http *h);

/* --- reply.c: texts of the HTTP proxy --- */
char *reply_refused(const struct app *a, const struct target *t, const struct verdict *v);
char *reply_closed(const struct app *a, const char *why);
char *reply_error(int status, const char *reason);
