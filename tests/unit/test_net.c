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
	int fds[32];
	size_t n;
	struct net_inside_result made;
};

static bool without_v6; /* the children's namespace has none */

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
	int fds[NET_SOCKETS_MAX + 3] = {-1, -1, -1};
	struct net_inside_result made;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
		_exit(2);
	put("/proc/self/setgroups", "deny");
	(void)snprintf(map, sizeof map, "%u %u 1", uid, uid);
	put("/proc/self/uid_map", map);
	(void)snprintf(map, sizeof map, "%u %u 1", gid, gid);
	put("/proc/self/gid_map", map);
	if (without_v6)
		put("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
	fds[0] = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
	fds[1] = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	fds[2] = net_open_diag(NULL);
	if (net_inside(p, fds + 3, &made, NULL) < 0)
		_exit(4);
	if (fd_send(sock, &made, sizeof made, fds, made.n + 3) < 0)
		_exit(5);
	(void)read(sock, &made, 1); /* until the test is over */
	_exit(0);
}

static void jail_start(struct jail *j, const struct net_plan *p)
{
	int sp[2], fds[ELEMENTS(j->fds) + 3];
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
	if (fd_recv(j->sock, &j->made, sizeof j->made, fds, ELEMENTS(fds), &n_fds) <= 0) {
		int status;

		(void)waitpid(j->pid, &status, 0);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 2) {
			print_message("no user namespaces for this user\n");
			skip();
		}
		fail_msg("the child failed with status %x", (unsigned)status);
	}
	j->n = j->made.n;
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

/* The socket of this kind, port and family; -1 without. */
static int find(const struct jail *j, enum net_kind kind, uint16_t port, int family)
{
	for (size_t i = 0; i < j->n; i++) {
		int domain = 0;
		socklen_t len = sizeof domain;

		assert_int_equal(getsockopt(j->fds[i], SOL_SOCKET, SO_DOMAIN, &domain, &len), 0);
		if (j->made.of[i].kind == kind && j->made.of[i].port == port && domain == family)
			return j->fds[i];
	}
	return -1;
}

static struct sockaddr_in6 address(const char *text, uint16_t port)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

	assert_int_equal(inet_pton(AF_INET6, text, &a.sin6_addr), 1);
	if (IN6_IS_ADDR_LINKLOCAL(&a.sin6_addr))
		a.sin6_scope_id = 1; /* lo */
	return a;
}

static int connect_to(int s, const char *to, uint16_t port)
{
	struct sockaddr_in6 a = address(to, port);

	(void)fd_set_nonblock(s, false);
	return connect(s, (struct sockaddr *)&a, sizeof a) < 0 ? errno : 0;
}

static int try_connect(const struct jail *j, const char *to, uint16_t port)
{
	int s, r;

	assert_int_equal(net_make_sockets(j->userns, j->netns, &s, 1, NULL), 0);
	r = connect_to(s, to, port);
	(void)close(s);
	return r;
}

/* Who was asked for, as the accepted socket says: "[::ffff:1.2.3.4]:443". */
static void accepted(int listener, char text[80])
{
	struct sockaddr_storage sa;
	struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&sa;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)&sa;
	char host[INET6_ADDRSTRLEN];
	socklen_t len = sizeof sa;
	int fd = accept(listener, NULL, NULL);

	assert_true(fd >= 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
	if (sa.ss_family == AF_INET)
		(void)snprintf(text, 80, "%s:%u", inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host),
			       ntohs(v4->sin_port));
	else
		(void)snprintf(text, 80, "[%s]:%u", inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host),
			       ntohs(v6->sin6_port));
	(void)close(fd);
}

static void arrives(const struct jail *j, const char *to, uint16_t port, int listener, const char *asked)
{
	char text[80];

	assert_int_equal(try_connect(j, to, port), 0);
	accepted(listener, text);
	assert_string_equal(text, asked);
	assert_int_equal(accept(listener, NULL, NULL), -1);
}

/* A datagram socket inside: net_make_sockets() makes TCP only, so a child joins. */
static int udp_inside(const struct jail *j, int family)
{
	int sp[2], fd = -1;
	size_t n;
	pid_t pid;
	char c;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sp), 0);
	pid = fork();
	if (pid == 0) {
		if (setns(j->userns, CLONE_NEWUSER) < 0 || setns(j->netns, CLONE_NEWNET) < 0)
			_exit(1);
		fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		_exit(fd < 0 || fd_send(sp[1], "x", 1, &fd, 1) < 0);
	}
	assert_int_equal(fd_recv(sp[0], &c, 1, &fd, 1, &n), 1);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	(void)close(sp[0]);
	(void)close(sp[1]);
	return fd;
}

