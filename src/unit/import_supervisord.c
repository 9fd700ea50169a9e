/* One [program:NAME] section of supervisord. Its commands are words without a shell, with %(NAME)s expansions. */
#include "unit/import_internal.h"
#include <string.h>

struct program {
	struct importing *m;
	const char *name;
};

/* %(program_name)s and the like, %% a percent sign. Owned by caller, '%' as in unit files. */
static char *expand(struct program *p, const char *s)
{
	struct strbuf b = STRBUF_INIT;

	strbuf_adds(&b, "");
	for (; *s && !p->m->failed; s++) {
		if (*s != '%') {
			strbuf_addc(&b, *s);
		} else if (s[1] == '%') {
			strbuf_adds(&b, "%%");
			s++;
		} else if (str_starts(s, "%(program_name)s") || str_starts(s, "%(group_name)s")) {
			strbuf_adds(&b, p->name);
			s = strchr(s, ')') + 1; /* at its s */
		} else if (str_starts(s, "%(process_num)d")) {
			strbuf_adds(&b, "0");
			s += sizeof "%(process_num)d" - 2;
		} else if (str_starts(s, "%(here)s") && p->m->r->file_dir) {
			CLEANUP_FREE char *here = import_percent(p->m->r->file_dir);

			strbuf_adds(&b, here);
			s += sizeof "%(here)s" - 2;
		} else {
			import_fail(p->m, "the expansion %.40s has no counterpart: write what it stands for",
				    s);
		}
	}
	return strbuf_take(&b);
}

/* Words as Python's shlex makes them. `stop`: a character that ends a word too. */
static void split(struct program *p, const char *s, char stop, struct strv *ret)
{
	while (!p->m->failed) {
		CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
		char quote = 0;

		s += strspn(s, " \t");
		while (stop && *s == stop)
			s += 1 + strspn(s + 1, " \t");
		if (!*s)
			return;
		strbuf_adds(&b, "");
		for (; *s && (quote || (*s != ' ' && *s != '\t' && *s != stop)); s++) {
			if (*s == quote)
				quote = 0;
			else if (!quote && (*s == '"' || *s == '\''))
				quote = *s;
			else if (*s == '\\' && quote != '\'' && s[1] &&
				 (!quote || s[1] == '"' || s[1] == '\\'))
				strbuf_addc(&b, *++s);
			else
				strbuf_addc(&b, *s);
		}
		if (quote)
			import_fail(p->m, "a quote is not closed");
		strv_take(ret, strbuf_take(&b));
	}
}

static void environment(struct program *p, const char *text)
{
	CLEANUP_STRV struct strv words = {0};

	split(p, text, ',', &words);
	for (size_t i = 0; i < words.n && !p->m->failed; i++) {
		CLEANUP_FREE char *q = import_quote(words.v[i]);

		import_set(p->m, "App", "Environment", q);
	}
}

/* "50MB" there, "50M" here. */
static void size(struct program *p, const char *key, const char *text)
{
	CLEANUP_FREE char *copy = xstrdup(text);
	size_t n = strlen(copy);

	if (n > 1 && copy[n - 1] == 'B')
		copy[n - 1] = 0;
	import_set(p->m, "Log", key, copy);
}

static void restarts(struct program *p, const char *text)
{
	static const char *const words[] = {"true", "false", "unexpected", NULL};

	if (str_eq(text, "true"))
		import_vital(p->m, "Restart", "Policy", "always");
	else if (str_eq(text, "false"))
		import_vital(p->m, "Restart", "Policy", "no");
	else if (str_eq(text, "unexpected"))
		import_vital(p->m, "Restart", "Policy", "on-failure");
	else
		import_bad_word(p->m, "autorestart", text, words);
}

static void retries(struct program *p, const char *text)
{
	CLEANUP_FREE char *n = import_is_number(text) ? xasprintf("%ld", strtol(text, NULL, 10) + 1) : NULL;

	if (n)
		import_set(p->m, "Restart", "LimitBurst", n);
	else
		import_note(p->m, "Restart", "startretries=%.60s", text);
}

static void statuses(struct program *p, const char *text)
{
	CLEANUP_STRV struct strv words = {0};

	split(p, text, ',', &words);
	for (size_t i = 0; i < words.n && !p->m->failed; i++)
		if (!str_eq(words.v[i], "0"))
			import_set(p->m, "Restart", "SuccessExitStatus", words.v[i]);
}

