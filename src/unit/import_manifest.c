/*
 * senclaw-manifest.json: the members of `runtime`, `requires`, `sandbox` and `mcp` that mean something to a
 * supervisor. A word that is misspelt is refused: there a misspelt mode silently meant "session", and an app
 * that was to run all day was stopped after a minute.
 */
#include "base/file.h"
#include "unit/import_internal.h"
#include <inttypes.h>
#include <string.h>

static const struct js *object(struct importing *m, const struct js *of, const char *key)
{
	const struct js *j = js_get(of, key);

	if (j && !js_is_obj(j))
		import_fail(m, "\"%s\" is not an object", key);
	return m->failed ? NULL : j;
}

/* NULL when absent. */
static const char *text(struct importing *m, const struct js *of, const char *in, const char *key)
{
	const struct js *j = js_get(of, key);
	const char *s = js_value_str(j);
	CLEANUP_FREE char *what = xasprintf("%s.%s", in, key);

	if (j && !s)
		import_fail(m, "%s is not a text", what);
	if (s && !import_text_ok(m, what, s))
		return NULL;
	return s;
}

static bool is_word(const char *s)
{
	return *s && !s[strcspn(s, " \t,;=\"'\\")];
}

/* Members that nothing here reads, and members that are there twice: which of them counts is anybody's guess. */
static void check_members(struct importing *m, const struct js *obj, const char *in, const char *const *known)
{
	for (const struct js *j = js_first(obj); j && !m->failed; j = js_next(j)) {
		bool found = false;
		const char *near;

		for (const struct js *k = js_next(j); k; k = js_next(k))
			if (strcmp(js_key(j), js_key(k)) == 0)
				import_fail(m, "%s.%.60s is there twice", in, js_key(j));
		for (size_t i = 0; known[i]; i++)
			found |= strcmp(known[i], js_key(j)) == 0;
		near = found ? NULL : str_nearest(js_key(j), known);
		if (near)
			import_fail(m, "%s.%.60s is not known; did you mean %s?", in, js_key(j), near);
		else if (!found)
			import_note(m, "App", "%s.%s of the manifest has no counterpart", in, js_key(j));
	}
}

static void words_of(struct importing *m, const struct js *of, const char *in, const char *from,
		     const char *section, const char *key)
{
	const struct js *list = js_get(of, from);

	if (list && !js_is_arr(list))
		import_fail(m, "%s.%s is not a list", in, from);
	for (const struct js *j = js_is_arr(list) ? js_first(list) : NULL; j && !m->failed; j = js_next(j)) {
		const char *s = js_value_str(j);

		if (!s || !is_word(s))
			import_fail(m, "%s.%s: an element is not one word", in, from);
		else if (import_text_ok(m, from, s) && key)
			import_set(m, section, key, s);
		else if (!m->failed)
			import_note(m, section, "%s.%s: %s", in, from, s);
	}
}

/* --- runtime --- */

struct app {
	const char *id, *start, *runner;
	bool session, stdio;
	int64_t port; /* 0: none */
};

static void mode_of(struct importing *m, const struct js *runtime, struct app *a)
{
	static const char *const modes[] = {"background", "always",    "daemon", "resident",
					    "session",    "on-demand", "lazy",   NULL};
	const char *mode = text(m, runtime, "runtime", "mode");
	size_t i = 0;

	if (m->failed)
		return;
	while (mode && modes[i] && strcmp(modes[i], mode) != 0)
		i++;
	if (mode && !modes[i])
		import_bad_word(m, "runtime.mode", mode, modes);
	a->session = !mode || i >= 4;
	if (!mode)
		import_note(m, "App", "no runtime.mode: session is the default of manifests");
}

static void port_of(struct importing *m, const struct js *runtime, struct app *a)
{
	if (m->r->port && import_is_number(m->r->port))
		a->port = strtol(m->r->port, NULL, 10);
	else if (js_get(runtime, "port") && js_int(runtime, "port", &a->port) < 0)
		import_fail(m, "runtime.port is not a number");
	if (!m->failed && (a->port < 0 || a->port > 65535))
		import_fail(m, "runtime.port: %" PRId64 " is no port", a->port);
	if (!a->port && a->session && !a->stdio)
		import_fail(
			m,
			"no runtime.port (there: any free one), and a session app needs one here: --port N");
	else if (!a->port && !a->stdio)
		import_note(m, "Network", "no runtime.port (there: any free one): give it one with --port N");
}

