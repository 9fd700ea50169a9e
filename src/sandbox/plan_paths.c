/*
 * Resolving paths, and settling the list of entries.
 *
 * Grants arrive in any order, as resolved paths, each with its source. Settling sorts them, lets the stronger
 * of two at the same path win (hide, then write, then read), drops what changes nothing, and adds the `empty`
 * directories and the symlinks without which something granted could not be reached by the name it was
 * granted under.
 */
#include "sandbox/plan_internal.h"
#include "base/file.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { LINKS_MAX = 40 }; /* MAXSYMLINKS of the kernel, include/linux/namei.h */

void plan_where_finish(struct plan_where *w)
{
	for (size_t i = 0; i < w->n_links; i++) {
		free(w->links[i].path);
		free(w->links[i].target);
	}
	free(w->links);
	free(w->path);
	free(w->stood);
	*w = (struct plan_where){0};
}

void plan_where_copy(struct plan_where *to, const struct plan_where *from)
{
	*to = *from;
	to->path = xstrdup(from->path);
	to->stood = xstrdup(from->stood);
	to->cap_links = from->n_links;
	to->links = from->n_links ? xcalloc(from->n_links, sizeof *to->links) : NULL;
	for (size_t i = 0; i < from->n_links; i++)
		to->links[i] = (struct plan_crossed){.path = xstrdup(from->links[i].path),
						     .target = xstrdup(from->links[i].target),
						     .uid = from->links[i].uid};
}

/* --- what is known: most paths of a plan share their parents, and many lie in a directory that is not there --- */

static size_t known_slot(const struct plan_ctx *c, const char *path)
{
	uint32_t h = 2166136261u; /* FNV-1a */

	for (const char *s = path; *s; s++)
		h = (h ^ (unsigned char)*s) * 16777619u;
	for (size_t i = h & (c->cap_known - 1);; i = (i + 1) & (c->cap_known - 1))
		if (!c->known[i].path || strcmp(c->known[i].path, path) == 0)
			return i;
}

static const struct plan_known *known_find(const struct plan_ctx *c, const char *path)
{
	const struct plan_known *k = c->cap_known ? &c->known[known_slot(c, path)] : NULL;

	return k && k->path ? k : NULL;
}

static void known_add(struct plan_ctx *c, const char *path, bool absent)
{
	struct plan_known *old = c->known, *k;
	size_t n = c->cap_known;

	if (c->n_known * 2 >= c->cap_known) {
		c->cap_known = n ? n * 2 : 512;
		c->known = xcalloc(c->cap_known, sizeof *c->known);
		for (size_t i = 0; i < n; i++)
			if (old[i].path)
				c->known[known_slot(c, old[i].path)] = old[i];
		free(old);
	}
	k = &c->known[known_slot(c, path)];
	if (k->path)
		return;
	*k = (struct plan_known){.path = xstrdup(path), .absent = absent};
	c->n_known++;
}

/* --- resolve --- */

struct walk {
	struct plan_ctx *c;
	struct plan_where *ret;
	struct strbuf done; /* resolved so far; empty for "/" */
	char *text, *rest;  /* what is left: `rest` points into `text`, which is owned */
	size_t links;
	bool looked; /* ret->st is that of `done` */
};

static void cut_to(struct strbuf *b, size_t len)
{
	b->len = len;
	if (b->p)
		b->p[len] = 0;
}

static size_t last_slash(const struct strbuf *b)
{
	size_t n = b->len;

	while (n && b->p[n - 1] != '/')
		n--;
	return n ? n - 1 : 0;
}

/* The link at w->done, whose parent is its first `parent` bytes. 0 or an errno. */
static int follow(struct walk *w, size_t parent, uid_t uid)
{
	const struct plan_fs *fs = &w->c->w->fs;
	CLEANUP_FREE char *target = fs->readlink(fs->data, w->done.p);
	struct plan_where *r = w->ret;
	char *text;

	if (!target)
		return errno;
	if (++w->links > LINKS_MAX)
		return ELOOP;
	if (!*target)
		return ENOENT;
	VEC_GROW(r->links, r->n_links, r->cap_links);
	r->links[r->n_links++] = (struct plan_crossed){xstrdup(w->done.p), xstrdup(target), uid};
	cut_to(&w->done, target[0] == '/' ? 0 : parent);
	text = xasprintf("%s/%s", target, w->rest);
	free(w->text);
	w->text = w->rest = text;
	return strlen(text) > PATH_MAX ? ENAMETOOLONG : 0;
}

