/*
 * The line reader. inih as distributions build it cuts lines at 200 bytes, strips inline comments, accepts
 * ':' and continuation lines and reports no line numbers, and none of that can be turned off from outside. So
 * every line is checked here first, and inih (ini_parse_stream) gets only lines of two shapes: "[Section]"
 * and "Key=@LINE", where LINE refers to the raw value kept here. Whatever inih would have done to the value
 * it cannot do to the reference.
 *
 * Every malformed line is one problem. A bad header makes the keys below it ownerless: they are skipped,
 * because giving them to the section above would be a guess.
 */
#include "unit/internal.h"
#include <ini.h>
#include <stdio.h>
#include <string.h>

struct reader {
	const char *shown, *at, *end;
	const struct reader_handler *h;
	struct unit_problems *p;
	size_t first_problem; /* p->n at the start: the limit is per file */
	unsigned line;
	bool in_section, skip, crlf_seen, stopped;
	char *raw;         /* the current line, NUL-terminated, owned */
	const char *value; /* into raw */
};

char *unit_masked_url(const char *s)
{
	const char *scheme = strstr(s, "://"), *at = scheme ? strrchr(scheme, '@') : NULL;

	return at ? xasprintf("%.*s(hidden)%s", (int)(scheme + 3 - s), s, at) : xstrdup(s);
}

char *unit_shown_text(const char *line)
{
	CLEANUP_FREE char *s = unit_masked_url(line), *cut = xstrndup(s, 60);
	char *safe = str_escape(cut, strlen(cut));

	if (strlen(s) <= 60)
		return safe;
	char *out = xasprintf("%s...", safe);

	free(safe);
	return out;
}

