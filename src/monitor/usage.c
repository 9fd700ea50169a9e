#include "monitor/usage.h"
#include "base/file.h"
#include "base/parse.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>

struct pids {
	pid_t *v;
	size_t n, cap;
};

static void pids_add(struct pids *p, pid_t pid)
{
	if (p->n == USAGE_MAX_PROCESSES)
		return;
	VEC_GROW(p->v, p->n, p->cap);
	p->v[p->n++] = pid;
}

/* Fields of /proc/PID/stat, proc(5): the name in parentheses may hold anything, so the last ')' is what
 * counts. */
struct stat_line {
	pid_t ppid;
	uint64_t ticks, rss_pages;
};

static int read_stat(pid_t pid, struct stat_line *ret)
{
	char path[64], buf[1024], *p, *save = NULL, *end;
	unsigned field = 3;

	(void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	if (file_read_proc(path, buf, sizeof buf) <= 0 || !(end = strrchr(buf, ')')))
		return -1;
	*ret = (struct stat_line){0};
	for (p = strtok_r(end + 1, " \n", &save); p; p = strtok_r(NULL, " \n", &save), field++) {
		uint64_t v = strtoull(p, NULL, 10);

		if (field == 4)
			ret->ppid = (pid_t)v;
		else if (field == 14 || field == 15)
			ret->ticks += v;
		else if (field == 16 || field == 17) /* waited-for children; signed in the kernel */
			ret->ticks += p[0] == '-' ? 0 : v;
		else if (field == 24)
			ret->rss_pages = v;
	}
	return field > 24 ? 0 : -1;
}

/* /proc/PID/task/TID/children (CONFIG_PROC_CHILDREN): a child belongs to the thread that forked it. False
 * when the kernel has no such file. */
static bool children_of(pid_t pid, struct pids *all)
{
	char path[64], file[96], buf[32768];
	CLEANUP_DIR DIR *d = NULL;
	struct dirent *t;
	bool any = false;

	(void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	d = opendir(path);
	if (!d)
		return true; /* gone */
	while ((t = readdir(d))) {
		char *save = NULL;

		if (t->d_name[0] < '0' || t->d_name[0] > '9')
			continue;
		(void)snprintf(file, sizeof file, "/proc/%d/task/%.20s/children", (int)pid, t->d_name);
		if (file_read_proc(file, buf, sizeof buf) < 0)
			continue;
		any = true;
		for (char *p = strtok_r(buf, " ", &save); p; p = strtok_r(NULL, " ", &save))
			pids_add(all, (pid_t)strtol(p, NULL, 10));
	}
	return any;
}

/* Without that file: one pass over /proc, repeated until it finds nobody new. */
static void tree_by_parents(struct pids *all)
{
	struct pids pid = {0}, ppid = {0};
	CLEANUP_DIR DIR *d = opendir("/proc");
	struct dirent *e;
	bool more = true;

	while (d && (e = readdir(d))) {
		struct stat_line st;
		uint64_t v;

		if (parse_u64(e->d_name, INT32_MAX, &v) < 0 || read_stat((pid_t)v, &st) < 0)
			continue;
		pids_add(&pid, (pid_t)v);
		pids_add(&ppid, st.ppid);
	}
	while (more) {
		more = false;
		for (size_t i = 0; i < pid.n; i++) {
			bool in = false;

			for (size_t k = 0; k < all->n; k++)
				in |= all->v[k] == ppid.v[i];
			if (!in || pid.v[i] == 0)
				continue;
			pids_add(all, pid.v[i]);
			pid.v[i] = ppid.v[i] = 0;
			more = true;
		}
	}
	free(pid.v);
	free(ppid.v);
}

int usage_read(pid_t root, struct usage *ret)
{
	static long tick, page;
	struct pids all = {0};
	struct stat_line st;
	struct usage u = {0};

	if (!tick) {
		tick = sysconf(_SC_CLK_TCK);
		page = sysconf(_SC_PAGESIZE);
	}
	if (root <= 0 || read_stat(root, &st) < 0)
		return -1;
	pids_add(&all, root);
	if (!children_of(root, &all))
		tree_by_parents(&all);
	else
		for (size_t i = 1; i < all.n; i++)
			(void)children_of(all.v[i], &all);
	for (size_t i = 0; i < all.n; i++) {
		if (read_stat(all.v[i], &st) < 0)
			continue;
		u.processes++;
		u.rss_bytes += st.rss_pages * (uint64_t)page;
		u.cpu_ms += st.ticks * 1000 / (uint64_t)tick;
	}
	free(all.v);
	if (u.processes == 0)
		return -1;
	*ret = u;
	return 0;
}
