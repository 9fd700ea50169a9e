/* base: strings, strict parsers, files, fds, JSON, the wire and the loop. */
#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/parse.h"
#include "base/str.h"
#include "base/wire.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <cmocka.h>

static void test_parse_numbers_are_strict(void **state)
{
	uint64_t v = 7;
	uint16_t port = 7;

	(void)state;
	assert_int_equal(parse_u64("0", 10, &v), 0);
	assert_int_equal(v, 0);
	assert_int_equal(parse_u64("18446744073709551615", UINT64_MAX, &v), 0);
	assert_true(v == UINT64_MAX);
	for (const char *const *s = (const char *const[]){"", "+1", "-1", " 1", "1 ", "0x10", "1e3",
							  "18446744073709551616", NULL};
	     *s; s++)
		assert_int_equal(parse_u64(*s, UINT64_MAX, &v), -1);
	assert_int_equal(parse_u64("11", 10, &v), -1);
	assert_true(v == UINT64_MAX); /* untouched on failure */
	assert_int_equal(parse_port("65535", &port), 0);
	assert_int_equal(port, 65535);
	for (const char *const *s = (const char *const[]){"0", "080", "65536", "-1", "80x", "", NULL}; *s;
	     s++)
		assert_int_equal(parse_port(*s, &port), -1);
}

static void test_parse_duration_and_size(void **state)
{
	static const struct {
		const char *s;
		int64_t ms;
	} ok[] = {{"300ms", 300},  {"2s", 2000}, {"2", 2000},      {"0.3", 300},  {"1min 30s", 90000},
		  {"1h", 3600000}, {"0", 0},     {"1d", 86400000}, {"0.0005s", 1}};
	int64_t ms = -5;
	uint64_t size = 5;

	(void)state;
	for (size_t i = 0; i < ELEMENTS(ok); i++) {
		assert_int_equal(parse_duration_ms(ok[i].s, &ms), 0);
		assert_true(ms == ok[i].ms);
	}
	for (const char *const *s =
		     (const char *const[]){"", "-1s", "1 fortnight", "s", "1.s", "99999999999d", "1s!", NULL};
	     *s; s++)
		assert_int_equal(parse_duration_ms(*s, &ms), -1);
	assert_int_equal(parse_size("10M", &size), 0);
	assert_true(size == 10u << 20);
	for (const char *const *s =
		     (const char *const[]){"", "M", "10MB", "-1", "1.5G", "99999999999999T", NULL};
	     *s; s++)
		assert_int_equal(parse_size(*s, &size), -1);
}

static void test_parse_signals_and_bools(void **state)
{
	int sig = 0;
	bool b = false;

	(void)state;
	assert_int_equal(parse_signal("SIGTERM", &sig), 0);
	assert_int_equal(sig, SIGTERM);
	assert_int_equal(parse_signal("hup", &sig), 0);
	assert_int_equal(sig, SIGHUP);
	assert_int_equal(parse_signal("9", &sig), 0);
	assert_int_equal(sig, SIGKILL);
	assert_int_equal(parse_signal("0", &sig), -1);
	assert_int_equal(parse_signal("SIGNOPE", &sig), -1);
	assert_string_equal(signal_name(SIGKILL), "SIGKILL");
	assert_int_equal(parse_bool("Yes", &b), 0);
	assert_true(b);
	assert_int_equal(parse_bool("maybe", &b), -1);
}

static void test_nearest_word(void **state)
{
	static const char *const words[] = {"Exec", "Environment", "WorkingDirectory", NULL};

	(void)state;
	assert_string_equal(str_nearest("WorkingDirectry", words), "WorkingDirectory");
	assert_string_equal(str_nearest("exec", words), "Exec");
	assert_null(str_nearest("Zebra", words));
	assert_string_equal(str_nearest("work", words), "WorkingDirectory"); /* half-typed */
	assert_null(str_nearest("E", words));
	assert_null(str_nearest("foo", (const char *const[]){"op", "vault", NULL}));
	assert_string_equal(str_nearest("db", (const char *const[]){"dx", NULL}), "dx");
}