static void problem(struct reader *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void problem(struct reader *r, const char *fmt, ...)
{
	CLEANUP_FREE char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	text = xvasprintf(fmt, ap);
	va_end(ap);
	unit_problem_add(r->p, r->shown, r->line, "%s", text);
	if (r->p->n - r->first_problem < PROBLEMS_MAX)
		return;
	unit_problem_add(r->p, r->shown, r->line, "too many errors: the rest of the file is not read");
	r->stopped = true;
}

/* Encodings that make the whole file unreadable. false: stop. */
static bool check_encoding(struct reader *r)
{
	const unsigned char *t = (const unsigned char *)r->at;
	size_t len = (size_t)(r->end - r->at);

	r->line = 1;
	if (len >= 2 &&
	    ((t[0] == 0xff && t[1] == 0xfe) || (t[0] == 0xfe && t[1] == 0xff) || !t[0] != !t[1])) {
		problem(r, "the file is UTF-16: save it as UTF-8");
		return false;
	}
	if (len >= 3 && memcmp(t, "\xef\xbb\xbf", 3) == 0) {
		problem(r, "the file begins with a byte order mark (BOM): save it as UTF-8 without one");
		r->at += 3;
	}
	r->line = 0;
	return true;
}

/* Takes the next line into r->raw. false: end, or a line that was refused (r->raw NULL then). */
static bool next_line(struct reader *r)
{
	const char *nl = memchr(r->at, '\n', (size_t)(r->end - r->at));
	const char *start = r->at, *stop = nl ? nl : r->end;
	size_t len = (size_t)(stop - start);

	free(r->raw);
	r->raw = NULL;
	r->at = nl ? nl + 1 : r->end;
	r->line++;
	if (len && start[len - 1] == '\r') {
		len--;
		if (!r->crlf_seen)
			problem(r, "the line ends with CR LF (Windows line ends): convert the file, for "
				   "example with sed -i 's/\\r$//'");
		r->crlf_seen = true;
	}
	if (memchr(start, 0, len))
		problem(r, "the line contains a NUL byte");
	else if (len > LINE_MAX_BYTES)
		problem(r, "the line is %zu bytes long; the limit is %d", len, LINE_MAX_BYTES);
	else
		r->raw = xstrndup(start, len);
	return r->raw != NULL;
}

/* Control bytes, broken UTF-8 and characters that make a line read as something else. */
static bool check_bytes(struct reader *r)
{
	CLEANUP_FREE char *safe = str_escape(r->raw, strlen(r->raw));

	if (strcmp(safe, r->raw) == 0)
		return true;
	for (size_t i = 0; safe[i]; i++)
		if (safe[i] != r->raw[i]) {
			problem(r, "a control character or broken UTF-8 at column %zu: %.4s", i + 1,
				safe + i);
			break;
		}
	return false;
}

static bool is_alnum(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_word(const char *s)
{
	size_t n = 0;

	while (is_alnum(s[n]))
		n++;
	return n > 0 && n <= KEY_NAME_MAX && !s[n];
}

/* "[Section]": true when inih may have it (r->raw is then exactly that). */
static bool take_header(struct reader *r)
{
	char *close = strchr(r->raw, ']'), *rest;

	r->in_section = true;
	r->skip = true; /* until proven good */
	if (!close) {
		CLEANUP_FREE char *t = unit_shown_text(r->raw);

		problem(r, "a section header without ']': %s", t);
		return false;
	}
	rest = close + 1;
	if (rest[strspn(rest, " \t")]) {
		CLEANUP_FREE char *t = unit_shown_text(rest + strspn(rest, " \t"));

		problem(r, "text after ']': %s (a comment needs its own line)", t);
		return false;
	}
	*close = 0;
	if (!is_word(r->raw + 1)) {
		CLEANUP_FREE char *t = unit_shown_text(r->raw + 1);

		problem(r,
			str_starts(r->raw + 1, "program:")
				? "[%s] is supervisord's: here one file is one app, and its section is [App]"
				: "[%s] is not a section name",
			t);
		return false;
	}
	if (!r->h->section(r->h->data, r->raw + 1, r->line))
		return false;
	r->skip = false;
	*close = ']';
	close[1] = 0;
	return true;
}

static bool ends_with_backslash(const char *s)
{
	size_t n = strlen(s), k = 0;

	while (k < n && s[n - 1 - k] == '\\')
		k++;
	return k % 2 == 1;
}

/* "Key=value": true when the key may be fed; then r->raw is the key alone and r->value the value. */
static bool take_key(struct reader *r)
{
	char *eq = strchr(r->raw, '='), *colon = strchr(r->raw, ':'), *key;
	CLEANUP_FREE char *line = unit_shown_text(r->raw);

	if (colon && (!eq || colon < eq)) {
		problem(r, "':' does not separate key and value, write KEY=VALUE: %s", line);
		return false;
	}
	if (!eq) {
		problem(r, "neither [Section] nor KEY=VALUE: %s", line);
		return false;
	}
	*eq = 0;
	key = str_trim(r->raw);
	r->value = str_trim(eq + 1);
	if (!is_word(key)) {
		CLEANUP_FREE char *t = unit_shown_text(key);

		problem(r, *key ? "%s is not a key name" : "%sno key before '='", t);
		return false;
	}
	if (!r->in_section) {
		problem(r, "%s= is outside any section: it needs a [Section] line above", key);
		return false;
	}
	if (ends_with_backslash(r->value)) {
		problem(r, "%s= ends with a backslash: lines cannot be continued", key);
		return false;
	}
	return !r->skip;
}

static bool take_line(struct reader *r)
{
	const char *s = r->raw;

	if (*s == '#' || *s == ';' || !s[strspn(s, " \t")])
		return false;
	if (!check_bytes(r))
		return false;
	if (*s == ' ' || *s == '\t') {
		CLEANUP_FREE char *t = unit_shown_text(s + strspn(s, " \t"));

		problem(r, "the line begins with a space (lines cannot be continued): %s", t);
		return false;
	}
	return *s == '[' ? take_header(r) : take_key(r);
}

/* ini_reader: the next good line, in the short form. */
static char *feed(char *buf, int cap, void *data)
{
	struct reader *r = data;

	while (r->at < r->end && !r->stopped) {
		int n;

		if (!next_line(r) || !take_line(r))
			continue;
		if (r->raw[0] == '[')
			n = snprintf(buf, (size_t)cap, "%s\n", r->raw);
		else
			n = snprintf(buf, (size_t)cap, "%s=@%u\n", r->raw, r->line);
		if (n > 0 && n < cap)
			return buf;
		problem(r, "the line cannot be parsed"); /* names are bounded: only an inih with a tiny buffer
							    gets here */
	}
	return NULL;
}

static int handle(void *data, const char *section, const char *name, const char *value)
{
	struct reader *r = data;
	unsigned line;

	/* inih answers for the line it was just given; anything else would attach a value to the wrong key.
	 */
	if (sscanf(value, "@%u", &line) != 1 || line != r->line || strcmp(name, r->raw) != 0)
		return 0;
	r->h->key(r->h->data, section, name, r->value, line);
	return 1;
}

void unit_reader_parse(const char *shown, const char *text, size_t len, const struct reader_handler *h,
		       struct unit_problems *p)
{
	struct reader r = {
		.shown = shown, .at = text, .end = text + len, .h = h, .p = p, .first_problem = p->n};

	if (!check_encoding(&r))
		return;
	if (ini_parse_stream(feed, &r, handle, &r) != 0)
		unit_problem_add(p, shown, 0,
				 "the INI parser refused a line that was found good: this is a bug in sbxsv");
	free(r.raw);
}
