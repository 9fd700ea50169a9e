/*
 * sbxsv-init: the first process of a jail.
 *
 *   sbxsv-init FD FLAGS PROGRAM ARG0 [ARG...]
 *
 * Theory of operation. It starts PROGRAM, forwards signals to it, reaps whatever the app leaves behind, and
 * ends when the app ends. As pid 1 of a pid namespace its end is the end of everything in the jail: the
 * kernel kills the rest. FLAGS are letters: `s` a session of its own for the app, `p` we are pid 1 of a
 * namespace; without it (Enforce=off) we are a subreaper instead and kill what is left ourselves, as well as
 * that can be done.
 *
 * FD + 2 is the listener of the jail's audit, where there is one. It is kept and never read: as long as some
 * process has it, a call that waits there waits, and does not fail with ENOSYS because the supervisor is gone.
 *
 * FD is the setup socket of the launch. Over it go facts, each a `struct note`: the program could not be
 * executed, the program was started (always, so it means something only when it comes first), and at the end
 * its raw wait status (an exit code alone cannot tell "killed by signal 9" from "exit 137").
 *
 * `n`: FD + 3 is the jail's $NOTIFY_SOCKET, and what comes in there is passed on over FD, each message behind a
 * note. It is read here, and not by the supervisor, because of who is asked: the kernel tells the reader the
 * sender's pid in the reader's own pid namespace, and a process outside of this one has none there (0), be it
 * alive or gone by then. The supervisor could only look up a pid that may be somebody else's already. The
 * socket announces itself by SIGIO. While the supervisor takes nothing, nothing is read, and senders wait.
 *
 * `r`: FD + 4 is a pipe that becomes the app's descriptor 3.
 *
 * Over FD also come orders: a command to run beside the app ([Health] Exec=), one at a time, and to kill it. It is a
 * child of ours like the app, so that it has what the app has and nothing more: namespaces, identity, no
 * capabilities, no_new_privs, filters, Landlock and limits are all in force here already. Its wait status goes back.
 *
 * It makes itself non-dumpable before the app exists: otherwise the app could ptrace it, and outlive its own
 * stop. All signals stay blocked for its whole life and are taken one by one: a blocked signal is queued even
 * for pid 1, for which default actions do not exist, and none is lost between the launch and the first wait.
 *
 * It includes nothing of the project, allocates nothing, and needs no file inside the jail. See raw.h.
 */
/* There is no libc to report a smashed stack, and no canary. CFLAGS of a distribution come last on the command line and
 * would ask for both again. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((no_stack_protector)), apply_to = function)
#elif defined(__GNUC__)
#pragma GCC optimize("no-stack-protector")
#endif
#include "init/raw.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

enum { SIGSET_BYTES = 8 /* the kernel's sigset_t, include/uapi/asm-generic/signal.h */, FAILED = 125 };

/* The same in src/sandbox/jail.h. */
enum { NOTE_EXEC_FAILED = 0x5801, NOTE_STARTED, NOTE_EXITED, NOTE_NOTIFY, NOTE_CHECKED };
enum { ORDER_CHECK = 0x5901, ORDER_KILL };
enum { ORDER_MAX = 4096, ORDER_WORDS = 64 };
enum { NOTIFY_MAX = 4096 /* bytes of a message, systemd's NOTIFY_BUFFER_MAX */, READY_FD = 3 };
struct note {
	int32_t type,
		value; /* errno, pid, wait status (of a check that could not start -errno); of a message 0, or the errno why there is none */
};

struct app {
	int sock;
	int pid, check;    /* check: 0, or that of the command beside the app */
	int notify, ready; /* -1: none */
	bool session, namespaced;
	bool later;  /* messages wait until the supervisor reads */
	char **argv; /* [0] the program's path, then its own argv */
	char **env;
};

static void tell(int sock, int type, int value)
{
	struct note n = {.type = type, .value = value};

	while (raw(__NR_sendto, sock, &n, sizeof n, MSG_NOSIGNAL, 0, 0) == -EINTR)
		;
}

