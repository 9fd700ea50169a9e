/* The listening sockets of a port by sock_diag(7), their holders by /proc/PID/fd. */
#include "ports/internal.h"
#include "base/parse.h"
#include "base/str.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TCP_LISTEN_STATE 10  /* include/net/tcp_states.h */
#define SOCKETS_MAX      256 /* SO_REUSEPORT allows many on one port */

struct sock {
	uint32_t inode, uid;
	char address[46];
	bool held;
};
struct socks {
	struct sock v[SOCKETS_MAX];
	size_t n;
};

static void take_socket(struct socks *s, const struct inet_diag_msg *m, uint16_t port)
{
	struct sock *k = &s->v[s->n];

	if (ntohs(m->id.idiag_sport) != port || m->idiag_state != TCP_LISTEN_STATE || s->n == SOCKETS_MAX)
		return;
	*k = (struct sock){.inode = m->idiag_inode, .uid = m->idiag_uid};
	if (inet_ntop(m->idiag_family, m->id.idiag_src, k->address, sizeof k->address))
		s->n++;
}

/* One dump of one family; the answer of the kernel is complete or an error. */
static int dump(int fd, int family, uint16_t port, struct socks *s, struct err **e)
{
	struct {
		struct nlmsghdr h;
		struct inet_diag_req_v2 r;
	} q = {.h = {.nlmsg_len = sizeof q,
		     .nlmsg_type = SOCK_DIAG_BY_FAMILY,
		     .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
	       .r = {.sdiag_family = (uint8_t)family,
		     .sdiag_protocol = IPPROTO_TCP,
		     .idiag_states = 1u << TCP_LISTEN_STATE,
		     .id.idiag_sport = htons(port)}};
	union {
		struct nlmsghdr h;
		char b[32768];
	} buf;

	if (send(fd, &q, sizeof q, 0) < 0)
		return err_sys(e, errno, "sock_diag");
	for (;;) {
		ssize_t got = recv(fd, &buf, sizeof buf, 0);
		int n = (int)got;

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return err_sys(e, got < 0 ? errno : EPROTO, "sock_diag");
		for (struct nlmsghdr *h = &buf.h; NLMSG_OK(h, (unsigned)n); h = NLMSG_NEXT(h, n)) {
			if (h->nlmsg_type == NLMSG_DONE)
				return 0;
			if (h->nlmsg_type == NLMSG_ERROR) {
				const struct nlmsgerr *err = NLMSG_DATA(h);

				if (family == AF_INET6 && err->error == -ENOENT)
					return 0; /* a kernel without IPv6 */
				return err_sys(e, -err->error, "sock_diag");
			}
			take_socket(s, NLMSG_DATA(h), port);
		}
	}
}

/* "socket:[123]" -> 123, or 0 */
static uint32_t link_inode(const char *text)
{
	static const char kind[] = "socket:[";
	char *end;
	unsigned long inode;

	if (!str_starts(text, kind)) /* most are not */
		return 0;
	inode = strtoul(text + sizeof kind - 1, &end, 10);
	return end[0] == ']' && !end[1] && inode <= UINT32_MAX ? (uint32_t)inode : 0;
}

static void look_at(pid_t pid, int dir, const char *name, struct socks *s, struct port_holders *ret)
{
	char text[64];
	ssize_t n = name[0] == '.' ? -1 : readlinkat(dir, name, text, sizeof text - 1);
	uint32_t inode;

	if (n <= 0)
		return;
	text[n] = 0;
	inode = link_inode(text);
	for (size_t i = 0; inode && i < s->n; i++) {
		if (s->v[i].inode != inode)
			continue;
		s->v[i].held = true;
		ports_add_process(ret, pid, s->v[i].address);
	}
}

/* The system call, for fdopendir(3) makes a buffer of 32 KiB for each process. */
static void look_into(pid_t pid, int proc, const char *name, struct socks *s, struct port_holders *ret)
{
	static char buf[8192] __attribute__((aligned(8)));
	char path[32];
	int fd = -1;
	long n;

	(void)snprintf(path, sizeof path, "%.16s/fd", name);
	fd = openat(proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) /* not ours to look at, or gone */
		return;
	while ((n = syscall(SYS_getdents64, fd, buf, sizeof buf)) > 0)
		for (long at = 0; at < n;) {
			const struct dirent64 *e = (const void *)(buf + at);

			at += e->d_reclen;
			look_at(pid, fd, e->d_name, s, ret);
		}
	(void)close(fd);
}

/* Every process, not only those of the socket's owner: a listener outlives a setuid(), and every holder
 * counts. */
static int scan_proc(struct socks *s, struct port_holders *ret, struct err **e)
{
	CLEANUP_DIR DIR *d = opendir("/proc");
	struct dirent *entry;
	uint64_t pid;

	if (!d)
		return err_sys(e, errno, "/proc");
	while ((entry = readdir(d)))
		if (parse_u64(entry->d_name, INT32_MAX, &pid) == 0)
			look_into((pid_t)pid, dirfd(d), entry->d_name, s, ret);
	return 0;
}

int ports_find_diag(uint16_t port, struct port_holders *ret, struct err **e)
{
	CLEANUP_FD int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	struct socks s;

	s.n = 0;
	if (fd < 0)
		return err_sys(e, errno, "sock_diag");
	if (dump(fd, AF_INET, port, &s, e) < 0 || dump(fd, AF_INET6, port, &s, e) < 0)
		return -1;
	if (s.n == 0)
		return 0;
	if (scan_proc(&s, ret, e) < 0)
		return -1;
	for (size_t i = 0; i < s.n; i++)
		if (!s.v[i].held)
			ports_add_unseen(ret, s.v[i].uid, s.v[i].address);
	return 0;
}