static void test_escape_keeps_text_and_defuses_control_bytes(void **state)
{
	static const char in[] = "a\x1b[2J\n\x7f\xc3\xa9\xff\xe2\x80\xae\xc2\x9b";
	CLEANUP_FREE char *out = str_escape(in, sizeof in - 1);

	(void)state;
	assert_string_equal(out, "a\\x1b[2J\\x0a\\x7f\xc3\xa9\\xff\\xe2\\x80\\xae\\xc2\\x9b");
}

static void test_paths(void **state)
{
	CLEANUP_FREE char *a = path_join("/home/u", "../x/./y//z"), *b = path_join("/a", "/../.."),
			  *d = path_dirname("/a");

	(void)state;
	assert_string_equal(a, "/home/x/y/z");
	assert_string_equal(b, "/");
	assert_string_equal(d, "/");
	assert_true(path_is_below("/a/b", "/a"));
	assert_true(path_is_below("/a", "/a"));
	assert_false(path_is_below("/ab", "/a"));
	assert_true(path_is_below("/ab", "/"));
}

static char *temp_dir(char *buf)
{
	strcpy(buf, "/tmp/sbxsv-base-XXXXXX");
	assert_non_null(mkdtemp(buf));
	return buf;
}

static void test_file_write_atomic_and_read(void **state)
{
	char dir[64];
	CLEANUP_FD int d = open(temp_dir(dir), O_RDONLY | O_DIRECTORY);
	CLEANUP_FREE char *text = NULL;
	CLEANUP_ERR struct err *e = NULL;
	struct stat st;
	size_t len;

	(void)state;
	assert_int_equal(file_write_atomic(d, "f", "one", 3, 0600, &e), 0);
	assert_int_equal(file_write_atomic(d, "f", "two!", 4, 0600, &e), 0);
	assert_int_equal(file_read(d, "f", 100, &text, &len, &e), 0);
	assert_string_equal(text, "two!");
	assert_int_equal(fstatat(d, "f", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	CLEANUP_FREE char *small = NULL;
	assert_int_equal(file_read(d, "f", 3, &small, NULL, &e), -1);
	assert_int_equal(err_code(e), EFBIG);
	assert_int_equal(file_read(d, ".", 3, &small, NULL, &e), -1);
	assert_int_equal(symlinkat("f", d, "link"), 0);
	assert_int_equal(file_open_nofollow(d, "link", O_RDONLY, 0), -1);
	assert_int_equal(errno, ELOOP);
	unlinkat(d, "link", 0);
	unlinkat(d, "f", 0);
	rmdir(dir);
}

static void test_private_dir_refuses_symlink(void **state)
{
	char dir[64], sub[80], link[80];
	CLEANUP_ERR struct err *e = NULL;
	struct stat st;
	int fd;

	(void)state;
	temp_dir(dir);
	snprintf(sub, sizeof sub, "%s/a", dir);
	snprintf(link, sizeof link, "%s/l", dir);
	fd = file_private_dir(sub, &e);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	close(fd);
	assert_int_equal(symlink(sub, link), 0);
	assert_int_equal(file_private_dir(link, &e), -1);
	assert_non_null(strstr(err_msg(e), "not a symlink"));
	unlink(link);
	rmdir(sub);
	rmdir(dir);
}

static void test_json_is_bounded_and_exact(void **state)
{
	CLEANUP_ERR struct err *e = NULL;
	static const char text_in[] = "{\"a\":1,\"b\":\"x\",\"c\":1.5,\"d\":[1,2]}";
	CLEANUP_JS struct js *j = js_parse(text_in, sizeof text_in - 1, &e);
	char deep[100];
	int64_t v = 9;

	(void)state;
	assert_non_null(j);
	assert_int_equal(js_int(j, "a", &v), 0);
	assert_int_equal(v, 1);
	assert_int_equal(js_int(j, "c", &v), -1);
	assert_string_equal(js_str(j, "b"), "x");
	assert_null(js_str(j, "a"));
	assert_int_equal(js_len(js_get(j, "d")), 2);
	assert_null(js_parse("{} x", 4, &e));
	assert_null(js_parse("{\"a\":1", 6, &e));
	assert_null(js_parse("\"a\0b\"", 5, &e));
	memset(deep, '[', sizeof deep);
	assert_null(js_parse(deep, sizeof deep, &e));
	CLEANUP_JS struct js *o = js_obj();
	js_add_str(o, "t", "a\xff");
	CLEANUP_FREE char *text = js_print(o);
	assert_string_equal(text, "{\"t\":\"a\xef\xbf\xbd\"}");
}

struct wire_seen {
	struct loop *loop;
	int messages, fds, closed, expect; /* the loop ends at `expect` messages */
	int64_t sum;
};

static void on_message(void *data, const struct js *msg, int *fds, size_t n)
{
	struct wire_seen *s = data;

	(void)fds;
	s->messages++;
	s->fds += (int)n;
	s->sum += js_int_or(msg, "i", 0);
	if (s->messages == s->expect)
		loop_break(s->loop);
}

static void on_closed(void *data, const char *why)
{
	struct wire_seen *s = data;

	(void)why;
	s->closed++;
	loop_break(s->loop);
}

static void test_wire_queues_and_passes_fds(void **state)
{
	struct loop *l = loop_create(0);
	struct wire_seen a = {.loop = l}, b = {.loop = l};
	int sp[2], fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct wire *wa, *wb;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sp), 0);
	wa = wire_create(l, sp[0], on_message, on_closed, &a);
	wb = wire_create(l, sp[1], on_message, on_closed, &b);
	for (int i = 0; i < 2000; i++) { /* far more than the socket takes at once */
		struct js *m = js_obj();

		js_add_int(m, "i", i);
		assert_int_equal(wire_send(wa, m, &fd, i % 10 == 0), 0);
	}
	CLEANUP_FREE char *big = xmalloc(WIRE_MAX_BYTES + 1);
	memset(big, 'x', WIRE_MAX_BYTES);
	big[WIRE_MAX_BYTES] = 0;
	struct js *m = js_obj();
	js_add_str(m, "big", big);
	assert_int_equal(wire_send(wa, m, &fd, 1), -1);
	assert_int_equal(errno, EMSGSIZE);
	b.expect = 2000;
	loop_run(l);
	assert_int_equal(b.messages, 2000);
	assert_int_equal(b.fds, 200);
	assert_true(b.sum == 1999 * 2000 / 2);
	wire_destroy(wa);
	loop_run(l);
	assert_int_equal(b.closed, 1);
	wire_destroy(wb);
	close(fd);
	loop_destroy(l);
}

