/*
 * The control API's server and client against each other, over a real socket: the server runs in a child
 * process with a supervisor that has no apps (fake_sup.c). What the tests wait for is polled with a generous
 * limit.
 */
#include "fake_sup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "ctl/client.h"
#include "ctl/ctl.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <cmocka.h>

#define HANG_MS 20000

struct world {
	char dir[64];
	struct unit_dirs dirs;
	pid_t server;
};

/* --- the child --- */

struct child {
	struct loop *loop;
	struct ctl *ctl;
	const char *dir;
};

static void on_shutdown(void *data, int64_t grace_ms)
{
	struct child *c = data;
	CLEANUP_FREE char *text = xasprintf("%lld", (long long)grace_ms);
	int dir = open(c->dir, O_DIRECTORY | O_CLOEXEC);

	(void)file_write_atomic(dir, "grace", text, strlen(text), 0600, NULL);
	(void)close(dir);
	/* as a supervisor without apps: everything ends at once, from inside this call */
	ctl_destroy(TAKE_PTR(c->ctl));
	loop_break(c->loop);
}

static void on_term(struct loop_signal *w)
{
	loop_break(w->loop);
}

static int serve(const struct world *w, int ready)
{
	CLEANUP_ERR struct err *e = NULL;
	struct child c = {.loop = loop_create(LOOP_SHIFT_GAPS), .dir = w->dir};
	struct sup *s = fake_sup_create(c.loop, w->dir);
	struct loop_signal term;

	log_init("test", LOG_LEVEL_ERROR);
	c.ctl = ctl_create(c.loop, s, &w->dirs, on_shutdown, &c, &e);
	if (!c.ctl) {
		fprintf(stderr, "%s\n", err_msg(e));
		return 1;
	}
	loop_signal_init(c.loop, &term, SIGTERM, on_term, NULL);
	(void)!write(ready, "x", 1);
	(void)close(ready);
	loop_run(c.loop);
	ctl_destroy(c.ctl);
	loop_signal_stop(&term);
	fake_sup_destroy(s);
	loop_destroy(c.loop);
	return 0;
}

static int set_up(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);
	int p[2];
	char c;

	(void)snprintf(w->dir, sizeof w->dir, "/tmp/sbxsv-ctl-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	w->dirs.runtime = w->dir;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	(void)fflush(NULL);
	w->server = fork();
	assert_true(w->server >= 0);
	if (w->server == 0) {
		(void)close(p[0]);
		exit(serve(w, p[1]));
	}
	(void)close(p[1]);
	assert_int_equal(read(p[0], &c, 1), 1);
	(void)close(p[0]);
	*state = w;
	return 0;
}

static int wait_exit(struct world *w)
{
	int status = -1;

	assert_int_equal(waitpid(w->server, &status, 0), w->server);
	w->server = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int tear_down(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *command = xasprintf("rm -rf %s", w->dir);
	int code = 0;

	if (w->server) {
		(void)kill(w->server, SIGTERM);
		code = wait_exit(w);
	}
	if (system(command))
		code = 1;
	free(w);
	return code;
}

/* --- the client's side --- */

static struct js *call(struct world *w, const char *method, const char *path, const char *body, long want)
{
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_CTL_CLIENT struct ctl_client *c = ctl_client_open(&w->dirs, &e);
	CLEANUP_JS struct js *b = body ? js_parse(body, strlen(body), NULL) : NULL;
	long status = 0;
	struct js *reply;

	if (!c)
		fail_msg("open: %s", err_msg(e));
	reply = ctl_client_call(c, method, path, b, &status, &e);
	if (!reply)
		fail_msg("%s: %s", path, err_msg(e));
	if (status != want) {
		CLEANUP_FREE char *text = js_print(reply);

		fail_msg("%s %s: %ld, wanted %ld: %s", method, path, status, want, text);
	}
	return reply;
}

static int64_t control_number(struct world *w, const char *key)
{
	CLEANUP_JS struct js *j = call(w, "GET", "/v1/status", NULL, 200);

	return js_int_or(js_get(j, "control"), key, -1);
}

static void wait_number(struct world *w, const char *key, int64_t want)
{
	int64_t until = clk_mono_ms() + HANG_MS, got;

	while ((got = control_number(w, key)) != want) {
		if (clk_mono_ms() > until)
			fail_msg("%s is %lld, not %lld", key, (long long)got, (long long)want);
		(void)usleep(10000);
	}
}

static void kill_notes(struct world *w, const char *signal)
{
	CLEANUP_FREE char *body = xasprintf("{\"signal\":\"%s\"}", signal);

	js_free(call(w, "POST", "/v1/apps/notes/kill", body, 200));
}

static int dial(const struct world *w)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct timeval limit = {.tv_sec = HANG_MS / 1000};

	(void)snprintf(sa.sun_path, sizeof sa.sun_path, "%s/control.sock", w->dir);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) ||
	    connect(fd, (struct sockaddr *)&sa, sizeof sa))
		return -1;
	return fd;
}

