#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "base/wire.h"
#include "net/proxyctl_internal.h"
#include "net/proxyctl_say.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define RESTART_GAP_MS   100 /* between two starts in a crash loop */
#define KILL_WAIT_MS     50
#define CRASHES_MAX      3 /* on one app's bytes: its egress is closed */

/* --- messages to the proxy --- */

/* A proxy that does not take its messages is killed and told everything again. */
static void say(struct proxyctl *p, struct js *j, const int *fds, size_t n)
{
	if (!p->wire) {
		js_free(j);
		return;
	}
	if (wire_send(p->wire, j, fds, n) == 0)
		return;
	log_error("sbxsv-proxy does not take messages (%s); it is restarted", strerror(errno));
	if (p->pidfd >= 0)
		(void)pidfd_signal(p->pidfd, SIGKILL);
}

static void say_hello(struct proxyctl *p)
{
	struct js *j = pc_message_new("hello", NULL);

	js_add_int(j, "v", WIRE_VERSION);
	js_add_int(j, "status", CRASH_PAGE_BYTES);
	say(p, j, &p->crash_fd, 1);
}

static void say_sync(struct proxyctl *p, uint64_t n)
{
	struct js *j = pc_message_new("sync", NULL);

	js_add_int(j, "n", (int64_t)n);
	say(p, j, NULL, 0);
}

static void say_policy(struct proxyctl *p, const struct pc_app *a)
{
	struct js *j;

	if (!a->policy)
		return;
	j = pc_message_new("policy", a->name);
	js_add(j, "policy", js_copy(a->policy));
	if (p->hooks.where)
		js_add_str(j, "where", p->hooks.where);
	if (a->crashes >= CRASHES_MAX)
		js_add_str(j, "closed", PC_CLOSED_BY_CRASHES);
	say(p, j, NULL, 0);
}

static void say_listeners(struct proxyctl *p, const struct pc_app *a)
{
	int fds[FD_PASS_MAX];
	size_t n;
	struct js *j = pc_say_listeners(a, fds, &n);

	say(p, j, fds, n);
}

static void say_loopback(struct proxyctl *p, const struct pc_app *a)
{
	int fds[FD_PASS_MAX];
	size_t n;
	struct js *j = pc_say_loopback(a, fds, &n);

	say(p, j, fds, n);
}

static void say_jail(struct proxyctl *p, const struct pc_app *a)
{
	int fds[FD_PASS_MAX];
	size_t n;
	struct js *j;

	if (!a->launch)
		return;
	j = pc_say_jail(a, fds, &n);
	say(p, j, fds, n);
}

static void say_app(struct proxyctl *p, const struct pc_app *a)
{
	say_policy(p, a);
	say(p, pc_say_gate(a), NULL, 0);
	say_jail(p, a);
	if (a->n_listen)
		say_listeners(p, a);
}

/* --- messages from the proxy --- */

static void send_pool(void *data, struct pc_app *a, size_t n)
{
	CLEANUP_ERR struct err *e = NULL;
	struct proxyctl *p = data;
	struct js *j;
	int fds[PC_POOL_MAX];

	/* It asks again when it has the answer. One that does not read them would fill our table of
	 * descriptors. */
	if (!p->wire || a->pool_message > wire_left(p->wire)) {
		log_error("sbxsv-proxy asks for sockets and does not take them; it is restarted");
		if (p->pidfd >= 0)
			(void)pidfd_signal(p->pidfd, SIGKILL);
		return;
	}
	if (n && net_make_sockets(a->jail.userns_fd, a->jail.netns_fd, fds, n, &e) < 0) {
		if (clk_mono_ms() - a->pool_failed_ms > 10000 || !a->pool_failed_ms) {
			a->pool_failed_ms = clk_mono_ms();
			log_warning("%s: no sockets inside its network namespace: %s", a->name, err_msg(e));
		}
		n = 0; /* an empty answer: the proxy asks again a little later */
	}
	j = pc_message_new("pool", a->name);
	js_add_int(j, "launch", (int64_t)a->launch);
	say(p, j, fds, n);
	fd_close_many(fds, n);
	a->pool_message = p->wire ? wire_accepted(p->wire) : 0;
}

static void on_event(void *data, const struct js *event)
{
	const struct proxyctl *p = data;

	p->hooks.event(p->hooks.data, event);
}

static void on_synced(void *data, uint64_t n)
{
	struct proxyctl *p = data;

	pc_sync_done(&p->syncs, n);
}

static void on_use(void *data, struct pc_app *a, enum proxy_use use)
{
	const struct proxyctl *p = data;

	if (p->hooks.use)
		p->hooks.use(p->hooks.data, a->name, use);
}

