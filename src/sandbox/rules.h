/* The network policy of a unit. One function for the supervisor, which gives it to the proxy, and for `sbxsv
 * check --allow`: what is answered is what is enforced. */
#pragma once
#include "policy/policy.h"
#include "unit/unit.h"

/* NULL with *e, which names the origin of the bad rule. */
struct policy *rules_of_unit(const struct unit *u, struct err **e);

/* One that does not stand in the unit: `sbxsv allow` and `deny` at run time. */
struct rules_extra {
	enum policy_key key;
	const char *text, *origin;
};
/* The unit's rules and these behind them. As in a unit, a grant implies Egress=hosts where the unit does not
 * say Egress= itself. */
struct policy *rules_with(const struct unit *u, const struct rules_extra *v, size_t n, struct err **e);
/* What is in force of Egress= with them. */
enum egress rules_egress(const struct unit *u, const struct rules_extra *v, size_t n);

/* Gives the unit reader the syntax checks of network rules. Every program that reads units calls this, so
 * that none of them takes a rule that another one refuses. */
void rules_wire_checks(struct unit_dirs *d);