static int dial_and_send(const struct world *w, const char *text)
{
	int fd = dial(w);

	assert_true(fd >= 0);
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
	return fd;
}

/* Everything until the server closes, or until `stop` was seen. */
static char *read_until(int fd, const char *stop)
{
	struct strbuf b = STRBUF_INIT;
	char buf[4096];
	ssize_t n;

	strbuf_adds(&b, "");
	while ((!stop || !strstr(b.p, stop)) && (n = recv(fd, buf, sizeof buf, 0)) > 0)
		strbuf_add(&b, buf, (size_t)n);
	return strbuf_take(&b);
}

static char *raw(const struct world *w, const char *text)
{
	int fd = dial_and_send(w, text);
	char *reply;

	(void)shutdown(fd, SHUT_WR);
	reply = read_until(fd, NULL);
	(void)close(fd);
	return reply;
}

/* --- tests --- */

static void test_plain(void **state)
{
	struct world *w = *state;
	CLEANUP_JS struct js *version = call(w, "GET", "/v1/version", NULL, 200);
	CLEANUP_JS struct js *status = call(w, "GET", "/v1/status", NULL, 200);
	CLEANUP_JS struct js *app = call(w, "GET", "/v1/apps/notes", NULL, 200);
	CLEANUP_JS struct js *none = call(w, "GET", "/v1/apps/nothing", NULL, 404);
	CLEANUP_JS struct js *path = call(w, "GET", "/v1/appz", NULL, 404);
	CLEANUP_JS struct js *reload = call(w, "POST", "/v1/reload", NULL, 200);
	CLEANUP_JS struct js *ports = call(w, "GET", "/v1/ports", NULL, 200);

	assert_int_equal(js_int_or(version, "protocol", 0), 1);
	assert_int_equal(js_int_or(version, "pid", 0), w->server);
	assert_non_null(js_str(version, "started"));
	assert_int_equal(js_len(js_get(status, "apps")), 1);
	assert_string_equal(js_str(app, "state"), "running");
	assert_int_equal(js_int_or(none, "code", 0), 4);
	assert_int_equal(js_int_or(path, "code", 0), 2);
	assert_int_equal(js_int_or(reload, "unchanged", 0), 2);
	assert_true(js_is_arr(ports));
}

