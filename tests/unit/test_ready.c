/* ready: sock_diag answers that change, a real HTTP server of every bad kind. */
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "monitor/ready.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <cmocka.h>

struct world {
	struct loop *loop;
	unsigned asked, yes_after; /* listens: yes after so many questions */
	uint16_t missing;          /* this port never listens */
	uint16_t port;             /* of the HTTP server */
	bool refuse;               /* connect callback gives -1 */
	struct ready *ready;
	char *what;
	bool stop_inside;
};

static int listens(void *data, uint16_t port)
{
	struct world *w = data;

	return port != w->missing && ++w->asked > w->yes_after;
}

static int connect_to(void *data, uint16_t port)
{
	struct world *w = data;
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_port = htons(w->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_int_equal(port, 4810);
	if (w->refuse || (connect(fd, (struct sockaddr *)&a, sizeof a) < 0 && errno != EINPROGRESS)) {
		(void)close(fd);
		return -1;
	}
	return fd;
}

static void on_ready(void *data, const char *what)
{
	struct world *w = data;

	assert_null(w->what);
	w->what = xstrdup(what);
	if (w->stop_inside) {
		ready_stop(w->ready);
		w->ready = NULL;
	}
	loop_break(w->loop);
}

static int setup(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);

	w->loop = loop_create(0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	ready_stop(w->ready);
	loop_destroy(w->loop);
	free(w->what);
	free(w);
	return 0;
}

static void start(struct world *w, const uint16_t *ports, size_t n, const char *path, bool ask)
{
	struct ready_config c = {.ports = ports,
				 .n_ports = n,
				 .http_path = path,
				 .listens = ask ? listens : NULL,
				 .connect = connect_to,
				 .data = w};

	w->ready = ready_start(w->loop, &c, on_ready, w);
}

static void break_loop(struct loop_timer *t)
{
	loop_break(t->loop);
}

static void run_for(struct world *w, int64_t ms)
{
	struct loop_timer t;

	loop_timer_init(w->loop, &t, break_loop, NULL);
	loop_timer_start(&t, ms);
	loop_run(w->loop);
	loop_timer_stop(&t);
}

static void test_listen_waits_for_every_port(void **state)
{
	struct world *w = *state;

	w->missing = 4811;
	start(w, (const uint16_t[]){4810, 4811}, 2, NULL, true);
	run_for(w, 150);
	assert_null(w->what);
	assert_string_equal(ready_waiting_for(w->ready), "nothing listens on 4811");
	assert_in_range(w->asked, 4, 60); /* the pauses grow */
	w->missing = 0;
	run_for(w, 5000);
	assert_non_null(w->what);
	assert_true(str_starts(w->what, "listening on 4810, 4811 after "));
	w->asked = 0;
	run_for(w, 300); /* never asked afterwards */
	assert_int_equal(w->asked, 0);
}

static void test_stop_inside_the_callback(void **state)
{
	struct world *w = *state;

	w->stop_inside = true;
	start(w, (const uint16_t[]){4810}, 1, NULL, true);
	run_for(w, 5000);
	assert_non_null(w->what);
}

static void test_stop_while_waiting(void **state)
{
	struct world *w = *state;

	w->missing = 4810;
	start(w, (const uint16_t[]){4810}, 1, NULL, true);
	run_for(w, 20);
	ready_stop(w->ready);
	w->ready = NULL;
	w->missing = 0;
	run_for(w, 300);
	assert_null(w->what);
}

/* A server that gives the answers in turn, one a connection; the last one for ever. */
static pid_t serve(struct world *w, const char *const *answers)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	pid_t pid;

	assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(l, 16), 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&a, &len), 0);
	w->port = ntohs(a.sin_port);
	pid = fork();
	if (pid == 0) {
		(void)signal(SIGPIPE, SIG_IGN);
		(void)alarm(60);
		for (;;) {
			int s = accept(l, NULL, NULL);
			char head[1024];
			ssize_t n = read(s, head, sizeof head - 1);
			const char *p = *answers;

			head[n > 0 ? n : 0] = 0;
			if (!str_starts(head, "GET /health HTTP/1.1\r\nHost: localhost:4810\r\n"))
				_exit(1);
			if (strcmp(p, "drip") == 0) /* byte by byte */
				for (p = "HTTP/1.1 204 No Content\r\n\r\n"; *p; p++)
					(void)!write(s, p, 1);
			else
				(void)!write(s, p, strlen(p));
			(void)shutdown(s, SHUT_WR);
			(void)close(s);
			if (answers[1])
				answers++;
		}
	}
	(void)close(l);
	return pid;
}

static void end(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_http_waits_out_bad_answers(void **state)
{
	struct world *w = *state;
	static const char *const answers[] = {
		"",           "HTTP/1.1 503 Not yet\r\n\r\n", "SSH-2.0-OpenSSH\r\n",
		"HTTP/1.1 2", "HTTP/1.1 500 x\r\n\r\n",       "HTTP/1.0 404 Not Found\r\n\r\n",
		NULL};
	pid_t pid = serve(w, answers);

	start(w, (const uint16_t[]){4810}, 1, "/health", false);
	run_for(w, 10000);
	assert_non_null(w->what);
	assert_true(str_starts(w->what, "GET /health on 4810 answered 404 after "));
	end(pid);
}

static void test_http_says_what_it_waits_for(void **state)
{
	struct world *w = *state;
	static const char *const answers[] = {"HTTP/1.1 503 Not yet\r\n\r\n", NULL};
	pid_t pid = serve(w, answers);

	start(w, (const uint16_t[]){4810}, 1, "/health", false);
	run_for(w, 300);
	assert_null(w->what);
	assert_string_equal(ready_waiting_for(w->ready), "GET /health on 4810 answered 503");
	end(pid);
	w->refuse = true;
	run_for(w, 600);
	assert_string_equal(ready_waiting_for(w->ready), "nothing answers on 4810");
}

static void test_http_answer_in_single_bytes(void **state)
{
	struct world *w = *state;
	static const char *const answers[] = {"drip", NULL};
	pid_t pid = serve(w, answers);

	start(w, (const uint16_t[]){4810}, 1, "/health", true);
	run_for(w, 10000);
	assert_non_null(w->what);
	assert_true(str_starts(w->what, "GET /health on 4810 answered 204 after "));
	end(pid);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_listen_waits_for_every_port), T(test_stop_inside_the_callback),
		T(test_stop_while_waiting),          T(test_http_waits_out_bad_answers),
		T(test_http_says_what_it_waits_for), T(test_http_answer_in_single_bytes),
	};

	return cmocka_run_group_tests_name("ready", tests, NULL, NULL);
}
