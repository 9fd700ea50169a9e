/*
 * sbxsvd: the supervisor. See doc/design.md; what it does lives in src/sup/, this file only puts it together.
 *
 * SIGTERM means "end cleanly" from the first instruction on: signals are blocked before anything else, a
 * pending one is looked for between the steps of the start, and from then on the loop handles them.
 */
#include "base/fd.h"
#include "base/file.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/program.h"
#include "config.h"
#include "ctl/ctl.h"
#include "main_args.h"
#include "main_notify.h"
#include "sandbox/rules.h"
#include "sup/instance.h"
#include "sup/sup.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <limits.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define OWN_LOG_MAX (1u << 20) /* sbxsvd.log begins anew at a start when it is larger */

struct daemon {
	struct main_args args;
	struct unit_dirs dirs;
	struct loop *loop;
	struct sup *sup;
	struct ctl *ctl;
	int lock_fd, state_lock_fd, notify_fd, parent_fd, watch_fd;
	bool log_open;
	struct keep *keep; /* of the program before */
	char **argv;       /* without --handover */
	char *program;     /* NULL: not known */
	struct loop_signal term, intr, hup, usr2;
	struct loop_io watch;
};

/* --- what ends it --- */

static void on_all_gone(void *data)
{
	struct daemon *d = data;

	loop_break(d->loop);
}

static void shut_down(struct daemon *d, int64_t grace_ms)
{
	main_notify_stopping();
	sup_shutdown(d->sup, grace_ms, on_all_gone, d);
}

static void on_stop_signal(struct loop_signal *w)
{
	log_info("%s: shutting down", signal_name(w->signum));
	shut_down(w->data, -1);
}

static void on_reload_signal(struct loop_signal *w)
{
	struct daemon *d = w->data;

	main_notify_reloading();
	js_free(sup_reload(d->sup));
	main_notify_ready();
}

static void on_upgrade_signal(struct loop_signal *w)
{
	struct daemon *d = w->data;

	sup_upgrade(d->sup, NULL, NULL);
}

static void on_api_shutdown(void *data, int64_t grace_ms)
{
	log_info("asked to shut down");
	shut_down(data, grace_ms);
}

static void on_watched_gone(struct loop_io *w, unsigned events)
{
	struct daemon *d = w->data;

	(void)events;
	loop_io_stop(w);
	log_info("the process of --watch-pid %d has ended: shutting down", (int)d->args.watch_pid);
	shut_down(d, -1);
}

/* --- the steps of the start --- */

static void block_signals(void)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGHUP);
	(void)sigaddset(&set, SIGUSR2);
	(void)sigprocmask(SIG_SETMASK, &set, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
}

static bool stop_pending(void)
{
	sigset_t set;

	return sigpending(&set) == 0 && (sigismember(&set, SIGTERM) || sigismember(&set, SIGINT));
}

/* 0, 1 and 2 exist, and nothing else that the caller had open stays open, but for the one we were told to
 * keep. */
static void clean_fds(int keep)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= 2);
	if (fd > 2)
		(void)close(fd);
	if (keep > 3)
		(void)syscall(SYS_close_range, 3u, (unsigned)keep - 1, 0u); /* kernel 5.9 */
	(void)syscall(SYS_close_range, keep > 2 ? (unsigned)keep + 1 : 3u, ~0u, 0u);
	if (keep > 2)
		(void)fcntl(keep, F_SETFD, FD_CLOEXEC);
}

static void tell_one(int *fd, const char *text)
{
	if (*fd < 0)
		return;
	(void)!write(*fd, text, strlen(text));
	(void)close(*fd);
	*fd = -1;
}

/* Once: whoever gave --notify-fd, and the process that waits for its daemon. */
static void tell(struct daemon *d, const char *text)
{
	tell_one(&d->notify_fd, text);
	tell_one(&d->parent_fd, text);
}

