/* A file system as a table, for plan code. Parents of an entry are made as root's directories. */
#pragma once
#include "sandbox/plan.h"

struct fake_entry {
	char *path, *text; /* target of a link, content of a file */
	mode_t mode;
	uid_t uid;
	bool live; /* a socket somebody has bound */
};
struct fake_fs {
	struct fake_entry *v;
	size_t n, cap;
};
/*
 * One entry as text, "KIND[:UID[:MODE]] PATH [REST]":
 *   d directory (REST "= TYPE": a file system of that type is mounted there), f file (REST "= content", \n is
 * a newline), x executable file, l link (REST "-> target"), s socket (REST "live"), p FIFO, c character
 * device, b block device. MODE is octal. 0, or -1 for a line that makes no sense.
 */
int fake_fs_add(struct fake_fs *f, const char *line);
struct plan_fs fake_fs_view(struct fake_fs *f);
void fake_fs_finish(struct fake_fs *f);
