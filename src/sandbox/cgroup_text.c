/* The texts of cgroup v2: pure. */
#include "sandbox/cgroup.h"
#include "base/file.h"
#include "base/parse.h"
#include "sandbox/mountinfo.h"
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

char *cgroup_directory_of(const char *mountinfo, const char *path)
{
	for (const char *line = mountinfo; line && *line;) {
		CLEANUP(mountinfo_finish) struct mountinfo m = {0};
		size_t len = strcspn(line, "\n");

		if (mountinfo_parse(line, len, &m) && str_eq(m.type, "cgroup2") &&
		    path_is_below(path, m.root)) {
			const char *rest = str_eq(m.root, "/") ? path : path + strlen(m.root);

			return *rest && !str_eq(rest, "/") ? xasprintf("%s%s", m.point, rest)
							   : TAKE_PTR(m.point);
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
