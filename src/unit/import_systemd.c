/*
 * A .service of systemd: the keys with a counterpart, all others as comments. The words of ExecStart= follow
 * systemd.service(5): quotes, C escapes, %-specifiers, and ${NAME} from the environment, for which a line of the
 * shell is written. Its defaults count too: without Restart= nothing is started again.
 */
#include "unit/import_internal.h"
#include <string.h>

/* --- words --- */

struct words {
	struct importing *m;
	struct strv v;  /* '%' as in unit files */
	bool variables; /* a $NAME is in them */
};

/* The specifiers that mean the same here. */
static void specifier(struct words *w, const char **s, struct strbuf *b)
{
	char c = (*s)[1];

	if (c && strchr("%hitS", c))
		strbuf_addf(b, "%%%c", c);
	else if (c == 'n' || c == 'N' || c == 'p')
		strbuf_adds(b, w->m->name ? w->m->name : "");
	else if (c == 'I')
		strbuf_adds(b, "%i");
	else
		import_fail(w->m, "the specifier %%%.1s has no counterpart: write what it stands for",
			    c ? (char[]){c, 0} : "");
	*s += c ? 2 : 1;
}

static void escape(struct words *w, const char **s, struct strbuf *b)
{
	static const char from[] = "\\\"' s$;", to[] = "\\\"'  $;";
	const char *at = (*s)[1] ? strchr(from, (*s)[1]) : NULL;

	if (at)
		strbuf_addc(b, to[at - from]);
	else
		import_fail(w->m, "the escape \\%.1s cannot be written into a unit", *s + 1);
	*s += (*s)[1] ? 2 : 1;
}

static void word(struct words *w, const char **s)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
	char quote = 0;

	strbuf_adds(&b, "");
	for (; **s && (quote || (**s != ' ' && **s != '\t')) && !w->m->failed;) {
		if (quote && **s == quote) {
			quote = 0;
			(*s)++;
		} else if (!quote && (**s == '"' || **s == '\'')) {
			quote = *(*s)++;
		} else if (**s == '%') {
			specifier(w, s, &b);
		} else if (**s == '\\') {
			escape(w, s, &b);
		} else {
			w->variables |= **s == '$' && (*s)[1] != '$';
			if (**s == '$' && (*s)[1] == '$')
				(*s)++;
			strbuf_addc(&b, *(*s)++);
		}
	}
	if (quote)
		import_fail(w->m, "a quote is not closed");
	strv_take(&w->v, strbuf_take(&b));
}

static void split(struct words *w, const char *s)
{
	for (s += strspn(s, " \t"); *s && !w->m->failed; s += strspn(s, " \t"))
		word(w, &s);
}

/* Text with specifiers, without words. Owned by caller. */
static char *one_text(struct importing *m, const char *s)
{
	struct words w = {.m = m};
	struct strbuf b = STRBUF_INIT;

	strbuf_adds(&b, "");
	while (*s && !m->failed)
		if (*s == '%')
			specifier(&w, &s, &b);
		else
			strbuf_addc(&b, *s++);
	return strbuf_take(&b);
}

/* --- ExecStart --- */

static bool is_variable(const char *s, bool braces)
{
	size_t n = 1 + braces;

	if (s[0] != '$' || (braces && s[1] != '{') || (s[n] >= '0' && s[n] <= '9'))
		return false;
	n += strspn(s + n, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");
	return n > 1u + braces && (braces ? s[n] == '}' && !s[n + 1] : !s[n]);
}

/* "$A" alone is split into words there, "${A}" is not; nothing else of the shell may happen. */
static char *shell_line(struct importing *m, const struct strv *words)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;

	strbuf_adds(&b, "set -f; exec");
	for (size_t i = 0; i < words->n; i++) {
		const char *s = words->v[i];

		strbuf_addc(&b, ' ');
		if (is_variable(s, false)) {
			strbuf_adds(&b, s);
		} else if (is_variable(s, true)) {
			strbuf_addf(&b, "\"%s\"", s);
		} else if (strchr(s, '$')) {
			import_fail(m,
				    "ExecStart=: a variable inside of the word \"%.80s\"; put the command "
				    "into a script",
				    s);
			return NULL;
		} else {
			CLEANUP_FREE char *q = import_quote(s);

			strbuf_adds(&b, q);
		}
	}
	return strbuf_take(&b);
}

