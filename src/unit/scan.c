/*
 * apps.d on the disk: which files make up a unit, and all units of the directory. What one file or directory
 * does wrong is a problem of its app; the others are read as if it were not there.
 */
#include "base/file.h"
#include "unit/internal.h"
#include "unit/order.h"
#include <errno.h>
#include <pwd.h>
#include <string.h>

enum { ENTRIES_MAX = 4096, DROPINS_MAX = 256 };

/* What editors, package managers and atomic writers leave beside real files. */
static bool is_scratch(const char *name)
{
	return name[0] == '.' || name[0] == '#' || str_ends(name, "~") || str_ends(name, ".tmp") ||
	       str_ends(name, ".swp");
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorted names in a trusted directory that end with `suffix`. */
static int list_dir(const struct unit_dirs *d, const char *path, const char *suffix, size_t max,
		    struct strv *ret, struct err **e)
{
	CLEANUP_FD int fd = unit_trust_open(d, path, TRUST_DIR, e);
	CLEANUP_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (fd < 0)
		return -1;
	if (!dir)
		return err_sys(e, errno, "it cannot be read");
	(void)TAKE_FD(fd); /* belongs to dir now */
	errno = 0;
	for (struct dirent *ent; (ent = readdir(dir)); errno = 0) {
		if (is_scratch(ent->d_name) || !str_ends(ent->d_name, suffix))
			continue;
		if (ret->n >= max)
			return err_set(e, E2BIG, "it has more than %zu files that end with %s", max, suffix);
		strv_add(ret, ent->d_name);
	}
	if (errno)
		return err_sys(e, errno, "it cannot be read");
	if (ret->n)
		qsort(ret->v, ret->n, sizeof *ret->v, compare);
	return 0;
}

static int add_file(const struct unit_dirs *d, const char *path, const char *shown, enum layer layer,
		    struct sources *ret, struct unit_problems *p)
{
	CLEANUP_ERR struct err *e = NULL;
	char *text = NULL;
	size_t len = 0;

	if (unit_trusted_read(d, path, FILE_MAX_BYTES, &text, &len, &e) < 0) {
		unit_problem_add(p, shown, 0, "%s", err_msg(e));
		return -1;
	}
	VEC_GROW(ret->v, ret->n, ret->cap);
	ret->v[ret->n++] = (struct source){.shown = xstrdup(shown),
					   .path = path_join("/", path),
					   .text = text,
					   .len = len,
					   .layer = layer};
	return 0;
}

/* The drop-ins of UNIT.d, if there is one. `shown` is the name of the unit file for people. */
static void add_dropins(const struct unit_dirs *d, const char *unit_path, const char *shown,
			struct sources *ret, struct unit_problems *p)
{
	CLEANUP_FREE char *dir = xasprintf("%s.d", unit_path), *dir_shown = xasprintf("%s.d", shown);
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_ERR struct err *e = NULL;
	struct stat st;

	if (lstat(dir, &st) < 0 && errno == ENOENT)
		return;
	if (list_dir(d, dir, ".conf", DROPINS_MAX, &names, &e) < 0) {
		unit_problem_add(p, dir_shown, 0, "%s", err_msg(e));
		return;
	}
	for (size_t i = 0; i < names.n; i++) {
		CLEANUP_FREE char *path = xasprintf("%s/%s", dir, names.v[i]),
				  *file = xasprintf("%s/%s", dir_shown, names.v[i]);

		(void)add_file(d, path, file, LAYER_DROPIN, ret, p);
	}
}

bool unit_path_exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 || errno != ENOENT;
}

/* "web@blue" -> "web@"; NULL for a name without instance. Owned by caller. */
static char *template_of(const char *name)
{
	const char *at = strchr(name, '@');

	return at ? xstrndup(name, (size_t)(at - name) + 1) : NULL;
}

int unit_sources_read(const struct unit_dirs *d, const char *name, struct sources *ret, char **ret_path,
		      struct unit_problems *p)
{
	CLEANUP_FREE char *file = xasprintf("%s.app", name), *path = path_join(d->apps, file),
			  *template = template_of(name);
	CLEANUP_FREE char *tfile = template ? xasprintf("%s.app", template) : NULL,
			  *tpath = tfile ? path_join(d->apps, tfile) : NULL;
	size_t before = p->n;
	bool own = unit_path_exists(path);

