#include "proxy/pool.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "proxy/control.h"
#include <fcntl.h>

#define BATCH_FIRST 8
#define FAST_MS     500   /* a batch gone in less: the next is twice as large */
#define SLOW_MS     30000 /* one that lasted longer: half */

void pool_init(struct pool *p)
{
	*p = (struct pool){.batch = BATCH_FIRST};
}

void pool_clear(struct pool *p)
{
	fds_give_back(p->n + p->asked);
	fd_close_many(p->fds, p->n);
	free(p->fds);
	pool_init(p);
}

void pool_put(struct pool *p, int *fds, size_t n)
{
	size_t asked = p->asked;
	int domain = 0;
	socklen_t len = sizeof domain;
	int nonblocking;

	if (n > asked)
		n = asked; /* the rest is closed with the message */
	p->asked = 0;
	p->got_at_ms = clk_mono_ms();
	if (!n || getsockopt(fds[0], SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0) {
		fds_give_back(asked);
		return;
	}
	fds_give_back(asked - n);
	p->family = domain;
	nonblocking = fcntl(fds[0], F_GETFL) & O_NONBLOCK; /* made alike */
	for (size_t i = 0; i < n; i++) {
		VEC_GROW(p->fds, p->n, p->cap);
		if (!nonblocking)
			(void)fd_set_nonblock(fds[i], true);
		p->fds[p->n++] = TAKE_FD(fds[i]);
	}
	p->low = n / 2;
}

static void adapt(struct pool *p)
{
	int64_t lasted = clk_mono_ms() - p->got_at_ms;

	if (!p->got_at_ms)
		return;
	if (lasted < FAST_MS && p->batch < POOL_MAX)
		p->batch = p->batch * 2 < POOL_MAX ? p->batch * 2 : POOL_MAX;
	else if (lasted > SLOW_MS && p->batch > BATCH_FIRST)
		p->batch /= 2;
}

void pool_want(struct pool *p, struct app *a, size_t waiting)
{
	if (p->asked || !a->launch || (p->n && p->n > p->low))
		return;
	adapt(p);
	while (p->batch < waiting && p->batch < POOL_MAX)
		p->batch = p->batch * 2 < POOL_MAX ? p->batch * 2 : POOL_MAX;
	p->asked = fds_take(p->batch); /* none now: whoever waits for a socket comes back */
	if (p->asked)
		control_need(a, p->asked);
}

int pool_take(struct pool *p, struct app *a)
{
	int fd = -1;

	if (p->n) {
		fd = p->fds[--p->n];
		fds_give_back(1); /* the connection counts it now */
	}
	pool_want(p, a, fd < 0);
	return fd;
}