/* One component of `len` bytes at `part`; w->rest is behind it. 0 or an errno. */
static int step(struct walk *w, const char *part, size_t len)
{
	const struct plan_fs *fs = &w->c->w->fs;
	bool last = w->rest[strspn(w->rest, "/")] == 0;
	size_t parent = w->done.len;
	const struct plan_known *k;

	w->looked = false;
	if (len == 1 && part[0] == '.')
		return 0;
	if (len == 2 && part[0] == '.' && part[1] == '.') {
		cut_to(&w->done, last_slash(&w->done));
		return 0;
	}
	strbuf_addc(&w->done, '/');
	strbuf_add(&w->done, part, len);
	k = known_find(w->c, w->done.p);
	if (k && k->absent)
		return ENOENT;
	if (k && !last)
		return 0;
	if (fs->lstat(fs->data, w->done.p, &w->ret->st) < 0) {
		int error = errno;

		if (error == ENOENT)
			known_add(w->c, w->done.p, true);
		return error;
	}
	if (S_ISLNK(w->ret->st.st_mode))
		return follow(w, parent, w->ret->st.st_uid);
	w->looked = true;
	if (S_ISDIR(w->ret->st.st_mode))
		known_add(w->c, w->done.p, false);
	else if (!last)
		return ENOTDIR;
	return 0;
}

/* What is not there cannot hold a symlink, so the rest is taken as written. */
static char *with_rest(const struct walk *w)
{
	CLEANUP_FREE char *joined = NULL;

	if (!w->rest[strspn(w->rest, "/")])
		return xstrdup(w->done.len ? w->done.p : "/");
	joined = xasprintf("%s/%s", w->done.len ? w->done.p : "", w->rest);
	return path_join("/", joined);
}

static void resolve(struct plan_ctx *c, const char *path, struct plan_where *ret)
{
	struct walk w = {.c = c, .ret = ret, .done = STRBUF_INIT, .text = xstrdup(path)};
	const struct plan_fs *fs = &c->w->fs;
	int error = strlen(path) > PATH_MAX ? ENAMETOOLONG : 0;

	*ret = (struct plan_where){0};
	w.rest = w.text;
	while (!error) {
		const char *part = w.rest + strspn(w.rest, "/");
		size_t len = strcspn(part, "/");

		if (!len)
			break;
		w.rest = (char *)part + len;
		error = step(&w, part, len);
	}
	ret->path = with_rest(&w);
	if (error)
		ret->stood = path_dirname(w.done.len ? w.done.p : "/");
	else if (!w.looked && fs->lstat(fs->data, ret->path, &ret->st) < 0)
		error = errno;
	if (error && !ret->stood)
		ret->stood = path_dirname(ret->path);
	ret->error = error;
	free(w.text);
	strbuf_finish(&w.done);
}

void plan_resolve(struct plan_ctx *c, const char *path, struct plan_where *ret)
{
	struct plan_memo *m = c->w->memo;

	if (m && plan_memo_recall(m, path, ret))
		return;
	resolve(c, path, ret);
	if (m)
		plan_memo_keep(m, path, ret);
}

bool plan_exists(struct plan_ctx *c, const char *path, bool *ret_dir)
{
	CLEANUP_WHERE struct plan_where w = {0};

	plan_resolve(c, path, &w);
	if (w.error)
		return false;
	if (ret_dir)
		*ret_dir = S_ISDIR(w.st.st_mode);
	return true;
}

/* --- the list --- */

struct plan_grant *plan_grant_add(struct plan_ctx *c, const char *path, enum plan_access access, bool dir,
				  enum plan_source source, const char *reason)
{
	struct plan_grant *g;

	VEC_GROW(c->grants, c->n_grants, c->cap_grants);
	g = &c->grants[c->n_grants++];
	*g = (struct plan_grant){
		.p = {.path = xstrdup(path), .access = access, .dir = dir, .reason = xstrdup(reason)},
		.source = source,
	};
	return g;
}

void plan_links_add(struct plan_ctx *c, const struct plan_where *w, const struct plan_ask *a)
{
	for (size_t i = 0; i < w->n_links; i++) {
		const struct plan_crossed *l = &w->links[i];
		struct plan_used *u;

		VEC_GROW(c->links, c->n_links, c->cap_links);
		u = &c->links[c->n_links++];
		*u = (struct plan_used){
			.path = xstrdup(l->path), .target = xstrdup(l->target), .leads_to = xstrdup(w->path)};
		if (a) {
			u->key = a->key;
			u->origin = a->origin;
			u->written = a->written;
		}
	}
}

static bool contains(const struct plan_path *p, const char *path)
{
	return p->dir ? path_is_below(path, p->path) : strcmp(path, p->path) == 0;
}

