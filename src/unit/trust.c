/*
 * Who could have changed this file? A unit decides what runs and what it may touch, so whoever can write one
 * owns every app. The path is walked component by component with O_PATH descriptors: each directory and each
 * symlink on the way is judged where it was found, and the file is opened through the descriptor that was
 * judged, so nothing can be swapped between look and use, and no FIFO or device is ever opened.
 *
 * As root: everything root-owned and not writable by group or others; a sticky directory such as /tmp is fine
 * above. As a user: files and symlinks belong to the user or root and are not writable by others; directories
 * are not writable by others unless sticky. (Group-writable is the default of a umask of 002 and a group of
 * one's own.)
 */
#include "base/fd.h"
#include "base/file.h"
#include "base/parse.h"
#include "unit/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { SYMLINKS_MAX = 40 /* as the kernel, MAXSYMLINKS of fs/namei.c */ };

/* In a user namespace, what belongs to a user it does not map shows the overflow uid (proc(5)). The system's
 * own directories look like that there. */
static uid_t unmapped_uid(void)
{
	static int64_t known = -2;
	char map[4096], over[32];
	unsigned long long first, outside, count;
	uint64_t uid = 65534;
	int used;

	if (known != -2)
		return (uid_t)known;
	known = -1;
	if (file_read_proc("/proc/sys/kernel/overflowuid", over, sizeof over) > 0) {
		over[strcspn(over, "\n")] = 0;
		(void)parse_u64(over, UINT32_MAX, &uid);
	}
	if (file_read_proc("/proc/self/uid_map", map, sizeof map) < 0)
		return (uid_t)known;
	for (const char *s = map; sscanf(s, "%llu %llu %llu%n", &first, &outside, &count, &used) == 3;
	     s += used)
		if (uid >= first && uid < first + count)
			return (uid_t)known;
	known = (int64_t)uid;
	return (uid_t)known;
}

static bool owner_ok(const struct unit_dirs *d, uid_t uid)
{
	return uid == 0 || (!d->root_mode && uid == d->uid);
}

static int bad_owner(const struct unit_dirs *d, uid_t uid, const char *what, struct err **e)
{
	if (d->root_mode)
		return err_set(e, EPERM,
			       "%s belongs to uid %u: under a root supervisor it has to belong to root", what,
			       (unsigned)uid);
	return err_set(e, EPERM, "%s belongs to uid %u: it has to belong to %s or root", what, (unsigned)uid,
		       d->user ? d->user : "you");
}

static int judge_dir(const struct unit_dirs *d, const struct stat *st, const char *path, struct err **e)
{
	mode_t bad = d->root_mode ? S_IWGRP | S_IWOTH : S_IWOTH;

	if (d->root_mode && !owner_ok(d, st->st_uid) && st->st_uid != unmapped_uid())
		return bad_owner(d, st->st_uid, path, e);
	if ((st->st_mode & bad) && !(st->st_mode & S_ISVTX))
		return err_set(e, EPERM, "the directory %s is writable by %s: chmod %s", path,
			       st->st_mode & S_IWOTH ? "everybody" : "its group",
			       d->root_mode ? "go-w" : "o-w");
	return 0;
}

static int judge_file(const struct unit_dirs *d, const struct stat *st, const char *path, struct err **e)
{
	mode_t bad = d->root_mode ? S_IWGRP | S_IWOTH : S_IWOTH;
	bool shipped = d->profiles && path_is_below(path, d->profiles) && st->st_uid == unmapped_uid();

	if (!owner_ok(d, st->st_uid) && !shipped)
		return bad_owner(d, st->st_uid, "the file", e);
	if (st->st_mode & bad)
		return err_set(e, EPERM, "the file is writable by %s: chmod %s",
			       st->st_mode & S_IWOTH ? "everybody" : "its group",
			       d->root_mode ? "go-w" : "o-w");
	return 0;
}

static const char *file_type(mode_t m)
{
	return S_ISDIR(m)                 ? "a directory"
	       : S_ISFIFO(m)              ? "a FIFO"
	       : S_ISSOCK(m)              ? "a socket"
	       : S_ISCHR(m) || S_ISBLK(m) ? "a device"
	       : S_ISREG(m)               ? "a regular file"
					  : "something else";
}

struct walk {
	const struct unit_dirs *d;
	int fd;             /* where we are, O_PATH */
	struct strbuf at;   /* its path, "" is the root */
	struct strbuf left; /* what is still to walk */
	unsigned links;
	struct stat st; /* of fd */
};

static void walk_finish(struct walk *w)
{
	if (w->fd >= 0)
		(void)close(w->fd);
	strbuf_finish(&w->at);
	strbuf_finish(&w->left);
}

static int walk_root(struct walk *w, struct err **e)
{
	if (w->fd >= 0)
		(void)close(w->fd);
	strbuf_reset(&w->at);
	w->fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (w->fd < 0 || fstat(w->fd, &w->st) < 0)
		return err_sys(e, errno, "/");
	return judge_dir(w->d, &w->st, "/", e);
}

