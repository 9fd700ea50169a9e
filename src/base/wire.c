#include "base/wire.h"
#include "base/str.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct item {
	struct item *next;
	char *text;
	size_t len, n_fds;
	int fds[];
};

struct wire {
	struct loop_io io;
	struct loop *loop;
	int fd;
	wire_message_fn *on_message;
	wire_closed_fn *on_closed;
	void *data;
	struct item *head, **tail;
	size_t queued;
	uint64_t accepted;
	bool closed, in_callback, destroyed, takes_large;
	char *buf; /* WIRE_MAX_BYTES, receive */
};

static void item_free(struct item *i)
{
	fd_close_many(i->fds, i->n_fds);
	free(i->text);
	free(i);
}

static void wire_release(struct wire *w)
{
	loop_io_stop(&w->io);
	(void)close(w->fd);
	while (w->head) {
		struct item *i = w->head;

		w->head = i->next;
		item_free(i);
	}
	free(w->buf);
	free(w);
}

static void wire_close(struct wire *w, const char *why)
{
	if (w->closed)
		return;
	w->closed = true;
	loop_io_stop(&w->io);
	w->on_closed(w->data, why);
}

static void wire_flush(struct wire *w)
{
	while (w->head) {
		struct item *i = w->head;

		if (fd_send(w->fd, i->text, i->len, i->fds, i->n_fds) < 0) {
			if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS)
				break;
			wire_close(w, strerror(errno));
			return;
		}
		w->head = i->next;
		if (!w->head)
			w->tail = &w->head;
		w->queued--;
		item_free(i);
	}
	loop_io_set(&w->io, LOOP_READ | (w->head ? LOOP_WRITE : 0u));
}

/* --- messages that no socket takes --- */

int wire_pack(char **text, int *ret_fd)
{
	size_t len = strlen(*text);
	int fd;

	if (len <= WIRE_MAX_BYTES) {
		*ret_fd = -1;
		return 0;
	}
	if (len > WIRE_LARGE_MAX) {
		errno = EMSGSIZE;
		return -1;
	}
	fd = fd_sealed("sbxsv-message", *text, len);
	if (fd < 0)
		return -1;
	free(*text);
	*text = xasprintf("{\"memfd\":%zu}", len);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* NULL: it is not what it says. */
static struct js *unpack(const struct js *msg, int fd)
{
	int64_t len = js_int_or(msg, "memfd", -1);
	CLEANUP_FREE char *text = NULL;
	struct stat st;
	size_t at = 0;

	if (len <= 0 || len > WIRE_LARGE_MAX || fstat(fd, &st) < 0 || st.st_size != len)
		return NULL;
	text = xmalloc((size_t)len);
	while (at < (size_t)len) {
		ssize_t n = pread(fd, text + at, (size_t)len - at, (off_t)at);

		if (n <= 0)
			return NULL;
		at += (size_t)n;
	}
	return js_parse(text, (size_t)len, NULL);
}

void wire_take_large(struct wire *w)
{
	w->takes_large = true;
}

/* Handles one message. False when there is none left, or the wire is gone. */
static bool wire_read_one(struct wire *w)
{
	int fds[FD_PASS_MAX];
	size_t n_fds = 0;
	ssize_t n = fd_recv(w->fd, w->buf, WIRE_MAX_BYTES, fds, FD_PASS_MAX, &n_fds);
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_JS struct js *msg = NULL;

	if (n < 0) {
		if (errno != EAGAIN)
			wire_close(w, strerror(errno));
		return false;
	}
	if (n == 0) {
		wire_close(w, "the peer closed");
		return false;
	}
	msg = js_parse(w->buf, (size_t)n, &e);
	if (msg && w->takes_large && n_fds == 1 && js_get(msg, "memfd")) {
		struct js *whole = unpack(msg, fds[0]);

		js_free(msg);
		msg = whole;
		fd_close_many(fds, n_fds);
		n_fds = 0;
	}
	if (msg && js_is_obj(msg))
		w->on_message(w->data, msg, fds, n_fds);
	else
		wire_close(w, "a message was not a JSON object");
	fd_close_many(fds, n_fds);
	return !w->closed && !w->destroyed;
}

static void wire_event(struct loop_io *io, unsigned events)
{
	struct wire *w = io->data;

	w->in_callback = true;
	if (events & LOOP_WRITE)
		wire_flush(w);
	if (events & LOOP_READ)
		for (int i = 0; i < 64 && !w->closed && !w->destroyed && wire_read_one(w); i++)
			;
	w->in_callback = false;
	if (w->destroyed)
		wire_release(w);
}

struct wire *wire_create(struct loop *l, int fd, wire_message_fn *on_message, wire_closed_fn *on_closed,
			 void *data)
{
	struct wire *w = xcalloc(1, sizeof *w);

	w->loop = l;
	w->fd = fd;
	w->on_message = on_message;
	w->on_closed = on_closed;
	w->data = data;
	w->tail = &w->head;
	w->buf = xmalloc(WIRE_MAX_BYTES);
	(void)fd_set_nonblock(fd, true);
	loop_io_init(l, &w->io, fd, LOOP_READ, wire_event, w);
	loop_io_first(&w->io); /* what the peer said counts for every connection that came after it */
	return w;
}

void wire_destroy(struct wire *w)
{
	if (!w)
		return;
	w->destroyed = true;
	w->closed = true;
	loop_io_stop(&w->io);
	if (!w->in_callback)
		wire_release(w);
}

int wire_fd(const struct wire *w)
{
	return w->fd;
}

uint64_t wire_accepted(const struct wire *w)
{
	return w->accepted;
}

uint64_t wire_left(const struct wire *w)
{
	return w->accepted - w->queued;
}

int wire_send(struct wire *w, struct js *msg, const int *fds, size_t n_fds)
{
	CLEANUP_FREE char *text = js_print(msg);
	CLEANUP_FD int large = -1;
	size_t len;
	struct item *i;

	js_free(msg);
	if (n_fds == 0 && wire_pack(&text, &large) < 0)
		return -1;
	if (large >= 0) {
		fds = &large;
		n_fds = 1;
	}
	len = strlen(text);
	if (len > WIRE_MAX_BYTES || n_fds > FD_PASS_MAX) {
		errno = EMSGSIZE;
		return -1;
	}
	if (w->closed || w->queued >= WIRE_QUEUE_MAX) {
		errno = EPIPE;
		return -1;
	}
	if (!w->head && fd_send(w->fd, text, len, fds, n_fds) == 0) {
		w->accepted++;
		return 0;
	}
	if (!w->head && errno != EAGAIN && errno != ENOBUFS && errno != ETOOMANYREFS)
		return -1; /* the reader's side will see the end and report it once */
	i = xcalloc(1, sizeof *i + n_fds * sizeof(int));
	i->text = TAKE_PTR(text);
	i->len = len;
	for (; i->n_fds < n_fds; i->n_fds++) {
		i->fds[i->n_fds] = fcntl(fds[i->n_fds], F_DUPFD_CLOEXEC, 3);
		if (i->fds[i->n_fds] < 0) {
			item_free(i);
			return -1;
		}
	}
	*w->tail = i;
	w->tail = &i->next;
	w->queued++;
	w->accepted++;
	loop_io_set(&w->io, LOOP_READ | LOOP_WRITE);
	return 0;
}
