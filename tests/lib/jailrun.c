/*
 * jailrun: one launch through the backend interface, from a plan given on the command line. For tests that
 * need a jail and neither units nor a supervisor.
 *
 *   jailrun --init PATH [--mode strict|allowlist|open] [--read P] [--write P] [--hide P] [--empty P]
 * [--create P]
 *           [--socket P] [--link P=TARGET] [--uid N --gid N] [--workdir D] [--enforce required|best-effort]
 * [--none]
 *           [--nested] [--egress] [--ports PORT] [--loopback PORT] [--tmp-size N] [--report FILE] [--repeat N] [--kill-after
 * MS] -- CMD...
 *
 * Paths are taken in the order given, which must be parents first. Exit status: the app's, 125 without a
 * jail.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "net/net.h"
#include "sandbox/backend.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

struct run {
	struct loop *loop;
	struct plan *plan;
	struct net_plan net;
	uint16_t ports[8], listed[8];
	const struct backend *backend;
	const char *init, *report;
	long repeat, kill_after_ms;
	struct launch *launch;
	struct loop_io dead;
	struct loop_timer killer;
	bool roots; /* the system's directories are in the plan; --mode comes before paths */
	int code;
};

static void add_path(struct plan *p, const char *path, enum plan_access access)
{
	struct stat st;
	struct plan_path *n;

	VEC_GROW(p->paths, p->n_paths, p->cap_paths);
	n = &p->paths[p->n_paths++];
	*n = (struct plan_path){.path = xstrdup(path), .access = access, .dir = true};
	if (lstat(path, &st) == 0)
		n->dir = S_ISDIR(st.st_mode);
}

static void add_link(struct plan *p, const char *text)
{
	const char *eq = strchr(text, '=');

	VEC_GROW(p->links, p->n_links, p->cap_links);
	p->links[p->n_links++] =
		(struct plan_link){.path = xstrndup(text, (size_t)(eq - text)), .target = xstrdup(eq + 1)};
}

static void system_roots(struct plan *p)
{
	static const char *const roots[] = {"/bin",   "/etc", "/lib",  "/lib32",
					    "/lib64", "/opt", "/sbin", "/usr"};
	char target[256];

	if (p->read_mode == UNIT_READ_OPEN)
		return;
	for (size_t i = 0; i < ELEMENTS(roots); i++) {
		ssize_t n = readlink(roots[i], target, sizeof target - 1);
		CLEANUP_FREE char *text = NULL;

		if (n > 0) {
			target[n] = 0;
			text = xasprintf("%s=%s", roots[i], target);
			add_link(p, text);
		} else if (access(roots[i], F_OK) == 0) {
			add_path(p, roots[i], PLAN_READ);
		}
	}
}

static int inside(void *data, struct launch_sockets *out, struct err **e)
{
	struct net_inside_result r;

	if (net_inside(data, out->fds, &r, e) < 0)
		return -1;
	out->n = r.n;
	memcpy(out->facts, &r, sizeof r);
	return 0;
}

static void write_report(const struct run *r, const struct launch_done *d)
{
	const struct isolation *i = &d->isolation;
	CLEANUP_JS struct js *o = NULL;
	CLEANUP_FREE char *text = NULL;
	struct js *missing;
	FILE *f;

	if (!r->report)
		return;
	o = js_obj();
	missing = js_arr();
	js_add_str(o, "backend", i->backend);
	js_add_bool(o, "user_ns", i->user_ns);
	js_add_bool(o, "pid_ns", i->pid_ns);
	js_add_bool(o, "net_ns", i->net_ns);
	js_add_bool(o, "mount_ns", i->mount_ns);
	js_add_bool(o, "seccomp", i->seccomp);
	js_add_bool(o, "nested_ns_off", i->nested_ns_off);
	js_add_bool(o, "no_new_privs", i->no_new_privs);
	js_add_int(o, "landlock_abi", i->landlock_abi);
	js_add_bool(o, "survivors_possible", i->survivors_possible);
	js_add_int(o, "sockets", (int64_t)d->sockets.n);
	for (size_t k = 0; k < i->missing.n; k++)
		js_push_str(missing, i->missing.v[k]);
	js_add(o, "missing", missing);
	text = js_print(o);
	f = fopen(r->report, "w");
	if (f) {
		(void)fprintf(f, "%s\n", text);
		(void)fclose(f);
	}
}

static void launch_one(struct run *r);

static void on_dead(struct loop_io *w, unsigned events)
{
	struct run *r = w->data;
	int status = 0, app;

	(void)events;
	if (pidfd_reap(launch_pidfd(r->launch), &status) != 1)
		return;
	loop_io_stop(w);
	loop_timer_stop(&r->killer);
	if (launch_exit_status(r->launch, &app) == 0)
		status = app;
	else if (r->code == 0)
		(void)fprintf(stderr, "jailrun: init ended with status %x\n", (unsigned)status);
	if (r->code == 0)
		r->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	launch_destroy(r->launch);
	r->launch = NULL;
	if (--r->repeat > 0 && r->code == 0)
		launch_one(r);
	else
		loop_break(r->loop);
}

static void on_done(void *data, struct launch *l, struct launch_done *done, const struct err *error)
{
	struct run *r = data;

	(void)l;
	if (error) {
		(void)fprintf(stderr, "jailrun: %s\n", err_msg(error));
		r->code = 125;
		return;
	}
	write_report(r, done);
	if (r->kill_after_ms >= 0)
		loop_timer_start(&r->killer, r->kill_after_ms);
}

static void on_kill(struct loop_timer *w)
{
	struct run *r = w->data;

	(void)pidfd_signal(launch_pidfd(r->launch), SIGTERM);
}