static int follow_link(struct walk *w, const char *name, const struct stat *st, struct err **e)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(w->fd, name, target, sizeof target - 1);
	CLEANUP_FREE char *rest = xstrdup(w->left.p ? w->left.p : "");

	if (n < 0)
		return err_sys(e, errno, "%s/%s", w->at.p ? w->at.p : "", name);
	if (++w->links > SYMLINKS_MAX)
		return err_set(e, ELOOP, "too many symbolic links: the link leads in a circle");
	if (!owner_ok(w->d, st->st_uid) && st->st_uid != unmapped_uid()) {
		CLEANUP_FREE char *what = xasprintf("the link %s/%s", w->at.p ? w->at.p : "", name);

		return bad_owner(w->d, st->st_uid, what, e);
	}
	target[n] = 0;
	strbuf_reset(&w->left);
	strbuf_addf(&w->left, "%s/%s", target, rest);
	return target[0] == '/' ? walk_root(w, e) : 0;
}

static void path_up(struct strbuf *at)
{
	char *slash = at->p ? strrchr(at->p, '/') : NULL;

	if (slash) {
		*slash = 0;
		at->len = (size_t)(slash - at->p);
	}
}

/* One component, which is not the last or is a directory: judged as such. */
static int enter(struct walk *w, const char *name, bool last, struct err **e)
{
	CLEANUP_FD int next = openat(w->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (next < 0 && errno == ENOENT && last)
		return err_set(e, ENOENT, "there is no such file");
	if (next < 0 || fstat(next, &st) < 0)
		return err_sys(e, errno, "%s/%s", w->at.p ? w->at.p : "", name);
	if (S_ISLNK(st.st_mode))
		return follow_link(w, name, &st, e);
	if (strcmp(name, "..") == 0)
		path_up(&w->at);
	else
		strbuf_addf(&w->at, "/%s", name);
	(void)close(w->fd);
	w->fd = TAKE_FD(next);
	w->st = st;
	if (S_ISDIR(st.st_mode))
		return judge_dir(w->d, &st, w->at.len ? w->at.p : "/", e);
	return last ? 0 : err_set(e, ENOTDIR, "%s is not a directory", w->at.p);
}

/* Takes the next component out of w->left. NULL: done. Owned by caller. */
static char *next_component(struct walk *w)
{
	const char *s = w->left.p ? w->left.p : "";
	char *name, *rest;
	size_t n;

	s += strspn(s, "/");
	n = strcspn(s, "/");
	if (!n)
		return NULL;
	name = xstrndup(s, n);
	rest = xstrdup(s + n);
	strbuf_reset(&w->left);
	strbuf_adds(&w->left, rest);
	free(rest);
	return name;
}

static int walk_all(struct walk *w, struct err **e)
{
	if (walk_root(w, e) < 0)
		return -1;
	for (;;) {
		CLEANUP_FREE char *name = next_component(w);
		bool last;

		if (!name)
			return 0;
		if (strcmp(name, ".") == 0)
			continue;
		last = w->left.p[strspn(w->left.p, "/")] == 0;
		if (enter(w, name, last, e) < 0)
			return -1;
	}
}

static int reopen(int fd, enum trust_want want, struct err **e)
{
	char self[64];
	int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (want == TRUST_DIR ? O_DIRECTORY : 0), out;

	snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
	out = open(self, flags);
	if (out < 0)
		return err_sys(e, errno, "it cannot be read");
	return out;
}

int unit_trust_open(const struct unit_dirs *d, const char *path, enum trust_want want, struct err **e)
{
	CLEANUP(walk_finish) struct walk w = {.d = d, .fd = -1};
	char cwd[PATH_MAX];

	if (*path != '/') {
		if (!getcwd(cwd, sizeof cwd))
			return err_sys(e, errno, "the current directory");
		strbuf_addf(&w.left, "%s/", cwd);
	}
	strbuf_adds(&w.left, path);
	if (walk_all(&w, e) < 0)
		return -1;
	if (want == TRUST_DIR && !S_ISDIR(w.st.st_mode))
		return err_set(e, ENOTDIR, "it is %s, not a directory", file_type(w.st.st_mode));
	if (want == TRUST_DIR && !owner_ok(d, w.st.st_uid))
		return bad_owner(d, w.st.st_uid, "the directory", e);
	if (want == TRUST_FILE && !S_ISREG(w.st.st_mode))
		return err_set(e, EINVAL, "it is %s, not a regular file", file_type(w.st.st_mode));
	if (want == TRUST_FILE && judge_file(d, &w.st, w.at.p, e) < 0)
		return -1;
	return reopen(w.fd, want, e);
}

int unit_trusted_read(const struct unit_dirs *d, const char *path, size_t max, char **ret, size_t *ret_len,
		      struct err **e)
{
	CLEANUP_FD int fd = unit_trust_open(d, path, TRUST_FILE, e);
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
	char chunk[8192];

	if (fd < 0)
		return -1;
	for (;;) {
		ssize_t n = read(fd, chunk, sizeof chunk);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, errno, "it cannot be read");
		if (n == 0)
			break;
		if (b.len + (size_t)n > max)
			return err_set(e, EFBIG, "it is larger than %zu KiB", max / 1024);
		strbuf_add(&b, chunk, (size_t)n);
	}
	*ret_len = b.len;
	*ret = strbuf_take(&b);
	return 0;
}
