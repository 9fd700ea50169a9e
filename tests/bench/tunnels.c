/*
 * Clients of a proxy: what a tunnel costs. One client for every proxy that is compared.
 *
 *   netbench tunnel-tput HOST PORT TARGET MIB STREAMS   STREAMS tunnels, MIB to fetch through each at the same
 *                                                       time: MiB/s
 *   netbench tunnel-rate HOST PORT TARGET N CONC        N tunnels, CONC at a time, one byte there and back in
 *                                                       each: tunnels/s and failures
 *   netbench tunnel-trip HOST PORT TARGET N             one-byte round trips in an open tunnel: p50 and p99, us
 *   netbench tunnel-setup HOST PORT TARGET N            tunnels one after the other, from connect() to the first
 *                                                       byte back: p50 and p99, us
 *   netbench tunnel-idle HOST PORT TARGET N             opens N and holds them until its standard input ends;
 *                                                       says "N open"
 *
 * TARGET is what is asked for with CONNECT; "-": nothing is asked, the proxy has one target. The end of each
 * tunnel comes from the client, as it does with a browser.
 */
#include "tests/bench/netbench.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_MAX 2048

struct goal {
	const char *host;
	uint16_t port;
	char ask[512];
	size_t ask_len; /* 0: no CONNECT */
};

static void goal_read(struct goal *g, char **argv)
{
	g->host = argv[2];
	g->port = (uint16_t)number(argv[3]);
	g->ask_len = 0;
	if (strcmp(argv[4], "-") != 0)
		g->ask_len = (size_t)snprintf(
			g->ask, sizeof g->ask,
			"CONNECT %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: netbench\r\n\r\n", argv[4], argv[4]);
}

/* Takes what came of the answer's head. 1: it is complete and says 200, 0: more is needed, -1: refused. */
static int head_take(int fd, char *head, size_t *len)
{
	ssize_t n = recv(fd, head + *len, HEAD_MAX - 1 - *len, 0);

	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n <= 0)
		return -1;
	*len += (size_t)n;
	head[*len] = 0;
	if (!strstr(head, "\r\n\r\n"))
		return *len < HEAD_MAX - 1 ? 0 : -1;
	return *len > 12 && strncmp(head, "HTTP/1.", 7) == 0 && strncmp(head + 8, " 200", 4) == 0 ? 1 : -1;
}

static int tunnel_open(const struct goal *g)
{
	char head[HEAD_MAX];
	size_t len = 0;
	int fd = connect_to(g->host, g->port, 0), r = 0;

	if (fd < 0)
		die("connect");
	if (!g->ask_len)
		return fd;
	if (write(fd, g->ask, g->ask_len) != (ssize_t)g->ask_len)
		die("CONNECT");
	while (r == 0)
		r = head_take(fd, head, &len);
	if (r < 0) {
		(void)fprintf(stderr, "netbench: refused: %.*s\n", (int)len, head);
		exit(1);
	}
	return fd;
}

static void round_trip(int fd)
{
	char c;

	if (write(fd, "p", 1) != 1 || read(fd, &c, 1) != 1)
		die("round trip");
}

/* --- throughput --- */

static int tput(const struct goal *g, long mib, long streams)
{
	int ep = epoll_create1(EPOLL_CLOEXEC);
	uint64_t begun, got = 0;
	long open = streams;
	char want[32];
	int len = snprintf(want, sizeof want, "d%ld\n", mib);
	int *fd = calloc((size_t)streams, sizeof *fd);

	if (!fd)
		die("memory");
	for (long i = 0; i < streams; i++) {
		fd[i] = tunnel_open(g);
		if (fcntl(fd[i], F_SETFL, O_NONBLOCK) < 0)
			die("fcntl");
		watch(ep, EPOLL_CTL_ADD, fd[i], EPOLLIN, &fd[i]);
	}
	begun = now_ns();
	for (long i = 0; i < streams; i++)
		if (write(fd[i], want, (size_t)len) != len)
			die("write");
	while (open) {
		struct epoll_event e[64];
		int n = epoll_wait(ep, e, 64, STALL_MS);

		if (n == 0)
			die("no bytes");
		for (int i = 0; i < n; i++) {
			int *p = e[i].data.ptr;
			ssize_t r = read(*p, bench_buf, SEND);

			if (r < 0 && errno == EAGAIN)
				continue;
			if (r < 0)
				die("read");
			got += (uint64_t)r;
			if (r == 0) {
				(void)close(*p);
				open--;
			}
		}
	}
	if (got != (uint64_t)mib * (uint64_t)streams << 20) {
		(void)fprintf(stderr, "netbench: %llu bytes came\n", (unsigned long long)got);
		return 1;
	}
	(void)printf("%.1f\n", (double)(mib * streams) * 1e9 / (double)(now_ns() - begun));
	free(fd);
	return 0;
}

/* --- many tunnels --- */

enum phase { CONNECTING, ASKED, PINGED };

struct slot {
	int fd;
	enum phase phase;
	size_t len;
	char head[HEAD_MAX];
};
struct crowd {
	const struct goal *g;
	int ep, keep; /* keep: what is open stays open */
	long started, done, failed, total;
};

