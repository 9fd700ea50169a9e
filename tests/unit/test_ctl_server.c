/*
 * The control API's server and client against each other, over a real socket. What the tests wait for is
 * polled with a generous limit.
 */
#include "ctl_world.h"

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

	assert_non_null(strstr(head, "200 OK"));
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

	assert_non_null(strstr(head, "200 OK"));
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

		assert_null(strstr(rest, "\"code\":0")); /* nothing claims that it was done */
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
	};

	(void)alarm(240); /* a hang guard for the whole program */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
