/* Steps of the launching child that every backend takes. See jail.h for what may be done here. */
#include "base/fd.h"
#include "sandbox/jail.h"
#include "sandbox/sys.h"
#include <errno.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

static void append(char *buf, size_t cap, const char *text)
{
	size_t at = strnlen(buf, cap - 1), n = strlen(text);

	if (n > cap - 1 - at)
		n = cap - 1 - at;
	memcpy(buf + at, text, n);
	buf[at + n] = 0;
}

static void note(struct child *c, const char *step, int error, const char *what, const char *path)
{
	/* the last one is overwritten when there are too many: a failure must be told */
	uint32_t i = c->msg.n_notes < SETUP_NOTES_MAX ? c->msg.n_notes++ : SETUP_NOTES_MAX - 1;
	struct setup_note *n = &c->msg.notes[i];

	memset(n, 0, sizeof *n);
	n->error = error;
	append(n->step, sizeof n->step, step);
	append(n->text, sizeof n->text, what);
	if (path) {
		append(n->text, sizeof n->text, " ");
		append(n->text, sizeof n->text, path);
	}
}

static size_t message_size(const struct child *c)
{
	return offsetof(struct setup_message, notes) + c->msg.n_notes * sizeof c->msg.notes[0];
}

_Noreturn void child_fail(struct child *c, const char *step, int error, const char *what, const char *path)
{
	note(c, step, error, what, path);
	c->msg.type = SETUP_FAILED;
	(void)fd_send(c->sock, &c->msg, message_size(c), NULL, 0);
	_exit(125);
}

void child_miss(struct child *c, const char *step, int error, const char *what, const char *path)
{
	if (c->plan->enforce == UNIT_ENFORCE_REQUIRED)
		child_fail(c, step, error, what, path);
	note(c, step, error, what, path);
}

void child_namespaces(struct child *c)
{
	if (unshare((int)c->unshare) < 0)
		child_fail(c, "namespaces", errno, "cannot make its namespaces", NULL);
}

/* Handlers were reset by CLONE_CLEAR_SIGHAND; ignored signals are inherited, and an app must not start deaf.
 */
void child_signals(struct child *c)
{
	struct sigaction dfl = {.sa_handler = SIG_DFL};

	(void)c;
	for (int sig = 1; sig < NSIG; sig++)
		(void)sigaction(sig, &dfl, NULL);
}

/* PR_SET_PDEATHSIG is cleared by a change of credentials, so it is set after the last one; a parent that died
 * before that is seen through its pidfd (getppid() is 0 in a new pid namespace, whoever lives). */
void child_check_parent(struct child *c)
{
	struct pollfd p = {.fd = c->io->supervisor_pidfd, .events = POLLIN};

	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		child_fail(c, "parent", errno, "cannot set the parent-death signal", NULL);
	if (c->io->supervisor_pidfd >= 0 && poll(&p, 1, 0) != 0)
		_exit(125);
}

static int high_copy(struct child *c, int fd)
{
	int r = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 16) : open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd < 0 && r >= 0 && r < 16) {
		int low = r;

		r = fcntl(low, F_DUPFD_CLOEXEC, 16);
		(void)close(low);
	}
	if (r < 0)
		child_fail(c, "stdio", errno, "cannot copy a file descriptor", NULL);
	return r;
}

/* 0 1 2: the app's; 3: the setup socket; 4: sbxsv-init; 5: the listener of the audit, for sbxsv-init to keep;
 * 6: $NOTIFY_SOCKET; 7: the app's readiness pipe. Everything else is closed. */
void child_stdio(struct child *c)
{
	const int from[] = {high_copy(c, c->io->stdin_fd),
			    high_copy(c, c->io->stdout_fd),
			    high_copy(c, c->io->stderr_fd),
			    high_copy(c, c->sock),
			    high_copy(c, c->io->init_fd),
			    c->listener < 0 ? -1 : high_copy(c, c->listener),
			    c->notify < 0 ? -1 : high_copy(c, c->notify),
			    c->io->ready_fd <= 0 ? -1 : high_copy(c, c->io->ready_fd)};

	for (int i = 0; i < (int)ELEMENTS(from); i++)
		if (from[i] < 0)
			(void)close(i);
		else if (dup3(from[i], i, i == 4 ? O_CLOEXEC : 0) < 0)
			child_fail(c, "stdio", errno, "cannot place a file descriptor", NULL);
	c->sock = 3;
	if (sys_close_range(ELEMENTS(from)) < 0)
		child_fail(c, "stdio", errno, "cannot close the supervisor's files", NULL);
}

/* Where clone3 could not do it (Linux before 5.7). The descriptor of cgroup.procs is opened by us, still the supervisor's
 * user, and a task that writes 0 moves itself. */
