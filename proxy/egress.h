/*
 * The explicit HTTP proxy inside an app's jail.
 *
 * Theory of operation. A connection goes HEAD (read the request head, bounded and with a deadline) -> RESOLVE
 * -> DIAL
 * -> then the relay has it, with taps where something is still to be judged: the ClientHello of a CONNECT
 * tunnel, the body and the response head of an absolute-form request. Each request is judged by the policy in
 * force at that moment: name, then every address of the answer, then whether the kernel calls an address
 * local. Only a judged address is dialled. A refusal answers 403 with the unit line that would allow it, and
 * is reported (denied.h).
 *
 * What a connection needs until it is a tunnel (head, request, dial) is one heap block that goes away then.
 */
#pragma once
#include "proxy/app.h"

struct egress_listener;
struct egress_listener *egress_create(struct app *a, int fd); /* owns fd, the listener inside */
void egress_destroy(struct egress_listener *e);               /* NULL is fine; ends its connections */
