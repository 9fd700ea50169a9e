/*
 * Making a plan. See plan.h for what it is; the steps below are in the order in which they need each other:
 * hidden places first, because every grant is judged against them; own directories before everything else,
 * because what the app can write decides whom the rest trusts; the toolchain last of the grants, because it
 * adds only what is not visible yet.
 */
#include "sandbox/plan_internal.h"
#include "base/file.h"
#include "base/parse.h"
#include "sandbox/cgroup.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void plan_problem(struct plan_ctx *c, const char *origin, const char *fmt, ...)
{
	const char *where = origin ? origin : c->u->file ? path_basename(c->u->file) : c->u->name;
	const char *colon = strrchr(where, ':');
	CLEANUP_FREE char *text = NULL, *file = NULL;
	uint64_t line = 0;
	va_list ap;

	va_start(ap, fmt);
	text = xvasprintf(fmt, ap);
	va_end(ap);
	if (colon && parse_u64(colon + 1, UINT32_MAX, &line) == 0)
		file = xstrndup(where, (size_t)(colon - where));
	else
		file = xstrdup(where);
	unit_problem_add(c->problems, file, (unsigned)line, "%s", text);
}

bool plan_failed(const struct plan_ctx *c)
{
	return c->problems->n > c->problems_before;
}

static void ctx_finish(struct plan_ctx *c)
{
	for (size_t i = 0; i < c->n_grants; i++) {
		free(c->grants[i].p.path);
		free(c->grants[i].p.reason);
	}
	free(c->grants);
	for (size_t i = 0; i < c->n_places; i++) {
		struct plan_place *p = &c->places[i];

		for (size_t k = 0; k < p->n_links; k++) {
			free(p->links[k].path);
			free(p->links[k].target);
		}
		free(p->links);
		free(p->stood);
		free(p->path);
		free(p->written);
		free(p->reason);
		free(p->again);
	}
	free(c->places);
	plan_mounts_free(c->mounts);
	for (size_t i = 0; i < c->n_links; i++) {
		free(c->links[i].path);
		free(c->links[i].target);
		free(c->links[i].leads_to);
	}
	free(c->links);
	for (size_t i = 0; i < c->cap_known; i++)
		free(c->known[i].path);
	free(c->known);
	strv_clear(&c->own);
	strv_clear(&c->homes);
	strv_clear(&c->search);
	strv_clear(&c->login);
	strv_clear(&c->path_dirs);
}

static void identity(struct plan_ctx *c)
{
	const struct plan_user *user = &c->w->user;
	struct plan *plan = c->plan;

	plan->app = xstrdup(c->u->name);
	plan->user = (struct plan_user){
		.uid = user->uid,
		.gid = user->gid,
		.name = xstrdup(user->name),
		.home = xstrdup(user->home),
		.shell = xstrdup(user->shell),
	};
	plan->read_mode = c->u->read_mode;
	plan->enforce = c->u->enforce;
	plan->nested_sandbox = c->u->nested_sandbox;
	plan->netns = c->u->enforce != UNIT_ENFORCE_OFF;
	plan->notify = c->u->ready == UNIT_READY_NOTIFY || c->u->watchdog_ms;
	plan->dns = plan->netns && (c->u->egress != UNIT_EGRESS_OFF || c->w->reaches_out);
	plan->tmpdir = xstrdup("/tmp");
	plan->tmp_size = c->u->tmp_size;
	plan->nice = c->u->nice;
	if (c->w->dirs->root_mode && user->uid == 0)
		plan_problem(c, NULL,
			     "an app never runs as root: write User=NAME, or make the default user "
			     "with: " UNIT_USER_COMMAND "sbxsv");
}

static void limit(struct plan *plan, int resource, rlim_t soft, rlim_t hard)
{
	plan->rlimits[plan->n_rlimits].resource = resource;
	plan->rlimits[plan->n_rlimits].limit = (struct rlimit){.rlim_cur = soft, .rlim_max = hard};
	plan->n_rlimits++;
}

