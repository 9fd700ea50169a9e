#include "sandbox/landlock.h"
#include <errno.h>
#include <stddef.h>
#include <unistd.h>
#include <sys/syscall.h>

/* include/uapi/linux/landlock.h; the libc's copy stops at ABI 3 */
enum { NR_CREATE_RULESET = 444, NR_ADD_RULE = 445, NR_RESTRICT_SELF = 446 };
enum { CREATE_RULESET_VERSION = 1, RULE_PATH_BENEATH = 1 };
enum {
	FS_EXECUTE = 1 << 0,
	FS_WRITE_FILE = 1 << 1,
	FS_READ_FILE = 1 << 2,
	FS_READ_DIR = 1 << 3,
	FS_MAKE_CHAR = 1 << 6,
	FS_MAKE_BLOCK = 1 << 11,
	FS_REFER = 1 << 13,     /* ABI 2 */
	FS_TRUNCATE = 1 << 14,  /* ABI 3 */
	FS_IOCTL_DEV = 1 << 15, /* ABI 5 */
	SCOPE_ABSTRACT_UNIX = 1 << 0,
	SCOPE_SIGNAL = 1 << 1, /* both ABI 6 */
};
struct ruleset_attr {
	uint64_t fs, net, scoped;
};
struct path_beneath_attr {
	uint64_t allowed;
	int32_t parent_fd;
} __attribute__((packed));

int landlock_abi(void)
{
	long abi = syscall(NR_CREATE_RULESET, NULL, 0, CREATE_RULESET_VERSION);

	return abi < 2 ? 0 : (int)abi;
}

int landlock_open(struct landlock *l, int abi, bool files)
{
	struct ruleset_attr a = {0};
	/* the size tells the kernel which fields there are */
	size_t size = abi >= 6   ? sizeof a
		      : abi >= 4 ? offsetof(struct ruleset_attr, scoped)
				 : offsetof(struct ruleset_attr, net);
	l->fd = -1;
	l->abi = abi;
	l->fs = 0;
	if (abi == 0)
		return 0;
	if (files)
		l->fs = (abi >= 5 ? FS_IOCTL_DEV : 0u) | (abi >= 3 ? FS_TRUNCATE : 0u) | (FS_TRUNCATE - 1u);
	a.fs = l->fs;
	if (abi >= 6)
		a.scoped = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL;
	if (a.fs == 0 && a.scoped == 0) {
		l->abi = 0;
		return 0;
	}
	l->fd = (int)syscall(NR_CREATE_RULESET, &a, size, 0);
	return l->fd < 0 ? -1 : 0;
}

int landlock_allow(const struct landlock *l, int path_fd, bool dir, enum landlock_grant g)
{
	uint64_t rights = FS_EXECUTE | FS_READ_FILE | FS_READ_DIR;
	struct path_beneath_attr a = {.parent_fd = path_fd};

	if (g == LANDLOCK_GRANT_WRITE)
		rights = l->fs & ~(uint64_t)(FS_MAKE_CHAR | FS_MAKE_BLOCK);
	else if (g == LANDLOCK_GRANT_DEVICES)
		rights = FS_READ_FILE | FS_WRITE_FILE | FS_READ_DIR | FS_TRUNCATE | FS_IOCTL_DEV;
	else if (g == LANDLOCK_GRANT_PROC)
		rights = FS_READ_FILE | FS_WRITE_FILE | FS_READ_DIR | FS_TRUNCATE;
	else if (g == LANDLOCK_GRANT_LIST)
		rights = FS_READ_DIR;
	if (!dir)
		rights &= FS_EXECUTE | FS_READ_FILE | FS_WRITE_FILE | FS_TRUNCATE | FS_IOCTL_DEV;
	a.allowed = rights & l->fs;
	if (l->fd < 0 || a.allowed == 0)
		return 0;
	return (int)syscall(NR_ADD_RULE, l->fd, RULE_PATH_BENEATH, &a, 0);
}

int landlock_enforce(const struct landlock *l)
{
	return l->fd < 0 ? 0 : (int)syscall(NR_RESTRICT_SELF, l->fd, 0);
}