static _Noreturn void leave(int status)
{
	for (;;)
		(void)raw(__NR_exit_group, status);
}

static bool has(const char *letters, char c)
{
	while (*letters && *letters != c)
		letters++;
	return *letters != 0;
}

static int number(const char *s)
{
	int n = 0;

	while (*s >= '0' && *s <= '9')
		n = n * 10 + (*s++ - '0');
	return n;
}

static void set_blocked(uint64_t set)
{
	(void)raw(__NR_rt_sigprocmask, SIG_SETMASK, &set, 0, SIGSET_BYTES);
}

/* In the forked child. */
static _Noreturn void become(const struct app *a)
{
	int sock = a->sock;

	if (a->ready >= 0) { /* the setup socket stands where it belongs */
		sock = (int)raw(__NR_fcntl, sock, F_DUPFD_CLOEXEC, 16);
		if (sock < 0 || raw(__NR_dup3, a->ready, READY_FD, 0) < 0)
			leave(127);
	}
	if (a->session)
		(void)raw(__NR_setsid);
	if (!a->namespaced) /* cleared by fork; in a namespace the end of pid 1 is enough */
		(void)raw(__NR_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	set_blocked(0);
	tell(sock, NOTE_EXEC_FAILED, (int)-raw(__NR_execve, a->argv[0], a->argv + 1, a->env));
	leave(127);
}

/* CLONE_VFORK: we go on when the child has become the program, or has said that it cannot. */
static void start(struct app *a)
{
	const long vfork_flag = 0x4000; /* linux/sched.h */
	long pid = raw(__NR_clone, vfork_flag | SIGCHLD, 0, 0, 0, 0);

	if (pid == 0)
		become(a);
	if (pid < 0) {
		tell(a->sock, NOTE_EXEC_FAILED, (int)-pid);
		leave(FAILED);
	}
	if (a->ready >= 0)
		(void)raw(__NR_close, a->ready);
	a->pid = (int)pid;
	tell(a->sock, NOTE_STARTED, a->pid);
}

/* --- $NOTIFY_SOCKET --- */

/* The sender as this pid namespace knows it, 0 when it does not. Descriptors that came along are closed: nothing
 * is kept for an app, and who waits for that (sd_notify_barrier(3)) waits no longer. */
static int sender_of(struct msghdr *m)
{
	int pid = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		const void *data = CMSG_DATA(c);
		size_t n = c->cmsg_len - CMSG_LEN(0);

		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_CREDENTIALS && n >= sizeof(struct ucred))
			pid = ((const struct ucred *)data)->pid;
		for (size_t i = 0; c->cmsg_type == SCM_RIGHTS && i < n / sizeof(int); i++)
			(void)raw(__NR_close, ((const int *)data)[i]);
	}
	return pid;
}

static bool supervisor_reads(const struct app *a)
{
	struct pollfd p = {.fd = a->sock, .events = POLLOUT};
	struct timespec now = {0};

	return raw(__NR_ppoll, &p, 1, &now, 0, 0) > 0 && (p.revents & POLLOUT);
}

