/*
 * The private channel of sbxsvd and sbxsv-proxy: one JSON object a message over SOCK_SEQPACKET, fds by
 * SCM_RIGHTS. Sending never blocks: what the socket does not take is queued (with duplicates of the fds) and
 * written when it can be. A queue over WIRE_QUEUE_MAX messages means the peer hangs: the channel reports it
 * as closed.
 */
#pragma once
#include "base/fd.h"
#include "base/json.h"
#include "base/loop.h"

#define WIRE_VERSION   4
#define WIRE_MAX_BYTES (160u << 10) /* below the default net.core.wmem_default of 212992 */
#define WIRE_QUEUE_MAX 65536u
/* A message larger than that goes in a sealed memfd, as {"memfd": LENGTH}, and at most this large: the rules of an app
 * may be many. Only an end that says so takes such messages: the proxy. */
#define WIRE_LARGE_MAX JSON_MAX_BYTES
/* "where" of a policy: rules are options of this command. */
#define WHERE_EXEC  "sbxsv exec"
#define WHERE_ALONE "sbxsv-proxy"
/* Size of the memory in which the proxy keeps an app's names (proxy/names.h); the supervisor makes it and
 * never looks into it. Only what is used of it takes memory. */
#define WIRE_NAMES_BYTES (2u << 20)

struct wire;
/* The message belongs to the callback's caller; take fds by setting them to -1, the rest are closed after it.
 */
typedef void wire_message_fn(void *data, const struct js *msg, int *fds, size_t n_fds);
typedef void wire_closed_fn(void *data, const char *why); /* once; the wire may be destroyed in it */
/* Owns fd (a SOCK_SEQPACKET socket). */
struct wire *wire_create(struct loop *l, int fd, wire_message_fn *on_message, wire_closed_fn *on_closed,
			 void *data);
void wire_destroy(struct wire *w);
int wire_fd(const struct wire *w);
/* How many messages were accepted by wire_send(), and how many of them have left the queue. */
uint64_t wire_accepted(const struct wire *w);
uint64_t wire_left(const struct wire *w);
void wire_take_large(struct wire *w); /* this end does */
/* For who sends by itself: makes of *text (owned by caller, replaced) what is to be sent, with *ret_fd beside it unless that
 * is -1. Fails with EMSGSIZE beyond WIRE_LARGE_MAX. */
int wire_pack(char **text, int *ret_fd);
/* Owns msg. fds stay the caller's. -1 when the channel is closed or the message too large (EMSGSIZE): over WIRE_MAX_BYTES with
 * fds, else over WIRE_LARGE_MAX. */
int wire_send(struct wire *w, struct js *msg, const int *fds, size_t n_fds);