static void key(struct program *p, const char *name, const char *text)
{
	const char *why = unit_foreign_key(name);

	if (str_eq(name, "command") || str_eq(name, "directory"))
		return;
	if (str_eq(name, "environment"))
		environment(p, text);
	else if (str_eq(name, "autostart"))
		import_set(p->m, "App", "Enabled", str_eq(text, "false") ? "no" : "yes");
	else if (str_eq(name, "autorestart"))
		restarts(p, text);
	else if (str_eq(name, "startretries"))
		retries(p, text);
	else if (str_eq(name, "exitcodes"))
		statuses(p, text);
	else if (str_eq(name, "stopsignal"))
		import_set(p->m, "Stop", "Signal", text);
	else if (str_eq(name, "stopwaitsecs"))
		import_set(p->m, "Stop", "Timeout", text);
	else if (str_eq(name, "user"))
		import_set(p->m, "App", "User", text);
	else if (str_eq(name, "stdout_logfile_maxbytes"))
		size(p, "MaxSize", text);
	else if (str_eq(name, "stdout_logfile_backups"))
		import_set(p->m, "Log", "MaxFiles", text);
	else if (str_eq(name, "numprocs") && !str_eq(text, "1"))
		import_fail(p->m, "numprocs=%.20s: an app is one command; make one unit for each", text);
	else
		import_note(p->m, "App", "%s=%.200s%s%s", name, text, why ? ": " : "", why ? why : "");
}

/* The section: the only one, or the one that --name names. */
static const char *find(struct importing *m, const struct import_keys *all)
{
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_FREE char *list = NULL;

	for (size_t i = 0; i < all->n; i++)
		if (str_starts(all->v[i].section, "program:") && !strv_has(&names, all->v[i].section))
			strv_add(&names, all->v[i].section);
	for (size_t i = 0; i < names.n; i++)
		if (names.n == 1 || (m->r->name && str_eq(names.v[i] + 8, m->r->name)))
			for (size_t k = 0; k < all->n; k++)
				if (str_eq(all->v[k].section, names.v[i]))
					return all->v[k].section;
	list = names.n ? strv_join(&names, ", ") : xstrdup("none");
	import_fail(m, "which [program:NAME] is not clear, --name says it; there are: %.600s", list);
	return NULL;
}

void import_supervisord(struct importing *m)
{
	CLEANUP(import_keys_finish) struct import_keys all = {0};
	CLEANUP_STRV struct strv words = {0};
	CLEANUP_FREE char *command = NULL, *line = NULL, *directory = NULL;
	struct program p = {.m = m};
	const char *section;
	bool policy = false;

	import_read_ini(m, IMPORT_INI_SUPERVISORD, &all);
	section = m->failed ? NULL : find(m, &all);
	if (!section)
		return;
	p.name = section + 8;
	import_name(m, p.name);
	for (size_t i = 0; i < all.n && !m->failed; i++) {
		if (strcmp(all.v[i].section, section) != 0)
			continue;
		for (size_t k = i + 1; k < all.n; k++)
			if (str_eq(all.v[k].section, section) && str_eq(all.v[k].key, all.v[i].key))
				import_fail(m, "%s= is there twice", all.v[i].key);
		if (str_eq(all.v[i].key, "command") && !command)
			command = expand(&p, all.v[i].value);
		if (str_eq(all.v[i].key, "directory") && !directory)
			directory = expand(&p, all.v[i].value);
	}
	split(&p, command ? command : "", 0, &words);
	if (!m->failed && (!words.n || !*words.v[0])) {
		import_fail(m, "[%s] has no command", section);
		return;
	}
	line = m->failed ? NULL : import_command(words.v);
	if (line)
		import_vital(m, "App", "Exec", line);
	import_directory(m, directory, words.v);
	for (size_t i = 0; i < all.n && !m->failed; i++) {
		CLEANUP_FREE char *value = NULL;

		if (strcmp(all.v[i].section, section) != 0)
			continue;
		value = expand(&p, all.v[i].value);
		policy |= str_eq(all.v[i].key, "autorestart");
		key(&p, all.v[i].key, value);
	}
	if (!policy)
		import_note(m, "Restart",
			    "autorestart is not said: unexpected, which is on-failure here, the default");
	import_note(m, "Network",
		    "supervisord does not say what it serves and reaches: Listen=PORT, Allow=HOST; nothing "
		    "is open");
}
