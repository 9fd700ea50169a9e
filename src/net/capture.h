/* The sockets made inside an app's namespace. Private to src/net. See net.h. */
#pragma once
#include "net/net.h"

/* Adds them to fds and ret; what is already there stays. -1 with *e, the caller closes. */
int capture_sockets(const struct net_plan *p, int *fds, struct net_inside_result *ret, struct err **e);
