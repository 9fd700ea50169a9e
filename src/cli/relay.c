#include "cli/relay.h"
#include "base/fd.h"
#include "base/str.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

int relay_init(struct relay *r, int fd, int *ret_fd, struct err **e)
{
	static const char *const names[] = {"standard input", "standard output", "standard error"};
	struct stat st;
	int p[2];

	memset(r, 0, sizeof *r);
	r->from = r->to = r->jail_fd = -1;
	r->in = fd == 0;
	if (fstat(fd, &st) < 0)
		return err_sys(e, errno, "%s", names[fd]);
	if (S_ISDIR(st.st_mode) || S_ISBLK(st.st_mode))
		return err_set(e, EINVAL, "%s is a %s: that would open the host to the command", names[fd],
			       S_ISDIR(st.st_mode) ? "directory" : "block device");
	if (S_ISCHR(st.st_mode) || S_ISFIFO(st.st_mode)) {
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
	*ret_fd = r->jail_fd;
	return 0;
}

static void stop(struct relay *r)
{
	bool was = r->active;

	loop_io_stop(&r->from_io);
	loop_io_stop(&r->to_io);
	if (r->in)
		fd_close_many(&r->to, 1); /* end of file for the command */
	else
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
	if (!r->in && r->socket)
		return send(r->to, r->buffer + r->at, r->len - r->at, MSG_DONTWAIT | MSG_NOSIGNAL);
	return write(r->to, r->buffer + r->at, r->len - r->at);
}

static void arm(struct relay *r)
{
	bool full = r->at < r->len;

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
	if (n < 0) { /* nobody reads: the writer is told by SIGPIPE, as without us */
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
		return;
	}
	r->at = 0;
	r->len = (size_t)n;
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
}

void relay_finish(struct relay *r)
{
	r->on_end = NULL;
	if (r->active)
		stop(r);
	fd_close_many(&r->jail_fd, 1);
	free(r->buffer);
	r->buffer = NULL;
}
