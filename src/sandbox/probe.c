/* A trial launch: the only honest answer to "can this machine do it". */
#include "base/clock.h"
#include "base/fd.h"
#include "sandbox/jail.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

enum { LIMIT_MS = 4000, NOBODY = 65534 /* Linux's overflow id; root's trial app runs as that */ };

struct trial {
	struct loop *loop;
	struct probe *probe;
	struct launch *launch;
	struct loop_io dead;
	struct loop_timer limit;
	struct err *error;
	int status;
	bool late;
};

static void add_root(struct plan *p, const char *path)
{
	char target[PATH_MAX];
	ssize_t n = readlink(path, target, sizeof target - 1);
	struct stat st;

	if (n > 0) {
		target[n] = 0;
		VEC_GROW(p->links, p->n_links, p->cap_links);
		p->links[p->n_links++] = (struct plan_link){.path = xstrdup(path), .target = xstrdup(target)};
	} else if (stat(path, &st) == 0) {
		VEC_GROW(p->paths, p->n_paths, p->cap_paths);
		p->paths[p->n_paths++] =
			(struct plan_path){.path = xstrdup(path), .access = PLAN_READ, .dir = true};
	}
}

/* What /bin/sh needs, and nothing of the user's. */
static struct plan *trial_plan(enum unit_read_mode mode)
{
	static const char *const roots[] = {"/bin",    "/lib", "/lib32", "/lib64",
					    "/libx32", "/nix", "/sbin",  "/usr"};
	struct plan *p = xcalloc(1, sizeof *p);
	bool root = geteuid() == 0;

	p->app = xstrdup("trial");
	p->program = xstrdup("/bin/sh");
	strv_add(&p->argv, "/bin/sh");
	strv_add(&p->argv, "-c");
	strv_add(&p->argv, "exit 42");
	strv_add(&p->env, "PATH=/usr/bin:/bin");
	p->workdir = xstrdup("/");
	p->user.uid = root ? NOBODY : geteuid();
	p->user.gid = root ? NOBODY : getegid();
	p->user.name = xstrdup("nobody");
	p->read_mode = mode;
	p->netns = true;
	if (mode != UNIT_READ_OPEN) {
		for (size_t i = 0; i < ELEMENTS(roots); i++)
			add_root(p, roots[i]);
		return p;
	}
	VEC_GROW(p->paths, p->n_paths, p->cap_paths);
	p->paths[p->n_paths++] =
		(struct plan_path){.path = xstrdup("/"), .access = PLAN_READ, .dir = true, .shut = true};
	return p;
}

static void trial_plan_free(struct plan *p)
{
	for (size_t i = 0; i < p->n_paths; i++)
		free(p->paths[i].path);
	for (size_t i = 0; i < p->n_links; i++) {
		free(p->links[i].path);
		free(p->links[i].target);
	}
	free(p->paths);
	free(p->links);
	strv_clear(&p->argv);
	strv_clear(&p->env);
	free(p->app);
	free(p->program);
	free(p->workdir);
	free(p->user.name);
	free(p);
}

static void on_done(void *data, struct launch *l, struct launch_done *done, const struct err *error)
{
	struct trial *t = data;

	(void)l;
	if (error) {
		(void)err_set(&t->error, err_code(error), "%s", err_msg(error));
		return;
	}
	t->probe->isolation = done->isolation;
	done->isolation = (struct isolation){0};
	t->probe->sockets = done->sockets;
	done->sockets.n = 0;
}

static void on_dead(struct loop_io *w, unsigned events)
{
	struct trial *t = w->data;

	(void)events;
	if (pidfd_reap(w->fd, &t->status) == 0)
		return;
	loop_io_stop(w);
	loop_break(t->loop);
}

static void on_limit(struct loop_timer *w)
{
	struct trial *t = w->data;

	t->late = true;
	if (pidfd_signal(launch_pidfd(t->launch), SIGKILL) < 0)
		loop_break(t->loop);
	/* a process that does not even die of SIGKILL hangs in the kernel: it is left behind */
	loop_timer_init(t->loop, &t->limit, on_limit, t);
	loop_timer_start(&t->limit, 500);
}

static int run(struct trial *t, const struct plan *p, struct err **e)
{
	CLEANUP_FD int init = open(t->probe->init_program, O_PATH | O_CLOEXEC),
		       self = pidfd_open_pid(getpid());
	struct launch_io io = {.stdin_fd = -1,
			       .stdout_fd = -1,
			       .stderr_fd = -1,
			       .init_fd = init,
			       .supervisor_pidfd = self,
			       .inside_net = t->probe->inside_net,
			       .inside_net_data = t->probe->inside_net_data,
			       .new_session = true};
	int status = -1;

	if (init < 0)
		return err_sys(e, errno, "sbxsv-init is missing: %s", t->probe->init_program);
	t->launch = backend_linux.launch(t->loop, p, &io, on_done, t, e);
	if (!t->launch)
		return -1;
	loop_io_init(t->loop, &t->dead, launch_pidfd(t->launch), LOOP_READ, on_dead, t);
	loop_timer_init(t->loop, &t->limit, on_limit, t);
	loop_timer_start(&t->limit, LIMIT_MS);
	loop_run(t->loop);
	loop_io_stop(&t->dead);
	loop_timer_stop(&t->limit);
	if (t->late)
		return err_set(e, ETIMEDOUT, "a trial launch took longer than %d s", LIMIT_MS / 1000);
	if (t->error)
		return err_set(e, err_code(t->error), "%s", err_msg(t->error));
	if (launch_exit_status(t->launch, &status) < 0 || status != 42 << 8)
		return err_set(e, ECHILD, "/bin/sh did not run in the trial jail (status %x)",
			       (unsigned)status);
	return 0;
}

int linux_probe(struct probe *p, struct err **e)
{
	struct trial t = {.loop = loop_create(0), .probe = p};
	struct plan *plan = trial_plan(p->read_mode);
	int64_t start = clk_mono_us();
	int r;

	p->isolation = (struct isolation){.backend = backend_linux.name};
	p->sockets.n = 0;
	r = t.loop ? run(&t, plan, e) : err_sys(e, errno, "cannot make an event loop");
	p->took_us = clk_mono_us() - start;
	launch_destroy(t.launch);
	err_free(t.error);
	trial_plan_free(plan);
	loop_destroy(t.loop);
	return r;
}
