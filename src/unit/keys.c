/*
 * The key table: every key of unit files and of sbxsv.conf, its type, default and place. The man page,
 * completions and tests are checked against it. `live` means that a reload applies a change to the running
 * app; `LATER` that this version reads and checks the key but does not act on it, which unit.not_in_force
 * then says for each unit that uses it.
 */
#include "unit/internal.h"
#include <stddef.h>
#include <string.h>

#define LIST          .list = true
#define LIVE          .live = true
#define LATER         .in_force = false
#define UNIT_ONLY     .flags = KEY_UNIT_ONLY
#define BLOCKS        .flags = KEY_BLOCKS
#define RANGE(lo, hi) .min = (lo), .max = (hi)
#define WORDS(...)                                                                                           \
	.words = (const char *const[])                                                                       \
	{                                                                                                    \
		__VA_ARGS__, NULL                                                                            \
	}

#define TYPE_K_TEXT      "text"
#define TYPE_K_SHELL     "shell line"
#define TYPE_K_WORDS     "command"
#define TYPE_K_PATH      "path"
#define TYPE_K_PATHS     "path"
#define TYPE_K_PATHS_OPT "path or -path"
#define TYPE_K_PATH_STRV "path"
#define TYPE_K_ENUM      "word"
#define TYPE_K_ENUM_STR  "word"
#define TYPE_K_ENUM_BOOL "word"
#define TYPE_K_BOOL      "yes or no"
#define TYPE_K_MS        "duration"
#define TYPE_K_UINT      "number"
#define TYPE_K_COUNT     "number"
#define TYPE_K_SIZE      "size"
#define TYPE_K_NICE      "number"
#define TYPE_K_CPU       "percentage"
#define TYPE_K_SIGNAL    "signal"
#define TYPE_K_URLPATH   "URL path"
#define TYPE_K_APPS      "app names"
#define TYPE_K_ENV       "NAME=value words"
#define TYPE_K_ENVNAMES  "variable names"
#define TYPE_K_USER      "user"
#define TYPE_K_STATUS    "exit statuses"
#define TYPE_K_SECRET    "names of secret places"
#define TYPE_K_DEVICE    "path below /dev"
#define TYPE_K_HOSTS     "host rules"
#define TYPE_K_ADDRESSES "address rules"
#define TYPE_K_PORTS     "ports"
#define TYPE_K_LISTEN    "PORT or HOSTPORT:APPPORT"
#define TYPE_K_LOOPBACK  "ports"
#define TYPE_K_IP        "address"
#define TYPE_K_PROXY_URL "proxy URL"
#define TYPE_K_NO_PROXY  "hosts and networks"
#define TYPE_K_PROFILE   "profile"
#define TYPE_K_NEED      "words"
#define TYPE_K_HOOK      "command"

/* The flags of a row come last and may set in_force again: the override is meant. */
#pragma GCC diagnostic ignored "-Woverride-init"
#ifdef __clang__
#pragma clang diagnostic ignored "-Winitializer-overrides"
#endif
#define ROW(str, sec, nm, knd, fld, def, hlp, ...)                                                           \
	{                                                                                                    \
		.section = (sec), .name = (nm), .type = TYPE_##knd, .default_text = (def), .help = (hlp),    \
		.in_force = true, .kind = (knd), .offset = offsetof(str, fld), __VA_ARGS__                   \
	}
#define U(...) ROW(struct unit, __VA_ARGS__)
#define C(...) ROW(struct conf, __VA_ARGS__)

