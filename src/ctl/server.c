/*
 * The control API's server.
 *
 * Theory of operation. We bind and accept ourselves, check who the peer is, and hand the connection to
 * libmicrohttpd, which runs without threads: its epoll fd is one more fd of our loop, and after each
 * MHD_run() a timer is set for what MHD_get_timeout() asks. While no client is connected there is no timer,
 * so an idle supervisor does not wake up.
 *
 * An answer that takes time (start with wait, a follow stream that has nothing to say) suspends its
 * connection: MHD then forgets the fd. We watch it meanwhile, because a client that leaves would otherwise
 * hold its place until the next event. Resuming makes MHD call us again.
 *
 * Nothing here waits: reading and writing is MHD's, non-blocking, and what a slow reader does not take is
 * bounded (stream.c). A request is parsed by pure code (route.c) and answered from the supervisor's state
 * (answer.c).
 */
#include "ctl/internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "ctl/peer.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define ACCEPT_BATCH    16
#define ACCEPT_RETRY_MS 100
#define ACCEPT_SAY_MS   10000
#define LISTEN_QUEUE    64
#define MHD_MEMORY      ((size_t)16 << 10) /* per connection; bounds the size of request line and headers */

/* --- libmicrohttpd inside the loop --- */

static void run(struct ctl *c)
{
	MHD_UNSIGNED_LONG_LONG ms = 0;

	if (c->in_run)
		return;
	c->in_run = true;
	(void)MHD_run(c->mhd);
	c->in_run = false;
	if (MHD_get_timeout(c->mhd, &ms) != MHD_YES)
		loop_timer_stop(&c->mhd_timer);
	else if (ms == 0)
		loop_defer_start(&c->mhd_run);
	else
		loop_timer_start(&c->mhd_timer, ms > CTL_IDLE_S * 1000 ? CTL_IDLE_S * 1000 : (int64_t)ms);
}

static void on_mhd_io(struct loop_io *w, unsigned events)
{
	(void)events;
	run(w->data);
}

static void on_mhd_timer(struct loop_timer *w)
{
	run(w->data);
}

static void on_mhd_run(struct loop_defer *w)
{
	run(w->data);
}

void ctl_kick(struct ctl *c)
{
	loop_defer_start(&c->mhd_run);
}

static void on_mhd_log(void *data, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
static void on_mhd_log(void *data, const char *fmt, va_list ap)
{
	CLEANUP_FREE char *text = xvasprintf(fmt, ap);

	(void)data;
	log_debug("control socket: %s", text);
}

/* --- requests --- */

static void *on_request_line(void *data, const char *target, struct MHD_Connection *conn)
{
	struct ctl *c = data;
	struct request *r = xcalloc(1, sizeof *r);

	r->ctl = c;
	r->conn = conn;
	/* one byte over the limit is enough for ctl_route() to refuse it */
	r->target = xstrndup(target, CTL_TARGET_MAX + 1);
	r->next = c->requests;
	if (r->next)
		r->next->prev = r;
	c->requests = r;
	return r;
}

static void on_completed(void *data, struct MHD_Connection *conn, void **con_cls,
			 enum MHD_RequestTerminationCode why)
{
	struct request *r = *con_cls;
	struct ctl *c = data;
	bool shutdown_now;
	int64_t grace_ms;

	(void)conn;
	(void)why;
	if (!r)
		return;
	*con_cls = NULL;
	loop_io_stop(&r->hup);
	answer_detach(r);
	stream_detach(r->stream);
	if (r->prev)
		r->prev->next = r->next;
	else
		c->requests = r->next;
	if (r->next)
		r->next->prev = r->prev;
	shutdown_now = r->shutdown;
	grace_ms = r->call.grace_ms;
	js_free(r->result);
	strbuf_finish(&r->body);
	free(r->target);
	free(r);
	/* Only now: with nothing running, the shutdown could end the process before the reply is out. And
	 * from the loop, not from here: it may destroy us. */
	if (shutdown_now) {
		c->grace_ms = grace_ms;
		loop_defer_start(&c->shutdown);
	}
}

static void on_shutdown_defer(struct loop_defer *w)
{
	struct ctl *c = w->data;

	c->on_shutdown(c->data, c->grace_ms);
}

static void on_hup(struct loop_io *w, unsigned events)
{
	struct request *r = w->data;

	(void)events;
	/* The client left, or speaks out of turn while its answer is pending: both end the connection. */
	r->client_gone = true;
	req_cut(r);
}

static int conn_fd(const struct request *r)
{
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(r->conn, MHD_CONNECTION_INFO_CONNECTION_FD);

	return i ? i->connect_fd : -1;
}

void req_suspend(struct request *r)
{
	if (r->suspended)
		return;
	MHD_suspend_connection(r->conn);
	r->suspended = true;
	loop_io_init(r->ctl->loop, &r->hup, conn_fd(r), LOOP_READ, on_hup, r);
}

void req_resume(struct request *r)
{
	if (!r->suspended)
		return;
	loop_io_stop(&r->hup);
	r->suspended = false;
	MHD_resume_connection(r->conn);
	ctl_kick(r->ctl);
}

void req_cut(struct request *r)
{
	int fd = conn_fd(r);

	if (fd >= 0)
		(void)shutdown(fd, SHUT_RDWR);
	req_resume(r);
	ctl_kick(r->ctl);
}

enum MHD_Result req_reply(struct request *r, unsigned status, struct js *body)
{
	char *text = js_print(body), id[32];
	struct MHD_Response *resp =
		MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
	enum MHD_Result ok;

	js_free(body);
	if (!resp) {
		free(text);
		return MHD_NO;
	}
	(void)snprintf(id, sizeof id, "%llu", (unsigned long long)++r->ctl->serial);
	(void)MHD_add_response_header(resp, "Content-Type", "application/json");
	(void)MHD_add_response_header(resp, "X-Request-Id", id);
	r->phase = REQ_ANSWERED;
	ok = MHD_queue_response(r->conn, status, resp);
	MHD_destroy_response(resp);
	return ok;
}

enum MHD_Result req_error(struct request *r, unsigned status, int code, const char *text)
{
	struct js *j = js_obj();

	js_add_str(j, "error", text);
	js_add_int(j, "code", code);
	return req_reply(r, status, j);
}

/* True when the client announces more than we take. Without a length the body is counted as it comes. */
static bool announces_too_much(struct MHD_Connection *conn)
{
	const char *text = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);

	return text && strtoull(text, NULL, 10) > CTL_BODY_MAX;
}

