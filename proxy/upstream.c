#include "proxy/upstream.h"
#include "base/str.h"
#include "policy/local.h"
#include "proxy/control.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

struct upstream_link { /* the policy may change meanwhile, so this is a copy */
	struct outgoing *c;
	upstream_fn *fn;
	char *host, *shown, *authorization;
	bool literal, absolute;
	struct addr addr;
	uint16_t port;
	int own;
	struct loop_io io; /* fd -1: not connected */
	struct loop_timer limit;
	char *buf;
	size_t len;
};

struct upstream_link *upstream_create(struct outgoing *c, const struct upstream *u, bool absolute)
{
	struct upstream_link *l = xcalloc(1, sizeof *l);

	l->c = c;
	l->host = xstrdup(u->host);
	l->shown = xstrdup(u->shown);
	l->authorization = xstrdup(u->authorization);
	l->literal = u->literal;
	l->addr = u->addr;
	l->port = u->port;
	l->absolute = absolute;
	l->io.fd = -1;
	return l;
}

void upstream_free(struct upstream_link *l)
{
	if (!l)
		return;
	loop_io_stop(&l->io);
	loop_timer_stop(&l->limit);
	if (l->io.fd >= 0)
		(void)close(l->io.fd);
	free(l->host);
	free(l->shown);
	free(l->authorization);
	free(l->buf);
	free(l);
}

const char *upstream_shown(const struct upstream_link *l)
{
	return l->shown;
}

bool upstream_absolute(const struct upstream_link *l)
{
	return l->absolute;
}

static void done(struct upstream_link *l)
{
	loop_io_stop(&l->io);
	loop_timer_stop(&l->limit);
	l->fn(l->c, TAKE_FD(l->io.fd), FAIL_CONNECT, 0, NULL);
}

static void failed(struct upstream_link *l, enum failure why, int errnum, const char *text)
{
	CLEANUP_FREE char *whole = xasprintf("the upstream proxy %s %s", l->shown, text);

	loop_io_stop(&l->io);
	loop_timer_stop(&l->limit);
	l->fn(l->c, -1, why, errnum, whole); /* l may be gone */
}

/* --- its answer --- */

char *upstream_trouble(const struct upstream_link *l, int status)
{
	if ((status == 407 || status == 401) && l->authorization) /* 401: tinyproxy 1.11 */
		return xasprintf("does not take the user and password of UpstreamProxy= (%d)", status);
	if (status == 407)
		return xstrdup("wants a user and a password (407): "
			       "UpstreamProxy=http://USER:PASSWORD@HOST:PORT");
	if (status == 403)
		return xstrdup("does not allow it (403)");
	if (status >= 500 && status <= 599)
		return xasprintf("cannot reach it (%d)", status);
	return xasprintf("answers %d", status);
}

/* A whole head lies in the buffer. */
static void judge_reply(struct upstream_link *l)
{
	CLEANUP_FREE char *text = NULL;
	enum parse p;
	int status = 0;

	crash_page_enter(l->c->app);
	p = response_status(l->buf, l->len, &status);
	crash_page_leave();
	if (p != PARSE_DONE) {
		failed(l, FAIL_CONNECT, EPROTO, "does not answer in HTTP");
	} else if (status >= 200 && status < 300) {
		done(l);
	} else if (status < 200 && status != 101) { /* RFC 9110 15.2: the answer is still to come */
		l->len = 0;
	} else {
		text = upstream_trouble(l, status);
		failed(l, FAIL_CONNECT, status == 403 ? EACCES : EPROTO, text);
	}
}

/* Looks at what has come, and takes it as far as the head goes. */
static void on_reply(struct loop_io *io, unsigned events)
{
	struct upstream_link *l = io->data;
	size_t room = UPSTREAM_REPLY_MAX - l->len, end;
	ssize_t n;

	(void)events;
	n = recv(io->fd, l->buf + l->len, room, MSG_PEEK);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		failed(l, FAIL_CONNECT, n < 0 ? errno : ECONNRESET,
		       "closed the connection without an answer");
		return;
	}
	end = response_head_end(l->buf, l->len > 2 ? l->len - 2 : 0, l->len + (size_t)n);
	if (!end && (size_t)n == room) {
		failed(l, FAIL_CONNECT, EPROTO, "answers with a head that is too long");
		return;
	}
	n = recv(io->fd, l->buf + l->len, end ? end - l->len : (size_t)n, 0); /* the very bytes just seen */
	if (n <= 0)
		return;
	l->len += (size_t)n;
	if (end && l->len == end)
		judge_reply(l);
}

static void on_limit(struct loop_timer *t)
{
	failed(t->data, FAIL_LATE, ETIMEDOUT, "did not answer in time");
}

/* --- what it is asked --- */

static void add_authority(struct strbuf *b, const struct target *t, bool port)
{
	strbuf_addf(b, t->literal && t->addr.family == AF_INET6 ? "[%s]" : "%s", t->host);
	if (port)
		strbuf_addf(b, ":%u", t->port);
}

