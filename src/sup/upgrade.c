/*
 * Another program in the place of this one, with everything as it is: `sbxsv upgrade`, SIGUSR2.
 *
 * Theory of operation. The process stays and executes the file it was started from, which may be another version by then. So
 * its pid, its children (apps and sbxsv-proxy, with every connection) and its open descriptors stay; what it knows goes along in a
 * memfd (handover.c).
 *
 *   rehearse   all is written down, and the new program is run as a child that reads it (--check-handover) and says that it
 *              understands: a file that is no sbxsvd, damaged, of a version that cannot take over, or that hangs, changes
 *              nothing. Meanwhile the apps go on as ever.
 *   settle     launches, ends and the like, which take some milliseconds, are waited for; new launches are held back. Then
 *              signals are blocked and the loop takes one more turn, so that none is on its way through it
 *   exec       the threads that look at what jails do are ended, so that no call is in their hands; requests that are there are
 *              answered, and what one of them began is waited for; all is written down again, and the program executed. If
 *              that fails, all goes on here.
 *
 * When the new program dies before it has taken over, that is the death of the supervisor: its apps end with it.
 */
#include "sup/app.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define REHEARSAL_MS 10000
#define SETTLE_MS    15000 /* a launch may take 10 s */
#define LOOK_MS      5
#define SAID_MAX     4096

struct upgrade {
	struct sup *sup;
	sup_done_fn *done;
	void *data;
	/* the rehearsal */
	pid_t pid;
	int pidfd, said_fd;
	struct loop_io ended;
	bool late;
	struct strbuf said;
	/* all of it */
	struct loop_timer timer;
	int64_t since_ms;
	bool quiet; /* signals are blocked */
	sigset_t mask;
};

/* One that comes from now on waits for the new program. What came before is with the loop, which takes it in its next turn. */
static void block_signals(struct upgrade *u, bool on)
{
	sigset_t all;

	if (u->quiet == on)
		return;
	u->quiet = on;
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, on ? &all : &u->mask, on ? &u->mask : NULL);
}

