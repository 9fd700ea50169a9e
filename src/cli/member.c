#include "cli/member.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/wire.h"
#include "ctl/protocol.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { SOON_MS = 50, RETRY_MS = 1000, RETRY_MAX_MS = 30000 };

struct member {
	struct loop *loop;
	struct wire *wire; /* NULL: nobody is there */
	struct loop_timer retry;
	int64_t delay_ms;
	char *path, *app;
	struct js *started;
	bool joined;
	bool known; /* whether there is a supervisor was found out once; until then nothing is begun without it */
	struct member_hooks hooks;
};

static void later(struct member *m)
{
	loop_timer_start(&m->retry, m->delay_ms);
	m->delay_ms = m->delay_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : m->delay_ms * 2;
}

static void drop(struct member *m)
{
	wire_destroy(TAKE_PTR(m->wire));
	m->joined = false;
	later(m);
}

static void alone(struct member *m)
{
	m->known = true;
	m->hooks.alone(m->hooks.data);
}

/* One is there and does not answer: it is busy, or about to end. */
static void ask_again(struct member *m)
{
	loop_timer_start(&m->retry, SOON_MS);
}

static void on_closed(void *data, const char *why)
{
	struct member *m = data;

	(void)why;
	drop(m);
	if (m->known)
		alone(m);
	else
		ask_again(m);
}

static struct js *message(const struct member *m, const char *type)
{
	struct js *o = m->started && str_eq(type, "started") ? js_copy(m->started) : js_obj();

	js_add_str(o, "t", type);
	return o;
}

static void on_rules(struct member *m, const struct js *msg, int *fds, size_t n_fds)
{
	int none = -1;

	if (!m->joined && m->started) {
		struct js *again = message(m, "started");

		js_add_bool(again, "again", true);
		(void)wire_send(m->wire, again, NULL, 0);
	}
	m->joined = m->known = true;
	m->delay_ms = RETRY_MS;
	m->hooks.rules(m->hooks.data, js_get(msg, "rules"), n_fds ? fds : &none);
}

static void on_message(void *data, const struct js *msg, int *fds, size_t n_fds)
{
	struct member *m = data;
	const char *t = js_str(msg, "t");

	if (str_eq(t, "rules")) {
		on_rules(m, msg, fds, n_fds);
	} else if (str_eq(t, "unit")) {
		m->hooks.unit(m->hooks.data);
	} else if (str_eq(t, "stop")) {
		m->hooks.stop(m->hooks.data);
	} else if (str_eq(t, "refused")) {
		const char *text = js_str(msg, "text");

		drop(m);
		m->known = true;
		m->hooks.refused(m->hooks.data, text ? text : "it refused");
	}
}

/* 0: connected; else the errno. */
static int reach(struct member *m)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	CLEANUP_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct js *hello;

	if (fd < 0)
		return errno;
	if (strlen(m->path) >= sizeof sa.sun_path)
		return ENOENT;
	memcpy(sa.sun_path, m->path, strlen(m->path) + 1);
	if (connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0)
		return errno;
	m->wire = wire_create(m->loop, TAKE_FD(fd), on_message, on_closed, m);
	hello = message(m, "run");
	js_add_int(hello, "v", CTL_RUN_VERSION);
	js_add_str(hello, "app", m->app);
	(void)wire_send(m->wire, hello, NULL, 0);
	return 0;
}

/* EAGAIN: its queue is full. */
static bool says_nothing(int error)
{
	static const int passing[] = {EAGAIN, EINTR, EMFILE, ENFILE, ENOMEM, ENOBUFS};

	for (size_t i = 0; i < ELEMENTS(passing); i++)
		if (error == passing[i])
			return true;
	return false;
}

static void on_retry(struct loop_timer *w)
{
	struct member *m = w->data;
	int error = reach(m);

	if (!error)
		return;
	if (!m->known && says_nothing(error)) {
		ask_again(m);
		return;
	}
	later(m);
	if (!m->known)
		alone(m);
}

struct member *member_create(struct loop *l, const char *runtime, const char *app,
			     const struct member_hooks *hooks)
{
	struct member *m = xcalloc(1, sizeof *m);

	m->loop = l;
	m->path = path_join(runtime, CTL_RUN_SOCKET);
	m->app = xstrdup(app);
	m->hooks = *hooks;
	m->delay_ms = RETRY_MS;
	loop_timer_init(l, &m->retry, on_retry, m);
	loop_timer_start(&m->retry, 0);
	return m;
}

void member_destroy(struct member *m)
{
	if (!m)
		return;
	loop_timer_stop(&m->retry);
	wire_destroy(m->wire);
	js_free(m->started);
	free(m->path);
	free(m->app);
	free(m);
}

bool member_joined(const struct member *m)
{
	return m->joined;
}

void member_say(struct member *m, struct js *msg)
{
	if (m->joined)
		(void)wire_send(m->wire, msg, NULL, 0);
	else
		js_free(msg);
}

void member_started(struct member *m, struct js *what)
{
	m->started = what;
	member_say(m, message(m, "started"));
}
