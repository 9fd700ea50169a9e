/*
 * What an app asked for and did not get, folded: one target is reported at most once a second, with a count. At most
 * DENIED_TARGETS targets are told apart at a time; what comes beyond in the same second is counted together,
 * so that an app that tries names at full speed costs neither memory nor disk.
 */
#pragma once
#include "proxy/app.h"

#define DENIED_TARGETS 64
#define DENIED_OTHERS  "(other targets)" /* host of the message that counts the rest */

enum denied_kind {
	DENIED_CONNECT,
	DENIED_LOOKUP, /* a name that was only looked up, at no port */
	DENIED_UNREACHABLE, /* allowed, but the site was not reached: not a refusal of ours, and not counted as one */
};

struct denied;
struct denied *denied_create(struct app *a);
void denied_destroy(struct denied *d); /* sends what is folded */
/* `host` is canonical text, or "" when the target could not be read. `by` is the rule that it counts for: `rule`
 * without what somebody else wrote into it. */
void denied_add(struct denied *d, const char *host, uint16_t port, const char *rule, const char *hint,
		const char *by);
/* The same for a name that was only looked up. */
void denied_add_lookup(struct denied *d, const char *host, const char *rule, const char *hint);
/* An allowed site that could not be reached, and why. */
void denied_add_unreachable(struct denied *d, const char *host, uint16_t port, const char *why);
