/*
 * The baseline filter as rules for libseccomp. It depends on the processor alone, and building it takes
 * longer than the rest of a launch, so it is built when the project is (filtergen.c, seccomp.c).
 *
 * Choices that are not obvious:
 *
 *  - The default error is EPERM. ENOSYS for clone3 and io_uring_setup, because libcs, language runtimes and
 * event libraries try those first and fall back when the kernel "does not know" them. clone3 passes its flags
 * in memory, where a filter cannot look: refusing it sends everybody to clone(2), whose flags are in a
 * register.
 *  - ptrace and process_vm_* stay allowed: debuggers work inside a jail. The jail's init is non-dumpable,
 * outsiders do not exist in the pid namespace, and since 4.8 a tracer cannot smuggle calls past the filter.
 *  - AF_UNIX sockets cannot be told apart by the path they connect to (it is in memory), and a read-only
 * mount does not stop connect(2): a socket of the host in any readable folder would be open to the app. So
 * socket(AF_UNIX) is refused unless the unit has a UnixSocket= line. socketpair() stays, for streams: a
 * stream pair can never be connected elsewhere; a datagram pair can (connect again, or sendto), so that is
 * refused too.
 *  - AF_NETLINK only with NETLINK_ROUTE, which getaddrinfo and getifaddrs need.
 *  - ioctl commands are compared on 32 bits, as the kernel does: on 64 bits a set high bit walks past the
 * rule.
 *  - Other ABIs of the processor (i386, x32) are killed: their numbers would mean other calls.
 */
#include "base/fd.h"
#include "sandbox/seccomp.h"
#include "base/err.h"
#include "base/str.h"
#include <errno.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { OPEN_TREE_ATTR_NR = 467 /* kernel 6.15; one number on all architectures */ };

/* By name: what an architecture or an old libseccomp does not know does not exist for the app either. */
static const char *const refused[] = {
	/* keys outlive processes and namespaces */
	"keyctl",
	"add_key",
	"request_key",
	/* kernel code */
	"bpf",
	"perf_event_open",
	"kexec_load",
	"kexec_file_load",
	"init_module",
	"finit_module",
	"delete_module",
	"create_module",
	"get_kernel_syms",
	"query_module",
	/* the machine */
	"reboot",
	"swapon",
	"swapoff",
	"acct",
	"quotactl",
	"quotactl_fd",
	"nfsservctl",
	"sethostname",
	"setdomainname",
	"settimeofday",
	"stime",
	"clock_settime",
	"iopl",
	"ioperm",
	"vm86",
	"vm86old",
	"syslog",
	"vhangup",
	"lookup_dcookie",
	"uselib",
	"ustat",
	"sysfs",
	"_sysctl",
	"pciconfig_read",
	"pciconfig_write",
	/* around the mount table, or long-lived helpers of exploits */
	"open_by_handle_at",
	"userfaultfd",
	"fanotify_init",
};
static const char *const refused_mount[] = {
	"mount",  "umount",   "umount2", "pivot_root", "chroot",        "move_mount", "open_tree",
	"fsopen", "fsconfig", "fsmount", "fspick",     "mount_setattr", "setns",
};
static const char *const absent[] = {"io_uring_setup", "io_uring_enter", "io_uring_register"};
static const unsigned namespaces[] = {CLONE_NEWNS,  CLONE_NEWUTS, CLONE_NEWIPC,   CLONE_NEWUSER,
				      CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWCGROUP};
static const unsigned odd_personality[] = {
	/* bit by bit; a query, 0xffffffff, has bit 31 and passes */
	ADDR_COMPAT_LAYOUT, MMAP_PAGE_ZERO, READ_IMPLIES_EXEC, 0x01, 0x02, 0x04, 0x10, 0x20, 0x40, 0x80,
};

#define DENY(nr, error, ...) seccomp_rule_add(s, SCMP_ACT_ERRNO(error), (nr), __VA_ARGS__)
#define NR(name)             SCMP_SYS(name)
/* SCMP_A0() and its kin leave a field out, which clang's -Wextra does not like */
#define ARG(n, compare, ...)  ((struct scmp_arg_cmp){(n), (compare), ARG_VALUES(__VA_ARGS__, 0, 0)})
#define ARG_VALUES(a, b, ...) (a), (b)

