/*
 * The hidden places of one jail, collected: secrets, what belongs to sbxsv itself, what belongs to other
 * apps, what the unit hides. guard.c judges grants against them; plan_shut.c turns them into
 * entries.
 */
#include "sandbox/plan_internal.h"
#include "base/file.h"
#include <stdlib.h>
#include <string.h>

bool plan_secret_granted(const struct unit *u, const char *name)
{
	for (size_t i = 0; i < u->secret.n; i++)
		if (str_eq(u->secret.v[i].text, name))
			return true;
	return false;
}

const char *const *plan_secret_names(void)
{
	static const char *names[128];
	size_t n = 0, rows;
	const struct unit_secret *s = unit_secrets(&rows);

	if (names[0])
		return names;
	for (size_t i = 0; i < rows && n + 1 < ELEMENTS(names); i++) {
		bool seen = false;

		for (size_t k = 0; k < n; k++)
			seen |= strcmp(names[k], s[i].name) == 0;
		if (!seen)
			names[n++] = s[i].name;
	}
	return names;
}

/* --- collecting the places --- */

static struct plan_place *place_add(struct plan_ctx *c, const char *path, enum plan_place_kind kind,
				    const char *name, const char *reason)
{
	CLEANUP_WHERE struct plan_where w = {0};
	struct plan_place *p;

	plan_resolve(c, path, &w);
	VEC_GROW(c->places, c->n_places, c->cap_places);
	p = &c->places[c->n_places++];
	*p = (struct plan_place){
		.path = xstrdup(w.path),
		.written = xstrdup(path),
		.kind = kind,
		.name = name,
		.reason = xstrdup(reason),
		.exists = w.error == 0,
		.dir = w.error == 0 && S_ISDIR(w.st.st_mode),
		.closed = w.error == 0 && S_ISREG(w.st.st_mode) && w.st.st_uid != c->w->user.uid &&
			  !(w.st.st_mode & 0044),
		.firm = kind == PLACE_SECRET,
		.links = TAKE_PTR(w.links),
		.n_links = w.n_links,
		.stood = w.error ? TAKE_PTR(w.stood) : path_dirname(w.path),
	};
	w.n_links = 0;
	while (!path_is_below(p->path, p->stood)) { /* "..", in what is not there */
		char *up = path_dirname(p->stood);

		free(p->stood);
		p->stood = up;
	}
	return p;
}

static void home_add(struct plan_ctx *c, const char *home)
{
	CLEANUP_WHERE struct plan_where w = {0};

	if (!home || home[0] != '/')
		return;
	plan_resolve(c, home, &w);
	if (strcmp(w.path, "/") != 0 && !strv_has(&c->homes, w.path))
		strv_add(&c->homes, w.path);
}

static void secret_places(struct plan_ctx *c)
{
	size_t n;
	const struct unit_secret *s = unit_secrets(&n);

	for (size_t h = 0; h < c->homes.n; h++) {
		for (size_t i = 0; i < n; i++) {
			CLEANUP_FREE char *path = xasprintf("%s/%s", c->homes.v[h], s[i].path);
			CLEANUP_FREE char *reason = xasprintf("secret place (%s)", s[i].name);

			place_add(c, path, PLACE_SECRET, s[i].name, reason);
		}
	}
	for (size_t i = 0; i < c->u->secret.n; i++) {
		const struct unit_value *v = &c->u->secret.v[i];
		const char *const *names = plan_secret_names();
		const char *nearest = str_nearest(v->text, names);
		bool known = false;

		for (size_t k = 0; names[k]; k++)
			known |= strcmp(names[k], v->text) == 0;
		if (!known)
			plan_problem(c, v->origin, "Secret=%s is not the name of a secret place%s%s", v->text,
				     nearest ? ": did you mean " : "", nearest ? nearest : "");
	}
}

static void sbxsv_places(struct plan_ctx *c)
{
	const struct unit_dirs *d = c->w->dirs;
	const char *dirs[] = {d->config, d->apps, d->state, d->runtime, d->profiles};
	static const char *const what[] = {"configuration", "apps.d", "state", "runtime directory",
					   "profiles"};

	for (size_t i = 0; i < ELEMENTS(dirs); i++) {
		CLEANUP_FREE char *reason = xasprintf("sbxsv's own %s", what[i]);

		if (dirs[i])
			place_add(c, dirs[i], PLACE_SBXSV, NULL, reason);
	}
}

