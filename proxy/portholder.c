#include "proxy/portholder.h"
#include "base/file.h"
#include "base/str.h"
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TCP_LISTENING 0x0A /* proc_net_tcp(5): TCP_LISTEN of include/net/tcp_states.h */

/* One table of proc_net_tcp(5). */
static bool find_inode(const char *table, uint16_t port, unsigned long *ret_inode, unsigned *ret_uid)
{
	CLEANUP_FILE FILE *f = fopen(table, "re");
	char line[512];

	while (f && fgets(line, sizeof line, f)) {
		unsigned local, state, uid;
		unsigned long inode;

		/* sl local:port remote:port state tx:rx timer:when retransmits uid timeout inode */
		if (sscanf(line,
			   " %*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*[0-9A-Fa-f:] %*[0-9A-Fa-f:] %*x %u "
			   "%*u %lu",
			   &local, &state, &uid, &inode) != 4)
			continue;
		if (local != port || state != TCP_LISTENING)
			continue;
		*ret_inode = inode;
		*ret_uid = uid;
		return true;
	}
	return false;
}

static bool has_socket(const char *pid, const char *wanted)
{
	CLEANUP_FREE char *path = xasprintf("/proc/%s/fd", pid);
	CLEANUP_DIR DIR *d = opendir(path);
	const struct dirent *e;
	char link[64];

	while (d && (e = readdir(d))) {
		ssize_t n = readlinkat(dirfd(d), e->d_name, link, sizeof link - 1);

		if (n <= 0)
			continue;
		link[n] = 0;
		if (strcmp(link, wanted) == 0)
			return true;
	}
	return false;
}

static char *process_name(const char *pid)
{
	CLEANUP_FREE char *path = xasprintf("/proc/%s/comm", pid), *safe = NULL;
	char name[64] = "";

	(void)file_read_proc(path, name, sizeof name);
	name[strcspn(name, "\n")] = 0;
	safe = str_escape(name, strlen(name));
	return xasprintf("%s (pid %s)", safe, pid);
}

char *portholder(uint16_t port)
{
	CLEANUP_FREE char *wanted = NULL;
	CLEANUP_DIR DIR *d = NULL;
	const struct dirent *e;
	unsigned long inode;
	unsigned uid;

	if (!find_inode("/proc/self/net/tcp", port, &inode, &uid) &&
	    !find_inode("/proc/self/net/tcp6", port, &inode, &uid))
		return NULL;
	wanted = xasprintf("socket:[%lu]", inode);
	d = opendir("/proc");
	while (d && (e = readdir(d)))
		if (*e->d_name >= '1' && *e->d_name <= '9' && has_socket(e->d_name, wanted))
			return process_name(e->d_name);
	return xasprintf("a process of uid %u", uid);
}