static int deny_names(scmp_filter_ctx s, const char *const *names, size_t n, int error)
{
	for (size_t i = 0; i < n; i++) {
		int nr = seccomp_syscall_resolve_name(names[i]), r;

		if (nr == __NR_SCMP_ERROR)
			continue;
		r = DENY(nr, (uint32_t)error, 0);
		if (r < 0 && r != -EDOM) /* EDOM: not on this architecture */
			return r;
	}
	return 0;
}

static int deny_namespaces(scmp_filter_ctx s)
{
	int r = deny_names(s, refused_mount, ELEMENTS(refused_mount), EPERM);

	if (r == 0)
		r = DENY(OPEN_TREE_ATTR_NR, EPERM, 0);
	if (r == 0)
		r = DENY(NR(clone3), ENOSYS, 0);
	for (size_t i = 0; r == 0 && i < ELEMENTS(namespaces); i++) {
		r = DENY(NR(clone), EPERM, 1, ARG(0, SCMP_CMP_MASKED_EQ, namespaces[i], namespaces[i]));
		if (r == 0)
			r = DENY(NR(unshare), EPERM, 1,
				 ARG(0, SCMP_CMP_MASKED_EQ, namespaces[i], namespaces[i]));
	}
	if (r == 0) /* CLONE_NEWTIME; in clone(2) this bit is part of the exit signal */
		r = DENY(NR(unshare), EPERM, 1, ARG(0, SCMP_CMP_MASKED_EQ, 0x80, 0x80));
	return r;
}

/* The internet, but not every protocol over it: a socket() of these loads a kernel module that nobody else on
 * the machine uses. TCP, UDP, ping and MPTCP (Go's listeners) stay. */
static int deny_protocols(scmp_filter_ctx s)
{
	static const unsigned families[] = {AF_INET, AF_INET6};
	static const unsigned types[] = {SOCK_RDM, SOCK_SEQPACKET, SOCK_DCCP};
	static const unsigned protocols[] = {IPPROTO_DCCP, 115 /* L2TP */, IPPROTO_SCTP, IPPROTO_UDPLITE,
					     256 /* SMC */};
	int r = 0;

	for (size_t f = 0; f < ELEMENTS(families); f++) {
		for (size_t i = 0; r == 0 && i < ELEMENTS(types); i++)
			r = DENY(NR(socket), EPROTONOSUPPORT, 2, ARG(0, SCMP_CMP_EQ, families[f]),
				 ARG(1, SCMP_CMP_MASKED_EQ, 0xf, types[i]));
		for (size_t i = 0; r == 0 && i < ELEMENTS(protocols); i++)
			r = DENY(NR(socket), EPROTONOSUPPORT, 2, ARG(0, SCMP_CMP_EQ, families[f]),
				 ARG(2, SCMP_CMP_MASKED_EQ, 0xffffffffu, protocols[i]));
	}
	return r;
}

/* Allowed: AF_UNIX (perhaps), AF_INET, AF_INET6, AF_NETLINK for routes. 64-bit compares: a family with high
 * bits set is above AF_NETLINK, so that "equal" cannot be walked past. */
static int deny_sockets(scmp_filter_ctx s, bool unix_allowed)
{
	int r = DENY(NR(socket), EAFNOSUPPORT, 1, ARG(0, SCMP_CMP_GT, AF_NETLINK));

	for (unsigned family = 0; r == 0 && family < AF_NETLINK; family++)
		if (family != AF_UNIX && family != AF_INET && family != AF_INET6)
			r = DENY(NR(socket), EAFNOSUPPORT, 1, ARG(0, SCMP_CMP_EQ, family));
	if (r == 0)
		r = DENY(NR(socket), EPERM, 2, ARG(0, SCMP_CMP_EQ, AF_NETLINK), ARG(2, SCMP_CMP_NE, 0));
	if (r == 0)
		r = deny_protocols(s);
	if (r == 0)
		r = DENY(NR(socketpair), EAFNOSUPPORT, 1, ARG(0, SCMP_CMP_NE, AF_UNIX));
	if (r < 0 || unix_allowed)
		return r;
	r = DENY(NR(socket), EPERM, 1, ARG(0, SCMP_CMP_EQ, AF_UNIX));
	if (r == 0)
		r = DENY(NR(socketpair), EPERM, 1, ARG(1, SCMP_CMP_MASKED_EQ, 0xf, SOCK_DGRAM));
	if (r == 0) /* unix(7) makes a datagram socket of it, net/unix/af_unix.c unix_create() */
		r = DENY(NR(socketpair), EPERM, 1, ARG(1, SCMP_CMP_MASKED_EQ, 0xf, SOCK_RAW));
	return r;
}

