/*
 * Hiding the hidden places: as entries of the plan, and so that they stay hidden.
 *
 * A place that the jail would show is covered by a mount. A mount holds for the file that is there now, not
 * for the name: when the host renames a new ~/.netrc over the old one, or ~/.config away, the kernel drops or
 * moves the cover in every namespace (detach_mounts() in fs/namespace.c), and what is not there yet cannot be
 * covered at all. So the directories on the way to a hidden place are *shut* (plan.h): the jail has one of
 * its own in their stead, with the names of the launch, and covers lie in that.
 *
 * Which are shut: of those on the way that are shown read-only, each in which somebody but root can change
 * names; for files, which root too replaces by renaming (an EnvironmentFile= below /etc), the one they lie
 * in; and for secrets all of them. ReadMode=open begins with "/" and every way to a home directory. A symlink
 * on the way to a place is a name like others: its directory is shut and the link pinned to what it was when
 * the plan was made. Nothing can be shut where the app may write, for it would see none of its new files;
 * guard.c lets no secret lie below such a directory.
 *
 * A place that does not exist becomes an entry as well, and so does the first missing directory on the way to
 * one: what comes into being between plan and launch is then not shown either.
 */
#include "sandbox/plan_internal.h"
#include "base/file.h"
#include <string.h>

struct shut {
	struct plan_ctx *c;
	struct strv seen, seen_firm; /* directories looked at, and so all above them */
	struct strv done;            /* shut */
	struct strv absent;          /* hidden because something hidden would lie in them */
};

static void shut_finish(struct shut *s)
{
	strv_clear(&s->seen);
	strv_clear(&s->seen_firm);
	strv_clear(&s->done);
	strv_clear(&s->absent);
}

/* The grant that decides what is seen of `path`; an empty directory shows nothing by itself, but takes
 * nothing away either, unless the backend makes it. */
static const struct plan_grant *granted_by(const struct plan_ctx *c, const char *path)
{
	const struct plan_grant *best = NULL;

	for (size_t i = 0; i < c->n_grants; i++) {
		const struct plan_grant *g = &c->grants[i];

		if (!g->p.dir || !path_is_below(path, g->p.path) || (g->p.empty && g->source != SOURCE_MADE))
			continue;
		if (!best || strlen(g->p.path) > strlen(best->p.path) ||
		    (strcmp(g->p.path, best->p.path) == 0 && g->p.access > best->p.access))
			best = g;
	}
	return best;
}

/* The same, NULL where a hidden place lies between the two. */
static const struct plan_grant *shown_by(const struct plan_ctx *c, const char *path)
{
	const struct plan_grant *g = granted_by(c, path);

	if (!g || g->p.access == PLAN_HIDE)
		return NULL;
	for (size_t i = 0; i < c->n_places; i++) {
		const struct plan_place *p = &c->places[i];

		if (path_is_below(path, p->path) && strlen(p->path) >= strlen(g->p.path) && plan_hidden(c, p))
			return NULL;
	}
	return g;
}

/* Nobody but root makes, renames or removes names in it. */
static bool only_root_changes(const struct stat *st)
{
	return st->st_uid == 0 && !(st->st_mode & 022);
}

static void shut(struct shut *s, const char *dir, const struct plan_grant *by)
{
	CLEANUP_FREE char *reason = xstrdup(by->p.reason); /* adding moves the grants */

	if (strv_has(&s->done, dir))
		return;
	strv_add(&s->done, dir);
	plan_grant_add(s->c, dir, PLAN_READ, true, SOURCE_IMPLIED, reason)->p.shut = true;
}

/* From `dir` upwards, as far as the jail shows it. `first`: `dir` in any case. Who finds a directory gone,
 * for it comes and goes, takes it for one that is there: it was when the place below it was looked for, and
 * the launch fails if it is not. */
static void shut_up(struct shut *s, const char *from, bool firm, bool first)
{
	const struct plan_fs *fs = &s->c->w->fs;
	CLEANUP_FREE char *dir = xstrdup(from);

	for (;; first = false) {
		const struct plan_grant *g;
		struct stat st;
		char *up;

		if (strv_has(&s->seen_firm, dir) || (!firm && !first && strv_has(&s->seen, dir)))
			return;
		strv_add(firm ? &s->seen_firm : &s->seen, dir);
		g = shown_by(s->c, dir);
		if (!g)
			return;
		if (g->p.access == PLAN_READ &&
		    (firm || first || fs->lstat(fs->data, dir, &st) < 0 || !only_root_changes(&st)))
			shut(s, dir, g);
		if (strcmp(dir, "/") == 0)
			return;
		up = path_dirname(dir);
		free(dir);
		dir = up;
	}
}