/* Files, not trees: the unit's own sources, EnvironmentFile= and log, which may lie in the app's directory.
 */
static void file_places(struct plan_ctx *c)
{
	const struct unit *u = c->u;

	for (size_t i = 0; i < u->sources.n; i++)
		if (u->sources.v[i][0] == '/')
			place_add(c, u->sources.v[i], PLACE_FILE, NULL, "unit file");
	for (size_t i = 0; i < u->environment_file.n; i++) {
		const char *text = u->environment_file.v[i].text;

		place_add(c, text + (text[0] == '-'), PLACE_FILE, NULL, "EnvironmentFile=");
	}
	if (u->log_file)
		place_add(c, u->log_file, PLACE_FILE, NULL, "log file");
}

static void hide_places(struct plan_ctx *c)
{
	const struct unit *u = c->u;

	for (size_t i = 0; i < u->hide.n; i++) {
		const struct unit_value *v = &u->hide.v[i];
		bool optional = v->text[0] == '-';
		CLEANUP_FREE char *reason = xasprintf("%s Hide=", v->origin ? v->origin : "");

		place_add(c, v->text + optional, PLACE_HIDE, NULL, reason);
		if (strcmp(c->places[c->n_places - 1].path, "/") == 0)
			plan_problem(c, v->origin,
				     "Hide=%s would hide everything: name what the app must not see",
				     v->text);
		if (!optional && !c->places[c->n_places - 1].exists)
			plan_problem(c, v->origin,
				     "Hide=%s does not exist: correct the path, or write Hide=-%s if it may "
				     "be absent",
				     v->text, v->text);
	}
}

/* Only `open` shows these; AF_UNIX is refused there anyway, hiding them keeps their names private too. */
static void open_places(struct plan_ctx *c)
{
	if (c->plan->read_mode != UNIT_READ_OPEN)
		return;
	place_add(c, "/run", PLACE_MACHINE, NULL, "sockets of this machine");
	place_add(c, "/var/run", PLACE_MACHINE, NULL, "sockets of this machine");
	place_add(c, "/var/spool/cron", PLACE_MACHINE, NULL, "other people's work");
	place_add(c, "/var/mail", PLACE_MACHINE, NULL, "mail");
	place_add(c, "/var/spool/mail", PLACE_MACHINE, NULL, "mail");
}

/* Mounted once more, for a chroot or a container: a /proc shows every process with its arguments, whoever
 * looks. */
static void kernel_mounts(struct plan_ctx *c)
{
	static const char *const types[2] = {"proc", "mqueue"};
	CLEANUP_STRV struct strv at = {0};

	plan_mounts_of_types(c->mounts, types, &at);
	for (size_t k = 0; k < at.n; k++)
		if (!path_is_below(at.v[k], "/proc") && !path_is_below(at.v[k], "/dev"))
			place_add(c, at.v[k], PLACE_FILE, NULL, "it shows processes of this machine");
}

static void place_again(struct plan_ctx *c, size_t i, const char *path)
{
	CLEANUP_FREE char *reason = xasprintf("%s, mounted here too", c->places[i].reason);
	struct plan_place *new = place_add(c, path, c->places[i].kind, c->places[i].name, reason);
	const struct plan_place *p = &c->places[i]; /* adding moves them */

	new->again = xstrdup(p->path);
	new->create = p->create;
	new->firm = p->firm;
}

/* A mount of a part of a place that is the home of the app's user, or above it: no place, or nothing would be left. */
static bool holds_a_home(const struct plan_ctx *c, const char *path)
{
	for (size_t i = 0; i < c->homes.n; i++)
		if (path_is_below(c->homes.v[i], path))
			return true;
	return strcmp(path, "/") == 0;
}

/* The places `from` to `to` under the names that other mounts give them. */
static void other_names(struct plan_ctx *c, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++) {
		CLEANUP_STRV struct strv names = {0};

		plan_mounts_other_names(c->mounts, c->places[i].path, &names);
		for (size_t k = 0; k < names.n; k++)
			if (!holds_a_home(c, names.v[k]))
				place_again(c, i, names.v[k]);
	}
}

/* Somebody else's home directory that this user may enter: what lies openly in it is for `open` to show, a
 * careless ~/.npmrc is not. */
static bool passable(const struct plan_ctx *c, const struct stat *st)
{
	return S_ISDIR(st->st_mode) && (st->st_uid == c->w->user.uid || (st->st_mode & 0011));
}

