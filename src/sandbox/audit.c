/*
 * Theory of operation. A second program beside the baseline filter, written out by hand: a chain that compares the
 * number of the call and, for opens, the flags in the register. The kernel takes the strictest answer of all programs
 * of a task, so what the baseline refuses is refused before anybody hears of it, and what this one passes on is not
 * weakened by it. For calls that it never passes on the kernel keeps a bitmap (kernel 5.11) and does not run it at all.
 *
 * Not passed on: execveat() of a descriptor (the launch's own exec of sbxsv-init is one, and there is no path to look
 * at), opens with O_PATH, calls of a foreign ABI (the baseline kills them), and what tree walkers do a thousand times:
 * openat() for reading, with O_NOFOLLOW, of a file in a directory that is open already. The jail let the program open
 * that directory, so all it can miss by this is a hidden place of that very directory; the directories themselves are
 * passed on. grep -r would take more than twice its time otherwise: a call that waits costs two switches between
 * processes, ten times an open.
 */
#include "sandbox/audit.h"
#include "base/cleanup.h"
#include <asm/unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5) /* include/uapi/linux/seccomp.h, kernel 5.19 */
#endif
#ifndef __NR_fchmodat2
#define __NR_fchmodat2 452 /* kernel 6.6; one number on all architectures */
#endif
#ifndef __NR_openat2
#define __NR_openat2 437
#endif

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define ARCH AUDIT_ARCH_RISCV64
#elif defined(__i386__)
#define ARCH AUDIT_ARCH_I386
#elif defined(__arm__)
#define ARCH AUDIT_ARCH_ARM
#endif

/* Always passed on. */
static const unsigned calls[] = {
#ifdef __NR_creat
	__NR_creat,
#endif
#ifdef __NR_unlink
	__NR_unlink,
#endif
#ifdef __NR_rename
	__NR_rename,
#endif
#ifdef __NR_renameat
	__NR_renameat,
#endif
#ifdef __NR_mkdir
	__NR_mkdir,
#endif
#ifdef __NR_rmdir
	__NR_rmdir,
#endif
#ifdef __NR_link
	__NR_link,
#endif
#ifdef __NR_symlink
	__NR_symlink,
#endif
#ifdef __NR_chmod
	__NR_chmod,
#endif
#ifdef __NR_chown
	__NR_chown,
#endif
#ifdef __NR_lchown
	__NR_lchown,
#endif
#ifdef __NR_mknod
	__NR_mknod,
#endif
	__NR_unlinkat, __NR_renameat2, __NR_mkdirat,  __NR_linkat,   __NR_symlinkat,
	__NR_fchmodat, __NR_fchmodat2, __NR_fchownat, __NR_truncate, __NR_mknodat,
	__NR_execve,   __NR_connect,   __NR_openat2,
};

/* Opens are passed on by their flags. */
struct open_call {
	unsigned nr;
	int dirfd, flags; /* arguments; -1: none */
};
static const struct open_call opens[] = {
#ifdef __NR_open
	{__NR_open, -1, 1},
#endif
	{__NR_openat, 0, 2},
};
enum { WRITING = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC };

struct program {
	struct sock_filter code[2 * ELEMENTS(calls) + 14 * ELEMENTS(opens) + 16];
	unsigned short n;
};

static void add(struct program *p, uint16_t code, uint32_t k, uint8_t yes, uint8_t no)
{
	p->code[p->n++] = (struct sock_filter){.code = code, .jt = yes, .jf = no, .k = k};
}

