/*
 * The mount table: where file systems of the kernel are mounted, and by which other paths a file can be reached.
 *
 * A directory that is mounted a second time (a bind mount, the top of a btrfs with its subvolumes, /sysroot of an ostree
 * system) shows under another path what is hidden under the first. proc_pid_mountinfo(5) says of each mount which file
 * system it is of (major:minor) and which directory of that is its root: so a path is turned into one inside of its file
 * system, and from there into those by which other mounts of the same show it. What lies behind another mount again is not
 * shown. Most machines have no two mounts of which one shows a part of the other; then there is nothing to do.
 */
#include "sandbox/plan_internal.h"
#include "base/file.h"
#include <stdlib.h>
#include <string.h>

struct mount {
	uint64_t fs; /* major, minor */
	char *root, *point, *type;
	bool twin; /* another one of the same file system shows a part of it, or it a part of that one */
};
struct plan_mounts {
	struct mount *v;
	size_t n, cap;
};

static bool is_octal(const char *s, size_t len)
{
	return len >= 4 && s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
	       s[3] >= '0' && s[3] <= '7';
}

/* Space, tab, newline and backslash are \ooo. */
static char *undo_octal(const char *s, size_t len)
{
	struct strbuf b = STRBUF_INIT;

	while (len) {
		size_t n = is_octal(s, len) ? 4 : 1;

		strbuf_addc(&b, n == 4 ? (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0')) : *s);
		s += n;
		len -= n;
	}
	return strbuf_take(&b);
}

static uint64_t number_of(const char *major_minor)
{
	char *end;
	uint64_t major = strtoul(major_minor, &end, 10);

	return major << 32 | strtoul(end + (*end == ':'), NULL, 10);
}

/* "36 35 98:0 ROOT POINT rw,noatime master:1 - TYPE SOURCE rw" */
static void add_line(struct plan_mounts *m, const char *line, size_t len)
{
	CLEANUP_FREE char *copy = xstrndup(line, len);
	const char *sep = strstr(copy, " - "), *field[5], *at = copy;

	for (size_t i = 0; i < ELEMENTS(field); i++) {
		field[i] = at;
		at = sep ? strchr(at, ' ') : NULL;
		if (!at || at > sep)
			return;
		at++;
	}
	if (field[3][0] != '/' || field[4][0] != '/') /* the root of a file of nsfs is "net:[4026531840]" */
		return;
	VEC_GROW(m->v, m->n, m->cap);
	m->v[m->n++] = (struct mount){.fs = number_of(field[2]),
				      .root = undo_octal(field[3], strcspn(field[3], " ")),
				      .point = undo_octal(field[4], strcspn(field[4], " ")),
				      .type = xstrndup(sep + 3, strcspn(sep + 3, " "))};
}

struct plan_mounts *plan_mounts_parse(const char *mountinfo)
{
	struct plan_mounts *m = xcalloc(1, sizeof *m);

	for (const char *line = mountinfo; line && *line;) {
		size_t len = strcspn(line, "\n");

		add_line(m, line, len);
		line += len + (line[len] == '\n');
	}
	for (size_t i = 0; i < m->n; i++)
		for (size_t k = 0; k < m->n; k++)
			if (i != k && m->v[i].fs == m->v[k].fs && path_is_below(m->v[i].root, m->v[k].root))
				m->v[i].twin = m->v[k].twin = true;
	return m;
}

void plan_mounts_free(struct plan_mounts *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->n; i++) {
		free(m->v[i].root);
		free(m->v[i].point);
		free(m->v[i].type);
	}
	free(m->v);
	free(m);
}

void plan_mounts_of_types(const struct plan_mounts *m, const char *const types[2], struct strv *ret)
{
	for (size_t i = 0; i < m->n; i++)
		if (strcmp(m->v[i].type, types[0]) == 0 || strcmp(m->v[i].type, types[1]) == 0)
			strv_add(ret, m->v[i].point);
}

/* The mount that shows `path`: of those above it the nearest, of several there the last. */
static const struct mount *showing(const struct plan_mounts *m, const char *path)
{
	const struct mount *best = NULL;

	for (size_t i = 0; i < m->n; i++)
		if (path_is_below(path, m->v[i].point) &&
		    (!best || strlen(m->v[i].point) >= strlen(best->point)))
			best = &m->v[i];
	return best;
}

/* `path`, which is below `dir`, below `to` instead. */
static char *moved(const char *path, const char *dir, const char *to)
{
	const char *rest = path + (dir[1] ? strlen(dir) : 0);

	rest += *rest == '/';
	return *rest ? path_join(to, rest) : xstrdup(to);
}

void plan_mounts_other_names(const struct plan_mounts *m, const char *path, struct strv *ret)
{
	const struct mount *by = showing(m, path);
	CLEANUP_FREE char *inside = by && by->twin ? moved(path, by->point, by->root) : NULL;

	for (size_t i = 0; inside && i < m->n; i++) {
		const struct mount *o = &m->v[i];
		CLEANUP_FREE char *name = NULL;

		if (o == by || !o->twin || o->fs != by->fs)
			continue;
		if (path_is_below(inside, o->root))
			name = moved(inside, o->root, o->point);
		else if (path_is_below(o->root, inside)) /* it shows what lies in there */
			name = xstrdup(o->point);
		if (name && !path_is_below(name, path) && showing(m, name) == o && !strv_has(ret, name))
			strv_add(ret, name);
	}
}
