/*
 * Inbound: from the host's listening sockets to the app.
 *
 * Theory of operation. A client accepted on a host port waits in `pending` until a socket made inside the
 * app's namespace is connected to the app's port on loopback; then the relay has it. The client's bytes are
 * not read before. A refused inner connect (the app is starting, or just died) is tried again every 20 ms
 * while the gate is `serve`, at most 10 s, on 127.0.0.1 and ::1 in turn; which of them answered is remembered
 * for the port. When the jail goes while a client is pending, the client stays and waits for the next launch.
 *
 * A client that is not on loopback keeps its address inside, so that the app never takes the LAN for
 * localhost. When the family that answers is not the client's, a stand-in that is not loopback either is
 * used.
 */
#pragma once
#include "proxy/app.h"

struct forward;
struct forward *forward_create(struct app *a);
void forward_destroy(struct forward *f);

/* Replaces the listeners: those not named again between begin and end are closed; a port named again keeps
 * what was learnt about it. Owns fd. */
void forward_listeners_begin(struct forward *f);
void forward_listener(struct forward *f, int fd, uint16_t host_port, uint16_t app_port);
void forward_listeners_end(struct forward *f);

/* The family of the listener of that port of the host; AF_UNSPEC: there is none. */
int forward_family(const struct forward *f, uint16_t host_port);
void forward_gate_changed(struct forward *f);
void forward_jail_ready(struct forward *f);
void forward_pool(struct forward *f, int *fds, size_t n); /* takes the fds */
/* For idle.h. */
size_t forward_clients(const struct forward *f); /* connections, pending ones too */
size_t forward_distant(const struct forward *f); /* those of other machines */
bool forward_queued(const struct forward *f);    /* is one waiting to be accepted? */
bool forward_moved(struct forward *f);           /* did any byte go since this was asked last? */
int64_t forward_gone_ms(const struct forward *f);
void forward_end_gone(struct forward *f); /* those of other machines that have not been heard of for so long */
/* Ends the pool and every established connection; pending clients stay. */
void forward_drop(struct forward *f);