static void other_secrets(struct plan_ctx *c, const char *home)
{
	size_t n;
	const struct unit_secret *s = unit_secrets(&n);

	for (size_t i = 0; i < n; i++) {
		CLEANUP_FREE char *path = xasprintf("%s/%s", home, s[i].path);
		CLEANUP_FREE char *reason = xasprintf("secret place (%s) of another user", s[i].name);

		place_add(c, path, PLACE_MACHINE, NULL, reason)->firm = true;
	}
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Where there are many, the rest is hidden as a whole: each costs a launch some milliseconds. */
enum { OTHER_HOMES_MAX = 8 };

static void other_homes(struct plan_ctx *c)
{
	const struct plan_fs *fs = &c->w->fs;
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_WHERE struct plan_where top = {0};
	size_t n = 0;

	if (c->plan->read_mode != UNIT_READ_OPEN)
		return;
	plan_resolve(c, "/home", &top);
	if (top.error || fs->list(fs->data, top.path, &names) < 0)
		return;
	if (names.n)
		qsort(names.v, names.n, sizeof *names.v, by_name);
	for (size_t i = 0; i < names.n; i++) {
		CLEANUP_FREE char *home = path_join(top.path, names.v[i]);
		CLEANUP_WHERE struct plan_where w = {0};

		plan_resolve(c, home, &w);
		if (w.error || !passable(c, &w.st) || strv_has(&c->homes, w.path))
			continue;
		if (n++ < OTHER_HOMES_MAX)
			other_secrets(c, w.path);
		else
			place_add(c, home, PLACE_MACHINE, NULL, "home directory of another user");
	}
}

void plan_guard_init(struct plan_ctx *c)
{
	CLEANUP_FREE char *mountinfo = c->w->fs.mountinfo(c->w->fs.data);
	size_t asked, others;

	c->mounts = plan_mounts_parse(mountinfo);
	home_add(c, c->w->user.home);
	home_add(c, c->w->dirs->home);
	secret_places(c);
	sbxsv_places(c);
	file_places(c);
	asked = c->n_places;
	hide_places(c);
	kernel_mounts(c);
	others = c->n_places;
	for (size_t i = 0; c->w->others && i < c->w->others->n; i++) {
		const char *path = c->w->others->v[i];

		place_add(c, path, PLACE_OTHER, NULL, "belongs to another app");
		c->places[c->n_places - 1].create = c->w->others_data && strv_has(c->w->others_data, path);
	}
	other_names(c, others, c->n_places);
	other_names(c, 0, asked);
	/* last: plan_place_of() gives the first, and these bind least */
	open_places(c);
	others = c->n_places;
	other_homes(c);
	other_names(c, others, c->n_places);
}

void plan_unit_places(const struct unit *u, struct strv *ret)
{
	if (u->app_directory)
		strv_add(ret, u->app_directory);
	for (size_t i = 0; i < u->data_directory.n; i++)
		strv_add(ret, u->data_directory.v[i].text);
	for (size_t i = 0; i < u->environment_file.n; i++) {
		const char *text = u->environment_file.v[i].text;

		strv_add(ret, text + (text[0] == '-'));
	}
	if (u->log_file)
		strv_add(ret, u->log_file);
}

void plan_unit_data(const struct unit *u, struct strv *ret)
{
	for (size_t i = 0; i < u->data_directory.n; i++)
		strv_add(ret, u->data_directory.v[i].text);
}

const struct plan_place *plan_place_of(const struct plan_ctx *c, const char *path)
{
	for (size_t i = 0; i < c->n_places; i++)
		if (path_is_below(path, c->places[i].path))
			return &c->places[i];
	return NULL;
}

/* --- which of them count --- */

bool plan_hidden(const struct plan_ctx *c, const struct plan_place *p)
{
	if (strcmp(p->path, "/") == 0)
		return false;
	if (p->kind == PLACE_SECRET && plan_secret_granted(c->u, p->name))
		return false;
	if (p->kind == PLACE_OTHER && p->again && strv_has(&c->own, p->again))
		return false;
	return p->kind != PLACE_OTHER || !strv_has(&c->own, p->path);
}

bool plan_inside_hidden(const struct plan_ctx *c, const char *path)
{
	for (size_t i = 0; i < c->n_places; i++)
		if (path_is_below(path, c->places[i].path) && plan_hidden(c, &c->places[i]))
			return true;
	return false;
}