static void finish(struct upgrade *u, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void finish(struct upgrade *u, int code, const char *fmt, ...)
{
	struct sup *s = u->sup;
	CLEANUP_FREE char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	text = xvasprintf(fmt, ap);
	va_end(ap);
	log_warning("no upgrade: %s", text);
	events_note(s->events, "supervisor", NULL, "no upgrade: %s", text);
	block_signals(u, false);
	s->upgrade = NULL;
	s->hand_over = false;
	loop_timer_stop(&u->timer);
	loop_io_stop(&u->ended);
	fd_close_many(&u->pidfd, 1);
	fd_close_many(&u->said_fd, 1);
	strbuf_finish(&u->said);
	if (u->done)
		u->done(u->data, code, text);
	free(u);
	if (!s->down)
		run_go_on(s);
}

/* The memfd; -1 with *e. *ret_keep is the caller's. */
static int write_down(struct sup *s, struct keep **ret_keep, struct err **e)
{
	struct keep *k = keep_create();
	struct js *root = js_obj();
	int fd;

	js_add_str(root, "version", s->self.version);
	keep_js(k, root, "sup", handover_save(k, s));
	s->self.save(s->self.data, k, root);
	fd = keep_write(k, root, e);
	if (fd < 0)
		keep_destroy(k);
	else
		*ret_keep = k;
	return fd;
}

/* --- exec --- */

static char **arguments(const struct sup *s, char *handover, char *number)
{
	size_t n = 0;
	char **v;

	while (s->self.argv[n])
		n++;
	v = xcalloc(n + 3, sizeof *v);
	v[0] = s->self.argv[0];
	v[1] = handover;
	v[2] = number;
	for (size_t i = 1; i < n; i++)
		v[i + 2] = s->self.argv[i];
	return v;
}

/* Returns when it failed. */
static int execute(struct sup *s, struct err **e)
{
	CLEANUP_KEEP struct keep *k = NULL;
	CLEANUP_FD int fd = write_down(s, &k, e);
	CLEANUP_FREE char **argv = NULL;
	char option[] = "--handover", number[16];
	int error;

	if (fd < 0)
		return -1;
	(void)snprintf(number, sizeof number, "%d", fd);
	argv = arguments(s, option, number);
	if (keep_inherit(k, true, e) < 0 || fcntl(fd, F_SETFD, 0) < 0) {
		(void)keep_inherit(k, false, NULL);
		return -1;
	}
	(void)execve(s->self.program, argv, s->environ);
	error = errno;
	(void)keep_inherit(k, false, NULL);
	return err_sys(e, error, "%s cannot be executed", s->self.program);
}

/* What has to be over first; NULL: nothing. Owned by caller. */
static char *busy_with(const struct sup *s)
{
	for (const struct app *a = s->apps; a; a = a->next) {
		if (a->dead)
			continue;
		if (a->launch && !launch_is_over(a->launch))
			return xasprintf("the jail of %s is being built", a->name);
		if (a->launch && a->reaped)
			return xasprintf("the end of %s is being looked into", a->name);
		if (needs_asking(a))
			return xasprintf("a program that %s needs is being asked for its version", a->name);
		if (a->reclaim)
			return xasprintf("a port of %s is being taken back", a->name);
	}
	if (hooks_busy(s))
		return xasprintf("a hook of %s runs", hooks_busy(s));
	return proxyctl_can_be_saved(s->proxy) ? NULL : xstrdup("sbxsv-proxy does not take its messages");
}

/* Requests that came until now are read and answered. False: one has begun something that has to be over first. */
static bool leave(struct sup *s)
{
	bool ready;
	char *what;

	for (struct app *a = s->apps; a; a = a->next)
		command_abandon(
			a, false,
			"the supervisor is being upgraded; what was asked for goes on, see sbxsv status");
	ready = s->self.leave(s->self.data);
	what = busy_with(s);
	free(what);
	return ready && !what;
}

static void go(struct upgrade *u)
{
	struct sup *s = u->sup;
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FREE char *who = NULL;

	if (!violations_freeze(s, &who)) {
		violations_thaw(s);
		finish(u, 1, "%s: what its jail refuses is looked up on a file system that does not answer",
		       who);
		return;
	}
	events_settle(s->events);
	if (!leave(s)) {
		violations_thaw(s);
		block_signals(u, false);
		loop_timer_start(&u->timer, LOOK_MS);
		return;
	}
	(void)execute(s, &e);
	violations_thaw(s);
	finish(u, 1, "%s; all goes on as it was", err_msg(e));
}

/* --- settle --- */

static void settle(struct upgrade *u)
{
	CLEANUP_FREE char *what = busy_with(u->sup);

	if (!what && u->quiet) {
		go(u);
		return;
	}
	block_signals(u, !what);
	if (what && clk_mono_ms() - u->since_ms > SETTLE_MS)
		finish(u, 1, "%s, for %d s already; try again later", what, SETTLE_MS / 1000);
	else
		loop_timer_start(&u->timer, what ? LOOK_MS : 0);
}

/* --- rehearse --- */

static void hear(struct upgrade *u)
{
	char buf[512];
	ssize_t n;

	while (u->said.len < SAID_MAX && (n = read(u->said_fd, buf, sizeof buf)) > 0)
		strbuf_add(&u->said, buf, (size_t)n);
}

static const char first_word[] = SUP_HANDOVER_OK;

static void judge_rehearsal(struct upgrade *u, int status)
{
	const char *program = u->sup->self.program, *said = u->said.p ? u->said.p : "";
	CLEANUP_FREE char *text = str_escape(said, strcspn(said, "\n"));
	int error;

	if (u->late)
		finish(u, 1, "%s did not say within %d s that it can take over", program,
		       REHEARSAL_MS / 1000);
	else if (WIFSIGNALED(status))
		finish(u, 1, "%s was ended by %s when it was asked whether it can take over: it is damaged",
		       program, signal_name(WTERMSIG(status)));
	else if (WEXITSTATUS(status) == 127 && u->said.len == sizeof error + 1 && said[0] == '\1') {
		memcpy(&error, said + 1, sizeof error);
		finish(u, 1, "%s cannot be executed: %s", program, strerror(error));
	} else if (WEXITSTATUS(status) != 0)
		finish(u, 1, "%s cannot take over: %s (exit status %d)", program,
		       *text ? text : "it gave no reason; is it a sbxsvd?", WEXITSTATUS(status));
	else if (!str_starts(text, first_word))
		finish(u, 1,
		       "%s does not know how to take over: it is no sbxsvd, or one from before upgrades in "
		       "place",
		       program);
	else {
		log_info("%s says: %s", program, text);
		u->sup->hand_over = true;
		u->since_ms = clk_mono_ms();
		settle(u);
	}
}

static void on_ended(struct loop_io *w, unsigned events)
{
	struct upgrade *u = w->data;
	int status = 0;

	(void)events;
	if (pidfd_reap(u->pidfd, &status) == 0)
		return;
	loop_io_stop(w);
	loop_timer_stop(&u->timer);
	u->pid = 0;
	hear(u);
	if (u->sup->down)
		finish(u, 1, "the supervisor is shutting down");
	else
		judge_rehearsal(u, status);
}

static void on_timer(struct loop_timer *t)
{
	struct upgrade *u = t->data;

	if (!u->pid) {
		if (u->sup->down)
			finish(u, 1, "the supervisor is shutting down");
		else
			settle(u);
		return;
	}
	u->late = true;
	(void)pidfd_signal(u->pidfd, SIGKILL);
}

/* Between fork and exec: async-signal-safe calls only. */
static _Noreturn void child(const char *program, char *const argv[], char *const envp[], int memfd, int out)
{
	char no = '\1';
	int error;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (dup2(out, 2) < 0 || fd_become_service(memfd) < 0 || dup2(2, 1) < 0)
		_exit(126);
	(void)execve(program, argv, envp);
	error = errno;
	(void)!write(1, &no, 1);
	(void)!write(1, &error, sizeof error);
	_exit(127);
}

static int rehearse(struct upgrade *u, struct err **e)
{
	struct sup *s = u->sup;
	CLEANUP_KEEP struct keep *k = NULL;
	CLEANUP_FD int memfd = write_down(s, &k, e), ours = -1, theirs = -1;
	char option[] = "--check-handover", number[] = "3"; /* where fd_become_service() puts it */
	CLEANUP_FREE char **argv = arguments(s, option, number);
	sigset_t all, old;
	int ends[2];

	if (memfd < 0)
		return -1;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(e, errno, "pipe");
	ours = ends[0];
	theirs = ends[1];
	(void)fd_set_nonblock(ours, true);
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &old);
	u->pid = fork();
	if (u->pid == 0)
		child(s->self.program, argv, s->environ, memfd, theirs);
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	if (u->pid < 0) {
		u->pid = 0;
		return err_sys(e, errno, "fork");
	}
	u->pidfd = pidfd_open_pid(u->pid); /* not reaped yet, so this pid is ours */
	if (u->pidfd < 0) {
		int error = errno;

		(void)kill(u->pid, SIGKILL);
		(void)waitpid(u->pid, NULL, 0);
		u->pid = 0;
		return err_sys(e, error, "pidfd_open");
	}
	u->said_fd = TAKE_FD(ours);
	loop_io_init(s->loop, &u->ended, u->pidfd, LOOP_READ, on_ended, u);
	loop_timer_start(&u->timer, REHEARSAL_MS);
	return 0;
}

