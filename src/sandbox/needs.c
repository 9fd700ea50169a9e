#include "sandbox/needs.h"
#include "base/file.h"
#include "base/parse.h"
#include "sandbox/plan_internal.h"
#include <string.h>

/* Packages of Debian and Ubuntu by program, where the names differ, and those that are known to be the same. */
static const struct {
	const char *program, *package;
} packages[] = {
	{"node", "nodejs"},
	{"python", "python3"},
	{"pip", "python3-pip"},
	{"pip3", "python3-pip"},
	{"rg", "ripgrep"},
	{"fdfind", "fd-find"},
	{"fd", "fd-find"},
	{"ffprobe", "ffmpeg"},
	{"convert", "imagemagick"},
	{"magick", "imagemagick"},
	{"pdftotext", "poppler-utils"},
	{"pdftoppm", "poppler-utils"},
	{"tesseract", "tesseract-ocr"},
	{"exiftool", "libimage-exiftool-perl"},
	{"gs", "ghostscript"},
	{"dot", "graphviz"},
	{"soffice", "libreoffice"},
	{"psql", "postgresql-client"},
	{"pg_dump", "postgresql-client"},
	{"mysql", "default-mysql-client"},
	{"redis-cli", "redis-tools"},
	{"java", "default-jre-headless"},
	{"javac", "default-jdk-headless"},
	{"go", "golang-go"},
	{"php", "php-cli"},
	{"dig", "dnsutils"},
	{"nc", "netcat-openbsd"},
	{"ip", "iproute2"},
	{"ps", "procps"},
	{"xz", "xz-utils"},
	{"ssh", "openssh-client"},
	{"docker", "docker.io"},
	{"xvfb-run", "xvfb"},
	{"google-chrome", "chromium"},
};
static const char *const same[] = {
	"bash",     "cargo",    "chromium", "cmake", "curl",    "ffmpeg", "g++",          "gcc",
	"git",      "inkscape", "jq",       "less",  "make",    "mpv",    "nginx",        "npm",
	"ocrmypdf", "pandoc",   "perl",     "pipx",  "python3", "rsync",  "ruby",         "rustc",
	"socat",    "sox",      "sqlite3",  "tmux",  "unzip",   "wget",   "yt-dlp",       "zip",
	"zstd",     "nodejs",   "screen",   "tar",   "vim",     "xclip",  "redis-server", "libreoffice",
};

static const char *package_of(const char *program)
{
	for (size_t i = 0; i < ELEMENTS(packages); i++)
		if (strcmp(packages[i].program, program) == 0)
			return packages[i].package;
	for (size_t i = 0; i < ELEMENTS(same); i++)
		if (strcmp(same[i], program) == 0)
			return program;
	return NULL;
}

struct look {
	const struct unit *u;
	const struct plan *p;
	const struct plan_fs *fs;
	struct needs *ret;
};

/* --- programs --- */

static char *on_path(const struct look *l, const char *name)
{
	const char *path = plan_env_get(l->p->env.v, "PATH");

	if (strchr(name, '/'))
		return plan_program_at(l->p, l->fs, name);
	for (const char *s = path ? path : ""; *s; s += strspn(s, ":")) {
		CLEANUP_FREE char *dir = xstrndup(s, strcspn(s, ":")), *file = path_join(dir, name);
		CLEANUP_FREE char *found = plan_program_at(l->p, l->fs, file);

		if (found)
			return TAKE_PTR(file); /* as the app names it: a venv knows itself by that */
		s += strlen(dir);
	}
	return NULL;
}

static void add_once(struct strv *l, const char *s)
{
	if (s && !strv_has(l, s))
		strv_add(l, s);
}

static void lacks(struct needs *n, const struct unit_value *need, const char *text)
{
	strv_add(&n->missing, text);
	strv_add(&n->missing_at, need->origin);
}

static void lacks_program(const struct look *l, const struct unit_value *need, const char *key,
			  const char *name, bool optional)
{
	CLEANUP_FREE char *dir =
		strchr(name, '/') ? NULL : plan_program_elsewhere(l->u, l->p->user.home, l->fs, name);
	CLEANUP_FREE char *where = dir ? xasprintf("; it is in %s", dir) : xstrdup("");
	struct needs *n = l->ret;

	CLEANUP_FREE char *text = xasprintf("the program %s is not there for the app (%s %s=)%s", name,
					    need->origin, key, where);

	if (optional)
		strv_add(&n->optional, text);
	else
		lacks(n, need, text);
	if (optional)
		return;
	add_once(dir ? &n->paths : &n->packages, dir ? dir : package_of(path_basename(name)));
}

