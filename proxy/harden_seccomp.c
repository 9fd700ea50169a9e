/* The system calls of the proxy, found by reading what it, libev and c-ares call. Everything else is EPERM,
 * and what only an attacker would want ends the process. */
#include "base/log.h"
#include "proxy/harden.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static const int plain[] = {
	SCMP_SYS(read),
	SCMP_SYS(write),
	SCMP_SYS(readv),
	SCMP_SYS(writev),
	SCMP_SYS(recvfrom),
	SCMP_SYS(recvmsg),
	SCMP_SYS(sendto),
	SCMP_SYS(sendmsg),
	SCMP_SYS(recvmmsg),
	SCMP_SYS(recvmmsg_time64),
	SCMP_SYS(sendmmsg),
	SCMP_SYS(recv),
	SCMP_SYS(send),
	SCMP_SYS(connect),
	SCMP_SYS(bind),
	SCMP_SYS(shutdown),
	SCMP_SYS(close),
	SCMP_SYS(accept4),
	SCMP_SYS(accept),
	SCMP_SYS(setsockopt),
	SCMP_SYS(getsockopt),
	SCMP_SYS(getsockname),
	SCMP_SYS(getpeername),
	SCMP_SYS(epoll_create1),
	SCMP_SYS(epoll_create),
	SCMP_SYS(epoll_ctl),
	SCMP_SYS(epoll_wait),
	SCMP_SYS(epoll_pwait),
	SCMP_SYS(epoll_pwait2),
	SCMP_SYS(eventfd2),
	SCMP_SYS(timerfd_create),
	SCMP_SYS(timerfd_settime),
	SCMP_SYS(pipe2),
	SCMP_SYS(poll),
	SCMP_SYS(ppoll),
	SCMP_SYS(fstat),
	SCMP_SYS(newfstatat),
	SCMP_SYS(statx),
	SCMP_SYS(stat),
	SCMP_SYS(lstat),
	SCMP_SYS(lseek),
	SCMP_SYS(pread64),
	SCMP_SYS(munmap),
	SCMP_SYS(madvise),
	SCMP_SYS(brk),
	SCMP_SYS(futex),
	SCMP_SYS(clock_gettime),
	SCMP_SYS(clock_getres),
	SCMP_SYS(gettimeofday),
	SCMP_SYS(time),
	SCMP_SYS(clock_nanosleep),
	SCMP_SYS(nanosleep),
	SCMP_SYS(getrandom),
	SCMP_SYS(rt_sigreturn),
	SCMP_SYS(rt_sigaction),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(sigreturn),
	SCMP_SYS(getpid),
	SCMP_SYS(gettid),
	SCMP_SYS(getuid),
	SCMP_SYS(geteuid),
	SCMP_SYS(getgid),
	SCMP_SYS(getegid),
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
	SCMP_SYS(restart_syscall),
	SCMP_SYS(uname),
	SCMP_SYS(sysinfo),
	SCMP_SYS(sched_yield),
	SCMP_SYS(_llseek),
	SCMP_SYS(fstat64),
	SCMP_SYS(fstatat64),
	SCMP_SYS(getcwd),
};

static const int deadly[] = {
	SCMP_SYS(execve),
	SCMP_SYS(execveat),
	SCMP_SYS(ptrace),
	SCMP_SYS(process_vm_readv),
	SCMP_SYS(process_vm_writev),
	SCMP_SYS(fork),
	SCMP_SYS(vfork),
	SCMP_SYS(clone),
	SCMP_SYS(clone3),
	SCMP_SYS(unshare),
	SCMP_SYS(setns),
	SCMP_SYS(mount),
	SCMP_SYS(bpf),
	SCMP_SYS(io_uring_setup),
	SCMP_SYS(kexec_load),
	SCMP_SYS(init_module),
	SCMP_SYS(pidfd_getfd),
	SCMP_SYS(open_by_handle_at),
	SCMP_SYS(memfd_create),
};

static int rule(scmp_filter_ctx f, uint32_t action, int call)
{
	int r = seccomp_rule_add_array(f, action, call, 0, NULL);

	return r == -EDOM || r == -EEXIST ? 0 : r; /* not on this architecture */
}

struct arg_rule {
	int call;
	unsigned arg;
	enum scmp_compare op;
	scmp_datum_t a, b; /* MASKED_EQ: mask and value */
};
#define LOW_32 0xffffffff /* the kernel looks at 32 bits of an int, whatever the register holds */