static void ask_and_answer(const struct jail *j, const char *server)
{
	int family = strchr(server, ':') ? AF_INET6 : AF_INET, c = udp_inside(j, family);
	int s = find(j, NET_DNS_UDP, 53, family);
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(53)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(53)};
	struct sockaddr_storage from;
	char data[16], control[128] = {0};
	struct iovec io = {.iov_base = data, .iov_len = sizeof data};
	struct msghdr m = {.msg_name = &from,
			   .msg_namelen = sizeof from,
			   .msg_iov = &io,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof control};
	struct cmsghdr *h;

	assert_int_equal(
		inet_pton(family, server, family == AF_INET ? (void *)&v4.sin_addr : (void *)&v6.sin6_addr),
		1);
	/* connected: it takes an answer from nobody else */
	assert_int_equal(family == AF_INET ? connect(c, (struct sockaddr *)&v4, sizeof v4)
					   : connect(c, (struct sockaddr *)&v6, sizeof v6),
			 0);
	assert_int_equal(send(c, "who", 3, 0), 3);
	assert_int_equal(recvmsg(s, &m, 0), 3);
	h = CMSG_FIRSTHDR(&m);
	assert_non_null(h);
	if (family == AF_INET) {
		struct in_pktinfo *i = (struct in_pktinfo *)(void *)CMSG_DATA(h);

		assert_int_equal(h->cmsg_type, IP_PKTINFO);
		i->ipi_spec_dst = i->ipi_addr;
		i->ipi_ifindex = 0;
	} else {
		assert_int_equal(h->cmsg_type, IPV6_PKTINFO);
	}
	io.iov_len = 3;
	assert_int_equal(sendmsg(s, &m, 0), 3);
	(void)fd_set_nonblock(c, true);
	assert_int_equal(recv(c, data, sizeof data, 0), 3);
	(void)close(c);
}

static void test_inside(void **state)
{
	const uint16_t ports[] = {5432, 6379};
	struct net_plan p = {.loopback = ports, .n_loopback = 2};
	struct net_listener l[16];
	struct jail j;

	(void)state;
	jail_start(&j, &p);
	assert_int_equal(j.n, 4);
	assert_int_equal(j.made.capture, NET_CAPTURE_OFF);
	assert_true(j.made.v6);
	arrives(&j, "::ffff:127.0.0.1", 5432, find(&j, NET_LOOPBACK, 5432, AF_INET), "127.0.0.1:5432");
	arrives(&j, "::1", 6379, find(&j, NET_LOOPBACK, 6379, AF_INET6), "[::1]:6379");
	/* AnyIP: refused at once, not unreachable and not a timeout */
	assert_int_equal(try_connect(&j, "::ffff:169.254.169.254", 80), ECONNREFUSED);
	assert_int_equal(try_connect(&j, "2001:db8::1", 443), ECONNREFUSED);
	assert_int_equal(try_connect(&j, "::ffff:198.18.0.1", NET_PROXY_PORT), ECONNREFUSED);
	assert_int_equal(try_connect(&j, "::ffff:127.0.0.53", 53), ECONNREFUSED);
	assert_int_equal(net_list_listeners(j.diag, 0, l, 16, NULL), 4);
	assert_int_equal(net_list_listeners(j.diag, 5432, l, 16, NULL), 2);
	assert_int_equal(l[0].family, AF_INET);
	assert_int_equal(l[0].port, 5432);
	assert_int_equal(l[0].address[0], 127);
	assert_int_equal(l[1].family, AF_INET6);
	assert_int_equal(net_list_listeners(j.diag, 81, l, 16, NULL), 0);
	jail_end(&j);
}

static uint16_t listen_on(int family, const char *address, int *ret_fd)
{
	struct sockaddr_storage ss = {.ss_family = (sa_family_t)family};
	struct sockaddr_in *v4 = (void *)&ss;
	struct sockaddr_in6 *v6 = (void *)&ss;
	socklen_t len = family == AF_INET ? sizeof *v4 : sizeof *v6;
	int on = 1, fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(
		inet_pton(family, address, family == AF_INET ? (void *)&v4->sin_addr : &v6->sin6_addr), 1);
	if (family == AF_INET6)
		assert_int_equal(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on), 0);
	assert_int_equal(bind(fd, (void *)&ss, len), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (void *)&ss, &len), 0);
	*ret_fd = fd;
	return ntohs(family == AF_INET ? v4->sin_port : v6->sin6_port);
}

