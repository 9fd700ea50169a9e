/*
 * What the program needs to run at all: from the resolved program, not from anybody's PATH.
 *
 * The walk starts at the program and follows its symlinks, the #! line of a script (through `/usr/bin/env
 * NAME`, looked up along the app's PATH), and the pyvenv.cfg of a Python environment. What lies outside
 * everything granted so far is granted read-only: as the whole install prefix when the file lies in one, else
 * as the single file.
 *
 * Which directory is an install prefix is decided by its place (plan_search.c knows the layouts of nvm,
 * pyenv, uv, conda...) or by what is in it (pyvenv.cfg, lib/node_modules, ...), never by guessing from `bin`:
 * ~/projects/x/bin/tool does not open ~/projects/x.
 *
 * Trust. Each step of the walk is text that somebody wrote: the unit, or a file. A symlink, script or
 * pyvenv.cfg that the app itself can write must not decide what the next launch may read (`ln -sf
 * ~/Documents/x .venv/bin/python; exit 1`). From such a step only known layouts and executables in the usual
 * bin directories are followed, or what is visible anyway.
 *
 * Shims. The shims of pyenv, rbenv and nodenv are shell scripts that run the manager, which looks into its
 * own directory: that directory (program code only) is granted as a whole. Shims of asdf and mise also need
 * configuration from
 * ~/.config or `/`, and a snap needs snapd: refused, with the real program's directory as Path=.
 */
#include "sandbox/plan_internal.h"
#include "base/file.h"
#include <errno.h>
#include <string.h>

enum { TOOL_DEPTH = 8 };    /* scripts whose interpreter is a script: the kernel allows 5 (fs/exec.c) */
enum { HEAD_BYTES = 4096 }; /* of pyvenv.cfg; a #! line counts up to 256 (BINPRM_BUF_SIZE) */

struct tool {
	struct plan_ctx *c;
	const char *origin;
};

/* `path` runs next. `why` is for people: "Exec=npm", "the #! line of /x/npm". false: a problem was added. */
static bool tool_add(struct tool *t, const char *path, bool trusted, const char *why, int depth);

/* --- install prefixes --- */

static bool has(struct plan_ctx *c, const char *dir, const char *name)
{
	CLEANUP_FREE char *path = path_join(dir, name);

	return plan_exists(c, path, NULL);
}

static bool lists_python(struct plan_ctx *c, const char *dir)
{
	const struct plan_fs *fs = &c->w->fs;
	CLEANUP_FREE char *lib = path_join(dir, "lib");
	CLEANUP_STRV struct strv names = {0};

	if (fs->list(fs->data, lib, &names) < 0)
		return false;
	for (size_t i = 0; i < names.n; i++)
		if (str_starts(names.v[i], "python3"))
			return true;
	return false;
}

/* Looks like the root of an installation by what is in it. */
static bool looks_installed(struct plan_ctx *c, const char *dir)
{
	return has(c, dir, "pyvenv.cfg") || has(c, dir, "conda-meta") ||
	       has(c, dir, "lib/node_modules/npm") ||
	       (has(c, dir, "VERSION") && has(c, dir, "pkg/tool")) ||    /* Go */
	       (has(c, dir, "release") && has(c, dir, "lib/modules")) || /* a JDK */
	       has(c, dir, "lib/rustlib") || has(c, dir, "lib/ruby") || lists_python(c, dir);
}

/* The directory to grant for a program file, or NULL for the file alone. Owned by caller. */
static char *prefix_of(struct plan_ctx *c, const char *file, bool trusted)
{
	CLEANUP_FREE char *known = plan_known_prefix(c, file), *bin = NULL, *root = NULL;

	if (known && plan_guard_prefix(c, known))
		return TAKE_PTR(known);
	if (!trusted)
		return NULL;
	bin = path_dirname(file);
	root = path_dirname(bin);
	if (strcmp(path_basename(bin), "bin") == 0 && plan_guard_prefix(c, root) && looks_installed(c, root))
		return TAKE_PTR(root);
	return NULL;
}