static void pass_on(struct app *a)
{
	struct {
		struct note note;
		char text[NOTIFY_MAX];
	} out;
	_Alignas(struct cmsghdr) char control[1280]; /* the sender and 253 descriptors, SCM_MAX_FD */
	long n;

	while (!(a->later = !supervisor_reads(a))) {
		struct iovec v = {out.text, sizeof out.text};
		struct msghdr m = {.msg_iov = &v,
				   .msg_iovlen = 1,
				   .msg_control = control,
				   .msg_controllen = sizeof control};

		n = raw(__NR_recvmsg, a->notify, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (n == -EINTR)
			continue;
		if (n < 0)
			return;
		out.note.type = NOTE_NOTIFY;
		out.note.value = !sender_of(&m) ? EPERM : m.msg_flags & MSG_TRUNC ? EMSGSIZE : 0;
		(void)raw(__NR_sendto, a->sock, &out, sizeof out.note + (out.note.value ? 0 : (size_t)n),
			  MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0);
	}
}

static void announce(int fd)
{
	if (fd >= 0 && (raw(__NR_fcntl, fd, F_SETOWN, raw(__NR_getpid)) < 0 ||
			raw(__NR_fcntl, fd, F_SETFL, O_ASYNC) < 0))
		leave(FAILED);
}

/* --- the command beside the app --- */

static const char *search_path(char **env)
{
	for (; *env; env++) {
		const char *want = "PATH=", *s = *env;

		while (*want && *want == *s)
			want++, s++;
		if (!*want)
			return s;
	}
	return "";
}

/* Returns only when nothing could be executed: the errno. */
static int execute(char **argv, char **env)
{
	const char *dirs = search_path(env);
	char path[4096];
	long r, why = -ENOENT;

	if (has(argv[0], '/'))
		return (int)-raw(__NR_execve, argv[0], argv, env);
	while (*dirs) {
		size_t n = 0;

		for (; *dirs && *dirs != ':'; dirs++)
			if (n < sizeof path - 2)
				path[n++] = *dirs;
		dirs += *dirs == ':';
		path[n++] = '/';
		for (const char *s = argv[0]; *s && n < sizeof path - 1; s++)
			path[n++] = *s;
		path[n] = 0;
		r = raw(__NR_execve, path, argv, env);
		if (r != -ENOENT)
			why = r;
	}
	return (int)-why;
}

/* `text`: words, each ended by a NUL. */
static void check(struct app *a, char *text, size_t len)
{
	const long vfork_flag = 0x4000; /* linux/sched.h */
	char *argv[ORDER_WORDS + 1];
	size_t n = 0;
	long pid;

	for (size_t at = 0; at < len && n < ORDER_WORDS; n++) {
		argv[n] = text + at;
		while (text[at])
			at++;
		at++;
	}
	argv[n] = 0;
	pid = raw(__NR_clone, vfork_flag | SIGCHLD, 0, 0, 0, 0);
	if (pid == 0) {
		(void)raw(__NR_setsid);
		if (!a->namespaced)
			(void)raw(__NR_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		set_blocked(0);
		leave(execute(argv, a->env) == ENOENT ? 127 : 126); /* as a shell does */
	}
	if (pid < 0)
		tell(a->sock, NOTE_CHECKED, (int)pid);
	else
		a->check = (int)pid;
}

static void obey(struct app *a)
{
	struct {
		struct note note;
		char text[ORDER_MAX];
	} in;
	long n, head = sizeof in.note;

	for (;;) {
		n = raw(__NR_recvfrom, a->sock, &in, sizeof in, MSG_DONTWAIT, 0, 0);
		if (n == -EINTR)
			continue;
		if (n < head)
			return;
		if (in.note.type == ORDER_CHECK && !a->check && n > head && !in.text[n - head - 1])
			check(a, in.text, (size_t)(n - head));
		else if (in.note.type == ORDER_KILL && a->check)
			(void)raw(__NR_kill, -a->check, SIGKILL);
	}
}

/* --- without a pid namespace --- */

/* The children of this process, as the kernel lists them: "12 15 ". */
static void kill_listed(const char *p)
{
	while (*p) {
		int pid = number(p);

		if (pid > 1)
			(void)raw(__NR_kill, pid, SIGKILL);
		while (*p && *p++ != ' ')
			;
	}
}

/* Children of ours, orphans included (subreaper): killed generation by generation, until none is left. What
 * forks faster than we read can escape: only a pid namespace has no such gap, and `status` says so. */
static void kill_the_rest(void)
{
	struct timespec pause = {.tv_nsec = 2000000};
	char buf[4096];

	for (int round = 0; round < 500; round++) {
		long fd = raw(__NR_openat, AT_FDCWD, "/proc/thread-self/children", O_RDONLY | O_CLOEXEC, 0);
		long n = fd < 0 ? fd : raw(__NR_read, fd, buf, sizeof buf - 1);
		long pid;

		if (fd >= 0)
			(void)raw(__NR_close, fd);
		if (n > 0) {
			buf[n] = 0;
			kill_listed(buf);
		}
		do
			pid = raw(__NR_wait4, -1, 0, WNOHANG | __WALL, 0);
		while (pid > 0 || pid == -EINTR);
		if (pid == -ECHILD)
			return;
		(void)raw(__NR_nanosleep, &pause, 0);
	}
}

/* --- its life --- */

static _Noreturn void finish(struct app *a, int status)
{
	if (a->notify >= 0)
		pass_on(a);
	tell(a->sock, NOTE_EXITED, status);
	if (!a->namespaced) {
		if (a->session)
			(void)raw(__NR_kill, -a->pid, SIGKILL);
		kill_the_rest();
	}
	leave(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void forward(const struct app *a, const siginfo_t *si)
{
	/* without a session of its own the app has had what the terminal sent */
	if (!a->session && si->si_code == SI_KERNEL)
		return;
	(void)raw(__NR_kill, a->session ? -a->pid : a->pid, si->si_signo);
}

/* True when the app itself has ended. */
static bool reap(struct app *a, int *ret_status)
{
	bool ended = false;
	int status = 0;
	long pid;

	while ((pid = raw(__NR_wait4, -1, &status, WNOHANG | __WALL, 0)) > 0)
		if (pid == a->pid) {
			*ret_status = status;
			ended = true;
		} else if (pid == a->check) {
			a->check = 0;
			tell(a->sock, NOTE_CHECKED, status);
		}
	return ended;
}

static _Noreturn void serve(struct app *a)
{
	const struct timespec soon = {.tv_nsec = 20000000};
	const uint64_t all = ~(uint64_t)0;
	siginfo_t si;
	int status = 0;

	for (;;) {
		if (raw(__NR_rt_sigtimedwait, &all, &si, a->later ? &soon : 0, SIGSET_BYTES) < 0) {
			if (a->later) /* else EINTR: stopped and continued */
				pass_on(a);
			continue;
		}
		if (si.si_signo ==
		    SIGIO) { /* one that somebody sent too: while it was pending, it was ours as well */
			obey(a);
			if (a->notify >= 0)
				pass_on(a);
		}
		if (si.si_signo == SIGCHLD) {
			if (reap(a, &status))
				finish(a, status);
		} else if (si.si_signo != SIGIO || si.si_code != SI_KERNEL) {
			forward(a, &si);
		}
	}
}

static _Noreturn void run(int argc, char **argv, char **env)
{
	struct app a = {.sock = -1};
	struct timespec now = {0};
	struct pollfd p = {0};

	if (argc < 5)
		leave(FAILED);
	a.sock = number(argv[1]);
	a.session = has(argv[2], 's');
	a.namespaced = has(argv[2], 'p');
	a.notify = has(argv[2], 'n') ? a.sock + 3 : -1;
	a.ready = has(argv[2], 'r') ? a.sock + 4 : -1;
	a.argv = argv + 3;
	a.env = env;
	if (raw(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
	    raw(__NR_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		leave(FAILED);
	if (!a.namespaced)
		(void)raw(__NR_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	set_blocked(~(uint64_t)0);
	(void)raw(__NR_fcntl, a.sock, F_SETFD, FD_CLOEXEC);
	for (int fd = a.sock + 2; fd <= a.sock + 4; fd++)
		(void)raw(__NR_fcntl, fd, F_SETFD, FD_CLOEXEC);
	/* Did the supervisor die before the death signal was set? Then its end of the socket is gone. */
	p.fd = a.sock;
	if (raw(__NR_ppoll, &p, 1, &now, 0, 0) != 0)
		leave(FAILED);
	announce(a.sock);
	announce(a.notify);
	start(&a);
	serve(&a);
}

#if INIT_FREESTANDING
_Noreturn void init_start(long *stack);
_Noreturn void init_start(long *stack)
{
	char **argv = (char **)(stack + 1);

	run((int)stack[0], argv, argv + stack[0] + 1);
}
#else
int main(int argc, char **argv, char **env)
{
	run(argc, argv, env);
}
#endif
#ifdef __clang__
#pragma clang attribute pop
#endif