static int deny_arguments(scmp_filter_ctx s)
{
	int r = DENY(NR(ioctl), EPERM, 1, ARG(1, SCMP_CMP_MASKED_EQ, 0xffffffffu, TIOCSTI));

	if (r == 0)
		r = DENY(NR(ioctl), EPERM, 1,
			 ARG(1, SCMP_CMP_MASKED_EQ, 0xffffffffu, 0x541c /* TIOCLINUX */));
	for (size_t i = 0; r == 0 && i < ELEMENTS(odd_personality); i++)
		r = DENY(NR(personality), EPERM, 1,
			 ARG(0, SCMP_CMP_MASKED_EQ, 0x80000000u | odd_personality[i], odd_personality[i]));
	return r;
}

/* The limit that child_core() set stays. "Done" instead of an error: programs that handle keys give up when
 * they cannot switch core dumps off, and here they are off. */
static int keep_core_limit(scmp_filter_ctx s)
{
	int r = DENY(NR(setrlimit), 0, 1, ARG(0, SCMP_CMP_MASKED_EQ, 0xffffffffu, RLIMIT_CORE));

	if (r == 0)
		r = DENY(NR(prlimit64), 0, 3, ARG(1, SCMP_CMP_MASKED_EQ, 0xffffffffu, RLIMIT_CORE),
			 ARG(2, SCMP_CMP_NE, 0), ARG(3, SCMP_CMP_EQ, 0));
	if (r == 0) /* the old limit is asked for in one: that would stay unanswered */
		r = DENY(NR(prlimit64), EPERM, 3, ARG(1, SCMP_CMP_MASKED_EQ, 0xffffffffu, RLIMIT_CORE),
			 ARG(2, SCMP_CMP_NE, 0), ARG(3, SCMP_CMP_NE, 0));
	return r;
}

static int fill(scmp_filter_ctx s, unsigned variant)
{
	int r = seccomp_attr_set(s, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);

	if (r == 0)
		r = seccomp_attr_set(s, SCMP_FLTATR_CTL_OPTIMIZE,
				     2); /* a tree, not a chain of 400 compares */
	if (r == 0)
		r = deny_names(s, refused, ELEMENTS(refused), EPERM);
	if (r == 0)
		r = deny_names(s, absent, ELEMENTS(absent), ENOSYS);
	if (r == 0 && !(variant & FILTER_NESTED))
		r = deny_namespaces(s);
	if (r == 0)
		r = deny_sockets(s, variant & FILTER_UNIX);
	if (r == 0)
		r = deny_arguments(s);
	if (r == 0 && !(variant & FILTER_CORE))
		r = keep_core_limit(s);
	return r;
}

/* libseccomp below 2.6 exports to an fd only. */
static int export(scmp_filter_ctx s, struct sock_fprog *ret)
{
	CLEANUP_FD int fd = fd_memory("seccomp");
	struct sock_filter *code;
	off_t len;
	int r;

	if (fd < 0)
		return -errno;
	r = seccomp_export_bpf(s, fd);
	if (r < 0)
		return r;
	len = lseek(fd, 0, SEEK_END);
	if (len <= 0 || len / (off_t)sizeof *code > 4096) /* BPF_MAXINSNS */
		return -E2BIG;
	code = xmalloc((size_t)len);
	if (pread(fd, code, (size_t)len, 0) != len) {
		free(code);
		return -EIO;
	}
	ret->filter = code;
	ret->len = (unsigned short)((size_t)len / sizeof *code);
	return 0;
}

int filter_build(unsigned variant, struct sock_fprog *ret, struct err **e)
{
	scmp_filter_ctx s = seccomp_init(SCMP_ACT_ALLOW);
	struct sock_fprog built;
	int r;

	if (!s)
		return err_set(e, ENOMEM, "seccomp: cannot make a filter");
	r = fill(s, variant);
	if (r == 0)
		r = export(s, &built);
	seccomp_release(s);
	if (r < 0)
		return err_sys(e, -r, "seccomp: cannot build the filter");
	*ret = built;
	return 0;
}