static void on_message(void *data, const struct js *m, int *fds, size_t n)
{
	struct proxyctl *p = data;

	(void)fds; /* the wire closes them */
	(void)n;
	pc_message(&p->in, m);
}

static void on_wire_closed(void *data, const char *why)
{
	struct proxyctl *p = data;

	(void)why;
	wire_destroy(p->wire);
	p->wire = NULL;
	if (p->pidfd >= 0) /* it may be about to end, or hang: the pidfd tells when it is gone */
		(void)pidfd_signal(p->pidfd, SIGKILL);
}

/* --- the process --- */

static void blame_app(struct proxyctl *p)
{
	char name[256];
	struct js *event;
	struct pc_app *a;

	if (!p->crash_page[0])
		return;
	for (size_t i = 0; i < sizeof name; i++)
		name[i] = p->crash_page[1 + i];
	name[sizeof name - 1] = 0;
	a = pc_app_find(p->apps, name);
	if (!a || ++a->crashes != CRASHES_MAX)
		return;
	log_error("%s: sbxsv-proxy crashed %d times on its bytes; its egress is closed", a->name,
		  CRASHES_MAX);
	event = js_obj();
	js_add_str(event, "type", "supervisor");
	js_add_str(event, "app", a->name);
	js_add_str(event, "message", PC_CLOSED_BY_CRASHES);
	p->hooks.event(p->hooks.data, event);
	js_free(event);
}

/* The signals of a program that went wrong by itself; SIGKILL is somebody's decision. */
static bool is_crash(int status)
{
	static const int crashes[] = {SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};

	for (size_t i = 0; i < ELEMENTS(crashes); i++)
		if (WIFSIGNALED(status) && WTERMSIG(status) == crashes[i])
			return true;
	return false;
}

static void start_soon(struct proxyctl *p)
{
	int64_t since = clk_mono_ms() - p->started_ms;

	if (since >= RESTART_GAP_MS)
		pc_start(p);
	else
		loop_timer_start(&p->restart, RESTART_GAP_MS - since);
}

static void on_restart_timer(struct loop_timer *t)
{
	pc_start(t->data);
}

static void on_exited(struct loop_io *io, unsigned events)
{
	struct proxyctl *p = io->data;
	char why[64];
	int status = 0;

	(void)events;
	if (pidfd_reap(p->pidfd, &status) == 0)
		return;
	loop_io_stop(io);
	(void)close(TAKE_FD(p->pidfd));
	p->pid = 0;
	wire_destroy(p->wire);
	p->wire = NULL;
	if (WIFSIGNALED(status))
		(void)snprintf(why, sizeof why, "sbxsv-proxy was killed by signal %d (%s)", WTERMSIG(status),
			       strsignal(WTERMSIG(status)));
	else
		(void)snprintf(why, sizeof why, "sbxsv-proxy ended with status %d", WEXITSTATUS(status));
	log_warning("%s; it is started again", why);
	if (is_crash(status))
		blame_app(p);
	for (struct pc_app *a = p->apps; a; a = a->next)
		pc_app_proxy_died(a);
	if (p->hooks.restarted)
		p->hooks.restarted(p->hooks.data, why);
	start_soon(p);
}

/* Between fork and exec: async-signal-safe calls only. */
static void child(const struct proxyctl *p, int wire_fd, char *const argv[], char *const envp[])
{
	if (fd_become_service(wire_fd) < 0)
		_exit(126);
	(void)execve(p->program, argv, envp);
	_exit(127);
}

static pid_t spawn(struct proxyctl *p, int wire_fd)
{
	/* Static: a literal in an inner block would be gone when it is used. */
	static char parent_option[] = "--parent", uid_option[] = "--uid", gid_option[] = "--gid";
	char parent[16], uid[16], gid[16];
	char *argv[8] = {p->program, parent_option, parent};
	char *envp[] = {(char[]){"PATH=/usr/bin:/bin"}, (char[]){"LC_ALL=C"}, NULL};
	sigset_t all, before;
	size_t n = 3;
	pid_t pid;

	(void)snprintf(parent, sizeof parent, "%d", (int)getpid());
	(void)snprintf(uid, sizeof uid, "%u", p->uid);
	(void)snprintf(gid, sizeof gid, "%u", p->gid);
	if (p->uid != (uid_t)-1) {
		argv[n++] = uid_option;
		argv[n++] = uid;
	}
	if (p->gid != (gid_t)-1) {
		argv[n++] = gid_option;
		argv[n++] = gid;
	}
	argv[n] = NULL;
	/* No handler of ours may run in the child: it would wake our loop. */
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &before);
	pid = fork();
	if (pid == 0)
		child(p, wire_fd, argv, envp);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	return pid;
}