/* Larger than a socket takes: whole at an end that takes such messages, nothing at one that does not. */
static void test_wire_large_messages(void **state)
{
	struct loop *l = loop_create(0);
	struct wire_seen a = {.loop = l, .expect = 1}, b = {.loop = l, .expect = 3};
	CLEANUP_FREE char *big = xmalloc(1 << 20), *huge = xmalloc(WIRE_LARGE_MAX);
	struct wire *wa, *wb;
	struct js *m;
	int sp[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sp), 0);
	wa = wire_create(l, sp[0], on_message, on_closed, &a);
	wb = wire_create(l, sp[1], on_message, on_closed, &b);
	wire_take_large(wb);
	memset(big, 'x', (1 << 20) - 1);
	big[(1 << 20) - 1] = 0;
	for (int i = 0; i < 3; i++) {
		m = js_obj();
		js_add_int(m, "i", 7);
		js_add_str(m, i == 1 ? "small" : "big", i == 1 ? "" : big);
		assert_int_equal(wire_send(wa, m, NULL, 0), 0);
	}
	loop_run(l);
	assert_int_equal(b.messages, 3);
	assert_int_equal(b.fds, 0);
	assert_true(b.sum == 21);
	m = js_obj();
	js_add_int(m, "i", 7);
	js_add_str(m, "big", big);
	assert_int_equal(wire_send(wb, m, NULL, 0), 0);
	loop_run(l);
	assert_int_equal(a.messages, 1);
	assert_int_equal(a.fds, 1); /* its caller closes it */
	assert_true(a.sum == 0);
	memset(huge, 'x', WIRE_LARGE_MAX - 1);
	huge[WIRE_LARGE_MAX - 1] = 0;
	m = js_obj();
	js_add_str(m, "huge", huge);
	assert_int_equal(wire_send(wa, m, NULL, 0), -1);
	assert_int_equal(errno, EMSGSIZE);
	/* what says that it is in a memfd, and is not, ends the channel */
	m = js_obj();
	js_add_int(m, "memfd", 12);
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(wire_send(wa, m, &null, 1), 0);
	loop_run(l);
	assert_int_equal(b.closed, 1);
	close(null);
	wire_destroy(wa);
	wire_destroy(wb);
	loop_destroy(l);
}

