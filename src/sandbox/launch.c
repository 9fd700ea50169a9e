/* The supervisor's side of a launch. See jail.h. */
#include "base/fd.h"
#include "sandbox/launch_internal.h"
#include "sandbox/sys.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { DEADLINE_MS = 10000 }; /* a launch takes 10 ms; a dead network file system may hold it for ever */

void isolation_finish(struct isolation *i)
{
	strv_clear(&i->missing);
	free(TAKE_PTR(i->unix_why));
}

static void close_done(struct launch_done *d)
{
	isolation_finish(&d->isolation);
	fd_close_many(d->sockets.fds, d->sockets.n);
	d->sockets.n = 0;
	fd_close_many(&d->userns_fd, 1);
	fd_close_many(&d->netns_fd, 1);
	fd_close_many(&d->diag_fd, 1);
}

static void stop_watching(struct launch *l)
{
	loop_io_stop(&l->watch);
	loop_timer_stop(&l->deadline);
	loop_defer_stop(&l->later);
}

/* One of the notes of sbxsv-init after the start, if there is one. False: nothing more now, or never. */
static bool take_note(struct launch *l, bool *ret_gone)
{
	struct {
		struct init_note note;
		char text[4096];
	} m;
	size_t n_fds = 0;
	ssize_t n = fd_recv(l->sock, &m, sizeof m, NULL, 0, &n_fds);

	*ret_gone = n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
	if (n <= 0)
		return false;
	if (n == sizeof m.note && m.note.type == NOTE_EXITED) {
		l->status = m.note.value;
		l->has_status = true;
	} else if (n >= (ssize_t)sizeof m.note && m.note.type == NOTE_NOTIFY && l->notified) {
		size_t len = (size_t)n - sizeof m.note;

		l->notified(l->data, m.note.value ? NULL : m.text, m.note.value ? 0 : len, m.note.value);
	} else if (n == sizeof m.note && m.note.type == NOTE_CHECKED) {
		launch_checked_fn *fn = l->checked;

		l->checked = NULL;
		l->checking = false;
		if (fn)
			fn(l->checked_data, m.note.value);
	}
	return true;
}

void launch_on_note(struct loop_io *w, unsigned events)
{
	struct launch *l = w->data;
	bool gone = false;

	(void)events;
	for (int i = 0; i < 32 && take_note(l, &gone); i++) /* others of the loop have their turn, too */
		;
	if (gone)
		loop_io_stop(w);
}

/* Calls back once. The owner may destroy the launch inside, so that nothing of it is touched afterwards. */
static void conclude(struct launch *l)
{
	struct launch_done done = l->done;
	struct err *failure = l->failure;

	l->finished = true;
	l->failure = NULL;
	l->done = (struct launch_done){.userns_fd = -1, .netns_fd = -1, .diag_fd = -1};
	stop_watching(l);
	if (failure)
		(void)pidfd_signal(l->pidfd, SIGKILL);
	else if (l->notified)
		loop_io_init(l->loop, &l->watch, l->sock, LOOP_READ, launch_on_note, l);
	l->on_done(l->data, l, &done, failure);
	close_done(&done);
	err_free(failure);
}

static void fail_note(struct launch *l, const struct setup_note *n)
{
	CLEANUP_FREE char *why = NULL;
	int error = n->error < 0 ? -n->error : n->error;

	if (n->error > 0)
		(void)err_sys(&l->failure, error, "%s: jail: %.*s (step %.*s)", l->app, (int)sizeof n->text,
			      n->text, (int)sizeof n->step, n->step);
	else
		(void)err_set(&l->failure, error, "%s: jail: %.*s (step %.*s)", l->app, (int)sizeof n->text,
			      n->text, (int)sizeof n->step, n->step);
	why = l->backend->explain(error, n->step);
	if (why)
		(void)err_set(&l->failure, error, "%s: %s", err_msg(l->failure), why);
}

static void take_jail(struct launch *l, const struct setup_message *m, int *fds, size_t n)
{
	struct isolation *i = &l->done.isolation;

	l->has_jail = true;
	i->seccomp = m->got & GOT_SECCOMP;
	i->nested_ns_off = m->got & GOT_NESTED_OFF;
	i->no_new_privs = m->got & GOT_NO_NEW_PRIVS;
	i->landlock_abi = m->landlock_abi;
	for (uint32_t k = 0; k < m->n_notes && k < SETUP_NOTES_MAX; k++)
		strv_addf(&i->missing, "%s: %s", m->notes[k].text, strerror(m->notes[k].error));
	i->audit_error = m->audit_error;
	i->in_group = m->got & GOT_GROUP;
	if ((m->got & GOT_AUDIT) && n >= 4) {
		struct launch_audit a = {.diag_fd = fds[n - 4],
					 .mntns_fd = fds[n - 3],
					 .root_fd = fds[n - 2],
					 .listener_fd = fds[n - 1]};

		i->audit = l->audit;
		n -= 4;
		if (l->listening(l->data, &a, &l->failure) < 0)
			(void)err_wrap(&l->failure, "%s: jail", l->app);
	}
	if (n < 3) {
		fd_close_many(fds, n);
		return;
	}
	l->done.userns_fd = fds[0];
	l->done.netns_fd = fds[1];
	l->done.diag_fd = fds[2];
	l->done.sockets.n = n - 3;
	memcpy(l->done.sockets.fds, fds + 3, (n - 3) * sizeof *fds);
	memcpy(l->done.sockets.facts, m->facts, sizeof m->facts);
}

