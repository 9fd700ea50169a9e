#include "cli/subject.h"
#include "base/file.h"
#include "sandbox/identity.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

extern char **environ;

bool subject_exists(const struct cli *c, const char *app)
{
	const char *at = strchr(app, '@');
	CLEANUP_FREE char *file = xasprintf("%s/%s.app", c->dirs.apps, app),
			  *template =
				  at ? xasprintf("%s/%.*s@.app", c->dirs.apps, (int)(at - app), app) : NULL;
	struct stat st;

	/* one that cannot be looked at is there: why not is said when it is read */
	return unit_name_valid(app) && (lstat(file, &st) == 0 || errno != ENOENT ||
					(template && (lstat(template, &st) == 0 || errno != ENOENT)));
}

char *subject_none(const struct cli *c, const char *app)
{
	CLEANUP(unit_scan_finish) struct unit_scan scan = {0};
	CLEANUP_FREE char *shown = cli_safe(app);
	CLEANUP_FREE const char **names = NULL;
	const char *near;

	(void)unit_scan_dir(&c->dirs, &scan, NULL);
	names = xcalloc(scan.n + 1, sizeof *names);
	for (size_t i = 0; i < scan.n; i++)
		names[i] = scan.v[i].name;
	near = str_nearest(app, names);
	return near ? xasprintf("there is no app \"%s\" in %s; did you mean \"%s\"?", shown, c->dirs.apps,
				near)
		    : xasprintf("there is no app \"%s\" in %s", shown, c->dirs.apps);
}

int subject_complain(const struct cli *c, const char *app)
{
	CLEANUP_FREE char *none = subject_none(c, app);

	return cli_fail(CLI_NO_APP, "%s", none);
}

struct unit *subject_load(const struct cli *c, const char *app, int *ret_code)
{
	struct unit_problems problems = {0};
	CLEANUP_FREE char *text = NULL;
	struct unit *u = unit_name_valid(app) ? unit_load(&c->dirs, app, &problems) : NULL;

	if (u)
		return u;
	if (subject_exists(c, app)) {
		text = unit_problems_text(&problems);
		*ret_code = cli_fail(CLI_FAILED, "%s", text);
	} else {
		*ret_code = subject_complain(c, app);
	}
	unit_problems_clear(&problems);
	return NULL;
}

/* Other apps' places are hidden from this one. Units with errors have none that are known. */
static void others_of(const struct unit *u, const struct unit_scan *scan, struct strv *ret,
		      struct strv *ret_data)
{
	for (size_t i = 0; i < scan->n; i++) {
		const struct unit *o = scan->v[i].unit;

		if (!o || str_eq(scan->v[i].name, u->name))
			continue;
		plan_unit_places(o, ret);
		if (str_eq(o->user, u->user))
			plan_unit_data(o, ret_data);
	}
}

struct plan *subject_plan(const struct cli *c, const struct unit *u, const struct unit_scan *scan,
			  struct unit_problems *p)
{
	return subject_plan_with(c, u, scan, false, p);
}

struct plan *subject_plan_with(const struct cli *c, const struct unit *u, const struct unit_scan *scan,
			       bool reaches_out, struct unit_problems *p)
{
	CLEANUP(conf_finish) struct conf conf = {0};
	CLEANUP_STRV struct strv others = {0}, others_data = {0};
	CLEANUP_ERR struct err *e = NULL;
	struct plan_world w = {.dirs = &c->dirs,
			       .conf = &conf,
			       .others = &others,
			       .others_data = &others_data,
			       .environ = environ,
			       .fs = plan_fs_real(),
			       .reaches_out = reaches_out};
	CLEANUP(unit_scan_finish) struct unit_scan own = {0};
	struct plan *plan;

	if (conf_load(&c->dirs, &conf, p))
		return NULL;
	if (identity_find(u, &c->dirs, &conf, &w.user, &e)) {
		unit_problem_add(p, path_basename(u->file), 0, "%s", err_msg(e));
		return NULL;
	}
	if (scan || unit_scan_dir(&c->dirs, &own, NULL) == 0)
		others_of(u, scan ? scan : &own, &others, &others_data);
	plan = plan_make(u, &w, p);
	identity_finish(&w.user);
	return plan;
}
