#include "proxy/alone.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/parse.h"
#include "base/wire.h"
#include "proxy/alone_listen.h"
#include "proxy/alone_log.h"
#include "proxy/policyfile.h"
#include <errno.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define APP            "proxy"
#define RESTART_GAP_MS 100  /* between two starts in a crash loop */
#define SILENT_MAX     3    /* workers that ended without a word: there is no use in more */
#define END_WAIT_MS    2000 /* for the worker to end by itself */
#define WORDS_MAX      64   /* messages read in one turn of the loop */
#define SEND_LIMIT_S   5    /* a worker that takes no messages for so long hangs */

struct master {
	const struct alone *o;
	struct loop *loop;
	int listener;
	struct alone_log *log; /* or NULL */
	uid_t uid;             /* of the worker; (uid_t)-1: ours */
	gid_t gid;
	struct policy *policy;

	pid_t pid;
	int pidfd, wire;
	struct loop_io exited, words;
	struct loop_timer restart;
	int64_t started_ms;
	bool spoke, ready_said;
	unsigned silent;
	int status; /* exit status of all */
	struct loop_signal hup, term, interrupt;
};

static void worker_start(struct master *m);

/* --- systemd's sd_notify(3), Type=notify --- */

static void notify(const char *text)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	size_t n = path ? strlen(path) : 0;
	CLEANUP_FD int fd = -1;

	if (n < 2 || n >= sizeof a.sun_path || (*path != '/' && *path != '@'))
		return;
	memcpy(a.sun_path, path, n);
	if (*path == '@')
		a.sun_path[0] = 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		(void)sendto(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&a,
			     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
}

/* --- messages to the worker --- */

static struct js *message(const char *type)
{
	struct js *j = js_obj();

	js_add_str(j, "t", type);
	return j;
}

/* A worker that does not take its messages is ended and told everything again. Owns j. */
static void say(struct master *m, struct js *j, int fd)
{
	CLEANUP_FREE char *text = js_print(j);
	CLEANUP_FD int large = -1;

	js_free(j);
	if (m->wire < 0)
		return;
	if ((fd >= 0 || wire_pack(&text, &large) == 0) &&
	    fd_send(m->wire, text, strlen(text), large >= 0 ? &large : &fd, fd >= 0 || large >= 0) == 0)
		return;
	log_error("the worker does not take messages: %s", strerror(errno));
	(void)pidfd_signal(m->pidfd, SIGKILL);
}

static void say_policy(struct master *m)
{
	struct js *j = message("policy");
	CLEANUP_FREE char *where =
		m->o->policy ? xasprintf("the policy file %s", m->o->policy) : xstrdup(WHERE_ALONE);

	js_add_str(j, "app", APP);
	js_add(j, "policy", policy_to_json(m->policy));
	js_add_str(j, "where", where);
	say(m, j, -1);
}

static void say_log(struct master *m)
{
	if (m->log)
		say(m, message("access_log"), alone_log_fd(m->log));
}

static void say_all(struct master *m)
{
	struct js *hello = message("hello"), *jail = message("jail");

	js_add_int(hello, "v", WIRE_VERSION);
	say(m, hello, -1);
	say_policy(m);
	say_log(m);
	js_add_str(jail, "app", APP);
	js_add_int(jail, "launch", 1);
	js_add_bool(jail, "egress", true);
	js_add(jail, "loopback", js_arr());
	say(m, jail, m->listener);
}

/* --- the worker --- */

/* Between fork and exec: async-signal-safe calls only. */
static void child(int wire, char *const argv[])
{
	static char path[] = "PATH=/usr/bin:/bin", locale[] = "LC_ALL=C";
	static char *envp[] = {path, locale, NULL};

	if (fd_become_service(wire) < 0)
		_exit(126);
	/* The very program that runs here, whatever happened to its file since. */
	(void)execve("/proc/self/exe", argv, envp);
	_exit(127);
}

static pid_t spawn(const struct master *m, int wire)
{
	CLEANUP_STRV struct strv argv = {0};
	sigset_t all, before;
	pid_t pid;

	strv_add(&argv, "sbxsv-proxy");
	strv_add(&argv, "--parent");
	strv_addf(&argv, "%d", (int)getpid());
	if (m->uid != (uid_t)-1) {
		strv_addf(&argv, "--uid=%u", m->uid);
		strv_addf(&argv, "--gid=%u", m->gid);
	}
	strv_copy(&argv, &m->o->worker);
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &before); /* no handler of ours may run in the child */
	pid = fork();
	if (pid == 0)
		child(wire, argv.v);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	return pid;
}