static void test_socket_is_private(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *path = xasprintf("%s/control.sock", w->dir);
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void test_commands(void **state)
{
	struct world *w = *state;
	CLEANUP_JS struct js *now = call(w, "POST", "/v1/apps/notes/start", NULL, 200);
	CLEANUP_JS struct js *slow = call(w, "POST", "/v1/apps/slow/start", "{\"wait\":true}", 200);
	CLEANUP_JS struct js *dont = call(w, "POST", "/v1/apps/never/stop", "{\"wait\":false}", 200);
	CLEANUP_JS struct js *bad = call(w, "POST", "/v1/apps/bad/restart", NULL, 200);
	CLEANUP_JS struct js *all = call(w, "POST", "/v1/apps/*/stop", NULL, 200);
	CLEANUP_JS struct js *none = call(w, "POST", "/v1/apps/nothing/start", NULL, 404);
	CLEANUP_JS struct js *dead = call(w, "POST", "/v1/apps/slow/kill", "{\"signal\":\"TERM\"}", 409);

	assert_string_equal(js_str(now, "message"), "verb 0 of notes");
	assert_string_equal(js_str(slow, "message"), "slow is running");
	assert_int_equal(js_int_or(dont, "code", -1), 0);
	assert_int_equal(js_int_or(bad, "code", -1), 1);
	assert_string_equal(js_str(all, "message"), "verb 1 of all");
	assert_int_equal(js_int_or(none, "code", -1), 4);
	assert_int_equal(js_int_or(dead, "code", -1), 3);
}

static int collect_line(void *data, const char *text, size_t len)
{
	struct strv *l = data;

	strv_take(l, xstrndup(text, len));
	return strv_has(l, "stop here");
}

static void test_old_lines(void **state)
{
	struct world *w = *state;
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_CTL_CLIENT struct ctl_client *c = ctl_client_open(&w->dirs, &e);
	CLEANUP_STRV struct strv logs = {0}, events = {0}, none = {0};
	long status = 0;

	kill_notes(w, "USR1");
	kill_notes(w, "USR2");
	assert_int_equal(
		ctl_client_stream(c, "/v1/apps/notes/logs?lines=2", collect_line, &logs, &status, &e), 0);
	assert_int_equal(status, 200);
	assert_int_equal(logs.n, 2);
	assert_non_null(strstr(logs.v[0], "a line"));
	assert_int_equal(ctl_client_stream(c, "/v1/events?app=notes", collect_line, &events, &status, &e), 0);
	assert_int_equal(events.n, 1);
	assert_non_null(strstr(events.v[0], "\"app\":\"notes\""));
	assert_int_equal(ctl_client_stream(c, "/v1/apps/nothing/logs", collect_line, &none, &status, &e), -1);
	assert_int_equal(status, 404);
	assert_non_null(strstr(err_msg(e), "no app"));
	assert_int_equal(none.n, 0);
}

static void test_many_old_lines_come_from_the_file(void **state)
{
	struct world *w = *state;
	CLEANUP_CTL_CLIENT struct ctl_client *c = ctl_client_open(&w->dirs, NULL);
	CLEANUP_STRV struct strv logs = {0};
	long status = 0;

	for (int i = 0; i < 100; i++)
		kill_notes(w, "USR1");
	assert_int_equal(
		ctl_client_stream(c, "/v1/apps/notes/logs?lines=250", collect_line, &logs, &status, NULL), 0);
	assert_int_equal(logs.n, 250);
	for (size_t i = 0; i < logs.n; i++)
		assert_true(str_ends(logs.v[i], "a line"));
}

static void test_follow_until_the_log_goes(void **state)
{
	struct world *w = *state;
	int fd = dial_and_send(w, "GET /v1/apps/notes/logs?follow=1&lines=0 HTTP/1.1\r\nHost: x\r\n\r\n");
	CLEANUP_FREE char *head = read_until(fd, "\r\n\r\n"), *some = NULL, *rest = NULL;

	assert_non_null(strstr(head, "200 OK"));
	assert_int_equal(control_number(w, "streams"), 1);
	kill_notes(w, "USR1");
	some = read_until(fd, "a line");
	assert_non_null(strstr(some, "a line"));
	kill_notes(w, "HUP");
	rest = read_until(fd, "0\r\n\r\n"); /* the last chunk: the answer ends in order */
	assert_non_null(strstr(rest, "0\r\n\r\n"));
	(void)close(fd);
	wait_number(w, "streams", 0);
	js_free(call(w, "GET", "/v1/apps/notes/logs", NULL, 404));
}

static void test_server_sent_events(void **state)
{
	struct world *w = *state;
	int fd = dial_and_send(
		w,
		"GET /v1/events?follow=1&app=notes HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n");
	CLEANUP_FREE char *head = read_until(fd, "\r\n\r\n"), *text = NULL;

	assert_non_null(strstr(head, "text/event-stream"));
	kill_notes(w, "USR2");
	text = read_until(fd, "}\n\n");
	assert_non_null(strstr(text, "data: {\"seq\""));
	assert_null(strstr(text, "other"));
	(void)close(fd);
}

/* A client that follows and does not read is cut; the others go on. */
static void slow_reader(struct world *w, const char *request, const char *flood)
{
	int fd = dial_and_send(w, request);
	CLEANUP_FREE char *head = read_until(fd, "\r\n\r\n"), *rest = NULL;

	wait_number(w, "streams", 1);
	kill_notes(w, flood);
	wait_number(w, "streams_cut", 1);
	wait_number(w, "streams", 0);
	rest = read_until(fd, NULL); /* what was on its way, and then the end */
	assert_true(strlen(rest) < 4u << 20);
	(void)close(fd);
	js_free(call(w, "GET", "/v1/status", NULL, 200));
}

static void test_slow_reader_of_logs(void **state)
{
	slow_reader(*state, "GET /v1/apps/notes/logs?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n", "URG");
}

static void test_slow_reader_of_events(void **state)
{
	slow_reader(*state, "GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n", "PIPE");
}

/* Who leaves while the answer is pending gives the place back at once, not at the next line. */
static void test_clients_that_leave(void **state)
{
	struct world *w = *state;
	int fds[60];

	for (size_t i = 0; i < ELEMENTS(fds); i++)
		fds[i] = dial_and_send(w, i % 2 ? "GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n"
						: "POST /v1/apps/never/start HTTP/1.1\r\nHost: x\r\n\r\n");
	wait_number(w, "connections", 61); /* and the one that asks */
	for (size_t i = 0; i < ELEMENTS(fds); i++)
		(void)close(fds[i]);
	wait_number(w, "connections", 1);
	assert_int_equal(control_number(w, "streams"), 0);
}

/* Bytes that come while an answer is pending end the connection: the server has nowhere to put them. */
static void test_client_that_speaks_out_of_turn(void **state)
{
	struct world *w = *state;
	int fd = dial_and_send(w, "GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n");
	CLEANUP_FREE char *head = read_until(fd, "\r\n\r\n"), *rest = NULL;

	wait_number(w, "streams", 1);
	assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), 1);
	rest = read_until(fd, NULL);
	(void)close(fd);
	wait_number(w, "streams", 0);
}

