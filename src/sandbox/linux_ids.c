/* Who the app is inside: id maps, groups, capabilities. */
#include "sandbox/jail.h"
#include "sandbox/sys.h"
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), error;
	size_t len = strlen(text);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = write(fd, text, len);
	error = n < 0 ? errno : EIO;
	(void)close(fd);
	if (n == (ssize_t)len)
		return 0;
	errno = error;
	return -1;
}

/* As root: one id each, so that uid 0 has no name inside. Groups stay droppable (no "deny"): the child drops
 * them. */
int ids_write_maps(pid_t pid, uid_t uid, gid_t gid, struct err **e)
{
	char path[64], map[64];

	(void)snprintf(path, sizeof path, "/proc/%d/uid_map", (int)pid);
	(void)snprintf(map, sizeof map, "%u %u 1\n", uid, uid);
	if (write_file(path, map) < 0)
		return err_sys(e, errno, "cannot map user %u into the jail", uid);
	(void)snprintf(path, sizeof path, "/proc/%d/gid_map", (int)pid);
	(void)snprintf(map, sizeof map, "%u %u 1\n", gid, gid);
	if (write_file(path, map) < 0)
		return err_sys(e, errno, "cannot map group %u into the jail", gid);
	return 0;
}

/* As a user: the kernel takes a map of one's own id from the process itself, once setgroups is given up. */
void ids_own_maps(struct child *c)
{
	char map[64];

	if (write_file("/proc/self/setgroups", "deny") < 0)
		child_fail(c, "ids", errno, "cannot give up setgroups", NULL);
	(void)snprintf(map, sizeof map, "%u %u 1\n", c->plan->user.uid, c->plan->user.uid);
	if (write_file("/proc/self/uid_map", map) < 0)
		child_fail(c, "ids", errno, "cannot write the user map", NULL);
	(void)snprintf(map, sizeof map, "%u %u 1\n", c->plan->user.gid, c->plan->user.gid);
	if (write_file("/proc/self/gid_map", map) < 0)
		child_fail(c, "ids", errno, "cannot write the group map", NULL);
}

/* Raw calls: the libc's would try to reach other threads, which exist only in the parent. In the new user
 * namespace capabilities survive the change, because the old id is not a root of that namespace. */
void ids_become_user(struct child *c)
{
	uid_t uid = c->plan->user.uid;
	gid_t gid = c->plan->user.gid;

	if (syscall(SYS_setgroups, 0, NULL) < 0)
		child_fail(c, "ids", errno, "cannot drop the supplementary groups", NULL);
	if (syscall(SYS_setresgid, gid, gid, gid) < 0)
		child_fail(c, "ids", errno, "cannot become the app's group", NULL);
	if (syscall(SYS_setresuid, uid, uid, uid) < 0)
		child_fail(c, "ids", errno, "cannot become the app's user", NULL);
}

enum {
	ALL_SECUREBITS = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
			 SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
			 SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED,
};

void ids_drop_capabilities(struct child *c)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}};

	if (prctl(PR_SET_SECUREBITS, ALL_SECUREBITS, 0, 0, 0) < 0)
		child_fail(c, "capabilities", errno, "cannot lock the secure bits", NULL);
	for (int cap = 0; cap < 64; cap++) {
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
			continue;
		if (errno == EINVAL && cap > CAP_AUDIT_READ)
			break; /* past the last one this kernel knows */
		child_fail(c, "capabilities", errno, "cannot empty the bounding set", NULL);
	}
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		child_fail(c, "capabilities", errno, "cannot clear the ambient capabilities", NULL);
	if (syscall(SYS_capset, &h, none) < 0)
		child_fail(c, "capabilities", errno, "cannot drop the capabilities", NULL);
}