static void on_words(struct loop_io *io, unsigned events)
{
	struct master *m = io->data;
	static char sink[4096];
	ssize_t n = -1;

	(void)events;
	/* Longer messages are cut, and descriptors in them are dropped by the kernel: fine, all is refuse. */
	for (int i = 0; i < WORDS_MAX && (n = recv(io->fd, sink, sizeof sink, MSG_DONTWAIT)) > 0; i++) {
		m->spoke = true;
		m->silent = 0;
	}
	if (n > 0)
		return; /* there is more: one that never stops does not keep us from a signal */
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		if (m->spoke && !m->ready_said) {
			m->ready_said = true;
			notify("READY=1");
		}
		return;
	}
	loop_io_stop(io);
	(void)close(TAKE_FD(m->wire));
	(void)pidfd_signal(m->pidfd, SIGKILL); /* it ends, or hangs */
}

static void on_restart(struct loop_timer *t)
{
	worker_start(t->data);
}

static void on_exited(struct loop_io *io, unsigned events)
{
	struct master *m = io->data;
	int64_t since = clk_mono_ms() - m->started_ms;
	int status = 0;

	(void)events;
	if (pidfd_reap(m->pidfd, &status) == 0)
		return;
	loop_io_stop(io);
	loop_io_stop(&m->words);
	fd_close_many(&m->pidfd, 1);
	fd_close_many(&m->wire, 1);
	m->pid = 0;
	if (m->log)
		alone_log_between(m->log);
	if (WIFSIGNALED(status))
		log_warning("the worker was killed by signal %d (%s); it is started again", WTERMSIG(status),
			    strsignal(WTERMSIG(status)));
	else
		log_warning("the worker ended with status %d; it is started again", WEXITSTATUS(status));
	if (!m->spoke && ++m->silent >= SILENT_MAX) {
		log_error("the worker cannot be started: see above");
		m->status = 1;
		loop_break(m->loop);
		return;
	}
	loop_timer_start(&m->restart, since >= RESTART_GAP_MS ? 0 : RESTART_GAP_MS - since);
}

