/*
 * Expansion and quoting. A value is cut into words first and each word is expanded on its own, so a home
 * directory with a space in it stays one word. No shell is involved and nothing but the names below has a
 * meaning; a '$NAME' that looks like a variable is an error rather than a literal, because nobody means the
 * literal.
 */
#include "unit/internal.h"
#include <stdio.h>
#include <string.h>

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static int add_home(const struct value_ctx *c, struct strbuf *out, struct err **e)
{
	if (!c->home)
		return err_set(e, NO_HOME, "%s",
			       c->home_error ? c->home_error : "the home directory is not known");
	strbuf_adds(out, c->home);
	return 0;
}

static int no_specifier(const char *s, struct err **e)
{
	if (!s[1])
		return err_set(e, 0, "a '%%' at the end: write %%%% for a percent sign");
	return err_set(e, 0,
		       "%%%c is not known: %%h home, %%n name, %%i instance, %%t runtime, %%S state, %%%% a "
		       "percent sign",
		       s[1]);
}

/* *s at '%'; moves past the specifier. */
static int expand_percent(const struct value_ctx *c, const char **s, struct strbuf *out, struct err **e)
{
	const char *text = NULL, *at = *s;

	switch (at[1]) {
	case 'h':
		*s = at + 2;
		return add_home(c, out, e);
	case 'n':
		text = c->name;
		break;
	case 'i':
		text = c->instance;
		if (!text)
			return err_set(e, 0, "%%i is the instance, and this is not NAME@INSTANCE");
		break;
	case 't':
		text = c->dirs->runtime_home ? c->dirs->runtime_home : c->dirs->runtime;
		break;
	case 'S':
		text = c->dirs->state_home ? c->dirs->state_home : c->dirs->state;
		break;
	case '%':
		text = "%";
		break;
	default:
		return no_specifier(at, e);
	}
	if (!text)
		return err_set(e, 0, "%%%c has no value here", at[1]);
	strbuf_adds(out, text);
	*s = at + 2;
	return 0;
}

/* Length of "$PORT" or "${PORT}" at s, or 0. */
static size_t port_len(const char *s)
{
	if (str_starts(s, "${PORT}"))
		return 7;
	return str_starts(s, "$PORT") && !is_name_char(s[5]) ? 5 : 0;
}

static int expand_port(const struct value_ctx *c, struct strbuf *out, struct err **e)
{
	if (!c->port)
		return err_set(e, 0,
			       "$PORT has no value: it is the app port of the first Listen= line, and there "
			       "is none");
	strbuf_addf(out, "%u", (unsigned)c->port);
	return 0;
}

static bool tilde_here(const char *s)
{
	return s[0] == '~' && (!s[1] || s[1] == '/' || s[1] == ' ' || s[1] == '\t');
}

int unit_expand_text(const struct value_ctx *c, const char *raw, bool tilde, struct strbuf *out,
		     struct err **e)
{
	const char *s = raw;

	if (tilde && tilde_here(s)) {
		if (add_home(c, out, e) < 0)
			return -1;
		s++;
	}
	while (*s) {
		if (*s == '%') {
			if (expand_percent(c, &s, out, e) < 0)
				return -1;
		} else if (*s == '$' && port_len(s)) {
			if (expand_port(c, out, e) < 0)
				return -1;
			s += port_len(s);
		} else {
			strbuf_addc(out, *s++);
		}
	}
	return 0;
}

/* A '$' or '`' that a shell would act on, outside single quotes. */
static int check_dollar(const char *key, const char *s, struct err **e)
{
	size_t n = 1;

	if (*s == '`' || s[1] == '(')
		return err_set(
			e, 0,
			"%s= runs no shell, so %s is not run: put it in single quotes to keep it as it is",
			key, *s == '`' ? "`...`" : "$(...)");
	if (s[1] != '{' && !(is_name_char(s[1]) && !(s[1] >= '0' && s[1] <= '9')))
		return 0;
	while (is_name_char(s[n]) || s[n] == '{' || s[n] == '}')
		n++;
	return err_set(e, 0,
		       "%s= knows only $PORT; %.*s is not expanded (%%h and ~ are the home directory; single "
		       "quotes keep it as it is)",
		       key, (int)(n > 40 ? 40 : n), s);
}

