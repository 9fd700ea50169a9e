#include "sandbox/limits.h"
#include <inttypes.h>

struct cgroup_limits limits_of(const struct unit *u)
{
	return (struct cgroup_limits){
		.memory = u->limit_memory, .tasks = u->limit_tasks, .cpu_percent = u->limit_cpu_percent};
}

char *limits_size(uint64_t bytes)
{
	static const char suffix[] = "KMGT";
	int s = -1;

	for (; s < 3 && bytes && bytes % 1024 == 0; s++)
		bytes /= 1024;
	return s < 0 ? xasprintf("%" PRIu64, bytes) : xasprintf("%" PRIu64 "%c", bytes, suffix[s]);
}

void limits_missing(const struct unit *u, bool jailed, unsigned enforced, const char *const why[3],
		    struct strv *ret)
{
	if (u->limit_memory && !(enforced & CGROUP_MEMORY)) {
		CLEANUP_FREE char *size = limits_size(u->limit_memory);

		strv_addf(ret,
			  "Memory=%s holds for each process by itself here, not for the app as a whole: %s",
			  size, why[0] ? why[0] : "no group");
	}
	if (u->limit_cpu_percent && !(enforced & CGROUP_CPU))
		strv_addf(ret, "CPU=%u%% is not enforced here: %s", u->limit_cpu_percent,
			  why[1] ? why[1] : "no group");
	/* in a user namespace of its own the kernel counts the app's processes alone */
	if (u->limit_tasks && !jailed && !(enforced & CGROUP_PIDS))
		strv_addf(ret, "Tasks=%" PRIu64 " counts all processes of its user here: %s", u->limit_tasks,
			  why[2] ? why[2] : "no group");
}
