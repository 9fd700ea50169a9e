/*
 * Settings of srt. They confine a command that they do not name, and their default is that everything may be read.
 * What takes something away (denyRead, denyWrite, deniedDomains) is carried over or the import is refused; a key
 * that is not known there either, which srt accepts in silence, is refused too.
 */
#include "base/file.h"
#include "unit/import_internal.h"
#include <string.h>

static void check_members(struct importing *m, const struct js *obj, const char *in, const char *const *known)
{
	for (const struct js *j = js_first(obj); j && !m->failed; j = js_next(j)) {
		bool found = false;

		for (size_t i = 0; known[i]; i++)
			found |= strcmp(known[i], js_key(j)) == 0;
		for (const struct js *k = js_next(j); k; k = js_next(k))
			if (strcmp(js_key(j), js_key(k)) == 0)
				import_fail(m, "%s.%.60s is there twice", in, js_key(j));
		if (!found)
			import_bad_word(m, in, js_key(j), known);
	}
}

static const struct js *object(struct importing *m, const struct js *of, const char *key)
{
	const struct js *j = js_get(of, key);

	if (j && !js_is_obj(j))
		import_fail(m, "\"%s\" is not an object", key);
	return m->failed ? NULL : j;
}

static bool is_glob(const char *s)
{
	return s[strcspn(s, "*?[{")] != 0;
}

/* An element: a text, or {path, literal:true}. */
static const char *element(struct importing *m, const char *what, const struct js *j, bool *literal)
{
	const char *s = js_value_str(j);

	*literal = !s && js_bool_or(j, "literal", false);
	s = s ? s : js_str(j, "path");
	if (!s)
		import_fail(m, "filesystem.%s: an element is no path", what);
	return s;
}

/* Full paths of a list. With `strict` a pattern is refused, else it becomes a comment. */
static void paths(struct importing *m, const struct js *fs, const char *key, bool strict, const char *dir,
		  struct strv *ret)
{
	const struct js *list = js_get(fs, key);

	if (list && !js_is_arr(list))
		import_fail(m, "filesystem.%s is not a list", key);
	for (const struct js *j = js_is_arr(list) ? js_first(list) : NULL; j && !m->failed; j = js_next(j)) {
		bool literal = false;
		const char *s = element(m, key, j, &literal);
		CLEANUP_FREE char *cut = s ? xstrdup(s) : NULL, *full = NULL;

		if (!cut)
			return;
		if (!literal && strlen(cut) > 3 && str_ends(cut, "/**"))
			cut[strlen(cut) - 3] = 0;
		if (!literal && is_glob(cut) && strict) {
			import_fail(m,
				    "filesystem.%s: the pattern \"%.80s\" cannot be a path of a unit; name "
				    "the paths",
				    key, s);
			return;
		}
		if (!literal && is_glob(cut)) {
			import_note(m, "Sandbox", "filesystem.%s: the pattern %s is not carried over", key,
				    s);
			continue;
		}
		full = import_path(m, key, cut, dir);
		if (full)
			strv_take(ret, TAKE_PTR(full));
	}
}

static char *expanded(const struct importing *m, const char *path)
{
	if (path[0] != '~')
		return path_join("/", path);
	return xasprintf("%s%s", m->r->dirs->home ? m->r->dirs->home : "/home", path + 1);
}

static bool below(const struct importing *m, const char *path, const struct strv *of)
{
	CLEANUP_FREE char *a = expanded(m, path);

	for (size_t i = 0; i < of->n; i++) {
		CLEANUP_FREE char *b = expanded(m, of->v[i]);

		if (path_is_below(a, b))
			return true;
	}
	return false;
}

static void set_path(struct importing *m, const char *key, const char *path, bool vital)
{
	CLEANUP_FREE char *value = xasprintf("-%s", path);

	if (vital)
		import_vital(m, "Sandbox", key, value);
	else
		import_set(m, "Sandbox", key, value);
}

struct lists {
	struct strv deny_read, allow_read, allow_write, deny_write;
};

static void lists_finish(struct lists *l)
{
	strv_clear(&l->deny_read);
	strv_clear(&l->allow_read);
	strv_clear(&l->allow_write);
	strv_clear(&l->deny_write);
}

