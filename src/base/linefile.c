#include "base/linefile.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#define ROOM (64 << 10) /* a streak of losses ends when this much fits */

struct linefile {
	char *dir, *file, *path;
	uint64_t max_size;
	unsigned max_files;
	struct linefile_hooks hooks;
	int fd;
	uint64_t size;
	struct stat st;      /* of fd */
	struct stat earlier; /* of the file as it was found; st_ino 0: there was none */
	bool losing;
	uint64_t streak_lines, streak_bytes, dropped_lines, dropped_bytes;
	char *error;
};

static void close_file(struct linefile *f)
{
	if (f->fd >= 0)
		(void)close(f->fd);
	f->fd = -1;
}

void linefile_configure(struct linefile *f, const struct linefile_config *c)
{
	f->max_size = c->max_size ? c->max_size : 1;
	f->max_files = c->max_files ? c->max_files : 1;
	if (str_eq(f->dir, c->dir) && str_eq(f->file, c->file))
		return;
	close_file(f);
	free(f->dir);
	free(f->file);
	free(f->path);
	f->dir = xstrdup(c->dir);
	f->file = xstrdup(c->file);
	f->path = xasprintf("%s/%s", c->dir, c->file);
	if (lstat(f->path, &f->earlier) < 0 || !S_ISREG(f->earlier.st_mode))
		memset(&f->earlier, 0, sizeof f->earlier);
}

struct linefile *linefile_create(const struct linefile_config *c, const struct linefile_hooks *h)
{
	struct linefile *f = xcalloc(1, sizeof *f);

	f->fd = -1;
	f->hooks = *h;
	linefile_configure(f, c);
	return f;
}

void linefile_destroy(struct linefile *f)
{
	if (!f)
		return;
	close_file(f);
	free(f->dir);
	free(f->file);
	free(f->path);
	free(f->error);
	free(f);
}

/* --- opening --- */

/* A crash in the middle of a write leaves half a line: end it, so that it does not swallow the next one. */
static int end_half_line(int fd, uint64_t *size)
{
	char last = '\n';

	if (*size == 0 || pread(fd, &last, 1, (off_t)(*size - 1)) != 1 || last == '\n')
		return 0;
	if (write(fd, "\n", 1) != 1)
		return -1;
	*size += 1;
	return 0;
}

static int open_file(struct linefile *f, struct err **e)
{
	CLEANUP_FD int dir = file_private_dir(f->dir, e);
	CLEANUP_FD int fd = -1;
	struct stat st;
	uint64_t size;

	if (dir < 0)
		return -1;
	/* O_NONBLOCK: a FIFO of that name must not stop us. */
	fd = file_open_nofollow(dir, f->file, O_RDWR | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY, 0600);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, errno, "%s", f->file);
	if (!S_ISREG(st.st_mode))
		return err_set(e, EINVAL, "%s: not a regular file", f->file);
	size = (uint64_t)st.st_size;
	if (end_half_line(fd, &size) < 0)
		return err_sys(e, errno, "%s", f->file);
	f->st = st;
	f->size = size;
	f->fd = TAKE_FD(fd);
	return 0;
}

/* The open file, made again when somebody removed or renamed it. */
static int ready_file(struct linefile *f, struct err **e)
{
	struct stat st;

	if (f->fd >= 0 && (lstat(f->path, &st) < 0 || !file_same(&st, &f->st)))
		close_file(f);
	/* Somebody who empties the file (`> notes.log`) gets its room back. */
	if (f->fd >= 0)
		f->size = (uint64_t)st.st_size;
	return f->fd >= 0 ? 0 : open_file(f, e);
}

/* --- rotation --- */

static int rotate(struct linefile *f, struct err **e)
{
	CLEANUP_FD int dir = file_private_dir(f->dir, e);

	if (dir < 0)
		return -1;
	for (unsigned i = f->max_files - 1; i > 0; i--) {
		CLEANUP_FREE char *from = i > 1 ? xasprintf("%s.%u", f->file, i - 1) : xstrdup(f->file);
		CLEANUP_FREE char *to = xasprintf("%s.%u", f->file, i);

		if (renameat(dir, from, dir, to) < 0 && errno != ENOENT)
			return err_sys(e, errno, "%s: cannot rotate to %s", f->file, to);
	}
	if (f->max_files == 1 && unlinkat(dir, f->file, 0) < 0 && errno != ENOENT)
		return err_sys(e, errno, "%s: cannot rotate", f->file);
	close_file(f);
	return open_file(f, e);
}

