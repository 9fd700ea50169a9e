/*
 * A load tool for the figures of tests/bench/run.
 *
 *   netbench server PORT             answers on 0.0.0.0 and :: by the first byte of a connection: 'r' one byte
 *                                    back, then end; 'p' echoes; 't' swallows until EOF, then one byte;
 *                                    "dN\n" sends N MiB
 *   netbench tput HOST PORT MB       sends MB megabytes over one connection: prints MB/s
 *   netbench rate HOST PORT N CONC   N connections, CONC at a time, one byte each way: prints connections/s
 *                                    and failures
 *   netbench trip HOST PORT N        N one-byte round trips on one connection: prints the median in us
 *   netbench tunnel-KIND ...         the same through a proxy: tunnels.c
 *   netbench relay|connect-relay PORT HOST TO   a plain relay, as the bound: relay.c
 */
#include "tests/bench/netbench.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

char bench_buf[BUF];

uint64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

_Noreturn void die(const char *what)
{
	(void)fprintf(stderr, "netbench: %s: %s\n", what, strerror(errno));
	exit(1);
}

long number(const char *s)
{
	char *end;
	long v = strtol(s, &end, 10);

	if (*end || v <= 0) {
		(void)fprintf(stderr, "netbench: not a number: %s\n", s);
		exit(2);
	}
	return v;
}

int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

void watch(int ep, int op, int fd, uint32_t events, void *ptr)
{
	struct epoll_event e = {.events = events, .data.ptr = ptr};

	if (epoll_ctl(ep, op, fd, &e) < 0)
		die("epoll_ctl");
}

/* --- clients --- */

/* Looked up once: the figures are about connections. */
static struct in_addr address_of(const char *host)
{
	static const char *known;
	static struct in_addr a;
	const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
	struct addrinfo *ai = NULL;

	if (known && strcmp(known, host) == 0)
		return a;
	if (getaddrinfo(host, NULL, &hints, &ai) != 0) {
		(void)fprintf(stderr, "netbench: no address: %s\n", host);
		exit(2);
	}
	a = ((const struct sockaddr_in *)(const void *)ai->ai_addr)->sin_addr;
	freeaddrinfo(ai);
	known = host;
	return a;
}

int connect_to(const char *host, uint16_t port, int flags)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0), one = 1;

	a.sin_addr = address_of(host);
	if (fd < 0 || (connect(fd, (struct sockaddr *)&a, sizeof a) < 0 && errno != EINPROGRESS)) {
		int saved = errno;

		if (fd >= 0)
			(void)close(fd);
		errno = saved;
		return -1;
	}
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	return fd;
}

static int tput(const char *host, uint16_t port, long mb)
{
	uint64_t left = (uint64_t)mb << 20, begun;
	int fd = connect_to(host, port, 0);
	char c;

	if (fd < 0)
		die("connect");
	memset(bench_buf, 't', sizeof bench_buf);
	begun = now_ns();
	while (left) {
		ssize_t n = write(fd, bench_buf, left < SEND ? (size_t)left : SEND);

		if (n < 0)
			die("write");
		left -= (uint64_t)n;
	}
	(void)shutdown(fd, SHUT_WR);
	if (read(fd, &c, 1) != 1)
		die("no answer");
	(void)printf("%.1f\n", (double)mb * 1e9 / (double)(now_ns() - begun));
	return 0;
}

struct flight {
	int ep, fd[1024]; /* by slot */
	long started, done, failed, total;
};

static void launch(struct flight *f, uint32_t slot, const char *host, uint16_t port)
{
	f->fd[slot] = -1;
	while (f->started < f->total && f->fd[slot] < 0) {
		struct epoll_event e = {.events = EPOLLOUT, .data.u32 = slot};

		f->started++;
		f->fd[slot] = connect_to(host, port, SOCK_NONBLOCK);
		if (f->fd[slot] < 0)
			f->failed++;
		else if (epoll_ctl(f->ep, EPOLL_CTL_ADD, f->fd[slot], &e) < 0)
			die("epoll_ctl");
	}
}

/* One step of one connection; true when it is over. */
static int step(struct flight *f, uint32_t slot, uint32_t events)
{
	int fd = f->fd[slot];
	ssize_t n;
	char c;

	if (events & EPOLLOUT) {
		struct epoll_event e = {.events = EPOLLIN, .data.u32 = slot};

		if (write(fd, "r", 1) == 1) {
			(void)epoll_ctl(f->ep, EPOLL_CTL_MOD, fd, &e);
			return 0;
		}
		f->failed++;
		return 1;
	}
	n = read(fd, &c, 1);
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n == 1)
		f->done++;
	else
		f->failed++;
	return 1;
}

static int rate(const char *host, uint16_t port, long total, long conc)
{
	struct flight f = {.total = total, .ep = epoll_create1(EPOLL_CLOEXEC)};
	uint64_t begun = now_ns();

	if (conc > 1024)
		conc = 1024;
	for (long i = 0; i < conc; i++)
		launch(&f, (uint32_t)i, host, port);
	while (f.done + f.failed < total) {
		struct epoll_event e[64];
		int n = epoll_wait(f.ep, e, 64, STALL_MS);

		if (n == 0)
			break;
		for (int i = 0; i < n; i++) {
			if (!step(&f, e[i].data.u32, e[i].events))
				continue;
			(void)close(f.fd[e[i].data.u32]);
			launch(&f, e[i].data.u32, host, port);
		}
	}
	(void)printf("%.1f %ld\n", (double)f.done * 1e9 / (double)(now_ns() - begun), total - f.done);
	return 0;
}

static int trip(const char *host, uint16_t port, long n)
{
	uint64_t *t = calloc((size_t)n, sizeof *t);
	int fd = connect_to(host, port, 0);
	char c;

	if (fd < 0 || !t)
		die("connect");
	for (long i = 0; i < n; i++) {
		uint64_t begun = now_ns();

		if (write(fd, "p", 1) != 1 || read(fd, &c, 1) != 1)
			die("round trip");
		t[i] = now_ns() - begun;
	}
	qsort(t, (size_t)n, sizeof *t, by_size);
	(void)printf("%.1f\n", (double)t[n / 2] / 1000.);
	free(t);
	return 0;
}

int main(int argc, char **argv)
{
	struct rlimit r;

	(void)signal(SIGPIPE, SIG_IGN);
	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		r.rlim_cur = r.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &r);
	}
	if (argc == 3 && strcmp(argv[1], "server") == 0)
		server((uint16_t)number(argv[2]));
	if (argc == 5 && strcmp(argv[1], "tput") == 0)
		return tput(argv[2], (uint16_t)number(argv[3]), number(argv[4]));
	if (argc == 6 && strcmp(argv[1], "rate") == 0)
		return rate(argv[2], (uint16_t)number(argv[3]), number(argv[4]), number(argv[5]));
	if (argc == 5 && strcmp(argv[1], "trip") == 0)
		return trip(argv[2], (uint16_t)number(argv[3]), number(argv[4]));
	if (argc == 5 && strcmp(argv[1], "relay") == 0)
		relay((uint16_t)number(argv[2]), argv[3], (uint16_t)number(argv[4]), 0);
	if (argc == 5 && strcmp(argv[1], "connect-relay") == 0)
		relay((uint16_t)number(argv[2]), argv[3], (uint16_t)number(argv[4]), 1);
	if (argc > 5 && strncmp(argv[1], "tunnel-", 7) == 0)
		return tunnel_main(argc, argv);
	(void)fputs("usage: see the first comment of netbench.c\n", stderr);
	return 2;
}
