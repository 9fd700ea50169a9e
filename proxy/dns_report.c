/*
 * Which refused questions are one refused lookup. A program asks for A, AAAA and perhaps HTTPS at once, and
 * then for the same name below each search domain: it is told once, as the name that was meant, with the line
 * that would allow that.
 */
#include "base/clock.h"
#include "base/str.h"
#include "proxy/denied.h"
#include "proxy/dns_internal.h"
#include "proxy/search.h"
#include <string.h>

#define NO_HOST       "(no host name)"
#define ONE_LOOKUP_MS 5000 /* the time a stub resolver waits before it asks again, resolv.conf(5) "timeout" */

static unsigned type_bit(uint16_t type)
{
	return type == DNS_TYPE_A ? 1 : type == DNS_TYPE_AAAA ? 2 : type == DNS_TYPE_HTTPS ? 4 : 0;
}

static struct dns_recent *find(struct dns *d, const char *host)
{
	int64_t now = clk_mono_ms();

	for (size_t i = 0; i < DNS_RECENT; i++)
		if (d->recent[i].host[0] && now - d->recent[i].at_ms < ONE_LOOKUP_MS &&
		    strcmp(d->recent[i].host, host) == 0)
			return &d->recent[i];
	return NULL;
}

/* False: the question belongs to a lookup that was told already. */
static bool is_new(struct dns *d, const char *host, unsigned bit, bool variant)
{
	struct dns_recent *r = find(d, host);

	if (r && (variant || (bit && !(r->types & bit)))) {
		r->types |= bit;
		return false;
	}
	if (!r)
		r = &d->recent[d->next_recent++ % DNS_RECENT];
	/* a variant came first: the name itself, which comes after, is the same lookup */
	*r = (struct dns_recent){.types = variant ? 0 : bit, .at_ms = clk_mono_ms()};
	memcpy(r->host, host, strlen(host) + 1);
	return true;
}

static bool goes_somewhere(const struct app *a, const char *name)
{
	struct verdict v;

	policy_decide_name(a->policy, name, &v);
	return v.action == VERDICT_ALLOW || str_eq(name, "localhost") || str_ends(name, ".localhost");
}

void dns_report(struct dns *d, const struct dns_denial *denial)
{
	const struct verdict *v = &denial->verdict;
	const char *host = denial->host;
	char name[HOST_MAX];
	struct verdict of_name;
	bool variant = search_strip(d->app->proxy, host, name) && strchr(name, '.');

	if (variant) {
		/* asked with a search domain first (ndots): its turn comes, nothing is refused */
		if (goes_somewhere(d->app, name))
			return;
		host = name;
		policy_decide_name(d->app->policy, name, &of_name);
		v = &of_name;
	}
	if (is_new(d, host, type_bit(denial->type), variant))
		denied_add_lookup(d->app->denied, host[0] ? host : NO_HOST, v->rule, v->hint);
}