/* The parent of a daemon: waits for what the child says through the pipe. */
static int await_child(int fd)
{
	char text[4096];
	size_t len = 0;
	ssize_t n;

	while (len < sizeof text - 1 &&
	       ((n = read(fd, text + len, sizeof text - 1 - len)) > 0 || (n < 0 && errno == EINTR)))
		len += n > 0 ? (size_t)n : 0;
	text[len] = 0;
	if (str_eq(text, "ready\n") || str_eq(text, "stopped\n"))
		return 0;
	(void)fprintf(stderr, "sbxsvd: %s",
		      len ? text : "ended before it was ready; see sbxsvd.log in the state directory\n");
	return 1;
}

/* Returns in the child, with the pipe as parent_fd; the parent waits and exits. */
static int daemonise(struct daemon *d, struct err **e)
{
	int pair[2], null_fd;
	pid_t pid;

	if (pipe2(pair, O_CLOEXEC) < 0)
		return err_sys(e, errno, "pipe");
	pid = fork();
	if (pid < 0)
		return err_sys(e, errno, "fork");
	if (pid > 0) {
		(void)close(pair[1]);
		_exit(await_child(pair[0]));
	}
	(void)close(pair[0]);
	(void)setsid();
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null_fd >= 0) {
		(void)dup2(null_fd, 0);
		(void)dup2(null_fd, 1);
		if (null_fd > 2)
			(void)close(null_fd);
	}
	d->parent_fd = pair[1];
	return 0;
}

