/*
 * The way through another proxy (UpstreamProxy=).
 *
 * Theory of operation. The policy has allowed the target by name or address before this begins; the other
 * proxy gets the judged name, so it is the one who resolves it: the addresses cannot be judged here. Its own
 * address is not judged either, because a person named it: it may be private, or of this machine, but not
 * this proxy's own listener. A tunnel is asked for with CONNECT; a plain HTTP request is sent on in absolute
 * form instead, because many proxies grant CONNECT to port 443 only. What the site says after that is judged
 * like that of a direct connection.
 *
 * The reply's head is read without a byte of what follows it: the socket then is that of a direct connection.
 */
#pragma once
#include "proxy/outgoing.h"

#define UPSTREAM_REPLY_MAX   16384
#define UPSTREAM_REPLY_MS    30000
#define UPSTREAM_REQUEST_MAX 4096 /* CONNECT: names and credentials are bounded far below it */

/* Called once, maybe before upstream_start() returns. fd: owned by the callee, or -1 with the rest. */
typedef void upstream_fn(struct outgoing *c, int fd, enum failure why, int errnum, const char *text);

/* Uses c->setup's waiter and dial. `own` is our listener, or -1. `absolute`: no CONNECT. */
struct upstream_link *upstream_create(struct outgoing *c, const struct upstream *u, bool absolute);
void upstream_start(struct outgoing *c, int own, upstream_fn *fn); /* c->setup->up; may free it */
void upstream_free(struct upstream_link *l);                       /* NULL is fine */

/* A request head as request_build() made it, for the other proxy: in absolute form, with the credentials.
 * Owned by caller. */
char *upstream_head(const struct upstream_link *l, const struct target *t, const char *head, size_t len,
		    size_t *ret_len);
/* What a status of the other proxy means that the client can do nothing about; NULL: it may have it. Owned by
 * caller. */
char *upstream_trouble(const struct upstream_link *l, int status);
const char *upstream_shown(const struct upstream_link *l);
bool upstream_absolute(const struct upstream_link *l);