static void limits(struct plan_ctx *c)
{
	const struct unit *u = c->u;

	limit(c->plan, RLIMIT_CORE, u->limit_core, u->limit_core);
	/* 1024 is what select(2) can hold and what systemd gives (systemd.exec(5)); programs that know better
	 * raise it. */
	if (u->limit_open_files)
		limit(c->plan, RLIMIT_NOFILE, u->limit_open_files, u->limit_open_files);
	else
		limit(c->plan, RLIMIT_NOFILE, 1024, RLIM_INFINITY);
	/* Counted per user namespace since Linux 5.14 (kernel/ucount.c), so it counts the app's processes
	 * alone. */
	if (u->limit_tasks) {
		limit(c->plan, RLIMIT_NPROC, u->limit_tasks, u->limit_tasks);
		c->plan->rlimits[c->plan->n_rlimits - 1].unless = CGROUP_PIDS;
	}
	/* Of each process by itself: what it may write to and nobody shares (setrlimit(2); since Linux 4.7 private mappings
	 * count). Never RLIMIT_AS: runtimes reserve address space by the gigabyte and do not use it. */
	if (u->limit_memory) {
		limit(c->plan, RLIMIT_DATA, u->limit_memory, u->limit_memory);
		c->plan->rlimits[c->plan->n_rlimits - 1].unless = CGROUP_MEMORY;
	}
}

/* Hide= wins over what is granted below it. What the app cannot be without, its own directories and its
 * toolchain, stays reachable below a Hide= (Hide=~ beside AppDirectory=~/apps/x), and with a directory of its
 * own what is asked for in it. */
static bool hidden_by_unit(const struct plan_ctx *c, const struct plan_grant *g)
{
	for (size_t i = 0; i < c->n_places; i++) {
		const struct plan_place *p = &c->places[i];
		bool own = false;

		if (p->kind != PLACE_HIDE || !path_is_below(g->p.path, p->path))
			continue;
		for (size_t k = 0; k < c->own.n; k++)
			own |= path_is_below(g->p.path, c->own.v[k]) && path_is_below(c->own.v[k], p->path) &&
			       strcmp(c->own.v[k], p->path) != 0;
		if (!own)
			return true;
	}
	return false;
}

static void drop_hidden(struct plan_ctx *c)
{
	size_t kept = 0;

	for (size_t i = 0; i < c->n_grants; i++) {
		struct plan_grant *g = &c->grants[i];
		/* home and /tmp show nothing by themselves; "/" is what Hide= takes from */
		bool may = g->source != SOURCE_OWN && g->source != SOURCE_IMPLIED &&
			   g->p.access != PLAN_HIDE && strcmp(g->p.path, "/") != 0;

		if (may && hidden_by_unit(c, g)) {
			free(g->p.path);
			free(g->p.reason);
		} else {
			c->grants[kept++] = *g;
		}
	}
	c->n_grants = kept;
}

/* HOME exists in every jail, so that programs that look at it do not stumble; it shows nothing by itself. */
static void home(struct plan_ctx *c)
{
	CLEANUP_WHERE struct plan_where w = {0};

	if (!c->w->user.home || c->w->user.home[0] != '/')
		return;
	plan_resolve(c, c->w->user.home, &w);
	if (w.error || !S_ISDIR(w.st.st_mode) || strcmp(w.path, "/") == 0)
		return;
	plan_links_add(c, &w, NULL);
	plan_grant_add(c, w.path, PLAN_HIDE, true, SOURCE_SYSTEM, "home directory, empty")->p.empty = true;
}

/* What is at `path`, or is put there, is chosen by this app or by another one. */
static bool in_hands_of_apps(const struct plan_ctx *c, const char *path)
{
	if (plan_writable(c, path))
		return true;
	for (size_t i = 0; i < c->n_places; i++) {
		const struct plan_place *p = &c->places[i];

		if (p->kind == PLACE_OTHER && p->dir && path_is_below(path, p->path))
			return true;
	}
	return false;
}

