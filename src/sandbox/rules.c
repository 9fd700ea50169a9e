#include "sandbox/rules.h"

typedef int add_fn(struct policy *p, const char *text, const char *origin, struct err **e);

static int add_rules(struct policy *p, const struct unit_list *l, add_fn *add, struct err **e)
{
	for (size_t i = 0; i < l->n; i++)
		if (add(p, l->v[i].text, l->v[i].origin, e) < 0)
			return err_wrap(e, "%s", l->v[i].origin);
	return 0;
}

struct policy *rules_of_unit(const struct unit *u, struct err **e)
{
	struct policy *p = policy_create((enum egress)u->egress);

	if (add_rules(p, &u->allow, policy_add_allow, e) < 0 ||
	    add_rules(p, &u->deny, policy_add_deny, e) < 0 ||
	    add_rules(p, &u->allow_address, policy_add_address, e) < 0 ||
	    add_rules(p, &u->connect, policy_add_connect, e) < 0 ||
	    add_rules(p, &u->no_proxy, policy_add_no_proxy, e) < 0 ||
	    (u->upstream_proxy &&
	     policy_set_upstream(p, u->upstream_proxy, u->upstream_proxy_origin, e) < 0)) {
		policy_destroy(p);
		return NULL;
	}
	policy_set_sni_match(p, u->sni_match);
	policy_set_ech_refuse(p, u->ech_refuse);
	return p;
}

enum egress rules_egress(const struct unit *u, const struct rules_extra *v, size_t n)
{
	bool grants = false;

	for (size_t i = 0; i < n; i++)
		grants |= v[i].key != POLICY_DENY;
	if (u->egress == UNIT_EGRESS_OFF && !u->egress_origin && grants)
		return EGRESS_HOSTS;
	return (enum egress)u->egress;
}

struct policy *rules_with(const struct unit *u, const struct rules_extra *v, size_t n, struct err **e)
{
	struct policy *p = rules_of_unit(u, e);

	if (!p)
		return NULL;
	for (size_t i = 0; i < n; i++)
		if (policy_add(p, v[i].key, v[i].text, v[i].origin, e) < 0) {
			(void)err_wrap(e, "%s", v[i].origin);
			policy_destroy(p);
			return NULL;
		}
	policy_set_egress(p, rules_egress(u, v, n));
	return p;
}

void rules_wire_checks(struct unit_dirs *d)
{
	d->check_host_rule = policy_check_host_rule;
	d->check_deny_rule = policy_check_deny_rule;
	d->check_address_rule = policy_check_address_rule;
	d->check_ports = policy_check_ports;
	d->check_upstream = policy_check_upstream;
	d->check_no_proxy = policy_check_no_proxy;
}
