/* proxyctl with the real sbxsv-proxy; only the making of sockets in another namespace is replaced (__wrap_).
 */
#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/str.h"
#include "net/net.h"
#include "net/proxyctl.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define PROGRAM  "./sbxsv-proxy"
#define GUARD_MS 20000

static struct loop *loop;
static struct proxyctl *ctl;
static struct strv events;
static int restarts, makes_fail;
static size_t made, most_fds;
static int (*until)(void);

static size_t open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	while (readdir(d))
		n++;
	(void)closedir(d);
	return n;
}

int __wrap_net_make_sockets(int userns_fd, int netns_fd, int *fds, size_t n, struct err **e);
int __wrap_net_make_sockets(int userns_fd, int netns_fd, int *fds, size_t n, struct err **e)
{
	int off = 0;

	assert_true(userns_fd >= 0 && netns_fd >= 0);
	if (makes_fail > 0) {
		makes_fail--;
		return err_set(e, 0, "not now");
	}
	made += n;
	most_fds = open_fds() > most_fds ? open_fds() : most_fds;
	for (size_t i = 0; i < n; i++) {
		fds[i] = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_true(fds[i] >= 0);
		assert_int_equal(setsockopt(fds[i], IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off), 0);
	}
	return 0;
}

static void on_event(void *data, const struct js *event)
{
	(void)data;
	strv_take(&events, js_print(event));
}

static void on_restarted(void *data, const char *why)
{
	(void)data;
	assert_non_null(strstr(why, "sbxsv-proxy"));
	restarts++;
}

static void on_tick(struct loop_timer *t)
{
	if (until())
		loop_break(loop);
	else
		loop_timer_start(t, 5);
}

/* Runs the loop until f() is true. */
static void run_until(int (*f)(void))
{
	int64_t end = clk_mono_ms() + GUARD_MS;
	struct loop_timer t;

	until = f;
	loop_timer_init(loop, &t, on_tick, NULL);
	loop_timer_start(&t, 0);
	loop_run(loop);
	loop_timer_stop(&t);
	assert_true(f() && clk_mono_ms() < end);
}

static int listener(uint16_t *ret_port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(fd, 256), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	*ret_port = ntohs(a.sin_port);
	return fd;
}

static int client(uint16_t port)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0); /* the kernel's queue takes it */
	assert_int_equal(fd_set_nonblock(fd, true), 0);
	return fd;
}

