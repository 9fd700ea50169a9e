#include "base/file.h"
#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

int file_read(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len, struct err **e)
{
	CLEANUP_FD int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
	struct stat st;
	char chunk[8192];

	if (fd < 0)
		return err_sys(e, errno, "%s", path);
	if (fstat(fd, &st) < 0)
		return err_sys(e, errno, "%s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, EINVAL, "%s: not a regular file", path);
	for (;;) {
		ssize_t n = read(fd, chunk, sizeof chunk);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, errno, "%s", path);
		if (n == 0)
			break;
		if (b.len + (size_t)n > max)
			return err_set(e, EFBIG, "%s: larger than %zu bytes", path, max);
		strbuf_add(&b, chunk, (size_t)n);
	}
	if (ret_len)
		*ret_len = b.len;
	*ret = strbuf_take(&b);
	return 0;
}

int file_read_proc(const char *path, char *buf, size_t cap)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;

	if (fd < 0)
		return -1;
	while (len + 1 < cap) {
		ssize_t n = read(fd, buf + len, cap - 1 - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		len += (size_t)n;
	}
	buf[len] = 0;
	return (int)len;
}

int file_write_atomic(int dirfd, const char *name, const void *data, size_t len, mode_t mode, struct err **e)
{
	CLEANUP_FREE char *tmp = xasprintf(".%s.%d.tmp", name, (int)getpid());
	CLEANUP_FD int fd = -1;

	(void)unlinkat(dirfd, tmp, 0);
	fd = openat(dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
	if (fd < 0)
		return err_sys(e, errno, "%s: cannot create", tmp);
	if (fd_write_all(fd, data, len) < 0 || fsync(fd) < 0) {
		int saved = errno;

		(void)unlinkat(dirfd, tmp, 0);
		return err_sys(e, saved, "%s: cannot write", name);
	}
	if (renameat(dirfd, tmp, dirfd, name) < 0) {
		int saved = errno;

		(void)unlinkat(dirfd, tmp, 0);
		return err_sys(e, saved, "%s: cannot replace", name);
	}
	return 0;
}

int file_open_nofollow(int dirfd, const char *path, int flags, mode_t mode)
{
	struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
			       .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};

	if (flags & (O_CREAT | __O_TMPFILE))
		how.mode = mode;
	return (int)syscall(SYS_openat2, dirfd, path, &how, sizeof how);
}

static int make_private_dir(char *full, struct err **e)
{
	for (char *s = full + 1; *s; s++) {
		if (*s != '/')
			continue;
		*s = 0;
		if (mkdir(full, 0700) < 0 && errno != EEXIST)
			return err_sys(e, errno, "%s: cannot make this directory", full);
		*s = '/';
	}
	if (mkdir(full, 0700) < 0 && errno != EEXIST)
		return err_sys(e, errno, "%s: cannot make this directory", full);
	return 0;
}

int file_private_dir(const char *path, struct err **e)
{
	CLEANUP_FREE char *full = path_join("/", path);
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	CLEANUP_FD int fd = open(full, flags);
	struct stat st;

	if (fd < 0 && errno == ENOENT) {
		if (make_private_dir(full, e) < 0)
			return -1;
		fd = open(full, flags);
	}
	if (fd < 0)
		return err_sys(e, errno, "%s: must be a directory, not a symlink", full);
	if (fstat(fd, &st) < 0)
		return err_sys(e, errno, "%s", full);
	if (st.st_uid != geteuid())
		return err_set(
			e, EPERM,
			"%s: belongs to uid %u, not to us (uid %u): remove it or choose another directory",
			full, st.st_uid, geteuid());
	return TAKE_FD(fd);
}

bool file_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

bool path_is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	if (n == 1 && dir[0] == '/')
		return path[0] == '/';
	return strncmp(path, dir, n) == 0 && (path[n] == 0 || path[n] == '/');
}

char *path_join(const char *base, const char *rel)
{
	CLEANUP_FREE char *raw = rel[0] == '/' ? xstrdup(rel) : xasprintf("%s/%s", base, rel);
	struct strbuf out = STRBUF_INIT;
	char *save = NULL;

	for (char *part = strtok_r(raw, "/", &save); part; part = strtok_r(NULL, "/", &save)) {
		if (strcmp(part, ".") == 0)
			continue;
		if (strcmp(part, "..") == 0) {
			while (out.len && out.p[out.len - 1] != '/')
				out.len--;
			if (out.len)
				out.len--;
			if (out.p)
				out.p[out.len] = 0;
			continue;
		}
		strbuf_addc(&out, '/');
		strbuf_adds(&out, part);
	}
	if (!out.len)
		strbuf_addc(&out, '/');
	return strbuf_take(&out);
}

char *path_dirname(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		return xstrdup(".");
	return slash == path ? xstrdup("/") : xstrndup(path, (size_t)(slash - path));
}

const char *path_basename(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}