	/* An instance without a file of its own is its template. */
	if (!own && tpath && unit_path_exists(tpath)) {
		if (add_file(d, tpath, tfile, LAYER_UNIT, ret, p) < 0)
			return -1;
	} else if (add_file(d, path, file, LAYER_UNIT, ret, p) < 0) {
		return -1;
	}
	if (tpath)
		add_dropins(d, tpath, tfile, ret, p);
	add_dropins(d, path, file, ret, p);
	*ret_path = own || !tpath ? TAKE_PTR(path) : TAKE_PTR(tpath);
	return p->n == before ? 0 : 1;
}

/* --- callbacks of the build --- */

/* What the units of one load or one scan have in common, read once. */
struct disk {
	const struct unit_dirs *d;
	char *profile_name, *default_home;
	struct source profile;
};

static void disk_finish(struct disk *k)
{
	free(k->profile_name);
	free(k->default_home);
	free(k->profile.shown);
	free(k->profile.path);
	free(k->profile.text);
}

static struct source source_copy(const struct source *s)
{
	struct source to = *s;

	to.shown = xstrdup(s->shown);
	to.path = xstrdup(s->path);
	to.text = xmalloc(s->len + 1); /* there may be NUL bytes in it */
	memcpy(to.text, s->text, s->len);
	to.text[s->len] = 0;
	return to;
}

static bool read_profile(const struct unit_dirs *d, const char *name, struct source *ret, struct err **e)
{
	CLEANUP_FREE char *file = xasprintf("%s.conf", name), *path = path_join(d->profiles, file);
	char *text = NULL;
	size_t len = 0;

	if (unit_trusted_read(d, path, FILE_MAX_BYTES, &text, &len, e) < 0) {
		CLEANUP_STRV struct strv names = {0};
		const char *near;

		if (err_code(*e) != ENOENT ||
		    list_dir(d, d->profiles, ".conf", DROPINS_MAX, &names, NULL) < 0) {
			err_wrap(e, "%s", path);
			return false;
		}
		for (size_t i = 0; i < names.n; i++)
			names.v[i][strlen(names.v[i]) - strlen(".conf")] = 0;
		near = names.n ? str_nearest(name, (const char *const *)names.v) : NULL;
		err_set(e, ENOENT, "there is no such profile in %s%s%s%s", d->profiles,
			near ? ": did you mean " : "", near ? near : "", near ? "?" : "");
		return false;
	}
	*ret = (struct source){.shown = xasprintf("units/%s", file),
			       .path = TAKE_PTR(path),
			       .text = text,
			       .len = len,
			       .layer = LAYER_PROFILE};
	return true;
}

static bool profile_of(void *data, const char *name, struct source *ret, struct err **e)
{
	struct disk *k = data;

	if (!str_eq(k->profile_name, name)) {
		struct source s;

		if (!read_profile(k->d, name, &s, e))
			return false;
		if (k->profile_name) {
			*ret = s;
			return true;
		}
		k->profile_name = xstrdup(name);
		k->profile = s;
	}
	*ret = source_copy(&k->profile);
	return true;
}

static char *read_home(const struct unit_dirs *d, const char *user, struct err **e)
{
	CLEANUP(conf_finish) struct conf conf = {0};
	struct unit_problems ignored = {0};
	struct passwd pw, *found = NULL;
	char buf[16384];

	if (!user) {
		(void)conf_load(
			d, &conf,
			&ignored); /* its problems are reported by whoever loads it for its own sake */
		unit_problems_clear(&ignored);
		user = conf.default_user;
	}
	(void)getpwnam_r(user, &pw, buf, sizeof buf, &found);
	if (!found || !found->pw_dir || found->pw_dir[0] != '/') {
		err_set(e, ENOENT,
			"the user %s does not exist, so its home directory is not known; make it "
			"with: " UNIT_USER_COMMAND "%s",
			user, user);
		return NULL;
	}
	return path_join("/", found->pw_dir);
}

static char *home_of(void *data, const char *user, struct err **e)
{
	struct disk *k = data;

	if (user)
		return read_home(k->d, user, e);
	if (!k->default_home)
		k->default_home = read_home(k->d, NULL, e);
	return k->default_home ? xstrdup(k->default_home) : NULL;
}

static struct build_env disk_env(struct disk *k)
{
	return (struct build_env){.dirs = k->d, .profile = profile_of, .home = home_of, .data = k};
}

/* --- loading --- */

