/* [Limits]: what holds for all processes of an app together, and in words what does not. */
#pragma once
#include "sandbox/cgroup.h"
#include "unit/unit.h"

struct cgroup_limits limits_of(const struct unit *u);
char *limits_size(uint64_t bytes); /* "64M" as a unit says it; owned by caller */
/* What is weaker than the unit says. enforced: CGROUP_*, by the group of the app; why: for each controller why not, in the
 * order of the enum; jailed: in a user namespace of its own. */
void limits_missing(const struct unit *u, bool jailed, unsigned enforced, const char *const why[3],
		    struct strv *ret);
