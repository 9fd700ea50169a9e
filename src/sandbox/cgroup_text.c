/* The texts of cgroup v2: pure. */
#include "sandbox/cgroup.h"
#include "base/file.h"
#include "base/parse.h"
#include <string.h>

static const char *const names[] = {"memory", "cpu", "pids"};

const char *cgroup_controller_name(unsigned one)
{
	for (size_t i = 0; i < ELEMENTS(names); i++)
		if (one == 1u << i)
			return names[i];
	return "?";
}

char *cgroup_path_of(const char *text)
{
	for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line ? 1 : 0) {
		size_t len;

		if (!str_starts(line, "0::/"))
			continue;
		line += 3;
		len = strcspn(line, "\n");
		/* a group that was removed while processes were in it, and one outside of our cgroup namespace */
		if (str_starts(line, "/..") || (len >= 10 && memcmp(line + len - 10, " (deleted)", 10) == 0))
			return NULL;
		return xstrndup(line, len);
	}
	return NULL;
}

/* mountinfo writes blank, tab, newline and backslash as \ooo, proc(5). */
static char *unescape(const char *s, size_t len)
{
	struct strbuf b = STRBUF_INIT;

	for (size_t i = 0; i < len; i++) {
		if (s[i] == '\\' && i + 3 < len && s[i + 1] >= '0' && s[i + 1] <= '3' && s[i + 2] >= '0' &&
		    s[i + 2] <= '7' && s[i + 3] >= '0' && s[i + 3] <= '7') {
			strbuf_addc(&b,
				    (char)((s[i + 1] - '0') * 64 + (s[i + 2] - '0') * 8 + (s[i + 3] - '0')));
			i += 3;
		} else {
			strbuf_addc(&b, s[i]);
		}
	}
	return strbuf_take(&b);
}

/* "36 35 98:0 ROOT POINT rw,noatime master:1 - TYPE SOURCE rw": ROOT and POINT of a line of type cgroup2. */
static bool parse_mount(const char *line, size_t len, char **ret_root, char **ret_point)
{
	CLEANUP_FREE char *copy = xstrndup(line, len);
	const char *dash = strstr(copy, " - "), *field[5];
	const char *at = copy;

	if (!dash || !str_starts(dash, " - cgroup2 "))
		return false;
	for (size_t i = 0; i < ELEMENTS(field); i++) {
		field[i] = at;
		at = strchr(at, ' ');
		if (!at || at > dash)
			return false;
		at++;
	}
	*ret_root = unescape(field[3], strcspn(field[3], " "));
	*ret_point = unescape(field[4], strcspn(field[4], " "));
	return true;
}

char *cgroup_directory_of(const char *mountinfo, const char *path)
{
	for (const char *line = mountinfo; line && *line;) {
		CLEANUP_FREE char *root = NULL, *point = NULL;
		size_t len = strcspn(line, "\n");

		if (parse_mount(line, len, &root, &point) && path_is_below(path, root)) {
			const char *rest = str_eq(root, "/") ? path : path + strlen(root);

			return *rest && !str_eq(rest, "/") ? xasprintf("%s%s", point, rest) : xstrdup(point);
		}
		line += len + (line[len] == '\n');
	}
	return NULL;
}

unsigned cgroup_controllers(const char *text)
{
	unsigned found = 0;

	for (const char *at = text; *at;) {
		size_t len = strcspn(at, " \n");

		for (size_t i = 0; i < ELEMENTS(names); i++)
			if (strlen(names[i]) == len && memcmp(at, names[i], len) == 0)
				found |= 1u << i;
		at += len;
		at += strspn(at, " \n");
	}
	return found;
}

int cgroup_value(const char *text, const char *key, uint64_t *ret)
{
	size_t n = strlen(key);

	for (const char *line = text; *line;) {
		size_t len = strcspn(line, "\n");

		if (len > n + 1 && memcmp(line, key, n) == 0 && line[n] == ' ') {
			CLEANUP_FREE char *value = xstrndup(line + n + 1, len - n - 1);

			return parse_u64(value, UINT64_MAX, ret);
		}
		line += len + (line[len] == '\n');
	}
	return -1;
}

unsigned cgroup_lines(const char *text)
{
	unsigned n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

/* FNV-1a: two instances must not meet by chance; nobody gains by making them. */
char *cgroup_tag(const char *runtime_dir, uint64_t device, uint64_t inode)
{
	CLEANUP_FREE char *text =
		xasprintf("%s %llu %llu", runtime_dir, (unsigned long long)device, (unsigned long long)inode);
	uint64_t h = 14695981039346656037u;

	for (const char *p = text; *p; p++)
		h = (h ^ (unsigned char)*p) * 1099511628211u;
	return xasprintf(CGROUP_TAG "%016llx", (unsigned long long)h);
}

bool cgroup_is_tag(const char *name)
{
	size_t n = strlen(CGROUP_TAG);

	return str_starts(name, CGROUP_TAG) && strlen(name) == n + 16 &&
	       strspn(name + n, "0123456789abcdef") == 16;
}