struct tick {
	struct loop_timer t;
	int64_t started, fired_after;
};

static void on_tick(struct loop_timer *t)
{
	struct tick *k = t->data;

	k->fired_after = clk_mono_ms() - k->started;
	loop_break(t->loop);
}

/* A process that was stopped for longer than a timer had left gives the timer its remaining time afterwards.
 */
static void test_loop_shifts_deadlines_over_a_stop(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	if (pid == 0) {
		struct loop *l = loop_create(LOOP_SHIFT_GAPS);
		struct tick early, late;

		loop_timer_init(l, &early.t, on_tick, &early);
		loop_timer_init(l, &late.t, on_tick, &late);
		early.started = late.started = clk_mono_ms();
		loop_timer_start(&early.t, 400);
		loop_timer_start(&late.t, 900);
		loop_run(l); /* early */
		loop_run(l); /* late: at least 400 ms after early, though both were overdue when we woke */
		_exit(early.fired_after > 1500 && late.fired_after - early.fired_after >= 400 ? 0 : 1);
	}
	usleep(100000);
	kill(pid, SIGSTOP);
	usleep(2500000);
	kill(pid, SIGCONT);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void on_deferred(struct loop_defer *d)
{
	++*(int *)d->data;
	loop_break(d->loop);
}

static void test_loop_timers_stop_and_defer_runs_once(void **state)
{
	struct loop *l = loop_create(0);
	struct tick a = {.started = clk_mono_ms()}, b = a;
	struct loop_defer d;
	int ran = 0;

	(void)state;
	loop_timer_init(l, &a.t, on_tick, &a);
	loop_timer_init(l, &b.t, on_tick, &b);
	loop_timer_start(&a.t, 10);
	loop_timer_start(&b.t, 50);
	loop_timer_stop(&a.t);
	assert_false(loop_timer_active(&a.t));
	loop_run(l);
	assert_true(b.fired_after >= 50);
	assert_int_equal(a.fired_after, 0);
	loop_defer_init(l, &d, on_deferred, &ran);
	loop_defer_start(&d);
	loop_defer_start(&d);
	loop_run(l);
	assert_int_equal(ran, 1);
	loop_destroy(l);
}

/* A running timer that is started again is due when it was started for last, later or sooner. */
static void test_loop_timers_are_put_off_and_brought_forward(void **state)
{
	struct loop *l = loop_create(0);
	struct tick off = {.started = clk_mono_ms()}, forward = off, stopped = off;

	(void)state;
	loop_timer_init(l, &off.t, on_tick, &off);
	loop_timer_init(l, &forward.t, on_tick, &forward);
	loop_timer_init(l, &stopped.t, on_tick, &stopped);
	loop_timer_start(&stopped.t, 10);
	loop_timer_start(&stopped.t, 40);
	loop_timer_stop(&stopped.t);
	loop_timer_start(&off.t, 20);
	loop_timer_start(&off.t, 120);
	loop_timer_start(&forward.t, 20);
	loop_timer_start(&forward.t, 100000);
	loop_timer_start(&forward.t, 60);
	loop_run(l);
	assert_true(forward.fired_after >= 60);
	assert_false(loop_timer_active(&forward.t));
	assert_int_equal(off.fired_after, 0);
	assert_true(loop_timer_active(&off.t));
	loop_run(l);
	assert_true(off.fired_after >= 120);
	assert_int_equal(stopped.fired_after, 0);
	loop_destroy(l);
}

static void test_pidfd_reap_gives_the_wait_status(void **state)
{
	int status = -1, pidfd;
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(42);
	pidfd = pidfd_open_pid(pid);
	assert_true(pidfd >= 0);
	while (!pidfd_is_dead(pidfd))
		usleep(1000);
	assert_int_equal(pidfd_reap(pidfd, &status), 1);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 42);
	assert_int_equal(pidfd_reap(pidfd, &status), -1);
	close(pidfd);
	pid = fork();
	if (pid == 0)
		for (;;)
			pause();
	pidfd = pidfd_open_pid(pid);
	assert_int_equal(pidfd_reap(pidfd, &status), 0);
	assert_int_equal(pidfd_signal(pidfd, SIGKILL), 0);
	while (!pidfd_is_dead(pidfd))
		usleep(1000);
	assert_int_equal(pidfd_reap(pidfd, &status), 1);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	close(pidfd);
}

