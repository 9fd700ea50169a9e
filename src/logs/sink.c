#include "logs/sink.h"
#include "base/fd.h"
#include "base/str.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define RETRY_MS        1000
#define LOG_INFO        6 /* RFC 5424, section 6.2.1, as the facilities */
#define FACILITY_USER   1
#define FACILITY_DAEMON 3

struct record { /* in the queue, its text behind it */
	uint32_t len;
	uint32_t bytes; /* of the line as it was written, newline included; 0: its last piece has them */
};

struct sink {
	struct loop *loop;
	enum sink_kind kind;
	char *app, *path, *error;
	struct linefile_hooks hooks;
	int fd;
	struct loop_io io; /* waits for room while fd >= 0 */
	struct loop_timer retry;
	struct strbuf queue;
	size_t head; /* of queue: sent */
	bool troubled;
	uint64_t streak_lines, streak_bytes, dropped_lines, dropped_bytes;
	uint64_t before_lines, before_bytes; /* dropped before the trouble that is now */
};

static void pump(struct sink *s);

static void on_room(struct loop_io *w, unsigned events)
{
	(void)events;
	loop_io_set(w, 0);
	pump(w->data);
}

static void on_retry(struct loop_timer *w)
{
	pump(w->data);
}

struct sink *sink_create(struct loop *l, enum sink_kind kind, const char *app, const char *path,
			 const struct linefile_hooks *h)
{
	struct sink *s = xcalloc(1, sizeof *s);

	s->loop = l;
	s->kind = kind;
	s->app = xstrdup(app);
	s->path = xstrdup(path                  ? path
			  : kind == SINK_SYSLOG ? "/dev/log"                      /* syslog(3) */
						: "/run/systemd/journal/socket"); /* systemd-journald(8) */
	s->hooks = *h;
	s->fd = -1;
	loop_timer_init(l, &s->retry, on_retry, s);
	return s;
}

/* --- losses --- */

static void tell(struct sink *s, const char *text)
{
	if (s->hooks.trouble)
		s->hooks.trouble(s->hooks.data, text);
}

static void trouble(struct sink *s, const char *why)
{
	CLEANUP_FREE char *what = NULL;

	free(s->error);
	s->error = xasprintf("%s: %s", s->path, why);
	if (s->troubled)
		return;
	s->troubled = true;
	s->before_lines = s->dropped_lines;
	s->before_bytes = s->dropped_bytes;
	what = xasprintf("%s: output waits, and is lost beyond %u KiB, until this is mended", s->error,
			 SINK_QUEUE >> 10);
	tell(s, what);
}

static void lose(struct sink *s, uint64_t lines, uint64_t bytes)
{
	s->streak_lines += lines;
	s->streak_bytes += bytes;
	s->dropped_lines += lines;
	s->dropped_bytes += bytes;
}

/* --- the queue --- */

static void put_record(struct sink *s, const char *text, size_t len, size_t bytes)
{
	struct record r = {.len = (uint32_t)len, .bytes = (uint32_t)bytes};

	strbuf_add(&s->queue, &r, sizeof r);
	strbuf_add(&s->queue, text, len);
}

static bool head_record(const struct sink *s, struct record *ret, const char **ret_text)
{
	if (s->head == s->queue.len)
		return false;
	memcpy(ret, s->queue.p + s->head, sizeof *ret);
	*ret_text = s->queue.p + s->head + sizeof *ret;
	return true;
}

static void drop_head(struct sink *s, const struct record *r)
{
	s->head += sizeof *r + r->len;
	if (s->head == s->queue.len) {
		s->head = 0;
		if (s->queue.cap > (64u << 10))
			strbuf_finish(&s->queue);
		else
			strbuf_reset(&s->queue);
	} else if (s->head > s->queue.len / 2) {
		memmove(s->queue.p, s->queue.p + s->head, s->queue.len - s->head);
		s->queue.len -= s->head;
		s->head = 0;
	}
}

/* A piece of at most SINK_PIECE bytes that does not end within a character. */
static size_t piece_of(const char *text, size_t len)
{
	size_t n = SINK_PIECE;

	if (len <= n)
		return len;
	while (n > SINK_PIECE - 3 && ((unsigned char)text[n] & 0xc0) == 0x80)
		n--;
	return n;
}

