/*
 * attacker: tries one forbidden thing and prints what happened: "ok" or the name of the errno ("EPERM"), one
 * line. Static, so that it runs in any jail. Exit status 0 whatever happens; 2 for a wrong command line.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int say(long r)
{
	int error = errno;
	const char *name = r < 0 ? strerrorname_np(error) : "ok";

	printf("%s\n", name ? name : "unknown");
	return 0;
}

static int number(const char *s)
{
	return (int)strtol(s, NULL, 0);
}

/* --- namespaces and mounts --- */

static int do_unshare(char **a)
{
	return say(unshare(number(a[0])));
}

static int child(void *p)
{
	(void)p;
	return 0;
}

static int do_clone(char **a)
{
	static char stack[65536] __attribute__((aligned(16)));
	pid_t pid = clone(child, stack + sizeof stack, number(a[0]) | SIGCHLD, NULL);

	return say(pid);
}

static int do_clone3(char **a)
{
	uint64_t args[8] = {(uint64_t)number(a[0]), 0, 0, 0, SIGCHLD};
	long pid = syscall(SYS_clone3, args, sizeof args);

	if (pid == 0)
		_exit(0);
	return say(pid);
}

static int do_setns(char **a)
{
	int fd = open(a[0], O_RDONLY);

	return say(fd < 0 ? fd : setns(fd, 0));
}

static int do_mount(char **a)
{
	return say(mount("none", a[0], "tmpfs", 0, NULL));
}

static int do_remount(char **a)
{
	return say(mount(NULL, a[0], NULL, MS_REMOUNT | MS_BIND, NULL));
}

static int do_umount(char **a)
{
	return say(umount2(a[0], MNT_DETACH));
}

static int do_open_tree(char **a)
{
	return say(syscall(428, AT_FDCWD, a[0], 1 /* OPEN_TREE_CLONE */));
}

static int do_fsopen(char **a)
{
	return say(syscall(430, a[0], 0));
}

static int do_pivot(char **a)
{
	return say(syscall(SYS_pivot_root, a[0], a[0]));
}

static int do_chroot(char **a)
{
	return say(chroot(a[0]));
}

/* --- processes --- */

static int do_ptrace(char **a)
{
	return say(ptrace(PTRACE_ATTACH, number(a[0]), NULL, NULL));
}

/* A debugger at work inside the jail: its own child. */
static int do_ptrace_child(char **a)
{
	pid_t pid = fork();
	long r;

	(void)a;
	if (pid == 0) {
		(void)pause();
		_exit(0);
	}
	r = ptrace(PTRACE_SEIZE, pid, NULL, NULL);
	(void)say(r);
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	return 0;
}

static int do_kill(char **a)
{
	return say(kill(number(a[0]), number(a[1])));
}

static int do_vm_read(char **a)
{
	char c;
	struct {
		void *p;
		size_t n;
	} to = {&c, 1}, from = {(void *)0x400000, 1};

	return say(syscall(SYS_process_vm_readv, number(a[0]), &to, 1, &from, 1, 0));
}

/* Leaves a daemon of its own session behind, that ignores everything and writes its pid's start to a file. */
static int do_daemon(char **a)
{
	if (fork() == 0) {
		(void)setsid();
		if (fork() == 0) {
			int fd = open(a[0], O_WRONLY | O_CREAT | O_APPEND, 0644);

			for (int sig = 1; sig < 65; sig++)
				(void)signal(sig, SIG_IGN);
			for (;;) {
				(void)!write(fd, ".", 1);
				(void)usleep(20000);
			}
		}
		_exit(0);
	}
	(void)wait(NULL);
	return say(0);
}

static int do_setuid0(char **a)
{
	(void)a;
	return say(setresuid(0, 0, 0));
}

static int do_seccomp_off(char **a)
{
	(void)a;
	return say(prctl(PR_SET_SECCOMP, 0, 0, 0, 0));
}

/* --- kernel doors --- */

static int do_keyctl(char **a)
{
	(void)a;
	return say(syscall(SYS_keyctl, 0 /* KEYCTL_GET_KEYRING_ID */, -3, 1));
}

static int do_add_key(char **a)
{
	(void)a;
	return say(syscall(SYS_add_key, "user", "x", "y", 1, -3));
}

static int do_bpf(char **a)
{
	char attr[128] = {0};

	(void)a;
	return say(syscall(SYS_bpf, 0, attr, sizeof attr));
}

static int do_perf(char **a)
{
	char attr[128] = {0};

	(void)a;
	return say(syscall(SYS_perf_event_open, attr, 0, -1, -1, 0));
}

static int do_io_uring(char **a)
{
	char params[120] = {0};

	(void)a;
	return say(syscall(425, 4, params));
}

static int do_userfaultfd(char **a)
{
	(void)a;
	return say(syscall(SYS_userfaultfd, 1 /* UFFD_USER_MODE_ONLY */));
}

static int do_kexec(char **a)
{
	(void)a;
	return say(syscall(SYS_kexec_load, 0, 0, NULL, 0));
}

