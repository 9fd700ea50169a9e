/* The child's side of a launch with namespaces. The order of the steps is the point of this file. */
#include "base/fd.h"
#include "sandbox/jail.h"
#include "sandbox/sys.h"
#include <errno.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/stat.h>

static void wait_for_maps(struct child *c)
{
	char go;

	if (recv(c->sock, &go, 1, 0) != 1)
		_exit(125); /* the parent gave up, or is gone */
}

/* The handles by which the supervisor will reach into the namespace later, and the sockets it wants from it
 * now. */
static void network(struct child *c)
{
	CLEANUP_ERR struct err *why = NULL;
	struct launch_sockets made = {.n = 0};

	_Static_assert(sizeof made.facts == sizeof c->msg.facts, "passed on as they are");

	c->fds[0] = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
	c->fds[1] = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	c->fds[2] = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	for (int i = 0; i < 3; i++)
		if (c->fds[i] < 0)
			child_fail(c, "network", errno, "cannot open a handle of the namespaces", NULL);
	c->n_fds = 3;
	if (!c->io->inside_net)
		return;
	if (c->io->inside_net(c->io->inside_net_data, &made, &why) < 0)
		child_fail(c, "network", -err_code(why), err_msg(why), NULL);
	memcpy(c->msg.facts, made.facts, sizeof made.facts);
	for (size_t i = 0; i < made.n; i++)
		c->fds[c->n_fds++] = made.fds[i];
}

static _Noreturn void linux_child(struct child *c)
{
	child_group(c);
	child_namespaces(c);
	child_signals(c);
	if (c->helped) {
		wait_for_maps(c);
		ids_become_user(c);
	} else {
		ids_own_maps(c);
	}
	child_check_parent(c);
	(void)umask(0);
	if (c->plan->netns)
		network(c);
	if (landlock_open(&c->landlock, c->abi, !c->plan->nested_sandbox) < 0)
		child_miss(c, "landlock", errno, "cannot make a Landlock ruleset", NULL);
	/* a read-only mount does not stop a write into a FIFO; the file layer of Landlock does */
	if (c->plan->fifos_visible && (c->landlock.fd < 0 || c->landlock.fs == 0))
		child_miss(c, "landlock", ENOSYS,
			   "cannot keep the app from FIFOs in the folders it reads: no Landlock", NULL);
	child_audit_prepare(c);
	mounts_build(c);
	if (chdir(c->plan->workdir) < 0)
		child_fail(c, "workdir", errno, "cannot enter", c->plan->workdir);
	(void)umask(022);
	child_privileges(c);
	if (landlock_enforce(&c->landlock) < 0)
		child_miss(c, "landlock", errno, "cannot enforce Landlock", NULL);
	else
		c->msg.landlock_abi = c->landlock.fd < 0 ? 0 : c->landlock.abi;
	ids_drop_capabilities(c);
	child_core(c);
	child_audit(c);
	child_filter(c);
	child_report(c);
	child_stdio(c);
	child_limits(c);
	child_exec_init(c);
}

static struct launch *linux_launch(struct loop *loop, const struct plan *plan, const struct launch_io *io,
				   launch_done_fn *on_done, void *data, struct err **e)
{
	struct launch_how how = {
		.backend = &backend_linux,
		.clone_flags = CLONE_NEWUSER | CLONE_NEWPID,
		.unshare_flags = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP |
				 (plan->netns ? CLONE_NEWNET : 0),
		.filter_variant =
			(plan->nested_sandbox ? FILTER_NESTED : 0) | (plan->unix_sockets ? FILTER_UNIX : 0),
		.filter_required = plan->enforce == UNIT_ENFORCE_REQUIRED,
		.init_flags = io->new_session ? "ps" : "p",
		.landlock = true,
		.child = linux_child,
	};

	if (!launch_identity_ok(plan, e))
		return NULL;
	return launch_start(loop, plan, io, &how, on_done, data, e);
}

const struct backend backend_linux = {
	.name = "linux",
	.probe = linux_probe,
	.launch = linux_launch,
	.explain = linux_explain,
};