/* One line, without its newline. False when there is no room. */
static bool put_line(struct sink *s, const char *line, size_t len)
{
	CLEANUP_FREE char *safe = s->kind == SINK_SYSLOG ? str_escape(line, len) : NULL;
	const char *text = safe ? safe : line;
	size_t left = safe ? strlen(safe) : len, pieces = safe ? left / (SINK_PIECE - 3) + 1 : 1;

	if (s->queue.len - s->head + left + pieces * sizeof(struct record) > SINK_QUEUE)
		return false;
	do {
		size_t n = safe ? piece_of(text, left) : left;

		put_record(s, text, n, n == left ? len + 1 : 0);
		text += n;
		left -= n;
	} while (left);
	return true;
}

/* The line that stands for what was lost, as soon as it fits. */
static bool put_mark(struct sink *s)
{
	CLEANUP_FREE char *mark = NULL;

	if (!s->streak_lines)
		return true;
	mark = s->hooks.mark(s->hooks.data, s->streak_lines, s->streak_bytes, s->error);
	if (!put_line(s, mark, strlen(mark) - 1))
		return false;
	s->streak_lines = s->streak_bytes = 0;
	return true;
}

/* --- out --- */

static void shut(struct sink *s)
{
	if (s->fd < 0)
		return;
	loop_io_stop(&s->io);
	(void)close(s->fd);
	s->fd = -1;
}

static int open_socket(struct sink *s)
{
	CLEANUP_FD int fd = -1;
	struct sockaddr_un sa = {.sun_family = AF_UNIX};

	if (s->fd >= 0)
		return 0;
	if (strlen(s->path) >= sizeof sa.sun_path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(sa.sun_path, s->path, strlen(s->path) + 1);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0)
		return -1;
	s->fd = TAKE_FD(fd);
	loop_io_init(s->loop, &s->io, s->fd, 0, on_room, s);
	return 0;
}

static void syslog_message(const struct sink *s, const char *text, size_t len, struct strbuf *ret)
{
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec"; /* whatever the locale */
	int facility = geteuid() == 0 ? FACILITY_DAEMON : FACILITY_USER;
	time_t now = time(NULL);
	struct tm tm = {0};

	(void)localtime_r(&now, &tm);
	strbuf_addf(ret, "<%d>%.3s %2d %02d:%02d:%02d sbxsv/%s: ", facility * 8 + LOG_INFO,
		    months + (size_t)tm.tm_mon * 3, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, s->app);
	strbuf_add(ret, text, len);
}

static void journal_message(const struct sink *s, const char *text, size_t len, struct strbuf *ret)
{
	uint64_t size = htole64(len);

	strbuf_addf(ret, "PRIORITY=%d\nSYSLOG_IDENTIFIER=sbxsv/%s\nSBXSV_APP=%s\nMESSAGE\n", LOG_INFO, s->app,
		    s->app);
	strbuf_add(ret, &size, sizeof size);
	strbuf_add(ret, text, len);
	strbuf_addc(ret, '\n');
}

