/*
 * Finding programs: along the app's PATH, in known install layouts, and, when it is in neither, where it
 * would have been found, so that the error can name the line that fixes it.
 *
 * A layout is a path below a home directory in which '*' stands for one component (a version, a tool). The
 * directory it names is one self-contained installation: nothing but program code, and complete, so that it
 * may be granted as a whole.
 */
#include "sandbox/plan_internal.h"
#include "base/file.h"
#include <errno.h>
#include <string.h>

/* Relative to a home directory; the longest match wins. Sources: the documentation of each tool. */
static const char *const layouts[] = {
	".nvm/versions/node/*",
	".nvm/versions/io.js/*",
	".local/share/fnm/node-versions/*",
	".fnm/node-versions/*",
	".nodenv/versions/*",
	".volta/tools/image/*/*",
	".local/share/pnpm/nodejs/*",
	".local/share/nvm/*", /* nvm for fish */
	".npm-global",
	".npm-packages",
	".bun/install/global",
	".pyenv/versions/*",
	".local/share/uv/python/*",
	".local/share/uv/tools/*",
	".local/share/pipx/venvs/*",
	".local/pipx/venvs/*",
	".local/share/hatch/pythons/*",
	".rye/py/*",
	".virtualenvs/*",
	"miniconda3",
	"miniconda3/envs/*",
	"anaconda3",
	"anaconda3/envs/*",
	"miniforge3",
	"miniforge3/envs/*",
	"mambaforge",
	"mambaforge/envs/*",
	"micromamba/envs/*",
	".local/share/mamba/envs/*",
	".conda/envs/*",
	".pixi/envs/*",
	".asdf/installs/*/*",
	".local/share/mise/installs/*/*",
	".local/share/rtx/installs/*/*",
	".rbenv/versions/*",
	".rvm/rubies/*",
	".goenv/versions/*",
	".jenv/versions/*",
	".sdkman/candidates/*/*",
	".jdks/*",
	".rustup/toolchains/*",
	".ghcup/ghc/*",
	".opam/*",
	".julia/juliaup/*",
	".dotnet",
	".linuxbrew",
	".local/opt/*",
	"opt/*",
};
static const char *const system_layouts[] = {"/home/linuxbrew/.linuxbrew", "/usr/local/n/versions/node/*"};

/* Where people's programs are, below a home directory. Only the file itself is granted from the flat ones. */
static const char *const places[] = {
	".local/bin",
	"bin",
	".nvm/versions/node/*/bin",
	".local/share/fnm/node-versions/*/installation/bin",
	".fnm/node-versions/*/installation/bin",
	".nodenv/versions/*/bin",
	".volta/tools/image/node/*/bin",
	".pyenv/versions/*/bin",
	".local/share/uv/python/*/bin",
	".local/share/uv/tools/*/bin",
	".local/share/pipx/venvs/*/bin",
	".local/share/mise/installs/*/*/bin",
	".asdf/installs/*/*/bin",
	".rbenv/versions/*/bin",
	".cargo/bin",
	"go/bin",
	".bun/bin",
	".deno/bin",
	".npm-global/bin",
	".local/share/pnpm",
	"miniconda3/bin",
	"anaconda3/bin",
	"miniforge3/bin",
	".sdkman/candidates/*/current/bin",
	".linuxbrew/bin",
};
static const char *const system_places[] = {"/usr/local/bin",
					    "/usr/local/sbin",
					    "/usr/sbin",
					    "/sbin",
					    "/usr/games",
					    "/opt/*/bin",
					    "/usr/lib/jvm/*/bin",
					    "/home/linuxbrew/.linuxbrew/bin",
					    "/run/current-system/sw/bin",
					    "/snap/bin"};
enum { STAR_MAX = 64 }; /* names tried for one '*' */

bool plan_is_program(struct plan_ctx *c, const char *path)
{
	CLEANUP_WHERE struct plan_where w = {0};

	plan_resolve(c, path, &w);
	return !w.error && S_ISREG(w.st.st_mode) && (w.st.st_mode & 0111);
}

