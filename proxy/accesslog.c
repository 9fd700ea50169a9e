#include "proxy/accesslog.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct accesslog {
	struct loop *loop;
	int fd;
	bool socket;
	struct strbuf buf;
	uint64_t dropped;
	bool broken; /* nobody will ever read it */
	struct loop_defer soon;
	struct loop_io room;
	bool watching;
};

/* --- lines --- */

static void add_text(struct js *j, const char *key, const char *text)
{
	if (text && *text)
		js_add_str(j, key, text);
}

static void add_address(struct js *j, const char *key, const struct addr *a, uint16_t port)
{
	char text[INET6_ADDRSTRLEN], both[INET6_ADDRSTRLEN + 16];

	if (!a)
		return;
	addr_format(a, text);
	(void)snprintf(both, sizeof both, a->family == AF_INET6 ? "[%s]:%u" : "%s:%u", text, port);
	js_add_str(j, key, port ? both : text);
}

static char *line_of(const struct access_entry *e)
{
	static const char *const verdicts[] = {NULL, "allowed", "denied"};
	CLEANUP_JS struct js *j = js_obj();
	char stamp[CLK_STAMP_LEN];

	js_add_str(j, "time", clk_stamp(e->began_ms, stamp, sizeof stamp));
	add_address(j, "client", e->client, e->client_port);
	add_text(j, "front", e->front);
	add_text(j, "method", e->method);
	add_text(j, "host", e->host);
	if (e->port)
		js_add_int(j, "port", e->port);
	add_address(j, "address", e->address, 0);
	add_text(j, "upstream", e->upstream);
	add_text(j, "verdict", verdicts[e->verdict]);
	add_text(j, "rule", e->rule);
	js_add_int(j, "bytes_in", (int64_t)e->bytes_in);
	js_add_int(j, "bytes_out", (int64_t)e->bytes_out);
	js_add_int(j, "ms", e->took_ms);
	add_text(j, "error", e->error);
	return js_print(j);
}

static char *dropped_line(uint64_t n)
{
	CLEANUP_JS struct js *j = js_obj();
	char stamp[CLK_STAMP_LEN];

	js_add_str(j, "time", clk_stamp(clk_wall_ms(), stamp, sizeof stamp));
	js_add_int(j, "dropped", (int64_t)n);
	return js_print(j);
}

/* --- writing --- */

/* Bytes taken; 0: none for now; -1 with errno. Never blocks on a reader. */
static ssize_t write_some(struct accesslog *a, const char *p, size_t len)
{
	struct pollfd ready = {.fd = a->fd, .events = POLLOUT};
	ssize_t n;

	if (a->socket) {
		n = send(a->fd, p, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	} else {
		/* The descriptor may be somebody else's too, so it stays as it is, blocking or not. A pipe that
		 * polls writable takes PIPE_BUF bytes without blocking (pipe(7)). */
		if (poll(&ready, 1, 0) != 1)
			return 0;
		n = write(a->fd, p, len < PIPE_BUF ? len : PIPE_BUF);
	}
	return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : n;
}

static void lost(struct accesslog *a, int errnum)
{
	log_warning("the access log loses lines: %s", strerror(errnum));
	a->broken = true;
	strbuf_reset(&a->buf);
}

static void flush(struct accesslog *a)
{
	size_t at = 0;
	ssize_t n = 1;

	while (at < a->buf.len && n > 0) {
		n = write_some(a, a->buf.p + at, a->buf.len - at);
		if (n > 0)
			at += (size_t)n;
	}
	if (at) {
		memmove(a->buf.p, a->buf.p + at, a->buf.len - at);
		a->buf.len -= at;
		a->buf.p[a->buf.len] = 0;
	}
	if (n < 0)
		lost(a, errno);
	if (a->watching != (a->buf.len != 0)) {
		a->watching = a->buf.len != 0;
		loop_io_set(&a->room, a->watching ? LOOP_WRITE : 0);
	}
}

static void on_soon(struct loop_defer *d)
{
	flush(d->data);
}

static void on_room(struct loop_io *io, unsigned events)
{
	(void)events;
	flush(io->data);
}

static bool put(struct accesslog *a, const char *line)
{
	size_t len = strlen(line);

	if (a->buf.len + len + 1 > ACCESSLOG_BUFFER)
		return false;
	strbuf_add(&a->buf, line, len);
	strbuf_addc(&a->buf, '\n');
	return true;
}

void accesslog_add(struct accesslog *a, const struct access_entry *e)
{
	CLEANUP_FREE char *line = NULL, *missing = NULL;

	if (a->broken)
		return;
	line = line_of(e);
	if (a->dropped) {
		missing = dropped_line(a->dropped);
		/* With half of the buffer free again: not one line in between, one line lost, and so on. */
		if (a->buf.len > ACCESSLOG_BUFFER / 2 || !put(a, missing)) {
			a->dropped++;
			return;
		}
		a->dropped = 0;
	}
	if (!put(a, line)) {
		a->dropped++;
		return;
	}
	if (!a->watching)
		loop_defer_start(&a->soon);
}

struct accesslog *accesslog_create(struct loop *l, int fd)
{
	struct accesslog *a = xcalloc(1, sizeof *a);
	struct stat st;

	a->loop = l;
	a->fd = fd;
	a->socket = fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
	loop_defer_init(l, &a->soon, on_soon, a);
	loop_io_init(l, &a->room, fd, 0, on_room, a);
	return a;
}

void accesslog_destroy(struct accesslog *a)
{
	if (!a)
		return;
	flush(a);
	loop_defer_stop(&a->soon);
	loop_io_stop(&a->room);
	(void)close(a->fd);
	strbuf_finish(&a->buf);
	free(a);
}
