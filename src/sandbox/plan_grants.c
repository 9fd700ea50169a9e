/*
 * What the unit asks for, as grants: system roots, the app's own directories, Path=, Read=, Write=,
 * UnixSocket=, Device=, Secret=, the allowlist of sbxsv.conf. Every path is resolved first and judged by
 * guard.c as what it resolves to.
 */
#include "sandbox/plan_internal.h"
#include "base/file.h"
#include <errno.h>
#include <string.h>

/* --- system roots --- */

/* Read-only in every jail. On a merged-usr system most are symlinks; then the link is kept and the target is
 * granted. */
static const char *const system_roots[] = {"/usr",
					   "/bin",
					   "/sbin",
					   "/etc",
					   "/opt",
					   "/nix/store",
					   "/gnu/store",
					   "/run/current-system/sw",
					   "/run/current-system/profile"};

/* Configuration files that often point out of the system roots (systemd-resolved, NixOS): granted by
 * themselves. */
static const char *const system_files[] = {"/etc/resolv.conf", "/etc/hosts", "/etc/localtime",
					   "/etc/nsswitch.conf"};

static void grant_system(struct plan_ctx *c, const char *path)
{
	CLEANUP_WHERE struct plan_where w = {0};

	plan_resolve(c, path, &w);
	if (w.error)
		return;
	plan_links_add(c, &w, NULL);
	plan_grant_add(c, w.path, PLAN_READ, S_ISDIR(w.st.st_mode), SOURCE_SYSTEM, "system");
}

static void system_libraries(struct plan_ctx *c)
{
	const struct plan_fs *fs = &c->w->fs;
	CLEANUP_STRV struct strv names = {0};

	if (fs->list(fs->data, "/", &names) < 0)
		return;
	for (size_t i = 0; i < names.n; i++) {
		CLEANUP_FREE char *path = xasprintf("/%s", names.v[i]);

		if (str_starts(names.v[i], "lib")) /* lib, lib32, lib64, libx32, libexec */
			grant_system(c, path);
	}
}

void plan_system_roots(struct plan_ctx *c)
{
	if (c->plan->read_mode == UNIT_READ_OPEN) {
		plan_grant_add(c, "/", PLAN_READ, true, SOURCE_SYSTEM, "ReadMode=open");
	} else {
		for (size_t i = 0; i < ELEMENTS(system_roots); i++)
			grant_system(c, system_roots[i]);
		system_libraries(c);
	}
	for (size_t i = 0; i < ELEMENTS(system_files); i++) {
		CLEANUP_WHERE struct plan_where w = {0};

		plan_resolve(c, system_files[i], &w);
		if (w.error || !S_ISREG(w.st.st_mode) || !w.n_links)
			continue;
		plan_links_add(c, &w, NULL);
		plan_grant_add(c, w.path, PLAN_READ, false, SOURCE_LIST, "system");
	}
}

/* --- the app's own directories --- */

static const char *why_not(const struct plan_where *w)
{
	switch (w->error) {
	case ENOENT:
		return "does not exist";
	case ENOTDIR:
		return "does not exist: something above it is no directory";
	case ELOOP:
		return "leads into a loop of symlinks";
	case EACCES:
		return "cannot be looked at: permission denied";
	case ENAMETOOLONG:
		return "is too long";
	default:
		return strerror(w->error);
	}
}

static void app_directory(struct plan_ctx *c)
{
	const struct unit *u = c->u;
	CLEANUP_WHERE struct plan_where w = {0};
	struct plan_ask a = {.key = "AppDirectory",
			     .origin = u->app_directory_origin,
			     .written = u->app_directory,
			     .where = &w,
			     .write = true,
			     .own = true};

	if (!u->app_directory)
		return; /* `sbxsv exec`: only what is asked for by --read and --write */
	if (!a.origin)
		a.origin = u->working_directory_origin;
	if (str_eq(a.origin, u->working_directory_origin)) /* the key that the person wrote */
		a.key = "WorkingDirectory";
	plan_resolve(c, u->app_directory, &w);
	if (w.error || !S_ISDIR(w.st.st_mode)) {
		plan_problem(c, a.origin, "%s=%s %s: make the directory, or name the one the app lives in%s",
			     a.key, a.written, w.error ? why_not(&w) : "is not a directory",
			     strstr(a.written, " #") ? " (a comment needs its own line)" : "");
		return;
	}
	if (!plan_guard(c, &a) || !plan_guard_links(c, &a))
		return;
	plan_links_add(c, &w, &a);
	plan_grant_add(c, w.path, PLAN_WRITE, true, SOURCE_OWN, "app directory");
	strv_add(&c->own, w.path);
	free(c->plan->app_directory);
	c->plan->app_directory = xstrdup(w.path);
}

