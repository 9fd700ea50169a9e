/*
 * EnvironmentFile: NAME=value lines as systemd.exec(5) and most .env files have them. Nothing is expanded; a
 * value may stand in single quotes (as it is) or double quotes (\" \\ \$ and \` are escapes). "export " in
 * front is accepted because such files are also sourced by shells.
 */
#include "unit/internal.h"
#include <string.h>

/* The text between quotes, or NULL with a problem. Owned by caller. */
static char *unquote(const char *v, const char *shown, unsigned line, struct unit_problems *p)
{
	struct strbuf b = STRBUF_INIT;
	char quote = *v++;

	for (; *v && *v != quote; v++) {
		if (quote == '"' && *v == '\\' && v[1] && strchr("\"\\$`", v[1]))
			v++;
		strbuf_addc(&b, *v);
	}
	if (*v && !v[1 + strspn(v + 1, " \t")])
		return strbuf_take(&b);
	strbuf_finish(&b);
	unit_problem_add(p, shown, line, *v ? "text after the closing quote" : "a quote is not closed");
	return NULL;
}

static void env_line(char *s, const char *shown, unsigned line, struct strv *ret, struct unit_problems *p)
{
	CLEANUP_FREE char *value = NULL;
	char *eq;

	s = str_trim(s);
	if (!*s || *s == '#' || *s == ';')
		return;
	if (str_starts(s, "export "))
		s = str_trim(s + strlen("export "));
	eq = strchr(s, '=');
	if (!eq || unit_check_env_name(s, (size_t)(eq - s)) < 0) {
		unit_problem_add(p, shown, line,
				 "not NAME=value"); /* the text may be a secret: it is not repeated */
		return;
	}
	*eq++ = 0;
	eq += strspn(eq, " \t");
	value = *eq == '"' || *eq == '\'' ? unquote(eq, shown, line, p) : xstrdup(eq);
	if (value)
		strv_addf(ret, "%s=%s", s, value);
}

int unit_env_file_parse(const char *text, size_t len, const char *shown, struct strv *ret,
			struct unit_problems *p)
{
	const char *at = text, *end = text + len;
	size_t before = p->n;
	unsigned line = 0;

	while (at < end && p->n - before < PROBLEMS_MAX) {
		const char *nl = memchr(at, '\n', (size_t)(end - at)), *stop = nl ? nl : end;
		size_t n = (size_t)(stop - at);
		CLEANUP_FREE char *copy = xstrndup(at, n);

		line++;
		if (memchr(at, 0, n) || memchr(at, '\r', n))
			unit_problem_add(p, shown, line, "a NUL byte or a carriage return");
		else if (n > LINE_MAX_BYTES)
			unit_problem_add(p, shown, line, "the line is longer than %d bytes", LINE_MAX_BYTES);
		else
			env_line(copy, shown, line, ret, p);
		at = nl ? nl + 1 : end;
	}
	return p->n == before ? 0 : -1;
}