static int do_module(char **a)
{
	(void)a;
	return say(syscall(SYS_init_module, "", 0, ""));
}

static int do_handle(char **a)
{
	struct {
		uint32_t bytes;
		int32_t type;
		char data[8];
	} h = {8, 1, {0}};
	int fd = open(a[0], O_RDONLY | O_DIRECTORY);

	return say(syscall(SYS_open_by_handle_at, fd, &h, O_RDONLY));
}

static int do_personality(char **a)
{
	return say(personality((unsigned long)number(a[0])));
}

/* A terminal of its own, and a byte pushed into it; the command with bits set that the kernel does not look
 * at, too. */
static int do_tiocsti(char **a)
{
	unsigned long command = strtoul(a[0], NULL, 0);
	int master = posix_openpt(O_RDWR | O_NOCTTY), tty;
	char c = 'x', *name;

	if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0 || !(name = ptsname(master)))
		return say(-1);
	(void)setsid();
	tty = open(name, O_RDWR);
	if (tty < 0)
		return say(-1);
	(void)ioctl(tty, TIOCSCTTY, 0);
	return say(syscall(SYS_ioctl, tty, command, &c));
}

static int do_i386(char **a)
{
	int status = 0;
	pid_t pid = fork();

	(void)a;
	if (pid == 0) {
#ifdef __x86_64__
		__asm__ volatile("movl $20, %%eax; int $0x80" ::
					 : "rax", "rcx", "r11", "memory"); /* getpid of i386 */
#else
		(void)raise(SIGSYS);
#endif
		_exit(0);
	}
	(void)waitpid(pid, &status, 0);
	if (WIFSIGNALED(status)) {
		printf("%s\n", sigabbrev_np(WTERMSIG(status)));
		return 0;
	}
	return say(0);
}

/* --- sockets --- */

static int do_socket(char **a)
{
	return say(socket(number(a[0]), number(a[1]), number(a[2])));
}

static int do_socketpair(char **a)
{
	int sv[2];

	return say(socketpair(number(a[0]), number(a[1]), 0, sv));
}

static int unix_address(struct sockaddr_un *sa, const char *path, socklen_t *len)
{
	size_t n = strlen(path);

	memset(sa, 0, sizeof *sa);
	sa->sun_family = AF_UNIX;
	if (n >= sizeof sa->sun_path)
		return -1;
	memcpy(sa->sun_path, path, n);
	*len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (path[0] == '@' ? 0 : 1));
	if (path[0] == '@')
		sa->sun_path[0] = 0;
	return 0;
}

static int do_connect_unix(char **a)
{
	struct sockaddr_un sa;
	socklen_t len;
	int s = socket(AF_UNIX, number(a[1]), 0);

	if (s < 0 || unix_address(&sa, a[0], &len) < 0)
		return say(-1);
	return say(connect(s, (struct sockaddr *)&sa, len));
}

/* A datagram socket pair, turned towards a socket of the host. */
static int do_redirect_pair(char **a)
{
	struct sockaddr_un sa;
	socklen_t len;
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, sv) < 0 || unix_address(&sa, a[0], &len) < 0)
		return say(-1);
	return say(sendto(sv[0], "x", 1, 0, (struct sockaddr *)&sa, len));
}

static int do_connect(char **a)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)number(a[1]))};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)number(a[1]))};
	struct pollfd p = {.events = POLLOUT};
	int error = 0, r;
	socklen_t len = sizeof error;

	if (inet_pton(AF_INET, a[0], &v4.sin_addr) == 1) {
		p.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		r = connect(p.fd, (struct sockaddr *)&v4, sizeof v4);
	} else if (inet_pton(AF_INET6, a[0], &v6.sin6_addr) == 1) {
		p.fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
		r = connect(p.fd, (struct sockaddr *)&v6, sizeof v6);
	} else {
		errno = EINVAL;
		return say(-1);
	}
	if (r == 0 || errno != EINPROGRESS)
		return say(r);
	if (poll(&p, 1, 10000) != 1) {
		printf("ETIMEDOUT\n");
		return 0;
	}
	(void)getsockopt(p.fd, SOL_SOCKET, SO_ERROR, &error, &len);
	errno = error;
	return say(error ? -1 : 0);
}

static int do_connect_fd(char **a)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)number(a[1]))};
	struct sockaddr none = {.sa_family = AF_UNSPEC};

	(void)inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
	(void)connect(number(a[0]), &none, sizeof none);
	return say(connect(number(a[0]), (struct sockaddr *)&to, sizeof to));
}

static int do_udp(char **a)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)number(a[1]))};
	int s = socket(AF_INET, SOCK_DGRAM, 0);
	char c;

	(void)inet_pton(AF_INET, a[0], &to.sin_addr);
	if (connect(s, (struct sockaddr *)&to, sizeof to) < 0 || send(s, "x", 1, 0) < 0)
		return say(-1);
	return say(recv(s, &c, 1, 0)); /* the refusal comes back at once */
}

/* --- files --- */

