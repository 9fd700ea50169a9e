/*
 * The environment of an app: built, never inherited.
 *
 * Order, later wins: what sbxsv knows (HOME, PATH, PORT, ...), the proxy variables, PassEnvironment=,
 * Environment=, EnvironmentFile=. The last three in the order of systemd.exec(5), because that is what
 * readers of the keys expect. Of the supervisor's own environment only LANG, LC_ALL, TZ, TERM and the XDG
 * directories come along by themselves; its PATH never does: what runs must not depend on the shell that
 * happened to start the supervisor.
 */
#include "sandbox/plan_internal.h"
#include "base/file.h"
#include <ctype.h>
#include <errno.h>
#include <string.h>

enum { ENV_FILE_MAX = 64 * 1024, ENV_MAX = 1024 };

const char *plan_env_get(char *const *env, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; env && env[i]; i++)
		if (strncmp(env[i], name, n) == 0 && env[i][n] == '=')
			return env[i] + n + 1;
	return NULL;
}

/* Owns nothing; replaces an earlier value. */
static void env_put(struct strv *env, const char *name, size_t name_len, const char *value)
{
	char *text = xasprintf("%.*s=%s", (int)name_len, name, value);

	for (size_t i = 0; i < env->n; i++) {
		if (strncmp(env->v[i], text, name_len + 1) != 0)
			continue;
		free(env->v[i]);
		env->v[i] = text;
		return;
	}
	strv_take(env, text);
}

static void env_set(struct strv *env, const char *name, const char *value)
{
	env_put(env, name, strlen(name), value);
}

/* "K=V" of a unit or a file; the unit reader has checked the name. */
static void env_line(struct strv *env, const char *line)
{
	const char *eq = strchr(line, '=');

	if (eq)
		env_put(env, line, (size_t)(eq - line), eq + 1);
}

static void from_supervisor(struct plan_ctx *c, const char *name, const char *otherwise)
{
	const char *value = plan_env_get(c->w->environ, name);

	if (value && *value)
		env_set(&c->plan->env, name, value);
	else if (otherwise)
		env_set(&c->plan->env, name, otherwise);
}

/* A system user's /usr/sbin/nologin is no shell to run things with. */
static const char *usable_shell(const char *shell)
{
	if (!shell || shell[0] != '/' || str_ends(shell, "/nologin") || str_ends(shell, "/false"))
		return "/bin/sh";
	return shell;
}

static void identity(struct plan_ctx *c)
{
	static const char *const xdg[] = {"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
					  "XDG_CACHE_HOME"};
	const struct plan_user *user = &c->w->user;
	CLEANUP_FREE char *path = strv_join(&c->search, ":");
	struct strv *env = &c->plan->env;

	env_set(env, "HOME", user->home ? user->home : "/");
	env_set(env, "USER", user->name);
	env_set(env, "LOGNAME", user->name);
	env_set(env, "SHELL", usable_shell(user->shell));
	env_set(env, "PATH", path);
	from_supervisor(c, "LANG", "C.UTF-8");
	from_supervisor(c, "LC_ALL", NULL);
	from_supervisor(c, "TZ", NULL);
	from_supervisor(c, "TERM", "dumb");
	/* Root's own XDG directories say nothing about the app's user. */
	for (size_t i = 0; !c->w->dirs->root_mode && i < ELEMENTS(xdg); i++)
		from_supervisor(c, xdg[i], NULL);
	env_set(env, "TMPDIR", c->plan->tmpdir);
	env_set(env, "SBXSV_APP", c->u->name);
}

static void port(struct plan_ctx *c)
{
	char text[8];

	if (!c->u->n_listen)
		return;
	(void)snprintf(text, sizeof text, "%u", (unsigned)c->u->listen[0].app_port);
	env_set(&c->plan->env, "PORT", text);
}

/* Both spellings: curl reads only http_proxy, others only the upper one. Node before 24 ignores all of them.
 */
static void proxy(struct plan_ctx *c)
{
	static const char *const names[] = {"HTTP_PROXY",  "http_proxy", "HTTPS_PROXY",
					    "https_proxy", "ALL_PROXY",  "all_proxy"};
	struct strv *env = &c->plan->env;

	if ((c->u->egress == UNIT_EGRESS_OFF && !c->w->reaches_out) || !c->plan->netns)
		return;
	for (size_t i = 0; i < ELEMENTS(names); i++)
		env_set(env, names[i], PLAN_PROXY_URL);
	env_set(env, "NO_PROXY", "localhost,127.0.0.1,::1");
	env_set(env, "no_proxy", "localhost,127.0.0.1,::1");
	env_set(env, "NODE_USE_ENV_PROXY", "1");
}

/* --- EnvironmentFile= --- */

/* NULL, or why this file or directory cannot be believed. */
static const char *distrust(const struct plan_ctx *c, const struct stat *st, bool file)
{
	bool sticky = !file && (st->st_mode & S_ISVTX);

	if (c->w->dirs->root_mode && st->st_uid != 0)
		return "is not owned by root";
	if (!c->w->dirs->root_mode && st->st_uid != 0 && st->st_uid != c->w->dirs->uid)
		return "is owned by another user";
	if (!sticky && (st->st_mode & (c->w->dirs->root_mode ? 022 : 002)))
		return c->w->dirs->root_mode ? "is group- or world-writable" : "is world-writable";
	return NULL;
}

