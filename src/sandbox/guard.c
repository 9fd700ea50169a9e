/*
 * What no unit is given, whatever it asks for, and what every jail hides.
 *
 * Two rules with one table each. A path may be *never grantable* (the root, a home directory, /etc, the
 * device tree: too much at once), or it may touch a *hidden place*: a secret place, something of sbxsv
 * itself, a directory of another app. At or inside a hidden place nothing is granted; above a secret place or
 * something of sbxsv nothing either, because a place that comes into being while the app runs (the first `aws
 * configure`) cannot be hidden any more. Above another app's directory reading is fine, with that directory
 * hidden; writing is not: whoever can rename the directories above another app's code decides what that app
 * runs.
 *
 * Hidden places win over every grant that contains them. A grant below one is possible only where that is
 * harmless: the app's own directories inside another app's directory or inside apps.d, and whatever is below
 * a Hide= of the unit itself (Hide=~ beside AppDirectory=~/apps/x). All comparisons are made on resolved
 * paths.
 *
 * Symlinks. The supervisor resolves them before each launch. One that lies where an app can write would let
 * that app choose what it is given next time, so it is refused.
 */
#include "sandbox/plan_internal.h"
#include "base/file.h"
#include <string.h>

struct never {
	const char *path, *advice;
};
/* Not grantable as a whole; what lies below may be. */
static const struct never never[] = {
	{"/", "name the directories the app needs, or see ReadMode=open"},
	{"/etc", "it is readable already"},
	{"/usr", "it is readable already"},
	{"/bin", "it is readable already"},
	{"/sbin", "it is readable already"},
	{"/lib", "it is readable already"},
	{"/opt", "it is readable already; make a directory below it"},
	{"/var", "name a directory below it, such as /var/lib/NAME"},
	{"/var/lib", "name a directory below it, such as /var/lib/NAME"},
	{"/home", "name a directory below a home directory"},
	{"/root", "name a directory below it"},
	{"/tmp", "each app has its own /tmp; name a directory below it"},
	{"/var/tmp", "name a directory below it"},
	{"/run", "it holds the sockets of this machine; UnixSocket= names one of them"},
	{"/run/user", "it holds the sockets of this machine; UnixSocket= names one of them"},
	{"/boot", "no app needs it"},
};
/* Not grantable at all. */
static const struct never kernel[] = {
	{"/proc", "each app has its own /proc"},
	{"/dev", "each app has its own /dev; Device= adds a device"},
	{"/sys/kernel", "it belongs to the kernel"},
	{"/sys/fs", "it belongs to the kernel"},
};
/* Never writable, nor anything below. */
static const char *const read_only[] = {
	"/etc", "/usr", "/bin", "/sbin",           "/lib",          "/lib32",          "/lib64", "/boot",
	"/sys", "/nix", "/gnu", "/var/spool/cron", "/var/lib/dpkg", "/var/lib/systemd"};
/* Never granted as a toolchain, nor anything above: they hold everything. Relative to a home directory. */
static const char *const not_prefixes[] = {
	".local", ".local/bin", ".local/lib", ".local/share", ".local/state", ".config",   ".cache",
	".var",   "bin",        "lib",        "src",          "Desktop",      "Documents", "Downloads",
	"Music",  "Pictures",   "Videos",     "Public",       "Templates"};
static const char *const xdg_variables[] = {"XDG_CONFIG_HOME", "XDG_DATA_HOME",   "XDG_STATE_HOME",
					    "XDG_CACHE_HOME",  "XDG_RUNTIME_DIR", "XDG_BIN_HOME"};

/* --- judging one grant --- */

bool plan_refuse(struct plan_ctx *c, const struct plan_ask *a, const char *why, const char *advice)
{
	CLEANUP_FREE char *leads = NULL;
	const char *written = a->written + (a->written[0] == '-');

	if (strcmp(written, a->where->path) != 0)
		leads = xasprintf(" (it leads to %s)", a->where->path);
	plan_problem(c, a->origin, "%s=%s is refused%s: %s; %s", a->key, a->written, leads ? leads : "", why,
		     advice);
	return false;
}

bool plan_never(const char *path, bool write)
{
	for (size_t i = 0; i < ELEMENTS(kernel); i++)
		if (path_is_below(path, kernel[i].path))
			return true;
	for (size_t i = 0; i < ELEMENTS(never); i++)
		if (strcmp(path, never[i].path) == 0)
			return true;
	if (strcmp(path, "/sys") == 0 || (str_starts(path, "/lib") && !strchr(path + 1, '/')))
		return true;
	for (size_t i = 0; write && i < ELEMENTS(read_only); i++)
		if (path_is_below(path, read_only[i]))
			return true;
	return false;
}

