/* The unit as an object: its end, its names, the list of problems. */
#include "unit/internal.h"
#include <string.h>

void unit_free(struct unit *u)
{
	if (!u)
		return;
	for (size_t i = 0; i < unit_table.n; i++)
		unit_value_free(&unit_table.v[i], u);
	free(u->name);
	free(u->instance);
	free(u->file);
	free(u->exec_origin);
	free(u->working_directory_origin);
	free(u->app_directory_origin);
	free(u->upstream_proxy_origin);
	free(u->egress_origin);
	strv_clear(&u->sources);
	strv_clear(&u->not_in_force);
	free(u);
}

const char *unit_mode_name(enum unit_mode m)
{
	static const char *const names[] = {"background", "session", "stdio"};

	return names[m];
}

const char *unit_enforce_name(enum unit_enforce m)
{
	static const char *const names[] = {"required", "best-effort", "off"};

	return names[m];
}

const char *unit_read_mode_name(enum unit_read_mode m)
{
	static const char *const names[] = {"strict", "allowlist", "open"};

	return names[m];
}

static size_t span(const char *s, const char *more)
{
	size_t n = 0;

	while ((s[n] >= 'a' && s[n] <= 'z') || (s[n] >= '0' && s[n] <= '9') || (s[n] && strchr(more, s[n])))
		n++;
	return n;
}

bool unit_name_valid(const char *name)
{
	size_t n = span(name, "_-"), m;

	if (n == 0 || n > 63 || name[0] == '_' || name[0] == '-')
		return false;
	if (!name[n])
		return true;
	if (name[n] != '@')
		return false;
	m = span(name + n + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_.-");
	return m > 0 && m <= 63 && !name[n + 1 + m];
}

void unit_problem_add(struct unit_problems *p, const char *file, unsigned line, const char *fmt, ...)
{
	CLEANUP_FREE char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	text = xvasprintf(fmt, ap);
	va_end(ap);
	VEC_GROW(p->v, p->n, p->cap);
	p->v[p->n++] = (struct unit_problem){
		.file = xstrdup(file), .line = line, .text = str_escape(text, strlen(text))};
}

void unit_problems_clear(struct unit_problems *p)
{
	for (size_t i = 0; i < p->n; i++) {
		free(p->v[i].file);
		free(p->v[i].text);
	}
	free(p->v);
	*p = (struct unit_problems){0};
}

char *unit_problems_text(const struct unit_problems *p)
{
	struct strbuf b = STRBUF_INIT;

	for (size_t i = 0; i < p->n; i++) {
		if (p->v[i].line)
			strbuf_addf(&b, "%s:%u: %s\n", p->v[i].file, p->v[i].line, p->v[i].text);
		else
			strbuf_addf(&b, "%s: %s\n", p->v[i].file, p->v[i].text);
	}
	return strbuf_take(&b);
}