static void pin(struct plan_ctx *c, const struct plan_crossed *l)
{
	for (size_t i = 0; i < c->n_links; i++)
		if (c->links[i].pinned && strcmp(c->links[i].path, l->path) == 0)
			return;
	VEC_GROW(c->links, c->n_links, c->cap_links);
	c->links[c->n_links++] =
		(struct plan_used){.path = xstrdup(l->path), .target = xstrdup(l->target), .pinned = true};
}

static void shut_way(struct shut *s, const struct plan_place *p)
{
	bool file = !p->dir && !p->create && !p->closed && p->kind != PLACE_SBXSV && p->kind != PLACE_MACHINE;

	shut_up(s, p->stood, p->firm, file);
	for (size_t i = 0; i < p->n_links; i++) {
		CLEANUP_FREE char *at = path_dirname(p->links[i].path);

		shut_up(s, at, p->firm, file);
		if (strv_has(&s->done, at))
			pin(s->c, &p->links[i]);
	}
}

/* The sockets that plan_sockets.c covers: a server that starts again binds a new one at the same path. */
static void shut_sockets(struct shut *s)
{
	size_t n = s->c->n_grants;

	for (size_t i = 0; i < n; i++) {
		const struct plan_grant *g = &s->c->grants[i];
		CLEANUP_FREE char *dir = path_dirname(g->p.path);

		if (g->p.access == PLAN_HIDE && !g->p.dir)
			shut_up(s, dir, false, true);
	}
}

static void shut_home(struct shut *s, const char *home)
{
	CLEANUP_FREE char *above = path_dirname(home);
	CLEANUP_WHERE struct plan_where w = {0};

	plan_resolve(s->c, above, &w);
	if (!w.error && S_ISDIR(w.st.st_mode))
		shut_up(s, w.path, true, false);
}

/* In `open`, what is above the home directories, too: an unknown one may come. */
static void shut_homes(struct shut *s)
{
	struct plan_ctx *c = s->c;

	if (c->plan->read_mode != UNIT_READ_OPEN)
		return;
	shut_up(s, "/", true, false);
	for (size_t i = 0; i < c->homes.n; i++)
		shut_home(s, c->homes.v[i]);
	shut_home(s, "/home/-");
}

static void hide_absent(struct shut *s, const struct plan_place *p)
{
	const char *below = p->path + (p->stood[1] ? strlen(p->stood) : 0) + 1;
	CLEANUP_FREE char *name = xstrndup(below, strcspn(below, "/")), *at = path_join(p->stood, name);
	bool itself = strcmp(at, p->path) == 0;
	CLEANUP_FREE char *reason = xasprintf("%s%s", p->reason, itself ? "" : " would lie in it");

	if (!strv_has(&s->done, p->stood) || (!itself && strv_has(&s->absent, at)))
		return;
	if (!itself && granted_by(s->c, at)->p.access != PLAN_READ)
		return; /* a DataDirectory= will be made there */
	if (!itself)
		strv_add(&s->absent, at);
	plan_grant_add(s->c, at, PLAN_HIDE, true, SOURCE_SYSTEM, reason)->p.absent = true;
}

/* Where the app may write, a cover is all there can be, and whoever asks about the place is told so. */
static char *reason_of(const struct plan_ctx *c, const struct plan_place *p)
{
	CLEANUP_FREE char *dir = path_dirname(p->path);
	const struct plan_grant *g = p->kind == PLACE_HIDE || p->kind == PLACE_FILE ? shown_by(c, dir) : NULL;

	if (!g || g->p.access != PLAN_WRITE)
		return xstrdup(p->reason);
	return xasprintf("%s; until the host puts another in its place, for the app may write %s", p->reason,
			 g->p.path);
}

static void hide(struct plan_ctx *c, const struct plan_place *p)
{
	CLEANUP_FREE char *reason = reason_of(c, p);

	plan_grant_add(c, p->path, PLAN_HIDE, p->dir || p->create, SOURCE_SYSTEM, reason)->p.create =
		!p->exists;
}

void plan_hide_places(struct plan_ctx *c)
{
	CLEANUP(shut_finish) struct shut s = {.c = c};

	shut_homes(&s);
	shut_sockets(&s);
	for (size_t i = 0; i < c->n_places; i++)
		if (plan_hidden(c, &c->places[i]))
			shut_way(&s, &c->places[i]);
	for (size_t i = 0; i < c->n_places; i++) {
		const struct plan_place *p = &c->places[i];

		if ((p->exists || p->create) && plan_hidden(c, p))
			hide(c, p);
	}
	for (size_t i = 0; i < c->n_places; i++) {
		const struct plan_place *p = &c->places[i];

		if (!p->exists && !p->create && p->kind != PLACE_MACHINE && plan_hidden(c, p))
			hide_absent(&s, p);
	}
}
