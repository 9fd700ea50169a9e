/*
 * How often each rule decided. The proxy counts from 0 in each of its lives and says the numbers of this one; here
 * they are added up. At most PC_TALLY_MAX rules an app: what comes after that is one line together, so that a
 * proxy gone mad cannot fill our memory with names of rules. Private to proxyctl.
 */
#pragma once
#include "base/json.h"

#define PC_TALLY_MAX    64
#define PC_TALLY_OTHERS "(other rules)"

struct pc_tally {
	struct pc_tally_rule {
		char *rule;
		uint64_t allowed, denied;     /* of this proxy */
		uint64_t allowed_0, denied_0; /* of earlier ones */
	} * v;
	size_t n, cap;
};
void pc_tally_read(struct pc_tally *t,
		   const struct js *rules); /* "rules" of a counters message; NULL is fine */
void pc_tally_proxy_died(struct pc_tally *t);
struct js *pc_tally_list(const struct pc_tally *t); /* [{"rule","allowed","denied"}]; owned by caller */
void pc_tally_finish(struct pc_tally *t);
