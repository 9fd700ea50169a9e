/*
 * The machine is short of something: descriptors, processes, memory, disk. That is nobody's fault and passes, so a start that
 * fails for it is tried again and no start limit counts it. What is lacking is said in words that name the limit.
 *
 * Launches that go on at the same time can take the last descriptors from each other until none of them succeeds, again and again, for
 * their delays are the same. So where descriptors are few, a launch waits for those before it.
 */
#include "sup/app.h"
#include <errno.h>
#include <sys/resource.h>

enum {
	LAUNCH_FDS =
		40, /* what one needs at once, of the supervisor's and of its child's copies (measured: 34) */
	PLENTY = 4096, /* from here on they are not counted: a hundred launches at once */
};

/* It hangs, or somebody killed the launch, is a shortage too: the same start may work later. */
static const struct {
	int code;
	const char *hint;
} shortages[] = {
	{EMFILE, "sbxsvd has used up its descriptors (ulimit -n; LimitNOFILE= of a service)"},
	{ETOOMANYREFS, "too many descriptors are on their way between processes of this user (ulimit -n)"},
	{ENFILE, "this machine has used up its descriptors (sysctl fs.file-max)"},
	{EAGAIN,
	 "there may be no more processes (ulimit -u; TasksMax= of a service; pids.max of a container)"},
	{ENOMEM, "there is no memory left, of this machine or of what its service or container may have"},
	{ENOSPC, "there is no space left on a disk, or no namespace (sysctl user)"},
	{EDQUOT, "the user's disk quota is used up"},
	{EUSERS, "no user namespace is left (sysctl user.max_user_namespaces)"},
	{ENOBUFS, "the kernel has no memory left for the network"},
	{ETIMEDOUT, "this may pass"},
	{EPIPE, "this may pass"},
};

bool shortage_is(int code)
{
	for (size_t i = 0; i < ELEMENTS(shortages); i++)
		if (code == shortages[i].code)
			return true;
	return false;
}

char *shortage_hint(int code)
{
	for (size_t i = 0; i < ELEMENTS(shortages); i++)
		if (code == shortages[i].code)
			return xasprintf("%s; it is tried again by itself", shortages[i].hint);
	return xstrdup("");
}

int shortage_of_room(const struct app *a, struct err **e)
{
	struct rlimit limit;
	uint64_t launching = 0, used;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= PLENTY)
		return 0;
	for (const struct app *o = a->sup->apps; o; o = o->next)
		launching += o->launch && !o->launch_done;
	if (!launching)
		return 0;
	used = (uint64_t)sup_count_fds();
	if (used + (launching + 1) * LAUNCH_FDS <= limit.rlim_cur)
		return 0;
	return err_sys(e, EMFILE, "%llu of %llu descriptors are in use, and %llu app%s started before it",
		       (unsigned long long)used, (unsigned long long)limit.rlim_cur,
		       (unsigned long long)launching, launching == 1 ? " is" : "s are");
}