static const struct unit_key unit_rows[] = {
	/* clang-format off */
	U("App", "Description", K_TEXT, description, "", "one line for people", LIVE, UNIT_ONLY),
	U("App", "Mode", K_ENUM, mode, "background", "how the app lives", .flags = KEY_UNIT_ONLY | KEY_BLOCKS, WORDS("background", "session", "stdio")),
	U("App", "Exec", K_WORDS, exec, "", "program and arguments, shell-like quoting, no shell", UNIT_ONLY),
	U("App", "Shell", K_SHELL, shell, "", "one line for /bin/sh -c, instead of Exec=", UNIT_ONLY),
	U("App", "Path", K_PATHS, path, "", "directory put first in PATH and readable", LIST),
	U("App", "WorkingDirectory", K_PATH, working_directory, "", "directory the app starts in (needed)", UNIT_ONLY),
	U("App", "AppDirectory", K_PATH, app_directory, "(WorkingDirectory)", "the app's own tree, read-write; never $HOME or above", UNIT_ONLY),
	U("App", "DataDirectory", K_PATHS, data_directory, "", "read-write directory, created 0700 as the app's user", LIST, UNIT_ONLY),
	U("App", "User", K_USER, user, "(sbxsv)", "user the app runs as (only under a root supervisor)", UNIT_ONLY),
	U("App", "Group", K_USER, group, "(group of User)", "group the app runs as (only under a root supervisor)", UNIT_ONLY),
	U("App", "Environment", K_ENV, environment, "", "NAME=value words with shell-like quoting", LIST),
	U("App", "EnvironmentFile", K_PATHS_OPT, environment_file, "", "file of NAME=value lines", LIST),
	U("App", "PassEnvironment", K_ENVNAMES, pass_environment, "", "variables taken from the supervisor's environment", LIST),
	U("App", "After", K_APPS, after, "", "apps that, when they start too, are ready before this one starts", LIST, LIVE, UNIT_ONLY),
	U("App", "Requires", K_APPS, requires, "", "apps this one cannot run without: started first, stopped after it", LIST, LIVE, UNIT_ONLY),
	U("App", "Enabled", K_BOOL, enabled, "yes", "start with the supervisor", LIVE, UNIT_ONLY),

	U("Restart", "Policy", K_ENUM, restart, "on-failure", "when an app that ended is started again", LIVE, WORDS("no", "on-failure", "always")),
	U("Restart", "Sec", K_MS, restart_ms, "100ms", "first delay; grows exponentially", LIVE, RANGE(0, 86400000)),
	U("Restart", "MaxSec", K_MS, restart_max_ms, "30s", "longest delay", LIVE, RANGE(0, 86400000)),
	U("Restart", "LimitBurst", K_UINT, limit_burst, "10", "starts within LimitInterval before the app is failed", LIVE, RANGE(1, 100000)),
	U("Restart", "LimitInterval", K_MS, limit_interval_ms, "5min", "window of LimitBurst; 0 for no limit", LIVE),
	U("Restart", "SuccessExitStatus", K_STATUS, success_status, "", "exit statuses that are success, beside 0", LIST, LIVE),

	U("Stop", "Signal", K_SIGNAL, stop_signal, "TERM", "first signal of a stop", LIVE),
	U("Stop", "Timeout", K_MS, stop_timeout_ms, "2s", "time before SIGKILL when a person stops this app", LIVE, RANGE(0, 3600000)),

	U("Ready", "Type", K_ENUM, ready, "(listen if there is a Listen, else exec)", "what makes a start complete", LIVE,
	  WORDS("exec", "listen", "http", "notify", "fd")),
	U("Ready", "Path", K_URLPATH, ready_path, "/", "path asked by Type=http", LIVE),
	U("Ready", "Timeout", K_MS, ready_timeout_ms, "30s", "a start that is not ready by then failed", LIVE, RANGE(1, 86400000)),

	U("Session", "IdleTimeout", K_MS, idle_timeout_ms, "60s", "a session app without use for this long is stopped", LIVE, RANGE(1000, 2592000000)),
	U("Session", "IdleBy", K_ENUM_BOOL, idle_by_traffic, "connections", "what counts as use", LIVE, WORDS("connections", "traffic")),

	U("Sandbox", "Profile", K_PROFILE, profile, "strict", "file of units/ whose keys are the defaults", UNIT_ONLY),
	U("Sandbox", "Enforce", K_ENUM, enforce, "required", "what happens when the jail cannot be built as written",
	  WORDS("required", "best-effort", "off")),
	U("Sandbox", "Backend", K_ENUM, backend, "auto", "how the jail is made",
	  BLOCKS, WORDS("auto", "linux", "!landlock", "!bwrap", "!docker", "!seatbelt", "none")),
	U("Sandbox", "ReadMode", K_ENUM, read_mode, "strict", "what the app may read", WORDS("strict", "allowlist", "open")),
	U("Sandbox", "Read", K_PATHS_OPT, read, "", "readable path", LIST),
	U("Sandbox", "Write", K_PATHS_OPT, write, "", "writable path", LIST),
	U("Sandbox", "Hide", K_PATHS_OPT, hide, "", "path the app never sees; wins over Read= and Write=", LIST),
	U("Sandbox", "UnixSocket", K_PATHS_OPT, unix_socket, "", "socket of this machine the app may connect to", LIST),
	U("Sandbox", "Device", K_DEVICE, device, "", "device the app may use", LIST),
	U("Sandbox", "Secret", K_SECRET, secret, "", "secret place granted by name; shown in status", LIST),
	U("Sandbox", "NestedSandbox", K_BOOL, nested_sandbox, "no", "let the app make namespaces of its own (weaker jail)"),
	U("Sandbox", "BindPolicy", K_ENUM_BOOL, bind_declared, "any", "ports the app may listen on inside its jail", LATER, BLOCKS, WORDS("any", "declared")),

	U("Network", "Egress", K_ENUM, egress, "off", "what the app may reach (Allow= implies hosts)", LIVE, WORDS("off", "hosts", "all")),
	U("Network", "Connect", K_PORTS, connect, "", "remote ports when Egress=all", LIST, LIVE),
	U("Network", "Allow", K_HOSTS, allow, "", "host, *.host, host:port or public address the app may reach", LIST, LIVE),
	U("Network", "Deny", K_HOSTS, deny, "", "host the app may not reach; wins over Allow=", LIST, LIVE),
	U("Network", "AllowAddress", K_ADDRESSES, allow_address, "", "address or network with a port, private ones included", LIST, LIVE),
	U("Network", "Listen", K_LISTEN, listen, "", "port held on the host and relayed to the app", LIST, UNIT_ONLY),
	U("Network", "ListenAddress", K_IP, listen_address, "127.0.0.1", "address the host ports are held on"),
	U("Network", "Loopback", K_LOOPBACK, loopback, "", "port of this machine's loopback the app may reach, or app:NAME for that of another app", LIST, LIVE),
	U("Network", "SniPolicy", K_ENUM_BOOL, sni_match, "match", "must the TLS name equal the allowed name", LIVE, WORDS("off", "match")),
	U("Network", "Ech", K_ENUM_BOOL, ech_refuse, "allow", "TLS with an encrypted ClientHello", LIVE, WORDS("allow", "refuse")),
	U("Network", "Ask", K_BOOL, ask, "no", "ask a person about unknown hosts", LIVE, LATER),
	U("Network", "UpstreamProxy", K_PROXY_URL, upstream_proxy, "", "proxy that allowed connections go through", LIVE),
	U("Network", "NoProxy", K_NO_PROXY, no_proxy, "", "host, address or network reached without UpstreamProxy=", LIST, LIVE),

	U("Limits", "Memory", K_SIZE, limit_memory, "(no limit)", "memory of the whole app", RANGE(1048576, 0)),
	U("Limits", "CPU", K_CPU, limit_cpu_percent, "(no limit)", "share of one processor"),
	U("Limits", "Tasks", K_COUNT, limit_tasks, "(no limit)", "processes and threads", RANGE(1, 4194304)),
	U("Limits", "OpenFiles", K_COUNT, limit_open_files, "(no limit)", "open files a process", RANGE(16, 1048576)),
	U("Limits", "Core", K_SIZE, limit_core, "0", "size of a core dump"),
	U("Limits", "Nice", K_NICE, nice, "0", "niceness"),
	U("Limits", "TmpSize", K_SIZE, tmp_size, "(half of memory)", "size of the private /tmp", RANGE(65536, 0)),

	U("Health", "Http", K_URLPATH, health_http, "", "path that must answer with a status below 500", LIVE),
	U("Health", "Tcp", K_BOOL, health_tcp, "no", "the first port must accept", LIVE),
	U("Health", "Exec", K_WORDS, health_exec, "", "command inside the jail that must succeed", LIVE),
	U("Health", "Interval", K_MS, health_interval_ms, "10s", "time between checks", LIVE, RANGE(100, 86400000)),
	U("Health", "Timeout", K_MS, health_timeout_ms, "5s", "a check that takes longer failed", LIVE, RANGE(10, 86400000)),
	U("Health", "Retries", K_UINT, health_retries, "3", "failed checks in a row after which the app is restarted", LIVE, RANGE(1, 1000)),
	U("Health", "WatchdogSec", K_MS, watchdog_ms, "(off)", "longest time without a sign of life by sd_notify", RANGE(100, 86400000)),

	U("Log", "Target", K_ENUM_STR, log_target, "file", "where the output goes", LIVE, WORDS("file", "journal", "syslog")),
	U("Log", "File", K_PATH, log_file, "(NAME.log in the state directory)", "file of Target=file", LIVE, UNIT_ONLY),
	U("Log", "MaxSize", K_SIZE, log_max_size, "10M", "size at which the file is rotated", LIVE, RANGE(4096, 0)),
	U("Log", "MaxFiles", K_UINT, log_max_files, "5", "files in all, the current one included", LIVE, RANGE(1, 1000)),
	U("Log", "Timestamps", K_BOOL, log_timestamps, "no", "put the time before each line", LIVE),

	U("Needs", "Bin", K_NEED, needs, "", "programs that must be there", LIST, LIVE),
	U("Needs", "OptionalBin", K_NEED, needs, "", "programs that are useful", LIST, LIVE),
	U("Needs", "Env", K_NEED, needs, "", "variables that must be set", LIST, LIVE),
	U("Needs", "Os", K_NEED, needs, "", "systems the app runs on: linux macos windows", LIST, LIVE),
	U("Needs", "Node", K_NEED, needs, "", "version range of Node", LIVE),
	U("Needs", "Python", K_NEED, needs, "", "version range of Python", LIVE),

	U("Prepare", "Exec", K_WORDS, prepare_exec, "", "command run once per content of Files=, in the jail", LIVE, UNIT_ONLY),
	U("Prepare", "Files", K_PATH_STRV, prepare_files, "", "file whose content decides whether Exec= runs again", LIST, LIVE, UNIT_ONLY),
	U("Prepare", "Allow", K_HOSTS, prepare_allow, "", "host that Exec= may reach", LIST, LIVE, UNIT_ONLY),
	U("Prepare", "Timeout", K_MS, prepare_timeout_ms, "10min", "longest time Exec= may take", LIVE, RANGE(1000, 86400000)),
	U("Prepare", "Retries", K_UINT, prepare_retries, "0", "how often a failed Exec= is tried again", LIVE, RANGE(0, 100)),

	U("Port", "Reclaim", K_BOOL, reclaim, "yes", "take a Listen port back from a verified orphan of this app", LIVE),

	U("Hooks", "OnStart", K_HOOK, hooks, "", "command run when the app starts", LIVE, UNIT_ONLY),
	U("Hooks", "OnReady", K_HOOK, hooks, "", "command run when the app is ready", LIVE, UNIT_ONLY),
	U("Hooks", "OnExit", K_HOOK, hooks, "", "command run when the app ended", LIVE, UNIT_ONLY),
	U("Hooks", "OnFail", K_HOOK, hooks, "", "command run when the app is failed", LIVE, UNIT_ONLY),
	U("Hooks", "OnViolation", K_HOOK, hooks, "", "command run when the app was refused something", LIVE, UNIT_ONLY),
	U("Hooks", "Unsafe", K_BOOL, hooks_unsafe, "no", "run the hooks outside the jail", LIVE, UNIT_ONLY),

	U("Audit", "Violations", K_ENUM_STR, audit_violations, "writes", "whose refusal is recorded: writes (also exec and sockets), all (also what is only read), off", WORDS("writes", "all", "off")),
	U("Audit", "Trace", K_BOOL, audit_trace, "no", "record what the app opens", LATER),
	/* clang-format on */
};
const struct key_table unit_table = {unit_rows, ELEMENTS(unit_rows)};