static bool env_file_trusted(struct plan_ctx *c, const struct unit_value *v, const struct plan_where *w)
{
	const struct plan_fs *fs = &c->w->fs;
	CLEANUP_FREE char *dir = NULL;
	const char *why = distrust(c, &w->st, true);

	if (why) {
		plan_problem(c, v->origin,
			     "EnvironmentFile=%s %s: chown or chmod it, sbxsv must be sure who wrote it",
			     v->text, why);
		return false;
	}
	for (dir = path_dirname(w->path);;) {
		struct stat st;
		char *up;

		if (fs->lstat(fs->data, dir, &st) < 0)
			why = "cannot be looked at";
		else
			why = distrust(c, &st, false);
		if (why) {
			plan_problem(c, v->origin, "EnvironmentFile=%s: the directory %s %s", v->text, dir,
				     why);
			return false;
		}
		if (strcmp(dir, "/") == 0)
			return true;
		up = path_dirname(dir);
		free(dir);
		dir = up;
	}
}

static void env_file_read(struct plan_ctx *c, const struct unit_value *v, const struct plan_where *w)
{
	const struct plan_fs *fs = &c->w->fs;
	CLEANUP_FREE char *text = fs->head(fs->data, w->path, ENV_FILE_MAX + 1);
	CLEANUP_STRV struct strv lines = {0};

	if (!text) {
		plan_problem(c, v->origin, "EnvironmentFile=%s: %s", v->text, strerror(errno));
		return;
	}
	if (strlen(text) > ENV_FILE_MAX) {
		plan_problem(c, v->origin, "EnvironmentFile=%s is larger than %d bytes", v->text,
			     ENV_FILE_MAX);
		return;
	}
	if (w->st.st_size != (off_t)strlen(text)) {
		plan_problem(c, v->origin,
			     "EnvironmentFile=%s has NUL bytes in it, or changed while it was read", v->text);
		return;
	}
	if (unit_env_file_parse(text, strlen(text), w->path, &lines, c->problems) < 0)
		return;
	for (size_t i = 0; i < lines.n; i++)
		env_line(&c->plan->env, lines.v[i]);
}

static void env_file(struct plan_ctx *c, const struct unit_value *v)
{
	bool optional = v->text[0] == '-';
	CLEANUP_FREE char *path =
		path_join(c->u->working_directory ? c->u->working_directory : "/", v->text + optional);
	CLEANUP_WHERE struct plan_where w = {0};
	struct plan_ask a = {.key = "EnvironmentFile", .origin = v->origin, .written = v->text, .where = &w};

	plan_resolve(c, path, &w);
	if (w.error == ENOENT && optional)
		return;
	if (w.error || !S_ISREG(w.st.st_mode)) {
		if (w.error == ENOENT)
			plan_problem(c, v->origin,
				     "EnvironmentFile=%s does not exist: make it, or write "
				     "EnvironmentFile=-%s if it "
				     "may be absent",
				     v->text, v->text);
		else
			plan_problem(c, v->origin, "EnvironmentFile=%s: %s", v->text,
				     w.error ? strerror(w.error) : "not a regular file");
		return;
	}
	/* The app must not be able to point it at another app's secrets. */
	if (!plan_guard_links(c, &a) || !env_file_trusted(c, v, &w))
		return;
	for (size_t i = 0; i < w.n_links; i++)
		if (!plan_guard_own_link(c, &a, w.links[i].path, w.path))
			return;
	env_file_read(c, v, &w);
}

/* Last: what a unit says about these would only break them. */
static void signs_of_life(struct plan_ctx *c)
{
	struct strv *env = &c->plan->env;
	char text[24];

	if (c->plan->notify)
		env_set(env, "NOTIFY_SOCKET", PLAN_NOTIFY_SOCKET);
	if (c->u->watchdog_ms) {
		(void)snprintf(text, sizeof text, "%lld", (long long)c->u->watchdog_ms * 1000);
		env_set(env, "WATCHDOG_USEC", text);
	}
	if (c->u->ready == UNIT_READY_FD)
		env_set(env, "SBXSV_READY_FD", PLAN_READY_FD);
}

void plan_environment(struct plan_ctx *c)
{
	const struct unit *u = c->u;

	identity(c);
	port(c);
	proxy(c);
	for (size_t i = 0; i < u->pass_environment.n; i++)
		from_supervisor(c, u->pass_environment.v[i].text, NULL);
	for (size_t i = 0; i < u->environment.n; i++)
		env_line(&c->plan->env, u->environment.v[i].text);
	for (size_t i = 0; i < u->environment_file.n; i++)
		env_file(c, &u->environment_file.v[i]);
	signs_of_life(c);
	if (c->plan->env.n > ENV_MAX)
		plan_problem(c, u->exec_origin, "the environment has %zu variables; at most %d are passed on",
			     c->plan->env.n, ENV_MAX);
}
