/* What [Limits] can rely on here: by the supervisor that runs, or, without one, by a trial. */
#pragma once
#include "cli/cli.h"
#include "sandbox/limits.h"

struct limits_view {
	unsigned has; /* CGROUP_* */
	char *why[3]; /* why not, for each controller; NULL: it is there */
};
void limits_view_get(const struct cli *c, struct limits_view *ret);
void limits_view_finish(struct limits_view *v);
const char *limits_key(unsigned index); /* "Memory=" */