static const struct unit_key conf_rows[] = {
	/* clang-format off */
	C("Supervisor", "ShutdownBudget", K_MS, shutdown_budget_ms, "300ms", "longest time from SIGTERM to everything gone", RANGE(50, 3600000)),
	C("Supervisor", "User", K_USER, default_user, "sbxsv", "user of apps without User= (root supervisor)"),
	C("Sandbox", "Read", K_PATHS_OPT, allowlist, "", "path every app with ReadMode=allowlist may read", LIST),
	/* clang-format on */
};
const struct key_table unit_conf_table = {conf_rows, ELEMENTS(conf_rows)};

const struct unit_key *unit_keys(size_t *ret_n)
{
	*ret_n = unit_table.n;
	return unit_table.v;
}

const struct unit_key *unit_key_find(const struct key_table *t, const char *section, const char *name)
{
	for (size_t i = 0; i < t->n; i++)
		if (strcmp(t->v[i].section, section) == 0 && strcmp(t->v[i].name, name) == 0)
			return &t->v[i];
	return NULL;
}

bool unit_key_has_default(const struct unit_key *k)
{
	return k->default_text[0] && k->default_text[0] != '(';
}

bool unit_key_section_check(const struct key_table *t, const char *section, const char *shown, unsigned line,
			    struct unit_problems *p)
{
	CLEANUP_STRV struct strv names = {0};
	const char *near;

