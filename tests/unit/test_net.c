/* The inside of a network namespace: a child unshares one, runs net_inside(), and passes everything out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/fd.h"
#include "net/net.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct jail {
	pid_t pid;
	int sock, userns, netns, diag;
	int fds[16];
	size_t n;
};

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		_exit(3);
	(void)close(fd);
}

static void child(int sock, const struct net_plan *p)
{
	char map[64];
	unsigned uid = getuid(), gid = getgid();
	int fds[32] = {-1, -1, -1};
	size_t n = 0;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
		_exit(2);
	put("/proc/self/setgroups", "deny");
	(void)snprintf(map, sizeof map, "%u %u 1", uid, uid);
	put("/proc/self/uid_map", map);
	(void)snprintf(map, sizeof map, "%u %u 1", gid, gid);
	put("/proc/self/gid_map", map);
	fds[0] = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
	fds[1] = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	fds[2] = net_open_diag(NULL);
	if (net_inside(p, fds + 3, 16, &n, NULL) < 0)
		_exit(4);
	if (fd_send(sock, &n, sizeof n, fds, n + 3) < 0)
		_exit(5);
	(void)read(sock, &n, 1); /* until the test is over */
	_exit(0);
}

static void jail_start(struct jail *j, const struct net_plan *p)
{
	int sp[2], fds[32];
	size_t n_fds;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sp), 0);
	j->pid = fork();
	assert_true(j->pid >= 0);
	if (j->pid == 0) {
		(void)close(sp[0]);
		child(sp[1], p);
	}
	(void)close(sp[1]);
	j->sock = sp[0];
	if (fd_recv(j->sock, &j->n, sizeof j->n, fds, 32, &n_fds) <= 0) {
		int status;

		(void)waitpid(j->pid, &status, 0);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 2) {
			print_message("no user namespaces for this user\n");
			skip();
		}
		fail_msg("the child failed with status %x", (unsigned)status);
	}
	assert_int_equal(n_fds, j->n + 3);
	j->userns = fds[0];
	j->netns = fds[1];
	j->diag = fds[2];
	memcpy(j->fds, fds + 3, j->n * sizeof(int));
}

static void jail_end(struct jail *j)
{
	(void)close(j->sock);
	assert_int_equal(waitpid(j->pid, NULL, 0), j->pid);
	fd_close_many(&j->userns, 1);
	fd_close_many(&j->netns, 1);
	fd_close_many(&j->diag, 1);
	fd_close_many(j->fds, j->n);
}

static int connect_to(int s, const char *v4_mapped, uint16_t port)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

	assert_int_equal(inet_pton(AF_INET6, v4_mapped, &a.sin6_addr), 1);
	(void)fd_set_nonblock(s, false);
	return connect(s, (struct sockaddr *)&a, sizeof a) < 0 ? errno : 0;
}

static void test_inside(void **state)
{
	const uint16_t ports[] = {5432, 6379};
	struct net_plan p = {.egress = 1, .loopback = ports, .n_loopback = 2};
	struct net_listener l[16];
	struct jail j;
	int s[6], n;

	(void)state;
	jail_start(&j, &p);
	assert_int_equal(j.n, 5);
	assert_true(net_inside_has_v6(&p, j.n));
	assert_int_equal(net_make_sockets(j.userns, j.netns, s, 6, NULL), 0);
	assert_int_equal(connect_to(s[0], "::ffff:198.18.0.1", NET_PROXY_PORT), 0);
	assert_int_equal(connect_to(s[1], "::ffff:127.0.0.1", 5432), 0);
	assert_int_equal(connect_to(s[2], "::1", 6379), 0);
	/* AnyIP: refused at once, not unreachable and not a timeout */
	assert_int_equal(connect_to(s[3], "::ffff:169.254.169.254", 80), ECONNREFUSED);
	assert_int_equal(connect_to(s[4], "2001:db8::1", 443), ECONNREFUSED);
	n = accept(j.fds[0], NULL, NULL);
	assert_true(n >= 0);
	(void)close(n);
	assert_int_equal(net_list_listeners(j.diag, 0, l, 16, NULL), 5);
	assert_int_equal(net_list_listeners(j.diag, 5432, l, 16, NULL), 2);
	assert_int_equal(l[0].family, AF_INET);
	assert_int_equal(l[0].port, 5432);
	assert_int_equal(l[0].address[0], 127);
	assert_int_equal(l[1].family, AF_INET6);
	assert_int_equal(net_list_listeners(j.diag, 81, l, 16, NULL), 0);
	fd_close_many(s, 6);
	jail_end(&j);
}

static void test_make_sockets_many(void **state)
{
	struct net_plan p = {0};
	struct jail j;
	int s[64];

	(void)state;
	jail_start(&j, &p);
	assert_int_equal(j.n, 0);
	for (int round = 0; round < 50; round++) {
		assert_int_equal(net_make_sockets(j.userns, j.netns, s, 64, NULL), 0);
		for (int i = 0; i < 64; i++)
			assert_int_equal(fcntl(s[i], F_GETFD), FD_CLOEXEC);
		fd_close_many(s, 64);
	}
	jail_end(&j);
}

static void test_make_sockets_errors(void **state)
{
	CLEANUP_ERR struct err *e = NULL;
	int s[2] = {-1, -1}, null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_int_equal(net_make_sockets(null, null, s, 2, &e), -1);
	assert_int_equal(err_code(e), EINVAL);
	assert_non_null(strstr(err_msg(e), "cannot join the user namespace"));
	assert_int_equal(s[0], -1);
	(void)close(null);
}

static void test_too_many(void **state)
{
	struct net_plan p = {.egress = 1, .n_loopback = 64};
	CLEANUP_ERR struct err *e = NULL;
	size_t n = 77;
	int fds[8];

	(void)state;
	assert_int_equal(net_inside(&p, fds, 8, &n, &e), -1);
	assert_int_equal(err_code(e), E2BIG);
	assert_int_equal(n, 77);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_inside),
		cmocka_unit_test(test_make_sockets_many),
		cmocka_unit_test(test_make_sockets_errors),
		cmocka_unit_test(test_too_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
