#include "monitor/ready.h"
#include "base/clock.h"
#include "base/str.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define POLL_MAX_MS 200  /* the longest pause between two questions */
#define HTTP_MS     5000 /* one request */
#define HEAD_MAX    64   /* of the answer only the status line's beginning matters: "HTTP/1.1 200" */

struct ready {
	struct loop *loop;
	struct ready_config c;
	uint16_t *ports;
	char *path;
	ready_fn *fn;
	void *fn_data;
	int64_t begun, pause;
	char *waiting;
	struct loop_timer timer; /* the next question, or the end of this request */
	struct loop_io io;
	int sock;
	bool sent;
	char head[HEAD_MAX + 1];
	size_t head_len;
};

static void ask(struct loop_timer *t);

static void close_request(struct ready *r)
{
	loop_io_stop(&r->io);
	if (r->sock >= 0)
		(void)close(r->sock);
	r->sock = -1;
}

void ready_stop(struct ready *r)
{
	if (!r)
		return;
	loop_timer_stop(&r->timer);
	close_request(r);
	free(r->ports);
	free(r->path);
	free(r->waiting);
	free(r);
}

/* 1, 2, 4, 7, 11 ... 200 ms: quick apps are seen quickly, slow ones cost little. */
static void later(struct ready *r, char *why)
{
	close_request(r);
	free(r->waiting);
	r->waiting = why;
	r->pause += r->pause / 2 + 1;
	if (r->pause > POLL_MAX_MS)
		r->pause = POLL_MAX_MS;
	loop_timer_start(&r->timer, r->pause);
}

static void done(struct ready *r, char *what)
{
	CLEANUP_FREE char *text = xasprintf("%s after %lld ms", what, (long long)(clk_mono_ms() - r->begun));

	close_request(r);
	loop_timer_stop(&r->timer);
	free(r->waiting);
	r->waiting = what;
	r->fn(r->fn_data, text); /* may free r */
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

static void read_answer(struct ready *r)
{
	unsigned port = r->ports[0];
	ssize_t n;
	int status;

	do
		n = recv(r->sock, r->head + r->head_len, HEAD_MAX - r->head_len, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return;
	if (n <= 0) {
		later(r, xasprintf("GET %s on %u: the connection ended without an answer%s%s", r->path, port,
				   n < 0 ? ": " : "", n < 0 ? strerror(errno) : ""));
		return;
	}
	r->head_len += (size_t)n;
	status = http_status(r->head, r->head_len);
	if (status < 0)
		later(r, xasprintf("GET %s on %u: the answer is not HTTP/1", r->path, port));
	else if (status >= 500)
		later(r, xasprintf("GET %s on %u answered %d", r->path, port, status));
	else if (status > 0)
		done(r, xasprintf("GET %s on %u answered %d", r->path, port, status));
}

static void send_request(struct ready *r)
{
	CLEANUP_FREE char *text = xasprintf("GET %s HTTP/1.1\r\nHost: localhost:%u\r\nUser-Agent: sbxsv\r\n"
					    "Accept: */*\r\nConnection: close\r\n\r\n",
					    r->path, r->ports[0]);
	ssize_t n = send(r->sock, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	/* The request fits any socket buffer; one that takes less is as good as broken. */
	if (n < 0 || (size_t)n != strlen(text)) {
		later(r, xasprintf("GET %s on %u: %s", r->path, r->ports[0],
				   strerror(n < 0 ? errno : EMSGSIZE)));
		return;
	}
	r->sent = true;
	loop_io_set(&r->io, LOOP_READ);
}

static void sock_event(struct loop_io *w, unsigned events)
{
	struct ready *r = w->data;

	(void)events;
	if (r->sent)
		read_answer(r);
	else
		send_request(r);
}

static void begin_request(struct ready *r)
{
	r->sock = r->c.connect ? r->c.connect(r->c.data, r->ports[0]) : -1;
	if (r->sock < 0) {
		later(r, xasprintf("nothing answers on %u", r->ports[0]));
		return;
	}
	r->sent = false;
	r->head_len = 0;
	loop_io_init(r->loop, &r->io, r->sock, LOOP_WRITE, sock_event, r);
	loop_timer_start(&r->timer, HTTP_MS);
}

static void ask(struct loop_timer *t)
{
	struct ready *r = t->data;

	if (r->sock >= 0) {
		later(r, xasprintf("GET %s on %u: no answer for %d s", r->path, r->ports[0], HTTP_MS / 1000));
		return;
	}
	for (size_t i = 0; r->c.listens && i < r->c.n_ports; i++) {
		int yes = r->c.listens(r->c.data, r->ports[i]);

		if (yes == 1)
			continue;
		later(r, yes == 0 ? xasprintf("nothing listens on %u", r->ports[i])
				  : xasprintf("cannot see whether something listens on %u", r->ports[i]));
		return;
	}
	if (r->path) {
		begin_request(r);
	} else {
		struct strbuf b = STRBUF_INIT;

		strbuf_adds(&b, "listening on");
		for (size_t i = 0; i < r->c.n_ports; i++)
			strbuf_addf(&b, "%s%u", i ? ", " : " ", r->ports[i]);
		done(r, strbuf_take(&b));
	}
}

struct ready *ready_start(struct loop *l, const struct ready_config *c, ready_fn *on_ready,
			  void *on_ready_data)
{
	struct ready *r = xcalloc(1, sizeof *r);

	r->loop = l;
	r->c = *c;
	r->ports = xcalloc(c->n_ports ? c->n_ports : 1, sizeof *r->ports);
	if (c->n_ports)
		memcpy(r->ports, c->ports, c->n_ports * sizeof *r->ports);
	r->path = xstrdup(c->http_path);
	r->waiting = xstrdup("not asked yet");
	r->fn = on_ready;
	r->fn_data = on_ready_data;
	r->begun = clk_mono_ms();
	r->sock = -1;
	loop_timer_init(l, &r->timer, ask, r);
	loop_timer_start(&r->timer, 0);
	return r;
}

const char *ready_waiting_for(const struct ready *r)
{
	return r->waiting;
}