static void load(struct program *p, size_t offset)
{
	add(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void answer(struct program *p, uint32_t action)
{
	add(p, BPF_RET | BPF_K, action, 0, 0);
}

/* The low half of an argument: flags are 32 bits, and the kernel looks at no more of them. */
static void load_arg(struct program *p, unsigned n)
{
	load(p, offsetof(struct seccomp_data, args[0]) + 8 * n +
			(__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 4 : 0));
}

/* With the flags loaded: 0 O_PATH? 1 writing or a directory? 2 followed? 3, 4 from where? 5 to 7 the answers. */
static void add_reads(struct program *p, const struct open_call *o)
{
	add(p, BPF_JMP | BPF_JSET | BPF_K, O_PATH, 6, 0);
	add(p, BPF_JMP | BPF_JSET | BPF_K, WRITING | O_DIRECTORY, 4, 0);
	add(p, BPF_JMP | BPF_JSET | BPF_K, O_NOFOLLOW, 0, 3);
	if (o->dirfd < 0)
		load(p, offsetof(struct seccomp_data, nr)); /* equal below: it begins where the program is */
	else
		load_arg(p, (unsigned)o->dirfd);
	add(p, BPF_JMP | BPF_JEQ | BPF_K, o->dirfd < 0 ? o->nr : (uint32_t)AT_FDCWD, 1, 0);
	answer(p, SECCOMP_RET_ALLOW);
	answer(p, SECCOMP_RET_USER_NOTIF);
	answer(p, SECCOMP_RET_ALLOW);
}

static void add_open(struct program *p, const struct open_call *o, enum audit a)
{
	add(p, BPF_JMP | BPF_JEQ | BPF_K, o->nr, 0, a == AUDIT_ALL ? 9 : 4);
	load_arg(p, (unsigned)o->flags);
	if (a == AUDIT_ALL) {
		add_reads(p, o);
		return;
	}
	add(p, BPF_JMP | BPF_JSET | BPF_K, WRITING, 0, 1);
	answer(p, SECCOMP_RET_USER_NOTIF);
	answer(p, SECCOMP_RET_ALLOW);
}

static void build(struct program *p, enum audit a)
{
#ifdef ARCH
	load(p, offsetof(struct seccomp_data, arch));
	add(p, BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
	answer(p, SECCOMP_RET_ALLOW);
#endif
	load(p, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < ELEMENTS(calls); i++) {
		add(p, BPF_JMP | BPF_JEQ | BPF_K, calls[i], 0, 1);
		answer(p, SECCOMP_RET_USER_NOTIF);
	}
	for (size_t i = 0; i < ELEMENTS(opens); i++)
		add_open(p, &opens[i], a);
	add(p, BPF_JMP | BPF_JEQ | BPF_K, __NR_execveat, 0, 3);
	load_arg(p, 4);
	add(p, BPF_JMP | BPF_JSET | BPF_K, AT_EMPTY_PATH, 1, 0);
	answer(p, SECCOMP_RET_USER_NOTIF);
	answer(p, SECCOMP_RET_ALLOW);
}

/* The reader has buffers of a fixed size (src/trace/ear.c), twice and more of what today's kernels need. */
static bool fits_the_reader(void)
{
	enum { NOTICE_MAX = 256 };
	struct seccomp_notif_sizes s = {0};

	return syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &s) == 0 && s.seccomp_notif <= NOTICE_MAX &&
	       s.seccomp_notif_resp <= NOTICE_MAX;
}

int audit_install(enum audit a)
{
	struct program p = {.n = 0};
	struct sock_fprog f = {.filter = p.code};
	const unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
	long fd;

	if (!fits_the_reader()) {
		errno = EOVERFLOW;
		return -1;
	}
	build(&p, a);
	f.len = p.n;
	fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &f);
	if (fd < 0 &&
	    errno == EINVAL) /* before 5.19: a signal may interrupt a call that waits, and it is made again */
		fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &f);
	return (int)fd;
}

static const char *const names[] = {"off", "writes", "all"};

const char *audit_name(enum audit a)
{
	return names[a];
}

enum audit audit_from(const char *name)
{
	for (size_t i = 0; name && i < ELEMENTS(names); i++)
		if (strcmp(names[i], name) == 0)
			return (enum audit)i;
	return AUDIT_OFF;
}