/* After the places were all taken: the server has to notice first that they are free again. */
static void wait_answer(struct world *w)
{
	int64_t until = clk_mono_ms() + HANG_MS;
	struct ctl_client *c;

	while (!(c = ctl_client_open(&w->dirs, NULL)) && clk_mono_ms() < until)
		(void)usleep(10000);
	assert_non_null(c);
	ctl_client_close(c);
}

static void test_limits(void **state)
{
	struct world *w = *state;
	int fds[64];
	CLEANUP_FREE char *text = NULL, *over = NULL;

	for (size_t i = 0; i < 48; i++)
		fds[i] = dial_and_send(w, "GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n");
	wait_number(w, "streams", 48);
	text = raw(w, "GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n");
	assert_non_null(strstr(text, "503"));
	assert_non_null(strstr(text, "follow"));
	for (size_t i = 48; i < 64; i++)
		fds[i] = dial_and_send(w, "GET /v1/vers"); /* half a request */
	{
		int fd = dial(w);

		assert_true(fd >= 0);
		over = read_until(fd, NULL);
		(void)close(fd);
	}
	assert_non_null(strstr(over, "too many connections"));
	for (size_t i = 0; i < 64; i++)
		(void)close(fds[i]);
	wait_answer(w);
	wait_number(w, "connections", 1);
}

static void test_malformed(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *big_header = xcalloc(1, 40000), *filler = xcalloc(1, 30001),
			  *long_target = xcalloc(1, 4001);
	CLEANUP_FREE char *a = raw(w, "rubbish\r\n\r\n"), *b = NULL, *c = NULL, *d = NULL, *request = NULL;

	assert_null(strstr(a, "200 OK"));
	memset(filler, 'x', 30000);
	(void)snprintf(big_header, 40000, "GET /v1/version HTTP/1.1\r\nHost: x\r\nX-Big: %s\r\n\r\n", filler);
	b = raw(w, big_header);
	assert_null(strstr(b, "200 OK"));
	c = raw(w, "POST /v1/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n");
	assert_non_null(strstr(c, "413"));
	memset(long_target, 'a', 4000);
	request = xasprintf("GET /v1/%s HTTP/1.1\r\nHost: x\r\n\r\n", long_target);
	d = raw(w, request);
	assert_non_null(strstr(d, "413"));
	js_free(call(w, "GET", "/v1/version", NULL, 200));
}

