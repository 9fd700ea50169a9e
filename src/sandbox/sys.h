/*
 * System calls and constants that a libc of 2022 does not have, or has only as wrappers that do more than the call. All are
 * plain calls: they are used in the child of clone3, where nothing else may happen.
 */
#pragma once
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* include/uapi/linux/sched.h, kernel 5.5 and 5.2 */
#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif
#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif
#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL /* 5.7 */
#endif

/* include/uapi/linux/mount.h, kernel 5.2 and 5.12 */
#define SYS_OPEN_TREE_CLONE         1u
#define SYS_OPEN_TREE_CLOEXEC       ((unsigned)O_CLOEXEC)
#define SYS_AT_RECURSIVE            0x8000u
#define SYS_AT_NO_AUTOMOUNT         0x800u
#define SYS_MOVE_MOUNT_F_EMPTY_PATH 0x04u
#define SYS_MOVE_MOUNT_T_EMPTY_PATH 0x40u
#define SYS_FSOPEN_CLOEXEC          1u
#define SYS_FSMOUNT_CLOEXEC         1u
#define SYS_FSCONFIG_SET_STRING     1u
#define SYS_FSCONFIG_CMD_CREATE     6u
#define SYS_MOUNT_ATTR_RDONLY       0x01u
#define SYS_MOUNT_ATTR_NOSUID       0x02u
#define SYS_MOUNT_ATTR_NODEV        0x04u
#define SYS_MOUNT_ATTR_NOEXEC       0x08u
#define SYS_MS_PRIVATE              (1ull << 18)

struct sys_mount_attr { /* struct mount_attr */
	uint64_t set, clear, propagation, userns_fd;
};
struct sys_clone_args { /* struct clone_args: the first version (64 bytes), and what Linux 5.5 and 5.7 added */
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
	uint64_t set_tid, set_tid_size, cgroup;
};
#define SYS_CLONE_ARGS_FIRST offsetof(struct sys_clone_args, set_tid)

static inline int sys_open_tree(int dir, const char *path, unsigned flags)
{
	return (int)syscall(428, dir, path, flags);
}
static inline int sys_move_mount(int from, int to, const char *path)
{
	return (int)syscall(429, from, "", to, path,
			    SYS_MOVE_MOUNT_F_EMPTY_PATH | (*path ? 0 : SYS_MOVE_MOUNT_T_EMPTY_PATH));
}
static inline int sys_fsopen(const char *type)
{
	return (int)syscall(430, type, SYS_FSOPEN_CLOEXEC);
}
static inline int sys_fsconfig(int fs, unsigned command, const char *key, const char *value)
{
	return (int)syscall(431, fs, command, key, value, 0);
}
static inline int sys_fsmount(int fs, unsigned attributes)
{
	return (int)syscall(432, fs, SYS_FSMOUNT_CLOEXEC, attributes);
}
static inline int sys_mount_setattr(int fd, unsigned flags, const struct sys_mount_attr *a)
{
	return (int)syscall(442, fd, "", AT_EMPTY_PATH | flags, a, sizeof *a);
}
static inline int sys_pivot_root(const char *new_root, const char *put_old)
{
	return (int)syscall(SYS_pivot_root, new_root, put_old);
}
static inline int sys_openat2(int dir, const char *path, uint64_t flags, uint64_t resolve)
{
	struct open_how how = { .flags = flags, .resolve = resolve };

	return (int)syscall(437, dir, path, &how, sizeof how);
}
static inline int sys_close_range(unsigned first)
{
	return (int)syscall(436, first, ~0u, 0);
}
/* group: a directory of cgroup v2 that the child begins in; 0: ours. */
static inline pid_t sys_clone3(uint64_t flags, int *pidfd, int group)
{
	struct sys_clone_args a = { .flags = flags | CLONE_PIDFD | (group > 0 ? CLONE_INTO_CGROUP : 0),
				    .pidfd = (uint64_t)(uintptr_t)pidfd,
				    .exit_signal = SIGCHLD,
				    .cgroup = group > 0 ? (uint64_t)group : 0 };

	return (pid_t)syscall(435, &a, group > 0 ? sizeof a : SYS_CLONE_ARGS_FIRST);
}
