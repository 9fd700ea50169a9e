/* Keys and notes to a unit, see import.h. */
#include "base/file.h"
#include "unit/import_internal.h"
#include <errno.h>
#include <string.h>

static const char *const kinds[] = {"manifest", "systemd", "supervisord", "srt", NULL};

int unit_import_kind(const char *name, enum import_kind *ret)
{
	for (int i = 0; i < IMPORT_KINDS; i++)
		if (strcmp(kinds[i], name) == 0) {
			*ret = (enum import_kind)i;
			return 0;
		}
	return -1;
}

/* A header at the start of a line. */
static bool has_header(const char *text, size_t len, const char *header)
{
	size_t n = strlen(header);

	for (const char *s = text, *end = text + len; s && s < end; s++) {
		s += strspn(s, " \t\r\n");
		if ((size_t)(end - s) >= n && memcmp(s, header, n) == 0)
			return true;
		s = memchr(s, '\n', (size_t)(end - s));
		if (!s)
			return false;
	}
	return false;
}

int unit_import_recognise(const char *text, size_t len, enum import_kind *ret, struct err **e)
{
	CLEANUP_FREE char *copy = xstrndup(text, len);
	CLEANUP_JS struct js *j = NULL;
	const char *s = copy + (str_starts(copy, "\xef\xbb\xbf") ? 3 : 0);

	len = strlen(s); /* a NUL byte is each converter's to refuse */
	if (s[strspn(s, " \t\r\n")] == '{') {
		j = js_parse(s, len, e);
		if (!j)
			return -1;
		if (js_get(j, "runtime") || js_get(j, "id"))
			*ret = IMPORT_MANIFEST;
		else if (js_get(j, "network") || js_get(j, "filesystem"))
			*ret = IMPORT_SRT;
		else
			return err_set(
				e, EINVAL,
				"it is JSON, but neither a manifest (\"id\", \"runtime\") nor srt settings "
				"(\"network\", \"filesystem\"); --from says what it is");
		return 0;
	}
	if (has_header(s, len, "[program:"))
		*ret = IMPORT_SUPERVISORD;
	else if (has_header(s, len, "[Service]"))
		*ret = IMPORT_SYSTEMD;
	else
		return err_set(
			e, EINVAL,
			"what it is cannot be seen: no [Service], no [program:NAME], no JSON object; --from "
			"says what it is");
	return 0;
}

/* --- collecting --- */

void import_fail(struct importing *m, const char *fmt, ...)
{
	CLEANUP_FREE char *text = NULL, *safe = NULL;
	va_list ap;

	if (m->failed)
		return;
	va_start(ap, fmt);
	text = xvasprintf(fmt, ap);
	va_end(ap);
	safe = str_escape(text, strlen(text));
	m->failed = true;
	(void)err_set(m->e, EINVAL, "%s", safe);
}

bool import_text_ok(struct importing *m, const char *what, const char *text)
{
	CLEANUP_FREE char *safe = str_escape(text, strlen(text));

	if (strlen(text) > IMPORT_TEXT_MAX)
		import_fail(m, "%s: a value of %zu bytes; the limit is %d", what, strlen(text),
			    IMPORT_TEXT_MAX);
	else if (strcmp(safe, text) != 0)
		import_fail(m, "%s: control characters, or broken UTF-8: %.80s", what, safe);
	return !m->failed;
}

static void add(struct importing *m, const char *section, const char *key, const char *text, bool vital)
{
	if (m->failed || !import_text_ok(m, key ? key : "a comment", text))
		return;
	if (m->n >= IMPORT_LINES_MAX) {
		import_fail(m, "it would be a unit of more than %d lines", IMPORT_LINES_MAX);
		return;
	}
	VEC_GROW(m->v, m->n, m->cap);
	m->v[m->n++] =
		(struct import_line){.section = section, .key = key, .text = xstrdup(text), .vital = vital};
	m->notes += !key && section;
}