static enum MHD_Result take_body(struct request *r, const char *data, size_t *size)
{
	if (r->body.len + *size > CTL_BODY_MAX)
		return MHD_NO; /* closes: a body of unknown length has no end to wait for */
	strbuf_add(&r->body, data, *size);
	*size = 0;
	return MHD_YES;
}

static enum MHD_Result dispatch(struct request *r, const char *method)
{
	CLEANUP_ERR struct err *e = NULL;
	int status = 500;

	if (ctl_route(method, r->target, r->body.p ? r->body.p : "", r->body.len, &r->call, &status, &e))
		return req_error(r, (unsigned)status, err_code(e) == ENOENT ? 4 : 2, err_msg(e));
	return answer(r);
}

static enum MHD_Result on_request(void *data, struct MHD_Connection *conn, const char *url,
				  const char *method, const char *version, const char *body, size_t *body_len,
				  void **con_cls)
{
	struct request *r = *con_cls;

	(void)data;
	(void)url;
	(void)version;
	if (!r || r->client_gone)
		return MHD_NO;
	switch (r->phase) {
	case REQ_NEW:
		r->phase = REQ_BODY;
		if (announces_too_much(conn))
			return req_error(r, 413, 2, "the request body is larger than 64 KiB");
		return MHD_YES;
	case REQ_BODY:
		return *body_len ? take_body(r, body, body_len) : dispatch(r, method);
	case REQ_WAITING:
		return answer_waited(r);
	case REQ_ANSWERED:
		break;
	}
	return MHD_NO;
}

/* --- accepting --- */

static void on_connection(void *data, struct MHD_Connection *conn, void **socket_cls,
			  enum MHD_ConnectionNotificationCode what)
{
	struct ctl *c = data;

	(void)conn;
	(void)socket_cls;
	if (what == MHD_CONNECTION_NOTIFY_STARTED)
		c->connections++;
	else
		c->connections--;
}

static void refuse(struct ctl *c, const char *why)
{
	int64_t now = clk_mono_ms();

	c->refused++;
	if (c->refused_logged_ms && now - c->refused_logged_ms < 1000)
		return;
	c->refused_logged_ms = now;
	log_warning("control socket: a connection was refused: %s (%llu refused so far)", why,
		    (unsigned long long)c->refused);
}