static bool guard_never(struct plan_ctx *c, const struct plan_ask *a)
{
	const char *path = a->where->path;

	for (size_t i = 0; i < ELEMENTS(kernel); i++)
		if (path_is_below(path, kernel[i].path))
			return plan_refuse(c, a, "this is never granted", kernel[i].advice);
	for (size_t i = 0; i < ELEMENTS(never); i++)
		if (strcmp(path, never[i].path) == 0)
			return plan_refuse(c, a, "this is never granted as a whole", never[i].advice);
	if (strcmp(path, "/sys") == 0 || (str_starts(path, "/lib") && !strchr(path + 1, '/')))
		return plan_refuse(c, a, "this is never granted as a whole",
				   "name what the app needs below it");
	for (size_t i = 0; i < c->homes.n; i++) {
		if (strcmp(path, c->homes.v[i]) == 0)
			return plan_refuse(c, a, "this is a home directory",
					   "name a directory below it, such as ~/apps/NAME");
		if (path_is_below(c->homes.v[i], path))
			return plan_refuse(c, a, "a home directory lies in it",
					   "name a directory below the home directory");
	}
	if (!a->write || a->socket)
		return true;
	for (size_t i = 0; i < ELEMENTS(read_only); i++)
		if (path_is_below(path, read_only[i]))
			return plan_refuse(c, a, "this belongs to the system and is never writable",
					   "use a directory below /var/lib or a home directory");
	return true;
}

static bool refuse_secret(struct plan_ctx *c, const struct plan_ask *a, const struct plan_place *s,
			  bool above)
{
	CLEANUP_FREE char *why = NULL, *advice = NULL;

	if (above) {
		why = xasprintf("the secret place %s lies in it", s->path);
		advice = xstrdup("name the directories the app needs one by one");
	} else if (a->write && !a->socket) {
		why = xasprintf("%s is a secret place, and those are never writable", s->path);
		advice = xasprintf("Secret=%s would grant it for reading", s->name);
	} else {
		why = xasprintf("%s is a secret place", s->path);
		advice = xasprintf("Secret=%s grants it, and shows so in status", s->name);
	}
	return plan_refuse(c, a, why, advice);
}

static bool is_own(const struct plan_ctx *c, const char *path)
{
	for (size_t i = 0; i < c->own.n; i++)
		if (path_is_below(path, c->own.v[i]))
			return true;
	return false;
}

/* An example or a private app may keep its code beside its unit: apps.d/notes.app and apps.d/notes/. Drop-in
 * directories are not for that. */
static bool is_app_beside_unit(const struct plan_ctx *c, const struct plan_ask *a)
{
	CLEANUP_WHERE struct plan_where w = {0};
	const char *rest;
	size_t len;

	if (!a->own || !c->w->dirs->apps)
		return false;
	plan_resolve((struct plan_ctx *)c, c->w->dirs->apps, &w);
	len = strlen(w.path);
	if (!path_is_below(a->where->path, w.path) || !a->where->path[len])
		return false;
	rest = a->where->path + len + 1;
	len = strcspn(rest, "/");
	return len < 6 || strncmp(rest + len - 6, ".app.d", 6) != 0;
}

static bool refuse_sbxsv(struct plan_ctx *c, const struct plan_ask *a, const struct plan_place *p,
			 bool inside)
{
	if (!inside)
		return plan_refuse(c, a, "something of sbxsv itself lies in it", "choose another directory");
	for (size_t i = 0; i < c->homes.n; i++)
		if (path_is_below(c->homes.v[i], p->path))
			return plan_refuse(c, a, "the home directory of the app's user lies in sbxsv's own",
					   "give that user another one: usermod --move-home --home "
					   "/var/lib/sbxsv-home sbxsv");
	return plan_refuse(c, a, p->reason, "choose another directory");
}

/* Another app has the whole of this directory too, so that places of it below are not news to this one. */
static bool is_shared(const struct plan_ctx *c, const char *path)
{
	for (size_t i = 0; i < c->n_places; i++)
		if (c->places[i].kind == PLACE_OTHER && c->places[i].dir &&
		    path_is_below(path, c->places[i].path))
			return true;
	return false;
}

