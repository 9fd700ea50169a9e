/*
 * What the jail sees.
 *
 * The new root is built beside the old one and every source is looked up in the old one, by its host path.
 * It begins with an empty tmpfs. Then come /dev, /proc and a private /tmp, and then the entries of the plan
 * (the first of `open` is "/" itself, rebuilt of a clone of each of its entries), parents before children,
 * so that the most specific one lies on top: a grant is a clone of the host's tree, with its flags set
 * recursively (a remount is not: submounts would stay writable); a hidden place is covered. At the end the
 * parts of our own making are sealed read-only, the roots are exchanged by pivot_root, and the old one is
 * dropped.
 *
 * Paths of the plan have no symlinks left, and are opened that way (openat2), on both sides: an app that
 * shares a directory with this one may exchange a component for a symlink between plan and mount; then the
 * launch fails. From the open on, only fds are used.
 */
#include "sandbox/jail.h"
#include "sandbox/sys.h"
#include <errno.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum {
	SEALED = SYS_MOUNT_ATTR_RDONLY | SYS_MOUNT_ATTR_NOSUID | SYS_MOUNT_ATTR_NODEV | SYS_MOUNT_ATTR_NOEXEC
};
static const uint64_t no_symlinks = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;

static const char step[] = "mounts";

static int source(struct child *c, const char *path)
{
	/* without O_NOFOLLOW: with it, a link as the last name would be opened itself */
	int fd = sys_openat2(AT_FDCWD, path, O_PATH | O_CLOEXEC, no_symlinks);

	if (fd < 0 && errno == ELOOP)
		child_fail(c, step, 0, "it became a symbolic link while the app was being started:", path);
	if (fd < 0)
		child_fail(c, step, errno, "cannot reach", path);
	return fd;
}

/* The place in the new root, or -1 with errno. */
static int place(struct child *c, const char *path)
{
	const char *below = path[1] ? path + 1 : ".";
	int fd;

	do /* EAGAIN: a rename anywhere on the machine disturbed the walk, openat2(2) */
		fd = sys_openat2(c->root, below, O_PATH | O_NOFOLLOW | O_CLOEXEC,
				 no_symlinks | RESOLVE_BENEATH);
	while (fd < 0 && errno == EAGAIN);
	return fd;
}

/* Makes the directories above `path` where they lie in a file system of ours; `dir` says what the last name
 * becomes. */
static void make_place(struct child *c, const char *path, bool dir)
{
	char buf[PATH_MAX];
	int fd;

	if (strlen(path) >= sizeof buf)
		child_fail(c, step, ENAMETOOLONG, "cannot mount", path);
	(void)strcpy(buf, path + 1);
	for (char *s = buf; (s = strchr(s, '/')) != NULL; *s++ = '/') {
		*s = 0;
		if (mkdirat(c->root, buf, 0755) < 0 && errno != EEXIST && errno != EROFS)
			child_fail(c, step, errno, "cannot make a directory for", path);
	}
	if (dir) {
		if (mkdirat(c->root, buf, 0755) < 0 && errno != EEXIST)
			child_fail(c, step, errno, "cannot make a directory for", path);
		return;
	}
	fd = openat(c->root, buf, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0 && errno != EEXIST)
		child_fail(c, step, errno, "cannot make a file for", path);
	if (fd >= 0)
		(void)close(fd);
}

static int place_for(struct child *c, const char *path, bool dir)
{
	int fd = place(c, path);

	if (fd < 0 && errno == ENOENT) {
		make_place(c, path, dir);
		fd = place(c, path);
	}
	if (fd < 0)
		child_fail(c, step, errno, "cannot find the place for", path);
	return fd;
}

static void attach(struct child *c, int tree, int at, const char *path)
{
	if (sys_move_mount(tree, at, "") < 0)
		child_fail(c, step, errno, "cannot mount", path);
}

static void allow(struct child *c, int fd, bool dir, enum landlock_grant g, const char *path)
{
	if (landlock_allow(&c->landlock, fd, dir, g) < 0)
		child_fail(c, "landlock", errno, "cannot add a rule for", path);
}