/* With / or the home directory hidden, a unit that names what may be read is the same. */
static bool is_strict(const struct importing *m, const struct strv *deny)
{
	for (size_t i = 0; i < deny->n; i++) {
		CLEANUP_FREE char *p = expanded(m, deny->v[i]);

		if (str_eq(p, "/") || (m->r->dirs->home && path_is_below(m->r->dirs->home, p)))
			return true;
	}
	return false;
}

static void filesystem(struct importing *m, const struct js *fs, const char *dir)
{
	static const char *const known[] = {"denyRead", "allowRead",      "allowWrite", "denyWrite",
					    "disabled", "allowGitConfig", NULL};
	CLEANUP(lists_finish) struct lists l = {0};
	bool strict;

	check_members(m, fs, "filesystem", known);
	paths(m, fs, "denyRead", true, dir, &l.deny_read);
	paths(m, fs, "denyWrite", true, dir, &l.deny_write);
	paths(m, fs, "allowRead", false, dir, &l.allow_read);
	paths(m, fs, "allowWrite", false, dir, &l.allow_write);
	strict = is_strict(m, &l.deny_read);
	import_vital(m, "Sandbox", "ReadMode", strict ? "strict" : "open");
	if (js_bool_or(fs, "disabled", false))
		import_note(m, "Sandbox", "filesystem.disabled: here every app has a jail");
	for (size_t i = 0; i < l.deny_read.n && !m->failed; i++)
		if (!is_strict(m, &(struct strv){.v = &l.deny_read.v[i], .n = 1}))
			set_path(m, "Hide", l.deny_read.v[i], true);
	for (size_t i = 0; i < l.allow_read.n && !m->failed; i++)
		if (strict)
			set_path(m, "Read", l.allow_read.v[i], false);
		else if (below(m, l.allow_read.v[i], &l.deny_read))
			import_note(m, "Sandbox", "allowRead %s: Hide= wins here, so it stays hidden",
				    l.allow_read.v[i]);
	for (size_t i = 0; i < l.allow_write.n && !m->failed; i++)
		if (below(m, l.allow_write.v[i], &l.deny_write))
			import_note(m, "Sandbox", "allowWrite %s: denyWrite says no", l.allow_write.v[i]);
		else
			set_path(m, "Write", l.allow_write.v[i], false);
	for (size_t i = 0; i < l.deny_write.n && !m->failed; i++)
		if (below(m, l.deny_write.v[i], &l.allow_write) ||
		    below(m, l.deny_write.v[i],
			  &(struct strv){.v = (char *[]){(char *)(uintptr_t)dir}, .n = 1}))
			set_path(m, "Read", l.deny_write.v[i], true);
}

static bool in_list(const struct js *list, const char *word)
{
	for (const struct js *j = js_is_arr(list) ? js_first(list) : NULL; j; j = js_next(j))
		if (str_eq(js_value_str(j), word))
			return true;
	return false;
}

static void domain(struct importing *m, const struct js *list, const char *host, bool deny)
{
	CLEANUP_FREE char *safe = NULL;

	if (!import_text_ok(m, "a domain", host))
		return;
	if (!*host || host[strcspn(host, " \t%$")]) {
		import_fail(m, "network: \"%.80s\" is no domain", host);
		return;
	}
	if (deny) {
		import_vital(m, "Network", "Deny", host);
		return;
	}
	if (str_starts(host, "localhost") || str_starts(host, "127.")) {
		import_note(m, "Network", "%s is this machine: Loopback=PORT names a port of it", host);
		return;
	}
	import_set(m, "Network", "Allow", host);
	/* "*.x" is subdomains only there, and x too here */
	safe = xstrdup(host + (str_starts(host, "*.") ? 2 : 0));
	if (safe[0] && str_starts(host, "*.") && !in_list(list, safe))
		import_vital(m, "Network", "Deny", safe);
}