/* One message; the fds are taken over. True when the launch is over, one way or the other. */
static bool digest(struct launch *l, const void *data, size_t len, int *fds, size_t n_fds)
{
	const struct setup_message *m = data;
	const struct init_note *note = data;

	if (len >= offsetof(struct setup_message, notes) && m->type == SETUP_JAIL && !l->has_jail) {
		take_jail(l, m, fds, n_fds);
		return l->failure != NULL;
	}
	fd_close_many(fds, n_fds);
	if (len >= offsetof(struct setup_message, notes[1]) && m->type == SETUP_FAILED && m->n_notes > 0 &&
	    m->n_notes <= SETUP_NOTES_MAX) {
		fail_note(l, &m->notes[m->n_notes - 1]);
		return true;
	}
	if (len == sizeof *note && note->type == NOTE_STARTED && l->has_jail)
		return true;
	if (len == sizeof *note && note->type == NOTE_EXEC_FAILED) {
		(void)err_sys(&l->failure, note->value, "%s: cannot execute %s inside the jail", l->app,
			      l->program);
		return true;
	}
	(void)err_set(&l->failure, EPROTO, "%s: jail: the launcher sent a message nobody knows", l->app);
	return true;
}

/* All messages that are there: when the child is dead already, the owner learns of the launch before it
 * learns of that. True: on_done was called, and the launch may be gone. */
static bool take_messages(struct launch *l)
{
	struct setup_message m;
	int fds[CHILD_FDS_MAX];
	size_t n_fds = 0;
	ssize_t n;

	do {
		n = fd_recv(l->sock, &m, sizeof m, fds, CHILD_FDS_MAX, &n_fds);
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return false;
		if (n < 0 && errno == ECONNRESET)
			n = 0; /* killed before it read what we sent */
		if (n < 0 && errno == EMSGSIZE)
			errno = EMFILE; /* no room for what it passed: recvmsg(2) says so by MSG_CTRUNC */
		if (n < 0)
			(void)err_sys(&l->failure, errno, "%s: jail: cannot hear the launching child",
				      l->app);
		else if (n == 0)
			(void)err_set(&l->failure, EPIPE, "%s: jail: the launching child was killed%s",
				      l->app, l->has_jail ? " before the program ran" : "");
	} while (n > 0 && !digest(l, &m, (size_t)n, fds, n_fds));
	conclude(l);
	return true;
}

static void on_message(struct loop_io *w, unsigned events)
{
	(void)events;
	(void)take_messages(w->data);
}

static void on_deadline(struct loop_timer *w)
{
	struct launch *l = w->data;

	if (l->quiet && take_messages(l))
		return;
	(void)err_set(&l->failure, ETIMEDOUT,
		      "%s: jail: not built within %d s, ended; is a file system hanging?", l->app,
		      DEADLINE_MS / 1000);
	conclude(l);
}

static void on_later(struct loop_defer *w)
{
	conclude(w->data);
}

/* What only the real root may do for its child. Failures reach on_done like those of the child. */
static void help_child(struct launch *l, const struct plan *p)
{
	char go = 'g';

	if (ids_write_maps(l->pid, p->user.uid, p->user.gid, &l->failure) < 0) {
		(void)err_wrap(&l->failure, "%s: jail", l->app);
		loop_defer_start(&l->later);
		return;
	}
	/* the child has no rights over the machine any more when its turn comes to raise these */
	if (p->nice < 0 && setpriority(PRIO_PROCESS, (id_t)l->pid, p->nice) < 0)
		(void)err_sys(&l->failure, errno, "%s: Nice=%d", l->app, p->nice);
	for (size_t i = 0; i < p->n_rlimits; i++) {
		const struct rlimit *want = &p->rlimits[i].limit;
		struct rlimit now;

		if (want->rlim_max == RLIM_INFINITY ||
		    prlimit(l->pid, p->rlimits[i].resource, NULL, &now) < 0)
			continue;
		if (now.rlim_max < want->rlim_max) {
			now.rlim_max = want->rlim_max;
			(void)prlimit(l->pid, p->rlimits[i].resource, &now, NULL);
		}
	}
	if (l->failure)
		loop_defer_start(&l->later);
	else
		(void)!send(l->sock, &go, 1, MSG_NOSIGNAL); /* a dead child is seen by the watch */
}