static void test_loopback_listens(void **state)
{
	static const struct {
		int family;
		const char *address;
		bool found;
	} cases[] = {{AF_INET, "127.0.0.1", true},
		     {AF_INET, "0.0.0.0", true},
		     {AF_INET6, "::1", true},
		     {AF_INET6, "::", true},
		     {AF_INET, "127.0.0.2", false}};
	int diag = net_open_diag(NULL);

	(void)state;
	for (size_t i = 0; i < ELEMENTS(cases); i++) {
		int fd;
		uint16_t port = listen_on(cases[i].family, cases[i].address, &fd);

		for (int n = 0; n < 3; n++)
			assert_int_equal(net_loopback_listens(diag, port), cases[i].found);
		(void)close(fd);
		assert_false(net_loopback_listens(diag, port));
	}
	(void)close(diag);
	assert_false(net_loopback_listens(diag, 80));
}

/* What both ways of capture have in common. */
static void check_common(const struct jail *j, int on80, int on80_v6)
{
	int explicit_fd = find(j, NET_EGRESS, 0, AF_INET);

	assert_true(explicit_fd >= 0);
	arrives(j, "::ffff:93.184.216.34", 80, on80, "93.184.216.34:80");
	arrives(j, "::ffff:198.18.77.1", 80, on80, "198.18.77.1:80");
	arrives(j, "::ffff:169.254.169.254", 80, on80, "169.254.169.254:80");
	arrives(j, "2606:4700::1111", 80, on80_v6, "[2606:4700::1111]:80");
	arrives(j, "64:ff9b::7f00:1", 80, on80_v6, "[64:ff9b::7f00:1]:80");
	arrives(j, "::ffff:198.18.0.1", NET_PROXY_PORT, explicit_fd, "198.18.0.1:3128");
	arrives(j, "::ffff:127.0.0.1", 5432, find(j, NET_LOOPBACK, 5432, AF_INET), "127.0.0.1:5432");
	arrives(j, "::1", 5432, find(j, NET_LOOPBACK, 5432, AF_INET6), "[::1]:5432");
	arrives(j, "::ffff:10.255.255.53", 53, find(j, NET_DNS_TCP, 53, AF_INET), "10.255.255.53:53");
	arrives(j, "::ffff:127.0.0.53", 53, find(j, NET_DNS_TCP, 53, AF_INET), "127.0.0.53:53");
	arrives(j, "fd00::53", 53, find(j, NET_DNS_TCP, 53, AF_INET6), "[fd00::53]:53");
	assert_int_equal(try_connect(j, "::ffff:127.0.0.1", 9999), ECONNREFUSED);
	assert_int_equal(try_connect(j, "::1", 9999), ECONNREFUSED);
	assert_int_equal(try_connect(j, "::ffff:198.18.0.1", 9999), ECONNREFUSED);
	for (size_t i = 0; i < j->n; i++)
		assert_int_equal(fcntl(j->fds[i], F_GETFD), FD_CLOEXEC);
}

static void test_rules(void **state)
{
	const uint16_t loopback[] = {5432}, ports[] = {80};
	struct net_plan p = {
		.egress = true, .loopback = loopback, .n_loopback = 1, .ports = ports, .n_ports = 1};
	CLEANUP_FREE char *text = NULL;
	struct jail j;
	int v4, v6;

	(void)state;
	jail_start(&j, &p);
	text = net_capture_text(&j.made);
	if (j.made.capture != NET_CAPTURE_RULES) {
		print_message("transparent: %s\n", text);
		jail_end(&j);
		skip();
	}
	assert_string_equal(text, "nf_tables");
	assert_int_equal(j.n, 1 + 2 + 2 + 2 + 2);
	v4 = find(&j, NET_TRANSPARENT, 0, AF_INET);
	v6 = find(&j, NET_TRANSPARENT, 0, AF_INET6);
	check_common(&j, v4, v6);
	assert_int_equal(try_connect(&j, "::ffff:127.0.0.1", 80), ECONNREFUSED);
	assert_int_equal(try_connect(&j, "::ffff:127.0.0.1", NET_TPROXY_PORT), ECONNREFUSED);
	assert_int_equal(try_connect(&j, "::1", NET_TPROXY_PORT), ECONNREFUSED);
	arrives(&j, "::ffff:8.8.8.8", 1, v4, "8.8.8.8:1");
	arrives(&j, "::ffff:8.8.8.8", 65535, v4, "8.8.8.8:65535");
	arrives(&j, "::ffff:8.8.8.8", 5432, v4, "8.8.8.8:5432");
	arrives(&j, "::ffff:8.8.8.8", NET_PROXY_PORT, v4, "8.8.8.8:3128");
	arrives(&j, "::ffff:198.18.0.3", NET_TPROXY_PORT, v4, "198.18.0.3:3128");
	assert_int_not_equal(try_connect(&j, "::ffff:8.8.8.8", 0), 0);
	arrives(&j, "fe80::1", 22, v6, "[fe80::1]:22");
	arrives(&j, "64:ff9b::198.18.0.3", NET_TPROXY_PORT, v6, "[64:ff9b::c612:3]:3128");
	jail_end(&j);
}

