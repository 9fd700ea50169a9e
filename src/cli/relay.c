#include "cli/relay.h"
#include "base/fd.h"
#include "base/str.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Descriptors that came from elsewhere keep their flags, so an output that could block is opened once more. */
static void open_anew(struct relay *r, mode_t mode)
{
	char path[40];
	int fd;

	if (r->in || r->socket || S_ISREG(mode))
		return;
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", r->to);
	fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	r->cautious = fd < 0;
	if (fd < 0)
		return;
	r->to = fd;
	r->own_to = true;
}

static int init(struct relay *r, int fd, int *ret_fd, bool copied, struct err **e)
{
	static const char *const names[] = {"standard input", "standard output", "standard error"};
	struct stat st;
	int p[2];

	memset(r, 0, sizeof *r);
	r->from = r->to = r->jail_fd = r->hup = -1;
	r->in = fd == 0;
	if (fstat(fd, &st) < 0)
		return err_sys(e, errno, "%s", names[fd]);
	if (S_ISDIR(st.st_mode) || S_ISBLK(st.st_mode))
		return err_set(e, EINVAL, "%s is a %s: that would open the host to the command", names[fd],
			       S_ISDIR(st.st_mode) ? "directory" : "block device");
	if (!copied && (S_ISCHR(st.st_mode) || S_ISFIFO(st.st_mode))) {
		*ret_fd = fd;
		return 0;
	}
	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(e, errno, "cannot make a pipe");
	r->active = true;
	r->socket = S_ISSOCK(st.st_mode);
	r->from = r->in ? fd : p[0];
	r->to = r->in ? p[1] : fd;
	r->jail_fd = r->in ? p[0] : p[1];
	(void)fd_set_nonblock(r->in ? p[1] : p[0], true);
	if (copied)
		open_anew(r, st.st_mode);
	*ret_fd = r->jail_fd;
	return 0;
}

int relay_init(struct relay *r, int fd, int *ret_fd, struct err **e)
{
	return init(r, fd, ret_fd, false, e);
}

int relay_init_copied(struct relay *r, int fd, int *ret_fd, struct err **e)
{
	return init(r, fd, ret_fd, true, e);
}

static void tell_eof(struct relay *r)
{
	loop_io_stop(&r->hup_io);
	if (r->eof || !r->on_eof)
		return;
	r->eof = true;
	r->on_eof(r->tap_data);
}

static void on_hup(struct loop_io *w, unsigned events)
{
	(void)events;
	tell_eof(w->data);
}

/* An input that is not read, because the app takes no more, still tells its end: EPOLLHUP comes unasked. A file has none. */
static void watch_hup(struct relay *r, struct loop *l)
{
	struct epoll_event ev = {.events = EPOLLRDHUP};

	r->hup = epoll_create1(EPOLL_CLOEXEC);
	if (r->hup >= 0 && epoll_ctl(r->hup, EPOLL_CTL_ADD, r->from, &ev) == 0)
		loop_io_init(l, &r->hup_io, r->hup, LOOP_READ, on_hup, r);
}

static void stop(struct relay *r)
{
	bool was = r->active;

	loop_io_stop(&r->from_io);
	loop_io_stop(&r->to_io);
	if (r->in || r->own_to)
		fd_close_many(&r->to, 1); /* end of file for the command */
	if (!r->in)
		fd_close_many(&r->from, 1);
	r->active = false;
	if (was && !r->in && r->on_end)
		r->on_end(r->data);
}

/* A descriptor we were given keeps its flags: O_NONBLOCK belongs to everybody who shares it. */
static ssize_t get(struct relay *r)
{
	if (r->in && r->socket)
		return recv(r->from, r->buffer, RELAY_BUFFER, MSG_DONTWAIT);
	return read(r->from, r->buffer, RELAY_BUFFER);
}

static ssize_t put(struct relay *r)
{
	if (r->sink)
		return (ssize_t)(r->len - r->at);
	if (!r->in && r->socket)
		return send(r->to, r->buffer + r->at, r->len - r->at, MSG_DONTWAIT | MSG_NOSIGNAL);
	return write(r->to, r->buffer + r->at,
		     r->cautious && r->len - r->at > PIPE_BUF ? PIPE_BUF : r->len - r->at);
}

static void arm(struct relay *r)
{
	bool full = r->at < r->len;

	if (r->sink) {
		loop_io_set(&r->from_io, LOOP_READ);
		return;
	}
	loop_io_set(&r->from_io, full ? 0 : LOOP_READ);
	loop_io_set(&r->to_io, full ? LOOP_WRITE : 0);
}

static void on_writable(struct loop_io *w, unsigned events)
{
	struct relay *r = w->data;
	ssize_t n = put(r);

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0 && r->on_eof) { /* the app reads no more; the end of its client is still waited for */
		loop_io_stop(w);
		fd_close_many(&r->to, 1);
		r->sink = true;
		n = (ssize_t)(r->len - r->at);
	} else if (n < 0) { /* nobody reads: the writer is told by SIGPIPE, as without us */
		stop(r);
		return;
	}
	r->at += (size_t)n;
	arm(r);
}

static void on_readable(struct loop_io *w, unsigned events)
{
	struct relay *r = w->data;
	ssize_t n = get(r);

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		stop(r);
		tell_eof(r);
		return;
	}
	r->at = 0;
	r->len = (size_t)n;
	if (r->on_bytes)
		r->on_bytes(r->tap_data, r->buffer, r->len);
	if (!r->cautious)
		on_writable(&r->to_io, 0);
	if (r->active)
		arm(r);
}

void relay_start(struct relay *r, struct loop *l, void (*on_end)(void *data), void *data)
{
	r->on_end = on_end;
	r->data = data;
	fd_close_many(&r->jail_fd, 1);
	if (!r->active)
		return;
	r->buffer = xmalloc(RELAY_BUFFER);
	loop_io_init(l, &r->from_io, r->from, LOOP_READ, on_readable, r);
	loop_io_init(l, &r->to_io, r->to, 0, on_writable, r);
	if (r->in && r->on_eof)
		watch_hup(r, l);
}

void relay_finish(struct relay *r)
{
	r->on_end = NULL;
	if (r->active)
		stop(r);
	loop_io_stop(&r->hup_io);
	fd_close_many(&r->hup, 1);
	fd_close_many(&r->jail_fd, 1);
	free(r->buffer);
	r->buffer = NULL;
}
