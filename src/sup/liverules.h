/*
 * The rules one app got at run time (`sbxsv allow` and `deny` without --save): in memory only, gone with the
 * supervisor, some of them earlier. Pure: the clock is an argument.
 *
 * A rule is known by its key and the one form of its text (policy_canon_rule). Giving it again gives it a new
 * end. Deny= wins over all, so that a run-time Deny= also takes what the unit allows.
 */
#pragma once
#include "policy/policy.h"

#define LIVERULES_MAX 256 /* of one app; whoever needs more wants lines in the unit */

struct liverule {
	enum policy_key key;
	char *text;       /* "x.com:443" */
	char *origin;     /* "allowed at run time until 14:05:00": in verdicts before the rule */
	int64_t until_ms; /* of clk_boot_ms(); 0: until the supervisor ends */
};
struct liverules {
	struct liverule *v;
	size_t n, cap;
};
/* `text` in its one form. for_ms 0: until the supervisor ends. The wall clock is for the origin only. */
int liverules_set(struct liverules *l, enum policy_key key, const char *text, int64_t for_ms, int64_t boot_ms,
		  int64_t wall_ms, struct err **e);
bool liverules_drop(struct liverules *l, enum policy_key key, const char *text); /* false: there was none */
const struct liverule *liverules_find(const struct liverules *l, enum policy_key key, const char *text);
/* Takes one whose time is over. The caller finishes it. */
bool liverules_expired(struct liverules *l, int64_t boot_ms, struct liverule *ret);
int64_t liverules_next(const struct liverules *l); /* when the next one ends; 0: none does */
void liverules_copy(struct liverules *to, const struct liverules *from); /* `to` is empty */
void liverule_finish(struct liverule *r);
void liverules_finish(struct liverules *l);