static bool groups_are_kept(const struct plan *p)
{
	gid_t g[NGROUPS_MAX > 1024 ? 1024 : NGROUPS_MAX];
	int n = getgroups((int)ELEMENTS(g), g);

	for (int i = 0; i < n; i++)
		if (g[i] != p->user.gid)
			return true;
	return n < 0;
}

static char **init_argv(const struct plan *p, const char *flags, bool ready)
{
	char **v = xcalloc(p->argv.n + 5, sizeof *v);
	size_t n = 0;

	v[n++] = xstrdup("sbxsv-init");
	v[n++] = xstrdup("3"); /* child_stdio() puts the setup socket there */
	v[n++] = xasprintf("%s%s%s", flags, p->notify ? "n" : "", ready ? "r" : "");
	v[n++] = xstrdup(p->program);
	for (size_t i = 0; i < p->argv.n; i++)
		v[n++] = xstrdup(p->argv.v[i]);
	return v;
}

static void free_argv(char **v)
{
	for (size_t i = 0; v[i]; i++)
		free(v[i]);
	free(v);
}

/* All signals are blocked around the clone: a handler of the loop must not run in the child, where its pipe
 * is the supervisor's. sbxsv-init keeps them blocked, so that none sent early is lost. */
static pid_t clone_child(struct child *c, const struct launch_how *how, int *pidfd, int parent_end)
{
	uint64_t flags = how->clone_flags | CLONE_CLEAR_SIGHAND;
	sigset_t all, old;
	pid_t pid;
	int error;

	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &old);
	c->msg.got = c->io->group_fd > 0 ? GOT_GROUP : 0;
	pid = sys_clone3(flags, pidfd, c->io->group_fd);
	if (pid < 0 && c->io->group_fd > 0 && errno != EAGAIN && errno != ENOMEM) {
		c->msg.got = 0;
		c->join = true;
		pid = sys_clone3(flags, pidfd, 0);
	}
	if (pid == 0) {
		(void)close(parent_end);
		how->child(c);
		_exit(125);
	}
	error = errno;
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	errno = error;
	return pid;
}

static void no_clone(const struct plan *p, const struct launch_how *how, int error, struct err **e)
{
	CLEANUP_FREE char *why = how->backend->explain(error, "namespaces");

	(void)err_set(e, error, "%s: jail: cannot make its namespaces: %s%s%s%s", p->app, strerror(error),
		      why ? ": " : "", why ? why : "",
		      p->enforce == UNIT_ENFORCE_BEST_EFFORT
			      ? " (best-effort does without single layers, but not without namespaces; only "
				"Enforce=off does)"
			      : "");
}

static struct launch *launch_new(struct loop *loop, const struct plan *plan, const struct launch_how *how)
{
	struct launch *l = xcalloc(1, sizeof *l);
	struct isolation *i = &l->done.isolation;

	l->backend = how->backend;
	l->app = xstrdup(plan->app);
	l->program = xstrdup(plan->program);
	l->pidfd = l->sock = -1;
	l->done.userns_fd = l->done.netns_fd = l->done.diag_fd = -1;
	loop_timer_init(loop, &l->deadline, on_deadline, l);
	loop_defer_init(loop, &l->later, on_later, l);
	i->backend = how->backend->name;
	i->user_ns = how->clone_flags & CLONE_NEWUSER;
	i->mount_ns = how->unshare_flags & CLONE_NEWNS;
	i->pid_ns = how->clone_flags & CLONE_NEWPID;
	i->net_ns = how->unshare_flags & CLONE_NEWNET;
	i->survivors_possible = !i->pid_ns;
	strv_copy(&i->missing, &plan->missing);
	i->unix_sockets = plan->unix_sockets || !how->landlock;
	i->unix_why = how->landlock ? xstrdup(plan->unix_why) : NULL;
	i->groups_kept = geteuid() != 0 && groups_are_kept(plan);
	return l;
}

bool launch_identity_ok(const struct plan *p, struct err **e)
{
	const char *name = p->user.name ? p->user.name : "?";

	if (p->user.uid == 0) {
		(void)err_set(e, EPERM, "%s: an app never runs as root: name a User=", p->app);
		return false;
	}
	if (geteuid() != 0 && p->user.uid != geteuid()) {
		(void)err_set(e, EPERM, "%s: only a supervisor run by root starts apps of another user (%s)",
			      p->app, name);
		return false;
	}
	return true;
}

