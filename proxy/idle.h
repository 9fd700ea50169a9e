/*
 * Session apps: is anybody using the app? The supervisor starts the app for its first client and stops it when
 * there was none for IdleTimeout=; here is who knows.
 *
 * Theory of operation. Only this process accepts, so only here "nobody is connected, and nobody will be" can be
 * said without a gap. At gate `serve` a timer looks whether the last connection has been gone for idle_ms. If so,
 * and no client is in a listen queue either, accepting stops (the gate becomes `hold`) and `unused` is said, in one
 * turn of the loop: whoever comes later waits in the kernel's queue for the next launch. At gate `rest` the queues
 * are watched, nothing is accepted, and `wanted` is said once, when a client is there: in a queue, or left over from
 * a launch that ended under it. Both carry the number of the gate, so that the supervisor knows whether they were
 * said before or after its last order; after each order everything is looked at again.
 *
 * Use is a connection of a client, pending or open; with idle_by_traffic a byte in either direction (looked at four
 * times in idle_ms, so it is noticed a quarter of that late at most). What the app itself connects to is no use, and
 * checks of health and readiness do not come this way.
 *
 * A client that is gone without a word is no use either: keepalive probes end its connection within forward_gone_ms().
 * The kernel does not probe while data waits for an acknowledgement, and sends that again for a quarter of an hour; so
 * the timer looks at such connections too (forward_end_gone()), while any client is not of this machine.
 */
#pragma once
#include "proxy/app.h"

struct idle;
struct idle *idle_create(struct app *a);
void idle_destroy(struct idle *i);
void idle_gate(struct idle *i, enum gate before); /* the supervisor has told the gate */
void idle_used(struct idle *i);                   /* a client came */
void idle_unused(struct idle *i);                 /* the last one is gone */
void idle_wanted(struct idle *i);                 /* at gate `rest`: a client is waiting */
int64_t idle_unused_ms(const struct idle *i);     /* at gate `serve`; -1: in use */
