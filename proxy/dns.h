/*
 * Policy DNS: the name server of one jail, on every address at port 53.
 *
 * Theory of operation. An answer is made of the app's policy and its name map, at once and from nothing else:
 * no question ever goes upstream from here. A name that some rule lets the app reach at some port gets an
 * address of the map; the name is looked up for real when a connection to that address is made. So an allowed
 * name that does not exist gets an address too, and fails at the connect. What is not allowed does not exist:
 * NXDOMAIN, with the reason in an Extended DNS Error (RFC 8914), counted and reported like a refused connect.
 *
 * The answer leaves from the address that was asked. Datagrams are taken and answered in batches, without
 * allocation. An app may ask DNS_RATE questions a second by UDP and TCP together; beyond that its sockets
 * wait, so that what a flood costs is bounded and is paid by the flood.
 */
#pragma once
#include "proxy/app.h"
#include "proxy/names.h"

#define DNS_RATE 10000 /* questions a second of one app */

struct dns;
/* names_fd: owned, see names_open(); one that cannot be used is replaced by memory that ends with us. */
struct dns *dns_create(struct app *a, int names_fd);
/* Each owns fd, made inside: bound to port 53, with IP_PKTINFO, or IPV6_RECVPKTINFO and IPV6_FREEBIND, on; or
 * listening there. */
void dns_udp(struct dns *d, int fd);
void dns_tcp(struct dns *d, int fd);
void dns_destroy(struct dns *d);        /* NULL is fine. After the connections: they hold names */
struct names *dns_names(struct dns *d); /* NULL for NULL: a jail without policy DNS */
