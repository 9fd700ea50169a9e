/*
 * How often each rule decided. The proxy counts from 0 in each of its lives, and again for a rule that it had
 * forgotten meanwhile; here the numbers are added up. PC_TALLY_MAX rules an app are known, the one that decided last
 * first; what one more pushes out is counted together, so that neither rules that come and go nor a proxy gone
 * mad fill our memory. Private to proxyctl.
 */
#pragma once
#include "base/json.h"

#define PC_TALLY_MAX    64
#define PC_TALLY_OTHERS "(other rules)"

struct pc_tally {
	struct pc_tally_rule {
		char *rule;
		uint64_t allowed, denied;     /* as the proxy said last */
		uint64_t allowed_0, denied_0; /* what came before it began to count */
	} *v;
	size_t n, cap;
	uint64_t allowed, denied; /* of rules that were pushed out */
};
void pc_tally_read(struct pc_tally *t,
		   const struct js *rules); /* "rules" of a counters message; NULL is fine */
void pc_tally_proxy_died(struct pc_tally *t);
struct js *pc_tally_list(
	const struct pc_tally *t); /* the last used first: [{"rule","allowed","denied"}]; owned by caller */
void pc_tally_finish(struct pc_tally *t);