/* A new file system, not attached yet. `key`s and values come in pairs up to NULL. */
static int make_fs(struct child *c, const char *type, const char *const *options, unsigned attributes)
{
	int fs = sys_fsopen(type), fd;

	if (fs < 0)
		child_fail(c, step, errno, "cannot make a file system of type", type);
	for (; options && *options; options += 2)
		if (sys_fsconfig(fs, SYS_FSCONFIG_SET_STRING, options[0], options[1]) < 0)
			child_fail(c, step, errno, "cannot set a mount option of", type);
	if (sys_fsconfig(fs, SYS_FSCONFIG_CMD_CREATE, NULL, NULL) < 0)
		child_fail(c, step, errno, "cannot make a file system of type", type);
	fd = sys_fsmount(fs, attributes);
	if (fd < 0 && strcmp(type, "proc") != 0)
		child_fail(c, step, errno, "cannot mount a file system of type", type);
	(void)close(fs);
	return fd;
}

static int make_tmpfs(struct child *c, const char *mode, const char *size, unsigned attributes)
{
	const char *const options[] = {"mode", mode, size ? "size" : NULL, size, NULL};

	return make_fs(c, "tmpfs", options, SYS_MOUNT_ATTR_NOSUID | attributes);
}

static void seal_later(struct child *c, int mount)
{
	if (c->n_seal >= ELEMENTS(c->seal))
		child_fail(c, step, E2BIG, "too many hidden places with grants below or beside them", NULL);
	c->seal[c->n_seal++] = mount;
}

/* --- grants --- */

static int clone_tree(struct child *c, int from, unsigned attributes, const char *path)
{
	struct sys_mount_attr a = {.set = SYS_MOUNT_ATTR_NOSUID | attributes, .propagation = SYS_MS_PRIVATE};
	int tree = sys_open_tree(
		from, "", SYS_OPEN_TREE_CLONE | SYS_OPEN_TREE_CLOEXEC | SYS_AT_RECURSIVE | AT_EMPTY_PATH);

	if (tree < 0)
		child_fail(c, step, errno, "cannot clone", path);
	if (sys_mount_setattr(tree, SYS_AT_RECURSIVE, &a) < 0)
		child_fail(c, step, errno, "cannot set the mount flags of", path);
	return tree;
}

/* A directory of an app that may not exist yet: made as the app's user, private, no symlink on the way. 0, or
 * -1 with errno. */
static int make_data_directory(const char *path)
{
	char name[NAME_MAX + 1];
	int at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	for (const char *p = path; *p && at >= 0;) {
		size_t len;
		int next;

		p += strspn(p, "/");
		len = strcspn(p, "/");
		if (len == 0)
			break;
		if (len >= sizeof name) {
			(void)close(at);
			errno = ENAMETOOLONG;
			return -1;
		}
		memcpy(name, p, len);
		name[len] = 0;
		p += len;
		next = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0 && errno == ENOENT && (mkdirat(at, name, 0700) == 0 || errno == EEXIST))
			next = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		(void)close(at);
		at = next;
	}
	if (at < 0)
		return -1;
	(void)close(at);
	return 0;
}

/* Landlock gets a rule for each clone and none for the directory: a hidden place that came uncovered after
 * all would not be readable. A plan made by root may name what the app's user cannot reach: then there is
 * nothing to show. */
static void grant_shut(struct child *c, size_t i)
{
	const struct plan_path *p = &c->plan->paths[i];
	unsigned keep = SYS_MOUNT_ATTR_NODEV | (p->noexec ? SYS_MOUNT_ATTR_NOEXEC : 0);
	int from = sys_openat2(AT_FDCWD, p->path, O_PATH | O_CLOEXEC, no_symlinks), to = c->root;
	/* ENOENT: removed since the plan was made; then an empty directory of ours stands there, and hides the rest */
	bool closed = from < 0 && (errno == EACCES || (errno == ENOENT && p->path[1]));

	if (from < 0 && !closed)
		from = source(c, p->path); /* says what is wrong */
	if (p->path[1]) {                  /* "/" is our root already; the path leads to the old one still */
		int at = place(c, p->path);

		if (at < 0 && errno == EACCES && closed)
			return;
		if (at >= 0)
			(void)close(at);
		to = make_tmpfs(c, "0755", "16m", keep);
		attach(c, to, place_for(c, p->path, true), p->path);
		seal_later(c, to);
	}
	if (closed)
		return;
	mounts_shut(c, i, from, to, keep | SYS_MOUNT_ATTR_RDONLY);
	(void)close(from);
}

