/* The network policy of a unit. One function for the supervisor, which gives it to the proxy, and for `sbxsv
 * check --allow`: what is answered is what is enforced. */
#pragma once
#include "policy/policy.h"
#include "unit/unit.h"

/* NULL with *e, which names the origin of the bad rule. */
struct policy *rules_of_unit(const struct unit *u, struct err **e);

/* Gives the unit reader the syntax checks of network rules. Every program that reads units calls this, so
 * that none of them takes a rule that another one refuses. */
void rules_wire_checks(struct unit_dirs *d);
