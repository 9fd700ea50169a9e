#include "proxy/alone_log.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct alone_log {
	char *name;
	int file; /* -1: standard output goes to the worker itself */
	int out;  /* for the worker */
	int in;   /* our end of its pipe, or -1 */
	struct loop_io io;
	bool mid;  /* the file does not end with a line end */
	bool torn; /* ... and the rest of that line was lost */
	bool skip; /* what comes up to the next line end belongs to a line that was lost */
	bool told; /* that lines are lost */
};

static int open_file(const char *name, struct err **e)
{
	const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK;
	int fd = open(name, flags, 0600);

	if (fd >= 0)
		return fd;
	return err_set(e, errno, "--access-log %s: %s", name,
		       errno == ELOOP   ? "it is a symbolic link"
		       : errno == ENXIO ? "nobody reads from that pipe"
					: strerror(errno));
}

/* A full disk. What is lost ends in the middle of a line, and what was written may. */
static void lost(struct alone_log *g, const char *data, size_t len)
{
	if (!g->told)
		log_warning("--access-log %s loses lines: %s", g->name, strerror(errno));
	g->told = true;
	g->torn = g->torn || g->mid;
	g->skip = data[len - 1] != '\n';
}

/* -1: some or all of it was lost. */
static int append(struct alone_log *g, const char *data, size_t len)
{
	while (len) {
		ssize_t n = write(g->file, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			lost(g, data, len);
			return -1;
		}
		g->mid = data[n - 1] != '\n';
		data += n;
		len -= (size_t)n;
	}
	g->told = false;
	return 0;
}

static void take_bytes(struct alone_log *g, const char *data, size_t len)
{
	const char *end = data + len;

	if (g->skip) {
		data = memchr(data, '\n', len);
		if (!data)
			return;
		data++;
		g->skip = false;
	}
	if (data == end)
		return;
	if (g->torn) { /* but not when somebody has emptied the file since */
		if (lseek(g->file, 0, SEEK_END) > 0 && append(g, "\n", 1) < 0) {
			lost(g, data, (size_t)(end - data));
			return;
		}
		g->torn = false;
	}
	(void)append(g, data, (size_t)(end - data));
}

static void take(struct alone_log *g)
{
	static char buf[65536];
	ssize_t n;

	while ((n = read(g->in, buf, sizeof buf)) > 0)
		take_bytes(g, buf, (size_t)n);
}

static void on_bytes(struct loop_io *io, unsigned events)
{
	(void)events;
	take(io->data);
}

static int make_pipe(struct alone_log *g, struct loop *l, struct err **e)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(e, errno, "no pipe for the access log");
	g->in = ends[0];
	g->out = ends[1];
	if (fd_set_nonblock(g->in, true) < 0)
		return err_sys(e, errno, "the pipe of the access log");
	loop_io_init(l, &g->io, g->in, LOOP_READ, on_bytes, g);
	return 0;
}

struct alone_log *alone_log_open(struct loop *l, const char *name, struct err **e)
{
	struct alone_log *g = xcalloc(1, sizeof *g);
	struct stat st;
	int fd;

	g->name = xstrdup(name);
	g->file = g->out = g->in = -1;
	fd = str_eq(name, "-") ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3) : open_file(name, e);
	if (fd < 0) {
		if (str_eq(name, "-"))
			(void)err_sys(e, errno, "--access-log -: standard output");
		alone_log_close(g);
		return NULL;
	}
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		g->out = fd;
		return g;
	}
	g->file = fd;
	if (make_pipe(g, l, e) == 0)
		return g;
	alone_log_close(g);
	return NULL;
}

int alone_log_fd(const struct alone_log *g)
{
	return g->out;
}

int alone_log_reopen(struct alone_log *g, struct err **e)
{
	int fd;

	if (g->file < 0 || str_eq(g->name, "-"))
		return 0;
	take(g);
	fd = open_file(g->name, e);
	if (fd < 0)
		return -1;
	(void)close(g->file);
	g->file = fd;
	g->mid = g->torn = g->told = false;
	return 0;
}

void alone_log_between(struct alone_log *g)
{
	if (g->in < 0)
		return;
	take(g);
	if (g->mid)
		(void)append(g, "\n", 1);
	g->skip = false;
}

void alone_log_close(struct alone_log *g)
{
	if (!g)
		return;
	if (g->in >= 0)
		take(g);
	loop_io_stop(&g->io);
	fd_close_many(&g->in, 1);
	fd_close_many(&g->out, 1);
	fd_close_many(&g->file, 1);
	free(g->name);
	free(g);
}