static bool dumps_core(const struct plan *p)
{
	for (size_t i = 0; i < p->n_rlimits; i++)
		if (p->rlimits[i].resource == RLIMIT_CORE)
			return p->rlimits[i].limit.rlim_cur > 0;
	return true;
}

struct launch *launch_start(struct loop *loop, const struct plan *plan, const struct launch_io *io,
			    const struct launch_how *how, launch_done_fn *on_done, void *data, struct err **e)
{
	struct child c = {.plan = plan,
			  .io = io,
			  .unshare = how->unshare_flags,
			  .as_root = geteuid() == 0,
			  .helped = geteuid() == 0 && (how->clone_flags & CLONE_NEWUSER),
			  .root = -1,
			  .blank = -1,
			  .listener = -1,
			  .mntns = -1,
			  .diag = -1,
			  .notify = -1};
	struct launch *l = launch_new(loop, plan, how);
	char **argv = init_argv(plan, how->init_flags, io->ready_fd > 0);
	CLEANUP_ERR struct err *no_filter = NULL;
	int sp[2] = {-1, -1};

	l->on_done = on_done;
	l->audit = io->audit;
	l->listening = io->listening;
	l->notified = io->notified;
	l->loop = loop;
	l->data = data;
	c.init_argv = argv;
	c.landlock.fd = -1;
	c.abi = how->landlock ? landlock_abi() : 0;
	c.filter = filter_get(how->filter_variant | (dumps_core(plan) ? FILTER_CORE : 0), &no_filter);
	if (!c.filter && how->filter_required)
		(void)err_set(e, err_code(no_filter), "%s: jail: %s", plan->app, err_msg(no_filter));
	else if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sp) < 0)
		(void)err_sys(e, errno, "%s: jail: cannot make a socket pair", plan->app);
	else {
		c.sock = sp[1];
		l->pid = clone_child(&c, how, &l->pidfd, sp[0]);
		if (l->pid < 0)
			no_clone(plan, how, errno, e);
	}
	free_argv(argv);
	fd_close_many(&sp[1], 1);
	if (l->pid <= 0) {
		fd_close_many(&sp[0], 1);
		launch_destroy(l);
		return NULL;
	}
	l->sock = sp[0];
	(void)fd_set_nonblock(l->sock, true);
	l->quiet = io->quiet;
	loop_io_init(loop, &l->watch, l->sock, io->quiet ? 0 : LOOP_READ, on_message, l);
	loop_io_first(&l->watch);
	loop_timer_start(&l->deadline, DEADLINE_MS);
	if (c.helped)
		help_child(l, plan);
	return l;
}

void launch_settle(struct launch *l)
{
	if (!l->finished)
		(void)take_messages(l);
}

int launch_pidfd(const struct launch *l)
{
	return l->pidfd;
}

pid_t launch_pid(const struct launch *l)
{
	return l->pid;
}

int launch_exit_status(struct launch *l, int *ret_status)
{
	bool gone;

	while (!l->has_status && l->finished && l->sock >= 0 && take_note(l, &gone))
		;
	if (!l->has_status)
		return -1;
	*ret_status = l->status;
	return 0;
}

static int order(struct launch *l, int type, const struct strv *words)
{
	struct {
		struct init_note note;
		char text[LAUNCH_CHECK_MAX];
	} m = {.note = {.type = type}};
	size_t at = 0;

	for (size_t i = 0; words && i < words->n; i++) {
		size_t n = strlen(words->v[i]) + 1;

		if (n > sizeof m.text - at || i >= LAUNCH_CHECK_WORDS) {
			errno = E2BIG;
			return -1;
		}
		memcpy(m.text + at, words->v[i], n);
		at += n;
	}
	return send(l->sock, &m, sizeof m.note + at, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -1 : 0;
}

int launch_check(struct launch *l, const struct strv *argv, launch_checked_fn *fn, void *data)
{
	if (!l->finished || l->checking) {
		errno = EBUSY;
		return -1;
	}
	if (order(l, ORDER_CHECK, argv) < 0)
		return -1;
	if (!l->watch.events) /* what comes over the socket was of no interest so far */
		loop_io_init(l->loop, &l->watch, l->sock, LOOP_READ, launch_on_note, l);
	l->checking = true;
	l->checked = fn;
	l->checked_data = data;
	return 0;
}

void launch_check_stop(struct launch *l)
{
	l->checked = NULL;
	if (l->checking)
		(void)order(l, ORDER_KILL, NULL);
}

void launch_destroy(struct launch *l)
{
	if (!l)
		return;
	if (l->watch.loop)
		stop_watching(l);
	close_done(&l->done);
	fd_close_many(&l->sock, 1);
	fd_close_many(&l->pidfd, 1);
	err_free(l->failure);
	free(l->app);
	free(l->program);
	free(l);
}