static void test_fd_recv_refuses_more_fds_than_asked(void **state)
{
	int sp[2], fds[4], many[4], null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	char buf[16];
	size_t n = 99;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sp), 0);
	for (size_t i = 0; i < 4; i++)
		many[i] = null;
	assert_int_equal(fd_send(sp[0], "x", 1, many, 4), 0);
	assert_int_equal(fd_recv(sp[1], buf, sizeof buf, fds, 2, &n), -1);
	assert_int_equal(errno, EMSGSIZE);
	assert_int_equal(n, 99);
	assert_int_equal(fds[0], -1); /* closed again */
	close(sp[0]);
	close(sp[1]);
	close(null);
}

/* A machine with vm.memfd_noexec=2 gives no other memory. */
static void test_memory_is_no_program_and_can_be_sealed(void **state)
{
	CLEANUP_FD int fd = fd_memory("test");
	int seals;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, "x", 1), 0);
	seals = fcntl(fd, F_GET_SEALS);
	assert_true(seals == 0 || seals == 0x20); /* F_SEAL_EXEC, linux/fcntl.h, kernel 6.3 */
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	assert_int_equal(fd_write_all(fd, "x", 1), -1);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

static void test_errors_carry_context_and_success_leaves_them_alone(void **state)
{
	CLEANUP_ERR struct err *e = NULL;

	(void)state;
	assert_int_equal(err_sys(&e, ENOENT, "%s: cannot open", "x.app"), -1);
	assert_int_equal(err_wrap(&e, "notes"), -1);
	assert_string_equal(err_msg(e), "notes: x.app: cannot open: No such file or directory");
	assert_int_equal(err_code(e), ENOENT);
	assert_int_equal(err_set(NULL, 0, "nobody asked"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse_numbers_are_strict),
		cmocka_unit_test(test_parse_duration_and_size),
		cmocka_unit_test(test_parse_signals_and_bools),
		cmocka_unit_test(test_nearest_word),
		cmocka_unit_test(test_escape_keeps_text_and_defuses_control_bytes),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_file_write_atomic_and_read),
		cmocka_unit_test(test_private_dir_refuses_symlink),
		cmocka_unit_test(test_json_is_bounded_and_exact),
		cmocka_unit_test(test_wire_queues_and_passes_fds),
		cmocka_unit_test(test_wire_large_messages),
		cmocka_unit_test(test_loop_shifts_deadlines_over_a_stop),
		cmocka_unit_test(test_loop_timers_stop_and_defer_runs_once),
		cmocka_unit_test(test_loop_timers_are_put_off_and_brought_forward),
		cmocka_unit_test(test_pidfd_reap_gives_the_wait_status),
		cmocka_unit_test(test_fd_recv_refuses_more_fds_than_asked),
		cmocka_unit_test(test_memory_is_no_program_and_can_be_sealed),
		cmocka_unit_test(test_errors_carry_context_and_success_leaves_them_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