static void test_endless_body(void **state)
{
	struct world *w = *state;
	int fd =
		dial_and_send(w, "POST /v1/reload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
	char chunk[4096 + 16];
	bool ended = false;

	(void)snprintf(chunk, sizeof chunk, "1000\r\n%04096d\r\n", 0);
	for (int i = 0; i < 1000 && !ended; i++)
		ended = send(fd, chunk, 4096 + 8, MSG_NOSIGNAL) < 0;
	assert_true(ended);
	(void)close(fd);
	wait_number(w, "connections", 1);
}

static void test_shutdown(void **state)
{
	struct world *w = *state;
	CLEANUP_JS struct js *reply = call(w, "POST", "/v1/shutdown", "{\"grace_ms\":1234}", 200);
	CLEANUP_FREE char *path = xasprintf("%s/control.sock", w->dir), *grace = NULL;
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FD int dir = open(w->dir, O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	assert_int_equal(js_int_or(reply, "code", -1), 0);
	assert_int_equal(wait_exit(w), 0);
	assert_int_equal(file_read(dir, "grace", 100, &grace, &(size_t){0}, NULL), 0);
	assert_string_equal(grace, "1234");
	assert_int_equal(lstat(path, &st), -1);
	assert_null(ctl_client_open(&w->dirs, &e));
	assert_int_equal(err_code(e), ENOENT);
	assert_non_null(strstr(err_msg(e), "sbxsv up"));
}

/* The server ends in order while answers are pending. */
static void test_end_with_pending_answers(void **state)
{
	struct world *w = *state;
	int fds[20];

	for (size_t i = 0; i < ELEMENTS(fds); i++)
		fds[i] = dial_and_send(w, i % 2 ? "GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n"
						: "POST /v1/apps/never/start HTTP/1.1\r\nHost: x\r\n\r\n");
	wait_number(w, "connections", 21);
	assert_int_equal(kill(w->server, SIGTERM), 0);
	assert_int_equal(wait_exit(w), 0);
	for (size_t i = 0; i < ELEMENTS(fds); i++) {
		CLEANUP_FREE char *rest = read_until(fds[i], NULL);

		(void)close(fds[i]);
	}
}

/* Voluntary context switches: how often it went to sleep again, so how often it was woken. */
static long wakeups(const struct world *w)
{
	CLEANUP_FREE char *path = xasprintf("/proc/%d/status", (int)w->server);
	char text[8192], *at;

	assert_true(file_read_proc(path, text, sizeof text) > 0);
	at = strstr(text, "\nvoluntary_ctxt_switches:");
	assert_non_null(at);
	return strtol(strchr(at, ':') + 1, NULL, 10);
}

/* Clock ticks of user and system time, fields 14 and 15 of proc(5): a loop that spins never sleeps. */
static long ticks(const struct world *w)
{
	CLEANUP_FREE char *path = xasprintf("/proc/%d/stat", (int)w->server);
	char text[4096], *at;
	long user = 0, system = 0;

	assert_true(file_read_proc(path, text, sizeof text) > 0);
	at = strrchr(text, ')');
	assert_non_null(at);
	assert_int_equal(sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &system),
			 2);
	return user + system;
}

static void assert_asleep(const struct world *w)
{
	long woken, busy;

	(void)usleep(100000);
	woken = wakeups(w);
	busy = ticks(w);
	(void)usleep(500000);
	assert_in_range(wakeups(w) - woken, 0, 3);
	assert_in_range(ticks(w) - busy, 0, 3);
}

/* A server that has nothing to do sleeps: without clients, with one that follows, and with one that says
 * nothing. */
static void test_idle_means_asleep(void **state)
{
	struct world *w = *state;
	int fds[2];

	js_free(call(w, "GET", "/v1/version", NULL, 200));
	wait_number(w, "connections", 1);
	assert_asleep(w);
	fds[0] = dial_and_send(w, "GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n");
	fds[1] = dial(w);
	wait_number(w, "streams", 1);
	assert_asleep(w);
	(void)close(fds[0]);
	(void)close(fds[1]);
}

/* Does a process made by `unshare_flags` (and uid) get an answer? It must not. */
static bool is_answered(struct world *w, int flags, uid_t uid)
{
	int status = -1;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		/* a new pid namespace is entered by the next child only */
		if ((flags && unshare(flags)) || (uid && setresuid(uid, uid, uid)))
			_exit(2);
		if ((flags & CLONE_NEWPID) && (pid = fork()) > 0) {
			(void)waitpid(pid, &status, 0);
			_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 3);
		}
		int fd = dial(w);
		char c;

		if (fd < 0)
			_exit(4);
		(void)send(fd, "GET /v1/version HTTP/1.1\r\nHost: x\r\n\r\n", 38, MSG_NOSIGNAL);
		_exit(recv(fd, &c, 1, 0) == 1 ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 2)
		skip(); /* no user namespaces here */
	assert_in_range(WEXITSTATUS(status), 0, 1);
	return WEXITSTATUS(status) == 0;
}