static int do_read(char **a)
{
	char c;
	int fd = open(a[0], O_RDONLY | O_NONBLOCK);

	return say(fd < 0 ? fd : read(fd, &c, 1));
}

static int do_list(char **a)
{
	char buf[4096];
	int fd = open(a[0], O_RDONLY | O_DIRECTORY);

	return say(fd < 0 ? fd : syscall(SYS_getdents64, fd, buf, sizeof buf));
}

static int do_stat(char **a)
{
	struct stat st;

	return say(lstat(a[0], &st));
}

static int do_write(char **a)
{
	int fd = open(a[0], O_WRONLY | O_CREAT | O_NONBLOCK, 0644);

	return say(fd < 0 ? fd : write(fd, "x", 1));
}

static int do_mkdir(char **a)
{
	return say(mkdir(a[0], 0755));
}

static int do_chmod(char **a)
{
	return say(chmod(a[0], 0777));
}

static int do_unlink(char **a)
{
	return say(unlink(a[0]));
}

static int do_rename(char **a)
{
	return say(rename(a[0], a[1]));
}

static int do_link(char **a)
{
	return say(link(a[0], a[1]));
}

static int do_mknod(char **a)
{
	return say(mknod(a[0], S_IFCHR | 0666, 0x101));
}

static int do_fifo(char **a)
{
	return say(open(a[0], O_WRONLY | O_NONBLOCK));
}

static int do_exec(char **a)
{
	execl(a[0], a[0], (char *)NULL);
	return say(-1);
}

/* Descriptors this process was given beyond 0, 1, 2. */
static int do_fds(char **a)
{
	int n = 0;

	(void)a;
	for (int fd = 3; fd < 1024; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			n++;
	printf("%d\n", n);
	return 0;
}

/* Reaches for a file through a descriptor it was given. */
static int do_openat(char **a)
{
	return say(openat(number(a[0]), a[1], O_RDONLY));
}

static int do_sleep(char **a)
{
	(void)usleep((useconds_t)number(a[0]) * 1000);
	return 0;
}

static const struct {
	const char *name;
	int args;
	int (*fn)(char **a);
} table[] = {
	{"unshare", 1, do_unshare},
	{"clone", 1, do_clone},
	{"clone3", 1, do_clone3},
	{"setns", 1, do_setns},
	{"mount", 1, do_mount},
	{"remount", 1, do_remount},
	{"umount", 1, do_umount},
	{"open_tree", 1, do_open_tree},
	{"fsopen", 1, do_fsopen},
	{"pivot_root", 1, do_pivot},
	{"chroot", 1, do_chroot},
	{"ptrace", 1, do_ptrace},
	{"ptrace_child", 0, do_ptrace_child},
	{"kill", 2, do_kill},
	{"vm_read", 1, do_vm_read},
	{"daemon", 1, do_daemon},
	{"setuid0", 0, do_setuid0},
	{"seccomp_off", 0, do_seccomp_off},
	{"keyctl", 0, do_keyctl},
	{"add_key", 0, do_add_key},
	{"bpf", 0, do_bpf},
	{"perf", 0, do_perf},
	{"io_uring", 0, do_io_uring},
	{"userfaultfd", 0, do_userfaultfd},
	{"kexec", 0, do_kexec},
	{"module", 0, do_module},
	{"handle", 1, do_handle},
	{"personality", 1, do_personality},
	{"tiocsti", 1, do_tiocsti},
	{"i386", 0, do_i386},
	{"socket", 3, do_socket},
	{"socketpair", 2, do_socketpair},
	{"connect_unix", 2, do_connect_unix},
	{"redirect_pair", 1, do_redirect_pair},
	{"connect", 2, do_connect},
	{"connect_fd", 2, do_connect_fd},
	{"udp", 2, do_udp},
	{"read", 1, do_read},
	{"list", 1, do_list},
	{"stat", 1, do_stat},
	{"write", 1, do_write},
	{"mkdir", 1, do_mkdir},
	{"chmod", 1, do_chmod},
	{"unlink", 1, do_unlink},
	{"rename", 2, do_rename},
	{"link", 2, do_link},
	{"mknod", 1, do_mknod},
	{"fifo", 1, do_fifo},
	{"exec", 1, do_exec},
	{"fds", 0, do_fds},
	{"openat", 2, do_openat},
	{"sleep", 1, do_sleep},
};

/* Several commands in one run, separated by "/": each prints its line. */
int main(int argc, char **argv)
{
	size_t k;
	int i = 1;

	setvbuf(stdout, NULL, _IONBF, 0);
	while (i < argc) {
		for (k = 0; k < sizeof table / sizeof table[0] && strcmp(table[k].name, argv[i]) != 0; k++)
			;
		if (k == sizeof table / sizeof table[0] || i + table[k].args >= argc) {
			(void)fprintf(stderr, "attacker: %s?\n", argv[i]);
			return 2;
		}
		(void)table[k].fn(argv + i + 1);
		i += 1 + table[k].args;
		if (i < argc && strcmp(argv[i], "/") != 0)
			return 2;
		i++;
	}
	return 0;
}