	for (size_t i = 0; i < t->n; i++) {
		if (strcmp(t->v[i].section, section) == 0)
			return true;
		if (!strv_has(&names, t->v[i].section))
			strv_add(&names, t->v[i].section);
	}
	near = str_nearest(section, (const char *const *)names.v);
	if (unit_foreign_section(section))
		unit_problem_add(p, shown, line, "[%s] %s", section, unit_foreign_section(section));
	else if (near)
		unit_problem_add(p, shown, line, "[%s] is not a section: did you mean [%s]?", section, near);
	else
		unit_problem_add(p, shown, line, "[%s] is not a section", section);
	return false;
}

void unit_key_report_unknown(const struct key_table *t, const char *section, const char *name,
			     const char *shown, unsigned line, struct unit_problems *p)
{
	CLEANUP_STRV struct strv names = {0};
	const char *near, *home = NULL;

	for (size_t i = 0; i < t->n; i++) {
		if (strcmp(t->v[i].section, section) == 0)
			strv_add(&names, t->v[i].name);
		if (!home && strcmp(t->v[i].name, name) == 0)
			home = t->v[i].section;
	}
	near = str_nearest(name, (const char *const *)names.v);
	if (unit_foreign_key(name))
		unit_problem_add(p, shown, line, "%s= is not a key of [%s]: it %s", name, section,
				 unit_foreign_key(name));
	else if (home)
		unit_problem_add(p, shown, line, "%s= is not a key of [%s]: it belongs in [%s]", name,
				 section, home);
	else if (near)
		unit_problem_add(p, shown, line, "%s= is not a key of [%s]: did you mean %s=?", name, section,
				 near);
	else
		unit_problem_add(p, shown, line, "%s= is not a key of [%s]", name, section);
}
