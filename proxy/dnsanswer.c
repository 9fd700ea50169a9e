#include "proxy/dnsanswer.h"
#include "base/str.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#define LOCAL_TTL_S 3600 /* of localhost, and of addresses that stand for a name */

/* "localhost" and what is below it is this (the jail's) loopback and goes nowhere: RFC 6761 6.3. */
static bool is_localhost(const char *host)
{
	return str_eq(host, "localhost") || str_ends(host, ".localhost");
}

static bool wants(const struct dns_query *q, uint16_t type)
{
	return q->type == type || q->type == DNS_TYPE_ANY;
}

static size_t answer_localhost(struct dns_answer *a, const struct dns_query *q)
{
	if (wants(q, DNS_TYPE_A))
		dnsmsg_record(a, DNS_TYPE_A, LOCAL_TTL_S, &(struct in_addr){htonl(INADDR_LOOPBACK)}, 4);
	if (wants(q, DNS_TYPE_AAAA))
		dnsmsg_record(a, DNS_TYPE_AAAA, LOCAL_TTL_S, &in6addr_loopback, 16);
	return dnsmsg_end(a, DNS_NOERROR);
}

/* The name that stands at an address: ours, or none. Nothing is refused here that was ever there, so it is
 * not reported. */
static size_t answer_reverse(const struct dns_view *v, struct dns_answer *a, const struct dns_query *q)
{
	const char *name = NULL;
	struct addr at;

	if (dnsmsg_reverse(q->host, &at)) {
		if (addr_classify(&at) == ADDR_LOOPBACK)
			name = "localhost";
		else if (names_is_fake(&at))
			name = names_find(v->names, at.v4);
	}
	if (!name)
		return dnsmsg_end(a, DNS_NXDOMAIN);
	if (wants(q, DNS_TYPE_PTR))
		dnsmsg_record_name(a, DNS_TYPE_PTR, NAMES_TTL_S, name);
	return dnsmsg_end(a, DNS_NOERROR);
}

/* Only an A record is ever given: AAAA has none because a family is enough, HTTPS and SVCB because they would
 * carry keys for an encrypted ClientHello and hints past us (design.md 6), and the rest (TXT, MX, SRV, ...)
 * because it is known upstream only, where no question goes. */
static size_t answer_allowed(const struct dns_view *v, struct dns_answer *a, const struct dns_query *q)
{
	static const char any[] = "\7RFC8482"; /* cpu "RFC8482", os "": RFC 8482 4.2 */
	struct in_addr fake;

	if (q->type == DNS_TYPE_ANY)
		dnsmsg_record(a, DNS_TYPE_HINFO, NAMES_TTL_S, any, sizeof any);
	if (q->type != DNS_TYPE_A)
		return dnsmsg_end(a, DNS_NOERROR);
	if (names_assign(v->names, q->host, &fake) < 0) {
		dnsmsg_reason(a, DNS_EDE_OTHER, "too many names are in use: ask again in a minute");
		return dnsmsg_end(a, DNS_SERVFAIL);
	}
	dnsmsg_record(a, DNS_TYPE_A, NAMES_TTL_S, &fake, sizeof fake);
	return dnsmsg_end(a, DNS_NOERROR);
}

static size_t answer_denied(const struct dns_view *v, struct dns_answer *a, const struct dns_query *q,
			    struct dns_denial *d)
{
	char text[sizeof d->verdict.reason + sizeof d->verdict.hint + HOST_MAX + 128];

	d->denied = true;
	d->type = q->type;
	memcpy(d->host, q->host, sizeof d->host);
	(void)snprintf(text, sizeof text, "sbxsv: %s may not reach %s: %s%s%s", v->app,
		       q->host[0] ? q->host : "this name", d->verdict.reason,
		       d->verdict.hint[0] ? "; to allow it: " : "", d->verdict.hint);
	dnsmsg_reason(a, DNS_EDE_BLOCKED, text);
	return dnsmsg_end(a, DNS_NXDOMAIN);
}

static size_t answer_question(const struct dns_view *v, struct dns_answer *a, const struct dns_query *q,
			      struct dns_denial *d)
{
	if (q->root)
		return dnsmsg_end(a, DNS_NOERROR);
	if (is_localhost(q->host))
		return answer_localhost(a, q);
	if (str_ends(q->host, ".in-addr.arpa") || str_ends(q->host, ".ip6.arpa"))
		return answer_reverse(v, a, q);
	if (!v->policy) {
		dnsmsg_reason(a, DNS_EDE_NOT_READY, "sbxsv: the app's rules are not known yet");
		return dnsmsg_end(a, DNS_SERVFAIL);
	}
	policy_decide_name(v->policy, q->host, &d->verdict);
	if (d->verdict.action == VERDICT_ALLOW)
		return answer_allowed(v, a, q);
	return answer_denied(v, a, q, d);
}

size_t dns_answer(const struct dns_view *v, const uint8_t *msg, size_t len, bool udp, uint8_t *out,
		  struct dns_denial *ret)
{
	struct dns_query q;
	struct dns_answer a;
	enum dnsmsg r = dnsmsg_parse(msg, len, &q);

	ret->denied = false;
	if (r == DNSMSG_DROP)
		return 0;
	dnsmsg_begin(&a, out, msg, &q, udp);
	if (r == DNSMSG_ERROR)
		return dnsmsg_end(&a, q.rcode);
	return answer_question(v, &a, &q, ret);
}
