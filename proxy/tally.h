/*
 * How often each rule of an app allowed or refused a connection or a lookup. At most TALLY_RULES rules are known at a
 * time: one more takes the place of the one that was used the longest ago. So neither an app nor rules that come and
 * go (for a time) cost more than that.
 */
#pragma once
#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>

#define TALLY_RULES 64
#define TALLY_TEXT  200 /* bytes of a rule's text */

struct tally;
struct tally *tally_create(void);
void tally_destroy(struct tally *t); /* NULL is fine */
void tally_add(struct tally *t, const char *rule, bool allowed);
/* {RULE: {"allowed": n, "denied": n}} of those that changed since the last time, or of all; NULL: none. *ret_bytes is
 * about what it takes as text. */
struct js *tally_json(struct tally *t, bool all, size_t *ret_bytes);
