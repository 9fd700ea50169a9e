/*
 * RUNTIME/run.sock: where processes of `sbxsv run` join the supervisor. SOCK_SEQPACKET, a JSON object a message
 * (base/wire.h), because a log is handed over as a descriptor; the same peers as on the control socket. A connection is
 * one instance of an app with Mode=stdio, from its beginning to its end.
 *
 *   to the supervisor   {"t":"run","v":1,"app":NAME}       first; then, once there is a jail:
 *                       {"t":"started","pid":N,"isolation":{..},"again":bool}
 *                       {"t":"event","event":{..}}         something it was refused
 *                       {"t":"lost","n":N}                 and how much more, not one by one
 *                       {"t":"exited","status":N}          as waitpid(2) gives it
 *   from it             {"t":"rules","rules":[..]}         those given at run time; the first one answers "run", and has
 *                                                          the write end of the app's log with it
 *                       {"t":"unit"}                       the unit changed
 *                       {"t":"stop"}
 *                       {"t":"refused","text":..}          in place of the first "rules"; nothing follows
 */
#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/log.h"
#include "base/wire.h"
#include "ctl/internal.h"
#include "ctl/peer.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* JOINED_MAX: connections. Those above INSTANCES_MAX are told why they are not taken. */
enum { INSTANCES_MAX = 256, JOINED_MAX = 320, QUEUE = 64, HELLO_MS = 5000, RETRY_MS = 100 };

struct joined {
	struct joined *next;
	struct join *join;
	struct wire *wire;
	struct sup_instance *instance; /* NULL: it has not said what it is */
	struct loop_timer hello;
	pid_t pid;
	int pidfd; /* of that process, until it has said what it is; -1 */
};

struct join {
	struct loop *loop;
	struct sup *sup;
	struct loop_io accept_io;
	struct loop_timer retry;
	int fd;
	char *path;
	struct stat st;
	struct joined *all;
	size_t n;
};

static void end(struct joined *c)
{
	struct joined **at = &c->join->all;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	c->join->n--;
	loop_timer_stop(&c->hello);
	wire_destroy(c->wire);
	fd_close_many(&c->pidfd, 1);
	if (c->instance)
		sup_instance_gone(c->instance);
	free(c);
}

static void on_closed(void *data, const char *why)
{
	(void)why;
	end(data);
}

static void on_hello(struct loop_timer *w)
{
	end(w->data);
}

static void tell(void *data, struct js *m, int fd)
{
	struct joined *c = data;

	/* -1: it is closed, or does not read: its end is seen soon */
	(void)wire_send(c->wire, m, &fd, fd >= 0);
}

static void refuse(struct joined *c, const char *text)
{
	struct js *m = js_obj();

	js_add_str(m, "t", "refused");
	js_add_str(m, "text", text);
	(void)wire_send(c->wire, m, NULL, 0);
	end(c);
}

static size_t instances(const struct join *j)
{
	size_t n = 0;

	for (const struct joined *c = j->all; c; c = c->next)
		n += c->instance != NULL;
	return n;
}

static void hello(struct joined *c, const struct js *m)
{
	struct sup_instance_hooks hooks = {.tell = tell, .data = c};
	CLEANUP_ERR struct err *e = NULL;
	const char *app = sup_instance_hello(m, CTL_RUN_VERSION);

	if (!app) {
		refuse(c, "the supervisor is of another version of sbxsv");
		return;
	}
	if (instances(c->join) >= INSTANCES_MAX) {
		CLEANUP_FREE char *text = xasprintf("there are %d instances of all apps already", INSTANCES_MAX);

		refuse(c, text);
		return;
	}
	c->instance = sup_instance_join(c->join->sup, app, c->pid, c->pidfd, &hooks, &e);
	if (!c->instance) {
		refuse(c, err_msg(e));
		return;
	}
	c->pidfd = -1;
	loop_timer_stop(&c->hello);
}

static void on_message(void *data, const struct js *m, int *fds, size_t n_fds)
{
	struct joined *c = data;

	(void)fds; /* none is expected, what comes is closed */
	(void)n_fds;
	if (c->instance)
		sup_instance_says(c->instance, m);
	else
		hello(c, m);
}

static void admit(struct join *j, int fd)
{
	CLEANUP_ERR struct err *e = NULL;
	struct ucred cred;
	socklen_t len = sizeof cred;
	struct joined *c;
	int pidfd = -1;

	if (j->n >= JOINED_MAX)
		(void)err_set(&e, EAGAIN, "there are too many");
	else if (peer_check(fd, &e) == 0 && (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 ||
					     (pidfd = peer_pidfd(fd, cred.pid)) < 0))
		(void)err_sys(&e, errno, "who it is cannot be seen");
	if (e) {
		log_warning("run socket: a connection was refused: %s", err_msg(e));
		(void)close(fd);
		return;
	}
	c = xcalloc(1, sizeof *c);
	c->join = j;
	c->pid = cred.pid;
	c->pidfd = pidfd;
	c->next = j->all;
	j->all = c;
	j->n++;
	loop_timer_init(j->loop, &c->hello, on_hello, c);
	loop_timer_start(&c->hello, HELLO_MS);
	c->wire = wire_create(j->loop, fd, on_message, on_closed, c);
}

