/*
 * What is never writable: where a person's login and a person's PATH run things from. Whoever writes there
 * runs commands outside of any jail.
 *
 * A login place (~/.bashrc, autostart entries) lies directly in a home directory, ~/.config or ~/.local, none
 * of which is ever granted as a whole; but people keep these files elsewhere and link to them (~/.bashrc ->
 * ~/dotfiles/bashrc), so what counts is where they lead. Nothing writable is granted at, in or above such a
 * place.
 *
 * A directory of PATH may well lie in an app's own (node_modules/.bin of a project). It is refused as a
 * writable grant itself, and locked read-only inside one. The directories between are made mounts of their
 * own, so that the app can not rename them and put another `bin` where the old one was.
 */
#include "sandbox/plan_internal.h"
#include "base/file.h"
#include <string.h>

/* Below a home directory: whoever writes here runs code as the user at the next login. Read-only in every
 * jail. */
static const char *const login_places[] = {
	".bashrc",
	".bash_profile",
	".bash_login",
	".bash_logout",
	".profile",
	".zshrc",
	".zshenv",
	".zprofile",
	".zlogin",
	".zlogout",
	".kshrc",
	".cshrc",
	".tcshrc",
	".login",
	".inputrc",
	".xinitrc",
	".xsession",
	".xsessionrc",
	".xprofile",
	".pam_environment",
	".gitconfig",
	".config/git",
	".config/fish",
	".config/autostart",
	".config/autostart-scripts",
	".config/plasma-workspace",
	".config/environment.d",
	".config/systemd",
	".local/share/systemd",
	".local/share/applications",
	".local/share/dbus-1",
	".config/sway",
	".config/i3",
	".config/hypr",
	".vimrc",
	".config/nvim",
	".emacs.d",
	".crontab",
};

bool plan_is_login(const char *home, const char *path)
{
	size_t n = strlen(home);
	const char *rest = path_is_below(path, home) && path[n] ? path + n + 1 : NULL;

	if (!rest)
		return path_is_below(home, path);
	for (size_t i = 0; i < ELEMENTS(login_places); i++)
		if (path_is_below(rest, login_places[i]) || path_is_below(login_places[i], rest))
			return true;
	return false;
}

static void add_resolved(struct plan_ctx *c, const char *path, struct strv *ret)
{
	CLEANUP_WHERE struct plan_where w = {0};

	plan_resolve(c, path, &w);
	strv_add(ret, w.path);
	plan_mounts_other_names(c->mounts, w.path, ret);
}

static void collect(struct plan_ctx *c)
{
	const char *lists[] = {plan_env_get(c->w->environ, "PATH"), c->w->program_dirs};

	if (c->login.n)
		return;
	for (size_t h = 0; h < c->homes.n; h++) {
		for (size_t i = 0; i < ELEMENTS(login_places); i++) {
			CLEANUP_FREE char *path = xasprintf("%s/%s", c->homes.v[h], login_places[i]);

			add_resolved(c, path, &c->login);
		}
	}
	for (size_t i = 0; i < ELEMENTS(lists); i++) {
		CLEANUP_FREE char *dirs = xstrdup(lists[i] ? lists[i] : "");
		char *save = NULL;

		for (char *d = strtok_r(dirs, ":", &save); d; d = strtok_r(NULL, ":", &save))
			if (d[0] == '/')
				add_resolved(c, d, &c->path_dirs);
	}
}

bool plan_guard_locked(struct plan_ctx *c, const struct plan_ask *a)
{
	const char *path = a->where->path;

	collect(c);
	if (strv_has(&c->path_dirs, path))
		return plan_refuse(c, a, "it is a directory of PATH, where people run programs from",
				   "use another directory");
	for (size_t i = 0; i < c->login.n; i++) {
		const char *place = c->login.v[i];
		CLEANUP_FREE char *why = NULL;

		if (!path_is_below(path, place) && !path_is_below(place, path))
			continue;
		if (path_is_below(path, place))
			why = xstrdup("whoever writes there runs commands at the next login");
		else
			why = xasprintf(
				"%s lies in it, and whoever writes that runs commands at the next login",
				place);
		return plan_refuse(c, a, why, "it is never writable");
	}
	return true;
}

/* The directories above `path` that the app could rename. */
static void pin_way(struct plan_ctx *c, const char *path)
{
	CLEANUP_FREE char *dir = path_dirname(path);

	while (strcmp(dir, "/") != 0 && plan_writable(c, dir)) {
		const struct plan_grant *g = plan_covering(c, dir);
		char *up;

		if (strcmp(g->p.path, dir) == 0)
			return; /* a mount already */
		plan_grant_add(c, dir, PLAN_WRITE, true, SOURCE_LOCK, "on the way to a directory of PATH");
		up = path_dirname(dir);
		free(dir);
		dir = up;
	}
}

static bool anything_writable(const struct plan_ctx *c)
{
	for (size_t i = 0; i < c->n_grants; i++)
		if (c->grants[i].p.access == PLAN_WRITE)
			return true;
	return false;
}

void plan_guard_locks(struct plan_ctx *c)
{
	if (!anything_writable(c))
		return;
	collect(c);
	for (size_t i = 0; i < c->path_dirs.n; i++) {
		const char *dir = c->path_dirs.v[i];

		if (!plan_exists(c, dir, NULL) || !plan_writable(c, dir))
			continue;
		pin_way(c, dir);
		plan_grant_add(c, dir, PLAN_READ, true, SOURCE_LOCK, "never writable: a directory of PATH");
	}
}