static int own_log(const struct unit_dirs *dirs, struct err **e)
{
	CLEANUP_FD int dir = file_private_dir(dirs->state, e), fd = -1;
	struct stat st;

	if (dir < 0)
		return -1;
	if (fstatat(dir, "sbxsvd.log", &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size > OWN_LOG_MAX)
		(void)renameat(dir, "sbxsvd.log", dir, "sbxsvd.log.1");
	fd = file_open_nofollow(dir, "sbxsvd.log", O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY, 0600);
	if (fd < 0 || dup2(fd, 2) < 0)
		return err_sys(e, errno, "%s/sbxsvd.log", dirs->state);
	log_timestamps(true);
	return 0;
}

static int find_dirs(struct daemon *d, struct err **e)
{
	if (unit_dirs_init(&d->dirs, d->args.instance, e) < 0)
		return -1;
	rules_wire_checks(&d->dirs);
	return 0;
}

static int create_sup(struct daemon *d, struct err **e)
{
	CLEANUP_FREE char *init = program_find("sbxsv-init", SBXSV_LIBEXECDIR);
	CLEANUP_FREE char *proxy = program_find("sbxsv-proxy", SBXSV_SBINDIR);
	struct sup_config c = {.dirs = &d->dirs, .init_program = init, .proxy_program = proxy};

	d->sup = d->keep ? sup_restore(d->loop, &c, d->keep, e) : sup_create(d->loop, &c, e);
	return d->sup ? 0 : -1;
}

static void watch_signals(struct daemon *d)
{
	sigset_t none;

	loop_signal_init(d->loop, &d->term, SIGTERM, on_stop_signal, d);
	loop_signal_init(d->loop, &d->intr, SIGINT, on_stop_signal, d);
	loop_signal_init(d->loop, &d->hup, SIGHUP, on_reload_signal, d);
	loop_signal_init(d->loop, &d->usr2, SIGUSR2, on_upgrade_signal, d);
	if (d->watch_fd >= 0)
		loop_io_init(d->loop, &d->watch, d->watch_fd, LOOP_READ, on_watched_gone, d);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* --- upgrade in place --- */

/* The file that was executed, by the name it was executed by: so that another file in its place, or another
 * target of a link, is what an upgrade executes. */
static char *own_program(void)
{
	const char *given =
		(const char *)(uintptr_t)getauxval(AT_EXECFN); /* NOLINT: as getauxval(3) has it */
	CLEANUP_FREE char *cwd = getcwd(NULL, 0), *full = given && cwd ? path_join(cwd, given) : NULL;
	char self[PATH_MAX];
	struct stat a, b;
	ssize_t n;

	if (full && stat(full, &a) == 0 && stat("/proc/self/exe", &b) == 0 && file_same(&a, &b))
		return TAKE_PTR(full);
	n = readlink("/proc/self/exe", self, sizeof self - 1);
	if (n <= 0)
		return NULL;
	self[n] = 0;
	if (str_ends(self, " (deleted)"))
		self[n - (ssize_t)strlen(" (deleted)")] = 0;
	return xstrdup(self);
}

/* sup/upgrade.c puts the option and its value first. */
static char **own_arguments(int argc, char **argv)
{
	char **v = xcalloc((size_t)argc + 1, sizeof *v);
	int skip = argc > 2 && str_eq(argv[1], "--handover") ? 2 : 0;

	for (int i = 0, n = 0; i < argc; i++)
		if (i == 0 || i > skip)
			v[n++] = argv[i];
	return v;
}

static void save_rest(void *data, struct keep *k, struct js *root)
{
	struct daemon *d = data;

	keep_fd(k, root, "lock", d->lock_fd);
	keep_fd(k, root, "state_lock", d->state_lock_fd);
	keep_fd(k, root, "watch", d->watch_fd);
	js_add(root, "ctl", ctl_save(k, d->ctl));
}

static bool leave(void *data)
{
	struct daemon *d = data;

	return ctl_flush(d->ctl);
}

static void be_upgradable(struct daemon *d)
{
	struct sup_self self = {.program = d->program,
				.version = PACKAGE_VERSION,
				.argv = d->argv,
				.save = save_rest,
				.leave = leave,
				.data = d};

	sup_upgradable(d->sup, &self);
}

/* Everything is as it was in the program before: same pid, same children, same descriptors. */
static int take_over(struct daemon *d, struct err **e)
{
	const struct js *root = keep_root(d->keep);
	size_t left;

	d->lock_fd = keep_take_fd(d->keep, root, "lock");
	d->state_lock_fd = keep_take_fd(d->keep, root, "state_lock");
	d->watch_fd = keep_take_fd(d->keep, root, "watch");
	log_timestamps(!d->args.foreground);
	d->log_open = true;
	if (find_dirs(d, e) < 0)
		return -1;
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	d->loop = loop_create(LOOP_SHIFT_GAPS);
	if (!d->loop)
		return err_sys(e, errno, "cannot make an event loop");
	if (create_sup(d, e) < 0)
		return -1;
	d->ctl = ctl_restore(d->loop, d->sup, d->keep, js_get(root, "ctl"), on_api_shutdown, d, e);
	if (!d->ctl || keep_error(d->keep, e))
		return -1;
	left = keep_close_rest(d->keep);
	if (left)
		log_warning("%zu descriptors of the program before were of no use", left);
	return 0;
}

static int go_on(struct daemon *d, struct err **e)
{
	CLEANUP_FREE char *from = NULL;

	if (take_over(d, e) < 0)
		return -1;
	from = xstrdup(js_str(keep_root(d->keep), "version"));
	keep_destroy(TAKE_PTR(d->keep));
	be_upgradable(d);
	watch_signals(d);
	sup_go_on(d->sup, from ? from : "?");
	return 0;
}

/* In a child of the program that asks. The same as go_on(), with nothing real. Nothing is tidied up: it all ends here. */
static int rehearse(struct daemon *d)
{
	CLEANUP_ERR struct err *e = NULL;

	d->keep = keep_open(d->args.handover_fd, true, &e);
	if (d->keep && take_over(d, &e) == 0) {
		printf(SUP_HANDOVER_OK ", version " PACKAGE_VERSION "\n");
		(void)fflush(stdout);
		_exit(0);
	}
	printf("%s\n", err_msg(e));
	(void)fflush(stdout);
	_exit(1);
}

static int start(struct daemon *d, struct err **e)
{
	pid_t holder = 0;

	/* Where everything is; nothing is touched yet. */
	if (find_dirs(d, e) < 0)
		return -1;
	/* Before the start of anything: a caller that is gone already must not be outlived. */
	if (d->args.watch_pid && (d->watch_fd = pidfd_open_pid(d->args.watch_pid)) < 0)
		return err_sys(e, errno, "--watch-pid %d", (int)d->args.watch_pid);
	/* One supervisor; the loser must not touch the log or the state of the winner. */
	d->lock_fd = instance_lock(d->dirs.runtime, &holder, e);
	if (d->lock_fd < 0 || instance_lock_state(d->dirs.state, &d->state_lock_fd, e) < 0 ||
	    (!d->args.foreground && own_log(&d->dirs, e) < 0))
		return -1;
	d->log_open = true;
	/* Orphans of apps without a pid namespace become our children, not pid 1's. */
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	/* Pid 1 of a container inherits everybody's; children of our session are ours, the others are reaped. */
	if (getpid() == 1)
		(void)setsid();
	d->loop = loop_create(LOOP_SHIFT_GAPS);
	if (!d->loop)
		return err_sys(e, errno, "cannot make an event loop");
	/* Waits for a predecessor's remains, so the ports and directories are free afterwards. */
	if (create_sup(d, e) < 0)
		return -1;
	/* The control socket exists before the first app: whoever sees an app can ask for it. */
	d->ctl = ctl_create(d->loop, d->sup, &d->dirs, on_api_shutdown, d, e);
	if (!d->ctl)
		return -1;
	be_upgradable(d);
	if (stop_pending())
		return 0;
	/* From here the loop owns the signals; one that came meanwhile is delivered by its first round. */
	watch_signals(d);
	return sup_start(d->sup, e);
}

static void finish(struct daemon *d)
{
	/* The socket goes first: whoever still finds it must find somebody who answers. */
	ctl_destroy(d->ctl);
	sup_destroy(d->sup);
	loop_io_stop(&d->watch);
	loop_signal_stop(&d->term);
	loop_signal_stop(&d->intr);
	loop_signal_stop(&d->hup);
	loop_signal_stop(&d->usr2);
	loop_destroy(d->loop);
	fd_close_many(&d->watch_fd, 1);
	unit_dirs_finish(&d->dirs);
	free(d->argv);
	free(d->program);
	fd_close_many(&d->state_lock_fd, 1);
	fd_close_many(&d->lock_fd, 1); /* last: the next one may begin */
}

/* After an exec of ourselves. When it fails, our end is the end of all apps. */
static int run_on(struct daemon *d)
{
	CLEANUP_ERR struct err *e = NULL;

	d->keep = keep_open(d->args.handover_fd, false, &e);
	if (d->keep) {
		keep_only(d->keep); /* --handover's own is closed too: it was read */
		if (go_on(d, &e) == 0) {
			loop_run(d->loop);
			finish(d);
			return 0;
		}
	}
	log_error("the upgrade failed: %s", err_msg(e));
	return 1;
}

int main(int argc, char **argv)
{
	struct daemon d = {
		.lock_fd = -1, .state_lock_fd = -1, .notify_fd = -1, .parent_fd = -1, .watch_fd = -1};
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FREE char *text = NULL;
	int code;

	block_signals();
	log_init("sbxsvd", LOG_LEVEL_INFO);
	code = main_args_parse(argc, argv, &d.args);
	if (code >= 0)
		return code;
	if (d.args.debug)
		log_init("sbxsvd", LOG_LEVEL_DEBUG);
	d.argv = own_arguments(argc, argv);
	d.program = own_program();
	if (d.args.rehearsal)
		return rehearse(&d);
	if (d.args.handover_fd >= 0)
		return run_on(&d);
	/* Known descriptors first: everything after this may open some. */
	d.notify_fd = d.args.notify_fd;
	clean_fds(d.notify_fd);
	/* No directory is kept busy; the parser has made relative options absolute. */
	(void)umask(077);
	if (chdir("/") < 0)
		log_warning("chdir /: %s", strerror(errno));
	if (!d.args.foreground && daemonise(&d, &e) < 0)
		goto failed;
	/* A plan gives apps a soft limit of their own (OpenFiles=, 1024): a raised one breaks select(2). */
	(void)fd_raise_limit();
	if (start(&d, &e) < 0)
		goto failed;
	if (!stop_pending()) {
		tell(&d, "ready\n");
		main_notify_ready();
		loop_run(d.loop);
	}
	tell(&d, "stopped\n");
	finish(&d);
	return 0;
failed:
	if (d.args.foreground ||
	    d.log_open) /* else our stderr is still that of the caller, who is told below */
		log_error("%s", err_msg(e));
	text = xasprintf("%s\n", err_msg(e));
	tell(&d, text);
	finish(&d);
	return 1;
}
