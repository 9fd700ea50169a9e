/* The group of an app, see cgroup.h. Nothing stays open: an app costs a directory and no descriptor. */
#include "sandbox/cgroup_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PERIOD_US 100000 /* of cpu.max: the kernel's own default (the document, "CPU Interface Files") */

static void name_of(const char *app, char *buf, size_t cap)
{
	(void)snprintf(buf, cap, "app.%s", app);
}

static int open_group(const struct cgroup_tree *t, const char *app)
{
	char name[160];

	name_of(app, name, sizeof name);
	return t->base_fd < 0 ? -1 : cgroup_sub(t->base_fd, name);
}

static int write_number(const struct cgroup_tree *t, int dir, const char *file, uint64_t n)
{
	char text[32];

	(void)snprintf(text, sizeof text, "%" PRIu64, n);
	return cgroup_write(t, dir, file, text);
}

/* Swap would make a limit of memory one of speed: none of it for a limited app. A kernel without swap has no such file. The
 * whole app goes when it runs out of memory (oom.group, Linux 4.19), and is started again by its restart policy: half an app
 * is nobody's wish. */
static int limit_memory(const struct cgroup_tree *t, int dir, uint64_t bytes)
{
	if (write_number(t, dir, "memory.max", bytes) < 0)
		return -1;
	(void)cgroup_write(t, dir, "memory.swap.max", "0");
	(void)cgroup_write(t, dir, "memory.oom.group", "1");
	return 0;
}

static int limit_cpu(const struct cgroup_tree *t, int dir, unsigned percent)
{
	char text[48];

	(void)snprintf(text, sizeof text, "%" PRIu64 " %d", (uint64_t)percent * (PERIOD_US / 100), PERIOD_US);
	return cgroup_write(t, dir, "cpu.max", text);
}

static int failed(struct err **e, const char *app, const char *what)
{
	return err_sys(e, errno, "%s: %s of its control group", app, what);
}

static unsigned write_limits(const struct cgroup_tree *t, int dir, const char *app,
			     const struct cgroup_limits *l, struct err **e)
{
	unsigned set = 0;

	if ((t->controllers & CGROUP_MEMORY) && l->memory) {
		if (limit_memory(t, dir, l->memory) == 0)
			set |= CGROUP_MEMORY;
		else
			(void)failed(e, app, "memory.max");
	}
	if ((t->controllers & CGROUP_CPU) && l->cpu_percent) {
		if (limit_cpu(t, dir, l->cpu_percent) == 0)
			set |= CGROUP_CPU;
		else
			(void)failed(e, app, "cpu.max");
	}
	/* sbxsv-init counts, as it does for RLIMIT_NPROC */
	if ((t->controllers & CGROUP_PIDS) && l->tasks) {
		if (write_number(t, dir, "pids.max", l->tasks) == 0)
			set |= CGROUP_PIDS;
		else
			(void)failed(e, app, "pids.max");
	}
	return set;
}

int cgroup_group_make(struct cgroup_tree *t, const char *app, const struct cgroup_limits *l,
		      unsigned *ret_limits, struct err **e)
{
	CLEANUP_FD int fd = -1;
	char name[160];

	name_of(app, name, sizeof name);
	if (cgroup_need_base(t) < 0)
		return err_sys(e, errno, "%s: no control group can be made in %s", app,
			       t->own ? t->own : "?");
	if ((t->w.make ? t->w.make(t->base_fd, name) : mkdirat(t->base_fd, name, 0755)) < 0)
		return failed(e, app, "the directory");
	fd = cgroup_sub(t->base_fd, name);
	if (fd < 0)
		return failed(e, app, "the directory");
	*ret_limits = write_limits(t, fd, app, l, e);
	return TAKE_FD(fd);
}

bool cgroup_group_there(const struct cgroup_tree *t, const char *app)
{
	char name[160];

	name_of(app, name, sizeof name);
	return t->base_fd >= 0 && faccessat(t->base_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool cgroup_group_is_empty(const struct cgroup_tree *t, const char *app)
{
	CLEANUP_FD int fd = open_group(t, app);

	return fd < 0 || !cgroup_is_populated(fd);
}

bool cgroup_group_kill(const struct cgroup_tree *t, const char *app)
{
	CLEANUP_FD int fd = open_group(t, app);

	return fd >= 0 && cgroup_write(t, fd, "cgroup.kill", "1") == 0;
}

static void value(int dir, const char *file, const char *key, uint64_t *ret)
{
	char text[8192];

	if (cgroup_read(dir, file, text, sizeof text) == 0)
		(void)cgroup_value(text, key, ret);
}

void cgroup_group_count(const struct cgroup_tree *t, const char *app, struct cgroup_count *ret)
{
	CLEANUP_FD int fd = open_group(t, app);
	uint64_t cache = 0;
	char text[16384];

	*ret = (struct cgroup_count){UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
	if (fd < 0)
		return;
	value(fd, "cpu.stat", "usage_usec", &ret->cpu_us);
	if (cgroup_read(fd, "cgroup.procs", text, sizeof text) == 0)
		ret->processes = cgroup_lines(text);
	if (!(t->controllers & CGROUP_MEMORY))
		return;
	if (cgroup_read(fd, "memory.current", text, sizeof text) == 0) {
		value(fd, "memory.stat", "inactive_file", &cache);
		ret->memory = strtoull(text, NULL, 10);
		ret->memory -= cache < ret->memory ? cache : ret->memory;
	}
	value(fd, "memory.events", "oom_kill", &ret->oom_kills);
	value(fd, "memory.events", "oom", &ret->oom);
}

int cgroup_group_remove(struct cgroup_tree *t, const char *app)
{
	char name[160];

	name_of(app, name, sizeof name);
	if (t->base_fd < 0)
		return 0;
	return cgroup_remove_below(t, t->base_fd, name, 0) < 0 && errno != ENOENT ? -1 : 0;
}