/* The flat directories that tools install single programs into. */
static bool in_bin_directory(const struct plan_ctx *c, const char *file)
{
	static const char *const dirs[] = {".local/bin", ".cargo/bin", "go/bin",
					   ".bun/bin",   ".deno/bin",  "bin"};
	CLEANUP_FREE char *dir = path_dirname(file);

	for (size_t h = 0; h < c->homes.n; h++) {
		for (size_t i = 0; i < ELEMENTS(dirs); i++) {
			CLEANUP_FREE char *bin = path_join(c->homes.v[h], dirs[i]);

			if (strcmp(bin, dir) == 0)
				return true;
		}
	}
	return false;
}

static bool tool_grant(struct tool *t, const struct plan_where *w, bool trusted, const char *why)
{
	struct plan_ctx *c = t->c;
	CLEANUP_FREE char *prefix = NULL, *reason = xasprintf("toolchain: %s", why);
	const struct plan_place *place;

	if (plan_visible(c, w->path))
		return true;
	prefix = prefix_of(c, w->path, trusted);
	if (prefix) {
		plan_grant_add(c, prefix, PLAN_READ, true, SOURCE_IMPLIED, reason);
		return true;
	}
	place = plan_place_of(c, w->path);
	if (place && place->kind != PLACE_OTHER && place->kind != PLACE_HIDE &&
	    place->kind != PLACE_MACHINE) {
		plan_problem(c, t->origin, "%s leads to %s, which no app may see (%s)", why, w->path,
			     place->reason);
		return false;
	}
	if (!trusted && !in_bin_directory(c, w->path)) {
		plan_problem(c, t->origin,
			     "%s leads to %s, and the app itself can write what says so: add Read=%s if that "
			     "is meant",
			     why, w->path, w->path);
		return false;
	}
	plan_grant_add(c, w->path, PLAN_READ, false, SOURCE_IMPLIED, reason);
	return true;
}

/* A link that lies in another installation than its target: programs look for their files beside the name
 * they were started by. */
static void tool_grant_hop(struct tool *t, const char *link, const char *why)
{
	CLEANUP_FREE char *known = plan_known_prefix(t->c, link), *reason = xasprintf("toolchain: %s", why);

	if (known && !plan_visible(t->c, link) && plan_guard_prefix(t->c, known))
		plan_grant_add(t->c, known, PLAN_READ, true, SOURCE_IMPLIED, reason);
}

/* --- Python environments --- */

/* Value of `key = value` in a pyvenv.cfg, or NULL. Owned by caller. */
static char *cfg_value(const char *text, const char *key)
{
	for (const char *s = text; s && *s; s = strchr(s, '\n'), s = s ? s + 1 : NULL) {
		size_t n = strlen(key), len;
		const char *v;

		s += strspn(s, " \t");
		if (strncmp(s, key, n) != 0)
			continue;
		v = s + n + strspn(s + n, " \t");
		if (*v != '=')
			continue;
		v += 1 + strspn(v + 1, " \t");
		len = strcspn(v, "\r\n");
		while (len && (v[len - 1] == ' ' || v[len - 1] == '\t'))
			len--;
		return len ? xstrndup(v, len) : NULL;
	}
	return NULL;
}

static bool venv_base(struct tool *t, const char *cfg, const char *text, bool trusted, int depth)
{
	static const char *const names[] = {"python3", "python"};
	CLEANUP_FREE char *home = cfg_value(text, "home"), *executable = cfg_value(text, "executable");
	CLEANUP_FREE char *why = xasprintf("home= of %s", cfg);

	if (executable && executable[0] == '/' && plan_is_program(t->c, executable) &&
	    !tool_add(t, executable, trusted, why, depth + 1))
		return false;
	if (!home || home[0] != '/')
		return true;
	for (size_t i = 0; i < ELEMENTS(names); i++) {
		CLEANUP_FREE char *python = path_join(home, names[i]);

		if (plan_is_program(t->c, python))
			return tool_add(t, python, trusted, why, depth + 1);
	}
	plan_problem(t->c, t->origin,
		     "%s names %s, where no Python is any more: make the environment again (python3 -m venv)",
		     why, home);
	return false;
}

