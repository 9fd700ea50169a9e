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
#include "sandbox/mountinfo.h"
#include <stdlib.h>
#include <string.h>

struct mount {
	struct mountinfo is;
	bool twin; /* another one of the same file system shows a part of it, or it a part of that one */
};
struct plan_mounts {
	struct mount *v;
	size_t n, cap;
};

static void add_line(struct plan_mounts *m, const char *line, size_t len)
{
	struct mountinfo is;

	if (!mountinfo_parse(line, len, &is))
		return;
	if (is.root[0] != '/' || is.point[0] != '/') { /* a file of nsfs has no other name */
		mountinfo_finish(&is);
		return;
	}
	VEC_GROW(m->v, m->n, m->cap);
	m->v[m->n++] = (struct mount){.is = is};
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
			if (i != k && m->v[i].is.fs == m->v[k].is.fs &&
			    path_is_below(m->v[i].is.root, m->v[k].is.root))
				m->v[i].twin = m->v[k].twin = true;
	return m;
}

void plan_mounts_free(struct plan_mounts *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->n; i++)
		mountinfo_finish(&m->v[i].is);
	free(m->v);
	free(m);
}

void plan_mounts_of_types(const struct plan_mounts *m, const char *const types[2], struct strv *ret)
{
	for (size_t i = 0; i < m->n; i++)
		if (strcmp(m->v[i].is.type, types[0]) == 0 || strcmp(m->v[i].is.type, types[1]) == 0)
			strv_add(ret, m->v[i].is.point);
}

/* The mount that shows `path`: of those above it the nearest, of several there the last. */
static const struct mount *showing(const struct plan_mounts *m, const char *path)
{
	const struct mount *best = NULL;

	for (size_t i = 0; i < m->n; i++)
		if (path_is_below(path, m->v[i].is.point) &&
		    (!best || strlen(m->v[i].is.point) >= strlen(best->is.point)))
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
	CLEANUP_FREE char *inside = by && by->twin ? moved(path, by->is.point, by->is.root) : NULL;

	for (size_t i = 0; inside && i < m->n; i++) {
		const struct mount *o = &m->v[i];
		CLEANUP_FREE char *name = NULL;

		if (o == by || !o->twin || o->is.fs != by->is.fs)
			continue;
		if (path_is_below(inside, o->is.root))
			name = moved(inside, o->is.root, o->is.point);
		else if (path_is_below(o->is.root, inside)) /* it shows what lies in there */
			name = xstrdup(o->is.point);
		if (name && !path_is_below(name, path) && showing(m, name) == o && !strv_has(ret, name))
			strv_add(ret, name);
	}
}
