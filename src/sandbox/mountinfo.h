/* The mount table, proc_pid_mountinfo(5), a line at a time. Pure. */
#pragma once
#include "base/str.h"
#include <stdint.h>

struct mountinfo {
	uint64_t fs; /* major and minor of the file system */
	char *root;  /* the directory of it that is mounted; "net:[4026531840]" of a file of nsfs */
	char *point, *type;
};
/* False: it is no such line, and *ret is untouched. */
bool mountinfo_parse(const char *line, size_t len, struct mountinfo *ret);
void mountinfo_finish(struct mountinfo *m);