static int worker_make(struct master *m)
{
	const struct timeval limit = {.tv_sec = SEND_LIMIT_S};
	CLEANUP_FD int theirs = -1;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	m->wire = pair[0];
	theirs = pair[1];
	(void)setsockopt(m->wire, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	m->pid = spawn(m, theirs);
	if (m->pid > 0)
		m->pidfd = pidfd_open_pid(m->pid); /* not reaped yet, so this pid is ours */
	if (m->pid > 0 && m->pidfd >= 0)
		return 0;
	if (m->pid > 0) {
		(void)kill(m->pid, SIGKILL);
		(void)waitpid(m->pid, NULL, 0);
	}
	m->pid = 0;
	fd_close_many(&m->wire, 1);
	return -1;
}

static void worker_start(struct master *m)
{
	m->started_ms = clk_mono_ms();
	m->spoke = false;
	if (worker_make(m) < 0) {
		log_error("the worker cannot be started: %s; tried again", strerror(errno));
		loop_timer_start(&m->restart, RESTART_GAP_MS);
		return;
	}
	loop_io_init(m->loop, &m->exited, m->pidfd, LOOP_READ, on_exited, m);
	loop_io_init(m->loop, &m->words, m->wire, LOOP_READ, on_words, m);
	say_all(m);
}

/* It ends when its channel is closed, and writes what it has to say to the access log. */
static void worker_end(struct master *m)
{
	struct pollfd gone = {.fd = m->pidfd, .events = POLLIN};

	loop_timer_stop(&m->restart);
	loop_io_stop(&m->words);
	loop_io_stop(&m->exited);
	fd_close_many(&m->wire, 1);
	if (m->pidfd < 0)
		return;
	if (poll(&gone, 1, END_WAIT_MS) != 1)
		(void)pidfd_signal(m->pidfd, SIGKILL);
	(void)waitpid(m->pid, NULL, 0);
	fd_close_many(&m->pidfd, 1);
}

/* --- the rules and the log, at the start and again --- */

/* *ret_status: the exit status without one; what stands on the command line is wrong usage. */
static struct policy *read_policy(const struct alone *o, int *ret_status)
{
	CLEANUP_STRV struct strv problems = {0};
	struct policy *p = policyfile_read(o->policy, &o->rules, &problems);
	CLEANUP_JS struct js *j = p ? policy_to_json(p) : NULL;
	CLEANUP_FREE char *text = j ? js_print(j) : NULL;

	if (p && strlen(text) + 4096 > WIRE_LARGE_MAX) {
		strv_addf(&problems, "%s: %zu KiB of rules are more than the worker takes (%u KiB)",
			  o->policy ? o->policy : POLICYFILE_OPTIONS, strlen(text) / 1024,
			  (WIRE_LARGE_MAX - 4096) / 1024);
		policy_destroy(p);
		p = NULL;
	}
	*ret_status = 1;
	for (size_t i = 0; i < problems.n; i++) {
		log_error("%s", problems.v[i]);
		if (str_starts(problems.v[i], POLICYFILE_OPTIONS ": "))
			*ret_status = 2;
	}
	return p;
}

static void on_hup(struct loop_signal *s)
{
	struct master *m = s->data;
	int status;
	struct policy *p = read_policy(m->o, &status);
	CLEANUP_ERR struct err *e = NULL;

	if (p) {
		policy_destroy(m->policy);
		m->policy = p;
		say_policy(m);
		log_info("the rules were read again");
	} else {
		log_error("the rules are left as they were");
	}
	if (m->log && alone_log_reopen(m->log, &e) < 0)
		log_error("%s; it goes on where it was", err_msg(e));
}

static void on_end(struct loop_signal *s)
{
	struct master *m = s->data;

	notify("STOPPING=1");
	loop_break(m->loop);
}

/* --- start --- */

static int choose_user(struct master *m, struct err **e)
{
	const char *name = m->o->user ? m->o->user : "nobody";
	const struct passwd *pw;

	m->uid = (uid_t)-1;
	m->gid = (gid_t)-1;
	if (geteuid() != 0)
		return m->o->user ? err_set(e, EPERM, "--user needs root") : 0;
	errno = 0;
	pw = getpwnam(name);
	if (!pw)
		return err_set(e, ENOENT, "there is no user %s%s", name,
			       m->o->user ? "" : ": give --user NAME");
	if (pw->pw_uid == 0 || pw->pw_gid == 0)
		return err_set(e, EPERM, "the proxy does not run as root: --user needs an ordinary user");
	m->uid = pw->pw_uid;
	m->gid = pw->pw_gid;
	return 0;
}

static int prepare(struct master *m, struct err **e)
{
	CLEANUP_FREE char *where = NULL;

	if (choose_user(m, e) < 0)
		return -1;
	m->listener = alone_listen(m->o->listen, m->o->anywhere, &where, e);
	if (m->listener < 0)
		return -1;
	m->loop = loop_create(0);
	if (!m->loop)
		return err_sys(e, errno, "the event loop cannot be made");
	if (m->o->access_log) {
		m->log = alone_log_open(m->loop, m->o->access_log, e);
		if (!m->log)
			return -1;
	}
	if (policy_egress(m->policy) == EGRESS_OFF)
		log_warning("no rule allows anything: everything is refused");
	log_info("listening on %s", where);
	return 0;
}

static void run(struct master *m)
{
	loop_timer_init(m->loop, &m->restart, on_restart, m);
	loop_signal_init(m->loop, &m->hup, SIGHUP, on_hup, m);
	loop_signal_init(m->loop, &m->term, SIGTERM, on_end, m);
	loop_signal_init(m->loop, &m->interrupt, SIGINT, on_end, m);
	worker_start(m);
	loop_run(m->loop);
	worker_end(m);
	loop_signal_stop(&m->hup);
	loop_signal_stop(&m->term);
	loop_signal_stop(&m->interrupt);
}

int alone_run(const struct alone *o)
{
	struct master m = {.o = o, .listener = -1, .pidfd = -1, .wire = -1};
	CLEANUP_ERR struct err *e = NULL;

	if (!o->policy && !o->rules.n) {
		log_error("nothing would be allowed: give --allow HOST, --policy FILE or --egress all");
		return 2;
	}
	m.policy = read_policy(o, &m.status);
	if (!m.policy)
		return m.status;
	if (o->check) {
		policy_destroy(m.policy);
		(void)puts("the rules are good");
		return 0;
	}
	if (prepare(&m, &e) < 0) {
		log_error("%s", err_msg(e));
		m.status = err_code(e) == EINVAL ? 2 : 1;
	} else {
		m.status = 0;
		run(&m);
	}
	alone_log_close(m.log);
	if (m.loop)
		loop_destroy(m.loop);
	fd_close_many(&m.listener, 1);
	policy_destroy(m.policy);
	return m.status;
}