char *plan_lookup(struct plan_ctx *c, const char *name)
{
	for (size_t i = 0; i < c->search.n; i++) {
		CLEANUP_FREE char *path = path_join(c->search.v[i], name);

		if (plan_is_program(c, path))
			return TAKE_PTR(path);
	}
	return NULL;
}

/* Length of the part of `path` that matches `pattern` component by component, or 0. */
static size_t match_layout(const char *path, const char *pattern)
{
	const char *s = path;

	for (;;) {
		size_t len = strcspn(pattern, "/"), have = strcspn(s, "/");

		if (!have ||
		    !((len == 1 && *pattern == '*') || (len == have && strncmp(pattern, s, len) == 0)))
			return 0;
		s += have;
		if (!pattern[len])
			return *s == '/' ? (size_t)(s - path) : 0;
		if (*s != '/')
			return 0;
		pattern += len + 1;
		s++;
	}
}

char *plan_known_prefix(const struct plan_ctx *c, const char *path)
{
	size_t best = 0;

	for (size_t h = 0; h < c->homes.n; h++) {
		size_t home = strlen(c->homes.v[h]);

		if (!path_is_below(path, c->homes.v[h]) || !path[home])
			continue;
		for (size_t i = 0; i < ELEMENTS(layouts); i++) {
			size_t len = match_layout(path + home + 1, layouts[i]);

			if (len && home + 1 + len > best)
				best = home + 1 + len;
		}
	}
	for (size_t i = 0; i < ELEMENTS(system_layouts); i++) {
		size_t len = match_layout(path + 1, system_layouts[i] + 1);

		if (len && len + 1 > best)
			best = len + 1;
	}
	return best ? xstrndup(path, best) : NULL;
}

/* --- where it would have been found --- */

struct hunt {
	struct plan_ctx *c;
	const char *name;
	char *found; /* directory */
};

static int newest_first(const void *a, const void *b)
{
	return strverscmp(*(char *const *)b, *(char *const *)a);
}

/* Expands the first '*' of `pattern` below `dir`, recursively. */
static void hunt_in(struct hunt *h, const char *dir, const char *pattern)
{
	const char *star = strchr(pattern, '*');
	const struct plan_fs *fs = &h->c->w->fs;
	CLEANUP_FREE char *before = NULL, *full = NULL;
	CLEANUP_STRV struct strv names = {0};

	if (!star) {
		CLEANUP_FREE char *bin = path_join(dir, pattern), *path = path_join(bin, h->name);

		if (plan_is_program(h->c, path))
			h->found = TAKE_PTR(bin);
		return;
	}
	before = xstrndup(pattern, (size_t)(star - pattern));
	full = xasprintf("%s/%s", dir, before);
	if (fs->list(fs->data, full, &names) < 0 || !names.n)
		return;
	qsort(names.v, names.n, sizeof *names.v, newest_first);
	for (size_t i = 0; i < names.n && i < STAR_MAX && !h->found; i++) {
		CLEANUP_FREE char *sub = path_join(full, names.v[i]);

		hunt_in(h, sub, star[1] ? star + 2 : "");
	}
}

char *plan_lookup_elsewhere(struct plan_ctx *c, const char *name)
{
	struct hunt h = {.c = c, .name = name};
	static const char *const beside[] = {".venv/bin", "venv/bin", "node_modules/.bin", "bin"};

	if (c->u->working_directory)
		for (size_t i = 0; i < ELEMENTS(beside) && !h.found; i++)
			hunt_in(&h, c->u->working_directory, beside[i]);
	for (size_t k = 0; k < c->homes.n; k++)
		for (size_t i = 0; i < ELEMENTS(places) && !h.found; i++)
			hunt_in(&h, c->homes.v[k], places[i]);
	for (size_t i = 0; i < ELEMENTS(system_places) && !h.found; i++)
		hunt_in(&h, "/", system_places[i] + 1);
	return h.found;
}
