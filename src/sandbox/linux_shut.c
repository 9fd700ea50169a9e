/*
 * Directories whose list of names is fixed at launch (struct plan_path, `shut`; why, says plan_shut.c): made
 * again, of clones of the entries on stubs of our own. Covers then lie on stubs, which nobody outside can
 * touch. Sockets, FIFOs and devices are left out. What is gone before it could be cloned is simply not there.
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

/* The name below `dir` that `path` is, or NULL. */
static const char *name_in(const char *dir, const char *path)
{
	size_t n = dir[1] ? strlen(dir) : 0;

	return strncmp(path, dir, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

/* The plan says something about this very name: that is mounted on the stub, for a mount on the host's own
 * file would go when the host removes or replaces the file. */
static bool has_entry(const struct plan *p, size_t dir, const char *name)
{
	const char *is;

	/* sorted: what lies below a directory follows it */
	for (size_t i = dir + 1; i < p->n_paths && (is = name_in(p->paths[dir].path, p->paths[i].path)); i++)
		if (strcmp(is, name) == 0)
			return true;
	return false;
}

/* Made by mounts_build() as it was when the plan was made, whatever the host has there now. */
static bool has_link(const struct plan *p, const char *dir, const char *name)
{
	for (size_t i = 0; i < p->n_links; i++) {
		const char *is = name_in(dir, p->links[i].path);

		if (is && strcmp(is, name) == 0)
			return true;
	}
	return false;
}

/* false: gone, or exchanged in this instant. */
static bool shut_clone(struct child *c, int from, int to, const char *name, bool dir, unsigned attributes)
{
	struct sys_mount_attr a = {.set = SYS_MOUNT_ATTR_NOSUID | attributes, .propagation = SYS_MS_PRIVATE};
	int tree = sys_open_tree(from, name,
				 SYS_OPEN_TREE_CLONE | SYS_OPEN_TREE_CLOEXEC | SYS_AT_RECURSIVE |
					 SYS_AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW);
	bool done;

	if (tree < 0 && (errno == EMFILE || errno == ENOMEM || errno == ENOSPC))
		child_fail(c, step, errno, "cannot clone", name);
	if (tree < 0)
		return false;
	if (sys_mount_setattr(tree, SYS_AT_RECURSIVE, &a) < 0)
		child_fail(c, step, errno, "cannot set the mount flags of", name);
	done = sys_move_mount(tree, to, name) == 0;
	/* file for directory, or a link; ENOENT: removed since it was cloned (`to` is ours, nothing of it goes) */
	if (!done && errno != ENOTDIR && errno != EINVAL && errno != ENOENT)
		child_fail(c, step, errno, "cannot mount", name);
	/* EBADFD: of a file system that no rule can name, nsfs and the like; it stays unreadable */
	if (done && landlock_allow(&c->landlock, tree, dir, LANDLOCK_GRANT_READ) < 0 && errno != EBADFD)
		child_fail(c, "landlock", errno, "cannot add a rule for", name);
	(void)close(tree);
	return done;
}

/* One name of a directory that is shut. */
static void shut_entry(struct child *c, size_t i, int from, int to, const struct dirent64 *d,
		       unsigned attributes)
{
	const char *path = c->plan->paths[i].path;
	unsigned char type = d->d_type;
	struct stat st;

	if (has_link(c->plan, path, d->d_name))
		return;
	if (type == DT_UNKNOWN && fstatat(from, d->d_name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0)
		type = (unsigned char)IFTODT(st.st_mode);
	if (type == DT_LNK)
		shut_link(c, from, to, d->d_name);
	if (type != DT_DIR && type != DT_REG)
		return;
	if (!make_stub(to, d->d_name, type)) {
		if (errno == EEXIST && path[1] == 0)
			return; /* /dev, /proc and /tmp are there */
		child_fail(c, step, errno, "cannot make a place for", d->d_name);
	}
	if (has_entry(c->plan, i, d->d_name))
		return;
	if (!shut_clone(c, from, to, d->d_name, type == DT_DIR, attributes) &&
	    unlinkat(to, d->d_name, type == DT_DIR ? AT_REMOVEDIR : 0) < 0)
		child_fail(c, step, errno, "cannot leave out", d->d_name);
}

void mounts_shut(struct child *c, size_t i, int from, int to, unsigned attributes)
{
	const char *path = c->plan->paths[i].path;
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
			shut_entry(c, i, from, to, d, attributes);
		}
	if (n < 0)
		child_fail(c, step, errno, "cannot list", path);
	(void)close(list);
}