static void need_program(const struct look *l, const struct unit_value *need, const char *name, bool optional)
{
	CLEANUP_FREE char *found = on_path(l, name);

	if (!found)
		lacks_program(l, need, optional ? "OptionalBin" : "Bin", name, optional);
}

/* --- interpreters --- */

struct interpreter {
	const char *what, *names[3]; /* names: along PATH, the first that is there */
};
static const struct interpreter node = {"Node", {"node", "nodejs", NULL}},
				python = {"Python", {"python3", "python", NULL}};

/* The interpreter of a script's first line. With env(1) it is a name, which PATH decides. */
static char *of_script(const struct look *l, const char *program)
{
	CLEANUP_FREE char *head = l->fs->head(l->fs->data, program, 256), *word = NULL;
	const char *s;

	if (!head || !str_starts(head, "#!"))
		return NULL;
	head[strcspn(head, "\n")] = 0;
	s = head + 2 + strspn(head + 2, " \t");
	word = xstrndup(s, strcspn(s, " \t"));
	if (!str_eq(path_basename(word), "env"))
		return TAKE_PTR(word);
	s += strlen(word);
	s += strspn(s, " \t");
	return *s == '-' || !*s ? NULL : xstrndup(s, strcspn(s, " \t"));
}

/* "node", "nodejs", "python3.11": what names itself after one ("nodemon") has versions of its own. */
static bool is_one(const struct interpreter *i, const char *program)
{
	const char *name = path_basename(program);

	for (size_t k = 0; i->names[k]; k++)
		if (str_starts(name, i->names[k]) &&
		    !name[strlen(i->names[k]) + strspn(name + strlen(i->names[k]), "0123456789.")])
			return true;
	return false;
}

/* The one the app runs by, else the first along its PATH. */
static char *find_interpreter(const struct look *l, const struct interpreter *i)
{
	CLEANUP_FREE char *script = NULL;

	if (l->p->program && is_one(i, l->p->program))
		return xstrdup(l->p->argv.n && l->p->argv.v[0][0] == '/' ? l->p->argv.v[0] : l->p->program);
	script = l->p->program ? of_script(l, l->p->program) : NULL;
	if (script && is_one(i, script)) {
		char *found = on_path(l, script);

		if (found)
			return strchr(script, '/') ? (free(found), TAKE_PTR(script)) : found;
	}
	for (size_t k = 0; i->names[k]; k++) {
		char *found = on_path(l, i->names[k]);

		if (found)
			return found;
	}
	return NULL;
}

static void need_version(const struct look *l, const struct unit_value *need, const struct interpreter *i)
{
	struct needs *n = l->ret;
	const char *range = strchr(need->text, '=') + 1;
	char *program = find_interpreter(l, i);
	CLEANUP_FREE char *dir = NULL, *text = NULL;

	if (program && n->n_ask < NEEDS_ASK_MAX) {
		n->ask[n->n_ask++] =
			(struct needs_ask){.need = need, .range = range, .what = i->what, .program = program};
		return;
	}
	free(program);
	dir = plan_program_elsewhere(l->u, l->p->user.home, l->fs, i->names[0]);
	text = xasprintf("%s %s is needed, and the app has none (%s %s=)%s%s", i->what, range, need->origin,
			 i->what, dir ? "; there is one in " : "", dir ? dir : "");
	lacks(n, need, text);
	add_once(dir ? &n->paths : &n->packages, dir ? dir : package_of(i->names[0]));
}

char *needs_version_by_path(const char *program)
{
	CLEANUP_FREE char *dir = path_dirname(program), *prefix = path_dirname(dir);
	const char *name = path_basename(program), *version = path_basename(prefix);

	if (str_starts(name, "python") && strchr(name, '.'))
		return xstrdup(name + strlen("python"));
	if (!str_eq(path_basename(dir), "bin"))
		return NULL;
	version += *version == 'v';
	return *version && !version[strspn(version, "0123456789.")] && strchr(version, '.') ? xstrdup(version)
											    : NULL;
}

/* --- the rest --- */

static void need_variable(const struct look *l, const struct unit_value *need, const char *name)
{
	CLEANUP_FREE char *text = NULL;

	if (plan_env_get(l->p->env.v, name))
		return;
	text = xasprintf("the variable %s is not set (%s Env=): Environment=, EnvironmentFile= or "
			 "PassEnvironment= sets it",
			 name, need->origin);
	lacks(l->ret, need, text);
}