void sup_upgrade(struct sup *s, sup_done_fn *done, void *data)
{
	CLEANUP_ERR struct err *e = NULL;
	struct upgrade *u;

	if (s->down || s->upgrade || !s->self.program) {
		if (done)
			done(data, 1,
			     s->down      ? "the supervisor is shutting down"
			     : s->upgrade ? "an upgrade is under way already"
					  : "this supervisor cannot find its own program");
		return;
	}
	u = xcalloc(1, sizeof *u);
	*u = (struct upgrade){.sup = s, .done = done, .data = data, .pidfd = -1, .said_fd = -1};
	loop_timer_init(s->loop, &u->timer, on_timer, u);
	s->upgrade = u;
	log_info("asked to be upgraded: %s", s->self.program);
	if (rehearse(u, &e) < 0)
		finish(u, 1, "%s", err_msg(e));
}

void sup_upgradable(struct sup *s, const struct sup_self *self)
{
	s->self = *self;
}

/* A shutdown: the child that rehearses is ours to end. */
void upgrade_abandon(struct sup *s)
{
	struct upgrade *u = s->upgrade;
	int status;

	if (!u)
		return;
	if (u->pid) {
		(void)pidfd_signal(u->pidfd, SIGKILL);
		(void)waitpid(u->pid, &status, 0);
	}
	finish(u, 1, "the supervisor is shutting down");
}
