/*
 * Names to addresses, with c-ares in the loop. One resolver an app: answers are attributed to the app that
 * asked (crash page), and no app can tell from timing what another one looked up.
 *
 * Only canonical names come here, never text that could be a number. Answers are kept for their TTL (not at
 * all when it is 0), at most a minute, that there is no such name for two seconds, a failure for one; they are
 * judged anew each time they are used. /etc/hosts counts like any answer, and is looked at first.
 */
#pragma once
#include "proxy/app.h"

#define RESOLVE_ENTRIES  256  /* names kept, lookups under way included */
#define RESOLVE_LIMIT_MS 8000 /* one lookup */
#define RESOLVE_ADDRS    64   /* more is no answer: all of it must be judged */

enum resolve_result { RESOLVE_OK, RESOLVE_NO_SUCH_NAME, RESOLVE_FAILED, RESOLVE_TIMEOUT };
/* Called once, maybe before resolve_start() returns. `why` for people. */
typedef void resolve_fn(void *data, enum resolve_result result, const struct addr *v, size_t n,
			const char *why);
struct resolve_waiter {
	struct resolve_waiter *prev, *next;
	struct entry *entry;
	resolve_fn *fn;
	void *data;
};
struct resolver;
struct resolver *resolver_create(struct app *a);
void resolver_destroy(struct resolver *r); /* no waiter is called */
void resolve_start(struct resolver *r, struct resolve_waiter *w, const char *host, resolve_fn *fn,
		   void *data);
void resolve_stop(struct resolve_waiter *w); /* a zeroed or ended one is fine */