static void test_peer_in_this_namespace(void **state)
{
	assert_true(is_answered(*state, 0, 0));
	assert_int_equal(control_number(*state, "refused"), 0);
}

static void test_peer_in_another_user_namespace(void **state)
{
	assert_false(is_answered(*state, CLONE_NEWUSER, 0));
	assert_int_equal(control_number(*state, "refused"), 1);
}

static void test_peer_in_another_pid_namespace(void **state)
{
	/* as root without a user namespace: only the pid namespace differs */
	assert_false(is_answered(*state, geteuid() ? CLONE_NEWUSER | CLONE_NEWPID : CLONE_NEWPID, 0));
}

static void test_peer_of_another_uid(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *path = xasprintf("%s/control.sock", w->dir);

	if (geteuid())
		skip();
	/* as if somebody had opened the door: the check does not rely on it */
	assert_int_equal(chmod(w->dir, 0755), 0);
	assert_int_equal(chmod(path, 0666), 0);
	assert_false(is_answered(w, 0, 65534));
	assert_int_equal(chmod(w->dir, 0700), 0);
}

static void try_bind(const struct unit_dirs *d, const char *words)
{
	CLEANUP_ERR struct err *e = NULL;
	struct loop *l = loop_create(0);
	struct ctl *c = ctl_create(l, NULL, d, NULL, NULL, &e);

	if (words) {
		assert_null(c);
		if (!strstr(err_msg(e), words))
			fail_msg("\"%s\" lacks \"%s\"", err_msg(e), words);
	} else {
		assert_non_null(c);
	}
	ctl_destroy(c);
	loop_destroy(l);
}

static void test_bind(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *long_dir = xasprintf("%s/%0100d", w->dir, 0), *sub = xasprintf("%s/sub", w->dir);
	CLEANUP_FREE char *path = xasprintf("%s/control.sock", sub);
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct unit_dirs d = {.runtime = long_dir};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	FILE *f;

	try_bind(&d, "--runtime");
	d.runtime = sub;
	try_bind(&d, NULL);
	assert_int_equal(access(path, F_OK), -1); /* ours is removed at the end */
	(void)snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
	(void)close(fd); /* a stale socket: nobody listens */
	try_bind(&d, NULL);
	f = fopen(path, "we");
	assert_non_null(f);
	(void)fclose(f);
	try_bind(&d, "is no socket");
	assert_int_equal(access(path, F_OK), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_plain),
		T(test_socket_is_private),
		T(test_commands),
		T(test_old_lines),
		T(test_many_old_lines_come_from_the_file),
		T(test_follow_until_the_log_goes),
		T(test_server_sent_events),
		T(test_slow_reader_of_logs),
		T(test_slow_reader_of_events),
		T(test_clients_that_leave),
		T(test_client_that_speaks_out_of_turn),
		T(test_limits),
		T(test_malformed),
		T(test_endless_body),
		T(test_shutdown),
		T(test_end_with_pending_answers),
		T(test_idle_means_asleep),
		T(test_peer_in_this_namespace),
		T(test_peer_in_another_user_namespace),
		T(test_peer_in_another_pid_namespace),
		T(test_peer_of_another_uid),
		T(test_bind),
	};

	(void)alarm(240); /* a hang guard for the whole program */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