static bool guard_place(struct plan_ctx *c, const struct plan_ask *a, const struct plan_place *p)
{
	bool inside = path_is_below(a->where->path, p->path),
	     above = !inside && path_is_below(p->path, a->where->path);

	if (!inside && !above)
		return true;
	switch (p->kind) {
	case PLACE_SECRET:
		if (inside && !(a->write && !a->socket) && plan_secret_granted(c->u, p->name))
			return true;
		return refuse_secret(c, a, p, above);
	case PLACE_SBXSV:
		if (inside && (is_app_beside_unit(c, a) || is_own(c, a->where->path)))
			return true;
		return refuse_sbxsv(c, a, p, inside);
	case PLACE_OTHER:
		if (a->socket || (inside && (a->own || is_own(c, a->where->path))))
			return true;
		if (above && (!a->write || is_shared(c, a->where->path)))
			return true;
		if (above)
			return plan_refuse(c, a, "another app's directory lies in it",
					   "keep the directories of apps side by side");
		return plan_refuse(c, a, p->reason,
				   "DataDirectory= of the same path in both units shares a directory");
	case PLACE_FILE:
		if (above || !inside)
			return true;
		return plan_refuse(c, a, p->reason, "an app never sees this file");
	case PLACE_HIDE: /* wins when everything is known, see plan.c */
		if (!a->own || strcmp(a->where->path, p->path) != 0)
			return true;
		return plan_refuse(c, a, p->reason, "one of the two lines is too much");
	case PLACE_MACHINE:
		return true;
	}
	return true;
}

bool plan_guard(struct plan_ctx *c, const struct plan_ask *a)
{
	if (!a->system && !guard_never(c, a))
		return false;
	for (size_t i = 0; i < c->n_places; i++)
		if (!guard_place(c, a, &c->places[i]))
			return false;
	if (!a->write || a->socket)
		return true;
	return plan_guard_locked(c, a);
}

/* In root mode a user's link must not lead the supervisor, who passes every directory, out of that user's
 * files. */
static bool link_leaves_home(const struct plan_ctx *c, const struct plan_crossed *l,
			     const struct plan_where *w)
{
	if (!c->w->dirs->root_mode || l->uid == 0)
		return false;
	for (size_t i = 0; i < c->homes.n; i++)
		if (path_is_below(w->path, c->homes.v[i]))
			return false;
	return true;
}

bool plan_guard_links(struct plan_ctx *c, const struct plan_ask *a)
{
	for (size_t i = 0; i < a->where->n_links; i++) {
		const struct plan_crossed *l = &a->where->links[i];
		const struct plan_place *p = plan_place_of(c, l->path);
		const char *why = NULL;

		if (p && p->kind == PLACE_OTHER && l->uid != 0)
			why = "another app can write there and could turn it to anything";
		else if (l->uid != 0 && l->uid != c->w->user.uid && l->uid != c->w->dirs->uid)
			why = "it belongs to another user";
		else if (link_leaves_home(c, l, a->where))
			why = "it belongs to the app's user and leads out of the home directory";
		if (!why)
			continue;
		plan_problem(c, a->origin,
			     "%s=%s goes through the symlink %s, which is refused, for %s: write %s=%s",
			     a->key, a->written, l->path, why, a->key, a->where->path);
		return false;
	}
	return true;
}

bool plan_guard_own_link(struct plan_ctx *c, const struct plan_ask *a, const char *link, const char *leads_to)
{
	if (!plan_writable(c, link))
		return true;
	plan_problem(c, a->origin,
		     "%s=%s goes through the symlink %s, which is refused, for the app can write there and "
		     "could turn it to anything: write %s=%s",
		     a->key, a->written, link, a->key, leads_to);
	return false;
}

void plan_guard_own_links(struct plan_ctx *c)
{
	for (size_t i = 0; i < c->n_links; i++) {
		const struct plan_used *l = &c->links[i];
		struct plan_ask a = {.key = l->key, .origin = l->origin, .written = l->written};

		if (l->key)
			(void)plan_guard_own_link(c, &a, l->path, l->leads_to);
	}
}

bool plan_guard_prefix(const struct plan_ctx *c, const char *dir)
{
	if (strcmp(dir, "/") == 0 || path_is_below("/tmp", dir) || path_is_below("/var/tmp", dir))
		return false;
	for (size_t i = 0; i < ELEMENTS(never); i++)
		if (path_is_below(never[i].path, dir))
			return false;
	for (size_t h = 0; h < c->homes.n; h++) {
		if (path_is_below(c->homes.v[h], dir))
			return false;
		for (size_t i = 0; i < ELEMENTS(not_prefixes); i++) {
			CLEANUP_FREE char *place = xasprintf("%s/%s", c->homes.v[h], not_prefixes[i]);

			if (path_is_below(place, dir))
				return false;
		}
	}
	for (size_t i = 0; i < ELEMENTS(xdg_variables); i++) {
		const char *xdg = plan_env_get(c->w->environ, xdg_variables[i]);

		if (xdg && xdg[0] == '/' && path_is_below(xdg, dir))
			return false;
	}
	for (size_t i = 0; i < c->n_places; i++) {
		const struct plan_place *p = &c->places[i];

		if (p->kind != PLACE_FILE && (path_is_below(dir, p->path) || path_is_below(p->path, dir)) &&
		    p->kind != PLACE_HIDE && p->kind != PLACE_MACHINE)
			return false;
	}
	return true;
}