static void launch_one(struct run *r)
{
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FD int init = open(r->init, O_PATH | O_CLOEXEC), self = pidfd_open_pid(getpid());
	struct launch_io io = {.stdin_fd = 0,
			       .stdout_fd = 1,
			       .stderr_fd = 2,
			       .init_fd = init,
			       .supervisor_pidfd = self,
			       .inside_net = r->plan->netns ? inside : NULL,
			       .inside_net_data = &r->net,
			       .new_session = true};

	r->launch = r->backend->launch(r->loop, r->plan, &io, on_done, r, &e);
	if (!r->launch) {
		(void)fprintf(stderr, "jailrun: %s\n", err_msg(e));
		exit(125);
	}
	loop_io_init(r->loop, &r->dead, launch_pidfd(r->launch), LOOP_READ, on_dead, r);
}

static const struct option options[] = {
	{"init", 1, NULL, 'i'},       {"mode", 1, NULL, 'm'},   {"read", 1, NULL, 'r'},
	{"write", 1, NULL, 'w'},      {"hide", 1, NULL, 'h'},   {"empty", 1, NULL, 'e'},
	{"create", 1, NULL, 'c'},     {"socket", 1, NULL, 's'}, {"link", 1, NULL, 'l'},
	{"uid", 1, NULL, 'u'},        {"gid", 1, NULL, 'g'},    {"workdir", 1, NULL, 'd'},
	{"enforce", 1, NULL, 'E'},    {"none", 0, NULL, 'n'},   {"nested", 0, NULL, 'N'},
	{"ports", 1, NULL, 'P'},      {"egress", 0, NULL, 'x'}, {"loopback", 1, NULL, 'L'},
	{"tmp-size", 1, NULL, 't'},   {"report", 1, NULL, 'R'}, {"repeat", 1, NULL, 'p'},
	{"kill-after", 1, NULL, 'k'}, {"device", 1, NULL, 'D'}, {NULL, 0, NULL, 0},
};

static int set(struct run *r, int o, const char *v)
{
	struct plan *p = r->plan;

	if (strchr("rwhecsl", o) && !r->roots) {
		r->roots = true;
		system_roots(p);
	}
	switch (o) {
	case 'i':
		r->init = v;
		break;
	case 'm':
		p->read_mode = strcmp(v, "open") == 0 ? UNIT_READ_OPEN : UNIT_READ_STRICT;
		break;
	case 'r':
		add_path(p, v, PLAN_READ);
		break;
	case 'w':
		add_path(p, v, PLAN_WRITE);
		break;
	case 'h':
		add_path(p, v, PLAN_HIDE);
		break;
	case 'e':
		add_path(p, v, PLAN_READ);
		p->paths[p->n_paths - 1].empty = true;
		break;
	case 'c':
		add_path(p, v, PLAN_WRITE);
		p->paths[p->n_paths - 1].create = true;
		break;
	case 's':
		add_path(p, v, PLAN_READ);
		p->paths[p->n_paths - 1].socket = true;
		p->unix_sockets = true;
		break;
	case 'l':
		add_link(p, v);
		break;
	case 'D':
		strv_add(&p->devices, v);
		break;
	case 'u':
		p->user.uid = (uid_t)atoi(v);
		break;
	case 'g':
		p->user.gid = (gid_t)atoi(v);
		break;
	case 'd':
		p->workdir = xstrdup(v);
		break;
	case 'E':
		p->enforce = strcmp(v, "best-effort") == 0 ? UNIT_ENFORCE_BEST_EFFORT : UNIT_ENFORCE_REQUIRED;
		break;
	case 'n':
		r->backend = &backend_none;
		p->netns = false;
		p->enforce = UNIT_ENFORCE_OFF;
		break;
	case 'N':
		p->nested_sandbox = true;
		break;
	case 'P': /* listeners instead of nf_tables rules */
		r->net.ports_only = true;
		r->listed[r->net.n_ports++ % ELEMENTS(r->listed)] = (uint16_t)atoi(v);
		break;
	case 'x':
		r->net.egress = 1;
		break;
	case 'L':
		r->ports[r->net.n_loopback++ % ELEMENTS(r->ports)] = (uint16_t)atoi(v);
		break;
	case 't':
		p->tmp_size = strtoull(v, NULL, 10);
		break;
	case 'R':
		r->report = v;
		break;
	case 'p':
		r->repeat = atol(v);
		break;
	case 'k':
		r->kill_after_ms = atol(v);
		break;
	default:
		return -1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct run r = {.backend = &backend_linux, .repeat = 1, .kill_after_ms = -1};
	struct plan *p = r.plan = xcalloc(1, sizeof *p);
	int o;

	p->app = xstrdup("jailrun");
	p->user = (struct plan_user){.uid = geteuid(), .gid = getegid(), .name = xstrdup("app")};
	p->netns = true;
	r.net.loopback = r.ports;
	r.net.ports = r.listed;
	while ((o = getopt_long(argc, argv, "+", options, NULL)) >= 0)
		if (set(&r, o, optarg) < 0)
			return 125;
	if (optind >= argc || !r.init)
		return 125;
	if (!r.roots)
		system_roots(p);
	p->program = xstrdup(argv[optind]);
	for (int i = optind; i < argc; i++)
		strv_add(&p->argv, argv[i]);
	strv_add(&p->env, "PATH=/usr/bin:/bin");
	strv_add(&p->env, "HOME=/nonexistent");
	if (!p->workdir)
		p->workdir = xstrdup("/");
	(void)signal(SIGPIPE, SIG_IGN);
	r.loop = loop_create(0);
	loop_timer_init(r.loop, &r.killer, on_kill, &r);
	launch_one(&r);
	loop_run(r.loop);
	loop_destroy(r.loop);
	plan_free(p);
	return r.code;
}
