/*
 * /etc/resolv.conf of a jail with policy DNS.
 *
 * Every address at port 53 leads to policy DNS, so any name server of the host's file would do, and none at
 * all (then programs ask 127.0.0.1). But the host's search domains would turn each name into several
 * questions, all of them refused and reported but one. So a file of ours lies over it, on the end of its
 * symbolic links: /run/systemd/resolve/stub-resolv.conf, say, which a jail does not have unless it is made
 * here.
 *
 * Nothing depends on it: where it cannot be covered the host's file stays.
 */
#include "sandbox/jail.h"
#include "sandbox/sys.h"
#include <errno.h>
#include <sys/stat.h>

static const char path[] = "etc/resolv.conf";

void resolv_write(int blank)
{
	/* "search .": without it the domain of the host's name would be the search list, resolv.conf(5) */
	static const char text[] = "# made by sbxsv: its policy answers, whichever server is asked\n"
				   "nameserver 198.18.0.1\nsearch .\n";
	int fd = openat(blank, "r", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0444);

	if (fd < 0)
		return;
	if (write(fd, text, sizeof text - 1) != (ssize_t)sizeof text - 1)
		(void)unlinkat(blank, "r", 0);
	(void)close(fd);
}

/* "/etc/../run/./x" without its dots, relative to the root. -1: it leads nowhere. */
static int fold(const char *link, char out[PATH_MAX])
{
	size_t n = 0;

	if (link[0] != '/') {
		(void)strcpy(out, "etc");
		n = 3;
	}
	while (*link) {
		size_t len;

		link += strspn(link, "/");
		len = strcspn(link, "/");
		if (len == 2 && link[0] == '.' && link[1] == '.') {
			while (n && out[n - 1] != '/')
				n--;
			n -= n > 0; /* the slash */
		} else if (len && !(len == 1 && link[0] == '.')) {
			if (n + len + 2 > PATH_MAX)
				return -1;
			if (n)
				out[n++] = '/';
			memcpy(out + n, link, len);
			n += len;
		}
		link += len;
	}
	out[n] = 0;
	return n ? 0 : -1;
}

/* A link whose end the jail does not show: made, where the root is ours. */
static int make_end(int root)
{
	char link[PATH_MAX], end[PATH_MAX];
	ssize_t n = readlinkat(root, path, link, sizeof link - 1);

	if (n <= 0)
		return -1;
	link[n] = 0;
	if (fold(link, end) < 0)
		return -1;
	for (char *s = end; (s = strchr(s, '/')) != NULL; *s++ = '/') {
		*s = 0;
		if (mkdirat(root, end, 0755) < 0 && errno != EEXIST)
			return -1;
	}
	return openat(root, end, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0444);
}

static int find_place(int root)
{
	int fd;

	do /* EAGAIN: a rename anywhere on the machine disturbed the walk, openat2(2) */
		fd = sys_openat2(root, path, O_PATH | O_CLOEXEC, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
	while (fd < 0 && errno == EAGAIN);
	return fd;
}

void mounts_resolv(struct child *c)
{
	int at = find_place(c->root), tree, made;
	struct stat st;

	if (at < 0 && errno == ENOENT && (made = make_end(c->root)) >= 0) {
		(void)close(made);
		at = find_place(c->root);
	}
	if (at < 0)
		return;
	tree = fstat(at, &st) == 0 && S_ISREG(st.st_mode)
		       ? sys_open_tree(c->blank, "r", SYS_OPEN_TREE_CLONE | SYS_OPEN_TREE_CLOEXEC)
		       : -1;
	if (tree >= 0 && landlock_allow(&c->landlock, tree, false, LANDLOCK_GRANT_READ) == 0)
		(void)sys_move_mount(tree, at, "");
	(void)close(at);
	if (tree >= 0)
		(void)close(tree);
}
