/* Shared by the parts of netbench. */
#pragma once
#include <stdint.h>

#define BUF      (1u << 20)
#define SEND     (256u << 10)
#define STALL_MS 10000 /* nothing at all for so long: broken */

extern char bench_buf[BUF];

uint64_t now_ns(void);
_Noreturn void die(const char *what);
long number(const char *s);
int by_size(const void *a, const void *b); /* of uint64_t, for qsort() */
/* epoll_ctl() that cannot fail. */
void watch(int ep, int op, int fd, uint32_t events, void *ptr);
/* -1 with errno; flags: SOCK_NONBLOCK. */
int connect_to(const char *host, uint16_t port, int flags);

_Noreturn void server(uint16_t port); /* server.c */
/* tunnels.c: argv[2] HOST, [3] PORT, [4] TARGET ("HOST:PORT" asked for with CONNECT, or "-"), [5] N, [6]. */
int tunnel_main(int argc, char **argv);
/* relay.c: the bound. */
_Noreturn void relay(uint16_t port, const char *host, uint16_t to, int speaks_connect);