void pc_watch_end(struct proxyctl *p)
{
	loop_io_init(p->loop, &p->exited, p->pidfd, LOOP_READ, on_exited, p);
}

void pc_watch(struct proxyctl *p, int fd)
{
	p->wire = wire_create(p->loop, fd, on_message, on_wire_closed, p);
	pc_watch_end(p);
}

static int spawn_with_wire(struct proxyctl *p)
{
	CLEANUP_FD int ours = -1;
	CLEANUP_FD int theirs = -1;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	ours = pair[0];
	theirs = pair[1];
	p->pid = spawn(p, theirs);
	if (p->pid < 0) {
		p->pid = 0;
		return -1;
	}
	p->pidfd = pidfd_open_pid(p->pid); /* not reaped yet, so this pid is ours */
	if (p->pidfd < 0) {
		(void)kill(p->pid, SIGKILL);
		(void)waitpid(p->pid, NULL, 0);
		p->pid = 0;
		return -1;
	}
	pc_watch(p, TAKE_FD(ours));
	return 0;
}

void pc_start(struct proxyctl *p)
{
	p->started_ms = clk_mono_ms();
	p->in.complained = false;
	p->crash_page[0] = 0;
	if (spawn_with_wire(p) < 0) {
		log_error("sbxsv-proxy cannot be started: %s; tried again", strerror(errno));
		loop_timer_start(&p->restart, RESTART_GAP_MS);
		return;
	}
	say_hello(p);
	for (struct pc_app *a = p->apps; a; a = a->next)
		say_app(p, a);
	if (p->syncs.first)
		say_sync(p, p->syncs.last);
}

int pc_check_program(const struct proxyctl *p, struct err **e)
{
	return access(p->program, X_OK) == 0 ? 0 : err_sys(e, errno, "%s cannot be run", p->program);
}

int pc_map_crash_page(struct proxyctl *p, struct err **e)
{
	void *m = mmap(NULL, CRASH_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, p->crash_fd, 0);
	if (m == MAP_FAILED)
		return err_sys(e, errno, "the crash page of sbxsv-proxy cannot be mapped");
	p->crash_page = m;
	return 0;
}

static int make_crash_page(struct proxyctl *p, struct err **e)
{
	p->crash_fd = fd_memory("sbxsv-proxy-status");
	if (p->crash_fd < 0 || ftruncate(p->crash_fd, CRASH_PAGE_BYTES) < 0)
		return err_sys(e, errno, "the crash page of sbxsv-proxy cannot be made");
	return pc_map_crash_page(p, e);
}

struct proxyctl *pc_new(struct loop *l, const char *program, uid_t run_uid, gid_t run_gid,
			const struct proxyctl_hooks *hooks)
{
	struct proxyctl *p = xcalloc(1, sizeof *p);

	p->loop = l;
	p->program = xstrdup(program);
	p->uid = run_uid;
	p->gid = run_gid;
	p->hooks = *hooks;
	p->in = (struct pc_in){
		.apps = &p->apps, .event = on_event, .need = send_pool, .synced = on_synced, .use = on_use, .data = p};
	p->pidfd = p->crash_fd = -1;
	loop_timer_init(l, &p->restart, on_restart_timer, p);
	return p;
}

struct proxyctl *proxyctl_create(struct loop *l, const char *program, uid_t run_uid, gid_t run_gid,
				 const struct proxyctl_hooks *hooks, struct err **e)
{
	struct proxyctl *p = pc_new(l, program, run_uid, run_gid, hooks);

	if (pc_check_program(p, e) < 0 || make_crash_page(p, e) < 0)
		goto fail;
	p->started_ms = clk_mono_ms();
	if (spawn_with_wire(p) < 0) {
		(void)err_sys(e, errno, "%s cannot be started", program);
		goto fail;
	}
	say_hello(p);
	return p;
fail:
	proxyctl_destroy(p);
	return NULL;
}

void proxyctl_destroy(struct proxyctl *p)
{
	if (!p)
		return;
	loop_timer_stop(&p->restart);
	loop_io_stop(&p->exited);
	wire_destroy(p->wire);
	if (p->pidfd >= 0) {
		struct pollfd end = {.fd = p->pidfd, .events = POLLIN};
		int status;

		(void)pidfd_signal(p->pidfd, SIGKILL);
		(void)poll(&end, 1, KILL_WAIT_MS);
		(void)pidfd_reap(p->pidfd, &status);
		(void)close(p->pidfd);
	}
	pc_sync_done(&p->syncs, UINT64_MAX);
	while (p->apps)
		pc_app_free(&p->apps, p->apps);
	if (p->crash_page)
		(void)munmap((void *)(uintptr_t)p->crash_page, CRASH_PAGE_BYTES);
	if (p->crash_fd >= 0)
		(void)close(p->crash_fd);
	free(p->program);
	free(p);
}