static void on_accept(struct loop_io *w, unsigned events)
{
	struct join *j = w->data;
	int fd = accept4(j->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)events;
	if (fd >= 0) {
		admit(j, fd);
	} else if (errno != EAGAIN && errno != EINTR &&
		   errno != ECONNABORTED) { /* no descriptor: not at once again */
		loop_io_set(&j->accept_io, 0);
		loop_timer_start(&j->retry, RETRY_MS);
	}
}

static void on_retry(struct loop_timer *w)
{
	struct join *j = w->data;

	loop_io_set(&j->accept_io, LOOP_READ);
}

static struct join *join_new(struct loop *l, struct sup *s, char *path, int fd)
{
	struct join *j = xcalloc(1, sizeof *j);

	j->loop = l;
	j->sup = s;
	j->path = path;
	j->fd = fd;
	loop_timer_init(l, &j->retry, on_retry, j);
	loop_io_init(l, &j->accept_io, j->fd, LOOP_READ, on_accept, j);
	return j;
}

struct join *join_create(struct loop *l, struct sup *s, const char *runtime, struct err **e)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	CLEANUP_FREE char *path = path_join(runtime, CTL_RUN_SOCKET);
	CLEANUP_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct stat st;
	struct join *j;

	/* shorter than the path of the control socket, which was bound */
	(void)snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path);
	if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
		(void)unlink(path); /* stale: the program holds the lock of the instance */
	if (fd < 0 || fchmod(fd, 0600) || bind(fd, (struct sockaddr *)&sa, sizeof sa) || listen(fd, QUEUE) ||
	    lstat(path, &st) < 0) {
		(void)err_sys(e, errno, "run socket %s", path);
		return NULL;
	}
	j = join_new(l, s, TAKE_PTR(path), TAKE_FD(fd));
	j->st = st;
	return j;
}

/* --- across an exec: one with messages that it has not taken is closed, and comes again by itself --- */

struct js *join_save(struct keep *k, const struct join *j)
{
	struct js *o = js_obj(), *all = js_arr();

	keep_text(k, o, "path", j->path);
	keep_fd(k, o, "fd", j->fd);
	keep_u64(o, "dev", j->st.st_dev);
	keep_u64(o, "ino", j->st.st_ino);
	for (const struct joined *c = j->all; c; c = c->next) {
		struct js *one;
		const char *app;
		unsigned number;

		if (!c->instance || wire_left(c->wire) != wire_accepted(c->wire))
			continue;
		one = js_obj();
		sup_instance_name(c->instance, &app, &number);
		js_add_str(one, "app", app);
		js_add_int(one, "number", number);
		js_add_int(one, "pid", c->pid);
		keep_fd(k, one, "fd", wire_fd(c->wire));
		js_push(all, one);
	}
	js_add(o, "all", all);
	return o;
}

static void restore_one(struct join *j, struct keep *k, const struct js *o)
{
	int fd = keep_take_fd(k, o, "fd");
	struct joined *c;
	struct sup_instance_hooks hooks = {.tell = tell};
	const char *app = js_str(o, "app");

	if (fd < 0)
		return;
	c = xcalloc(1, sizeof *c);
	c->join = j;
	c->pid = (pid_t)js_int_or(o, "pid", 0);
	c->pidfd = -1;
	hooks.data = c;
	c->instance = app ? sup_instance_again(j->sup, app, (unsigned)js_int_or(o, "number", 0), &hooks) : NULL;
	if (!c->instance) {
		keep_wrong(k, "a connection of no instance was handed over");
		(void)close(fd);
		free(c);
		return;
	}
	c->next = j->all;
	j->all = c;
	j->n++;
	loop_timer_init(j->loop, &c->hello, on_hello, c);
	c->wire = wire_create(j->loop, fd, on_message, on_closed, c);
}

struct join *join_restore(struct loop *l, struct sup *s, struct keep *k, const struct js *o)
{
	int fd = keep_take_fd(k, o, "fd");
	struct join *j;

	if (fd < 0) {
		keep_wrong(k, "the socket of sbxsv run was not handed over");
		return NULL;
	}
	j = join_new(l, s, keep_get_text(k, o, "path"), fd);
	j->st.st_dev = keep_get_u64(k, o, "dev");
	j->st.st_ino = keep_get_u64(k, o, "ino");
	for (const struct js *one = js_first(js_get(o, "all")); one; one = js_next(one))
		restore_one(j, k, one);
	return j;
}

void join_destroy(struct join *j)
{
	struct stat st;

	if (!j)
		return;
	if (lstat(j->path, &st) == 0 && file_same(&st, &j->st))
		(void)unlink(j->path);
	loop_io_stop(&j->accept_io);
	loop_timer_stop(&j->retry);
	while (j->all)
		end(j->all);
	(void)close(j->fd);
	free(j->path);
	free(j);
}
