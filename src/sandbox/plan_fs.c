/*
 * The real file system behind struct plan_fs. Reading is bounded, never blocks on a FIFO or a device, and
 * follows no symlink: plan code has resolved the path, so one that is there now was put there in between.
 */
#include "sandbox/plan.h"
#include "base/fd.h"
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static int real_lstat(void *data, const char *path, struct stat *st)
{
	(void)data;
	return lstat(path, st);
}

static char *real_readlink(void *data, const char *path)
{
	char buf[PATH_MAX + 1];
	ssize_t n = readlink(path, buf, sizeof buf);

	(void)data;
	if (n < 0)
		return NULL;
	if ((size_t)n == sizeof buf) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	return xstrndup(buf, (size_t)n);
}

static char *real_head(void *data, const char *path, size_t max)
{
	CLEANUP_FD int fd = file_open_nofollow(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	CLEANUP_FREE char *buf = NULL;
	struct stat st;
	size_t len = 0;

	(void)data;
	if (fd < 0 || fstat(fd, &st) < 0)
		return NULL;
	if (!S_ISREG(st.st_mode)) {
		errno = EINVAL;
		return NULL;
	}
	buf = xmalloc(max + 1);
	while (len < max) {
		ssize_t n = read(fd, buf + len, max - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return NULL;
		if (n == 0)
			break;
		len += (size_t)n;
	}
	buf[len] = 0;
	return TAKE_PTR(buf);
}

/* A directory as a DIR, no symlink followed. NULL with errno. */
static DIR *open_dir(const char *path)
{
	int fd = file_open_nofollow(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !d)
		(void)close(fd);
	return d;
}

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static int real_list(void *data, const char *path, struct strv *ret)
{
	CLEANUP_FREE char *plain = path_join("/", path);
	CLEANUP_DIR DIR *d = open_dir(plain);

	(void)data;
	if (!d)
		return -1;
	errno = 0;
	for (struct dirent *e = readdir(d); e; e = readdir(d))
		if (!is_dots(e->d_name))
			strv_add(ret, e->d_name);
	return errno ? -1 : 0;
}

static unsigned char type_of(int dirfd, const struct dirent *e)
{
	struct stat st;

	if (e->d_type != DT_UNKNOWN)
		return e->d_type;
	if (fstatat(dirfd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return DT_UNKNOWN;
	return (unsigned char)IFTODT(st.st_mode);
}

static int real_scan(void *data, const char *path, struct strv *ret_dirs, struct strv *ret_specials)
{
	CLEANUP_DIR DIR *d = open_dir(path);

	(void)data;
	if (!d)
		return -1;
	for (;;) {
		struct dirent *e;
		unsigned char type;

		errno = 0;
		e = readdir(d);
		if (!e)
			return errno ? -1 : 0;
		if (is_dots(e->d_name))
			continue;
		type = type_of(dirfd(d), e);
		if (type == DT_DIR)
			strv_add(ret_dirs, e->d_name);
		else if (type == DT_SOCK || type == DT_FIFO)
			strv_add(ret_specials, e->d_name);
	}
}

/* Asked without disturbing anybody: connecting a datagram socket to a bound stream socket fails with
 * EPROTOTYPE before the listener hears of it, to a bound datagram socket it only notes the peer, and to a
 * file nobody has bound it fails with ECONNREFUSED (unix_find_bsd() in net/unix/af_unix.c). Works over
 * network namespaces, too. */
static bool real_socket_live(void *data, const char *path)
{
	CLEANUP_FD int sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	CLEANUP_FD int file = file_open_nofollow(AT_FDCWD, path, O_PATH, 0);
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	(void)data;
	if (sock < 0 || file < 0)
		return true;
	(void)snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d", file);
	if (connect(sock, (const struct sockaddr *)&a, sizeof a) == 0)
		return true;
	return errno != ECONNREFUSED;
}

/* One part of the answer. 1: it was the last, 0: more follows, -1: it says nothing that can be relied on. */
static int take_sockets(const void *buf, size_t n, struct strv *ret)
{
	for (const struct nlmsghdr *h = buf; NLMSG_OK(h, n); h = NLMSG_NEXT(h, n)) {
		const struct unix_diag_msg *m = NLMSG_DATA(h);
		int left = (int)NLMSG_PAYLOAD(h, sizeof *m);

		if (h->nlmsg_type == NLMSG_DONE)
			return h->nlmsg_flags & NLM_F_DUMP_INTR ? -1 : 1;
		if (h->nlmsg_type != SOCK_DIAG_BY_FAMILY || h->nlmsg_flags & NLM_F_DUMP_INTR || left < 0)
			return -1;
		for (const struct rtattr *a = (const void *)(m + 1); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
			const char *name = RTA_DATA(a);
			size_t len = RTA_PAYLOAD(a);

			if (a->rta_type != UNIX_DIAG_NAME || !len || *name != '/')
				continue;
			strv_take(ret, xstrndup(name, strnlen(name, len)));
		}
	}
	return 0;
}

/* sock_diag(7), "UNIX domain sockets": a quarter of what the same costs as text in /proc. */
static int bound_by_diag(struct strv *ret)
{
	const struct {
		struct nlmsghdr h;
		struct unix_diag_req r;
	} q = {.h = {.nlmsg_len = sizeof q,
		     .nlmsg_type = SOCK_DIAG_BY_FAMILY,
		     .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
	       .r = {.sdiag_family = AF_UNIX, .udiag_states = ~0U, .udiag_show = UDIAG_SHOW_NAME}};
	CLEANUP_FD int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	char buf[32768] __attribute__((aligned(NLMSG_ALIGNTO))); /* the kernel fills no more at a time */
	int r = 0;

	if (sock < 0 || send(sock, &q, sizeof q, 0) < 0)
		return -1;
	while (r == 0) {
		ssize_t n = recv(sock, buf, sizeof buf, MSG_TRUNC | MSG_DONTWAIT);

		if (n <= 0 || (size_t)n > sizeof buf)
			return -1;
		r = take_sockets(buf, (size_t)n, ret);
	}
	return r > 0 ? 0 : -1;
}

static int bound_by_proc(struct strv *ret)
{
	FILE *f =
		fopen("/proc/net/unix", "re"); /* proc(5): "Num RefCount Protocol Flags Type St Inode Path" */
	char line[512];

	if (!f)
		return -1;
	while (fgets(line, sizeof line, f)) {
		char *path = strstr(line, " /");

		if (!path)
			continue;
		path[strcspn(path, "\n")] = 0;
		strv_add(ret, path + 1);
	}
	(void)fclose(f);
	return 0;
}

/* A kernel without unix_diag, or a dump that sockets changed under: /proc says it always. */
static int real_bound(void *data, struct strv *ret)
{
	CLEANUP_STRV struct strv v = {0};

	(void)data;
	if (bound_by_diag(&v) < 0)
		return bound_by_proc(ret);
	strv_copy(ret, &v);
	return 0;
}

static char *real_mountinfo(void *data)
{
	char *text = NULL;

	(void)data;
	(void)file_read(AT_FDCWD, "/proc/self/mountinfo", SIZE_MAX, &text, NULL, NULL);
	return text;
}

struct plan_fs plan_fs_real(void)
{
	return (struct plan_fs){
		.lstat = real_lstat,
		.readlink = real_readlink,
		.head = real_head,
		.list = real_list,
		.scan = real_scan,
		.socket_live = real_socket_live,
		.bound = real_bound,
		.mountinfo = real_mountinfo,
	};
}
