/*
 * What sbxsv-proxy says, from the bytes on. Private to proxyctl.
 *
 * The proxy is the process that reads what strangers send, so it is the one that may be taken over. Nothing
 * it can say may do more than a broken proxy could: texts are bounded, names must be known, an event is made here of
 * what it refused and can be nothing else, sockets are bounded by a rate, and what makes no sense is said once and
 * ignored.
 */
#pragma once
#include "net/proxyctl_app.h"

#define PC_POOL_MAX 192 /* of proxy/pool.h: what one `need` may ask for */

struct pc_in {
	struct pc_app *const *apps;
	void (*event)(void *data, const struct js *event);
	void (*need)(void *data, struct pc_app *a, size_t n); /* n: 0 to PC_POOL_MAX */
	void (*synced)(void *data, uint64_t n);
	void (*use)(void *data, struct pc_app *a, enum proxy_use use);
	void *data;
	bool complained; /* about this proxy; false for a new one */
};

void pc_message(struct pc_in *in, const struct js *m);
