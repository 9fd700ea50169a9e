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
 * It makes itself non-dumpable before the app exists: otherwise the app could ptrace it, and outlive its own
 * stop. All signals stay blocked for its whole life and are taken one by one: a blocked signal is queued even
 * for pid 1, for which default actions do not exist, and none is lost between the launch and the first wait.
 *
 * It includes nothing of the project, allocates nothing, and needs no file inside the jail. See raw.h.
 */
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
enum { NOTE_EXEC_FAILED = 0x5801, NOTE_STARTED, NOTE_EXITED };
struct note {
	int32_t type, value; /* errno, pid, wait status */
};

struct app {
	int sock;
	int pid;
	bool session, namespaced;
	char **argv; /* [0] the program's path, then its own argv */
	char **env;
};

static void tell(const struct app *a, int type, int value)
{
	struct note n = {.type = type, .value = value};

	while (raw(__NR_sendto, a->sock, &n, sizeof n, MSG_NOSIGNAL, 0, 0) == -EINTR)
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
	if (a->session)
		(void)raw(__NR_setsid);
	if (!a->namespaced) /* cleared by fork; in a namespace the end of pid 1 is enough */
		(void)raw(__NR_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	set_blocked(0);
	tell(a, NOTE_EXEC_FAILED, (int)-raw(__NR_execve, a->argv[0], a->argv + 1, a->env));
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
		tell(a, NOTE_EXEC_FAILED, (int)-pid);
		leave(FAILED);
	}
	a->pid = (int)pid;
	tell(a, NOTE_STARTED, a->pid);
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

static _Noreturn void finish(const struct app *a, int status)
{
	tell(a, NOTE_EXITED, status);
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
static bool reap(const struct app *a, int *ret_status)
{
	bool ended = false;
	int status = 0;
	long pid;

	while ((pid = raw(__NR_wait4, -1, &status, WNOHANG | __WALL, 0)) > 0)
		if (pid == a->pid) {
			*ret_status = status;
			ended = true;
		}
	return ended;
}

static _Noreturn void serve(const struct app *a)
{
	const uint64_t all = ~(uint64_t)0;
	siginfo_t si;
	int status = 0;

	for (;;) {
		if (raw(__NR_rt_sigtimedwait, &all, &si, 0, SIGSET_BYTES) < 0)
			continue; /* EINTR: stopped and continued */
		if (si.si_signo != SIGCHLD)
			forward(a, &si);
		else if (reap(a, &status))
			finish(a, status);
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
	a.argv = argv + 3;
	a.env = env;
	if (raw(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
	    raw(__NR_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		leave(FAILED);
	if (!a.namespaced)
		(void)raw(__NR_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	set_blocked(~(uint64_t)0);
	(void)raw(__NR_fcntl, a.sock, F_SETFD, FD_CLOEXEC);
	(void)raw(__NR_fcntl, a.sock + 2, F_SETFD, FD_CLOEXEC);
	/* Did the supervisor die before the death signal was set? Then its end of the socket is gone. */
	p.fd = a.sock;
	if (raw(__NR_ppoll, &p, 1, &now, 0, 0) != 0)
		leave(FAILED);
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
