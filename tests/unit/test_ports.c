/* ports: real listeners, real orphans, and everything that must not be taken for one. */
#include "base/fd.h"
#include "base/file.h"
#include "ports/ports.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <cmocka.h>

struct world {
	char top[64], app[80], other[80];
	uint16_t port;
	int listener; /* made before forking; the children keep it */
	pid_t pid;    /* the holder */
	int ctl;      /* its life: closed = it ends */
	struct reclaim_request request;
};

static int rm_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)st;
	(void)type;
	(void)f;
	return remove(path);
}

static int listen_on(int family, uint16_t *port)
{
	struct sockaddr_in a4 = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(*port)};
	struct sockaddr_in6 a6 = {
		.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT, .sin6_port = htons(*port)};
	bool v6 = family == AF_INET6;
	socklen_t len = sizeof a4;
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	if (bind(fd, v6 ? (void *)&a6 : (void *)&a4, v6 ? sizeof a6 : sizeof a4) < 0 || listen(fd, 4) < 0) {
		(void)close(fd);
		return -1;
	}
	if (!v6 && getsockname(fd, (struct sockaddr *)&a4, &len) == 0)
		*port = ntohs(a4.sin_port);
	return fd;
}

static int setup(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);

	(void)snprintf(w->top, sizeof w->top, "/tmp/sbxsv-ports-XXXXXX");
	assert_non_null(mkdtemp(w->top));
	(void)snprintf(w->app, sizeof w->app, "%s/app", w->top);
	(void)snprintf(w->other, sizeof w->other, "%s/application", w->top); /* "app" is a prefix of it */
	assert_int_equal(mkdir(w->app, 0755), 0);
	assert_int_equal(mkdir(w->other, 0755), 0);
	w->ctl = -1;
	w->listener = listen_on(AF_INET, &w->port);
	assert_true(w->listener >= 0);
	w->request = (struct reclaim_request){.port = w->port, .app_uid = getuid(), .app_directory = w->app};
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
	*state = w;
	return 0;
}

static void end_holder(struct world *w)
{
	if (w->ctl >= 0)
		(void)close(w->ctl);
	w->ctl = -1;
	if (w->pid > 0) {
		(void)kill(w->pid, SIGKILL);
		while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
			;
	}
	w->pid = 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	end_holder(w);
	if (w->listener >= 0)
		(void)close(w->listener);
	assert_int_equal(nftw(w->top, rm_one, 16, FTW_DEPTH | FTW_PHYS), 0);
	free(w);
	return 0;
}

enum { ORPHAN = 1, KEEP_PARENT = 2, TERMINAL = 4, SPOOF = 8 };

static void say_pid_and_wait(int say, int ctl)
{
	pid_t me = getpid();
	char c;

	(void)!write(say, &me, sizeof me);
	(void)alarm(60);
	(void)!read(ctl, &c, 1);
	_exit(0);
}

static void die_if(bool bad)
{
	if (bad)
		_exit(3);
}

/* A mount namespace where the app's path is another directory: the path text lies. */
static void spoof(const char *dir, const char *app)
{
	if (geteuid() == 0)
		die_if(unshare(CLONE_NEWNS) < 0);
	else
		die_if(unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0);
	die_if(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0);
	die_if(mount(dir, app, NULL, MS_BIND, NULL) < 0 || chdir(app) < 0);
}

static void holder(struct world *w, const char *cwd, unsigned how, int say, int ctl)
{
	die_if(chdir(cwd) < 0);
	if (how & SPOOF)
		spoof(w->other, w->app);
	if (how & TERMINAL) {
		int m = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
		char *name;
		int t;

		die_if(setsid() < 0 || m < 0 || grantpt(m) < 0 || unlockpt(m) < 0 || !(name = ptsname(m)));
		t = open(name, O_RDWR | O_CLOEXEC);
		die_if(t < 0 || ioctl(t, TIOCSCTTY, 0) < 0);
		(void)signal(SIGHUP, SIG_IGN);
	} else {
		die_if(setsid() < 0);
	}
	say_pid_and_wait(say, ctl);
}

/* Starts the process that keeps the port. ORPHAN: its parent ends at once, so that we (a subreaper) inherit
 * it. */
static void start_holder(struct world *w, const char *cwd, unsigned how)
{
	int say[2], ctl[2];
	pid_t first;

	assert_int_equal(pipe2(say, O_CLOEXEC), 0);
	assert_int_equal(pipe2(ctl, O_CLOEXEC), 0);
	first = fork();
	if (first == 0) {
		char c;

		(void)close(ctl[1]);
		if (fork() == 0)
			holder(w, cwd, how, say[1], ctl[0]);
		if (how & KEEP_PARENT)
			(void)!read(ctl[0], &c, 1);
		_exit(0);
	}
	(void)close(say[1]);
	(void)close(ctl[0]);
	w->ctl = ctl[1];
	if (read(say[0], &w->pid, sizeof w->pid) != sizeof w->pid)
		w->pid = 0;
	(void)close(say[0]);
	if (how & ORPHAN)
		assert_int_equal(waitpid(first, NULL, 0), first);
	(void)close(w->listener);
	w->listener = -1;
}