/* The directory `dir` holds the program, or a link to it: is it the bin directory of a Python environment? */
static bool venv_add(struct tool *t, const char *dir, bool trusted, int depth)
{
	struct plan_ctx *c = t->c;
	const struct plan_fs *fs = &c->w->fs;
	CLEANUP_FREE char *root = path_dirname(dir), *cfg = path_join(root, "pyvenv.cfg"), *text = NULL;
	CLEANUP_FREE char *reason = xasprintf("toolchain: Python environment %s", root);
	CLEANUP_WHERE struct plan_where w = {0};

	plan_resolve(c, cfg, &w);
	if (w.error || !S_ISREG(w.st.st_mode))
		return true;
	text = fs->head(fs->data, w.path, HEAD_BYTES);
	if (!text)
		return true;
	if (!plan_visible(c, root) && trusted && plan_guard_prefix(c, root))
		plan_grant_add(c, root, PLAN_READ, true, SOURCE_IMPLIED, reason);
	return venv_base(t, cfg, text, trusted && !plan_writable(c, w.path), depth);
}

/* --- #! lines --- */

/* The words of a #! line: the interpreter and, as the kernel gives it, one argument. */
static void shebang_split(const char *text, char **ret_interpreter, char **ret_argument)
{
	size_t len = strcspn(text, "\n"), n;
	CLEANUP_FREE char *line = xstrndup(text, len < 256 ? len : 256), *copy = NULL;
	char *s = str_trim(line + 2);

	n = strcspn(s, " \t");
	*ret_interpreter = xstrndup(s, n);
	copy = xstrdup(s + n);
	s = str_trim(copy);
	n = strlen(s);
	if (n && s[n - 1] == '\r')
		s[n - 1] = 0;
	*ret_argument = *s ? xstrdup(s) : NULL;
}

/* The program that `env ARGUMENT` runs, or NULL: options and assignments are skipped (env(1)). Owned by
 * caller. */
static char *env_program(const char *argument)
{
	CLEANUP_FREE char *copy = xstrdup(argument);
	char *save = NULL, *word = strtok_r(copy, " \t", &save);

	while (word) {
		bool takes_value = strcmp(word, "-u") == 0 || strcmp(word, "-C") == 0;

		if (word[0] != '-' && !strchr(word, '='))
			return xstrdup(word);
		if (str_starts(word, "-S") && word[2])
			return xstrdup(word + 2);
		word = strtok_r(NULL, " \t", &save);
		if (takes_value)
			word = strtok_r(NULL, " \t", &save);
	}
	return NULL;
}

static void not_found(struct tool *t, const char *name, const char *what)
{
	struct plan_ctx *c = t->c;
	CLEANUP_FREE char *dirs = strv_join(&c->search, ":"), *elsewhere = plan_lookup_elsewhere(c, name);

	if (elsewhere && strcmp(elsewhere, "/snap/bin") == 0)
		plan_problem(c, t->origin,
			     "%s: \"%s\" is not in the app's PATH (%s); the snap in /snap/bin cannot run in "
			     "a jail: install it another way",
			     what, name, dirs);
	else if (elsewhere)
		plan_problem(
			c, t->origin,
			"%s: \"%s\" is not in the app's PATH (%s), but it is in %s: add Path=%s to [App]",
			what, name, dirs, elsewhere, elsewhere);
	else
		plan_problem(c, t->origin,
			     "%s: \"%s\" is not in the app's PATH (%s) nor in any usual place below ~ or "
			     "/opt: install it, or name its directory with Path=",
			     what, name, dirs);
}