static void test_ports(void **state)
{
	const uint16_t loopback[] = {5432, 53}, own[] = {8080},
		       ports[] = {80, 8080, 53, 5432, 80, NET_PROXY_PORT};
	struct net_plan p = {.egress = true,
			     .ports_only = true,
			     .loopback = loopback,
			     .n_loopback = 2,
			     .ports = ports,
			     .n_ports = 6,
			     .own = own,
			     .n_own = 1};
	CLEANUP_FREE char *text = NULL;
	struct jail j;

	(void)state;
	jail_start(&j, &p);
	text = net_capture_text(&j.made);
	assert_string_equal(text,
			    "listed ports only, not all of them (no nf_tables: SBXSV_NO_NFTABLES is set)");
	assert_int_equal(j.made.capture, NET_CAPTURE_PORTS);
	assert_int_equal(j.n, 1 + 3 * 2 + 2 + 2 + 2 * 2);
	check_common(&j, find(&j, NET_TRANSPARENT, 80, AF_INET), find(&j, NET_TRANSPARENT, 80, AF_INET6));
	arrives(&j, "::ffff:8.8.8.8", 5432, find(&j, NET_TRANSPARENT, 5432, AF_INET), "8.8.8.8:5432");
	arrives(&j, "::ffff:8.8.8.8", NET_PROXY_PORT, find(&j, NET_TRANSPARENT, NET_PROXY_PORT, AF_INET),
		"8.8.8.8:3128");
	arrives(&j, "::ffff:127.0.0.1", 53, find(&j, NET_LOOPBACK, 53, AF_INET), "127.0.0.1:53");
	assert_int_equal(try_connect(&j, "::ffff:8.8.8.8", 443), ECONNREFUSED);
	assert_int_equal(try_connect(&j, "::ffff:8.8.8.8", 8080), ECONNREFUSED);
	jail_end(&j);
}

static void test_without_v6(void **state)
{
	const uint16_t loopback[] = {5432}, ports[] = {80};
	struct net_plan p = {
		.egress = true, .loopback = loopback, .n_loopback = 1, .ports = ports, .n_ports = 1};
	struct jail j;

	(void)state;
	if (access("/proc/sys/net/ipv6", F_OK) < 0)
		skip();
	for (int i = 0; i < 2; i++) {
		p.ports_only = i;
		without_v6 = true;
		jail_start(&j, &p);
		without_v6 = false;
		assert_false(j.made.v6);
		assert_int_equal(j.n, 5);
		if (j.made.capture == NET_CAPTURE_PORTS)
			arrives(&j, "::ffff:8.8.8.8", 80, find(&j, NET_TRANSPARENT, 80, AF_INET),
				"8.8.8.8:80");
		else
			arrives(&j, "::ffff:8.8.8.8", 22, find(&j, NET_TRANSPARENT, 0, AF_INET),
				"8.8.8.8:22");
		arrives(&j, "::ffff:127.0.0.1", 5432, find(&j, NET_LOOPBACK, 5432, AF_INET),
			"127.0.0.1:5432");
		jail_end(&j);
	}
}

/* A question on every address, and an answer from there. */
static void test_dns_sockets(void **state)
{
	static const char *const servers[] = {"127.0.0.1", "10.1.2.3", "198.18.0.1", "::1", "fd00::53"};
	struct net_plan p = {.egress = true};
	struct jail j;

	(void)state;
	jail_start(&j, &p);
	assert_true(find(&j, NET_DNS_UDP, 53, AF_INET) >= 0 && find(&j, NET_DNS_UDP, 53, AF_INET6) >= 0);
	for (size_t i = 0; i < ELEMENTS(servers); i++)
		ask_and_answer(&j, servers[i]);
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
	struct net_plan p = {.egress = true, .n_loopback = NET_LOOPBACK_MAX + 1};
	struct net_inside_result r = {.n = 77};
	CLEANUP_ERR struct err *e = NULL;
	int fds[NET_SOCKETS_MAX];

	(void)state;
	assert_int_equal(net_inside(&p, fds, &r, &e), -1);
	assert_int_equal(err_code(e), E2BIG);
	assert_int_equal(r.n, 77);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_inside),
		cmocka_unit_test(test_loopback_listens),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_ports),
		cmocka_unit_test(test_without_v6),
		cmocka_unit_test(test_dns_sockets),
		cmocka_unit_test(test_make_sockets_many),
		cmocka_unit_test(test_make_sockets_errors),
		cmocka_unit_test(test_too_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
