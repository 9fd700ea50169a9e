/*
 * Enforce=off, and what best-effort falls back to on a machine without namespaces: the app runs as the app's
 * user, with no more privileges than it starts with, in a session and a process group of its own, below an
 * sbxsv-init that is a subreaper. No path is hidden and no network is closed. A process that forks faster
 * than sbxsv-init can read can survive.
 */
#include "sandbox/jail.h"
#include <errno.h>
#include <sys/stat.h>

static _Noreturn void none_child(struct child *c)
{
	child_group(c);
	child_signals(c);
	child_core(c);
	child_limits(c);
	if (c->as_root)
		ids_become_user(c);
	child_check_parent(c);
	if (chdir(c->plan->workdir) < 0)
		child_fail(c, "workdir", errno, "cannot enter", c->plan->workdir);
	(void)umask(022);
	child_privileges(c);
	child_filter(c);
	child_report(c);
	child_stdio(c);
	child_exec_init(c);
}

static struct launch *none_launch(struct loop *loop, const struct plan *plan, const struct launch_io *io,
				  launch_done_fn *on_done, void *data, struct err **e)
{
	struct launch_how how = {
		.backend = &backend_none,
		.filter_variant = FILTER_NESTED | FILTER_UNIX,
		.init_flags = io->new_session ? "s" : "-",
		.child = none_child,
	};

	if (!launch_identity_ok(plan, e))
		return NULL;
	return launch_start(loop, plan, io, &how, on_done, data, e);
}

static char *none_explain(int error, const char *step)
{
	(void)error;
	(void)step;
	return NULL;
}

static int none_probe(struct probe *p, struct err **e)
{
	(void)e;
	p->isolation = (struct isolation){.backend = "none", .survivors_possible = true};
	p->sockets.n = 0;
	p->took_us = 0;
	return 0;
}

const struct backend backend_none = {
	.name = "none",
	.probe = none_probe,
	.launch = none_launch,
	.explain = none_explain,
};
