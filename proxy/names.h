/*
 * Names of one app and the addresses of 198.18.0.0/15 that stand for them inside its jail: policy DNS gives
 * them out, transparent connections bring them back.
 *
 * Theory of operation. The truth is in private memory; the shared memory is what survives. It is read once,
 * when it is opened, entry by entry into private storage and checked there: a proxy that was killed in the
 * middle of a write leaves an entry whose checksum does not fit, which is a free slot, and one that went mad
 * leaves at worst canonical names at addresses of the range. (What a name may reach is judged by name when it
 * is dialled, so that a wrong entry opens nothing.) After that it is only written.
 *
 * A slot has 31 addresses, used in turn: when the slot gets another name it takes its next one, so that an
 * address that a program kept for too long is refused, and does not lead to another host. A slot is given to
 * another name only when all 4,096 are taken, the least recently used first, and only if it was neither asked
 * for nor held for twice the time to live. An app that asks for more names than that gets none.
 */
#pragma once
#include "policy/policy.h"

#define NAMES_MAX   4096
#define NAMES_TTL_S 30 /* what policy DNS tells the app */

struct names;
/* Owns fd: the app's memfd of WIRE_NAMES_BYTES, or -1 for memory that ends with the process. NULL only when
 * fd cannot be mapped. */
struct names *names_open(int fd, struct err **e);
void names_close(struct names *n); /* NULL is fine */
/* The same name gets the same address for as long as it has its slot. `host` canonical. -1: all are in use. */
int names_assign(struct names *n, const char *host, struct in_addr *ret);
/* NULL: no name has this address (any more). Valid until the next names_assign(), or for as long as it is
 * held. */
const char *names_find(const struct names *n, struct in_addr a);
/* A name with connections keeps its slot. Pairs; nothing for an address that has no name. */
void names_hold(struct names *n, struct in_addr a);
void names_release(struct names *n, struct in_addr a);
/* 198.18.0.0/15 (RFC 2544), the part that is given out and 198.18.0.0/24, which is the jail's own. */
bool names_is_fake(const struct addr *a);
