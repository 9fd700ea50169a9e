/*
 * Directories whose list of names is fixed at launch (struct plan_path, `shut`).
 *
 * A hidden place is covered by a mount. That holds for the file that is there now, not for the name: when the
 * host replaces the file by rename, removes it, or renames a directory above it, the kernel drops or moves
 * the mount in every namespace (detach_mounts() in fs/namespace.c), and the next file of that name is in
 * plain sight. What does not exist yet cannot be covered at all. So such a directory is made again, of clones
 * of its entries on stubs of our own; covers then lie on stubs, which nobody outside can touch.
 */
#include "sandbox/jail.h"
#include "sandbox/sys.h"
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

enum { SHUT_MAX = 8192 }; /* mounts; fs.mount-max allows 100,000 (proc(5)) */
static const char step[] = "mounts";

static bool make_stub(int dir, const char *name, unsigned char type)
{
	int fd;

	if (type == DT_DIR)
		return mkdirat(dir, name, 0755) == 0;
	fd = openat(dir, name, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd >= 0)
		(void)close(fd);
	return fd >= 0;
}

static void shut_link(struct child *c, int from, int to, const char *name)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(from, name, target, sizeof target - 1);

	if (n <= 0)
		return;
	target[n] = 0;
	if (symlinkat(target, to, name) < 0)
		child_fail(c, step, errno, "cannot make the link", name);
}

/* The plan says something about this very name: that is mounted on the stub, for a mount on the host's own
 * file would go when the host removes or replaces the file. */
static bool has_entry(const struct plan *p, const char *dir, const char *name)
{
	size_t n = strlen(dir);

	for (size_t i = 0; i < p->n_paths; i++)
		if (strncmp(p->paths[i].path, dir, n) == 0 && p->paths[i].path[n] == '/' &&
		    strcmp(p->paths[i].path + n + 1, name) == 0)
			return true;
	return false;
}

/* One name of a directory that is shut. What is gone meanwhile, or closed to this user, stays an empty stub.
 */
static void shut_entry(struct child *c, const char *path, int from, int to, const struct dirent64 *d,
		       unsigned attributes)
{
	struct sys_mount_attr a = {.set = SYS_MOUNT_ATTR_NOSUID | attributes, .propagation = SYS_MS_PRIVATE};
	unsigned char type = d->d_type;
	struct stat st;
	int tree;

	if (type == DT_UNKNOWN && fstatat(from, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		type = (unsigned char)IFTODT(st.st_mode);
	if (type == DT_LNK)
		shut_link(c, from, to, d->d_name);
	if (type != DT_DIR && type != DT_REG)
		return;
	if (!make_stub(to, d->d_name, type))
		child_fail(c, step, errno, "cannot make a place for", d->d_name);
	if (has_entry(c->plan, path, d->d_name))
		return;
	tree = sys_open_tree(from, d->d_name,
			     SYS_OPEN_TREE_CLONE | SYS_OPEN_TREE_CLOEXEC | SYS_AT_RECURSIVE |
				     AT_SYMLINK_NOFOLLOW);
	if (tree < 0)
		return;
	if (sys_mount_setattr(tree, SYS_AT_RECURSIVE, &a) < 0)
		child_fail(c, step, errno, "cannot set the mount flags of", d->d_name);
	/* file for directory, or a link: exchanged in this instant */
	if (sys_move_mount(tree, to, d->d_name) < 0 && errno != ENOTDIR && errno != EINVAL)
		child_fail(c, step, errno, "cannot mount", d->d_name);
	(void)close(tree);
}

void mounts_shut(struct child *c, int from, int to, const char *path, unsigned attributes)
{
	static char buf[32768] __attribute__((aligned(8)));
	int list = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	long n;

	if (list < 0)
		return; /* not ours to list: it shows nothing */
	while ((n = syscall(SYS_getdents64, list, buf, sizeof buf)) > 0)
		for (long at = 0; at < n;) {
			const struct dirent64 *d = (const void *)(buf + at);

			at += d->d_reclen;
			if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
				continue;
			if (++c->n_shut > SHUT_MAX)
				child_fail(c, step, 0,
					   "more than 8192 names beside hidden places (ReadMode=strict shows "
					   "none): in",
					   path);
			shut_entry(c, path, from, to, d, attributes);
		}
	if (n < 0)
		child_fail(c, step, errno, "cannot list", path);
	(void)close(list);
}
