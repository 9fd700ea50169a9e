/*
 * Is an address one of this machine? The one part of src/policy that is not pure, so that the proxy and
 * `sbxsv check --allow` ask the same question. Only the kernel knows all of them (interfaces, AnyIP routes,
 * addresses that came up a moment ago), so it is asked for the route at dial time. What is remembered is only that
 * an address is remote, for a second at most, and only while the kernel has reported no change of links, addresses,
 * routes or rules: whether it has is looked at each time.
 * Addresses that embed an IPv4 one (v4-mapped, NAT64, 6to4) are asked about by both.
 */
#pragma once
#include "policy/policy.h"

enum route {
	ROUTE_REMOTE,
	ROUTE_LOCAL, /* also broadcast, multicast and anything the kernel did not answer clearly */
	ROUTE_NONE,  /* unreachable from here */
};
int local_open(struct err **e); /* first of all; the proxy: before it is confined */
enum route local_route(const struct addr *a);
/* v4-mapped becomes plain IPv4: the form that is dialled. */
void local_unmap(struct addr *a);