static bool shebang_add(struct tool *t, const char *script, const char *text, bool trusted, int depth)
{
	CLEANUP_FREE char *interpreter = NULL, *argument = NULL, *name = NULL, *found = NULL;
	CLEANUP_FREE char *why = xasprintf("the #! line of %s", script);

	shebang_split(text, &interpreter, &argument);
	if (!*interpreter)
		return true; /* the kernel refuses it: ENOEXEC, and the shell that started it runs it itself
			      */
	if (interpreter[0] != '/') {
		plan_problem(t->c, t->origin, "%s names \"%s\": it must be a full path", why, interpreter);
		return false;
	}
	if (!plan_is_program(t->c, interpreter)) {
		CLEANUP_FREE char *hint = plan_lookup_elsewhere(t->c, path_basename(interpreter));

		plan_problem(t->c, t->origin, "%s names %s, which %s%s%s", why, interpreter,
			     plan_exists(t->c, interpreter, NULL) ? "is not executable" : "does not exist",
			     hint ? "; there is one in " : "", hint ? hint : "");
		return false;
	}
	if (!tool_add(t, interpreter, trusted, why, depth + 1))
		return false;
	if (strcmp(path_basename(interpreter), "env") != 0 || !argument)
		return true;
	name = env_program(argument);
	if (!name)
		return true;
	if (strchr(name, '/')) {
		found = path_join(t->c->u->working_directory ? t->c->u->working_directory : "/", name);
		return tool_add(t, found, trusted, why, depth + 1);
	}
	found = plan_lookup(t->c, name);
	if (!found) {
		not_found(t, name, why);
		return false;
	}
	/* Even a script of the app only chooses among programs of directories that the unit names. */
	return tool_add(t, found, true, why, depth + 1);
}

/* --- shims --- */

struct shim_manager {
	const char *name, *dir, *marker; /* the shim is in ~/DIR/shims when ~/DIR/MARKER exists */
};

/* false: a shim that cannot work, with a problem. */
static bool shim_add(struct tool *t, const char *path, const char *why)
{
	static const struct shim_manager granted[] = {{"pyenv", ".pyenv", "libexec/pyenv"},
						      {"rbenv", ".rbenv", "libexec/rbenv"},
						      {"nodenv", ".nodenv", "libexec/nodenv"},
						      {"volta", ".volta", "bin/volta-shim"}};
	struct plan_ctx *c = t->c;
	CLEANUP_FREE char *dir = path_dirname(path), *root = path_dirname(dir);
	CLEANUP_FREE char *elsewhere = NULL, *reason = NULL;

	for (size_t i = 0; i < ELEMENTS(granted); i++) {
		bool here = str_ends(root, granted[i].dir) && has(c, root, granted[i].marker);

		if (!here || !plan_guard_prefix(c, root) ||
		    (strcmp(path_basename(dir), "shims") != 0 && strcmp(granted[i].name, "volta") != 0))
			continue;
		reason = xasprintf("toolchain: %s is a shim of %s", why, granted[i].name);
		plan_grant_add(c, root, PLAN_READ, true, SOURCE_IMPLIED, reason);
		return true;
	}
	if (strcmp(path_basename(dir), "shims") != 0 ||
	    !(strcmp(path_basename(root), "mise") == 0 || strcmp(path_basename(root), ".asdf") == 0))
		return true;
	elsewhere = plan_lookup_elsewhere(c, path_basename(path));
	plan_problem(c, t->origin,
		     "%s is a shim of %s, which needs your configuration to choose a version: add Path=%s to "
		     "[App] and name the program itself",
		     path, path_basename(root),
		     elsewhere ? elsewhere : "the directory of the version you want");
	return false;
}

/* --- the walk --- */

static bool snap_refused(struct tool *t, const char *path, const struct plan_where *w)
{
	if (strcmp(w->path, "/usr/bin/snap") != 0 || strcmp(path_basename(path), "snap") == 0)
		return false;
	plan_problem(t->c, t->origin,
		     "%s is a snap, and a snap cannot run in a jail: install the program another way", path);
	return true;
}

/* Trust ends at the first link that the app can write. */
static bool still_trusted(const struct plan_ctx *c, const struct plan_where *w, bool trusted)
{
	for (size_t i = 0; i < w->n_links; i++)
		if (plan_writable(c, w->links[i].path))
			return false;
	return trusted;
}

