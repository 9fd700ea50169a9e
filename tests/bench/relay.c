/*
 * The bound: a relay that does nothing but accept, connect, read and write. One thread, epoll, one buffer.
 *
 * It judges nothing, has no deadline, no limit and no log, and every client gets the same target; with CONNECT
 * it looks for the empty line and reads nothing else. What a proxy costs more than this is what it does.
 */
#include "tests/bench/netbench.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static const char established[] = "HTTP/1.1 200 Connection established\r\n\r\n";

struct pair;
struct side {
	struct pair *pair;
	int fd, eof, known; /* known: to epoll */
	char *held;         /* of what this side said, not taken by the other yet */
	size_t held_len;
	uint32_t events; /* watched for */
};
struct pair {
	struct side side[2]; /* the client, the target */
	struct pair *next_dead;
	int open, dead; /* open: the target answered */
};

static int ep;
static struct sockaddr_in target;
static struct pair *dead; /* freed when the events of this turn are done */

static void pair_end(struct pair *p)
{
	if (p->dead)
		return;
	for (int i = 0; i < 2; i++) {
		if (p->side[i].fd >= 0)
			(void)close(p->side[i].fd);
		free(p->side[i].held);
	}
	p->dead = 1;
	p->next_dead = dead;
	dead = p;
}

static void side_watch(struct side *s, uint32_t events)
{
	if (s->known && s->events == events)
		return;
	watch(ep, s->known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, s->fd, events, s);
	s->known = 1;
	s->events = events;
}

static void target_connect(struct pair *p)
{
	struct side *s = &p->side[1];
	int one = 1;

	s->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (s->fd < 0 || (connect(s->fd, (void *)&target, sizeof target) < 0 && errno != EINPROGRESS)) {
		pair_end(p);
		return;
	}
	(void)setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	side_watch(s, EPOLLOUT);
}

static void target_answered(struct pair *p, int speaks_connect)
{
	p->open = 1;
	side_watch(&p->side[1], EPOLLIN);
	if (speaks_connect && write(p->side[0].fd, established, sizeof established - 1) < 0)
		pair_end(p);
	else
		side_watch(&p->side[0], EPOLLIN);
}

/* Write what is held; the source is read again when all is out. */
static void flush_held(struct side *from, struct side *to)
{
	ssize_t n = send(to->fd, from->held, from->held_len, MSG_NOSIGNAL);

	if (n < 0) {
		if (errno != EAGAIN)
			pair_end(from->pair);
		return;
	}
	from->held_len -= (size_t)n;
	memmove(from->held, from->held + n, from->held_len);
	if (from->held_len)
		return;
	free(from->held);
	from->held = NULL;
	if (!from->eof)
		side_watch(from, EPOLLIN | (from->events & EPOLLOUT));
	side_watch(to, to->events & ~(uint32_t)EPOLLOUT);
}

static void pump(struct side *from, struct side *to)
{
	ssize_t n = recv(from->fd, bench_buf, SEND, 0), w;

	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		from->eof = 1;
		if (n < 0 || to->eof)
			pair_end(from->pair);
		else {
			(void)shutdown(to->fd, SHUT_WR);
			side_watch(from, from->events & ~(uint32_t)EPOLLIN);
		}
		return;
	}
	w = send(to->fd, bench_buf, (size_t)n, MSG_NOSIGNAL);
	if (w < 0 && errno != EAGAIN) {
		pair_end(from->pair);
		return;
	}
	if (w == n)
		return;
	w = w < 0 ? 0 : w;
	from->held_len = (size_t)(n - w);
	from->held = malloc(from->held_len);
	if (!from->held)
		die("memory");
	memcpy(from->held, bench_buf + w, from->held_len);
	side_watch(from, from->events & ~(uint32_t)EPOLLIN);
	side_watch(to, to->events | EPOLLOUT);
}

static void head(struct pair *p)
{
	ssize_t n = recv(p->side[0].fd, bench_buf, 4096, 0);

	if (n < 4 || memcmp(bench_buf + n - 4, "\r\n\r\n", 4) != 0) {
		pair_end(p);
		return;
	}
	target_connect(p);
}

static void on_event(struct side *s, uint32_t events, int speaks_connect)
{
	struct pair *p = s->pair;
	struct side *other = s == &p->side[0] ? &p->side[1] : &p->side[0];

	if (p->dead)
		return;
	if (!p->open && s == &p->side[1]) {
		if (events & (EPOLLERR | EPOLLHUP))
			pair_end(p);
		else
			target_answered(p, speaks_connect);
		return;
	}
	if (!p->open) {
		if (p->side[1].fd < 0)
			head(p);
		return;
	}
	if ((events & EPOLLOUT) && other->held)
		flush_held(other, s);
	if (p->dead)
		return;
	if ((s->events & EPOLLIN) && (events & (EPOLLIN | EPOLLERR | EPOLLHUP)))
		pump(s, other);
	else if (events & (EPOLLERR | EPOLLHUP))
		pair_end(p);
}

static void accept_some(int listener, int speaks_connect)
{
	int fd, one = 1;

	for (int i = 0; i < 64 && (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;
	     i++) {
		struct pair *p = calloc(1, sizeof *p);

		if (!p)
			die("memory");
		p->side[0] = (struct side){.pair = p, .fd = fd};
		p->side[1] = (struct side){.pair = p, .fd = -1};
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		if (speaks_connect)
			side_watch(&p->side[0], EPOLLIN);
		else
			target_connect(p);
	}
}

static int listener_make(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	int l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	(void)setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(l, (void *)&a, sizeof a) < 0 || listen(l, 1024) < 0)
		die("listen");
	watch(ep, EPOLL_CTL_ADD, l, EPOLLIN, NULL);
	return l;
}

_Noreturn void relay(uint16_t port, const char *host, uint16_t to, int speaks_connect)
{
	int l;

	target.sin_family = AF_INET;
	target.sin_port = htons(to);
	if (inet_pton(AF_INET, host, &target.sin_addr) != 1)
		die(host);
	ep = epoll_create1(EPOLL_CLOEXEC);
	l = listener_make(port);
	for (;;) {
		struct epoll_event e[64];
		int n = epoll_wait(ep, e, 64, -1);

		for (int i = 0; i < n; i++) {
			if (e[i].data.ptr)
				on_event(e[i].data.ptr, e[i].events, speaks_connect);
			else
				accept_some(l, speaks_connect);
		}
		while (dead) {
			struct pair *p = dead;

			dead = p->next_dead;
			free(p);
		}
	}
}