static void slot_launch(struct crowd *c, struct slot *s)
{
	s->fd = -1;
	s->phase = CONNECTING;
	s->len = 0;
	while (c->started < c->total && s->fd < 0) {
		c->started++;
		s->fd = connect_to(c->g->host, c->g->port, SOCK_NONBLOCK);
		if (s->fd < 0)
			c->failed++;
		else
			watch(c->ep, EPOLL_CTL_ADD, s->fd, EPOLLOUT, s);
	}
}

static int slot_say(struct crowd *c, struct slot *s, const char *what, size_t len, enum phase next)
{
	if (write(s->fd, what, len) != (ssize_t)len)
		return -1;
	if (s->phase == CONNECTING)
		watch(c->ep, EPOLL_CTL_MOD, s->fd, EPOLLIN, s);
	s->phase = next;
	return 0;
}

/* 1: this tunnel did what it should, -1: it did not, 0: it goes on. */
static int slot_step(struct crowd *c, struct slot *s)
{
	char byte;
	ssize_t n;
	int r;

	switch (s->phase) {
	case CONNECTING:
		if (c->g->ask_len)
			return slot_say(c, s, c->g->ask, c->g->ask_len, ASKED);
		return slot_say(c, s, "p", 1, PINGED);
	case ASKED:
		r = head_take(s->fd, s->head, &s->len);
		return r <= 0 ? r : slot_say(c, s, "p", 1, PINGED);
	case PINGED:
		n = read(s->fd, &byte, 1);
		return n == 1 ? 1 : n < 0 && errno == EAGAIN ? 0 : -1;
	}
	return -1;
}

static void slot_end(struct crowd *c, struct slot *s, int result)
{
	if (result > 0)
		c->done++;
	else
		c->failed++;
	if (result > 0 && c->keep)
		(void)epoll_ctl(c->ep, EPOLL_CTL_DEL, s->fd, NULL);
	else
		(void)close(s->fd);
	slot_launch(c, s);
}

static void crowd_run(struct crowd *c, long conc)
{
	struct slot *slots = calloc((size_t)conc, sizeof *slots);

	if (!slots)
		die("memory");
	c->ep = epoll_create1(EPOLL_CLOEXEC);
	for (long i = 0; i < conc; i++)
		slot_launch(c, &slots[i]);
	while (c->done + c->failed < c->total) {
		struct epoll_event e[64];
		int n = epoll_wait(c->ep, e, 64, STALL_MS);

		if (n == 0)
			break;
		for (int i = 0; i < n; i++) {
			int r = slot_step(c, e[i].data.ptr);

			if (r)
				slot_end(c, e[i].data.ptr, r);
		}
	}
	free(slots);
}

static int rate(const struct goal *g, long total, long conc)
{
	struct crowd c = {.g = g, .total = total};
	uint64_t begun = now_ns();

	crowd_run(&c, conc);
	(void)printf("%.1f %ld\n", (double)c.done * 1e9 / (double)(now_ns() - begun), total - c.done);
	return 0;
}

static int idle(const struct goal *g, long total)
{
	struct crowd c = {.g = g, .total = total, .keep = 1};
	char byte;

	crowd_run(&c, 16);
	(void)printf("%ld open\n", c.done);
	(void)fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return c.done == total ? 0 : 1;
}

/* --- latency --- */

static int percentiles(uint64_t *t, long n)
{
	qsort(t, (size_t)n, sizeof *t, by_size);
	(void)printf("%.1f %.1f\n", (double)t[n / 2] / 1000., (double)t[n * 99 / 100] / 1000.);
	free(t);
	return 0;
}

static int trips(const struct goal *g, long n)
{
	uint64_t *t = calloc((size_t)n, sizeof *t);
	int fd = tunnel_open(g);

	if (!t)
		die("memory");
	for (int i = 0; i < 200; i++)
		round_trip(fd);
	for (long i = 0; i < n; i++) {
		uint64_t begun = now_ns();

		round_trip(fd);
		t[i] = now_ns() - begun;
	}
	return percentiles(t, n);
}

static int setups(const struct goal *g, long n)
{
	uint64_t *t = calloc((size_t)n, sizeof *t);

	if (!t)
		die("memory");
	for (long i = -50; i < n; i++) {
		uint64_t begun = now_ns();
		int fd = tunnel_open(g);

		round_trip(fd);
		if (i >= 0)
			t[i] = now_ns() - begun;
		(void)close(fd);
	}
	return percentiles(t, n);
}

int tunnel_main(int argc, char **argv)
{
	const char *kind = argv[1] + strlen("tunnel-");
	struct goal g;

	goal_read(&g, argv);
	if (argc == 7 && strcmp(kind, "tput") == 0)
		return tput(&g, number(argv[5]), number(argv[6]));
	if (argc == 7 && strcmp(kind, "rate") == 0)
		return rate(&g, number(argv[5]), number(argv[6]));
	if (argc == 6 && strcmp(kind, "idle") == 0)
		return idle(&g, number(argv[5]));
	if (argc == 6 && strcmp(kind, "trip") == 0)
		return trips(&g, number(argv[5]));
	if (argc == 6 && strcmp(kind, "setup") == 0)
		return setups(&g, number(argv[5]));
	(void)fprintf(stderr, "usage: see the first comment of tunnels.c\n");
	return 2;
}
