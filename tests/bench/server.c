/* The server of netbench: what it does with a connection is told by the first byte. */
#include "tests/bench/netbench.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define YES "HTTP/1.1 200 OK\r\n\r\n"

struct conn {
	int fd, ep;
	char mode;
	uint64_t left; /* 'd': to be sent */
};

static void accept_all(int ep, int listener)
{
	int fd, one = 1;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		struct conn *c = calloc(1, sizeof *c);

		if (!c)
			die("memory");
		c->fd = fd;
		c->ep = ep;
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		watch(ep, EPOLL_CTL_ADD, fd, EPOLLIN, c);
	}
}

static void end(struct conn *c)
{
	(void)close(c->fd);
	free(c);
}

static void feed(struct conn *c)
{
	ssize_t n = write(c->fd, bench_buf, c->left < SEND ? (size_t)c->left : SEND);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n < 0) {
		end(c);
		return;
	}
	c->left -= (uint64_t)n;
	if (!c->left) {
		(void)shutdown(c->fd, SHUT_WR);
		watch(c->ep, EPOLL_CTL_MOD, c->fd, EPOLLIN, c);
	}
}

/* "dMIB\n": so many MiB are wanted. The request is small and comes in one piece. */
static void feed_start(struct conn *c, ssize_t n)
{
	bench_buf[n < (ssize_t)BUF ? n : (ssize_t)BUF - 1] = 0;
	c->left = strtoull(bench_buf + 1, NULL, 10) << 20;
	watch(c->ep, EPOLL_CTL_MOD, c->fd, EPOLLOUT, c);
}

static void serve(struct conn *c, uint32_t events)
{
	ssize_t n;

	if (c->left) {
		if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
			feed(c);
		return;
	}
	n = read(c->fd, bench_buf, BUF);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		if (c->mode == 't')
			(void)!write(c->fd, "k", 1);
		end(c);
		return;
	}
	if (!c->mode && bench_buf[0] == 'C') { /* a CONNECT that a relay passed on: said yes to, in its place */
		(void)!write(c->fd, YES, sizeof YES - 1);
		return;
	}
	if (!c->mode)
		c->mode = bench_buf[0];
	if (c->mode == 'r') {
		(void)!write(c->fd, "x", 1);
		(void)shutdown(c->fd, SHUT_WR);
	} else if (c->mode == 'p') {
		(void)!write(c->fd, bench_buf, (size_t)n);
	} else if (c->mode == 'd') {
		feed_start(c, n);
	}
}

_Noreturn void server(uint16_t port)
{
	struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	int l = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1, zero = 0;
	int v6 = l >= 0, ep = epoll_create1(EPOLL_CLOEXEC);

	if (!v6)
		l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	(void)setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (v6)
		(void)setsockopt(l, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
	if (bind(l, v6 ? (void *)&a6 : (void *)&a4, v6 ? sizeof a6 : sizeof a4) < 0 || listen(l, 1024) < 0)
		die("listen");
	watch(ep, EPOLL_CTL_ADD, l, EPOLLIN, NULL);
	for (;;) {
		struct epoll_event e[64];
		int n = epoll_wait(ep, e, 64, -1);

		for (int i = 0; i < n; i++) {
			if (e[i].data.ptr)
				serve(e[i].data.ptr, e[i].events);
			else
				accept_all(ep, l);
		}
	}
}