static void set(struct importing *m, const char *section, const char *key, const char *value, bool vital)
{
	CLEANUP_FREE char *copy = xstrdup(value);

	/* The reader would trim them: not the same value any more. */
	if (!m->failed && strcmp(str_trim(copy), value) != 0)
		import_fail(m, "%s=: a value with blanks at its ends cannot be written into a unit", key);
	else if (!m->failed && !*value)
		import_fail(m, "%s= would be empty", key);
	else
		add(m, section, key, value, vital);
}

void import_set(struct importing *m, const char *section, const char *key, const char *value)
{
	set(m, section, key, value, false);
}

void import_vital(struct importing *m, const char *section, const char *key, const char *value)
{
	set(m, section, key, value, true);
}

void import_note(struct importing *m, const char *section, const char *fmt, ...)
{
	CLEANUP_FREE char *text = NULL, *safe = NULL;
	va_list ap;

	va_start(ap, fmt);
	text = xvasprintf(fmt, ap);
	va_end(ap);
	if (strlen(text) > 400)
		memcpy(text + 397, "...", sizeof "...");
	safe = str_escape(text, strlen(text));
	/* cutting may have halved a character, and a comment may say what a value may not */
	add(m, section, NULL, safe, false);
}

void import_name(struct importing *m, const char *name)
{
	CLEANUP_FREE char *as_instance = xasprintf("%sx", name);
	bool template = str_ends(name, "@");

	if (m->r->name)
		name = m->r->name;
	if (!m->failed && !unit_name_valid(template && !m->r->name ? as_instance : name))
		import_fail(
			m,
			"\"%s\" is no name of an app (a-z, 0-9, _ and -, at most 63 characters, or that with "
			"@INSTANCE); give another one: --name NAME",
			name);
	else if (!m->failed)
		m->name = xstrdup(name);
}

bool import_is_number(const char *s)
{
	return *s && strlen(s) < 12 && s[strspn(s, "0123456789")] == 0;
}

void import_bad_word(struct importing *m, const char *what, const char *word, const char *const *words)
{
	const char *near = str_nearest(word, words);
	CLEANUP_STRBUF struct strbuf all = STRBUF_INIT;

	for (size_t i = 0; words[i]; i++)
		strbuf_addf(&all, "%s%s", i ? ", " : "", words[i]);
	if (near)
		import_fail(m, "%s: \"%.60s\" is none of %s; did you mean %s?", what, word, all.p, near);
	else
		import_fail(m, "%s: \"%.60s\" is none of %s", what, word, all.p);
}

/* --- texts --- */

char *import_percent(const char *s)
{
	struct strbuf b = STRBUF_INIT;

	strbuf_adds(&b, "");
	for (; *s; s++)
		strbuf_adds(&b, *s == '%' ? "%%" : (char[]){*s, 0});
	return strbuf_take(&b);
}