/* A data directory: ours to make, and where the app keeps things over restarts. The app could turn any
 * symlink below its own directories into one to somebody else's data, so none is followed but root's (/home
 * -> /var/home). */
static void data_directory(struct plan_ctx *c, const struct unit_value *v)
{
	CLEANUP_WHERE struct plan_where w = {0};
	struct plan_ask a = {.key = "DataDirectory",
			     .origin = v->origin,
			     .written = v->text,
			     .where = &w,
			     .write = true,
			     .own = true};

	plan_resolve(c, v->text, &w);
	for (size_t i = 0; i < w.n_links; i++) {
		if (w.links[i].uid == 0)
			continue;
		plan_problem(c, v->origin,
			     "DataDirectory=%s: %s is a symlink, and symlinks are refused here: write "
			     "DataDirectory=%s",
			     v->text, w.links[i].path, w.path);
		return;
	}
	if (w.error && w.error != ENOENT) {
		plan_problem(c, v->origin, "DataDirectory=%s %s", v->text, why_not(&w));
		return;
	}
	if (!w.error && !S_ISDIR(w.st.st_mode)) {
		plan_problem(c, v->origin, "DataDirectory=%s is not a directory", v->text);
		return;
	}
	if (!w.error && w.st.st_uid != c->w->user.uid) {
		plan_problem(c, v->origin,
			     "DataDirectory=%s belongs to uid %u, but the app runs as %s (uid %u): chown it, "
			     "or name another",
			     v->text, w.st.st_uid, c->w->user.name, c->w->user.uid);
		return;
	}
	if (!plan_guard(c, &a) || !plan_guard_links(c, &a))
		return;
	plan_links_add(c, &w, &a);
	plan_grant_add(c, w.path, PLAN_WRITE, true, SOURCE_OWN, "data directory")->p.create = true;
	strv_add(&c->own, w.path);
}

void plan_own_directories(struct plan_ctx *c)
{
	app_directory(c);
	for (size_t i = 0; i < c->u->data_directory.n; i++)
		data_directory(c, &c->u->data_directory.v[i]);
}

/* --- asked paths --- */

static char *reason_of(const struct unit_value *v, const char *key)
{
	return v->origin ? xasprintf("%s %s=", v->origin, key) : xasprintf("%s=", key);
}

/* Resolves a value with its '-' prefix. false: nothing to grant (with a problem unless it may be absent). */
static bool asked_resolve(struct plan_ctx *c, const char *key, const struct unit_value *v,
			  struct plan_where *ret)
{
	bool optional = v->text[0] == '-';
	const char *text = v->text + optional;
	CLEANUP_FREE char *path = path_join(c->u->working_directory ? c->u->working_directory : "/", text);

	*ret = (struct plan_where){0};
	if (text[0] != '/' && !c->u->working_directory) {
		plan_problem(c, v->origin, "%s=%s is not an absolute path", key, v->text);
		return false;
	}
	plan_resolve(c, path, ret);
	if (!ret->error)
		return true;
	if (optional && (ret->error == ENOENT || ret->error == ENOTDIR))
		return false;
	plan_problem(c, v->origin, "%s=%s %s: correct the path, or write %s=-%s if it may be absent", key,
		     v->text, why_not(ret), key, text);
	return false;
}

static void asked_path(struct plan_ctx *c, const char *key, const struct unit_value *v, bool write)
{
	CLEANUP_WHERE struct plan_where w = {0};
	CLEANUP_FREE char *reason = reason_of(v, key);
	struct plan_ask a = {
		.key = key, .origin = v->origin, .written = v->text, .where = &w, .write = write};
	bool dir;

	if (!asked_resolve(c, key, v, &w))
		return;
	dir = S_ISDIR(w.st.st_mode);
	if (!dir && !S_ISREG(w.st.st_mode)) {
		plan_problem(c, v->origin,
			     "%s=%s is neither a file nor a directory: a socket is named with UnixSocket=, a "
			     "device with Device=",
			     key, v->text);
		return;
	}
	if (!plan_guard(c, &a) || !plan_guard_links(c, &a))
		return;
	plan_links_add(c, &w, &a);
	plan_grant_add(c, w.path, write ? PLAN_WRITE : PLAN_READ, dir, SOURCE_ASKED, reason);
}

static void allowlist_path(struct plan_ctx *c, const struct unit_value *v)
{
	CLEANUP_WHERE struct plan_where w = {0};
	CLEANUP_FREE char *reason = reason_of(v, "Read");
	struct plan_ask a = {.key = "Read", .origin = v->origin, .written = v->text, .where = &w};

	if (!asked_resolve(c, "Read", v, &w) || !plan_guard(c, &a) || !plan_guard_links(c, &a))
		return;
	plan_links_add(c, &w, &a);
	plan_grant_add(c, w.path, PLAN_READ, S_ISDIR(w.st.st_mode), SOURCE_LIST, reason);
}