void child_group(struct child *c)
{
	int fd;

	if (!c->join)
		return;
	fd = openat(c->io->group_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (write(fd, "0", 1) == 1)
		c->msg.got |= GOT_GROUP;
	(void)close(fd);
}

/* A hard limit of RLIM_INFINITY means the inherited one. */
static void limit(struct child *c, int resource, struct rlimit want)
{
	struct rlimit now;

	if (want.rlim_max == RLIM_INFINITY && getrlimit((__rlimit_resource_t)resource, &now) == 0) {
		want.rlim_max = now.rlim_max;
		if (want.rlim_cur > want.rlim_max)
			want.rlim_cur = want.rlim_max;
	}
	if (setrlimit((__rlimit_resource_t)resource, &want) < 0)
		child_fail(c, "limits", errno,
			   "cannot set a limit of [Limits]: it is above what the supervisor itself may have",
			   NULL);
}

/* A limit of 0 does not mean "no core dump" where /proc/sys/kernel/core_pattern is a pipe: the handler is run
 * anyway, by the host, as root, with the memory of the app (core(5)). A limit of 1 byte does: fs/coredump.c
 * takes it as "never" for a pipe, and no file of one byte is written. The filter keeps the app from changing
 * it. A supervisor with a hard limit of 0 cannot raise it to 1. */
void child_core(struct child *c)
{
	const struct plan *p = c->plan;
	struct rlimit one = {1, 1};

	for (size_t i = 0; i < p->n_rlimits; i++) {
		if (p->rlimits[i].resource != RLIMIT_CORE)
			continue;
		if (p->rlimits[i].limit.rlim_cur > 0 || setrlimit(RLIMIT_CORE, &one) < 0)
			limit(c, RLIMIT_CORE, p->rlimits[i].limit);
	}
}

void child_limits(struct child *c)
{
	const struct plan *p = c->plan;
	bool files = false;

	for (size_t i = 0; i < p->n_rlimits; i++) {
		if (p->rlimits[i].resource == RLIMIT_CORE ||
		    ((c->msg.got & GOT_GROUP) && (p->rlimits[i].unless & c->io->group_limits)))
			continue;
		files = files || p->rlimits[i].resource == RLIMIT_NOFILE;
		limit(c, p->rlimits[i].resource, p->rlimits[i].limit);
	}
	/* The supervisor raised its own soft limit; programs that use select() expect 1024, others raise it
	 * themselves. */
	if (!files)
		limit(c, RLIMIT_NOFILE, (struct rlimit){1024, RLIM_INFINITY});
	/* a negative value was set from outside when the supervisor is root */
	if (p->nice != 0 && !(p->nice < 0 && c->helped) && setpriority(PRIO_PROCESS, 0, p->nice) < 0)
		child_fail(c, "limits", errno, "cannot set Nice=", NULL);
}

_Noreturn void child_exec_init(struct child *c)
{
	(void)syscall(SYS_execveat, 4, "", c->init_argv, c->plan->env.v, AT_EMPTY_PATH);
	child_fail(c, "init", errno, "cannot execute sbxsv-init", NULL);
}

void child_privileges(struct child *c)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		child_fail(c, "privileges", errno, "cannot set no_new_privs", NULL);
	c->msg.got |= GOT_NO_NEW_PRIVS;
}

void child_audit_prepare(struct child *c)
{
	if (c->io->audit == AUDIT_OFF)
		return;
	c->mntns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	c->diag = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (c->mntns < 0 || c->diag < 0)
		c->msg.audit_error = errno;
}

/* Nothing of the jail depends on it: what cannot be had is said, and the launch goes on. */
void child_audit(struct child *c)
{
	int root;

	if (c->mntns < 0 || c->diag < 0)
		return;
	root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	c->listener = root < 0 ? -1 : audit_install(c->io->audit);
	if (c->listener < 0) {
		c->msg.audit_error = errno;
		return;
	}
	c->msg.got |= GOT_AUDIT;
	c->fds[c->n_fds++] = c->diag;
	c->fds[c->n_fds++] = c->mntns;
	c->fds[c->n_fds++] = root;
	c->fds[c->n_fds++] = c->listener;
}

void child_filter(struct child *c)
{
	if (!c->filter)
		child_miss(c, "seccomp", ENOSYS, "no system call filter", NULL);
	else if (filter_install(c->filter) < 0)
		child_miss(c, "seccomp", errno, "cannot install the system call filter", NULL);
	else
		c->msg.got |= GOT_SECCOMP;
}

void child_report(struct child *c)
{
	c->msg.type = SETUP_JAIL;
	/* ETOOMANYREFS: the user has more descriptors in flight than RLIMIT_NOFILE says, unix(7) */
	if (fd_send(c->sock, &c->msg, message_size(c), c->fds, c->n_fds) < 0)
		child_fail(c, "sockets", errno, "cannot pass on what it has made", NULL);
	/* Ours no more. What comes next needs room too, under a low RLIMIT_NOFILE. */
	for (size_t i = 0; i < c->n_fds; i++)
		if (c->fds[i] != c->listener)
			(void)close(c->fds[i]);
	c->n_fds = 0;
}
