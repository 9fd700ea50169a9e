/* Inside of cgroup.h: shared by cgroup.c and cgroup_group.c. */
#pragma once
#include "base/fd.h"
#include "sandbox/cgroup.h"

struct cgroup_tree {
	struct cgroup_world w;
	char *tag, *own, *base; /* paths; base NULL: no groups can be made */
	char *why;              /* no groups at all */
	char *why_not[3];       /* of a controller */
	int own_fd, base_fd;    /* base_fd -1: not made */
	bool inside;            /* this process is in `supervisor` */
	unsigned controllers;   /* that the groups of apps have */
	unsigned enabled;       /* by us, in OWN */
};
static inline size_t cgroup_index(unsigned one)
{
	return one >> 1; /* 1 2 4 -> 0 1 2 */
}
int cgroup_read(int dir, const char *name, char *buf, size_t cap); /* NUL-terminated; -1 with errno */
int cgroup_write(const struct cgroup_tree *t, int dir, const char *name, const char *text);
int cgroup_sub(int dir, const char *name); /* a descriptor of a group in `dir` */
bool cgroup_is_populated(int group);       /* cgroup.events; processes below it count */
int cgroup_need_base(struct cgroup_tree *t);
int cgroup_remove_below(const struct cgroup_tree *t, int dir, const char *name, unsigned depth);
