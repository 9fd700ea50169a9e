/*
 * Just enough netlink for the inside of a namespace: no library, no heap, so that it may run in the copy of
 * the supervisor that clone3 made.
 */
#pragma once
#include <netinet/in.h>
#include <stdint.h>

int nl_open(int protocol); /* a NETLINK socket of the current network namespace; -1 with errno */
/* "ip route add local default dev lo [src ADDRESS]": every address is ours. Without `source` a connection comes
 * from the address it goes to, and meets itself when the ports are equal too. -1 with errno. */
int nl_any_ip(int sock, int family, const struct in_addr *source);
int nl_add_address4(int sock, struct in_addr address); /* a /32 on lo; -1 with errno */