static int null_fd(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static int host_fd, app_fd, accepted_fd, egress_fd, client_fd;
static uint16_t host_port, app_port, egress_port;
static char received[4096];
static size_t received_len;

static int app_accepts(void)
{
	if (accepted_fd < 0)
		accepted_fd = accept4(app_fd, NULL, NULL, SOCK_CLOEXEC);
	return accepted_fd >= 0;
}

static void serve_one(void)
{
	int fd = client(host_port);

	accepted_fd = -1;
	run_until(app_accepts);
	(void)close(TAKE_FD(accepted_fd));
	(void)close(fd);
}

static void set_jail(bool egress)
{
	struct proxyctl_jail jail = {
		.userns_fd = null_fd(), .netns_fd = null_fd(), .egress_fd = egress ? dup(egress_fd) : -1};

	proxyctl_set_jail(ctl, "a", &jail);
}

static int setup(void **state)
{
	const struct proxyctl_hooks hooks = {.event = on_event, .restarted = on_restarted};
	struct err *e = NULL;

	(void)state;
	loop = loop_create(0);
	restarts = 0;
	strv_clear(&events);
	ctl = proxyctl_create(loop, PROGRAM, (uid_t)-1, (gid_t)-1, &hooks, &e);
	if (!ctl)
		fail_msg("%s", err_msg(e));
	host_fd = listener(&host_port);
	app_fd = listener(&app_port);
	egress_fd = listener(&egress_port);
	assert_int_equal(proxyctl_set_listeners(
				 ctl, "a", &(struct proxyctl_listen){host_fd, host_port, app_port}, 1, NULL),
			 0);
	set_jail(true);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	proxyctl_destroy(ctl);
	loop_destroy(loop);
	(void)close(host_fd);
	(void)close(app_fd);
	(void)close(egress_fd);
	strv_clear(&events);
	return 0;
}

static void test_serves(void **state)
{
	(void)state;
	proxyctl_gate(ctl, "a", PROXY_GATE_SERVE);
	for (int i = 0; i < 40; i++) /* several batches of the pool */
		serve_one();
	makes_fail = 2; /* no sockets for a moment: asked again */
	set_jail(true);
	serve_one();
	assert_int_equal(restarts, 0);
}

static pid_t old_pid;

static int is_new(void)
{
	return proxyctl_pid(ctl) && proxyctl_pid(ctl) != old_pid;
}

/* Before that it is a copy of us, with cmocka's signal handlers. */
static int is_executed(void)
{
	char path[64], comm[32] = "";

	(void)snprintf(path, sizeof path, "/proc/%d/comm", (int)proxyctl_pid(ctl));
	return file_read_proc(path, comm, sizeof comm) >= 0 && str_starts(comm, "sbxsv-proxy");
}

static void kill_proxy(int sig)
{
	run_until(is_executed);
	old_pid = proxyctl_pid(ctl);
	assert_int_equal(kill(old_pid, sig), 0);
	run_until(is_new);
}

static void test_killed(void **state)
{
	(void)state;
	proxyctl_gate(ctl, "a", PROXY_GATE_SERVE);
	for (int i = 1; i <= 5; i++) {
		kill_proxy(SIGKILL);
		assert_int_equal(restarts, i);
		serve_one();
	}
	assert_true(pidfd_is_dead(proxyctl_pidfd(ctl)) == false);
	assert_int_equal(events.n, 0);
}

/* --- a proxy that somebody has taken over --- */

static const char evil[] =
	"#!/usr/bin/python3\n"
	"import json, socket, time\n"
	"s = socket.socket(fileno=3)\n"
	"big = 'x' * 40000 + chr(27) + '[2J'\n"
	"d = dict(t='denied', app='a', host='h', port=1, rule='r', hint='', count=1)\n"
	"for m in (dict(t='hello', v=99), dict(t='nonsense'), dict(), dict(d, app='b'), dict(d, host=big, "
	"rule=big, hint=big),\n"
	"          dict(d, port=-1), dict(d, port=65536), dict(d, host=None), dict(d, rule=7), dict(d, "
	"count=-5), dict(d, count=1e300),\n"
	"          dict(t='event', event=dict(app='a', type='state', to='running')), dict(t='event', "
	"event=[1]),\n"
	"          dict(t='event', event=dict(app='b', type='violation')), dict(t='event'),\n"
	"          dict(t='event', event=dict(app='a', type='violation', operation='file-write', "
	"hint='Write=/')),\n"
	"          dict(t='counters', apps=dict(a=dict(in_open=-1, in_total=1e300, bytes_in='x', "
	"out_denied=2.5))),\n"
	"          dict(t='counters', apps=[[1]]), dict(t='counters', apps=dict(a=[], b={})), "
	"dict(t='counters'),\n"
	"          dict(t='need', app='a', launch=2, n=5), dict(t='need', app='b', launch=1, n=5),\n"
	"          dict(t='need', app='a', launch=1, n=1e9), dict(t='need', app='a', launch=1, n=0), "
	"dict(t='need')):\n"
	"    s.send(json.dumps(m).encode())\n"
	"s.send(json.dumps(dict(d, host='last', count=3)).encode())\n"
	"for i in range(4000):\n"
	"    s.send(b'{\"t\":\"need\",\"app\":\"a\",\"launch\":1,\"n\":192}')\n"
	"time.sleep(1000)\n";

static int is_restarted(void)
{
	return restarts > 0;
}

static void test_taken_over(void **state)
{
	const struct proxyctl_hooks hooks = {.event = on_event, .restarted = on_restarted};
	char path[] = "/tmp/sbxsv-proxy-evil-XXXXXX";
	int fd = mkstemp(path);
	struct proxyctl_app_counters c;
	CLEANUP_JS struct js *list = NULL;
	size_t fds_before;

	(void)state;
	assert_int_equal(fd_write_all(fd, evil, strlen(evil)), 0);
	assert_int_equal(fchmod(fd, 0755), 0);
	(void)close(fd);
	proxyctl_destroy(ctl);
	made = most_fds = 0;
	fds_before = open_fds();
	ctl = proxyctl_create(loop, path, (uid_t)-1, (gid_t)-1, &hooks, NULL);
	assert_non_null(ctl);
	set_jail(false);
	run_until(is_restarted); /* it did not read what it asked for */
	proxyctl_counters(ctl, "a", &c);
	assert_int_equal(c.in_total, 0);
	list = proxyctl_denied(ctl, "a");
	assert_int_equal(js_len(list), 2);
	assert_string_equal(js_str(js_at(list, 0), "host"), "last");
	assert_int_equal(js_int_or(js_at(list, 0), "count", 0), 3);
	assert_true(strlen(js_str(js_at(list, 1), "host")) < 256 &&
		    strlen(js_str(js_at(list, 1), "rule")) < 1024);
	assert_int_equal(events.n, 2);
	for (size_t i = 0; i < events.n; i++)
		assert_non_null(strstr(events.v[i], "\"type\":\"violation\""));
	assert_true(made > 0 && most_fds < fds_before + 1000);
	(void)unlink(path);
}

/* --- egress --- */

static int closed_by_proxy(void)
{
	ssize_t n = recv(client_fd, received + received_len, sizeof received - 1 - received_len, 0);

	if (n > 0)
		received_len += (size_t)n;
	received[received_len] = 0;
	return n == 0 || (n < 0 && errno != EAGAIN);
}

static const char *ask(const char *text)
{
	client_fd = client(egress_port);
	received_len = 0;
	assert_int_equal(fd_write_all(client_fd, text, strlen(text)), 0);
	run_until(closed_by_proxy);
	(void)close(client_fd);
	return received;
}

static void set_policy(const char *allow)
{
	struct policy *p = policy_create(EGRESS_HOSTS);

	assert_int_equal(policy_add_allow(p, allow, "a.app:3", NULL), 0);
	assert_int_equal(proxyctl_set_policy(ctl, "a", p, NULL), 0);
	policy_destroy(p);
}

static int counted(void)
{
	struct proxyctl_app_counters c;

	proxyctl_counters(ctl, "a", &c);
	return c.out_denied == 2;
}

static int has_event(void)
{
	return events.n > 0;
}

static void test_denied(void **state)
{
	CLEANUP_JS struct js *list = NULL;

	(void)state;
	set_policy("good.test");
	assert_non_null(strstr(ask("CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n"),
			       "add  Allow=evil.test  to [Network] of a.app"));
	run_until(has_event);
	assert_non_null(strstr(events.v[0], "\"type\":\"violation\""));
	assert_non_null(strstr(events.v[0], "\"hint\":\"Allow=evil.test\""));
	(void)ask("CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n");
	run_until(counted);
	list = proxyctl_denied(ctl, "a");
	assert_int_equal(js_len(list), 2);
	assert_string_equal(js_str(js_at(list, 0), "host"), "other.test");
	assert_string_equal(js_str(js_at(list, 1), "host"), "evil.test");
	/* what was counted survives the proxy */
	kill_proxy(SIGKILL);
	assert_true(counted());
}

/* --- the crash page --- */

static void write_page(const char *name)
{
	char path[64], target[128];
	char *page;

	for (int fd = 3; fd < 256; fd++) {
		ssize_t n;

		(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof target - 1);
		target[n > 0 ? n : 0] = 0;
		if (!strstr(target, "sbxsv-proxy-status"))
			continue;
		page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		assert_true(page != MAP_FAILED);
		(void)snprintf(page + 1, 256, "%s", name);
		page[0] = 1;
		(void)munmap(page, 4096);
		return;
	}
	fail_msg("no crash page");
}

static void test_crashes_close_egress(void **state)
{
	(void)state;
	/* SIGILL and SIGABRT: a sanitizer does not take these over */
	set_policy("good.test");
	write_page("nobody");
	kill_proxy(SIGILL);
	for (int i = 0; i < 2; i++) {
		write_page("a");
		kill_proxy(SIGILL);
	}
	write_page("a");
	kill_proxy(SIGKILL); /* somebody's decision: does not count */
	assert_non_null(strstr(ask("CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n"),
			       "X-Sbxsv-Denied: default-deny"));
	strv_clear(&events);
	write_page("a");
	kill_proxy(SIGABRT);
	run_until(has_event);
	assert_non_null(strstr(events.v[0], "\"type\":\"supervisor\""));
	assert_non_null(strstr(events.v[0], "\"app\":\"a\""));
	assert_non_null(strstr(ask("CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n"),
			       "crashed 3 times"));
	set_policy("good.test"); /* the same rules: still closed */
	assert_non_null(strstr(ask("CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n"),
			       "crashed 3 times"));
	set_policy("better.test");
	assert_non_null(strstr(ask("CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n"),
			       "Allow=evil.test"));
}

static void test_removed(void **state)
{
	struct proxyctl_app_counters c;

	(void)state;
	proxyctl_gate(ctl, "a", PROXY_GATE_SERVE);
	serve_one();
	proxyctl_drop_jail(ctl, "a");
	proxyctl_remove(ctl, "a");
	proxyctl_remove(ctl, "a");
	proxyctl_counters(ctl, "a", &c);
	assert_int_equal(c.in_total, 0);
}

static void test_life(void **state)
{
	const struct proxyctl_hooks hooks = {.event = on_event, .restarted = on_restarted};
	size_t before = open_fds();
	struct err *e = NULL;
	pid_t pid;

	loop = loop_create(0);
	assert_null(proxyctl_create(loop, "/nonexistent/sbxsv-proxy", (uid_t)-1, (gid_t)-1, &hooks, &e));
	assert_non_null(strstr(err_msg(e), "/nonexistent/sbxsv-proxy"));
	err_free(e);
	loop_destroy(loop);
	(void)setup(state);
	pid = proxyctl_pid(ctl);
	assert_true(pid > 0);
	(void)teardown(state);
	assert_true(kill(pid, 0) < 0 && errno == ESRCH); /* gone, and reaped */
	assert_int_equal(open_fds(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_serves, setup, teardown),
		cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_taken_over, setup, teardown),
		cmocka_unit_test_setup_teardown(test_denied, setup, teardown),
		cmocka_unit_test_setup_teardown(test_crashes_close_egress, setup, teardown),
		cmocka_unit_test_setup_teardown(test_removed, setup, teardown),
		cmocka_unit_test(test_life),
	};

	(void)alarm(120); /* against a hang */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
