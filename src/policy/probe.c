/*
 * Rules looked at as rules: the one form of each text, the key it belongs to, and what a policy says to what it
 * names. For whoever changes rules (`sbxsv allow`, drop-ins); the decisions themselves are in decide.c.
 */
#include "policy/rules.h"
#include <errno.h>
#include <string.h>

const char *policy_key_name(enum policy_key key)
{
	static const char *const names[] = {
		[POLICY_ALLOW] = "Allow", [POLICY_DENY] = "Deny", [POLICY_ADDRESS] = "AllowAddress"};

	return (size_t)key < ELEMENTS(names) ? names[key] : "";
}

int policy_add(struct policy *p, enum policy_key key, const char *text, const char *origin, struct err **e)
{
	return key == POLICY_ALLOW  ? policy_add_allow(p, text, origin, e)
	       : key == POLICY_DENY ? policy_add_deny(p, text, origin, e)
				    : policy_add_address(p, text, origin, e);
}

static void add_ports(struct strbuf *b, const struct port_range *r)
{
	if (r->low == r->high)
		strbuf_addf(b, ":%u", r->low);
	else
		strbuf_addf(b, ":%u-%u", r->low, r->high);
}

static bool is_whole(const struct port_range *r)
{
	return r->low == 1 && r->high == UINT16_MAX;
}

static char *rule_text(const struct rule *r, enum rule_key key)
{
	struct strbuf b = STRBUF_INIT;
	bool v6 = strchr(r->host, ':') != NULL;

	strbuf_addf(&b, "%s%s%s%s", r->kind == RULE_WILDCARD ? "*." : "", v6 ? "[" : "", r->host,
		    v6 ? "]" : "");
	if (r->n_ports == 1 && !(key == KEY_DENY && is_whole(&r->ports[0])))
		add_ports(&b, &r->ports[0]);
	return strbuf_take(&b);
}

static char *net_text(const struct net_rule *r)
{
	struct strbuf b = STRBUF_INIT;
	bool v6 = r->net.family == AF_INET6;
	char shown[INET6_ADDRSTRLEN];

	addr_format(&r->net, shown);
	strbuf_addf(&b, "%s%s%s", v6 ? "[" : "", shown, v6 ? "]" : "");
	if (r->bits != (v6 ? 128u : 32u))
		strbuf_addf(&b, "/%u", r->bits);
	if (is_whole(&r->ports))
		strbuf_adds(&b, ":*");
	else
		add_ports(&b, &r->ports);
	return strbuf_take(&b);
}

int policy_canon_rule(enum policy_key key, const char *text, char **ret, struct err **e)
{
	struct net_rule net;
	struct rule r;

	if (key == POLICY_ADDRESS) {
		if (net_rule_parse(text, &net, e) < 0)
			return -1;
		*ret = net_text(&net);
		return 0;
	}
	if (rule_parse(text, key == POLICY_DENY ? KEY_DENY : KEY_ALLOW, &r, e) < 0)
		return -1;
	*ret = rule_text(&r, key == POLICY_DENY ? KEY_DENY : KEY_ALLOW);
	free(r.host);
	return 0;
}

/* An address, or a range of them: then a reason why it is no AllowAddress= says more than why it is no name. */
static bool looks_like_address(const char *text)
{
	return text[0] == '[' ||
	       (text[0] >= '0' && text[0] <= '9' && text[strspn(text, "0123456789./:-*")] == 0);
}

int policy_grant_key(const char *text, enum policy_key *ret, struct err **e)
{
	CLEANUP_ERR struct err *no_host = NULL, *no_address = NULL;
	const struct err *why;

	if (policy_check_host_rule(text, &no_host) == 0) {
		*ret = POLICY_ALLOW;
		return 0;
	}
	if (policy_check_address_rule(text, &no_address) == 0) {
		*ret = POLICY_ADDRESS;
		return 0;
	}
	why = err_code(no_host) == EINVAL && looks_like_address(text) ? no_address : no_host;
	return err_set(e, err_code(why), "%s", err_msg(why));
}