/* The length of the longest prefix of whole lines that is at most `room` bytes. */
static size_t lines_within(const char *text, size_t len, uint64_t room)
{
	const char *nl;

	if (len <= room)
		return len;
	nl = room ? memrchr(text, '\n', (size_t)room) : NULL;
	return nl ? (size_t)(nl - text) + 1 : 0;
}

/* Writes whole lines; returns how many bytes of them are in the file. Less than len: *e says why. */
static size_t append(struct linefile *f, const char *text, size_t len, struct err **e)
{
	size_t done = 0, whole;

	while (done < len) {
		ssize_t n = write(f->fd, text + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			(void)err_sys(e, n < 0 ? errno : ENOSPC, "%s", f->file);
			break;
		}
		done += (size_t)n;
	}
	whole = lines_within(text, len, done);
	f->size += whole;
	if (whole < done && ftruncate(f->fd, (off_t)f->size) < 0)
		close_file(f); /* opening it again ends the half line */
	return whole;
}

static size_t write_lines(struct linefile *f, const char *text, size_t len, struct err **e)
{
	size_t done = 0;

	if (ready_file(f, e) < 0)
		return 0;
	while (done < len) {
		uint64_t room = f->size < f->max_size ? f->max_size - f->size : 0;
		size_t part = lines_within(text + done, len - done, room), n;

		if (part == 0 && f->size > 0) {
			if (rotate(f, e) < 0)
				break;
			continue;
		}
		if (part == 0) /* one line larger than max_size has a file of its own */
			part = (size_t)((char *)memchr(text + done, '\n', len - done) - (text + done)) + 1;
		n = append(f, text + done, part, e);
		done += n;
		if (n < part)
			break;
	}
	return done;
}

/* --- losses --- */

static uint64_t count_lines(const char *text, size_t len)
{
	uint64_t n = 0;

	for (const char *p = text; (p = memchr(p, '\n', len - (size_t)(p - text))); p++)
		n++;
	return n;
}

static void lose(struct linefile *f, const char *text, size_t len, const struct err *why)
{
	uint64_t lines = count_lines(text, len);

	f->streak_lines += lines;
	f->streak_bytes += len;
	f->dropped_lines += lines;
	f->dropped_bytes += len;
	free(f->error);
	f->error = xstrdup(err_msg(why));
	if (f->losing)
		return;
	f->losing = true;
	if (f->hooks.trouble) {
		CLEANUP_FREE char *what = xasprintf("%s: output is lost until this is mended", f->error);

		f->hooks.trouble(f->hooks.data, what);
	}
}

/* Room for more than the mark? On a disk that is all but full the mark alone would fit and the next line
 * would not: a streak would end and begin with every line. */
static int has_room(struct linefile *f, struct err **e)
{
	if (ready_file(f, e) < 0)
		return -1;
	if (fallocate(f->fd, FALLOC_FL_KEEP_SIZE, (off_t)f->size, ROOM) < 0 &&
	    (errno == ENOSPC || errno == EDQUOT))
		return err_sys(e, errno, "%s", f->file);
	return ftruncate(f->fd, (off_t)f->size) < 0 ? err_sys(e, errno, "%s", f->file) : 0;
}

bool linefile_retry(struct linefile *f)
{
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FREE char *mark = NULL, *what = NULL;

	if (!f->losing)
		return true;
	mark = f->hooks.mark(f->hooks.data, f->streak_lines, f->streak_bytes, f->error);
	if (has_room(f, &e) < 0 || write_lines(f, mark, strlen(mark), &e) < strlen(mark)) {
		free(f->error);
		f->error = xstrdup(err_msg(e));
		return false;
	}
	what = xasprintf("%s: writing again, %llu lines (%llu bytes) were lost", f->file,
			 (unsigned long long)f->streak_lines, (unsigned long long)f->streak_bytes);
	f->losing = false;
	f->streak_lines = f->streak_bytes = 0;
	if (f->hooks.trouble)
		f->hooks.trouble(f->hooks.data, what);
	return true;
}