static void network(struct importing *m, const struct js *n)
{
	static const char *const known[] = {"allowedDomains",
					    "deniedDomains",
					    "deniedDomainReasons",
					    "strictAllowlist",
					    "deniedResolvedAddresses",
					    "allowUnixSockets",
					    "allowAllUnixSockets",
					    "allowLocalBinding",
					    "httpProxyPort",
					    "socksProxyPort",
					    "mitmProxy",
					    "parentProxy",
					    "tlsTerminate",
					    "filterRequest",
					    "allowPlaintextHeaderSet",
					    "stripResponseHeaders",
					    "refuseOpaqueTunnels",
					    "requireHostMatch",
					    "ambiguousRequestTarget",
					    "allowMachLookup",
					    NULL};
	const struct js *allow = js_get(n, "allowedDomains"), *deny = js_get(n, "deniedDomains");
	bool none = in_list(deny, "*");

	check_members(m, n, "network", known);
	if ((allow && !js_is_arr(allow)) || (deny && !js_is_arr(deny)))
		import_fail(m, "network: a list of domains is not a list");
	for (const struct js *j = js_is_arr(allow) ? js_first(allow) : NULL; j && !m->failed; j = js_next(j))
		if (!js_value_str(j))
			import_fail(m, "network.allowedDomains: an element is no text");
		else if (none)
			import_note(m, "Network", "allowedDomains %s: deniedDomains * says no",
				    js_value_str(j));
		else
			domain(m, allow, js_value_str(j), false);
	for (const struct js *j = js_is_arr(deny) ? js_first(deny) : NULL; j && !m->failed; j = js_next(j))
		if (!js_value_str(j))
			import_fail(m, "network.deniedDomains: an element is no text");
		else if (!none)
			domain(m, deny, js_value_str(j), true);
	if (js_len(js_get(n, "deniedResolvedAddresses")))
		import_fail(m, "network.deniedResolvedAddresses has no counterpart (addresses that are not "
			       "public are "
			       "refused anyway); remove it to go on");
	for (const struct js *j = js_first(n); j && !m->failed; j = js_next(j))
		if (!str_starts(js_key(j), "allowedDomains") && !str_starts(js_key(j), "deniedDomain") &&
		    !str_eq(js_key(j), "strictAllowlist"))
			import_note(m, "Network", "network.%s is not carried over", js_key(j));
}

static void the_command(struct importing *m)
{
	CLEANUP_STRV struct strv words = {0};
	CLEANUP_FREE char *line = NULL;

	for (size_t i = 0; m->r->command && m->r->command[i]; i++)
		strv_take(&words, import_percent(m->r->command[i]));
	if (words.n) {
		line = import_command(words.v);
		import_vital(m, "App", "Exec", line);
		return;
	}
	import_note(
		m, "App",
		"the settings name no command. Write it here, or import them with: -- COMMAND; and remove "
		"Enabled=no");
	import_vital(m, "App", "Exec", "/bin/true");
	import_set(m, "App", "Enabled", "no");
}

void import_srt(struct importing *m)
{
	static const char *const known[] = {"network",
					    "filesystem",
					    "credentials",
					    "ignoreViolations",
					    "enableWeakerNestedSandbox",
					    "allowNestedUserNamespaces",
					    "mandatoryDenySearchDepth",
					    "ripgrep",
					    "seccomp",
					    "bwrapPath",
					    "socatPath",
					    "javaAgentJarPath",
					    "git",
					    "enableWeakerNetworkIsolation",
					    NULL};
	CLEANUP_JS struct js *j = js_parse(m->r->text, m->r->len, m->e);
	const char *dir = m->r->directory ? m->r->directory : m->r->file_dir;
	const struct js *files;

	if (!j || !js_is_obj(j)) {
		if (j)
			import_fail(m, "it is not a JSON object");
		m->failed = true;
		return;
	}
	import_name(m, m->r->name ? m->r->name : "srt");
	check_members(m, j, "srt settings", known);
	the_command(m);
	import_directory(m, dir, NULL);
	network(m, object(m, j, "network"));
	filesystem(m, object(m, j, "filesystem"), dir);
	files = js_get(js_get(j, "credentials"), "files");
	for (const struct js *f = js_is_arr(files) ? js_first(files) : NULL; f && !m->failed;
	     f = js_next(f)) {
		CLEANUP_FREE char *path =
			js_str(f, "path") ? import_path(m, "credentials.files", js_str(f, "path"), dir)
					  : NULL;

		if (path)
			set_path(m, "Hide", path, true);
		else
			import_fail(m, "credentials.files: an element without a path");
	}
	for (const struct js *k = js_first(j); k && !m->failed; k = js_next(k))
		if (!str_eq(js_key(k), "network") && !str_eq(js_key(k), "filesystem"))
			import_note(m, "Sandbox", "%s of the settings is not carried over%s", js_key(k),
				    str_eq(js_key(k), "credentials") ? ", but its files, which are hidden"
								     : "");
}