static void add_credentials(struct strbuf *b, const struct upstream_link *l)
{
	if (l->authorization)
		strbuf_addf(b, "Proxy-Authorization: %s\r\n", l->authorization);
}

static void ask(struct upstream_link *l, int fd)
{
	const struct target *t = &l->c->setup->target;
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;

	strbuf_adds(&b, "CONNECT ");
	add_authority(&b, t, true);
	strbuf_adds(&b, " HTTP/1.1\r\nHost: ");
	add_authority(&b, t, true);
	strbuf_adds(&b, "\r\n");
	add_credentials(&b, l);
	strbuf_adds(&b, "\r\n");
	l->buf = xmalloc(UPSTREAM_REPLY_MAX);
	loop_io_init(l->c->app->proxy->loop, &l->io, fd, LOOP_READ, on_reply, l);
	loop_timer_start(&l->limit, UPSTREAM_REPLY_MS);
	/* The first bytes ever sent there: they fit the socket's buffer. */
	if (send(fd, b.p, b.len, MSG_NOSIGNAL) != (ssize_t)b.len)
		failed(l, FAIL_CONNECT, errno, "takes no request");
}

char *upstream_head(const struct upstream_link *l, const struct target *t, const char *head, size_t len,
		    size_t *ret_len)
{
	const char *space = memchr(head, ' ', len), *nl = memchr(head, '\n', len);
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
	const char *path = space + 1;

	strbuf_add(&b, head, (size_t)(path - head));
	strbuf_adds(&b, "http://");
	add_authority(&b, t, t->port != 80);
	if (*path == '*') /* RFC 9112 3.2.4: OPTIONS of the whole server has no path in absolute form */
		path++;
	strbuf_add(&b, path, (size_t)(nl + 1 - path));
	add_credentials(&b, l);
	strbuf_add(&b, nl + 1, (size_t)(head + len - nl - 1));
	*ret_len = b.len;
	return strbuf_take(&b);
}

/* --- reaching it --- */

static uint16_t port_of(const struct sockaddr_storage *sa)
{
	return ntohs(sa->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)(const void *)sa)->sin6_port
					       : ((const struct sockaddr_in *)(const void *)sa)->sin_port);
}

/* Does the other end belong to our own listener? Every request would come back for ever. */
static bool is_loop(int fd, int own)
{
	struct sockaddr_storage peer = {0}, ours = {0};
	socklen_t peer_len = sizeof peer, our_len = sizeof ours;
	struct addr a;

	if (own < 0 || getpeername(fd, (struct sockaddr *)&peer, &peer_len) < 0 ||
	    getsockname(own, (struct sockaddr *)&ours, &our_len) < 0)
		return false;
	addr_from_sockaddr(&a, &peer);
	return port_of(&peer) == port_of(&ours) && local_route(&a) == ROUTE_LOCAL;
}

static void on_dialled(void *data, enum dial_result result, int fd, int errnum)
{
	struct upstream_link *l = ((struct outgoing *)data)->setup->up;
	CLEANUP_FREE char *why = NULL;

	if (result == DIAL_TIMEOUT) {
		failed(l, FAIL_LATE, ETIMEDOUT, "did not answer the connection in time");
	} else if (result != DIAL_OK) {
		why = xasprintf("cannot be reached: %s", strerror(errnum));
		failed(l, FAIL_CONNECT, errnum, why);
	} else if (is_loop(fd, l->own)) {
		(void)close(fd);
		failed(l, FAIL_CONNECT, ELOOP, "is this proxy itself");
	} else if (l->absolute) {
		l->io.fd = fd;
		done(l);
	} else {
		ask(l, fd);
	}
}

static void dial(struct upstream_link *l, const struct addr *v, size_t n)
{
	dial_start_own(&l->c->setup->dial, l->c->app->proxy->loop, v, n, l->port, on_dialled, l->c);
}

static void on_resolved(void *data, enum resolve_result result, const struct addr *v, size_t n,
			const char *why)
{
	struct upstream_link *l = ((struct outgoing *)data)->setup->up;
	CLEANUP_FREE char *text = NULL;

	if (result == RESOLVE_OK) {
		dial(l, v, n);
		return;
	}
	text = xasprintf("cannot be resolved: %s", why);
	failed(l, result == RESOLVE_TIMEOUT ? FAIL_NAME_LATE : FAIL_NAME, 0, text);
}

void upstream_start(struct outgoing *c, int own, upstream_fn *fn)
{
	struct upstream_link *l = c->setup->up;

	l->own = own;
	l->fn = fn;
	loop_timer_init(c->app->proxy->loop, &l->limit, on_limit, l);
	if (l->literal)
		dial(l, &l->addr, 1);
	else
		resolve_start(c->l->resolver, &c->setup->waiter, l->host, on_resolved, c);
}