/* --- what a policy says to it --- */

static void judge_port(const struct policy *p, const struct rule *r, const struct addr *a, uint16_t port,
		       struct policy_answer *ret)
{
	struct verdict v;

	if (a)
		policy_decide_addr(p, a, port, &v);
	else
		policy_decide_host(p, r->host, port, &v);
	ret->ports++;
	if (v.action == VERDICT_ALLOW)
		return;
	if (!ret->refused++) {
		ret->port = port;
		ret->verdict = v;
	}
}

static void judge_range(const struct policy *p, const struct rule *r, const struct addr *a,
			const struct port_range *range, struct policy_answer *ret)
{
	judge_port(p, r, a, range->low, ret);
	if (range->high != range->low)
		judge_port(p, r, a, range->high, ret);
}

int policy_answer_rule(const struct policy *p, enum policy_key key, const char *text,
		       struct policy_answer *ret, struct err **e)
{
	struct policy_answer answer = {0};
	struct net_rule net;
	struct rule r;
	struct addr a;

	if (key == POLICY_ADDRESS) {
		if (net_rule_parse(text, &net, e) < 0)
			return -1;
		judge_range(p, NULL, &net.net, &net.ports, &answer);
		*ret = answer;
		return 0;
	}
	if (rule_parse(text, key == POLICY_DENY ? KEY_DENY : KEY_ALLOW, &r, e) < 0)
		return -1;
	if (r.kind == RULE_ADDRESS)
		(void)host_parse_addr(r.host, strlen(r.host), &a); /* rule_parse() wrote it */
	for (unsigned i = 0; i < r.n_ports; i++)
		judge_range(p, &r, r.kind == RULE_ADDRESS ? &a : NULL, &r.ports[i], &answer);
	free(r.host);
	*ret = answer;
	return 0;
}

static bool ports_meet(const struct rule *a, const struct rule *b)
{
	for (unsigned i = 0; i < a->n_ports; i++)
		for (unsigned j = 0; j < b->n_ports; j++)
			if (a->ports[i].low <= b->ports[j].high && b->ports[j].low <= a->ports[i].high)
				return true;
	return false;
}

/* "a.x.com" is below "x.com". */
static bool is_below(const char *host, const char *parent)
{
	size_t n = strlen(host), k = strlen(parent);

	return n > k + 1 && host[n - k - 1] == '.' && strcmp(host + n - k, parent) == 0;
}

static bool rules_meet(const struct rule *a, const struct rule *b)
{
	if ((a->kind == RULE_ADDRESS) != (b->kind == RULE_ADDRESS))
		return false;
	return ports_meet(a, b) &&
	       (strcmp(a->host, b->host) == 0 || (a->kind == RULE_WILDCARD && is_below(b->host, a->host)) ||
		(b->kind == RULE_WILDCARD && is_below(a->host, b->host)));
}

static bool net_meets(const struct net_rule *net, const struct rule *r)
{
	struct rule as_rule = {.n_ports = 1, .ports = {net->ports}};
	struct addr a;

	if (r->kind != RULE_ADDRESS || host_parse_addr(r->host, strlen(r->host), &a) < 0 ||
	    a.family != net->net.family || !ports_meet(r, &as_rule))
		return false;
	return a.family == AF_INET
		       ? addr_bits_match((const uint8_t *)&a.v4, (const uint8_t *)&net->net.v4, net->bits)
		       : addr_bits_match(a.v6.s6_addr, net->net.v6.s6_addr, net->bits);
}

bool policy_grants_any(const struct policy *p, const char *text)
{
	bool found = p->egress == EGRESS_ALL;
	struct rule r;

	if (p->egress == EGRESS_OFF || rule_parse(text, KEY_DENY, &r, NULL) < 0)
		return false;
	for (size_t i = 0; i < p->allow.n && !found; i++)
		found = rules_meet(&p->allow.v[i], &r);
	for (size_t i = 0; i < p->n_nets && !found; i++)
		found = net_meets(&p->nets[i], &r);
	free(r.host);
	return found;
}
