/* What changed in meaning. Text, origins, comments, order of files and the name of the profile mean nothing
 * here. */
#include "unit/internal.h"
#include <string.h>

static unsigned change_of(const struct unit_key *k, const struct unit *a, const struct unit *b)
{
	if (k->kind == K_PROFILE)
		return 0; /* only its keys matter, and they are compared themselves */
	if (k->kind == K_LISTEN || strcmp(k->name, "ListenAddress") == 0)
		return UNIT_CHANGE_PORTS | UNIT_CHANGE_RESTART;
	/* The listeners of egress are made with the jail: opening it at all needs a new one. */
	if (strcmp(k->name, "Egress") == 0 && (a->egress == UNIT_EGRESS_OFF || b->egress == UNIT_EGRESS_OFF))
		return UNIT_CHANGE_RESTART;
	return k->live ? UNIT_CHANGE_LIVE : UNIT_CHANGE_RESTART;
}

unsigned unit_diff(const struct unit *before, const struct unit *after)
{
	unsigned change = 0;

	for (size_t i = 0; i < unit_table.n; i++)
		if (!unit_value_equal(&unit_table.v[i], before, after))
			change |= change_of(&unit_table.v[i], before, after);
	return change;
}