static void only_holder(struct world *w, struct port_holders *ret)
{
	assert_int_equal(ports_find(w->port, PORTS_AUTO, ret, NULL), 0);
	assert_int_equal(ret->n, 1);
	assert_int_equal(ret->v[0].pid, w->pid);
}

static void expect(struct world *w, const char *reason)
{
	struct port_holders h = {0};
	CLEANUP_FREE char *why = NULL;
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FD int fd = -1;
	size_t n;
	bool yes;

	assert_true(w->pid > 0);
	assert_int_equal(ports_find(w->port, PORTS_AUTO, &h, NULL), 0);
	for (n = 0; n < h.n && h.v[n].pid != w->pid; n++)
		;
	assert_true(n < h.n);
	yes = ports_is_orphan(&w->request, &h.v[n], &why);
	fd = ports_orphan_pidfd(&w->request, &h.v[n], &e);
	port_holders_finish(&h);
	if (!reason) {
		if (!yes)
			fail_msg("not an orphan: %s", why);
		assert_true(fd >= 0);
		assert_int_equal(pidfd_signal(fd, 0), 0);
		return;
	}
	assert_false(yes);
	if (!strstr(why, reason))
		fail_msg("the reason is \"%s\", not \"%s\"", why, reason);
	assert_int_equal(fd, -1);
	assert_non_null(strstr(err_msg(e), "is left alone"));
	assert_non_null(strstr(err_msg(e), reason));
}

static void test_find(void **state)
{
	struct world *w = *state;
	struct port_holders h = {0};
	CLEANUP_FREE char *text = NULL;

	start_holder(w, w->app, ORPHAN);
	only_holder(w, &h);
	assert_int_equal(h.n, 1);
	assert_int_equal(h.v[0].uid, getuid());
	assert_string_equal(h.v[0].cwd, w->app);
	assert_string_equal(h.v[0].address, "127.0.0.1");
	assert_int_equal(h.v[0].start, ports_start_time(w->pid));
	assert_non_null(strstr(h.v[0].command, "test_ports"));
	text = ports_describe(&h.v[0]);
	assert_non_null(strstr(text, w->app));
	port_holders_finish(&h);
	end_holder(w);
	assert_int_equal(ports_find(w->port, PORTS_AUTO, &h, NULL), 0);
	assert_int_equal(h.n, 0);
	assert_int_equal(ports_start_time(0), 0);
}

static void test_sock_diag_and_lsof_agree(void **state)
{
	struct world *w = *state;
	CLEANUP_FD int v6 = listen_on(AF_INET6, &w->port);
	CLEANUP_ERR struct err *e = NULL;
	struct port_holders a = {0}, b = {0};
	int kept = dup(w->listener);

	start_holder(w, w->app, ORPHAN); /* it and we: two pids on two addresses, or on one without IPv6 */
	assert_int_equal(ports_find(w->port, PORTS_SOCK_DIAG, &a, NULL), 0);
	assert_int_equal(a.n, v6 < 0 ? 2 : 4);
	if (ports_find(w->port, PORTS_LSOF, &b, &e) < 0) {
		port_holders_finish(&a);
		(void)close(kept);
		assert_int_equal(err_code(e), ENOENT);
		print_message("%s\n", err_msg(e));
		skip();
	}
	assert_int_equal(a.n, b.n);
	for (size_t i = 0; i < a.n; i++) {
		assert_int_equal(a.v[i].pid, b.v[i].pid);
		assert_int_equal(a.v[i].uid, b.v[i].uid);
		assert_int_equal(a.v[i].start, b.v[i].start);
		assert_string_equal(a.v[i].cwd, b.v[i].cwd);
		assert_string_equal(a.v[i].command, b.v[i].command);
		assert_string_equal(a.v[i].address, b.v[i].address);
	}
	port_holders_finish(&a);
	port_holders_finish(&b);
	(void)close(kept);
}

static void test_an_orphan_in_the_app_directory(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *deep = xasprintf("%s/a", w->app);
	CLEANUP_FREE char *deeper = xasprintf("%s/a/b", w->app);

	assert_int_equal(mkdir(deep, 0755), 0);
	assert_int_equal(mkdir(deeper, 0755), 0);
	start_holder(w, deeper, ORPHAN);
	expect(w, NULL);
}

static void test_the_app_directory_by_another_name(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *link = xasprintf("%s/link", w->top);

	assert_int_equal(symlink(w->app, link), 0);
	start_holder(w, w->app, ORPHAN);
	w->request.app_directory = link;
	expect(w, NULL);
}

static void test_a_child_of_a_living_process_is_a_stranger(void **state)
{
	struct world *w = *state;

	start_holder(w, w->app, KEEP_PARENT);
	expect(w, "which is still there");
	/* unless an earlier run of ours recorded it */
	w->request.recorded_pid = w->pid;
	w->request.recorded_start = ports_start_time(w->pid);
	expect(w, NULL);
	w->request.recorded_start++;
	expect(w, "which is still there");
}

