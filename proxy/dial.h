/*
 * Connecting to one of several judged addresses, in the way of RFC 8305: families in turn, IPv6 first, the
 * next attempt when the last one failed or did not answer within 250 ms, the first that connects wins. Each
 * address is checked against this machine's own immediately before its connect().
 */
#pragma once
#include "base/loop.h"
#include "policy/policy.h"

#define DIAL_MAX        8      /* attempts */
#define DIAL_STAGGER_MS 250    /* RFC 8305 5, "Connection Attempt Delay" */
#define DIAL_LIMIT_MS   15000  /* in all */
#define DIAL_STALL_MS   300000 /* a connected site that acknowledges nothing for so long is gone */

enum dial_result { DIAL_OK, DIAL_LOCAL, DIAL_FAILED, DIAL_TIMEOUT };
/* Called once, maybe before dial_start() returns. fd: owned by the callee, or -1. errnum: of DIAL_FAILED. */
typedef void dial_fn(void *data, enum dial_result result, int fd, int errnum);

struct dial_attempt {
	struct loop_io io;
	struct dial *dial;
};
struct dial {
	struct loop *loop;
	dial_fn *fn;
	void *data;
	struct addr v[DIAL_MAX];
	struct dial_attempt attempt[DIAL_MAX];
	size_t n, next, open;
	size_t won; /* DIAL_OK: index in v */
	uint16_t port;
	int errnum;
	struct loop_timer stagger, limit;
	bool own; /* an address of this machine is fine */
	bool busy;
};
/* Copies addresses; all were judged. More than DIAL_MAX: the rest is not tried. */
void dial_start(struct dial *d, struct loop *l, const struct addr *v, size_t n, uint16_t port, dial_fn *fn,
		void *data);
/* To an address that a person named, not a rule: it may be one of this machine. */
void dial_start_own(struct dial *d, struct loop *l, const struct addr *v, size_t n, uint16_t port,
		    dial_fn *fn, void *data);
void dial_stop(struct dial *d); /* a zeroed or ended one is fine */