/* Puts `text` where a drop-in of this name is read: those of the unit's own directory are the last, sorted. */
static void put_source(struct sources *s, const char *shown, const char *path, const char *text)
{
	CLEANUP_FREE char *dir = path_dirname(shown);
	struct source src = {.shown = xstrdup(shown),
			     .path = path_join("/", path),
			     .text = xstrdup(text),
			     .len = strlen(text),
			     .layer = LAYER_DROPIN};
	size_t i = s->n;

	while (i && path_is_below(s->v[i - 1].shown, dir) && strcmp(s->v[i - 1].shown, shown) > 0)
		i--;
	if (i && str_eq(s->v[i - 1].shown, shown)) {
		struct sources old = {0};

		VEC_GROW(old.v, old.n, old.cap);
		old.v[old.n++] = s->v[i - 1];
		unit_sources_finish(&old);
		s->v[i - 1] = src;
		return;
	}
	VEC_GROW(s->v, s->n, s->cap);
	memmove(&s->v[i + 1], &s->v[i], (s->n - i) * sizeof *s->v);
	s->v[i] = src;
	s->n++;
}

/* The unit with `text` as the drop-in at `path`, or with `path` NULL as its own file. Without a text: as it is. */
static struct unit *load_with(const struct unit_dirs *d, const char *name, const char *shown,
			      const char *path, const char *text, struct unit_problems *p)
{
	CLEANUP(disk_finish) struct disk k = {.d = d};
	const struct build_env env = disk_env(&k);
	CLEANUP(unit_sources_finish) struct sources s = {0};
	CLEANUP_FREE char *file = NULL;
	CLEANUP_UNIT struct unit *u = NULL;
	int r = unit_sources_read(d, name, &s, &file, p);

	if (r < 0)
		return NULL;
	if (text && path)
		put_source(&s, shown, path, text);
	for (size_t i = 0; text && !path && i < s.n; i++)
		if (s.v[i].layer == LAYER_UNIT) {
			free(s.v[i].text);
			s.v[i].text = xstrdup(text);
			s.v[i].len = strlen(text);
		}
	u = unit_build(&env, name, file, &s, p, NULL);
	return r == 0 ? TAKE_PTR(u) : NULL;
}

struct unit *unit_load_changed(const struct unit_dirs *d, const char *name, const char *shown,
			       const char *path, const char *text, struct unit_problems *p)
{
	return load_with(d, name, shown, path, text, p);
}

struct unit *unit_load_edited(const struct unit_dirs *d, const char *name, const char *text,
			      struct unit_problems *p)
{
	return load_with(d, name, NULL, NULL, text, p);
}

static struct unit *load_one(struct disk *k, const char *name, struct unit_problems *p,
			     struct assigns *ret_assigns)
{
	const struct build_env env = disk_env(k);
	CLEANUP(unit_sources_finish) struct sources s = {0};
	CLEANUP_FREE char *path = NULL;
	CLEANUP_UNIT struct unit *u = NULL;
	int r;

	if (!unit_name_valid(name)) {
		unit_problem_add(p, name, 0,
				 "is not the name of an app: a-z 0-9 _ -, at most 63, and @INSTANCE");
		return NULL;
	}
	r = unit_sources_read(k->d, name, &s, &path, p);
	if (r < 0)
		return NULL;
	u = unit_build(&env, name, path, &s, p, ret_assigns);
	return r == 0 ? TAKE_PTR(u) : NULL;
}

struct unit *unit_load_with(const struct unit_dirs *d, const char *name, struct unit_problems *p,
			    struct assigns *ret_assigns)
{
	CLEANUP(disk_finish) struct disk k = {.d = d};

	return load_one(&k, name, p, ret_assigns);
}

struct unit *unit_load(const struct unit_dirs *d, const char *name, struct unit_problems *p)
{
	return unit_load_with(d, name, p, NULL);
}

/* Name of the app a file makes: "web@.app" is checked as an instance that is a name and a port. NULL with a
 * problem. */
static char *name_of_file(const char *shown, const char *base, struct unit_problems *p)
{
	CLEANUP_FREE char *name = NULL;
	size_t n = strlen(base);

	if (!str_ends(base, ".app")) {
		unit_problem_add(p, shown, 0, "the name of a unit file ends with .app");
		return NULL;
	}
	name = xstrndup(base, n - strlen(".app"));
	if (str_ends(name, "@")) {
		char *instance = xasprintf("%s8080", name);

		free(name);
		name = instance;
	}
	if (!unit_name_valid(name)) {
		unit_problem_add(p, shown, 0,
				 "the name of an app is a-z 0-9 _ - (first a letter or digit, at most 63), "
				 "or that and @INSTANCE");
		return NULL;
	}
	return TAKE_PTR(name);
}

