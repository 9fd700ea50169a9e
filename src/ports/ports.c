#include "ports/internal.h"
#include "base/file.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void holder_finish(struct port_holder *h)
{
	free(h->command);
	free(h->cwd);
}

void port_holders_finish(struct port_holders *h)
{
	for (size_t i = 0; i < h->n; i++)
		holder_finish(&h->v[i]);
	free(h->v);
	*h = (struct port_holders){0};
}

int ports_stat(pid_t pid, struct ports_stat *ret)
{
	char path[64], buf[1024], *end;
	struct ports_stat st;
	int ppid;

	(void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	/* The name in parentheses may hold anything: what counts follows the last ')'. */
	if (pid <= 0 || file_read_proc(path, buf, sizeof buf) <= 0 || !(end = strrchr(buf, ')')))
		return -1;
	/* fields 3 state, 4 ppid, 5 pgrp, 6 session, 7 tty_nr, ... 22 starttime */
	if (sscanf(end + 1,
		   " %*c %d %*d %*d %d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64,
		   &ppid, &st.tty_nr, &st.start) != 3)
		return -1;
	st.ppid = ppid;
	*ret = st;
	return 0;
}

uint64_t ports_start_time(pid_t pid)
{
	struct ports_stat st;

	return ports_stat(pid, &st) < 0 ? 0 : st.start;
}

static char *command_of(pid_t pid)
{
	char path[64], buf[4096];
	int n;

	(void)snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
	n = file_read_proc(path, buf, sizeof buf);
	while (n > 0 && buf[n - 1] == 0)
		n--;
	if (n <= 0) { /* a program that cleared it, or a zombie */
		(void)snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
		n = file_read_proc(path, buf, sizeof buf);
		while (n > 0 && buf[n - 1] == '\n')
			n--;
	}
	if (n <= 0)
		return NULL;
	for (int i = 0; i < n; i++)
		if (buf[i] == 0)
			buf[i] = ' ';
	return xstrndup(buf, (size_t)n);
}

static char *cwd_of(pid_t pid)
{
	char path[64], buf[4096];
	ssize_t n;

	(void)snprintf(path, sizeof path, "/proc/%d/cwd", (int)pid);
	n = readlink(path, buf, sizeof buf - 1);
	return n > 0 ? xstrndup(buf, (size_t)n) : NULL;
}

static struct port_holder *add(struct port_holders *h, const char *address)
{
	struct port_holder *p;

	VEC_GROW(h->v, h->n, h->cap);
	p = &h->v[h->n++];
	*p = (struct port_holder){0};
	(void)snprintf(p->address, sizeof p->address, "%s", address);
	return p;
}

void ports_add_process(struct port_holders *h, pid_t pid, const char *address)
{
	uint64_t start = ports_start_time(pid);
	struct port_holder *p;
	char path[64];
	struct stat st;

	(void)snprintf(path, sizeof path, "/proc/%d", (int)pid);
	if (!start || stat(path, &st) < 0)
		return;
	for (size_t i = 0; i < h->n; i++)
		if (h->v[i].pid == pid && strcmp(h->v[i].address, address) == 0)
			return; /* the same socket, two fds */
	p = add(h, address);
	p->pid = pid;
	p->uid = st.st_uid;
	p->start = start;
	p->command = command_of(pid);
	p->cwd = cwd_of(pid);
}

void ports_add_unseen(struct port_holders *h, uid_t socket_uid, const char *address)
{
	add(h, address)->uid = socket_uid;
}

static int by_pid(const void *x, const void *y)
{
	const struct port_holder *a = x, *b = y;

	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	return strcmp(a->address, b->address);
}

int ports_find(uint16_t port, enum ports_method how, struct port_holders *ret, struct err **e)
{
	struct port_holders found = {0};
	int r = -1;

	if (how != PORTS_LSOF)
		r = ports_find_diag(port, &found, e);
	if (how == PORTS_LSOF || (how == PORTS_AUTO && r < 0)) {
		CLEANUP_ERR struct err *why = NULL;

		port_holders_finish(&found);
		r = ports_find_lsof(port, &found, how == PORTS_AUTO ? &why : e);
		if (r < 0 && how == PORTS_AUTO)
			return err_wrap(e, "%s", err_msg(why));
		if (r == 0 && how == PORTS_AUTO && e) {
			err_free(*e);
			*e = NULL;
		}
	}
	if (r < 0) {
		port_holders_finish(&found);
		return -1;
	}
	if (found.n)
		qsort(found.v, found.n, sizeof *found.v, by_pid);
	*ret = found;
	return 0;
}

char *ports_describe(const struct port_holder *h)
{
	CLEANUP_FREE char *command = h->command ? str_escape(h->command, strlen(h->command)) : NULL;
	CLEANUP_FREE char *cwd = h->cwd ? str_escape(h->cwd, strlen(h->cwd)) : NULL;

	if (!h->pid)
		return xasprintf("a process of uid %u that we may not look at", h->uid);
	return xasprintf("pid %d (%s, in %s)", (int)h->pid, command ? command : "command not readable",
			 cwd ? cwd : "a directory we may not read");
}