static void exec_start(struct importing *m, const char *value, struct strv *ret_words)
{
	struct words w = {.m = m};
	CLEANUP_FREE char *line = NULL;

	for (; *value && strchr("-@:+!|", *value); value++)
		if (*value == '@')
			import_fail(m, "ExecStart=@ gives the program another name: not possible here");
		else if (*value == '-')
			import_note(m, "App", "ExecStart=-: a failure counts as one here");
		else if (*value != ':')
			import_note(m, "App", "ExecStart=%c: no app has privileges here", *value);
	split(&w, value);
	if (!m->failed && (!w.v.n || (w.v.n == 1 && !*w.v.v[0])))
		import_fail(m, "ExecStart= has no command");
	line = m->failed ? NULL : w.variables ? shell_line(m, &w.v) : import_command(w.v.v);
	if (line)
		import_vital(m, "App", w.variables ? "Shell" : "Exec", line);
	strv_copy(ret_words, &w.v);
	strv_clear(&w.v);
}

/* --- the other keys --- */

struct mapping {
	const char *from, *section, *key;
	enum { WHOLE, PATHS, ENVIRONMENT, FIRST_LIMIT, STATE_DIR, VITAL_PATHS } how;
};
static const struct mapping mappings[] = {
	{"Description", "App", "Description", WHOLE},
	{"User", "App", "User", WHOLE},
	{"Group", "App", "Group", WHOLE},
	{"Environment", "App", "Environment", ENVIRONMENT},
	{"EnvironmentFile", "App", "EnvironmentFile", WHOLE},
	{"PassEnvironment", "App", "PassEnvironment", WHOLE},
	{"StateDirectory", "App", "DataDirectory", STATE_DIR},
	{"RestartMaxDelaySec", "Restart", "MaxSec", WHOLE},
	{"StartLimitBurst", "Restart", "LimitBurst", WHOLE},
	{"StartLimitIntervalSec", "Restart", "LimitInterval", WHOLE},
	{"StartLimitInterval", "Restart", "LimitInterval", WHOLE},
	{"SuccessExitStatus", "Restart", "SuccessExitStatus", WHOLE},
	{"KillSignal", "Stop", "Signal", WHOLE},
	{"TimeoutStopSec", "Stop", "Timeout", WHOLE},
	{"TimeoutStartSec", "Ready", "Timeout", WHOLE},
	{"WatchdogSec", "Health", "WatchdogSec", WHOLE},
	{"ReadOnlyPaths", "Sandbox", "Read", PATHS},
	{"BindReadOnlyPaths", "Sandbox", "Read", PATHS},
	{"ReadWritePaths", "Sandbox", "Write", PATHS},
	{"BindPaths", "Sandbox", "Write", PATHS},
	{"InaccessiblePaths", "Sandbox", "Hide", VITAL_PATHS},
	{"MemoryMax", "Limits", "Memory", WHOLE},
	{"MemoryLimit", "Limits", "Memory", WHOLE},
	{"CPUQuota", "Limits", "CPU", WHOLE},
	{"TasksMax", "Limits", "Tasks", WHOLE},
	{"LimitNPROC", "Limits", "Tasks", FIRST_LIMIT},
	{"LimitNOFILE", "Limits", "OpenFiles", FIRST_LIMIT},
	{"LimitCORE", "Limits", "Core", FIRST_LIMIT},
	{"Nice", "Limits", "Nice", WHOLE},
};

static void map_words(struct importing *m, const struct mapping *x, const char *value)
{
	struct words w = {.m = m};

	split(&w, value);
	for (size_t i = 0; i < w.v.n && !m->failed; i++) {
		CLEANUP_FREE char *text = x->how == ENVIRONMENT ? import_quote(w.v.v[i])
					  : x->how == STATE_DIR ? xasprintf("%%S/%s", w.v.v[i])
								: xstrdup(w.v.v[i]);

		if ((x->how == PATHS || x->how == VITAL_PATHS) && strchr(text, ':'))
			import_note(m, x->section, "%s=%s: every path keeps its place here", x->from, text);
		else if (x->how == VITAL_PATHS)
			import_vital(m, x->section, x->key, text);
		else
			import_set(m, x->section, x->key, text);
	}
	strv_clear(&w.v);
}

static bool map(struct importing *m, const struct import_key *k)
{
	for (size_t i = 0; i < ELEMENTS(mappings); i++) {
		const struct mapping *x = &mappings[i];
		CLEANUP_FREE char *value = NULL;

		if (strcmp(x->from, k->key) != 0)
			continue;
		if (x->how != WHOLE && x->how != FIRST_LIMIT) {
			map_words(m, x, k->value);
			return true;
		}
		value = one_text(m, k->value);
		if (x->how == FIRST_LIMIT)
			value[strcspn(value, ":")] = 0;
		if (str_eq(value, "infinity"))
			import_note(m, x->section, "%s=infinity", k->key);
		else if (!m->failed)
			import_set(m, x->section, x->key, value);
		return true;
	}
	return false;
}

