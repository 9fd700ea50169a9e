/*
 * Outgoing connections of an app: the proxy inside its jail, which speaks HTTP and SOCKS5 on one port, and
 * whatever its programs connect to without one.
 *
 * Theory of operation. A connection goes FIRST (read what it wants, bounded and with a deadline) -> RESOLVE
 * -> DIAL -> then the relay has it, with taps where something is still to be judged: the ClientHello or the
 * HTTP request inside a tunnel, the body and the response head of a request. A captured connection knows its
 * target from the start when it is a name that policy DNS gave out, or an address that is allowed; then it is
 * dialled at once, so that servers which speak first work. Each target is judged by the policy in force at
 * that moment: name, then every address of the answer, then whether the kernel calls an address local. Only a
 * judged address is dialled. When the rules change every open connection is judged again, by its name and by
 * the address it went to. A refusal has the shape of the front (outgoing.h) and is reported (denied.h).
 *
 * What a connection needs until it is a tunnel (first bytes, request, dial) is one heap block that goes away
 * then.
 */
#pragma once
#include "proxy/app.h"

struct egress_listener;
/* Owns fd, the listener of the explicit proxy inside; -1: there is none. */
struct egress_listener *egress_create(struct app *a, int fd);
/* One more listener inside, that takes what programs connect to by themselves: what getsockname() says of an accepted
 * socket is where it wanted to go. `port` is the only one it stands for, or 0. Owns fd. */
void transparent_listener(struct egress_listener *e, int fd, uint16_t port);
/* After a new policy, or when egress was closed. NULL is fine. */
void egress_judge_again(struct egress_listener *e);
void egress_destroy(struct egress_listener *e); /* NULL is fine; ends its connections */