/* The supervisor writes there with its own rights, and follows the links on the way. */
static void log_file(struct plan_ctx *c)
{
	CLEANUP_WHERE struct plan_where w = {0};
	bool theirs;

	if (!c->u->log_file)
		return;
	plan_resolve(c, c->u->log_file, &w);
	theirs = in_hands_of_apps(c, w.path);
	for (size_t i = 0; i < w.n_links; i++)
		theirs |= in_hands_of_apps(c, w.links[i].path);
	if (theirs)
		plan_problem(
			c, NULL,
			"File=%s of [Log] lies in a directory that this or another app can write, or goes "
			"through a link there: name one outside of it",
			c->u->log_file);
}

/* The program and the working directory must have survived what is hidden. */
static void still_there(struct plan_ctx *c)
{
	const char *paths[] = {c->plan->program, c->plan->workdir};
	static const char *const what[] = {"the program", "WorkingDirectory="};

	for (size_t i = 0; i < ELEMENTS(paths); i++) {
		const struct plan_path *by;
		CLEANUP_WHERE struct plan_where w = {0};

		if (!paths[i])
			continue;
		plan_resolve(c, paths[i], &w);
		if (plan_decide(c->plan, w.path, &by) == PLAN_HIDE && by && !by->empty)
			plan_problem(c, c->u->exec_origin, "%s %s is hidden (%s)", what[i], paths[i],
				     by->reason);
	}
}

struct plan *plan_make(const struct unit *u, const struct plan_world *w, struct unit_problems *p)
{
	CLEANUP_PLAN struct plan *plan = xcalloc(1, sizeof *plan);
	CLEANUP(ctx_finish)
	struct plan_ctx c = {.u = u, .w = w, .problems = p, .plan = plan, .problems_before = p->n};

	identity(&c);
	limits(&c);
	plan_guard_init(&c);
	/* the host's /tmp is behind the app's own, in `open` too */
	plan_grant_add(&c, plan->tmpdir, PLAN_HIDE, true, SOURCE_MADE, "the app's own /tmp")->p.empty = true;
	plan_own_directories(&c);
	plan_system_roots(&c);
	plan_asked(&c);
	plan_search_path(&c);
	home(&c);
	plan_work_directory(&c);
	if (!plan_failed(&c))
		plan_toolchain(&c);
	plan_guard_own_links(&c);
	plan_environment(&c);
	log_file(&c);
	if (plan_failed(&c))
		return NULL;
	drop_hidden(&c);
	plan_sockets(&c);
	plan_guard_locks(&c);
	plan_hide_places(&c);
	plan_settle(&c);
	still_there(&c);
	return plan_failed(&c) ? NULL : TAKE_PTR(plan);
}

static void paths_free(struct plan_path *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(v[i].path);
		free(v[i].reason);
	}
	free(v);
}

void plan_free(struct plan *p)
{
	if (!p)
		return;
	paths_free(p->paths, p->n_paths);
	paths_free(p->unseen, p->n_unseen);
	for (size_t i = 0; i < p->n_links; i++) {
		free(p->links[i].path);
		free(p->links[i].target);
	}
	free(p->links);
	strv_clear(&p->argv);
	strv_clear(&p->env);
	strv_clear(&p->devices);
	strv_clear(&p->missing);
	free(p->app);
	free(p->program);
	free(p->workdir);
	free(p->app_directory);
	free(p->user.name);
	free(p->user.home);
	free(p->user.shell);
	free(p->tmpdir);
	free(p->unix_why);
	free(p);
}

/* --- deciding --- */

static const struct plan_path *longest(const struct plan_path *v, size_t n, const char *path)
{
	const struct plan_path *best = NULL;

	for (size_t i = 0; i < n; i++) {
		const struct plan_path *p = &v[i];
		bool match = p->dir ? path_is_below(path, p->path) : strcmp(path, p->path) == 0;

		if (match && (!best || strlen(p->path) > strlen(best->path)))
			best = p;
	}
	return best;
}