static const char *last(const struct import_keys *all, const char *key)
{
	for (size_t i = all->n; i-- > 0;)
		if (strcmp(all->v[i].key, key) == 0 && *all->v[i].value)
			return all->v[i].value;
	return NULL;
}

static void type_and_restart(struct importing *m, const struct import_keys *all)
{
	const char *type = last(all, "Type"), *restart = last(all, "Restart"), *sec = last(all, "RestartSec");
	bool failure = restart && str_starts(restart, "on-") && !str_eq(restart, "on-success");

	if (type && (str_eq(type, "forking") || str_eq(type, "dbus"))) {
		import_fail(m,
			    "Type=%s: an app stays in the foreground here; tell the program to, and write "
			    "Type=exec",
			    type);
		return;
	}
	if (type && str_starts(type, "notify"))
		import_set(m, "Ready", "Type", "notify");
	else if (type && str_eq(type, "oneshot"))
		import_note(m, "App",
			    "Type=oneshot: it is started once, and its end with status 0 is no failure");
	import_vital(m, "Restart", "Policy",
		     !restart                    ? "no"
		     : failure                   ? "on-failure"
		     : str_eq(restart, "always") ? "always"
						 : "no");
	if (restart && failure && !str_eq(restart, "on-failure"))
		import_note(m, "Restart", "Restart=%s: on-failure is the nearest", restart);
	else if (restart && str_eq(restart, "on-success"))
		import_note(m, "Restart", "Restart=on-success has no counterpart");
	if (sec) {
		CLEANUP_FREE char *copy = one_text(m, sec);

		import_set(m, "Restart", "Sec", copy);
		import_set(m, "Restart", "MaxSec",
			   last(all, "RestartMaxDelaySec") ? last(all, "RestartMaxDelaySec") : copy);
	}
}

static bool is_handled(const char *key)
{
	static const char *const keys[] = {"ExecStart", "WorkingDirectory", "Type",
					   "Restart",   "RestartSec",       "RestartMaxDelaySec"};

	for (size_t i = 0; i < ELEMENTS(keys); i++)
		if (strcmp(keys[i], key) == 0)
			return true;
	return false;
}

static void others(struct importing *m, const struct import_keys *all, const struct import_key *k)
{
	const char *why = unit_foreign_key(k->key);

	/* an empty value clears what stands above it, and a scalar counts once: only the last */
	for (const struct import_key *n = k + 1; n < all->v + all->n; n++)
		if (strcmp(n->key, k->key) == 0 && !*n->value)
			return;
	if (!*k->value || is_handled(k->key))
		return;
	if (str_eq(k->key, "PrivateNetwork") && (str_eq(k->value, "yes") || str_eq(k->value, "true")))
		import_vital(m, "Network", "Egress", "off");
	else if (strcmp(k->section, "Install") == 0 || !map(m, k))
		import_note(m, "App", "%s=%.200s%s%s", k->key, k->value, why ? ": " : "", why ? why : "");
}

static void name_of(struct importing *m)
{
	const char *file = m->r->file_name ? m->r->file_name : "";
	CLEANUP_FREE char *name =
		str_ends(file, ".service") ? xstrndup(file, strlen(file) - 8) : xstrdup(file);

	name[strcspn(name, ".")] = 0;
	import_name(m, name);
}

void import_systemd(struct importing *m)
{
	CLEANUP(import_keys_finish) struct import_keys all = {0};
	CLEANUP_STRV struct strv words = {0};
	CLEANUP_FREE char *dir = NULL;
	const char *said, *start;
	size_t starts = 0;

	name_of(m);
	import_read_ini(m, IMPORT_INI_SYSTEMD, &all);
	for (size_t i = 0; i < all.n; i++)
		if (strcmp(all.v[i].key, "ExecStart") == 0)
			starts = *all.v[i].value ? starts + 1 : 0;
	start = last(&all, "ExecStart");
	if (starts != 1 || !start) {
		import_fail(m, "it has %zu ExecStart= lines; an app is one command", starts);
		return;
	}
	exec_start(m, start, &words);
	said = last(&all, "WorkingDirectory");
	said = said && *said == '-' ? said + 1 : said;
	dir = said && !str_eq(said, "~") && !str_eq(said, "/") ? one_text(m, said) : NULL;
	import_directory(m, dir, words.v);
	type_and_restart(m, &all);
	import_note(
		m, "Network",
		"systemd does not say what it serves and reaches: Listen=PORT, Allow=HOST; nothing is open");
	for (size_t i = 0; i < all.n && !m->failed; i++)
		others(m, &all, &all.v[i]);
}
