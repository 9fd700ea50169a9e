/*
 * Sockets made inside an app's network namespace, waiting to be connected. The supervisor makes them in
 * batches when it is asked; the next batch is asked for when half of the last one is used, and batches grow
 * while they are used up quickly and shrink when they last. Connections never wait longer than one round trip
 * to the supervisor.
 */
#pragma once
#include "proxy/app.h"

#define POOL_MAX 192 /* a batch fits one SCM_RIGHTS message (253) */

struct pool {
	int *fds;
	size_t n, cap;
	size_t batch;      /* size of the next request */
	size_t low;        /* ask again at or below */
	size_t asked;      /* so many are on their way, and in the budget of accept.h like those here */
	int64_t got_at_ms; /* when the last batch came */
	int family;        /* of all sockets: AF_INET6 (dual-stack) or AF_INET; 0 before the first */
};

void pool_init(struct pool *p);
void pool_clear(struct pool *p); /* closes all; also what was asked for is forgotten */
/* Takes up to n fds (sets them to -1). */
void pool_put(struct pool *p, int *fds, size_t n);
/* Returns a socket or -1; asks for more when it should. `waiting`: connections that need one and have none.
 */
int pool_take(struct pool *p, struct app *a);
void pool_want(struct pool *p, struct app *a, size_t waiting);
