/* What sbxsv-proxy can still do after harden.c, tried from inside: each attempt in a child that calls the
 * real functions. */
#include "base/err.h"
#include "proxy/harden.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

#define GUARD_S 20
#define DONE    0  /* it worked */
#define REFUSED 42 /* with EPERM or EACCES */
#define OTHER   43

static char secret[64], victim_socket[80];
static pid_t bystander;
static int file_fd; /* as standard error may be */
static int unix_fd; /* open before the door closes, as the channel is */

static int result(long r)
{
	if (r >= 0)
		return DONE;
	return errno == EPERM || errno == EACCES ? REFUSED : OTHER;
}

/* Exit code of fn() run hardened, or -signal. */
static int inside(int (*fn)(void))
{
	const struct harden h = {.uid = (uid_t)-1, .gid = (gid_t)-1};
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		(void)alarm(GUARD_S);
		if (harden_identity(&h, NULL) < 0 || harden_confine(&h, NULL, NULL) < 0)
			_exit(99);
		_exit(fn());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static int write_open(void)
{
	return result(open("/tmp/sbxsv-test-harden-new", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}
static int read_write_open(void)
{
	return result(open(secret, O_RDWR | O_CLOEXEC));
}
static int tmpfile_open(void)
{
	return result(open("/tmp", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
}
static int append_open(void)
{
	return result(open(secret, O_RDONLY | O_APPEND | O_CLOEXEC));
}
static int path_open(void)
{
	return result(open(secret, O_PATH | O_CLOEXEC));
}
static int openat2_call(void)
{
	struct {
		uint64_t flags, mode, resolve;
	} how = {O_RDONLY | O_CLOEXEC, 0, 0};

	return result(syscall(437 /* openat2, the same on every architecture */, AT_FDCWD, "/etc/passwd",
			      &how, sizeof how));
}
static int secret_open(void)
{
	return result(open(secret, O_RDONLY | O_CLOEXEC));
}
static int make_dir(void)
{
	return result(mkdir("/tmp/sbxsv-test-harden-dir", 0700));
}
static int remove_file(void)
{
	return result(unlink(secret));
}
static int change_mode(void)
{
	return result(chmod(secret, 0777));
}
static int unix_socket(void)
{
	return result(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
}
static int unix_pair(void)
{
	int pair[2];

	return result(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
}
static int unix_again(void) /* the channel itself must not become a connection to somebody else */
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	(void)snprintf(a.sun_path, sizeof a.sun_path, "%s", victim_socket);
	return connect(unix_fd, (struct sockaddr *)&a, sizeof a) == 0 ? DONE : REFUSED;
}
static int netlink_socket(void)
{
	return result(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0));
}
static int packet_socket(void)
{
	return result(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
}
static int raw_socket(void)
{
	return result(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP));
}
static int ping_socket(void)
{
	return result(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_ICMP));
}
static int mptcp_socket(void)
{
	return result(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 262 /* IPPROTO_MPTCP, kernel 5.6 */));
}
static int listen_call(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd < 0 ? OTHER : result(listen(fd, 1));
}
static int kill_call(void)
{
	return result(kill(bystander, 0));
}
static int abort_other(void)
{
	return result(syscall(SYS_tgkill, bystander, bystander, SIGABRT));
}
/* fcntl(2), F_SETOWN and F_SETSIG: the kernel sends what it is told to. */
static int signal_by_fcntl(void)
{
	return result(fcntl(unix_fd, F_SETSIG, SIGTERM));
}
static int owner_by_fcntl(void)
{
	return result(fcntl(unix_fd, F_SETOWN, bystander));
}
static int owner_by_high_bits(void)
{
	return result(syscall(SYS_fcntl, unix_fd, (long)F_SETOWN | 1L << 40, bystander));
}
static int type_input(void)
{
	char c = 'x';

	return result(ioctl(0, TIOCSTI, &c));
}
static int executable_memory(void)
{
	void *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return result(m == MAP_FAILED ? -1 : 0);
}
static int executable_later(void)
{
	void *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return m == MAP_FAILED ? OTHER : result(mprotect(m, 4096, PROT_READ | PROT_EXEC));
}
static int raise_limit(void)
{
	const struct rlimit r = {100, 100};

	return result(setrlimit(RLIMIT_NOFILE, &r));
}
static int exec_call(void)
{
	(void)execl("/bin/true", "true", (char *)NULL);
	return OTHER;
}
static int fork_call(void)
{
	return result(fork());
}
static int ptrace_call(void)
{
	return result(ptrace(PTRACE_ATTACH, bystander, NULL, NULL));
}
static int unshare_call(void)
{
	return result(syscall(SYS_unshare, 0x10000000 /* CLONE_NEWUSER */));
}
static int memfd_call(void)
{
	return result(memfd_create("x", MFD_CLOEXEC));
}

static int mount_call(void)
{
	return result(mount("none", "/tmp", "tmpfs", 0, NULL));
}
static int setns_call(void)
{
	return result(syscall(SYS_setns, 0, 0));
}
static int chroot_call(void)
{
	return result(chroot("/"));
}
static int rename_call(void)
{
	return result(rename(secret, "/tmp/sbxsv-test-harden-renamed"));
}
static int link_call(void)
{
	return result(link(secret, "/tmp/sbxsv-test-harden-link"));
}
static int symlink_call(void)
{
	return result(symlink(secret, "/tmp/sbxsv-test-harden-symlink"));
}
static int truncate_call(void)
{
	return result(truncate(secret, 0));
}
static int ftruncate_call(void)
{
	return result(ftruncate(file_fd, 0));
}
static int pwrite_call(void)
{
	return result(pwrite(file_fd, "x", 1, 0));
}
static int own_memory(void)
{
	return result(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
}
static int read_own_memory(void) /* Landlock's: not even that */
{
	return result(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
}
static int other_environment(void)
{
	char path[64];

	(void)snprintf(path, sizeof path, "/proc/%d/environ", (int)bystander);
	return result(open(path, O_RDONLY | O_CLOEXEC));
}
static int home_list(void)
{
	return result(open("/var/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}
static int kill_all(void)
{
	return result(kill(-1, 0));
}
static int pidfd_call(void)
{
	return result(syscall(434 /* pidfd_open */, bystander, 0));
}
static int vsock_socket(void)
{
	return result(socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0));
}
static int alg_socket(void)
{
	return result(socket(AF_ALG, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
}
static int bluetooth_socket(void)
{
	return result(socket(AF_BLUETOOTH, SOCK_RAW | SOCK_CLOEXEC, 0));
}
static int udplite_socket(void)
{
	return result(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 136 /* IPPROTO_UDPLITE */));
}
static int high_bits_socket(void) /* the kernel cuts the register to 32 bits */
{
	return result(syscall(SYS_socket, (long)AF_UNIX | 1L << 40, SOCK_STREAM | SOCK_CLOEXEC, 0));
}
static int dumpable_again(void)
{
	return result(prctl(PR_SET_DUMPABLE, 1));
}
static int become_root(void)
{
	return result(setuid(0));
}
static int new_keyring(void)
{
	return result(syscall(SYS_keyctl, 0, 0, 0, 0, 0));
}
static int watch_files(void)
{
	return result(syscall(SYS_inotify_init1, 0));
}
static int performance_events(void)
{
	return result(syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0));
}
static int user_faults(void)
{
	return result(syscall(SYS_userfaultfd, 0));
}
static int read_other(void)
{
	return result(syscall(SYS_process_vm_readv, bystander, NULL, 0, NULL, 0, 0));
}
static int uring_call(void)
{
	return result(syscall(425 /* io_uring_setup */, 1, NULL));
}
static int bpf_call(void)
{
	return result(syscall(SYS_bpf, 0, NULL, 0));
}
static int thread_call(void)
{
	return result(syscall(SYS_clone, CLONE_VM | CLONE_FILES | SIGCHLD, NULL, NULL, NULL, 0));
}

/* What it needs goes on working. */
static int needed(void)
{
	int t = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int u = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int f = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
	int named = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP);

	if (t < 0 || u < 0 || f < 0 || named < 0)
		return OTHER;
	if (fcntl(t, F_SETFL, fcntl(t, F_GETFL) | O_NONBLOCK) < 0 || fcntl(t, F_DUPFD_CLOEXEC, 3) < 0 ||
	    fcntl(t, F_SETFD, FD_CLOEXEC) < 0)
		return OTHER;
	return DONE;
}
static int abort_self(void)
{
	abort();
}

static const struct attempt {
	const char *name;
	int (*fn)(void);
	bool deadly; /* the filter ends the process */
} attempts[] = {
	{"open for writing", write_open, false},
	{"open for reading and writing", read_write_open, false},
	{"O_TMPFILE", tmpfile_open, false},
	{"O_APPEND", append_open, false},
	{"O_PATH", path_open, false},
	{"openat2", openat2_call, false},
	{"mkdir", make_dir, false},
	{"unlink", remove_file, false},
	{"chmod", change_mode, false},
	{"a Unix socket", unix_socket, false},
	{"a pair of Unix sockets", unix_pair, false},
	{"connecting the channel elsewhere", unix_again, false},
	{"a netlink socket", netlink_socket, false},
	{"a packet socket", packet_socket, false},
	{"a raw socket", raw_socket, false},
	{"a ping socket", ping_socket, false},
	{"an MPTCP socket", mptcp_socket, false},
	{"listen", listen_call, false},
	{"kill", kill_call, false},
	{"SIGABRT to another process", abort_other, false},
	{"F_SETSIG", signal_by_fcntl, false},
	{"F_SETOWN", owner_by_fcntl, false},
	{"F_SETOWN with high bits", owner_by_high_bits, false},
	{"TIOCSTI", type_input, false},
	{"executable memory", executable_memory, false},
	{"memory made executable", executable_later, false},
	{"setrlimit", raise_limit, false},
	{"chroot", chroot_call, false},
	{"rename", rename_call, false},
	{"link", link_call, false},
	{"symlink", symlink_call, false},
	{"truncate", truncate_call, false},
	{"ftruncate of an open file", ftruncate_call, false},
	{"pwrite", pwrite_call, false},
	{"writing its own memory", own_memory, false},
	{"kill of everybody", kill_all, false},
	{"a pidfd", pidfd_call, false},
	{"a vsock socket", vsock_socket, false},
	{"a crypto socket", alg_socket, false},
	{"a Bluetooth socket", bluetooth_socket, false},
	{"a UDP-Lite socket", udplite_socket, false},
	{"a Unix socket with high bits", high_bits_socket, false},
	{"becoming dumpable", dumpable_again, false},
	{"becoming root", become_root, false},
	{"a keyring", new_keyring, false},
	{"watching files", watch_files, false},
	{"performance events", performance_events, false},
	{"user faults", user_faults, false},
	{"exec", exec_call, true},
	{"mount", mount_call, true},
	{"setns", setns_call, true},
	{"reading another process", read_other, true},
	{"io_uring", uring_call, true},
	{"bpf", bpf_call, true},
	{"a thread", thread_call, true},
	{"fork", fork_call, true},
	{"ptrace", ptrace_call, true},
	{"unshare", unshare_call, true},
	{"memfd_create", memfd_call, true},
};

static void test_denied(void **state)
{
	unsigned failed = 0;

	(void)state;
	for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++) {
		int r = inside(attempts[i].fn);

		if (r == (attempts[i].deadly ? -SIGSYS : REFUSED))
			continue;
		print_error("%s: %d\n", attempts[i].name, r);
		failed++;
	}
	assert_int_equal(failed, 0);
	assert_int_equal(kill(bystander, 0), 0); /* nothing hit it */
	assert_int_equal(access(secret, R_OK), 0);
}

/* seccomp sees no paths: this is Landlock's. */
static void test_files(void **state)
{
	(void)state;
	if (syscall(444 /* landlock_create_ruleset */, NULL, 0, 1 /* version */) < 1)
		skip();
	assert_int_equal(inside(secret_open), REFUSED);
	assert_int_equal(inside(home_list), REFUSED);
	assert_int_equal(inside(read_own_memory), REFUSED);
	assert_int_equal(inside(other_environment), REFUSED);
}

static void test_needed(void **state)
{
	(void)state;
	assert_int_equal(inside(needed), DONE);
	assert_int_equal(inside(abort_self), -SIGABRT);
}

static int setup(void **state)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd, pair[2];

	(void)state;
	(void)snprintf(secret, sizeof secret, "/var/tmp/sbxsv-harden-%d", (int)getpid());
	(void)snprintf(victim_socket, sizeof victim_socket, "%s.sock", secret);
	file_fd = open(secret, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (file_fd < 0)
		return -1;
	(void)snprintf(a.sun_path, sizeof a.sun_path, "%s", victim_socket);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 5) < 0)
		return -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	unix_fd = pair[0];
	bystander = fork();
	if (bystander == 0) {
		(void)alarm(60 * GUARD_S);
		(void)pause();
		_exit(0);
	}
	return bystander > 0 ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	(void)kill(bystander, SIGKILL);
	(void)waitpid(bystander, NULL, 0);
	(void)unlink(secret);
	(void)unlink(victim_socket);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_denied),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_needed),
	};

#ifdef SANITIZED
	puts("built with sanitizers, which the proxy's confinement leaves no room for");
	return 77;
#endif
	return cmocka_run_group_tests(tests, setup, teardown);
}
