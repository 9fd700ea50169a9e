/*
 * Readiness: is the launch ready? listen: every declared app port has a listener inside the jail (sock_diag,
 * asked at growing intervals while starting, never afterwards). http: a request to the first port answers
 * with any status below 500. The check belongs to one launch; stopping it forgets it. There is no time limit
 * here: the caller has one.
 */
#pragma once
#include "base/err.h"
#include "base/loop.h"
#include <stddef.h>
#include <stdint.h>

struct ready;
/* "listening on 4810 after 84 ms". Once; the check is over then and may be stopped (freed) inside or later.
 */
typedef void ready_fn(void *data, const char *what);
/* Is there a listener on this port? 1 yes, 0 no, -1 unknown. Given by the caller (net is a sibling). */
typedef int ready_listens_fn(void *data, uint16_t port);
/* A connected-or-connecting non-blocking socket to the app's port; -1. Given by the caller. Owned by ready
 * then. */
typedef int ready_connect_fn(void *data, uint16_t port);
struct ready_config {
	const uint16_t *ports;     /* copied */
	size_t n_ports;            /* at least 1 */
	const char *http_path;     /* NULL: listen only; copied */
	ready_listens_fn *listens; /* NULL: not asked (http alone decides) */
	ready_connect_fn *connect; /* needed for http */
	void *data;
	int64_t begun_ms; /* monotonic, of a check that goes on; 0: now */
};
struct ready *ready_start(struct loop *l, const struct ready_config *c, ready_fn *on_ready,
			  void *on_ready_data);
int64_t ready_begun_ms(const struct ready *r);
void ready_stop(struct ready *r); /* frees; NULL is fine */
/* What it waits for now, for status and for the message of a time-out: "nothing listens on 4810",
 * "GET / on 4810 answered 503"; valid until the next loop iteration. */
const char *ready_waiting_for(const struct ready *r);