struct unit *unit_load_file(const struct unit_dirs *d, const char *path, struct unit_problems *p)
{
	CLEANUP(disk_finish) struct disk k = {.d = d};
	const struct build_env env = disk_env(&k);
	CLEANUP(unit_sources_finish) struct sources s = {0};
	CLEANUP_FREE char *name = name_of_file(path, path_basename(path), p);
	CLEANUP_UNIT struct unit *u = NULL;
	size_t before = p->n;

	if (!name || add_file(d, path, path, LAYER_UNIT, &s, p) < 0)
		return NULL;
	add_dropins(d, path, path, &s, p);
	u = unit_build(&env, name, path, &s, p, NULL);
	return p->n == before ? TAKE_PTR(u) : NULL;
}

struct unit *unit_load_text(const struct unit_dirs *d, const char *name, const char *shown, const char *text,
			    size_t len, struct unit_problems *p)
{
	CLEANUP(disk_finish) struct disk k = {.d = d};
	const struct build_env env = disk_env(&k);
	CLEANUP(unit_sources_finish) struct sources s = {0};
	CLEANUP_UNIT struct unit *u = NULL;
	size_t before = p->n;

	VEC_GROW(s.v, s.n, s.cap);
	s.v[s.n] = (struct source){
		.shown = xstrdup(shown), .path = xstrdup(""), .len = len, .layer = LAYER_UNIT};
	s.v[s.n].text = xmalloc(len + 1); /* NUL bytes in the text are for the reader to find */
	memcpy(s.v[s.n].text, text, len);
	s.v[s.n++].text[len] = 0;
	u = unit_build(&env, name, shown, &s, p, NULL);
	return p->n == before ? TAKE_PTR(u) : NULL;
}

/* --- the directory --- */

static void scan_one(struct disk *k, const char *file, struct unit_scan *s)
{
	CLEANUP_FREE char *name = name_of_file(file, file, &s->problems);
	struct unit_scan_entry *ent;

	if (!name)
		return;
	if (str_ends(file, "@.app")) {
		unit_free(load_one(k, name, &s->problems, NULL)); /* checked, not listed */
		return;
	}
	VEC_GROW(s->v, s->n, s->cap);
	ent = &s->v[s->n++];
	*ent = (struct unit_scan_entry){0};
	ent->unit = load_one(k, name, &ent->problems, NULL);
	ent->name = TAKE_PTR(name);
}

static int compare_entries(const void *a, const void *b)
{
	return strcmp(((const struct unit_scan_entry *)a)->name, ((const struct unit_scan_entry *)b)->name);
}

int unit_scan_dir(const struct unit_dirs *d, struct unit_scan *ret, struct err **e)
{
	CLEANUP_STRV struct strv files = {0};
	CLEANUP(disk_finish) struct disk k = {.d = d};
	struct unit_scan s = {0};
	CLEANUP_ERR struct err *why = NULL;

	if (list_dir(d, d->apps, ".app", ENTRIES_MAX, &files, &why) < 0 &&
	    (err_code(why) != ENOENT || unit_path_exists(d->apps)))
		return err_set(e, err_code(why), "%s: %s", d->apps, err_msg(why));
	for (size_t i = 0; i < files.n; i++)
		scan_one(&k, files.v[i], &s);
	if (s.n)
		qsort(s.v, s.n, sizeof *s.v, compare_entries);
	for (size_t i = 0; i < s.n; i++)
		if (s.v[i].unit)
			unit_peers_check(s.v[i].unit, &s, &s.v[i].problems);
	for (size_t i = 0; i < s.n; i++) /* only now: they are looked at by each other */
		if (s.v[i].unit && s.v[i].problems.n) {
			unit_free(s.v[i].unit);
			s.v[i].unit = NULL;
		}
	unit_order_check(&s);
	*ret = s;
	return 0;
}

void unit_scan_finish(struct unit_scan *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->v[i].name);
		unit_free(s->v[i].unit);
		unit_free(s->v[i].circular);
		unit_problems_clear(&s->v[i].problems);
	}
	free(s->v);
	unit_problems_clear(&s->problems);
	*s = (struct unit_scan){0};
}