int linefile_write(struct linefile *f, const char *text, size_t len)
{
	CLEANUP_ERR struct err *e = NULL;
	size_t done = 0;

	if (len == 0)
		return 0;
	if (!linefile_retry(f))
		(void)err_set(&e, 0, "%s", f->error);
	else
		done = write_lines(f, text, len, &e);
	if (done == len)
		return 0;
	lose(f, text + done, len - done, e);
	return -1;
}

bool linefile_losing(const struct linefile *f)
{
	return f->losing;
}

uint64_t linefile_dropped_lines(const struct linefile *f)
{
	return f->dropped_lines;
}

uint64_t linefile_dropped_bytes(const struct linefile *f)
{
	return f->dropped_bytes;
}

const char *linefile_error(const struct linefile *f)
{
	return f->error;
}

const char *linefile_path(const struct linefile *f)
{
	return f->path;
}

bool linefile_at(const struct linefile *f, uint64_t *ret_ino, uint64_t *ret_size)
{
	if (f->fd < 0)
		return false;
	*ret_ino = f->st.st_ino;
	*ret_size = f->size;
	return true;
}

/* --- what earlier runs wrote --- */

const struct stat *linefile_found(const struct linefile *f)
{
	return f->earlier.st_ino ? &f->earlier : NULL;
}

/* The file as it was found: still under its name, or rotated since. */
static int open_earlier(const struct linefile *f)
{
	for (unsigned i = 0; i < f->max_files; i++) {
		CLEANUP_FREE char *path = i ? xasprintf("%s.%u", f->path, i) : xstrdup(f->path);
		CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
		struct stat st;

		if (fd >= 0 && fstat(fd, &st) == 0 && file_same(&st, &f->earlier))
			return TAKE_FD(fd);
	}
	return -1;
}

char *linefile_earlier(const struct linefile *f, size_t max, size_t *ret_len)
{
	CLEANUP_FD int fd = f->earlier.st_size > 0 ? open_earlier(f) : -1;
	CLEANUP_FREE char *buf = NULL;
	off_t from = f->earlier.st_size > (off_t)max ? f->earlier.st_size - (off_t)max : 0;
	size_t len = 0, want = (size_t)(f->earlier.st_size - from);
	char *start;

	if (fd < 0)
		return NULL;
	buf = xmalloc(want + 1);
	while (len < want) {
		ssize_t n = pread(fd, buf + len, want - len, from + (off_t)len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	buf[len] = 0;
	start = buf;
	if (from > 0) {
		start = memchr(buf, '\n', len);
		if (!start)
			return NULL;
		start++;
	}
	*ret_len = len - (size_t)(start - buf);
	memmove(buf, start, *ret_len + 1);
	return TAKE_PTR(buf);
}

/* --- across an exec --- */

static const struct keep_field fields[] = {
	KEEP(linefile, BOOL, losing),	     KEEP(linefile, U64, streak_lines),	 KEEP(linefile, U64, streak_bytes),
	KEEP(linefile, U64, dropped_lines), KEEP(linefile, U64, dropped_bytes), KEEP(linefile, TEXT, error),
};

struct js *linefile_save(struct keep *k, const struct linefile *f)
{
	struct js *o = js_obj();

	keep_save(k, o, fields, ELEMENTS(fields), f);
	keep_u64(o, "dev", f->earlier.st_dev);
	keep_u64(o, "ino", f->earlier.st_ino);
	keep_u64(o, "size", (uint64_t)f->earlier.st_size);
	return o;
}

void linefile_restore(struct keep *k, const struct js *o, struct linefile *f)
{
	keep_load(k, o, fields, ELEMENTS(fields), f);
	f->earlier = (struct stat){.st_dev = keep_get_u64(k, o, "dev"),
				   .st_ino = keep_get_u64(k, o, "ino"),
				   .st_size = (off_t)keep_get_u64(k, o, "size")};
}
