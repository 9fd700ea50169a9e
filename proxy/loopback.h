/*
 * Loopback=: ports of the host that the unit names, seen by the app at the same port of its own loopback. The
 * listeners were made inside; each connection is relayed to 127.0.0.1 (or ::1 when that refuses) of the host.
 * The port comes from the supervisor, never from the app.
 */
#pragma once
#include "proxy/app.h"

struct loopback;
struct loopback *loopback_create(struct app *a);
void loopback_listener(struct loopback *l, int fd, uint16_t port); /* owns fd */
void loopback_destroy(struct loopback *l);                         /* NULL is fine; ends its connections */