static void grant(struct child *c, const struct plan_path *p)
{
	bool write = p->access == PLAN_WRITE;
	unsigned attributes = SYS_MOUNT_ATTR_NODEV | (write || p->socket ? 0 : SYS_MOUNT_ATTR_RDONLY) |
			      (p->noexec ? SYS_MOUNT_ATTR_NOEXEC : 0);
	int from, tree;

	if (p->create && make_data_directory(p->path) < 0)
		child_fail(c, "directories", errno, "cannot make", p->path);
	from = source(c, p->path);
	tree = clone_tree(c, from, attributes, p->path);
	attach(c, tree, place_for(c, p->path, p->dir), p->path);
	allow(c, from, p->dir, write ? LANDLOCK_GRANT_WRITE : LANDLOCK_GRANT_READ, p->path);
	(void)close(from);
	(void)close(tree);
}

static void device(struct child *c, const char *path)
{
	int from = source(c, path), tree;

	tree = sys_open_tree(from, "", SYS_OPEN_TREE_CLONE | SYS_OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	if (tree < 0)
		child_fail(c, step, errno, "cannot clone", path);
	attach(c, tree, place_for(c, path, false), path);
	allow(c, from, false, LANDLOCK_GRANT_DEVICES, path);
	(void)close(from);
	(void)close(tree);
}

/* --- hidden places --- */

static bool below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && path[n] == '/';
}

static bool has_grant_below(const struct plan *p, size_t i)
{
	for (size_t k = i + 1; k < p->n_paths && below(p->paths[k].path, p->paths[i].path); k++)
		if (p->paths[k].access != PLAN_HIDE || p->paths[k].empty)
			return true;
	return false;
}

/* One file system holds the covers of all hidden places: a directory and a file that nobody may open. It
 * hangs on the old root, out of everybody's sight: clones are made of attached mounts only. */
static void make_blank(struct child *c)
{
	struct sys_mount_attr a = {.set = SEALED};
	int fd;

	c->blank = make_tmpfs(c, "0755", "4k", SYS_MOUNT_ATTR_NODEV | SYS_MOUNT_ATTR_NOEXEC);
	fd = openat(c->blank, "f", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0);
	if (fd < 0 || mkdirat(c->blank, "d", 0) < 0)
		child_fail(c, step, errno, "cannot make the cover of hidden places", NULL);
	(void)close(fd);
	if (c->plan->dns)
		resolv_write(c->blank);
	if (sys_mount_setattr(c->blank, 0, &a) < 0 || sys_move_mount(c->blank, AT_FDCWD, "/proc") < 0)
		child_fail(c, step, errno, "cannot seal the cover of hidden places", NULL);
}

static void cover(struct child *c, int at, bool dir, const char *path)
{
	int tree = sys_open_tree(c->blank, dir ? "d" : "f", SYS_OPEN_TREE_CLONE | SYS_OPEN_TREE_CLOEXEC);

	if (tree < 0)
		child_fail(c, step, errno, "cannot make a cover for", path);
	attach(c, tree, at, path);
	(void)close(tree);
}

static void hide(struct child *c, size_t i)
{
	const char *path = c->plan->paths[i].path;
	struct stat st;
	int at;

	if (c->plan->paths[i].create)
		(void)make_data_directory(path); /* what cannot be made cannot be made by that app either */
	at = place(c, path);

	if (at < 0) {
		/* not there, or the app cannot get there either: same user, fewer rights */
		if (errno == ENOENT || errno == ENOTDIR || errno == EACCES)
			return;
		child_fail(c, step, errno, "cannot hide", path);
	}
	if (fstat(at, &st) < 0)
		child_fail(c, step, errno, "cannot hide", path);
	if (S_ISDIR(st.st_mode) && has_grant_below(c->plan, i)) {
		int fs = make_tmpfs(c, "0755", "1m", SYS_MOUNT_ATTR_NODEV | SYS_MOUNT_ATTR_NOEXEC);

		attach(c, fs, at, path);
		seal_later(c, fs);
	} else {
		cover(c, at, S_ISDIR(st.st_mode), path);
	}
	(void)close(at);
}

static void plan_entry(struct child *c, size_t i)
{
	const struct plan_path *p = &c->plan->paths[i];

	if (p->access == PLAN_HIDE)
		hide(c, i);
	else if (p->empty)
		(void)close(place_for(c, p->path, true));
	else if (p->shut)
		grant_shut(c, i);
	else if (p->path[1] == 0)
		child_fail(c, step, EINVAL, "the plan shows all of", p->path);
	else
		grant(c, p);
}

/* --- /dev /proc /tmp --- */

/* $NOTIFY_SOCKET, in a directory that the app cannot change (it is sealed later). With SO_PASSCRED from its first
 * moment on, so that no message comes without its sender. */