/* One character outside single quotes, or one expansion. */
static int take_char(const struct value_ctx *c, const char *key, const char **s, struct strbuf *out,
		     struct err **e)
{
	if (**s == '%')
		return expand_percent(c, s, out, e);
	if (**s == '$' && port_len(*s)) {
		if (expand_port(c, out, e) < 0)
			return -1;
		*s += port_len(*s);
		return 0;
	}
	if ((**s == '$' || **s == '`') && check_dollar(key, *s, e) < 0)
		return -1;
	strbuf_addc(out, *(*s)++);
	return 0;
}

/* *s after the opening quote; moves past the closing one. */
static int take_quoted(const struct value_ctx *c, const char *key, char quote, const char **s,
		       struct strbuf *out, struct err **e)
{
	while (**s && **s != quote) {
		if (quote == '"' && **s == '\\' && (*s)[1] && strchr("\"\\$`", (*s)[1])) {
			strbuf_addc(out, (*s)[1]);
			*s += 2;
		} else if (quote == '\'' && **s != '%') {
			strbuf_addc(out, *(*s)++);
		} else if (take_char(c, key, s, out, e) < 0) {
			return -1;
		}
	}
	if (!**s)
		return err_set(e, 0, "a %s quote is not closed", quote == '"' ? "double" : "single");
	(*s)++;
	return 0;
}

/* A whole word that only a shell understands. */
static int check_operator(const char *key, const char *s, struct err **e)
{
	static const char *const ops[] = {"&&", "||", "|", "&", ";", ">", ">>", "<", "2>", "2>&1", "&>"};
	size_t n = strcspn(s, " \t");

	if (n == 1 && *s == '#')
		return err_set(e, 0, "a comment needs its own line; quote the # if it belongs to the value");
	for (size_t i = 0; i < ELEMENTS(ops); i++)
		if (strlen(ops[i]) == n && memcmp(ops[i], s, n) == 0)
			return err_set(e, 0, "%s= runs no shell, so %s has no meaning: quote it%s", key,
				       ops[i], strcmp(key, "Exec") == 0 ? ", or use Shell=" : "");
	return 0;
}

static int take_word(const struct value_ctx *c, const char *key, const char **s, struct strbuf *out,
		     struct err **e)
{
	bool start = true; /* a tilde counts at the start of a word and after the '=' of NAME=~/x */

	if (check_operator(key, *s, e) < 0)
		return -1;
	for (; **s && **s != ' ' && **s != '\t'; start = out->len && out->p[out->len - 1] == '=') {
		if (start && tilde_here(*s)) {
			if (add_home(c, out, e) < 0)
				return -1;
			(*s)++;
		} else if (**s == '"' || **s == '\'') {
			char quote = *(*s)++;

			if (take_quoted(c, key, quote, s, out, e) < 0)
				return -1;
		} else if (**s == '\\') {
			if (!(*s)[1])
				return err_set(e, 0, "a backslash at the end");
			strbuf_addc(out, (*s)[1]);
			*s += 2;
		} else if (take_char(c, key, s, out, e) < 0) {
			return -1;
		}
	}
	return 0;
}

int unit_expand_words(const struct value_ctx *c, const char *key, const char *raw, struct strv *ret,
		      struct err **e)
{
	CLEANUP_STRV struct strv words = {0};
	const char *s = raw;

	for (;;) {
		CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;

		s += strspn(s, " \t");
		if (!*s)
			break;
		if (take_word(c, key, &s, &b, e) < 0)
			return -1;
		strv_take(&words, strbuf_take(&b));
	}
	strv_copy(ret, &words);
	return 0;
}