/* One of them is enough. */
static void need_system(const struct look *l)
{
	const struct unit_value *last = NULL;
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_FREE char *all = NULL, *text = NULL;

	for (size_t i = 0; i < l->u->needs.n; i++)
		if (str_starts(l->u->needs.v[i].text, "Os=")) {
			last = &l->u->needs.v[i];
			strv_add(&names, last->text + strlen("Os="));
		}
	if (!last || strv_has(&names, "linux"))
		return;
	all = strv_join(&names, " or ");
	text = xasprintf("the app runs on %s (%s Os=), and this is linux", all, last->origin);
	lacks(l->ret, last, text);
}

void needs_look(const struct unit *u, const struct plan *p, const struct plan_fs *fs, struct needs *ret)
{
	const struct look l = {.u = u, .p = p, .fs = fs, .ret = ret};

	*ret = (struct needs){0};
	for (size_t i = 0; i < u->needs.n; i++) {
		const struct unit_value *need = &u->needs.v[i];
		const char *value = strchr(need->text, '=') + 1;

		if (str_starts(need->text, "Bin="))
			need_program(&l, need, value, false);
		else if (str_starts(need->text, "OptionalBin="))
			need_program(&l, need, value, true);
		else if (str_starts(need->text, "Env="))
			need_variable(&l, need, value);
		else if (str_starts(need->text, "Node="))
			need_version(&l, need, &node);
		else if (str_starts(need->text, "Python="))
			need_version(&l, need, &python);
	}
	need_system(&l);
}

void needs_answer(struct needs *n, const struct needs_ask *a, const char *version, const char *why)
{
	int in = version ? unit_version_in(version, a->range) : 0;
	CLEANUP_FREE char *text = NULL;

	if (in == 1)
		return;
	if (version)
		text = xasprintf("%s %s is needed (%s %s=), and %s is version %s", a->what, a->range,
				 a->need->origin, a->what, a->program, version);
	else
		text = xasprintf("%s %s is needed (%s %s=), and %s does not say its version: %s", a->what,
				 a->range, a->need->origin, a->what, a->program, why);
	lacks(n, a->need, text);
}

char *needs_reason(const struct needs *n)
{
	return strv_join(&n->missing, "\n");
}

char *needs_hint(const struct needs *n, const char *then)
{
	CLEANUP_FREE char *packages_text = strv_join(&n->packages, " "), *dirs = strv_join(&n->paths, " ");
	struct strbuf b = STRBUF_INIT;

	if (n->packages.n)
		strbuf_addf(&b, "on Debian and Ubuntu: apt install %s", packages_text);
	if (n->paths.n)
		strbuf_addf(&b, "%sPath=%s in [App] lets the app have it", b.len ? "; " : "", dirs);
	if (then)
		strbuf_addf(&b, "%s%s", b.len ? "; then: " : "when it is there: ", then);
	return strbuf_take(&b);
}

void needs_finish(struct needs *n)
{
	strv_clear(&n->missing);
	strv_clear(&n->missing_at);
	strv_clear(&n->optional);
	strv_clear(&n->packages);
	strv_clear(&n->paths);
	for (size_t i = 0; i < n->n_ask; i++)
		free(n->ask[i].program);
	*n = (struct needs){0};
}

/* --- without a start --- */

static void report_version(struct needs *found, const struct needs_ask *a, struct strv *notes)
{
	CLEANUP_FREE char *version = needs_version_by_path(a->program);
	int in = version ? unit_version_in(version, a->range) : -1;

	if (in == 0)
		needs_answer(found, a, version, NULL);
	else if (in < 0)
		strv_addf(notes, "%s: %s=%s: %s is asked for its version when the app is started",
			  a->need->origin, a->what, a->range, a->program);
}

void needs_report(const struct unit *u, const struct plan *plan, struct strv *notes)
{
	const struct plan_fs fs = plan_fs_real();
	CLEANUP(needs_finish) struct needs found = {0};
	CLEANUP_FREE char *hint = NULL;

	needs_look(u, plan, &fs, &found);
	for (size_t i = 0; i < found.n_ask; i++)
		report_version(&found, &found.ask[i], notes);
	hint = needs_hint(&found, NULL);
	for (size_t i = 0; i < found.missing.n; i++) {
		const char *what = found.missing.v[i];

		if (str_starts(what, "the variable ") &&
		    u->pass_environment.n) /* it may be set for the supervisor alone */
			strv_add(notes, what);
		else
			strv_addf(notes, "%s: [Needs] %s, so the app does not start here%s%s",
				  found.missing_at.v[i], what, *hint ? "; " : "", hint);
	}
	strv_copy(notes, &found.optional);
}