const struct plan_grant *plan_covering(const struct plan_ctx *c, const char *path)
{
	const struct plan_grant *best = NULL;

	for (size_t i = 0; i < c->n_grants; i++) {
		const struct plan_grant *g = &c->grants[i];
		size_t len = strlen(g->p.path), best_len = best ? strlen(best->p.path) : 0;

		if (!contains(&g->p, path))
			continue;
		if (!best || len > best_len || (len == best_len && g->p.access > best->p.access))
			best = g;
	}
	return best;
}

bool plan_visible(const struct plan_ctx *c, const char *path)
{
	const struct plan_grant *g = plan_covering(c, path);

	return g && g->p.access != PLAN_HIDE;
}

bool plan_writable(const struct plan_ctx *c, const char *path)
{
	const struct plan_grant *g = plan_covering(c, path);

	return g && g->p.access == PLAN_WRITE;
}

/* --- settling --- */

static unsigned strength(const struct plan_path *p, enum plan_source source)
{
	static const unsigned by_access[] = {[PLAN_HIDE] = 8, [PLAN_READ] = 1, [PLAN_WRITE] = 4};

	if (p->empty)
		return 0;
	if (source == SOURCE_LOCK)
		return 6;
	if (p->access == PLAN_READ && source == SOURCE_ASKED)
		return 2;
	return by_access[p->access];
}

/* Like strcmp, but '/' sorts before everything else, so that all that lies below a directory follows it
 * directly. */
static int compare_paths(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	if (*a == *b)
		return 0;
	if (!*a || !*b)
		return *a ? 1 : -1;
	if (*a == '/' || *b == '/')
		return *a == '/' ? -1 : 1;
	return (unsigned char)*a - (unsigned char)*b;
}

/* Does the entry show what lies at its path? */
static bool shows(const struct plan_path *p)
{
	return p && p->access != PLAN_HIDE && !p->empty;
}

static int by_path_then_strength(const void *a, const void *b)
{
	const struct plan_grant *x = a, *y = b;
	int order = compare_paths(x->p.path, y->p.path);

	if (order)
		return order;
	return (int)strength(&y->p, y->source) - (int)strength(&x->p, x->source);
}

static void path_finish(struct plan_path *p)
{
	free(p->path);
	free(p->reason);
}

static struct plan_path *paths_push(struct plan *plan, struct plan_path p)
{
	VEC_GROW(plan->paths, plan->n_paths, plan->cap_paths);
	plan->paths[plan->n_paths] = p;
	return &plan->paths[plan->n_paths++];
}

/* The nearest kept entry above (not at) `path`. */
static const struct plan_path *nearest_above(const struct plan *plan, const char *path)
{
	const struct plan_path *best = NULL;

	for (size_t i = 0; i < plan->n_paths; i++) {
		const struct plan_path *p = &plan->paths[i];

		if (p->dir && strcmp(p->path, path) != 0 && path_is_below(path, p->path) &&
		    (!best || strlen(p->path) > strlen(best->path)))
			best = p;
	}
	return best;
}

/* The same while the entries are still sorted, and `path` comes behind them. */
static const struct plan_path *last_above(const struct plan *plan, const char *path)
{
	for (size_t i = plan->n_paths; i > 0; i--) {
		const struct plan_path *p = &plan->paths[i - 1];

		if (p->dir && strcmp(p->path, path) != 0 && path_is_below(path, p->path))
			return p;
	}
	return NULL;
}

/* Does the entry change anything below what is granted above it? */
static bool changes(const struct plan_path *p, enum plan_source source, const struct plan_path *above)
{
	enum plan_access there = above ? above->access : PLAN_HIDE;

	if ((p->create && p->access == PLAN_WRITE) || p->socket || p->shut || source == SOURCE_MADE)
		return true;
	if (p->empty)
		return there == PLAN_HIDE;
	if ((source == SOURCE_LIST || source == SOURCE_PATH || source == SOURCE_IMPLIED) &&
	    there != PLAN_HIDE)
		return false;
	if (source == SOURCE_LOCK)
		return there == PLAN_WRITE;
	return p->access != there;
}

