/* Rules between keys. Each function checks one section or one subject; a problem names the line that causes
 * it. */
#include "base/file.h"
#include "unit/internal.h"
#include <string.h>

const struct assign *unit_state_of(const struct key_state *states, const char *section, const char *name)
{
	const struct unit_key *k = unit_key_find(&unit_table, section, name);

	return states[k - unit_table.v].first;
}

static const struct assign *set_in(const struct validate *v, const char *section, const char *name)
{
	return unit_state_of(v->states, section, name);
}

/* Set by the unit or a drop-in; a profile's key is a default and conflicts with nothing. */
static const struct assign *set_by_unit(const struct validate *v, const char *section, const char *name)
{
	const struct assign *a = set_in(v, section, name);

	return a && a->layer != LAYER_PROFILE ? a : NULL;
}

static void at(const struct validate *v, const struct assign *a, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void at(const struct validate *v, const struct assign *a, const char *fmt, ...)
{
	CLEANUP_FREE char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	text = xvasprintf(fmt, ap);
	va_end(ap);
	unit_problem_add(v->p, a ? a->shown : v->shown, a ? a->line : 0, "%s", text);
}

static void check_command(const struct validate *v)
{
	const struct assign *exec = set_in(v, "App", "Exec"), *shell = set_in(v, "App", "Shell"),
			    *wd = set_in(v, "App", "WorkingDirectory");

	if (!exec && !shell && !wd)
		at(v, NULL, "[App] needs WorkingDirectory= and Exec= (or Shell=)");
	else if (!exec && !shell)
		at(v, NULL, "[App] needs Exec= (or Shell=)");
	else if (!wd)
		at(v, NULL, "[App] needs WorkingDirectory=");
}

/* $HOME or above holds everything the person has: it is never an app's own tree. */
static void check_app_directory(const struct validate *v)
{
	const struct assign *ad = set_in(v, "App", "AppDirectory");
	const char *dir = v->u->app_directory;

	if (!dir)
		return;
	if (strcmp(dir, "/") != 0 && !(v->home && path_is_below(v->home, dir)))
		return;
	if (ad)
		at(v, ad,
		   "AppDirectory=%s is the home directory or above it: an app gets a directory of its own",
		   dir);
	else
		at(v, set_in(v, "App", "WorkingDirectory"),
		   "WorkingDirectory=%s is the home directory or above it, and it is the AppDirectory= too: "
		   "set AppDirectory= to a "
		   "directory of the app's own",
		   dir);
}

static void check_user(const struct validate *v)
{
	const struct assign *user = set_in(v, "App", "User"), *group = set_in(v, "App", "Group");

	if (user && !v->dirs->root_mode)
		at(v, user,
		   "User= works only under a supervisor that runs as root; here every app runs as %s",
		   v->dirs->user ? v->dirs->user : "you");
	else if (group && !v->dirs->root_mode)
		at(v, group, "Group= works only under a supervisor that runs as root");
	else if (group && !user)
		at(v, group, "Group= needs User=");
}

static void check_restart(const struct validate *v)
{
	const struct assign *max = set_in(v, "Restart", "MaxSec"), *sec = set_in(v, "Restart", "Sec");

	if (v->u->restart_ms > v->u->restart_max_ms)
		at(v, sec ? sec : max, "Sec= is longer than MaxSec= (%lld ms)",
		   (long long)v->u->restart_max_ms);
}

static void check_ready(const struct validate *v)
{
	const struct assign *type = set_in(v, "Ready", "Type"), *path = set_by_unit(v, "Ready", "Path");
	bool needs_port = v->u->ready == UNIT_READY_LISTEN || v->u->ready == UNIT_READY_HTTP;

	if (type && needs_port && !v->u->n_listen)
		at(v, type, "Type=%s needs a Listen= in [Network]", type->raw);
	if (path && v->u->ready != UNIT_READY_HTTP)
		at(v, path, "Path= needs Type=http");
	if (v->u->ready == UNIT_READY_NOTIFY && v->u->enforce == UNIT_ENFORCE_OFF)
		at(v, type,
		   "Type=notify needs a jail, which Enforce=off does not make: only there is it sure who "
		   "sent a message. "
		   "Use Type=fd");
}

static void check_mode(const struct validate *v)
{
	static const char *const session_keys[] = {"IdleTimeout", "IdleBy"};
	const struct assign *mode = set_in(v, "App", "Mode");

	if (v->u->mode == UNIT_SESSION && !v->u->n_listen)
		at(v, mode, "Mode=session needs a Listen= in [Network]: its first connection starts the app");
	if (v->u->mode == UNIT_SESSION && v->u->enforce == UNIT_ENFORCE_OFF)
		at(v, mode,
		   "Mode=session needs a jail, which Enforce=off does not make: without one the app holds its port "
		   "itself, so that nobody could wait for it while it does not run");
	if (v->u->mode == UNIT_STDIO && v->u->n_listen)
		at(v, mode, "Mode=stdio and Listen= exclude each other: the app talks on stdin and stdout");
	for (size_t i = 0; i < ELEMENTS(session_keys); i++) {
		const struct assign *a = set_by_unit(v, "Session", session_keys[i]);

		if (a && v->u->mode != UNIT_SESSION)
			at(v, a, "%s= needs Mode=session", session_keys[i]);
	}
}

static void check_sandbox(const struct validate *v)
{
	const struct assign *backend = set_in(v, "Sandbox", "Backend");

	if (v->u->backend == UNIT_BACKEND_NONE && v->u->enforce != UNIT_ENFORCE_OFF)
		at(v, backend, "Backend=none makes no jail: it needs Enforce=off");
}

static void check_egress(const struct validate *v)
{
	const struct assign *egress = set_by_unit(v, "Network", "Egress"),
			    *connect = set_by_unit(v, "Network", "Connect"),
			    *allow = set_in(v, "Network", "Allow"),
			    *address = set_in(v, "Network", "AllowAddress");

	if (egress && v->u->egress == UNIT_EGRESS_OFF && (allow || address))
		at(v, allow ? allow : address, "%s= beside Egress=off (%s): remove one of them",
		   allow ? "Allow" : "AllowAddress", egress->origin);
	if (connect && v->u->egress != UNIT_EGRESS_ALL)
		at(v, connect,
		   "Connect= needs Egress=all; with Egress=hosts write the port behind the host: "
		   "Allow=host:port");
}

static void check_upstream(const struct validate *v)
{
	const struct assign *no = set_by_unit(v, "Network", "NoProxy");

	if (no && !v->u->upstream_proxy)
		at(v, no, "NoProxy= needs UpstreamProxy=: without one every connection is direct");
}

static void check_ports(const struct validate *v)
{
	const struct assign *listen = set_in(v, "Network", "Listen"),
			    *loopback = set_in(v, "Network", "Loopback"),
			    *address = set_by_unit(v, "Network", "ListenAddress");
	const struct unit *u = v->u;

	for (size_t i = 0; i < u->n_listen; i++) {
		if (v->dirs->min_port && u->listen[i].host_port < v->dirs->min_port)
			at(v, listen,
			   "host port %u is below %u, where this user may not listen: write a free port "
			   "above, for example "
			   "Listen=%u:%u",
			   (unsigned)u->listen[i].host_port, (unsigned)v->dirs->min_port,
			   (unsigned)u->listen[i].host_port + 8000, (unsigned)u->listen[i].app_port);
		for (size_t j = 0; j < u->n_loopback; j++)
			if (u->loopback[j] == u->listen[i].app_port)
				at(v, loopback, "Loopback=%u is the app's own port of %s",
				   (unsigned)u->loopback[j], u->listen[i].origin);
	}
	if (address && !u->n_listen)
		at(v, address, "ListenAddress= needs a Listen=");
}

static void check_limits(const struct validate *v)
{
	if (v->u->nice < 0 && !v->dirs->root_mode)
		at(v, set_in(v, "Limits", "Nice"),
		   "a negative Nice= works only under a supervisor that runs as root");
}

/* It goes to the jail in one message, see LAUNCH_CHECK_MAX of src/sandbox/backend.h. */
static bool check_is_too_long(const struct strv *argv)
{
	size_t n = 0;

	for (size_t i = 0; i < argv->n; i++)
		n += strlen(argv->v[i]) + 1;
	return argv->n > 64 || n > 4096;
}

static void check_health(const struct validate *v)
{
	const struct unit *u = v->u;
	const struct assign *http = set_in(v, "Health", "Http"),
			    *tcp = u->health_tcp ? set_in(v, "Health", "Tcp") : NULL,
			    *exec = set_in(v, "Health", "Exec");

	if (!!http + !!tcp + !!exec > 1)
		at(v, exec ? exec : tcp, "Http=, Tcp= and Exec= exclude each other");
	else if ((http || tcp) && !u->n_listen)
		at(v, http ? http : tcp, "%s= needs a Listen= in [Network]", http ? "Http" : "Tcp");
	if (exec && check_is_too_long(&u->health_exec))
		at(v, exec, "Exec= is longer than 64 words or 4096 bytes: put it into a script");
	if (u->watchdog_ms && u->enforce == UNIT_ENFORCE_OFF)
		at(v, set_in(v, "Health", "WatchdogSec"),
		   "WatchdogSec= needs a jail, which Enforce=off does not make: only there is it sure who "
		   "sent a message");
}

static bool below_any(const char *path, const struct unit_list *dirs)
{
	for (size_t i = 0; i < dirs->n; i++)
		if (path_is_below(path, dirs->v[i].text + (dirs->v[i].text[0] == '-')))
			return true;
	return false;
}

/* The supervisor writes there: an app that can put a symlink in the way must not choose where. */
static void check_log(const struct validate *v)
{
	const struct unit *u = v->u;
	const struct assign *file = set_in(v, "Log", "File");

	if (!u->log_file || !file)
		return;
	if (strcmp(u->log_target, "file") != 0)
		at(v, file, "File= needs Target=file");
	else if ((u->app_directory && path_is_below(u->log_file, u->app_directory)) ||
		 below_any(u->log_file, &u->data_directory) || below_any(u->log_file, &u->write))
		at(v, file, "File=%s lies where the app can write: a log belongs elsewhere", u->log_file);
}

static void check_hooks(const struct validate *v)
{
	if (v->u->hooks.n && v->u->mode == UNIT_STDIO)
		at(v, set_in(v, "App", "Mode"), "[Hooks] are run by the supervisor, which does not start apps with Mode=stdio");
}

static void check_prepare(const struct validate *v)
{
	static const char *const others[] = {"Files", "Allow", "Timeout", "Retries"};

	if (v->u->prepare_exec.n && v->u->mode == UNIT_STDIO)
		at(v, set_in(v, "Prepare", "Exec"), "[Prepare] is run by the supervisor, which does not start apps with "
		   "Mode=stdio: prepare it by hand");
	if (v->u->prepare_exec.n)
		return;
	for (size_t i = 0; i < ELEMENTS(others); i++) {
		const struct assign *a = set_by_unit(v, "Prepare", others[i]);

		if (a) {
			at(v, a, "[Prepare] %s= needs Exec=", others[i]);
			return;
		}
	}
}

void unit_validate(const struct validate *v)
{
	check_command(v);
	check_app_directory(v);
	check_user(v);
	check_restart(v);
	check_ready(v);
	check_mode(v);
	check_sandbox(v);
	check_egress(v);
	check_upstream(v);
	check_ports(v);
	check_limits(v);
	check_health(v);
	check_log(v);
	check_prepare(v);
	check_hooks(v);
}
