#include "sandbox/mountinfo.h"
#include <stdlib.h>
#include <string.h>

static bool is_octal(const char *s, size_t len)
{
	return len >= 4 && s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
	       s[3] >= '0' && s[3] <= '7';
}

/* Space, tab, newline and backslash are \ooo. */
static char *undo_octal(const char *s, size_t len)
{
	struct strbuf b = STRBUF_INIT;

	while (len) {
		size_t n = is_octal(s, len) ? 4 : 1;

		strbuf_addc(&b, n == 4 ? (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0')) : *s);
		s += n;
		len -= n;
	}
	return strbuf_take(&b);
}

static uint64_t number_of(const char *major_minor)
{
	char *end;
	uint64_t major = strtoul(major_minor, &end, 10);

	return major << 32 | strtoul(end + (*end == ':'), NULL, 10);
}

/* "36 35 98:0 ROOT POINT rw,noatime master:1 - TYPE SOURCE rw" */
bool mountinfo_parse(const char *line, size_t len, struct mountinfo *ret)
{
	CLEANUP_FREE char *copy = xstrndup(line, len);
	const char *sep = strstr(copy, " - "), *field[5], *at = copy;

	for (size_t i = 0; i < ELEMENTS(field); i++) {
		field[i] = at;
		at = sep ? strchr(at, ' ') : NULL;
		if (!at || at > sep)
			return false;
		at++;
	}
	*ret = (struct mountinfo){.fs = number_of(field[2]),
				  .root = undo_octal(field[3], strcspn(field[3], " ")),
				  .point = undo_octal(field[4], strcspn(field[4], " ")),
				  .type = xstrndup(sep + 3, strcspn(sep + 3, " "))};
	return true;
}

void mountinfo_finish(struct mountinfo *m)
{
	free(m->root);
	free(m->point);
	free(m->type);
}