/* A line that is only a program and its words needs no shell, and the jail then knows the program. */
static bool is_simple(const char *line)
{
	static const char plain[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:,+@=- ";
	static const char *const builtins[] = {"cd",    "exec",  "export", ".",     "source", "if",
					       "for",   "while", "set",    "unset", "eval",   "ulimit",
					       "umask", "trap",  "wait",   "case"};
	size_t n = strcspn(line, " ");

	if (line[strspn(line, plain)] || memchr(line, '=', n) || line[0] == '-')
		return false;
	for (size_t i = 0; i < ELEMENTS(builtins); i++)
		if (strlen(builtins[i]) == n && memcmp(builtins[i], line, n) == 0)
			return false;
	return n > 0;
}

static void command(struct importing *m, struct app *a)
{
	CLEANUP_FREE char *line = a->start ? xstrdup(a->start) : NULL, *safe = NULL;
	const char *trimmed = line ? str_trim(line) : "";

	if (!*trimmed) {
		import_fail(m, "runtime.start is missing: what is to be started");
		return;
	}
	safe = import_percent(trimmed);
	import_vital(m, "App", is_simple(trimmed) ? "Exec" : "Shell", safe);
}

/* Python apps have their packages in .venv of their directory, first in PATH. */
static void venv(struct importing *m, const struct js *runtime, const struct app *a, const char *dir)
{
	static const char *const runners[] = {"binary", "node", "python", "shell", NULL};
	bool python = a->start && (str_starts(a->start, "python") || str_starts(a->start, "uvicorn") ||
				   str_starts(a->start, "gunicorn") || str_starts(a->start, "flask"));
	CLEANUP_FREE char *bin = dir ? path_join(dir, ".venv/bin") : NULL, *safe = NULL;

	if (a->runner) {
		size_t i = 0;

		while (runners[i] && strcmp(runners[i], a->runner) != 0)
			i++;
		if (!runners[i])
			import_bad_word(m, "runtime.runner", a->runner, runners);
		python = i == 2;
	}
	if (!js_bool_or(runtime, "venv", python) || !bin || m->failed)
		return;
	safe = import_percent(bin);
	if (m->r->exists && m->r->exists(bin))
		import_set(m, "App", "Path", safe);
	else
		import_note(m, "App", "make its packages (python3 -m venv .venv), then: Path=%s", safe);
}

static void install(struct importing *m, const struct js *runtime)
{
	const char *line = text(m, runtime, "runtime", "install");
	CLEANUP_FREE char *safe = line ? import_percent(line) : NULL,
			  *word = safe ? import_quote(safe) : NULL;

	if (!word)
		return;
	import_note(
		m, "App",
		"runtime.install is not run by itself. To let it run in the jail, before the app starts:");
	import_note(m, "App", "  [Prepare]");
	import_note(m, "App", "  Exec=/bin/sh -c %s", word);
	import_note(m, "App",
		    "  Files= the files whose change makes it run again; Allow= the sites it needs");
}

static void health(struct importing *m, const struct js *runtime, const struct app *a)
{
	const char *path = text(m, runtime, "runtime", "healthPath");
	CLEANUP_FREE char *safe = path ? import_percent(path) : NULL;

	if (!safe || !a->port)
		return;
	import_set(m, "Ready", "Type", "http");
	import_set(m, "Ready", "Path", safe);
	import_set(m, "Health", "Http", safe);
}

static void idle(struct importing *m, const struct js *runtime, const struct app *a)
{
	CLEANUP_FREE char *value = NULL;
	int64_t s = 60;

	if (js_get(runtime, "idleTimeoutSecs") && (js_int(runtime, "idleTimeoutSecs", &s) < 0 || s < 1)) {
		import_fail(m, "runtime.idleTimeoutSecs is not a number of seconds");
		return;
	}
	value = xasprintf("%" PRId64 "s", s < 15 ? 15 : s); /* the least there */
	if (a->session && !a->stdio)
		import_set(m, "Session", "IdleTimeout", value);
	else if (js_get(runtime, "idleTimeoutSecs"))
		import_note(m, "App", "runtime.idleTimeoutSecs: only a session app is stopped when idle");
}

static void runtime_of(struct importing *m, const struct js *runtime, struct app *a)
{
	static const char *const known[] = {"kind", "mode",       "runner", "start",           "install",
					    "venv", "healthPath", "port",   "idleTimeoutSecs", NULL};
	const char *kind = text(m, runtime, "runtime", "kind");
	const char *dir = m->r->directory ? m->r->directory : m->r->file_dir;
	CLEANUP_FREE char *port = NULL;

	check_members(m, runtime, "runtime", known);
	if (!m->failed && !str_eq(kind, "server")) {
		import_fail(m, "runtime.kind is %s%.60s: only \"server\" has a process to supervise",
			    kind ? "" : "missing", kind ? kind : "");
		return;
	}
	mode_of(m, runtime, a);
	a->start = text(m, runtime, "runtime", "start");
	a->runner = text(m, runtime, "runtime", "runner");
	port_of(m, runtime, a);
	import_vital(m, "App", "Mode", a->stdio ? "stdio" : a->session ? "session" : "background");
	command(m, a);
	import_directory(m, dir, NULL);
	venv(m, runtime, a, dir);
	install(m, runtime);
	health(m, runtime, a);
	idle(m, runtime, a);
	port = xasprintf("%" PRId64, a->port);
	if (a->port && !a->stdio)
		import_set(m, "Network", "Listen", port);
}

/* --- requires, sandbox, mcp --- */

static void requires_of(struct importing *m, const struct js *j)
{
	static const char *const known[] = {"node", "python",      "bin", "optionalBin",
					    "env",  "optionalEnv", "os",  NULL};
	const char *node = text(m, j, "requires", "node"), *python = text(m, j, "requires", "python");

	if (!j)
		return;
	check_members(m, j, "requires", known);
	words_of(m, j, "requires", "bin", "Needs", "Bin");
	words_of(m, j, "requires", "optionalBin", "Needs", "OptionalBin");
	words_of(m, j, "requires", "env", "Needs", "Env");
	words_of(m, j, "requires", "os", "Needs", "Os");
	if (js_len(js_get(j, "env")) || js_len(js_get(j, "optionalEnv")))
		import_note(m, "App",
			    "variables are given to the app by PassEnvironment=, when you want that");
	words_of(m, j, "requires", "optionalEnv", "App", NULL);
	if (node)
		import_set(m, "Needs", "Node", node);
	if (python)
		import_set(m, "Needs", "Python", python);
}

static void hosts_of(struct importing *m, const struct js *j)
{
	static const char *const modes[] = {"off", "all", "hosts", NULL};
	const char *network = text(m, j, "sandbox", "network");
	size_t i = 0, hosts = js_len(js_get(j, "hosts"));

	while (network && modes[i] && strcmp(modes[i], network) != 0)
		i++;
	if (network && !modes[i]) {
		import_bad_word(m, "sandbox.network", network, modes);
		return;
	}
	if (network && i == 1) {
		import_vital(m, "Network", "Egress", "all");
		words_of(m, j, "sandbox", "hosts", "Network", NULL);
	} else if (network && i == 0) {
		import_vital(m, "Network", "Egress", "off");
		words_of(m, j, "sandbox", "hosts", "Network", NULL);
	} else {
		if (network && !hosts)
			import_note(m, "Network", "sandbox.hosts is empty: no site, as there");
		words_of(m, j, "sandbox", "hosts", "Network", "Allow");
	}
}

static void folders_of(struct importing *m, const struct js *j, const char *dir)
{
	const struct js *list = js_get(j, "folders");

	if (list && !js_is_arr(list))
		import_fail(m, "sandbox.folders is not a list");
	for (const struct js *f = js_is_arr(list) ? js_first(list) : NULL; f && !m->failed; f = js_next(f)) {
		const char *path = js_str(f, "path");
		bool write = js_get(f, "readOnly") && !js_bool_or(f, "readOnly", true);
		CLEANUP_FREE char *full = path ? import_path(m, "sandbox.folders", path, dir) : NULL,
				  *value = NULL;

		if (!full) {
			import_fail(m, "sandbox.folders: an element without a path");
			return;
		}
		value = xasprintf("-%s",
				  full); /* one that is not there must not keep the app from starting */
		import_set(m, "Sandbox", write ? "Write" : "Read", value);
		if (!js_get(f, "readOnly"))
			import_note(m, "Sandbox",
				    "%s: readOnly was not said; Write= lets the app write there", full);
	}
}

static void ports_of(struct importing *m, const struct js *j)
{
	const struct js *list = js_get(j, "loopback");

	if (list && !js_is_arr(list))
		import_fail(m, "sandbox.loopback is not a list");
	for (const struct js *p = js_is_arr(list) ? js_first(list) : NULL; p && !m->failed; p = js_next(p)) {
		CLEANUP_FREE char *value = NULL;
		int64_t port;

		if (js_value_int(p, &port) < 0 || port < 1 || port > 65535) {
			import_fail(m, "sandbox.loopback: an element is no port");
			return;
		}
		value = xasprintf("%" PRId64, port);
		import_set(m, "Network", "Loopback", value);
	}
}

static void sandbox_of(struct importing *m, const struct js *j)
{
	static const char *const known[] = {"force",     "enabled",  "readMode", "network", "hosts",
					    "daemonApi", "loopback", "folders",  NULL};
	static const char *const modes[] = {"strict", "allowlist", "open", NULL};
	const char *mode = text(m, j, "sandbox", "readMode");
	size_t i = 0;

	if (!j)
		return;
	check_members(m, j, "sandbox", known);
	while (mode && modes[i] && strcmp(modes[i], mode) != 0)
		i++;
	if (mode && !modes[i])
		import_bad_word(m, "sandbox.readMode", mode, modes);
	else if (mode)
		import_vital(m, "Sandbox", "ReadMode", mode);
	if (!js_bool_or(j, "enabled", true) || !js_bool_or(j, "force", true))
		import_note(m, "Sandbox", "the manifest does without its sandbox; here every app has a jail");
	hosts_of(m, j);
	ports_of(m, j);
	if (js_bool_or(j, "daemonApi", false))
		import_note(
			m, "Network",
			"sandbox.daemonApi: the API of the host program is reached with Loopback=ITS-PORT");
	folders_of(m, j, m->r->directory ? m->r->directory : m->r->file_dir);
}

static void mcp_of(struct importing *m, const struct js *j, struct app *a)
{
	static const char *const known[] = {"name", "transport", "path", "autoRegister", NULL};
	static const char *const transports[] = {"http", "sse", "streamable-http", "stdio", NULL};
	const char *transport = text(m, j, "mcp", "transport"), *path = text(m, j, "mcp", "path");
	size_t i = 0;

	if (!j)
		return;
	check_members(m, j, "mcp", known);
	while (transport && transports[i] && strcmp(transports[i], transport) != 0)
		i++;
	if (transport && !transports[i])
		import_bad_word(m, "mcp.transport", transport, transports);
	a->stdio = transport && i == 3;
	if (!a->stdio && path)
		import_note(m, "App", "its MCP server is at the path %s of its port", path);
}

/* Where such apps keep their data, computed from $HOME by each. */
static void data_of(struct importing *m, const struct app *a)
{
	static const char *const places[] = {"apps/", "space-apps/", "space-apps-data/", "space-app-data/",
					     ""};
	const char *home = m->r->dirs->home, *dir = m->r->directory ? m->r->directory : m->r->file_dir;

	for (size_t i = 0; i < ELEMENTS(places) && !m->failed; i++) {
		CLEANUP_FREE char *value = xasprintf("~/.senclaw/%s%s", places[i], a->id),
				  *full = xasprintf("%s%s", home ? home : "", value + 1);

		if (!dir || (!path_is_below(dir, full) && !path_is_below(full, dir)))
			import_set(m, "App", "DataDirectory", value);
	}
}

void import_manifest(struct importing *m)
{
	CLEANUP_JS struct js *j = js_parse(m->r->text, m->r->len, m->e);
	const struct js *runtime, *requires, *sandbox;
	struct app a = {0};
	const char *name;

	if (!j || !js_is_obj(j)) {
		if (j)
			import_fail(m, "it is not a JSON object");
		m->failed = true;
		return;
	}
	a.id = text(m, j, "manifest", "id");
	if (!a.id)
		import_fail(m, "it has no \"id\"");
	else
		import_name(m, a.id);
	runtime = object(m, j, "runtime");
	requires = object(m, j, "requires");
	sandbox = object(m, j, "sandbox");
	mcp_of(m, object(m, j, "mcp"), &a);
	name = text(m, j, "manifest", "name");
	if (m->failed)
		return;
	if (name && *name) {
		CLEANUP_FREE char *safe = import_percent(name);

		import_set(m, "App", "Description", str_trim(safe));
	}
	runtime_of(m, runtime, &a);
	requires_of(m, requires);
	sandbox_of(m, sandbox);
	if (unit_name_valid(a.id))
		data_of(m, &a);
}