/* The journal takes a memfd only when nobody can change it any more. */
static int send_memfd(struct sink *s, const struct strbuf *m)
{
	CLEANUP_FD int fd = memfd_create("sbxsv-log", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || fd_write_all(fd, m->p, m->len) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return -1;
	return fd_send(s->fd, "", 0, &fd, 1);
}

static int send_text(struct sink *s, const char *text, size_t len)
{
	CLEANUP_STRBUF struct strbuf m = STRBUF_INIT;
	ssize_t n;

	if (s->kind == SINK_SYSLOG)
		syslog_message(s, text, len, &m);
	else
		journal_message(s, text, len, &m);
	n = send(s->fd, m.p, m.len, MSG_NOSIGNAL);
	if (n < 0 && s->kind == SINK_JOURNAL && errno == EMSGSIZE)
		return send_memfd(s, &m);
	return n < 0 ? -1 : 0;
}

/* Whoever listened was restarted: once more with its new socket. */
static int send_or_reconnect(struct sink *s, const char *text, size_t len)
{
	if (open_socket(s) < 0)
		return -1;
	if (send_text(s, text, len) == 0)
		return 0;
	if (errno != ECONNREFUSED && errno != ECONNRESET && errno != ENOTCONN)
		return -1;
	shut(s);
	return open_socket(s) < 0 ? -1 : send_text(s, text, len);
}

static void wait_for_room(struct sink *s, int error)
{
	if (s->fd >= 0 && error == EAGAIN) {
		loop_io_set(&s->io, LOOP_WRITE);
		return;
	}
	trouble(s, strerror(error));
	if (error != ENOBUFS && error != ENOMEM && error != EMFILE && error != ENFILE)
		shut(s);
	loop_timer_start(&s->retry, RETRY_MS);
}

/* Sends until the queue is empty or the socket is full. */
static void send_queue(struct sink *s)
{
	const char *text;
	struct record r;

	while (head_record(s, &r, &text) || (s->streak_lines && put_mark(s) && head_record(s, &r, &text))) {
		if (send_or_reconnect(s, text, r.len) < 0) {
			wait_for_room(s, errno);
			return;
		}
		drop_head(s, &r);
	}
}

static void pump(struct sink *s)
{
	CLEANUP_FREE char *what = NULL;

	loop_timer_stop(&s->retry);
	send_queue(s);
	if (!s->troubled || s->head != s->queue.len)
		return;
	s->troubled = false;
	what = xasprintf("%s: writing again, %llu lines (%llu bytes) were lost", s->path,
			 (unsigned long long)(s->dropped_lines - s->before_lines),
			 (unsigned long long)(s->dropped_bytes - s->before_bytes));
	tell(s, what);
}

int sink_write(struct sink *s, const char *text, size_t len)
{
	const char *end = text + len, *nl;
	int r = 0;

	for (; (nl = memchr(text, '\n', (size_t)(end - text))); text = nl + 1) {
		bool room = !s->streak_lines || s->queue.len - s->head < SINK_QUEUE / 2;

		if (room && put_mark(s) && put_line(s, text, (size_t)(nl - text)))
			continue;
		if (!s->troubled)
			trouble(s, "it does not take lines as fast as they come");
		lose(s, 1, (uint64_t)(nl - text) + 1);
		r = -1;
	}
	if (!loop_timer_active(&s->retry) && !(s->fd >= 0 && s->io.events))
		pump(s);
	return r;
}

void sink_close(struct sink *s)
{
	const char *text;
	struct record r;

	loop_timer_stop(&s->retry);
	send_queue(s);
	loop_timer_stop(&s->retry);
	while (head_record(s, &r, &text)) {
		if (r.bytes)
			lose(s, 1, r.bytes);
		drop_head(s, &r);
	}
	if (s->streak_lines) {
		CLEANUP_FREE char *what =
			xasprintf("%s: %llu lines (%llu bytes) were not taken and are lost", s->path,
				  (unsigned long long)s->streak_lines, (unsigned long long)s->streak_bytes);

		s->streak_lines = s->streak_bytes = 0;
		tell(s, what);
	}
	shut(s);
}

void sink_destroy(struct sink *s)
{
	if (!s)
		return;
	sink_close(s);
	strbuf_finish(&s->queue);
	free(s->app);
	free(s->path);
	free(s->error);
	free(s);
}

bool sink_losing(const struct sink *s)
{
	return s->troubled;
}

uint64_t sink_dropped_lines(const struct sink *s)
{
	return s->dropped_lines;
}

uint64_t sink_dropped_bytes(const struct sink *s)
{
	return s->dropped_bytes;
}

const char *sink_error(const struct sink *s)
{
	return s->error;
}

/* --- across an exec --- */

static const struct keep_field fields[] = {
	KEEP(sink, BOOL, troubled),	 KEEP(sink, U64, streak_lines),	 KEEP(sink, U64, streak_bytes),
	KEEP(sink, U64, dropped_lines), KEEP(sink, U64, dropped_bytes), KEEP(sink, U64, before_lines),
	KEEP(sink, U64, before_bytes),	 KEEP(sink, TEXT, error),	 KEEP(sink, TIMER, retry),
};

struct js *sink_save(struct keep *k, const struct sink *s)
{
	struct js *o = js_obj(), *queue = js_arr();
	struct sink rest = *s; /* walked over */
	const char *text;
	struct record r;

	keep_save(k, o, fields, ELEMENTS(fields), s);
	for (; head_record(&rest, &r, &text); rest.head += sizeof r + r.len) {
		struct js *one = js_obj();

		keep_bytes(k, one, "text", text, r.len);
		js_add_int(one, "bytes", r.bytes);
		js_push(queue, one);
	}
	js_add(o, "queue", queue);
	return o;
}

void sink_restore(struct keep *k, const struct js *o, struct sink *s)
{
	keep_load(k, o, fields, ELEMENTS(fields), s);
	for (const struct js *one = js_first(js_get(o, "queue")); one; one = js_next(one)) {
		size_t len;
		const char *text = keep_get_bytes(k, one, "text", &len);

		if (s->queue.len + len + sizeof(struct record) <= SINK_QUEUE)
			put_record(s, text, len, (size_t)js_int_or(one, "bytes", 0));
	}
	if (s->queue.len && !loop_timer_active(&s->retry))
		loop_timer_start(&s->retry, 0);
}
