/*
 * Unsafe=yes: may a hook run outside of the jail? Only when nothing of its command is in the hands of an app: neither what a
 * path names, nor a link on the way there, which could lead elsewhere when it is executed.
 */
#include "sup/app.h"
#include "base/file.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LINKS_MAX = 40 /* as the kernel follows, path_resolution(7) */ };

/* NULL: it is none, or not there. */
static char *target_of(const char *path)
{
	char buf[PATH_MAX];
	ssize_t n = readlink(path, buf, sizeof buf);

	return n > 0 ? xstrndup(buf, (size_t)n) : NULL;
}

/* The links on the way to `path`, and last what it names, which need not be there: each by a path without links. */
static int way_of(const char *path, struct strv *ret)
{
	CLEANUP_FREE char *at = xstrdup("/"), *rest = xstrdup(path);
	const char *name;

	while (*(name = rest + strspn(rest, "/"))) {
		size_t n = strcspn(name, "/");
		CLEANUP_FREE char *one = xstrndup(name, n), *next = path_join(at, one), *to = target_of(next);
		char *left = to ? xasprintf("%s/%s", to, name + n) : xstrdup(name + n);

		free(rest);
		rest = left;
		if (to && ret->n == LINKS_MAX) {
			errno = ELOOP;
			return -1;
		}
		if (to)
			strv_add(ret, next);
		if (!to || *to == '/') {
			free(at);
			at = to ? xstrdup("/") : TAKE_PTR(next);
		}
	}
	strv_take(ret, TAKE_PTR(at));
	return 0;
}

static bool below_real(const char *path, const char *dir)
{
	CLEANUP_FREE char *real = realpath(dir + (*dir == '-'), NULL);

	return real && path_is_below(path, real);
}

static bool is_written_by(const struct unit *u, const char *path)
{
	const char *own = !u ? NULL : u->app_directory ? u->app_directory : u->working_directory;

	if (own && below_real(path, own))
		return true;
	for (size_t i = 0; u && i < u->data_directory.n; i++)
		if (below_real(path, u->data_directory.v[i].text))
			return true;
	for (size_t i = 0; u && i < u->write.n; i++)
		if (below_real(path, u->write.v[i].text))
			return true;
	return false;
}

/* By the definition in force, or the one that waits for its next process. */
static bool an_app_can_write(const struct sup *s, const char *path)
{
	for (const struct app *a = s->apps; a; a = a->next)
		if (is_written_by(a->unit, path) || is_written_by(a->newest, path))
			return true;
	return false;
}

/* It, and each directory above it, can be changed by root and the supervisor's user only. */
static bool is_ours_alone(const char *path)
{
	CLEANUP_FREE char *at = xstrdup(path);
	struct stat st;

	for (;;) {
		bool tight;
		char *up;

		if (lstat(at, &st) < 0)
			return false;
		/* of a link the mode means nothing */
		tight = S_ISLNK(st.st_mode) || !(st.st_mode & 022) ||
			(S_ISDIR(st.st_mode) && (st.st_mode & S_ISVTX));
		if ((st.st_uid != 0 && st.st_uid != geteuid()) || !tight)
			return false;
		if (strcmp(at, "/") == 0)
			return true;
		up = path_dirname(at);
		free(at);
		at = up;
	}
}

static int check_word(const struct sup *s, const char *word, bool program, struct err **e)
{
	CLEANUP_STRV struct strv way = {0};

	if (way_of(word, &way) < 0 || (program && access(word, F_OK) < 0))
		return err_sys(e, errno, "%s", word);
	for (size_t i = 0; i < way.n; i++) {
		const char *by = i + 1 < way.n && !str_eq(way.v[i], word) ? way.v[i] : NULL;
		CLEANUP_FREE char *which =
			xasprintf("%s%s%s%s", word, by ? " (by the link " : "", by ? by : "", by ? ")" : "");

		if (an_app_can_write(s, way.v[i]))
			return err_set(e, EPERM,
				       "%s lies where an app can write: with Unsafe=yes that is refused",
				       which);
		if (program && !is_ours_alone(way.v[i]))
			return err_set(e, EPERM,
				       "%s, or a directory above it, can be changed by others: with "
				       "Unsafe=yes that is refused",
				       which);
	}
	return 0;
}

int outside_check(const struct app *a, const struct plan *p, struct err **e)
{
	if (check_word(a->sup, p->program, true, e) < 0)
		return -1;
	for (size_t i = 1; i < p->argv.n; i++)
		if (p->argv.v[i][0] == '/' && check_word(a->sup, p->argv.v[i], false, e) < 0)
			return -1;
	return 0;
}