static void asked_socket(struct plan_ctx *c, const struct unit_value *v)
{
	CLEANUP_WHERE struct plan_where w = {0};
	CLEANUP_FREE char *reason = reason_of(v, "UnixSocket");
	struct plan_ask a = {.key = "UnixSocket",
			     .origin = v->origin,
			     .written = v->text,
			     .where = &w,
			     .write = true,
			     .socket = true};

	if (!asked_resolve(c, "UnixSocket", v, &w))
		return;
	if (!S_ISSOCK(w.st.st_mode)) {
		plan_problem(c, v->origin, "UnixSocket=%s is not a socket: name the socket file itself",
			     v->text);
		return;
	}
	if (!plan_guard(c, &a) || !plan_guard_links(c, &a))
		return;
	plan_links_add(c, &w, &a);
	plan_grant_add(c, w.path, PLAN_WRITE, false, SOURCE_ASKED, reason)->p.socket = true;
}

/* Devices that give the whole machine or its input away. */
static bool device_refused(const char *path)
{
	static const char *const refused[] = {
		"/dev/mem",    "/dev/kmem",    "/dev/port",           "/dev/kmsg",
		"/dev/uinput", "/dev/console", "/dev/mapper/control", "/dev/loop-control"};
	static const char *const prefixes[] = {"/dev/tty",    "/dev/vcs", "/dev/input/",
					       "/dev/hidraw", "/dev/sg",  "/dev/cpu/"};

	for (size_t i = 0; i < ELEMENTS(refused); i++)
		if (strcmp(path, refused[i]) == 0)
			return true;
	if (str_starts(path, "/dev/ttyUSB") || str_starts(path, "/dev/ttyACM"))
		return false; /* serial adapters: what Device= is for */
	for (size_t i = 0; i < ELEMENTS(prefixes); i++)
		if (str_starts(path, prefixes[i]))
			return true;
	return false;
}

static void device_add(struct plan_ctx *c, const struct unit_value *v, const struct plan_where *w)
{
	if (!path_is_below(w->path, "/dev") || strcmp(w->path, "/dev") == 0)
		plan_problem(c, v->origin, "Device=%s is not below /dev", v->text);
	else if (!S_ISCHR(w->st.st_mode))
		plan_problem(c, v->origin, "Device=%s is not a character device", v->text);
	else if (device_refused(w->path))
		plan_problem(c, v->origin,
			     "Device=%s is never granted: it would give the machine or its keyboard away",
			     v->text);
	else if (!strv_has(&c->plan->devices, w->path))
		strv_add(&c->plan->devices, w->path);
}

/* A directory (/dev/dri, /dev/snd) stands for the devices in it. */
static void asked_device(struct plan_ctx *c, const struct unit_value *v)
{
	const struct plan_fs *fs = &c->w->fs;
	CLEANUP_WHERE struct plan_where w = {0};
	CLEANUP_STRV struct strv names = {0};

	if (!asked_resolve(c, "Device", v, &w))
		return;
	if (!S_ISDIR(w.st.st_mode) || strcmp(w.path, "/dev") == 0) {
		device_add(c, v, &w);
		return;
	}
	if (fs->list(fs->data, w.path, &names) < 0) {
		plan_problem(c, v->origin, "Device=%s: %s", v->text, strerror(errno));
		return;
	}
	for (size_t i = 0; i < names.n; i++) {
		CLEANUP_FREE char *path = xasprintf("%s/%s", w.path, names.v[i]);
		CLEANUP_WHERE struct plan_where one = {0};

		plan_resolve(c, path, &one);
		if (!one.error && S_ISCHR(one.st.st_mode))
			device_add(c, v, &one);
	}
}

static void granted_secrets(struct plan_ctx *c)
{
	for (size_t i = 0; i < c->n_places; i++) {
		const struct plan_place *s = &c->places[i];
		CLEANUP_WHERE struct plan_where w = {0};
		CLEANUP_FREE char *reason = NULL;

		if (s->kind != PLACE_SECRET || !s->exists || s->again || !plan_secret_granted(c->u, s->name))
			continue;
		reason = xasprintf("Secret=%s", s->name);
		plan_resolve(c, s->written, &w);
		plan_links_add(c, &w, NULL);
		plan_grant_add(c, s->path, PLAN_READ, s->dir, SOURCE_ASKED, reason);
	}
}