#define READ_ONLY (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_PATH)
static const struct arg_rule with_argument[] = {
	/* files: to read only */
	{SCMP_SYS(open), 1, SCMP_CMP_MASKED_EQ, READ_ONLY, 0},
	{SCMP_SYS(openat), 2, SCMP_CMP_MASKED_EQ, READ_ONLY, 0},
	/* memory: nothing executable */
	{SCMP_SYS(mmap), 2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0},
	{SCMP_SYS(mmap2), 2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0},
	{SCMP_SYS(mprotect), 2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0},
	{SCMP_SYS(mremap), 3, SCMP_CMP_MASKED_EQ, ~(scmp_datum_t)MREMAP_MAYMOVE, 0},
	{SCMP_SYS(ioctl), 1, SCMP_CMP_MASKED_EQ, LOW_32, FIONREAD},
	{SCMP_SYS(ioctl), 1, SCMP_CMP_MASKED_EQ, LOW_32, FIONBIO},
	/* F_SETOWN and F_SETSIG would send any signal to any process of this user, the supervisor too */
	{SCMP_SYS(fcntl), 1, SCMP_CMP_MASKED_EQ, LOW_32, F_GETFD},
	{SCMP_SYS(fcntl), 1, SCMP_CMP_MASKED_EQ, LOW_32, F_SETFD},
	{SCMP_SYS(fcntl), 1, SCMP_CMP_MASKED_EQ, LOW_32, F_GETFL},
	{SCMP_SYS(fcntl), 1, SCMP_CMP_MASKED_EQ, LOW_32, F_SETFL},
	{SCMP_SYS(fcntl), 1, SCMP_CMP_MASKED_EQ, LOW_32, F_DUPFD_CLOEXEC},
	{SCMP_SYS(fcntl64), 1, SCMP_CMP_MASKED_EQ, LOW_32, F_GETFD},
	{SCMP_SYS(fcntl64), 1, SCMP_CMP_MASKED_EQ, LOW_32, F_SETFD},
	{SCMP_SYS(fcntl64), 1, SCMP_CMP_MASKED_EQ, LOW_32, F_GETFL},
	{SCMP_SYS(fcntl64), 1, SCMP_CMP_MASKED_EQ, LOW_32, F_SETFL},
	{SCMP_SYS(fcntl64), 1, SCMP_CMP_MASKED_EQ, LOW_32, F_DUPFD_CLOEXEC},
	/* limits: to read only (the new value is NULL) */
	{SCMP_SYS(prlimit64), 2, SCMP_CMP_EQ, 0, 0},
};

static int add_with_argument(scmp_filter_ctx f, const struct arg_rule *a)
{
	const struct scmp_arg_cmp cmp = {.arg = a->arg, .op = a->op, .datum_a = a->a, .datum_b = a->b};
	int r = seccomp_rule_add_array(f, SCMP_ACT_ALLOW, a->call, 1, &cmp);

	return r == -EDOM ? 0 : r;
}

/* Sockets are of TCP and UDP (the netlink socket is open already): not raw, not of another protocol. */
static int add_sockets(scmp_filter_ctx f)
{
	static const int families[] = {AF_INET, AF_INET6}, types[] = {SOCK_STREAM, SOCK_DGRAM};
	const scmp_datum_t type = LOW_32 & ~(scmp_datum_t)(SOCK_CLOEXEC | SOCK_NONBLOCK);
	int r = 0;

	for (size_t i = 0; i < 4 && !r; i++) {
		scmp_datum_t protocol = i & 1 ? IPPROTO_UDP : IPPROTO_TCP;

		for (int k = 0; k < 2 && !r; k++) /* named, or 0 for the only one */
			r = seccomp_rule_add(
				f, SCMP_ACT_ALLOW, SCMP_SYS(socket), 3,
				SCMP_A0(SCMP_CMP_MASKED_EQ, LOW_32, (scmp_datum_t)families[i / 2]),
				SCMP_A1(SCMP_CMP_MASKED_EQ, type, (scmp_datum_t)types[i & 1]),
				SCMP_A2(SCMP_CMP_MASKED_EQ, LOW_32, k ? protocol : 0));
	}
	return r;
}

/* abort() of ourselves, not of the supervisor. */
static int add_abort(scmp_filter_ctx f)
{
	return seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 2,
				SCMP_A0(SCMP_CMP_MASKED_EQ, LOW_32, (scmp_datum_t)getpid()),
				SCMP_A2(SCMP_CMP_MASKED_EQ, LOW_32, SIGABRT));
}

int harden_seccomp(struct err **e)
{
	scmp_filter_ctx f = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r = f ? 0 : -ENOMEM;

	for (size_t i = 0; i < ELEMENTS(plain) && !r; i++)
		r = rule(f, SCMP_ACT_ALLOW, plain[i]);
	for (size_t i = 0; i < ELEMENTS(deadly) && !r; i++)
		r = rule(f, SCMP_ACT_KILL_PROCESS, deadly[i]);
	for (size_t i = 0; i < ELEMENTS(with_argument) && !r; i++)
		r = add_with_argument(f, &with_argument[i]);
	if (!r)
		r = add_sockets(f);
	if (!r)
		r = add_abort(f);
	if (!r)
		r = seccomp_load(f);
	if (f)
		seccomp_release(f);
	if (r)
		return err_sys(
			e, -r,
			"the seccomp filter cannot be put in place, and without it the proxy does not run "
			"(a kernel without CONFIG_SECCOMP_FILTER?)");
	return 0;
}