char *import_quote(const char *word)
{
	static const char plain[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:,+@-=%";
	struct strbuf b = STRBUF_INIT;

	if (*word && word[strspn(word, plain)] == 0)
		return xstrdup(word);
	strbuf_addc(&b, '\'');
	for (; *word; word++)
		strbuf_adds(&b, *word == '\'' ? "'\\''" : (char[]){*word, 0});
	strbuf_addc(&b, '\'');
	return strbuf_take(&b);
}

char *import_command(char *const *words)
{
	CLEANUP_STRV struct strv quoted = {0};

	for (size_t i = 0; words[i]; i++)
		strv_take(&quoted, import_quote(words[i]));
	return quoted.n ? strv_join(&quoted, " ") : xstrdup("");
}

char *import_path(struct importing *m, const char *what, const char *path, const char *dir)
{
	CLEANUP_FREE char *safe = NULL;

	if (m->failed || !import_text_ok(m, what, path))
		return NULL;
	if (!*path || strstr(path, "$PORT") || strstr(path, "${PORT}") || path[0] == '-' ||
	    path[strlen(path) - 1] == '\\') {
		import_fail(m, "%s: the path \"%.80s\" cannot be written into a unit", what, path);
		return NULL;
	}
	safe = import_percent(path);
	if (str_eq(safe, "~") || str_starts(safe, "~/") || str_starts(safe, "%h"))
		return TAKE_PTR(safe);
	if (safe[0] != '/' && (!dir || dir[0] != '/')) {
		import_fail(m,
			    "%s: the path \"%.80s\" is relative, and to what is not known: --directory DIR",
			    what, path);
		return NULL;
	}
	if (safe[0] != '/') {
		CLEANUP_FREE char *base = import_percent(dir);

		return path_join(base, safe);
	}
	return path_join("/", safe);
}

/* The directory of the program or script, when the app may own it. */
static char *own_directory(char *const *words)
{
	static const char *const system[] = {"/usr", "/bin", "/sbin", "/lib", "/lib64",
					     "/etc", "/dev", "/proc", "/sys"};

	for (size_t i = 0; words && words[i]; i++) {
		CLEANUP_FREE char *path = words[i][0] == '/' ? path_join("/", words[i]) : NULL, *dir = NULL;
		bool theirs = !path;

		for (size_t k = 0; !theirs && k < ELEMENTS(system); k++)
			theirs = path_is_below(path, system[k]);
		dir = theirs ? NULL : path_dirname(path);
		/* "/app.py" has no directory of its own, and one below / may be anything: /home, /srv */
		if (dir && strchr(dir + 1, '/'))
			return TAKE_PTR(dir);
	}
	return NULL;
}

void import_directory(struct importing *m, const char *said, char *const *words)
{
	CLEANUP_FREE char *found = NULL, *dir = NULL;

	if (m->failed)
		return;
	if (!m->r->directory && !said) {
		found = own_directory(words);
		if (!found) {
			import_fail(m, "it names no working directory, and an app needs one of its own: "
				       "--directory DIR");
			return;
		}
		import_note(m, "App", "no working directory is named: the one of the program was taken");
	}
	dir = m->r->directory || found ? import_percent(m->r->directory ? m->r->directory : found)
				       : xstrdup(said);
	import_vital(m, "App", "WorkingDirectory", dir);
}

/* --- rendering --- */

struct rendering {
	struct strbuf b;
	unsigned line;
	unsigned *lines; /* of each entry */
};

static void out(struct rendering *o, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void out(struct rendering *o, const char *fmt, ...)
{
	CLEANUP_FREE char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	text = xvasprintf(fmt, ap);
	va_end(ap);
	strbuf_addf(&o->b, "%s\n", text);
	o->line++;
}

/* Does this version act on it? */
static bool acts_on(const struct import_line *l)
{
	const struct unit_key *k = unit_key_find(&unit_table, l->section, l->key);

	return !k || (k->in_force &&
		      (!k->words || unit_enum_index(k, l->text) < 0 || unit_enum_in_force(k, l->text)));
}

static void render_section(const struct importing *m, struct rendering *o, const char *section)
{
	bool any = false;

	for (size_t i = 0; i < m->n; i++) {
		const struct import_line *l = &m->v[i];

		if (!l->section || strcmp(l->section, section) != 0)
			continue;
		if (!any) {
			out(o, "%s", "");
			out(o, "[%s]", section);
		}
		any = true;
		if (l->key && !acts_on(l)) {
			const struct unit_key *k = unit_key_find(&unit_table, section, l->key);

			out(o, "# not in force yet: this version reads %s=%s and does not act on it%s",
			    l->key, k->words ? l->text : "",
			    k->flags & KEY_BLOCKS ? "; the app is not started" : "");
		}
		if (l->key)
			out(o, "%s=%s", l->key, l->text);
		else
			out(o, "# %s", l->text);
		o->lines[i] = o->line;
	}
}

static void render(const struct importing *m, struct rendering *o)
{
	size_t n;
	const struct unit_key *k = unit_keys(&n);

	o->lines = xcalloc(m->n + 1, sizeof *o->lines);
	out(o,
	    "# %s.app: written by sbxsv import from %s. Comments below are what could not be carried over.",
	    m->name, m->r->shown);
	out(o, "# What it amounts to: sbxsv cat %s --effective", m->name);
	for (size_t i = 0; i < m->n; i++)
		if (!m->v[i].section)
			out(o, "# %s", m->v[i].text);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || strcmp(k[i].section, k[i - 1].section) != 0)
			render_section(m, o, k[i].section);
}

static void rendering_finish(struct rendering *o)
{
	strbuf_finish(&o->b);
	free(o->lines);
}

/* A line that the reader refuses becomes a comment. False when that is not possible. */
static bool repair(struct importing *m, const struct rendering *o, const struct unit_problem *p)
{
	for (size_t i = 0; p->line && i < m->n; i++) {
		struct import_line *l = &m->v[i];
		char *note;

		if (o->lines[i] != p->line || !l->key || l->vital)
			continue;
		note = xasprintf("%s=%.300s is not carried over: %.600s", l->key, l->text, p->text);
		free(l->text);
		l->text = str_escape(note, strlen(note));
		free(note);
		l->key = NULL;
		m->notes++;
		return true;
	}
	return false;
}

/* Nothing of this kind may ever come out, however the converters change. */
static bool is_harmless(const struct unit *u)
{
	return u->enforce != UNIT_ENFORCE_OFF && u->backend != UNIT_BACKEND_NONE && !u->hooks.n &&
	       !u->hooks_unsafe && !u->prepare_exec.n && !u->secret.n;
}

/* Reads what was rendered; repeats while lines are refused. Each round makes a comment of at least one. */
static int settle(struct importing *m, struct import_result *ret)
{
	CLEANUP_FREE char *shown = xasprintf("%s.app", m->name),
			  *name = xasprintf("%s%s", m->name, str_ends(m->name, "@") ? "instance" : "");

	for (;;) {
		CLEANUP(rendering_finish) struct rendering o = {.b = STRBUF_INIT};
		CLEANUP(unit_problems_clear) struct unit_problems p = {0};
		CLEANUP_UNIT struct unit *u = NULL;
		bool changed = false;

		render(m, &o);
		u = unit_parse_buffer(m->r->dirs, name, shown, o.b.p, o.b.len, &p);
		if (u && !is_harmless(u)) {
			import_fail(
				m, "what came out would run without a jail or outside of it: a bug in sbxsv");
			return -1;
		}
		if (u) {
			*ret = (struct import_result){
				.name = TAKE_PTR(m->name), .text = strbuf_take(&o.b), .notes = m->notes};
			return 0;
		}
		for (size_t i = 0; i < p.n; i++)
			changed |= repair(m, &o, &p.v[i]);
		if (!changed) {
			import_fail(m, "%s", p.n ? p.v[0].text : "it makes no unit");
			return -1;
		}
	}
}

int unit_import(const struct import_request *r, enum import_kind kind, struct import_result *ret,
		struct err **e)
{
	static void (*const converters[IMPORT_KINDS])(struct importing *) = {
		[IMPORT_MANIFEST] = import_manifest,
		[IMPORT_SYSTEMD] = import_systemd,
		[IMPORT_SUPERVISORD] = import_supervisord,
		[IMPORT_SRT] = import_srt,
	};
	struct importing m = {.r = r, .e = e};
	CLEANUP_FREE char *shown = str_escape(r->shown, strlen(r->shown));
	struct import_request safe = *r;
	int result = -1;

	safe.shown = shown;
	m.r = &safe;
	if (r->len > IMPORT_MAX_BYTES || memchr(r->text, 0, r->len))
		import_fail(&m, "it contains a NUL byte, or is larger than %zu bytes", IMPORT_MAX_BYTES);
	else
		converters[kind](&m);
	if (!m.failed && !m.name)
		import_fail(&m, "it has no name for the app: --name NAME");
	if (!m.failed)
		result = settle(&m, ret);
	for (size_t i = 0; i < m.n; i++)
		free(m.v[i].text);
	free(m.v);
	free(m.name);
	return result;
}

void unit_import_finish(struct import_result *r)
{
	free(r->name);
	free(r->text);
}
