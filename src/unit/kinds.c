/* Checks of single words, one function a kind. Pure. */
#include "base/file.h"
#include "base/parse.h"
#include "unit/internal.h"
#include <ctype.h>
#include <limits.h>
#include <string.h>

void unit_list_add(struct unit_list *l, char *text, const char *origin)
{
	VEC_GROW(l->v, l->n, l->cap);
	l->v[l->n++] = (struct unit_value){.text = text, .origin = xstrdup(origin)};
}

void unit_list_clear(struct unit_list *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->v[i].text);
		free(l->v[i].origin);
	}
	free(l->v);
	*l = (struct unit_list){0};
}

int unit_check_path(const char *text, struct err **e)
{
	if (*text != '/')
		return err_set(e, 0, "%s is not an absolute path (~ and %%h are the home directory)", text);
	if (strlen(text) >= PATH_MAX)
		return err_set(e, 0, "the path is longer than %d bytes", PATH_MAX - 1);
	for (const char *s = text; *s;) {
		size_t n;

		s += strspn(s, "/");
		n = strcspn(s, "/");
		if (n == 2 && s[0] == '.' && s[1] == '.')
			return err_set(e, 0, "%s contains '..': write the path it leads to", text);
		if (n > NAME_MAX)
			return err_set(e, 0, "a name in the path is longer than %d bytes", NAME_MAX);
		s += n;
	}
	return 0;
}

int unit_check_env_name(const char *s, size_t n)
{
	if (n == 0 || isdigit((unsigned char)*s))
		return -1;
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)s[i]) && s[i] != '_')
			return -1;
	return 0;
}

/* "18", "18.2", "18.2.1", "18.x" */
static bool version_ok(const char *s, size_t n)
{
	size_t parts = 0, i = 0;

	while (i < n && parts < 3) {
		size_t start = i;

		while (i < n && isdigit((unsigned char)s[i]))
			i++;
		if (i == start && parts && (s[i] == 'x' || s[i] == '*'))
			return ++i == n;
		if (i == start || i - start > 6)
			return false;
		parts++;
		if (i < n && (s[i++] != '.' || i == n))
			return false;
	}
	return parts > 0 && i == n;
}

int unit_check_version_range(const char *s, struct err **e)
{
	static const char *const ops[] = {">=", "<=", ">", "<", "=", "^", "~", ""};
	const char *t = s;

	while (*t) {
		size_t n = strcspn(t, " "), i = 0;

		while (strncmp(t, ops[i], strlen(ops[i])) != 0)
			i++;
		if (!version_ok(t + strlen(ops[i]), n - strlen(ops[i])))
			return err_set(e, 0, "%s is not a version range such as >=18, >=3.10 <4, ^18 or 18.x",
				       s);
		t += n;
		t += strspn(t, " ");
	}
	return 0;
}

int unit_check_url_path(const char *s, struct err **e)
{
	if (*s != '/')
		return err_set(e, 0, "%s does not begin with '/'", s);
	for (const char *t = s; *t; t++)
		if ((unsigned char)*t <= ' ' || (unsigned char)*t >= 0x7f || *t == '#')
			return err_set(e, 0, "%s contains a character that a request line cannot carry", s);
	return 0;
}
