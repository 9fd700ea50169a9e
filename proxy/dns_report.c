/* Which refused questions are one refused lookup: a program asks for A, AAAA and perhaps HTTPS at once, glibc
 * then for the same again (the jail's resolv.conf has the root as its search list), and is told once. */
#include "base/clock.h"
#include "base/str.h"
#include "proxy/denied.h"
#include "proxy/dns_internal.h"
#include <string.h>

#define NO_HOST       "(no host name)"
#define ONE_LOOKUP_MS 5000 /* then a stub resolver asks again, resolv.conf(5) "timeout" */

static unsigned type_bit(uint16_t type)
{
	return type == DNS_TYPE_A ? 1 : type == DNS_TYPE_AAAA ? 2 : type == DNS_TYPE_HTTPS ? 4 : 0;
}

static struct dns_recent *find(struct dns *d, const char *host)
{
	int64_t now = clk_mono_ms();

	for (size_t i = 0; i < DNS_RECENT; i++)
		if (d->recent[i].types && now - d->recent[i].at_ms < ONE_LOOKUP_MS &&
		    strcmp(d->recent[i].host, host) == 0)
			return &d->recent[i];
	return NULL;
}

/* False: the question belongs to a lookup that was told already. */
static bool is_new(struct dns *d, const char *host, unsigned bit)
{
	struct dns_recent *r;

	if (!bit)
		return true;
	r = find(d, host);
	if (r && !(r->types & r->again & bit)) {
		r->again |= r->types & bit;
		r->types |= bit;
		return false;
	}
	if (!r)
		r = &d->recent[d->next_recent++ % DNS_RECENT];
	*r = (struct dns_recent){.types = bit, .at_ms = clk_mono_ms()};
	memcpy(r->host, host, strlen(host) + 1);
	return true;
}

void dns_report(struct dns *d, const struct dns_denial *denial)
{
	const char *host = denial->host;

	if (is_new(d, host, type_bit(denial->type)))
		denied_add_lookup(d->app->denied, host[0] ? host : NO_HOST, denial->verdict.rule,
				  denial->verdict.hint);
}