static void make_notify(struct child *c, int dev)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	const int on = 1;

	_Static_assert(sizeof PLAN_NOTIFY_SOCKET - sizeof "/dev/" < sizeof to.sun_path, "fits");
	(void)strcpy(to.sun_path, &PLAN_NOTIFY_SOCKET[sizeof "/dev/" - 1]);
	c->notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (c->notify < 0 || setsockopt(c->notify, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0 ||
	    fchdir(dev) < 0 || bind(c->notify, (struct sockaddr *)&to, sizeof to) < 0)
		child_fail(c, "notify", errno, "cannot make", PLAN_NOTIFY_SOCKET);
}

static void make_dev(struct child *c)
{
	static const char *const nodes[] = {"/dev/null",   "/dev/zero",    "/dev/full",
					    "/dev/random", "/dev/urandom", "/dev/tty"};
	static const char *const links[][2] = {{"/proc/self/fd", "fd"},
					       {"/proc/self/fd/0", "stdin"},
					       {"/proc/self/fd/1", "stdout"},
					       {"/proc/self/fd/2", "stderr"},
					       {"pts/ptmx", "ptmx"}};
	static const char *const pts_options[] = {"ptmxmode", "0666", "mode", "0620", NULL};
	int at = place_for(c, "/dev", true), dev = make_tmpfs(c, "0755", "64k", SYS_MOUNT_ATTR_NOEXEC), pts,
	    shm;
	char size[24];

	attach(c, dev, at, "/dev");
	(void)close(at);
	seal_later(c, dev);
	for (size_t i = 0; i < ELEMENTS(nodes); i++)
		device(c, nodes[i]);
	for (size_t i = 0; i < ELEMENTS(links); i++)
		if (symlinkat(links[i][0], dev, links[i][1]) < 0)
			child_fail(c, step, errno, "cannot make a link in /dev to", links[i][0]);
	if (c->plan->notify)
		make_notify(c, dev);
	pts = make_fs(c, "devpts", pts_options, SYS_MOUNT_ATTR_NOSUID | SYS_MOUNT_ATTR_NOEXEC);
	at = place_for(c, "/dev/pts", true);
	attach(c, pts, at, "/dev/pts");
	(void)close(at);
	allow(c, pts, true, LANDLOCK_GRANT_DEVICES, "/dev/pts");
	(void)close(pts);
	(void)snprintf(size, sizeof size, "%llu", (unsigned long long)c->plan->tmp_size);
	shm = make_tmpfs(c, "1777", c->plan->tmp_size ? size : NULL, SYS_MOUNT_ATTR_NODEV);
	at = place_for(c, "/dev/shm", true);
	attach(c, shm, at, "/dev/shm");
	(void)close(at);
	allow(c, shm, true, LANDLOCK_GRANT_WRITE, "/dev/shm");
	(void)close(shm);
	allow(c, dev, true, LANDLOCK_GRANT_DEVICES, "/dev");
}

static void make_tmp(struct child *c)
{
	char size[24];
	int at = place_for(c, "/tmp", true), tmp;

	(void)snprintf(size, sizeof size, "%llu", (unsigned long long)c->plan->tmp_size);
	tmp = make_tmpfs(c, "1777", c->plan->tmp_size ? size : NULL, SYS_MOUNT_ATTR_NODEV);
	attach(c, tmp, at, "/tmp");
	allow(c, tmp, true, LANDLOCK_GRANT_WRITE, "/tmp");
	(void)close(at);
	(void)close(tmp);
}

/* Kernel knobs below /proc are guarded by global ids and capabilities the app does not have. That is one
 * check in many files of the kernel; a read-only mount is one more, in one place. */
static void cover_proc(struct child *c, int proc)
{
	static const char *const read_only[] = {"sys", "sysrq-trigger", "irq", "bus", "fs"};
	static const char *const blank[] = {"acpi", "scsi", "kcore", "keys", "latency_stats", "timer_list"};
	struct sys_mount_attr a = {.set = SEALED};

	for (size_t i = 0; i < ELEMENTS(read_only); i++) {
		int tree = sys_open_tree(proc, read_only[i], SYS_OPEN_TREE_CLONE | SYS_OPEN_TREE_CLOEXEC);

		if (tree < 0 && errno == ENOENT)
			continue;
		if (tree < 0 || sys_mount_setattr(tree, 0, &a) < 0 ||
		    sys_move_mount(tree, proc, read_only[i]) < 0)
			child_fail(c, step, errno, "cannot make read-only in /proc:", read_only[i]);
		(void)close(tree);
	}
	for (size_t i = 0; i < ELEMENTS(blank); i++) {
		int at = openat(proc, blank[i], O_PATH | O_NOFOLLOW | O_CLOEXEC);
		struct stat st;

		if (at < 0)
			continue;
		if (fstat(at, &st) < 0)
			child_fail(c, step, errno, "cannot hide in /proc:", blank[i]);
		cover(c, at, S_ISDIR(st.st_mode), blank[i]);
		(void)close(at);
	}
}

