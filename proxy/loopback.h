/*
 * Loopback=: ports of the host that the unit names, seen by the app at the same port of its own loopback (or, Loopback=app:NAME, at the
 * one that app had). The
 * listeners were made inside; each connection is relayed to 127.0.0.1 (or ::1 when that refuses) of the host.
 * The port comes from the supervisor, never from the app.
 */
#pragma once
#include "proxy/app.h"

struct loopback;
struct loopback *loopback_create(struct app *a);
/* Owns fd. `to`: the host's port; `held`: only while a listener of an app here has it. */
void loopback_listener(struct loopback *l, int fd, uint16_t port, uint16_t to, bool held);
/* Around the listeners of a new set: those of the one before go, and at the end the connections whose port is not in
 * it any more. */
void loopback_listeners_begin(struct loopback *l);
void loopback_listeners_end(struct loopback *l);
void loopback_destroy(struct loopback *l);                         /* NULL is fine; ends its connections */
