/* The INI files of systemd (systemd.syntax(7): lines continued by a backslash, comments at the start of a line)
 * and of supervisord (ConfigParser: indented lines continue a value, " ;" begins a comment). */
#include "unit/import_internal.h"
#include <string.h>

static void take(struct importing *m, struct import_keys *ret, const char *section, char *line, unsigned at)
{
	char *eq = strchr(line, '=');

	if (!section || !eq || eq == line) {
		import_fail(m, "line %u is neither [Section] nor KEY=VALUE: %.60s", at, line);
		return;
	}
	if (!import_text_ok(m, "a line", line))
		return;
	*eq = 0;
	VEC_GROW(ret->v, ret->n, ret->cap);
	ret->v[ret->n++] = (struct import_key){.section = xstrdup(section),
					       .key = xstrdup(str_trim(line)),
					       .value = xstrdup(str_trim(eq + 1)),
					       .line = at};
	if (ret->n > IMPORT_LINES_MAX)
		import_fail(m, "it has more than %d lines", IMPORT_LINES_MAX);
}

struct ini {
	const char *at;
	unsigned line;
	enum import_ini how;
};

static char *physical(struct ini *x)
{
	size_t n = strcspn(x->at, "\n");
	char *line = xstrndup(x->at, n);

	x->at += n + (x->at[n] == '\n');
	x->line++;
	if (n && line[n - 1] == '\r')
		line[n - 1] = 0;
	return line;
}

static bool is_comment(const char *line)
{
	line += strspn(line, " \t");
	return *line == '#' || *line == ';';
}

/* A line with those that continue it; comments between are left out, as there. Owned by caller. */
static char *logical(struct ini *x)
{
	char *line = physical(x);

	while (x->how == IMPORT_INI_SYSTEMD && !is_comment(line) && str_ends(line, "\\") && *x->at) {
		CLEANUP_FREE char *more = physical(x);
		char *both;

		if (is_comment(more))
			continue;
		line[strlen(line) - 1] = ' ';
		both = xasprintf("%s%s", line, more);
		free(line);
		line = both;
	}
	while (x->how == IMPORT_INI_SUPERVISORD && strchr(line, '=') && (*x->at == ' ' || *x->at == '\t')) {
		CLEANUP_FREE char *more = physical(x);
		char *both = is_comment(more) ? NULL : xasprintf("%s %s", line, str_trim(more));

		if (both)
			free(line);
		line = both ? both : line;
	}
	return line;
}

void import_read_ini(struct importing *m, enum import_ini how, struct import_keys *ret)
{
	CLEANUP_FREE char *copy = xstrndup(m->r->text, m->r->len), *section = NULL;
	struct ini x = {.at = copy + (str_starts(copy, "\xef\xbb\xbf") ? 3 : 0), .how = how};

	while (*x.at && !m->failed) {
		CLEANUP_FREE char *line = logical(&x);
		char *s = str_trim(line), *remark;

		if (!*s || is_comment(s))
			continue;
		remark = how == IMPORT_INI_SUPERVISORD ? strstr(s, " ;") : NULL;
		if (remark)
			*remark = 0;
		s = str_trim(s);
		if (*s == '[' && str_ends(s, "]")) {
			s[strlen(s) - 1] = 0;
			free(section);
			section = xstrdup(s + 1);
		} else {
			take(m, ret, section, s, x.line);
		}
	}
}

void import_keys_finish(struct import_keys *k)
{
	for (size_t i = 0; i < k->n; i++) {
		free(k->v[i].section);
		free(k->v[i].key);
		free(k->v[i].value);
	}
	free(k->v);
}