static void busy(int fd)
{
	static const char text[] = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
				   "Connection: close\r\n\r\n"
				   "{\"error\":\"too many connections to the supervisor (64)\",\"code\":1}";

	(void)!send(fd, text, sizeof text - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Takes over fd. */
static void admit(struct ctl *c, int fd)
{
	CLEANUP_ERR struct err *e = NULL;
	struct sockaddr_un sa = {.sun_family = AF_UNIX};

	if (peer_check(fd, &e)) {
		refuse(c, err_msg(e));
		(void)close(fd);
		return;
	}
	if (c->connections >= CTL_CONNECTIONS_MAX) {
		busy(fd);
		(void)close(fd);
		return;
	}
	/* closes fd itself when it fails */
	if (MHD_add_connection(c->mhd, fd, (struct sockaddr *)&sa, sizeof sa) != MHD_YES)
		log_warning("control socket: a connection could not be taken: %s", strerror(errno));
}

static void accept_trouble(struct ctl *c, int error)
{
	int64_t now = clk_mono_ms();

	if (c->accept_logged_ms && now - c->accept_logged_ms < ACCEPT_SAY_MS)
		return;
	c->accept_logged_ms = now;
	log_warning("control socket: accept: %s", strerror(error));
}

static void on_accept(struct loop_io *w, unsigned events)
{
	struct ctl *c = w->data;

	(void)events;
	for (int i = 0; i < ACCEPT_BATCH; i++) {
		int fd = accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			admit(c, fd);
			continue;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (errno != EAGAIN) {
			/* EMFILE, ENFILE, ENOMEM: the connection stays in the queue; asking at once would
			 * spin */
			accept_trouble(c, errno);
			loop_io_set(&c->accept_io, 0);
			loop_timer_start(&c->accept_retry, ACCEPT_RETRY_MS);
		}
		break;
	}
	run(c);
}

static void on_accept_retry(struct loop_timer *w)
{
	struct ctl *c = w->data;

	loop_io_set(&c->accept_io, LOOP_READ);
}

/* --- set-up --- */

/* Binds RUNTIME/control.sock. The caller's program holds the instance lock, so a socket that is there is
 * stale. */
static int bind_socket(struct ctl *c, const char *runtime, struct err **e)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	CLEANUP_FD int dir = file_private_dir(runtime, e), fd = -1;
	struct stat st;

	if (dir < 0)
		return err_wrap(e, "control socket");
	c->path = xasprintf("%s/control.sock", runtime);
	if (strlen(c->path) >= sizeof sa.sun_path)
		return err_set(
			e, ENAMETOOLONG,
			"control socket: the path %s has %zu bytes, a Unix socket's may have %zu; choose a "
			"shorter directory with --runtime or SBXSV_RUNTIME_DIR",
			c->path, strlen(c->path), sizeof sa.sun_path - 1);
	memcpy(sa.sun_path, c->path, strlen(c->path) + 1);
	if (fstatat(dir, "control.sock", &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (!S_ISSOCK(st.st_mode))
			return err_set(e, EEXIST, "control socket: %s is there and is no socket; remove it",
				       c->path);
		if (unlinkat(dir, "control.sock", 0))
			return err_sys(e, errno, "control socket: remove the stale %s", c->path);
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* bind() gives the file the mode of the socket's inode less the umask, unix(7): 0600 from the first
	 * moment */
	if (fd < 0 || fchmod(fd, 0600) || bind(fd, (struct sockaddr *)&sa, sizeof sa) ||
	    listen(fd, LISTEN_QUEUE))
		return err_sys(e, errno, "control socket %s", c->path);
	if (fstatat(dir, "control.sock", &st, AT_SYMLINK_NOFOLLOW) || !S_ISSOCK(st.st_mode) ||
	    (st.st_mode & 077))
		return err_set(e, EPERM, "control socket: %s is not the private socket that was bound",
			       c->path);
	c->dev = st.st_dev;
	c->ino = st.st_ino;
	c->listen_fd = TAKE_FD(fd);
	return 0;
}

/* The request line is parsed by route.c, from the raw text: MHD must not decode anything before. */
static size_t no_unescape(void *data, struct MHD_Connection *conn, char *s)
{
	(void)data;
	(void)conn;
	return strlen(s);
}

static int start_mhd(struct ctl *c, struct err **e)
{
	const union MHD_DaemonInfo *i;

	c->mhd = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG, 0,
		NULL, NULL, on_request, c, MHD_OPTION_EXTERNAL_LOGGER, on_mhd_log, c,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned)CTL_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
		CTL_IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, MHD_MEMORY, MHD_OPTION_NOTIFY_COMPLETED,
		on_completed, c, MHD_OPTION_NOTIFY_CONNECTION, on_connection, c, MHD_OPTION_URI_LOG_CALLBACK,
		on_request_line, c, MHD_OPTION_UNESCAPE_CALLBACK, no_unescape, NULL, MHD_OPTION_END);
	if (!c->mhd)
		return err_sys(e, errno, "control socket: libmicrohttpd does not start");
	i = MHD_get_daemon_info(c->mhd, MHD_DAEMON_INFO_EPOLL_FD);
	if (!i || i->epoll_fd < 0)
		return err_set(e, ENOTSUP, "control socket: this libmicrohttpd is built without epoll");
	loop_io_init(c->loop, &c->mhd_io, i->epoll_fd, LOOP_READ, on_mhd_io, c);
	return 0;
}

static struct ctl *ctl_new(struct loop *l, struct sup *s, void (*on_shutdown)(void *data, int64_t grace_ms), void *data)
{
	struct ctl *c = xcalloc(1, sizeof *c);

	c->loop = l;
	c->sup = s;
	c->on_shutdown = on_shutdown;
	c->data = data;
	c->listen_fd = -1;
	(void)clk_stamp(clk_wall_ms(), c->started, sizeof c->started);
	loop_timer_init(l, &c->mhd_timer, on_mhd_timer, c);
	loop_timer_init(l, &c->accept_retry, on_accept_retry, c);
	loop_defer_init(l, &c->mhd_run, on_mhd_run, c);
	loop_defer_init(l, &c->shutdown, on_shutdown_defer, c);
	return c;
}

struct ctl *ctl_create(struct loop *l, struct sup *s, const struct unit_dirs *d,
		       void (*on_shutdown)(void *data, int64_t grace_ms), void *data, struct err **e)
{
	struct ctl *c = ctl_new(l, s, on_shutdown, data);

	if (start_mhd(c, e) || bind_socket(c, d->runtime, e) ||
	    !(c->join = join_create(l, s, d->runtime, e))) {
		ctl_destroy(c);
		return NULL;
	}
	loop_io_init(l, &c->accept_io, c->listen_fd, LOOP_READ, on_accept, c);
	return c;
}

/* --- across an exec --- */

static const struct keep_field fields[] = {
	KEEP(ctl, TEXT, path),	 KEEP(ctl, FD, listen_fd), KEEP(ctl, U64, refused),
	KEEP(ctl, U64, cut),	 KEEP(ctl, U64, serial),
};

struct js *ctl_save(struct keep *k, const struct ctl *c)
{
	struct js *o = js_obj();

	keep_save(k, o, fields, ELEMENTS(fields), c);
	keep_u64(o, "dev", c->dev);
	keep_u64(o, "ino", c->ino);
	js_add_str(o, "started", c->started);
	js_add(o, "join", join_save(k, c->join));
	return o;
}

struct ctl *ctl_restore(struct loop *l, struct sup *s, struct keep *k, const struct js *o,
			void (*on_shutdown)(void *data, int64_t grace_ms), void *data, struct err **e)
{
	struct ctl *c = ctl_new(l, s, on_shutdown, data);
	const char *started = js_str(o, "started");

	keep_load(k, o, fields, ELEMENTS(fields), c);
	c->dev = keep_get_u64(k, o, "dev");
	c->ino = keep_get_u64(k, o, "ino");
	if (started)
		(void)snprintf(c->started, sizeof c->started, "%s", started);
	if (!c->path || c->listen_fd < 0)
		keep_wrong(k, "the control socket was not handed over");
	c->join = join_restore(l, s, k, js_get(o, "join"));
	if (keep_error(k, e) || start_mhd(c, e)) {
		if (!keep_is_rehearsal(k))
			ctl_destroy(c);
		return NULL;
	}
	loop_io_init(l, &c->accept_io, c->listen_fd, LOOP_READ, on_accept, c);
	return c;
}

bool ctl_flush(struct ctl *c)
{
	enum { TIMES = 8 }; /* a resumed connection takes its turns: resumed, called, written */

	for (int i = 0; i < TIMES; i++)
		run(c);
	return !c->shutdown.active;
}

static void remove_socket(const struct ctl *c)
{
	struct stat st;

	if (c->listen_fd >= 0 && lstat(c->path, &st) == 0 && st.st_dev == c->dev && st.st_ino == c->ino)
		(void)unlink(c->path);
}

void ctl_destroy(struct ctl *c)
{
	if (!c)
		return;
	remove_socket(c);
	join_destroy(c->join);
	if (c->listen_fd >= 0)
		(void)close(c->listen_fd);
	loop_io_stop(&c->accept_io);
	loop_timer_stop(&c->accept_retry);
	loop_io_stop(&c->mhd_io);
	/* MHD ends the process when it is stopped with suspended connections */
	for (struct request *r = c->requests; r; r = r->next)
		req_resume(r);
	if (c->mhd)
		MHD_stop_daemon(c->mhd);
	loop_timer_stop(&c->mhd_timer);
	loop_defer_stop(&c->mhd_run);
	loop_defer_stop(&c->shutdown);
	free(c->path);
	free(c);
}