static bool tool_add(struct tool *t, const char *path, bool trusted, const char *why, int depth)
{
	struct plan_ctx *c = t->c;
	const struct plan_fs *fs = &c->w->fs;
	CLEANUP_FREE char *dir = path_dirname(path), *text = NULL;
	CLEANUP_WHERE struct plan_where w = {0}, d = {0};
	bool in_env;

	plan_resolve(c, path, &w);
	plan_resolve(c, dir, &d);
	if (w.error || depth > TOOL_DEPTH) {
		plan_problem(c, t->origin, "%s leads to %s: %s", why, path,
			     w.error ? strerror(w.error) : "too many interpreters of interpreters");
		return false;
	}
	if (snap_refused(t, path, &w) || !shim_add(t, path, why))
		return false;
	in_env = still_trusted(c, &d,
			       trusted); /* the environment is where the name is, the rest where it leads */
	trusted = still_trusted(c, &w, trusted);
	if (!tool_grant(t, &w, trusted, why))
		return false;
	plan_links_add(c, &w, NULL);
	for (size_t i = 0; i < w.n_links; i++)
		tool_grant_hop(t, w.links[i].path, why);
	if (!venv_add(t, d.path, in_env, depth))
		return false;
	text = fs->head(fs->data, w.path, HEAD_BYTES);
	if (!text || !str_starts(text, "#!"))
		return true;
	return shebang_add(t, w.path, text, trusted && !plan_writable(c, w.path), depth);
}

/* Exec=/usr/bin/env NAME: what env(1) finds is looked up along the app's PATH as well. */
static bool env_exec(struct tool *t, const char *program)
{
	const struct strv *argv = &t->c->plan->argv;
	CLEANUP_FREE char *name = NULL, *found = NULL;
	struct strv rest = {.v = argv->v + 1, .n = argv->n - 1};
	CLEANUP_FREE char *words = NULL;

	if (strcmp(path_basename(program), "env") != 0 || argv->n < 2)
		return true;
	words = strv_join(&rest, " ");
	name = env_program(words);
	if (!name || strchr(name, '/'))
		return !name || tool_add(t, name, true, "Exec=env", 1);
	found = plan_lookup(t->c, name);
	if (!found) {
		not_found(t, name, "Exec=env");
		return false;
	}
	return tool_add(t, found, true, "Exec=env", 1);
}

/* The path of the program as it will be executed, symlinks kept: a venv and a multi-call binary go by their
 * name. */
static char *find_program(struct tool *t, const char *name)
{
	struct plan_ctx *c = t->c;
	CLEANUP_FREE char *what = xasprintf("Exec=%s", name), *path = NULL;

	if (!strchr(name, '/')) {
		path = plan_lookup(c, name);
		if (!path)
			not_found(t, name, what);
		return TAKE_PTR(path);
	}
	path = path_join(c->u->working_directory ? c->u->working_directory : "/", name);
	if (plan_is_program(c, path))
		return TAKE_PTR(path);
	if (plan_exists(c, path, NULL))
		plan_problem(c, t->origin,
			     "%s is not an executable file: chmod +x %s, or name its interpreter first", what,
			     path);
	else
		plan_problem(c, t->origin, "%s: %s does not exist", what, path);
	return NULL;
}

void plan_toolchain(struct plan_ctx *c)
{
	struct tool t = {.c = c, .origin = c->u->exec_origin};
	CLEANUP_FREE char *why = NULL, *program = NULL;

	if (c->u->shell) {
		strv_add(&c->plan->argv, "/bin/sh");
		strv_add(&c->plan->argv, "-c");
		strv_add(&c->plan->argv, c->u->shell);
		program = xstrdup("/bin/sh");
		why = xstrdup("Shell=");
	} else if (c->u->exec.n) {
		strv_copy(&c->plan->argv, &c->u->exec);
		program = find_program(&t, c->u->exec.v[0]);
		why = xasprintf("Exec=%s", c->u->exec.v[0]);
	} else {
		plan_problem(c, t.origin, "neither Exec= nor Shell= is there");
	}
	if (!program || !tool_add(&t, program, true, why, 0) || !env_exec(&t, program))
		return;
	/* Python environments among the Path= directories: Shell= and scripts find their python there. */
	for (size_t i = 0; i < c->u->path.n && i < c->search.n; i++) {
		CLEANUP_WHERE struct plan_where d = {0};

		plan_resolve(c, c->search.v[i], &d);
		if (!d.error && !venv_add(&t, d.path, !plan_writable(c, d.path), 0))
			return;
	}
	c->plan->program = TAKE_PTR(program);
}
