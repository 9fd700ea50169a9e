/* Why a jail could not be built on this machine, and what to change. */
#include "base/file.h"
#include "base/str.h"
#include "sandbox/jail.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int64_t setting(const char *path)
{
	char buf[32];

	if (file_read_proc(path, buf, sizeof buf) < 0)
		return -1;
	return strtoll(buf, NULL, 10);
}

static bool is_refusal(int error)
{
	return error == EPERM || error == EACCES;
}

/* Where the AppArmor restriction of Ubuntu and others shows: clone3 itself, or, with the default
 * "unprivileged_userns" profile, the first step that needs a capability inside. */
static bool needs_namespace_rights(const char *step)
{
	return strcmp(step, "namespaces") == 0 || strcmp(step, "ids") == 0 || strcmp(step, "network") == 0 ||
	       strcmp(step, "mounts") == 0;
}

static const char *namespaces(const struct machine *m, int error)
{
	if (error == ENOSPC && m->max_userns == 0)
		return "user namespaces are switched off; as root: sysctl -w user.max_user_namespaces=15000";
	if (error == ENOSPC || error == EUSERS)
		return "no user namespace is left: too many (sysctl user.max_user_namespaces), or nested too "
		       "deep";
	if (is_refusal(error) && m->userns_clone == 0 && !m->root)
		return "user namespaces are for root only here; as root: sysctl -w "
		       "kernel.unprivileged_userns_clone=1";
	if (is_refusal(error))
		return "namespaces are refused here; inside a container it must allow them (docker: "
		       "--security-opt "
		       "seccomp=unconfined)";
	if (error == EAGAIN)
		return "there may be no more processes: the user's limit (ulimit -u), that of a service "
		       "(TasksMax=), of a "
		       "container (pids.max) or of the machine is reached";
	if (error == EINVAL || error == ENOSYS)
		return "this kernel lacks a namespace that is needed (user, mount, pid, net, ipc, uts, "
		       "cgroup; Linux 5.12 or later)";
	return NULL;
}

char *explain_failure(const struct machine *m, int error, const char *step)
{
	const char *why = NULL;

	if (is_refusal(error) && needs_namespace_rights(step) && m->apparmor_restrict == 1 && !m->root)
		why = "AppArmor keeps user namespaces from programs without a profile "
		      "(kernel.apparmor_restrict_unprivileged_userns=1); as root install the profile of "
		      "sbxsv: cp "
		      "contrib/apparmor/sbxsv /etc/apparmor.d/sbxsv && apparmor_parser -r "
		      "/etc/apparmor.d/sbxsv";
	else if (strcmp(step, "namespaces") == 0)
		why = namespaces(m, error);
	else if (strcmp(step, "proc") == 0 && is_refusal(error))
		why = "parts of this machine's own /proc are covered, as in a container (docker: "
		      "--security-opt "
		      "systempaths=unconfined); Enforce=best-effort goes without /proc";
	else if (strcmp(step, "seccomp") == 0)
		why = "this kernel has no system call filters (CONFIG_SECCOMP_FILTER)";
	else if (strcmp(step, "mounts") == 0 && (error == ENOSYS || error == EINVAL))
		why = "the jail needs the mount calls of Linux 5.12";
	else if (strcmp(step, "workdir") == 0 && error == ENOENT)
		why = "WorkingDirectory= must lie in what the unit grants";
	else if (strcmp(step, "workdir") == 0)
		why = "the app's user may not enter WorkingDirectory=";
	else if (strcmp(step, "mounts") == 0 && error == EACCES)
		why = m->root ? "the app's user may not go there: put the app where it can, such as /srv, or "
				"name "
				"another User="
			      : "the app's user may not go there";
	return xstrdup(why);
}

char *linux_explain(int error, const char *step)
{
	const struct machine m = {
		.apparmor_restrict = (int)setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
		.userns_clone = (int)setting("/proc/sys/kernel/unprivileged_userns_clone"),
		.max_userns = setting("/proc/sys/user/max_user_namespaces"),
		.root = geteuid() == 0,
	};

	return explain_failure(&m, error, step);
}
