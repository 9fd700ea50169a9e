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
 * FD is the setup socket of the launch. Over it go three facts, each a `struct note`: the program was
 * executed, it could not be, and at the end its raw wait status (an exit code alone cannot tell "killed by
 * signal 9" from "exit 137").
 *
 * It makes itself non-dumpable before the app exists: otherwise the app could ptrace it, and outlive its own
 * stop. All signals stay blocked for its whole life and are taken by sigwaitinfo: a blocked signal is queued
 * even for pid 1, for which default actions do not exist, and none is lost between the launch and the first
 * wait.
 *
 * It includes nothing of the project, keeps no heap, and is linked statically: nothing inside the jail is
 * needed to run it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The same in src/sandbox/jail.h. */
enum { NOTE_EXEC_FAILED = 0x5801, NOTE_STARTED, NOTE_EXITED };
struct note {
	int32_t type, value; /* errno, pid, wait status */
};

struct app {
	int sock;
	pid_t pid;
	bool session, namespaced;
	char **argv; /* [0] the program's path, then its own argv */
};

static void tell(const struct app *a, int type, int value)
{
	struct note n = {.type = type, .value = value};

	while (send(a->sock, &n, sizeof n, MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

/* In the vfork child: shares our memory, so it writes nothing but the error. */
static void become(const struct app *a, volatile int *error)
{
	sigset_t none;

	(void)sigemptyset(&none);
	if (a->session)
		(void)setsid();
	if (!a->namespaced) /* cleared by fork; in a namespace the end of pid 1 is enough */
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)execv(a->argv[0], a->argv + 1);
	*error = errno;
	_exit(127);
}

static int start(struct app *a)
{
	volatile int error = 0;
	pid_t pid = vfork();

	if (pid == 0)
		become(a, &error);
	if (pid < 0)
		error = errno;
	a->pid = pid;
	if (error) {
		tell(a, NOTE_EXEC_FAILED, error);
		return -1;
	}
	tell(a, NOTE_STARTED, pid);
	return 0;
}

/* Children of ours, orphans included (subreaper): killed generation by generation, until none is left. What
 * forks faster than we read can escape: only a pid namespace has no such gap, and `status` says so. */
static void kill_the_rest(void)
{
	char buf[4096];
	struct timespec pause = {.tv_nsec = 2000000};

	for (int round = 0; round < 500; round++) {
		int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
		ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof buf - 1);

		if (fd >= 0)
			(void)close(fd);
		if (n > 0) {
			buf[n] = 0;
			for (char *p = buf, *end; (end = strchr(p, ' ')) != NULL; p = end + 1) {
				pid_t pid = atoi(p);

				if (pid > 1)
					(void)kill(pid, SIGKILL);
			}
		}
		for (pid_t pid;;) {
			pid = waitpid(-1, NULL, WNOHANG | __WALL);
			if (pid < 0 && errno != EINTR)
				return;
			if (pid <= 0)
				break;
		}
		(void)nanosleep(&pause, NULL);
	}
}

static int finish(const struct app *a, int status)
{
	tell(a, NOTE_EXITED, status);
	if (!a->namespaced) {
		if (a->session)
			(void)kill(-a->pid, SIGKILL);
		kill_the_rest();
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void forward(const struct app *a, const siginfo_t *si)
{
	/* without a session of its own the app has had what the terminal sent */
	if (!a->session && si->si_code == SI_KERNEL)
		return;
	(void)kill(a->session ? -a->pid : a->pid, si->si_signo);
}

/* True when the app itself has ended. */
static bool reap(const struct app *a, int *ret_status)
{
	bool ended = false;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0)
		if (pid == a->pid) {
			*ret_status = status;
			ended = true;
		}
	return ended;
}

static int serve(const struct app *a)
{
	siginfo_t si;
	sigset_t all;
	int status;

	(void)sigfillset(&all);
	for (;;) {
		if (sigwaitinfo(&all, &si) < 0)
			continue; /* EINTR: stopped and continued */
		if (si.si_signo != SIGCHLD)
			forward(a, &si);
		else if (reap(a, &status))
			return finish(a, status);
	}
}

int main(int argc, char **argv)
{
	struct app a = {.sock = -1};
	struct pollfd p;
	sigset_t all;

	if (argc < 5)
		return 125;
	a.sock = atoi(argv[1]);
	a.session = strchr(argv[2], 's') != NULL;
	a.namespaced = strchr(argv[2], 'p') != NULL;
	a.argv = argv + 3;
	if (prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return 125;
	if (!a.namespaced)
		(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
	(void)fcntl(a.sock, F_SETFD, FD_CLOEXEC);
	/* Did the supervisor die before the death signal was set? Then its end of the socket is gone. */
	p = (struct pollfd){.fd = a.sock};
	if (poll(&p, 1, 0) != 0)
		return 125;
	if (start(&a) < 0)
		return 125;
	return serve(&a);
}
