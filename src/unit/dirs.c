/*
 * Where everything is. User mode follows the XDG directories, root mode the file system hierarchy;
 * SBXSV_*_DIR names one directory exactly, --instance NAME gives a supervisor a set of its own.
 *
 * Every program of one user must find the same control socket, whatever session it was started from. So a
 * missing XDG_RUNTIME_DIR means /run/user/UID where that is the user's, and otherwise a directory in the
 * state directory: never a guessable name in /tmp that somebody else can take first.
 */
#include "base/file.h"
#include "base/parse.h"
#include "unit/internal.h"
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A user namespace that maps one user only cannot give apps other users, whatever number it shows. */
static bool is_root_supervisor(void)
{
	char map[4096];
	unsigned long long first, outside, count;
	int used = 0;

	if (geteuid() != 0)
		return false;
	if (file_read_proc("/proc/self/uid_map", map, sizeof map) < 0)
		return true;
	if (sscanf(map, "%llu %llu %llu%n", &first, &outside, &count, &used) != 3)
		return true;
	return !(first == 0 && outside != 0 && count == 1 && !map[used + (int)strspn(map + used, " \n")]);
}

/* An absolute path from the environment, or NULL. XDG base directory specification: relative ones are
 * ignored. */
static const char *env_dir(const char *name)
{
	const char *v = getenv(name);

	return v && *v == '/' ? v : NULL;
}

/* su and sudo may leave variables of another user behind. What does not exist yet is nobody else's. */
static bool is_foreign(const char *path, uid_t uid)
{
	struct stat st;

	return path && stat(path, &st) == 0 && st.st_uid != uid;
}

static int find_user(struct unit_dirs *d, struct err **e)
{
	struct passwd pw, *found = NULL;
	char buf[16384];
	const char *home =
		d->root_mode ? NULL : env_dir("HOME"); /* sudo may keep the HOME of somebody else */

	(void)getpwuid_r(d->uid, &pw, buf, sizeof buf, &found);
	d->shell = xstrdup(found && found->pw_shell && found->pw_shell[0] ? found->pw_shell : "/bin/sh");
	d->user = found ? xstrdup(found->pw_name) : xasprintf("%u", (unsigned)d->uid);
	if (!home && found && found->pw_dir && found->pw_dir[0] == '/')
		home = found->pw_dir;
	if (!home)
		home = d->root_mode ? "/root" : NULL;
	if (!home)
		return err_set(e, 0, "the home directory is not known: set HOME to an absolute path");
	d->home = path_join("/", home);
	return 0;
}

/* SBXSV_X_DIR, or BASE/sbxsv, or BASE/sbxsv-INSTANCE. */
static int choose(char **ret, const char *variable, const char *base, const char *instance, const char *below,
		  struct err **e)
{
	const char *v = getenv(variable);
	CLEANUP_FREE char *dir = NULL;

	if (v && *v && *v != '/')
		return err_set(e, 0, "%s=%s is not an absolute path", variable, v);
	if (v && *v) {
		*ret = path_join("/", v);
		return 0;
	}
	dir = xasprintf("%s/%s%s%s%s", base, below ? "" : "sbxsv", !below && instance ? "-" : "",
			!below && instance ? instance : "", below ? below : "");
	*ret = path_join("/", dir);
	return 0;
}

static char *run_user(uid_t uid)
{
	CLEANUP_FREE char *dir = xasprintf("/run/user/%u", (unsigned)uid);
	struct stat st;

	if (lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == uid && !(st.st_mode & 077))
		return TAKE_PTR(dir);
	return NULL;
}

static void find_bases(struct unit_dirs *d, char **ret_config, bool *ret_no_runtime)
{
	const char *config = env_dir("XDG_CONFIG_HOME"), *state = env_dir("XDG_STATE_HOME"),
		   *runtime = env_dir("XDG_RUNTIME_DIR");

	if (d->root_mode) {
		*ret_config = xstrdup("/etc");
		d->state_home = xstrdup("/var/lib");
		d->runtime_home = xstrdup("/run");
		return;
	}
	*ret_config = config ? xstrdup(config) : path_join(d->home, ".config");
	d->state_home = state ? xstrdup(state) : path_join(d->home, ".local/state");
	if (is_foreign(runtime, d->uid))
		runtime = NULL;
	d->runtime_home = runtime ? xstrdup(runtime) : run_user(d->uid);
	*ret_no_runtime = !d->runtime_home;
}

static int choose_all(struct unit_dirs *d, const char *config, bool no_runtime, const char *instance,
		      struct err **e)
{
	if (choose(&d->config, "SBXSV_CONFIG_DIR", config, instance, NULL, e) < 0 ||
	    choose(&d->state, "SBXSV_STATE_DIR", d->state_home, instance, NULL, e) < 0 ||
	    choose(&d->apps, "SBXSV_APPS_DIR", d->config, NULL, "apps.d", e) < 0)
		return -1;
	if (no_runtime) {
		d->runtime_home = path_join(d->state, "run");
		return choose(&d->runtime, "SBXSV_RUNTIME_DIR", d->state, NULL, "run", e);
	}
	return choose(&d->runtime, "SBXSV_RUNTIME_DIR", d->runtime_home, instance, NULL, e);
}

/* ip_unprivileged_port_start, ip-sysctl.rst of the kernel; 1024 where it cannot be read. */
static uint16_t lowest_port(const struct unit_dirs *d)
{
	char text[32];
	uint64_t v;

	if (d->root_mode)
		return 0;
	if (file_read_proc("/proc/sys/net/ipv4/ip_unprivileged_port_start", text, sizeof text) <= 0)
		return 1024;
	text[strcspn(text, "\n")] = 0;
	return parse_u64(text, 65535, &v) < 0 ? 1024 : (uint16_t)v;
}

int unit_dirs_init(struct unit_dirs *d, const char *instance, struct err **e)
{
	CLEANUP_FREE char *config = NULL;
	bool no_runtime = false;
	struct unit_dirs n = {.uid = geteuid(), .root_mode = is_root_supervisor()};

	if (instance && (!unit_name_valid(instance) || strchr(instance, '@')))
		return err_set(e, 0, "--instance %s: the name must be like that of an app: a-z 0-9 _ -",
			       instance);
	if (find_user(&n, e) < 0) {
		unit_dirs_finish(&n);
		return -1;
	}
	find_bases(&n, &config, &no_runtime);
	if (choose_all(&n, config, no_runtime, instance, e) < 0 ||
	    choose(&n.profiles, "SBXSV_UNITS_DIR", SBXSV_DATADIR, NULL, "units", e) < 0) {
		unit_dirs_finish(&n);
		return -1;
	}
	n.min_port = lowest_port(&n);
	*d = n;
	return 0;
}

void unit_dirs_finish(struct unit_dirs *d)
{
	free(d->config);
	free(d->apps);
	free(d->state);
	free(d->runtime);
	free(d->profiles);
	free(d->home);
	free(d->user);
	free(d->shell);
	free(d->state_home);
	free(d->runtime_home);
	*d = (struct unit_dirs){0};
}