void plan_asked(struct plan_ctx *c)
{
	const struct unit *u = c->u;

	for (size_t i = 0; i < u->read.n; i++)
		asked_path(c, "Read", &u->read.v[i], false);
	for (size_t i = 0; i < u->write.n; i++)
		asked_path(c, "Write", &u->write.v[i], true);
	for (size_t i = 0; i < u->unix_socket.n; i++)
		asked_socket(c, &u->unix_socket.v[i]);
	for (size_t i = 0; i < u->device.n; i++)
		asked_device(c, &u->device.v[i]);
	if (u->read_mode == UNIT_READ_ALLOWLIST && c->w->conf)
		for (size_t i = 0; i < c->w->conf->allowlist.n; i++)
			allowlist_path(c, &c->w->conf->allowlist.v[i]);
	granted_secrets(c);
}

/* --- Path= --- */

static bool is_system(const struct plan_ctx *c, const char *path)
{
	const struct plan_grant *g = plan_covering(c, path);

	return g && g->source == SOURCE_SYSTEM && strcmp(g->p.path, "/") != 0;
}

/* A directory of Path= is shown as a whole; when it is the bin directory of a known install prefix, the
 * prefix is, because its programs need what lies beside it (npm: ../lib/node_modules). */
static void path_directory(struct plan_ctx *c, const struct unit_value *v)
{
	CLEANUP_WHERE struct plan_where w = {0};
	CLEANUP_FREE char *reason = reason_of(v, "Path"), *prefix = NULL, *inside = NULL, *written = NULL;
	struct plan_ask a = {.key = "Path", .origin = v->origin, .written = v->text, .where = &w};

	if (!asked_resolve(c, "Path", v, &w))
		return;
	if (!S_ISDIR(w.st.st_mode) || strchr(v->text, ':')) {
		plan_problem(c, v->origin, "Path=%s %s", v->text,
			     strchr(v->text, ':') ? "has a colon in it: write one directory a line"
						  : "is not a directory");
		return;
	}
	a.system = is_system(c, w.path);
	if (!plan_guard(c, &a) || !plan_guard_links(c, &a))
		return;
	plan_links_add(c, &w, &a);
	written = path_join(c->u->working_directory ? c->u->working_directory : "/",
			    v->text + (v->text[0] == '-'));
	strv_add(&c->search, written);
	inside = xasprintf("%s/-", w.path);
	prefix = plan_known_prefix(c, inside);
	if (prefix && plan_guard_prefix(c, prefix))
		plan_grant_add(c, prefix, PLAN_READ, true, SOURCE_IMPLIED, reason);
	else
		plan_grant_add(c, w.path, PLAN_READ, true, SOURCE_PATH, reason);
}

void plan_search_path(struct plan_ctx *c)
{
	CLEANUP_FREE char *dirs = xstrdup(c->w->program_dirs ? c->w->program_dirs : PLAN_PROGRAM_DIRS);
	char *save = NULL;

	for (size_t i = 0; i < c->u->path.n; i++)
		path_directory(c, &c->u->path.v[i]);
	for (char *d = strtok_r(dirs, ":", &save); d; d = strtok_r(NULL, ":", &save))
		if (d[0] == '/' && !strv_has(&c->search, d))
			strv_add(&c->search, d);
}

/* --- working directory --- */

void plan_work_directory(struct plan_ctx *c)
{
	const struct unit *u = c->u;
	const char *origin = u->working_directory_origin ? u->working_directory_origin : u->exec_origin;
	CLEANUP_WHERE struct plan_where w = {0};
	struct plan_ask a = {
		.key = "WorkingDirectory", .origin = origin, .written = u->working_directory, .where = &w};

	if (!u->working_directory) {
		plan_problem(c, u->exec_origin,
			     "WorkingDirectory= is missing: name the directory the app lives in");
		return;
	}
	plan_resolve(c, u->working_directory, &w);
	if (w.error || !S_ISDIR(w.st.st_mode)) {
		if (!str_eq(u->working_directory, u->app_directory)) /* else it was reported already */
			plan_problem(c, origin, "WorkingDirectory=%s %s", u->working_directory,
				     w.error ? why_not(&w) : "is not a directory");
		return;
	}
	plan_links_add(c, &w, &a);
	c->plan->workdir = xstrdup(u->working_directory);
	if (plan_visible(c, w.path) || plan_failed(c))
		return;
	if (u->app_directory) {
		plan_problem(c, origin,
			     "WorkingDirectory=%s is not below AppDirectory= or anything else that is "
			     "granted: add Read=%s, or leave AppDirectory= out",
			     u->working_directory, u->working_directory);
		return;
	}
	/* `exec` in a directory it was not given: it must exist to be the current one, and shows nothing. */
	plan_grant_add(c, w.path, PLAN_HIDE, true, SOURCE_IMPLIED, "working directory")->p.empty = true;
}
