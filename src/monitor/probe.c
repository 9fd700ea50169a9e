#include "monitor/probe.h"
#include "base/str.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define HEAD_MAX 64 /* of the answer only the status line's beginning matters: "HTTP/1.1 200" */
/* The rest is read, too: a server that is cut off in the middle of its answer says so in its log at every check. One that
 * goes on for longer than this (a stream) is cut. */
#define REST_MS    250
#define REST_BYTES (256u << 10)

struct tcp_probe {
	struct loop *loop;
	struct probe_config c;
	probe_fn *fn;
	void *fn_data;
	struct loop_timer timer; /* the end of this question */
	struct loop_defer later; /* it could not even be asked */
	struct loop_io io;
	int sock, error;
	bool sent;
	char head[HEAD_MAX + 1];
	size_t head_len, rest;
	int status; /* of the answer, once its head is there */
};

static void close_all(struct tcp_probe *p)
{
	loop_timer_stop(&p->timer);
	loop_defer_stop(&p->later);
	loop_io_stop(&p->io);
	if (p->sock >= 0)
		(void)close(p->sock);
	p->sock = -1;
}

void probe_stop(struct tcp_probe *p)
{
	if (!p)
		return;
	close_all(p);
	free(p);
}

static void answer(struct tcp_probe *p, enum probe_result r, char *what)
{
	CLEANUP_FREE char *text = what;

	close_all(p);
	p->fn(p->fn_data, r, text); /* may free p */
}

/* "HTTP/1.x NNN": the status, 0 when more bytes are needed, -1 when it is something else. */
static int http_status(const char *s, size_t len)
{
	static const char want[] = "HTTP/1.";
	int status = 0;

	for (size_t i = 0; i < len && i < sizeof want - 1; i++)
		if (s[i] != want[i])
			return -1;
	if (len < sizeof "HTTP/1.1 200" - 1)
		return 0;
	if (s[8] != ' ')
		return -1;
	for (size_t i = 9; i < 12; i++) {
		if (s[i] < '0' || s[i] > '9')
			return -1;
		status = status * 10 + (s[i] - '0');
	}
	return status < 100 ? -1 : status;
}

static void answered(struct tcp_probe *p)
{
	answer(p, p->status >= 500 ? PROBE_FAILED : PROBE_OK,
	       xasprintf("GET %s on %u answered %d", p->c.http_path, p->c.port, p->status));
}

static void read_rest(struct tcp_probe *p)
{
	char buf[16384];
	ssize_t n;

	while ((n = recv(p->sock, buf, sizeof buf, 0)) > 0 && p->rest < REST_BYTES)
		p->rest += (size_t)n;
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return;
	answered(p);
}

static void read_answer(struct tcp_probe *p)
{
	const char *path = p->c.http_path;
	unsigned port = p->c.port;
	ssize_t n;
	int status;

	do
		n = recv(p->sock, p->head + p->head_len, HEAD_MAX - p->head_len, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return;
	if (n <= 0) {
		answer(p, PROBE_FAILED,
		       xasprintf("GET %s on %u: the connection ended without an answer%s%s", path, port,
				 n < 0 ? ": " : "", n < 0 ? strerror(errno) : ""));
		return;
	}
	p->head_len += (size_t)n;
	status = http_status(p->head, p->head_len);
	if (status < 0) {
		answer(p, PROBE_FAILED, xasprintf("GET %s on %u: the answer is not HTTP/1", path, port));
	} else if (status > 0) {
		p->status = status;
		loop_timer_start(&p->timer, REST_MS);
		read_rest(p);
	}
}

static void send_request(struct tcp_probe *p)
{
	CLEANUP_FREE char *text = xasprintf("GET %s HTTP/1.1\r\nHost: localhost:%u\r\nUser-Agent: sbxsv\r\n"
					    "Accept: */*\r\nConnection: close\r\n\r\n",
					    p->c.http_path, p->c.port);
	ssize_t n = send(p->sock, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	/* The request fits any socket buffer; one that takes less is as good as broken. */
	if (n < 0 || (size_t)n != strlen(text)) {
		answer(p, PROBE_FAILED,
		       xasprintf("GET %s on %u: %s", p->c.http_path, p->c.port,
				 strerror(n < 0 ? errno : EMSGSIZE)));
		return;
	}
	p->sent = true;
	loop_io_set(&p->io, LOOP_READ);
}

static void connected(struct tcp_probe *p)
{
	int error = 0;
	socklen_t len = sizeof error;

	if (getsockopt(p->sock, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	if (error)
		answer(p, PROBE_FAILED, xasprintf("port %u does not accept: %s", p->c.port, strerror(error)));
	else
		answer(p, PROBE_OK, xasprintf("port %u accepts", p->c.port));
}

static void sock_event(struct loop_io *w, unsigned events)
{
	struct tcp_probe *p = w->data;

	(void)events;
	if (!p->c.http_path)
		connected(p);
	else if (p->status)
		read_rest(p);
	else if (p->sent)
		read_answer(p);
	else
		send_request(p);
}

static void not_in_time(struct tcp_probe *p)
{
	CLEANUP_FREE char *what = p->c.http_path ? xasprintf("GET %s on %u", p->c.http_path, p->c.port)
						 : xasprintf("port %u", p->c.port);

	if (p->c.timeout_ms % 1000)
		answer(p, PROBE_FAILED,
		       xasprintf("%s: no answer for %lld ms", what, (long long)p->c.timeout_ms));
	else
		answer(p, PROBE_FAILED,
		       xasprintf("%s: no answer for %lld s", what, (long long)p->c.timeout_ms / 1000));
}

static void over(struct loop_timer *t)
{
	struct tcp_probe *p = t->data;

	if (p->status)
		answered(p);
	else
		not_in_time(p);
}

static void not_asked(struct loop_defer *w)
{
	/* EACCES, EPERM: its network cannot be entered, which says nothing of what is in there */
	static const int shortage[] = {EMFILE, ENFILE, EAGAIN, ENOMEM, ENOBUFS, EADDRNOTAVAIL, EACCES, EPERM};
	struct tcp_probe *p = w->data;

	for (size_t i = 0; i < ELEMENTS(shortage); i++)
		if (p->error == shortage[i]) {
			answer(p, PROBE_UNKNOWN,
			       xasprintf("cannot ask port %u: %s", p->c.port, strerror(p->error)));
			return;
		}
	answer(p, PROBE_FAILED, xasprintf("nothing answers on %u", p->c.port));
}

struct tcp_probe *probe_start(struct loop *l, const struct probe_config *c, probe_fn *fn, void *fn_data)
{
	struct tcp_probe *p = xcalloc(1, sizeof *p);

	p->loop = l;
	p->c = *c;
	p->fn = fn;
	p->fn_data = fn_data;
	loop_timer_init(l, &p->timer, over, p);
	loop_defer_init(l, &p->later, not_asked, p);
	errno = 0;
	p->sock = c->connect ? c->connect(c->data, c->port) : -1;
	p->error = errno;
	if (p->sock < 0) {
		loop_defer_start(&p->later);
		return p;
	}
	loop_io_init(l, &p->io, p->sock, LOOP_WRITE, sock_event, p);
	loop_timer_start(&p->timer, c->timeout_ms);
	return p;
}
