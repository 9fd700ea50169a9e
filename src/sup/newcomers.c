/*
 * Apps that come while others run. What a jail hides was settled at its launch: an app that sees more than
 * its own directories (ReadMode=open, the allowlist, Read=, Write=) may see those of a unit that was written
 * later. It is not ended for that, because what lies there was in its sight all the time; but it is said:
 * status shows "restart needed" until its next start.
 */
#include "sup/app.h"
#include "base/file.h"
#include "base/log.h"

static bool sees_more_than_its_own(const struct unit *u)
{
	return u->read_mode != UNIT_READ_STRICT || u->read.n || u->write.n;
}

static bool is_own(const struct unit *u, const char *path)
{
	if (u->app_directory && path_is_below(path, u->app_directory))
		return true;
	for (size_t i = 0; i < u->data_directory.n; i++)
		if (path_is_below(path, u->data_directory.v[i].text))
			return true;
	return false;
}

static bool is_listed(const struct unit_list *l, const char *path)
{
	for (size_t i = 0; i < l->n; i++) {
		const char *granted = l->v[i].text + (l->v[i].text[0] == '-');

		if (path_is_below(path, granted) || path_is_below(granted, path))
			return true;
	}
	return false;
}

/* By the lines of the unit, links not followed: it may say so once too often. */
static bool may_see(const struct app *a, const char *path)
{
	const struct unit *u = a->unit;

	if (is_own(u, path) || strv_has(&a->hidden, path))
		return false;
	return u->read_mode == UNIT_READ_OPEN || is_listed(&u->read, path) || is_listed(&u->write, path) ||
	       (u->read_mode == UNIT_READ_ALLOWLIST && is_listed(&a->sup->conf.allowlist, path));
}

void newcomers_launched(struct app *a, const struct strv *others)
{
	strv_clear(&a->hidden);
	a->sees_newcomer = false;
	if (sees_more_than_its_own(a->unit))
		strv_copy(&a->hidden, others);
}

static void check(struct app *a)
{
	for (const struct app *o = a->sup->apps; o && !a->sees_newcomer; o = o->next) {
		const struct unit *u = app_newest(o);
		CLEANUP_STRV struct strv places = {0};

		if (o == a || !u || o->removed)
			continue;
		plan_unit_places(u, &places);
		for (size_t i = 0; i < places.n && !a->sees_newcomer; i++)
			a->sees_newcomer = may_see(a, places.v[i]);
		if (a->sees_newcomer)
			log_warning("%s was started before %s was known and may see its files: sbxsv restart "
				    "%s hides "
				    "them",
				    a->name, o->name, a->name);
	}
}

void newcomers_check(struct sup *s)
{
	for (struct app *a = s->apps; a; a = a->next)
		if (a->launch && !a->no_jail && a->unit && sees_more_than_its_own(a->unit))
			check(a);
}