/* The limit belongs to the user namespace of whoever opens the file, so any /proc would do. */
static void limit_user_namespaces(struct child *c, int proc)
{
	int fd;

	if (c->plan->nested_sandbox)
		return;
	fd = openat(proc, "sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, "0", 1) == 1)
		c->msg.got |= GOT_NESTED_OFF;
	else if (!c->filter) /* else the filter refuses them */
		child_miss(c, step, errno, "cannot switch off nested user namespaces", NULL);
	if (fd >= 0)
		(void)close(fd);
}

static void make_proc(struct child *c)
{
	int at = place_for(c, "/proc", true);
	int proc = make_fs(c, "proc", NULL,
			   SYS_MOUNT_ATTR_NOSUID | SYS_MOUNT_ATTR_NODEV | SYS_MOUNT_ATTR_NOEXEC);

	if (proc < 0) {
		/* Never the old one: it shows the processes of the host. Best effort is a jail without /proc.
		 */
		child_miss(c, "proc", errno, "cannot mount a fresh /proc", NULL);
		cover(c, at, true, "/proc");
		(void)close(at);
		return;
	}
	limit_user_namespaces(c, proc);
	attach(c, proc, at, "/proc");
	cover_proc(c, proc);
	allow(c, proc, true, LANDLOCK_GRANT_PROC, "/proc");
	(void)close(at);
	(void)close(proc);
}

/* --- the whole --- */

static void make_root(struct child *c)
{
	/* 16 MiB: room for the names of a shut "/" */
	c->root = make_tmpfs(c, "0755", "16m", SYS_MOUNT_ATTR_NODEV);
	seal_later(c, c->root);
	/* `ls` of whatever the mounts show; reading is granted piece by piece */
	allow(c, c->root, true, LANDLOCK_GRANT_LIST, "/");
	/* on top of "/": nothing that starts at our root crosses into it before pivot_root */
	if (sys_move_mount(c->root, AT_FDCWD, "/") < 0)
		child_fail(c, step, errno, "cannot attach the new root", NULL);
}

static void make_links(struct child *c)
{
	for (size_t i = 0; i < c->plan->n_links; i++) {
		const struct plan_link *l = &c->plan->links[i];
		char parent[PATH_MAX];
		char *slash;

		if (strlen(l->path) >= sizeof parent)
			child_fail(c, step, ENAMETOOLONG, "cannot make the link", l->path);
		(void)strcpy(parent, l->path);
		slash = strrchr(parent, '/');
		if (slash != parent) {
			*slash = 0;
			(void)close(place_for(c, parent, true));
		}
		if (symlinkat(l->target, c->root, l->path + 1) < 0 && errno != EEXIST && errno != EROFS)
			child_fail(c, step, errno, "cannot make the link", l->path);
	}
}

static void seal(struct child *c)
{
	struct sys_mount_attr a = {.set = SYS_MOUNT_ATTR_RDONLY};

	for (size_t i = 0; i < c->n_seal; i++)
		if (sys_mount_setattr(c->seal[i], 0, &a) < 0)
			child_fail(c, step, errno, "cannot make the jail's own directories read-only", NULL);
}

void mounts_build(struct child *c)
{
	make_root(c);
	make_blank(c);
	make_dev(c);
	make_proc(c);
	make_tmp(c);
	/* outside of everything the jail has, but executed in it */
	allow(c, c->io->init_fd, false, LANDLOCK_GRANT_READ, "sbxsv-init");
	for (size_t i = 0; i < c->plan->n_paths; i++)
		plan_entry(c, i);
	for (size_t i = 0; i < c->plan->devices.n; i++)
		device(c, c->plan->devices.v[i]);
	make_links(c);
	if (c->plan->dns)
		mounts_resolv(c);
	seal(c);
	if (fchdir(c->root) < 0 || sys_pivot_root(".", ".") < 0)
		child_fail(c, step, errno, "cannot enter the new root", NULL);
	if (umount2(".", MNT_DETACH) < 0)
		child_fail(c, step, errno, "cannot drop the old root", NULL);
	if (chdir("/") < 0)
		child_fail(c, step, errno, "cannot enter the new root", NULL);
}