int proxyctl_pidfd(const struct proxyctl *p)
{
	return p->pidfd;
}

pid_t proxyctl_pid(const struct proxyctl *p)
{
	return p->pid;
}

void proxyctl_sync(struct proxyctl *p, proxyctl_sync_fn *fn, void *data)
{
	say_sync(p, pc_sync_add(&p->syncs, fn, data));
}

/* --- per app --- */

bool proxyctl_policy_fits(const struct policy *policy)
{
	CLEANUP_JS struct js *j = policy_to_json(policy);

	return pc_policy_fits(j);
}

int proxyctl_set_policy(struct proxyctl *p, const char *app, const struct policy *policy, struct err **e)
{
	CLEANUP_JS struct js *j = policy_to_json(policy);
	struct pc_app *a;

	if (!pc_policy_fits(j))
		return err_set(e, EMSGSIZE,
			       "the network rules of %s are too many to hand to sbxsv-proxy (%u KiB)", app,
			       WIRE_LARGE_MAX >> 10);
	a = pc_app_get(&p->apps, app);
	if (pc_app_policy(a, TAKE_PTR(j)))
		a->crashes = 0; /* other rules, another chance */
	say_policy(p, a);
	return 0;
}

int proxyctl_set_listeners(struct proxyctl *p, const char *app, const struct proxyctl_listen *v, size_t n,
			   struct err **e)
{
	struct pc_app *a = pc_app_get(&p->apps, app);

	if (pc_app_listeners(a, v, n, e) < 0)
		return -1;
	say_listeners(p, a);
	return 0;
}

void proxyctl_gate(struct proxyctl *p, const char *app, enum proxy_gate gate)
{
	struct pc_app *a = pc_app_get(&p->apps, app);

	a->gate = gate;
	a->gate_n = ++p->gates;
	a->unused_since_ms = 0;
	say(p, pc_say_gate(a), NULL, 0);
}

void proxyctl_idle(struct proxyctl *p, const char *app, int64_t idle_ms, bool by_traffic)
{
	struct pc_app *a = pc_app_get(&p->apps, app);

	if (a->idle_ms == idle_ms && a->idle_by_traffic == by_traffic)
		return;
	a->idle_ms = idle_ms;
	a->idle_by_traffic = by_traffic;
	if (a->gate_n)
		proxyctl_gate(p, app, a->gate);
}

void proxyctl_set_jail(struct proxyctl *p, const char *app, struct proxyctl_jail *jail)
{
	struct pc_app *a = pc_app_get(&p->apps, app);

	pc_app_drop_jail(a);
	a->jail = *jail;
	a->launch = ++p->launches;
	if (jail->n_dns_udp || jail->n_dns_tcp)
		pc_app_names(a);
	say_jail(p, a);
}

int proxyctl_set_loopback(struct proxyctl *p, const char *app, const struct proxyctl_loopback *v, size_t n,
			  struct err **e)
{
	struct pc_app *a = pc_app_find(p->apps, app);

	if (!a || !a->launch)
		return 0; /* nothing runs: the next jail has them */
	if (pc_app_loopback(a, v, n, e) < 0)
		return -1;
	say_loopback(p, a);
	return 0;
}

void proxyctl_drop_jail(struct proxyctl *p, const char *app)
{
	struct pc_app *a = pc_app_find(p->apps, app);

	if (!a || !a->launch)
		return;
	pc_app_drop_jail(a);
	say(p, pc_message_new("drop", app), NULL, 0);
}

void proxyctl_remove(struct proxyctl *p, const char *app)
{
	struct pc_app *a = pc_app_find(p->apps, app);

	if (!a)
		return;
	say(p, pc_message_new("remove", a->name), NULL, 0);
	pc_app_free(&p->apps, a);
}

void proxyctl_counters(const struct proxyctl *p, const char *app, struct proxyctl_app_counters *ret)
{
	const struct pc_app *a = pc_app_find(p->apps, app);

	if (a)
		pc_app_totals(a, ret);
	else
		*ret = (struct proxyctl_app_counters){0};
}

struct js *proxyctl_unreachable(const struct proxyctl *p, const char *app)
{
	const struct pc_app *a = pc_app_find(p->apps, app);

	return a ? pc_app_denied_list(a, true) : js_arr();
}

struct js *proxyctl_denied(const struct proxyctl *p, const char *app)
{
	const struct pc_app *a = pc_app_find(p->apps, app);

	return a ? pc_app_denied_list(a, false) : js_arr();
}

struct js *proxyctl_rules(const struct proxyctl *p, const char *app)
{
	const struct pc_app *a = pc_app_find(p->apps, app);

	return a ? pc_tally_list(&a->tally) : js_arr();
}
