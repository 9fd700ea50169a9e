#include "sandbox/version.h"
#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT_MS = 4000, TEXT_MAX = 512, VERSION_MAX = 40, TURN_READS = 32 };

struct version_query {
	struct loop *loop;
	struct plan *plan;
	struct launch *launch;
	struct loop_io dead, readable;
	struct loop_timer limit;
	int out;
	char text[TEXT_MAX];
	size_t len;
	struct err *error;
	version_done_fn *done;
	void *data;
};

bool version_find(const char *text, char *ret, size_t cap)
{
	const char *s = text;
	size_t n;

	for (; *s; s++) /* a number that begins a word, so not the 3 of "python3" */
		if (*s >= '0' && *s <= '9' && (s == text || strchr(" \t\nv", s[-1])))
			break;
	n = strspn(s, "0123456789.");
	while (n && s[n - 1] == '.')
		n--;
	if (!n || n >= cap)
		return false;
	memcpy(ret, s, n);
	ret[n] = 0;
	return true;
}

/* What does not fit is read and forgotten: the program must not wait for us. Nor does anybody else: it may write faster than
 * this reads. */
static void take_text(struct version_query *q)
{
	char rest[4096];

	for (int i = 0; i < TURN_READS; i++) {
		size_t room = sizeof q->text - 1 - q->len;
		ssize_t n = read(q->out, room ? q->text + q->len : rest, room ? room : sizeof rest);

		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			loop_io_stop(&q->readable);
		if (n <= 0)
			return;
		if (room)
			q->len += (size_t)n;
	}
}

static void on_readable(struct loop_io *w, unsigned events)
{
	(void)events;
	take_text(w->data);
}

static void on_limit(struct loop_timer *w)
{
	struct version_query *q = w->data;

	if (!q->error)
		(void)err_set(&q->error, ETIMEDOUT, "it was asked with --version and did not end within %d s",
			      LIMIT_MS / 1000);
	(void)pidfd_signal(launch_pidfd(q->launch), SIGKILL);
}

static void on_done(void *data, struct launch *l, struct launch_done *done, const struct err *error)
{
	struct version_query *q = data;

	if (!error) {
		isolation_finish(&done->isolation);
		memset(&done->isolation, 0, sizeof done->isolation);
		return;
	}
	if (!q->error)
		(void)err_set(&q->error, err_code(error), "%s", err_msg(error));
	(void)pidfd_signal(launch_pidfd(l), SIGKILL);
}

static void on_dead(struct loop_io *w, unsigned events)
{
	struct version_query *q = w->data;
	char version[VERSION_MAX];
	int status = 0;

	(void)events;
	if (pidfd_reap(w->fd, &status) == 0)
		return;
	loop_io_stop(&q->dead);
	loop_timer_stop(&q->limit);
	take_text(q);
	q->text[q->len] = 0;
	if (!q->error && !version_find(q->text, version, sizeof version))
		(void)err_set(&q->error, 0, "it answers --version with nothing that looks like one");
	q->done(q->data, q->error ? NULL : version, q->error);
}

static void set_program(struct plan *p, const char *program)
{
	strv_clear(&p->argv);
	strv_add(&p->argv, program);
	strv_add(&p->argv, "--version");
	free(p->program);
	p->program = xstrdup(program);
	p->notify = false;
}

struct version_query *version_ask(struct loop *l, const struct backend *b, struct plan *p,
				  const char *program, int init_fd, int supervisor_pidfd,
				  version_done_fn *done, void *data, struct err **e)
{
	struct version_query *q = xcalloc(1, sizeof *q);
	struct launch_io io = {.stdin_fd = -1,
			       .stderr_fd = -1,
			       .init_fd = init_fd,
			       .supervisor_pidfd = supervisor_pidfd,
			       .new_session = true};
	int fds[2];

	*q = (struct version_query){.loop = l, .plan = p, .out = -1, .done = done, .data = data};
	set_program(p, program);
	if (pipe2(fds, O_CLOEXEC) < 0) {
		(void)err_sys(e, errno, "pipe");
		version_destroy(q);
		return NULL;
	}
	q->out = fds[0];
	(void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
	io.stdout_fd = fds[1]; /* complaints are no answer */
	q->launch = b->launch(l, p, &io, on_done, q, e);
	(void)close(fds[1]);
	if (!q->launch) {
		version_destroy(q);
		return NULL;
	}
	loop_io_init(l, &q->dead, launch_pidfd(q->launch), LOOP_READ, on_dead, q);
	loop_io_init(l, &q->readable, q->out, LOOP_READ, on_readable, q);
	loop_timer_init(l, &q->limit, on_limit, q);
	loop_timer_start(&q->limit, LIMIT_MS);
	return q;
}

void version_stop(struct version_query *q)
{
	if (!q->error)
		(void)err_set(&q->error, ECANCELED, "it was not waited for");
	(void)pidfd_signal(launch_pidfd(q->launch), SIGKILL);
}

void version_destroy(struct version_query *q)
{
	if (!q)
		return;
	loop_io_stop(&q->dead);
	loop_io_stop(&q->readable);
	loop_timer_stop(&q->limit);
	launch_destroy(q->launch);
	fd_close_many(&q->out, 1);
	plan_free(q->plan);
	err_free(q->error);
	free(q);
}