/* What the backend makes itself, in every jail. */
static const struct plan_path made[] = {
	{.path = (char *)"/tmp", .access = PLAN_WRITE, .dir = true, .reason = (char *)"the app's own /tmp"},
	{.path = (char *)"/dev", .access = PLAN_READ, .dir = true, .reason = (char *)"the app's own /dev"},
	{.path = (char *)"/proc", .access = PLAN_READ, .dir = true, .reason = (char *)"the app's own /proc"},
};

/* Replaces the first link of the plan that `path` goes through. Owned by caller; NULL: none. */
static char *through_link(const struct plan *p, const char *path)
{
	for (size_t i = 0; i < p->n_links; i++) {
		const struct plan_link *l = &p->links[i];
		CLEANUP_FREE char *dir = NULL, *target = NULL;
		const char *rest;

		if (!path_is_below(path, l->path))
			continue;
		rest = path + strlen(l->path);
		dir = path_dirname(l->path);
		target = path_join(dir, l->target);
		return path_join(target, *rest ? rest + 1 : ".");
	}
	return NULL;
}

/* A link of the disk can be followed inside only where it is seen. */
static bool link_seen(const struct plan *p, const char *path)
{
	const struct plan_path *by;
	CLEANUP_FREE char *dir = path_dirname(path);

	for (size_t i = 0; i < p->n_links; i++)
		if (strcmp(p->links[i].path, path) == 0)
			return true;
	return plan_decide(p, dir, &by) != PLAN_HIDE;
}

enum plan_access plan_decide_on_disk(const struct plan *p, const struct plan_fs *fs, const char *path,
				     const struct plan_path **ret_by)
{
	struct plan_world w = {.fs = *fs};
	CLEANUP(ctx_finish) struct plan_ctx c = {.w = &w};
	CLEANUP_WHERE struct plan_where at = {0};

	plan_resolve(&c, path, &at);
	for (size_t i = 0; i < at.n_links; i++) {
		if (link_seen(p, at.links[i].path))
			continue;
		(void)plan_decide(p, at.links[i].path, ret_by);
		return PLAN_HIDE;
	}
	return plan_decide(p, at.path, ret_by);
}

char *plan_program_at(const struct plan *p, const struct plan_fs *fs, const char *path)
{
	struct plan_world w = {.fs = *fs};
	CLEANUP(ctx_finish) struct plan_ctx c = {.w = &w};
	CLEANUP_WHERE struct plan_where at = {0};
	const struct plan_path *by;

	plan_resolve(&c, path, &at);
	if (at.error || !S_ISREG(at.st.st_mode) || !(at.st.st_mode & 0111) ||
	    plan_decide_on_disk(p, fs, path, &by) == PLAN_HIDE)
		return NULL;
	return TAKE_PTR(at.path);
}

char *plan_program_elsewhere(const struct unit *u, const char *home, const struct plan_fs *fs,
			     const char *name)
{
	struct plan_world w = {.fs = *fs};
	CLEANUP(ctx_finish) struct plan_ctx c = {.u = u, .w = &w};

	if (home)
		strv_add(&c.homes, home);
	return plan_lookup_elsewhere(&c, name);
}

enum plan_access plan_decide(const struct plan *p, const char *path, const struct plan_path **ret_by)
{
	CLEANUP_FREE char *at = path_join("/", path);
	const struct plan_path *by, *own;

	for (int i = 0; i < 40; i++) {
		char *next = through_link(p, at);

		if (!next)
			break;
		free(at);
		at = next;
	}
	by = longest(p->paths, p->n_paths, at);
	own = longest(made, ELEMENTS(made), at);
	if (own && (!by || strlen(by->path) < strlen(own->path) || strcmp(by->path, own->path) == 0))
		by = own;
	if (!by || (by->empty && by->access != PLAN_HIDE)) {
		const struct plan_path *unseen = longest(p->unseen, p->n_unseen, at);

		if (unseen)
			by = unseen;
		else if (by && strcmp(by->path, at) != 0)
			by = NULL; /* below a directory that shows nothing */
	}
	*ret_by = by;
	return by && !by->empty ? by->access : PLAN_HIDE;
}
