/* The tree of a supervisor, see cgroup.h. The groups of apps are in cgroup_group.c. */
#include "sandbox/cgroup_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#define CGROUP2_MAGIC 0x63677270 /* linux/magic.h CGROUP2_SUPER_MAGIC */
#define SUPERVISOR    "supervisor"
#define DEPTH_MAX     8    /* of groups that an app without a jail made in its own */
#define REAP_MS       2000 /* as long as the processes of an earlier run are waited for */

/* --- small files --- */

int cgroup_read(int dir, const char *name, char *buf, size_t cap)
{
	CLEANUP_FD int fd = dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, cap - 1);

	buf[n > 0 ? n : 0] = 0;
	return n < 0 ? -1 : 0;
}

int cgroup_write(const struct cgroup_tree *t, int dir, const char *name, const char *text)
{
	CLEANUP_FD int fd = t->w.write ? -1 : openat(dir, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n;

	if (t->w.write)
		return t->w.write(dir, name, text);
	n = fd < 0 ? -1 : write(fd, text, strlen(text));

	return n == (ssize_t)strlen(text) ? 0 : -1;
}

int cgroup_sub(int dir, const char *name)
{
	return openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

static int make_dir(const struct cgroup_tree *t, int dir, const char *name)
{
	return t->w.make ? t->w.make(dir, name) : mkdirat(dir, name, 0755);
}

/* With the groups in it, which have no processes any more. */
int cgroup_remove_below(const struct cgroup_tree *t, int dir, const char *name, unsigned depth)
{
	int fd = depth < DEPTH_MAX ? cgroup_sub(dir, name) : -1;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;

	if (!d && fd >= 0)
		(void)close(fd);
	while (d && (e = readdir(d)))
		if (e->d_type == DT_DIR && e->d_name[0] != '.')
			(void)cgroup_remove_below(t, dirfd(d), e->d_name, depth + 1);
	if (d)
		(void)closedir(d);
	return t->w.remove ? t->w.remove(dir, name) : unlinkat(dir, name, AT_REMOVEDIR);
}

/* --- where we are --- */

static char *read_text(const char *path)
{
	CLEANUP_FILE FILE *f = fopen(path, "re");
	struct strbuf b = STRBUF_INIT;
	char buf[4096];
	size_t n;

	while (f && b.len < 1u << 20 && (n = fread(buf, 1, sizeof buf, f)) > 0)
		strbuf_add(&b, buf, n);
	return strbuf_take(&b);
}

static bool is_group(const struct cgroup_tree *t, int fd)
{
	struct statfs fs;

	return fd >= 0 && (t->w.any_fs || (fstatfs(fd, &fs) == 0 && fs.f_type == CGROUP2_MAGIC));
}

/* The directory of our own group. */
static int find_own(struct cgroup_tree *t)
{
	CLEANUP_FREE char *procs = read_text(t->w.proc_cgroup ? t->w.proc_cgroup : "/proc/self/cgroup");
	CLEANUP_FREE char *mounts = read_text(t->w.mountinfo ? t->w.mountinfo : "/proc/self/mountinfo");
	CLEANUP_FREE char *path = cgroup_path_of(procs);

	t->own = path ? cgroup_directory_of(mounts, path) : NULL;
	if (!t->own) {
		t->why = xstrdup("there is no cgroup v2 here that this process is in");
		return -1;
	}
	t->own_fd = open(t->own, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (is_group(t, t->own_fd))
		return 0;
	t->why = xasprintf("%s cannot be opened, or is no cgroup v2", t->own);
	return -1;
}

/* Where systemd divides the groups it says whose this one is: user.delegate since version 251, trusted.delegate, which root
 * alone can read, since 236. Our units say it to those in between. */
static bool is_delegated(struct cgroup_tree *t)
{
	static const char *const attributes[] = {"user.delegate", "trusted.delegate"};
	const char *said = getenv("SBXSV_DELEGATED");
	char value[8];

	if (access(t->w.systemd ? t->w.systemd : "/run/systemd/system", F_OK) != 0 || str_eq(said, "1"))
		return true;
	for (size_t i = 0; i < ELEMENTS(attributes); i++)
		if (fgetxattr(t->own_fd, attributes[i], value, sizeof value) > 0 && value[0] == '1')
			return true;
	t->why = xasprintf("%s is systemd's and not delegated: start sbxsvd by a unit with Delegate=yes "
			   "(contrib/systemd, sbxsv "
			   "autostart)",
			   t->own);
	return false;
}

/* --- controllers --- */

/* The first process of the group that is not this one; 0. */
static long other_in(int group)
{
	char procs[4096], *save = NULL;

	if (cgroup_read(group, "cgroup.procs", procs, sizeof procs) < 0)
		return 0;
	for (char *p = strtok_r(procs, "\n", &save); p; p = strtok_r(NULL, "\n", &save))
		if (strtol(p, NULL, 10) != getpid())
			return strtol(p, NULL, 10);
	return 0;
}

static unsigned enabled_in(int dir)
{
	char text[512];

	return cgroup_read(dir, "cgroup.subtree_control", text, sizeof text) < 0 ? 0
										 : cgroup_controllers(text);
}

/* One by one: one write with several is refused as a whole. Returns those that are on now. */
static unsigned enable(struct cgroup_tree *t, int dir, const char *where, unsigned wanted)
{
	unsigned on = enabled_in(dir) & wanted;

	for (unsigned c = 1; c <= CGROUP_ALL; c <<= 1) {
		char text[16];
		int error;

		if (!(wanted & c) || (on & c))
			continue;
		(void)snprintf(text, sizeof text, "+%s", cgroup_controller_name(c));
		if (cgroup_write(t, dir, "cgroup.subtree_control", text) == 0) {
			on |= c;
			if (dir == t->own_fd)
				t->enabled |= c;
			continue;
		}
		error = errno;
		free(t->why_not[cgroup_index(c)]);
		if (error == EBUSY && other_in(t->own_fd))
			t->why_not[cgroup_index(c)] = xasprintf("another process (pid %ld) is in %s, which "
								"cannot be divided then: start sbxsvd in a "
								"group of its own",
								other_in(t->own_fd), where);
		else
			t->why_not[cgroup_index(c)] =
				xasprintf("the %s controller cannot be enabled in %s: %s",
					  cgroup_controller_name(c), where, strerror(error));
	}
	return on;
}

static void disable(const struct cgroup_tree *t, int dir, unsigned which)
{
	for (unsigned c = 1; c <= CGROUP_ALL; c <<= 1) {
		char text[16];

		if (!(which & c))
			continue;
		(void)snprintf(text, sizeof text, "-%s", cgroup_controller_name(c));
		(void)cgroup_write(t, dir, "cgroup.subtree_control", text);
	}
}

/* Back to where we were started: only possible while OWN gives no controller away, for it has processes again then. */
static void move_back(struct cgroup_tree *t)
{
	disable(t, t->base_fd, enabled_in(t->base_fd));
	disable(t, t->own_fd, t->enabled);
	t->enabled = 0;
	if (!t->inside)
		return;
	if (cgroup_write(t, t->own_fd, "cgroup.procs", "0") == 0)
		t->inside = false;
	(void)cgroup_remove_below(t, t->base_fd, SUPERVISOR, 0);
}

static int move_in(struct cgroup_tree *t)
{
	CLEANUP_FD int leaf = -1;

	if (make_dir(t, t->base_fd, SUPERVISOR) < 0 && errno != EEXIST)
		return -1;
	leaf = cgroup_sub(t->base_fd, SUPERVISOR);
	if (leaf < 0 || cgroup_write(t, leaf, "cgroup.procs", "0") < 0)
		return -1;
	t->inside = true;
	return 0;
}

static void divide(struct cgroup_tree *t, unsigned available)
{
	/* The root of all groups alone has no such file, and may be divided with processes in it. */
	bool root = faccessat(t->own_fd, "cgroup.type", F_OK, 0) < 0;

	if (!root && move_in(t) < 0) {
		t->why = xasprintf("this process cannot move into a group below %s: %s", t->base,
				   strerror(errno));
		return;
	}
	t->controllers = enable(t, t->base_fd, t->base, enable(t, t->own_fd, t->own, available));
	if (!t->controllers)
		move_back(t);
}

/* --- made, and what an earlier run left --- */

int cgroup_need_base(struct cgroup_tree *t)
{
	if (t->base_fd >= 0)
		return 0;
	if (t->why || (make_dir(t, t->own_fd, t->tag) < 0 && errno != EEXIST))
		return -1;
	t->base_fd = cgroup_sub(t->own_fd, t->tag);
	return t->base_fd < 0 ? -1 : 0;
}

bool cgroup_is_populated(int group)
{
	char text[256];
	uint64_t n = 0;

	return cgroup_read(group, "cgroup.events", text, sizeof text) == 0 &&
	       cgroup_value(text, "populated", &n) == 0 && n;
}

/* cgroup.events can be polled (the document, "[Un]populated Notification"). */
static void await_empty(int group, int64_t end_ms)
{
	CLEANUP_FD int fd = openat(group, "cgroup.events", O_RDONLY | O_CLOEXEC);
	struct pollfd p = {.fd = fd, .events = POLLPRI};
	int64_t left;

	while (cgroup_is_populated(group) && (left = end_ms - clk_mono_ms()) > 0) {
		char text[256];

		(void)cgroup_read(group, "cgroup.events", text, sizeof text);
		(void)poll(&p, 1, left > 50 ? 50 : (int)left);
	}
}

/* All groups below, but the one we are in ourselves. */
static void reap_below(struct cgroup_tree *t, int base, bool spare_supervisor, int wait_ms)
{
	int copy = openat(base, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CLEANUP_DIR DIR *d = copy < 0 ? NULL : fdopendir(copy);
	int64_t end = clk_mono_ms() + wait_ms;
	const struct dirent *e;

	for (int round = 0; d && round < 2; round++, rewinddir(d))
		while ((e = readdir(d))) {
			CLEANUP_FD int fd = -1;

			if (e->d_type != DT_DIR || e->d_name[0] == '.' ||
			    (spare_supervisor && str_eq(e->d_name, SUPERVISOR)))
				continue;
			fd = cgroup_sub(base, e->d_name);
			if (fd < 0)
				continue;
			if (round == 0) {
				(void)cgroup_write(t, fd, "cgroup.kill", "1");
				continue;
			}
			await_empty(fd, end);
			(void)cgroup_remove_below(t, base, e->d_name, 0);
		}
}

void cgroup_reap(struct cgroup_tree *t, const char *base, int wait_ms)
{
	CLEANUP_FREE char *dir = base ? path_dirname(base) : NULL;
	CLEANUP_FD int parent = -1, fd = -1;
	struct stat st;

	if (!base || !cgroup_is_tag(path_basename(base)) || str_eq(base, t->base))
		return;
	parent = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	fd = parent < 0 ? -1 : cgroup_sub(parent, path_basename(base));
	if (!is_group(t, fd) || fstat(fd, &st) < 0 || st.st_uid != geteuid())
		return;
	reap_below(t, fd, false, wait_ms);
	(void)cgroup_remove_below(t, parent, path_basename(base), 0);
}

static struct cgroup_tree *tree_new(const struct cgroup_world *w, const char *runtime_dir)
{
	struct cgroup_tree *t = xcalloc(1, sizeof *t);
	struct stat st = {0};

	if (w)
		t->w = *w;
	(void)stat(runtime_dir, &st);
	t->tag = cgroup_tag(runtime_dir, st.st_dev, st.st_ino);
	t->own_fd = t->base_fd = -1;
	return t;
}

static void say_missing(struct cgroup_tree *t, unsigned available)
{
	for (unsigned c = 1; c <= CGROUP_ALL; c <<= 1)
		if (!(available & c))
			t->why_not[cgroup_index(c)] = xasprintf("the %s controller is not there in %s: it is "
								"not delegated, or cgroup v1 has it",
								cgroup_controller_name(c), t->own);
}

struct cgroup_tree *cgroup_open(const struct cgroup_world *w, const char *runtime_dir)
{
	struct cgroup_tree *t = tree_new(w, runtime_dir);
	char text[512];
	unsigned available;

	if (find_own(t) < 0 || !is_delegated(t))
		return t;
	if (cgroup_need_base(t) < 0) {
		t->why = xasprintf("no group can be made in %s (%s): it is not delegated to this user",
				   t->own, strerror(errno));
		return t;
	}
	t->base = xasprintf("%s%s%s", t->own, str_ends(t->own, "/") ? "" : "/", t->tag);
	reap_below(t, t->base_fd, false, REAP_MS);
	available = cgroup_read(t->own_fd, "cgroup.controllers", text, sizeof text) < 0
			    ? 0
			    : cgroup_controllers(text);
	say_missing(t, available);
	if (available)
		divide(t, available);
	if (!t->controllers && !t->inside) { /* made again when somebody needs it */
		fd_close_many(&t->base_fd, 1);
		(void)cgroup_remove_below(t, t->own_fd, t->tag, 0);
	}
	return t;
}

struct cgroup_tree *cgroup_try(const struct cgroup_world *w)
{
	CLEANUP_FREE char *name = xasprintf("/trial-%d", (int)getpid());

	return cgroup_open(w, name);
}

void cgroup_close(struct cgroup_tree *t)
{
	if (!t)
		return;
	if (t->base_fd >= 0) {
		reap_below(t, t->base_fd, t->inside, REAP_MS);
		move_back(t);
		fd_close_many(&t->base_fd, 1);
		(void)cgroup_remove_below(t, t->own_fd, t->tag, 0);
	}
	fd_close_many(&t->own_fd, 1);
	for (size_t i = 0; i < ELEMENTS(t->why_not); i++)
		free(t->why_not[i]);
	free(t->tag);
	free(t->own);
	free(t->base);
	free(t->why);
	free(t);
}

/* --- across an exec of the supervisor --- */

static const struct keep_field fields[] = {
	KEEP(cgroup_tree, TEXT, tag),         KEEP(cgroup_tree, TEXT, own),
	KEEP(cgroup_tree, TEXT, base),        KEEP(cgroup_tree, TEXT, why),
	KEEP(cgroup_tree, TEXT, why_not[0]),  KEEP(cgroup_tree, TEXT, why_not[1]),
	KEEP(cgroup_tree, TEXT, why_not[2]),  KEEP(cgroup_tree, FD, own_fd),
	KEEP(cgroup_tree, FD, base_fd),       KEEP(cgroup_tree, BOOL, inside),
	KEEP(cgroup_tree, UINT, controllers), KEEP(cgroup_tree, UINT, enabled),
};

struct js *cgroup_save(struct keep *k, const struct cgroup_tree *t)
{
	struct js *o = js_obj();

	keep_save(k, o, fields, ELEMENTS(fields), t);
	return o;
}

struct cgroup_tree *cgroup_restore(struct keep *k, const struct js *o)
{
	struct cgroup_tree *t = xcalloc(1, sizeof *t);

	keep_load(k, o, fields, ELEMENTS(fields), t);
	if (!o)
		t->why = xstrdup("the supervisor was upgraded from a version that makes no control groups: "
				 "sbxsv down, sbxsv up");
	return t;
}

const char *cgroup_base(const struct cgroup_tree *t)
{
	return t->why ? NULL : t->base;
}

unsigned cgroup_has(const struct cgroup_tree *t)
{
	return t->controllers;
}

const char *cgroup_why_not(const struct cgroup_tree *t, unsigned one)
{
	if (t->controllers & one)
		return NULL;
	return t->why                          ? t->why
	       : t->why_not[cgroup_index(one)] ? t->why_not[cgroup_index(one)]
					       : "it is not there";
}