/* The strongest of the grants at one path, c->grants[from] to [to - 1], is the first. */
static void settle_group(struct plan_ctx *c, size_t from, size_t to)
{
	struct plan *plan = c->plan;
	struct plan_grant *g = &c->grants[from];
	bool way = false;

	for (size_t i = from + 1; i < to; i++) {
		g->p.create |= c->grants[i].p.create && g->p.access == PLAN_WRITE;
		g->p.shut |= c->grants[i].p.shut && g->p.access == PLAN_READ;
		way |= c->grants[i].p.empty;
		path_finish(&c->grants[i].p);
	}
	if (changes(&g->p, g->source, last_above(plan, g->p.path))) {
		g->p.empty |= way && g->p.access == PLAN_HIDE;
		paths_push(plan, g->p);
	} else if (g->p.access == PLAN_HIDE && !g->p.empty) {
		if (way) /* hidden where nothing is shown, and yet it must be there */
			paths_push(plan, (struct plan_path){.path = xstrdup(g->p.path),
							    .access = PLAN_HIDE,
							    .dir = true,
							    .empty = true,
							    .reason = xstrdup(g->p.reason)});
		VEC_GROW(plan->unseen, plan->n_unseen, plan->cap_unseen);
		plan->unseen[plan->n_unseen++] = g->p;
	} else {
		path_finish(&g->p);
	}
}

static void settle_paths(struct plan_ctx *c)
{
	size_t to;

	if (c->n_grants)
		qsort(c->grants, c->n_grants, sizeof *c->grants, by_path_then_strength);
	for (size_t i = 0; i < c->n_grants; i = to) {
		for (to = i + 1; to < c->n_grants; to++)
			if (strcmp(c->grants[to].p.path, c->grants[i].p.path) != 0)
				break;
		settle_group(c, i, to);
	}
	c->n_grants = 0;
}

static struct plan_path *exactly(struct plan *plan, const char *path)
{
	for (size_t i = 0; i < plan->n_paths; i++)
		if (strcmp(plan->paths[i].path, path) == 0)
			return &plan->paths[i];
	return NULL;
}

/* Makes every directory on the way to `path` exist: those that no grant shows become empty ones. */
static void settle_way(struct plan *plan, const char *path)
{
	CLEANUP_FREE char *dir = path_dirname(path);

	while (strcmp(dir, "/") != 0) {
		struct plan_path *here = exactly(plan, dir);
		const struct plan_path *above;
		char *up;

		if (shows(here))
			return;
		above = nearest_above(plan, dir);
		if (here)
			here->empty = true;
		else if (shows(above))
			return;
		else
			paths_push(plan, (struct plan_path){.path = xstrdup(dir),
							    .access = PLAN_HIDE,
							    .dir = true,
							    .empty = true,
							    .reason = xstrdup("on the way to a grant")});
		up = path_dirname(dir);
		free(dir);
		dir = up;
	}
}

static int by_link_path(const void *a, const void *b)
{
	return compare_paths(((const struct plan_link *)a)->path, ((const struct plan_link *)b)->path);
}

static int by_path(const void *a, const void *b)
{
	return compare_paths(((const struct plan_path *)a)->path, ((const struct plan_path *)b)->path);
}

/* A link that comes along with its granted directory needs no help. */
static bool link_is_there(const struct plan *plan, const char *path)
{
	const struct plan_path *above = nearest_above(plan, path);

	return shows(above);
}

static void settle_links(struct plan_ctx *c)
{
	struct plan *plan = c->plan;

	for (size_t i = 0; i < c->n_links; i++) {
		struct plan_used *l = &c->links[i];
		bool seen = !l->pinned && link_is_there(plan, l->path);

		for (size_t k = 0; k < plan->n_links && !seen; k++)
			seen = strcmp(plan->links[k].path, l->path) == 0;
		if (seen)
			continue;
		VEC_GROW(plan->links, plan->n_links, plan->cap_links);
		plan->links[plan->n_links++] = (struct plan_link){TAKE_PTR(l->path), TAKE_PTR(l->target)};
	}
	if (plan->n_links)
		qsort(plan->links, plan->n_links, sizeof *plan->links, by_link_path);
}

/* Until here every empty directory was "hide". Those that nothing shows anyway are only made; the others
 * cover something. /tmp is made by the backend. */
static void settle_empty(struct plan *plan)
{
	for (size_t i = 0; i < plan->n_paths; i++) {
		struct plan_path *p = &plan->paths[i];

		if (p->empty && (!shows(nearest_above(plan, p->path)) || strcmp(p->path, plan->tmpdir) == 0))
			p->access = PLAN_READ;
	}
}

void plan_settle(struct plan_ctx *c)
{
	struct plan *plan = c->plan;
	size_t n;

	settle_paths(c);
	settle_links(c);
	n = plan->n_paths;
	for (size_t i = 0; i < n; i++)
		if (plan->paths[i].access != PLAN_HIDE || plan->paths[i].empty)
			settle_way(plan, plan->paths[i].path);
	for (size_t i = 0; i < plan->n_links; i++)
		settle_way(plan, plan->links[i].path);
	if (plan->n_paths)
		qsort(plan->paths, plan->n_paths, sizeof *plan->paths, by_path);
	settle_empty(plan);
}