static void test_another_directory_is_a_stranger(void **state)
{
	struct world *w = *state;

	start_holder(w, w->other, ORPHAN);
	expect(w, "is not inside");
	/* above it too */
	end_holder(w);
	w->port = 0;
	w->listener = listen_on(AF_INET, &w->port);
	w->request.port = w->port;
	start_holder(w, w->top, ORPHAN);
	expect(w, "is not inside");
}

static void test_a_terminal_is_a_stranger(void **state)
{
	struct world *w = *state;

	start_holder(w, w->app, ORPHAN | TERMINAL);
	expect(w, "controlling terminal");
	w->request.recorded_pid = w->pid;
	w->request.recorded_start = ports_start_time(w->pid);
	expect(w, "controlling terminal");
}

static void test_another_user_is_a_stranger(void **state)
{
	struct world *w = *state;

	start_holder(w, w->app, ORPHAN);
	w->request.app_uid = getuid() + 1;
	expect(w, "it runs as uid");
}

static void test_a_recycled_pid_is_a_stranger(void **state)
{
	struct world *w = *state;
	struct port_holders h = {0};
	CLEANUP_FREE char *why = NULL;
	CLEANUP_ERR struct err *e = NULL;

	start_holder(w, w->app, ORPHAN);
	only_holder(w, &h);
	h.v[0].start--; /* what we saw was somebody else */
	assert_false(ports_is_orphan(&w->request, &h.v[0], &why));
	assert_non_null(strstr(why, "another process"));
	assert_int_equal(ports_orphan_pidfd(&w->request, &h.v[0], &e), -1);
	port_holders_finish(&h);
}

static void test_a_path_from_another_mount_namespace_does_not_fool(void **state)
{
	struct world *w = *state;
	struct port_holders h = {0};

	start_holder(w, w->app, ORPHAN | SPOOF);
	if (w->pid == 0)
		skip(); /* no mount namespace here */
	only_holder(w, &h);
	assert_string_equal(h.v[0].cwd, w->app); /* the text says it is inside */
	port_holders_finish(&h);
	expect(w, geteuid() == 0 ? "another mount namespace" : "mount namespace");
}

static void test_a_process_without_the_port_is_left_alone(void **state)
{
	struct world *w = *state;
	struct port_holders h = {0};
	CLEANUP_ERR struct err *e = NULL;

	start_holder(w, w->app, ORPHAN);
	only_holder(w, &h);
	w->request.port = w->port == 65535 ? 1024 : (uint16_t)(w->port + 1);
	assert_int_equal(ports_orphan_pidfd(&w->request, &h.v[0], &e), -1);
	assert_non_null(strstr(err_msg(e), "no longer holds the port"));
	port_holders_finish(&h);
}

static void test_dead_and_special_pids(void **state)
{
	struct world *w = *state;
	struct port_holder h = {.pid = 1, .start = ports_start_time(1)};
	CLEANUP_ERR struct err *e = NULL;
	pid_t pids[] = {0, 1, getpid(), getppid()};

	for (size_t i = 0; i < ELEMENTS(pids); i++) {
		CLEANUP_FREE char *why = NULL;

		h.pid = pids[i];
		h.start = ports_start_time(pids[i]);
		assert_false(ports_is_orphan(&w->request, &h, &why));
		assert_non_null(why);
		assert_int_equal(ports_orphan_pidfd(&w->request, &h, &e), -1);
	}
	h.pid = fork();
	if (h.pid == 0)
		_exit(0);
	h.start = ports_start_time(h.pid);
	assert_int_equal(waitpid(h.pid, NULL, 0), h.pid);
	assert_int_equal(ports_orphan_pidfd(&w->request, &h, &e), -1);
	assert_int_equal(err_code(e), ESRCH);
}

static void test_the_port_can_be_taken_back(void **state)
{
	struct world *w = *state;
	struct port_holders h = {0};
	CLEANUP_FD int fd = -1;
	int status;

	start_holder(w, w->app, ORPHAN);
	only_holder(w, &h);
	fd = ports_orphan_pidfd(&w->request, &h.v[0], NULL);
	port_holders_finish(&h);
	assert_true(fd >= 0);
	assert_int_equal(pidfd_signal(fd, SIGTERM), 0);
	assert_int_equal(waitpid(w->pid, &status, 0), w->pid);
	w->pid = 0;
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	w->listener = listen_on(AF_INET, &w->port);
	assert_true(w->listener >= 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_find),
		T(test_sock_diag_and_lsof_agree),
		T(test_an_orphan_in_the_app_directory),
		T(test_the_app_directory_by_another_name),
		T(test_a_child_of_a_living_process_is_a_stranger),
		T(test_another_directory_is_a_stranger),
		T(test_a_terminal_is_a_stranger),
		T(test_another_user_is_a_stranger),
		T(test_a_recycled_pid_is_a_stranger),
		T(test_a_path_from_another_mount_namespace_does_not_fool),
		T(test_a_process_without_the_port_is_left_alone),
		T(test_dead_and_special_pids),
		T(test_the_port_can_be_taken_back),
	};

	return cmocka_run_group_tests_name("ports", tests, NULL, NULL);
}
