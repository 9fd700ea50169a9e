/* Building a policy, and the form in which it travels to sbxsv-proxy. */
#include "policy/rules.h"
#include <errno.h>
#include <string.h>

#define RULES_MAX 65536 /* of one key: a bound on what one app's policy may cost the shared proxy */

static const char *const egress_names[] = {
	[EGRESS_OFF] = "off", [EGRESS_HOSTS] = "hosts", [EGRESS_ALL] = "all"};

const char *egress_name(enum egress e)
{
	return (size_t)e < ELEMENTS(egress_names) ? egress_names[e] : "off";
}

struct policy *policy_create(enum egress egress)
{
	struct policy *p = xcalloc(1, sizeof *p);

	p->egress = egress;
	p->sni_match = true;
	return p;
}

void policy_destroy(struct policy *p)
{
	if (!p)
		return;
	rule_set_finish(&p->allow);
	rule_set_finish(&p->deny);
	for (size_t i = 0; i < p->n_nets; i++) {
		free(p->nets[i].text);
		free(p->nets[i].origin);
	}
	free(p->nets);
	free(p->connect);
	strv_clear(&p->connect_text);
	strv_clear(&p->connect_origin);
	policy_upstream_finish(p);
	free(p);
}

enum egress policy_egress(const struct policy *p)
{
	return p->egress;
}

static int add_rule(struct rule_set *s, enum rule_key key, const char *name, const char *text,
		    const char *origin, struct err **e)
{
	struct rule r;

	if (s->n >= RULES_MAX)
		return err_set(e, E2BIG, "more than %d %s= rules", RULES_MAX, name);
	if (rule_parse(text, key, &r, e) < 0)
		return err_wrap(e, "%s=%s", name, text);
	r.text = xstrdup(text);
	r.origin = xstrdup(origin);
	rule_set_add(s, &r);
	return 0;
}

int policy_add_allow(struct policy *p, const char *text, const char *origin, struct err **e)
{
	return add_rule(&p->allow, KEY_ALLOW, "Allow", text, origin, e);
}

int policy_add_deny(struct policy *p, const char *text, const char *origin, struct err **e)
{
	return add_rule(&p->deny, KEY_DENY, "Deny", text, origin, e);
}

int policy_add_address(struct policy *p, const char *text, const char *origin, struct err **e)
{
	struct net_rule r;

	if (p->n_nets >= RULES_MAX)
		return err_set(e, E2BIG, "more than %d AllowAddress= rules", RULES_MAX);
	if (net_rule_parse(text, &r, e) < 0)
		return err_wrap(e, "AllowAddress=%s", text);
	r.text = xstrdup(text);
	r.origin = xstrdup(origin);
	VEC_GROW(p->nets, p->n_nets, p->cap_nets);
	p->nets[p->n_nets++] = r;
	return 0;
}

static void add_range(void *data, struct port_range r)
{
	struct policy *p = data;

	VEC_GROW(p->connect, p->n_connect, p->cap_connect);
	p->connect[p->n_connect++] = r;
}

static void ignore_range(void *data, struct port_range r)
{
	(void)data;
	(void)r;
}

int policy_add_connect(struct policy *p, const char *text, const char *origin, struct err **e)
{
	if (p->connect_text.n >= RULES_MAX)
		return err_set(e, E2BIG, "more than %d Connect= lines", RULES_MAX);
	if (policy_check_ports(text, e) < 0) /* first, so that a bad line adds nothing */
		return err_wrap(e, "Connect=%s", text);
	(void)ports_parse(text, add_range, p, NULL);
	strv_add(&p->connect_text, text);
	strv_add(&p->connect_origin, origin ? origin : "");
	return 0;
}

void policy_set_egress(struct policy *p, enum egress e)
{
	p->egress = e;
}

void policy_set_sni_match(struct policy *p, bool on)
{
	p->sni_match = on;
}

void policy_set_ech_refuse(struct policy *p, bool on)
{
	p->ech_refuse = on;
}

bool policy_sni_match(const struct policy *p)
{
	return p->sni_match;
}

bool policy_ech_refuse(const struct policy *p)
{
	return p->ech_refuse;
}

static int check_rule(const char *text, enum rule_key key, struct err **e)
{
	struct rule r;

	if (rule_parse(text, key, &r, e) < 0)
		return -1;
	free(r.host);
	return 0;
}

int policy_check_host_rule(const char *text, struct err **e)
{
	return check_rule(text, KEY_ALLOW, e);
}

int policy_check_deny_rule(const char *text, struct err **e)
{
	return check_rule(text, KEY_DENY, e);
}

int policy_check_address_rule(const char *text, struct err **e)
{
	struct net_rule r;

	return net_rule_parse(text, &r, e);
}

int policy_check_ports(const char *text, struct err **e)
{
	return ports_parse(text, ignore_range, NULL, e);
}

/* --- JSON: {"egress","sni_match","ech_refuse","allow":[[TEXT,ORIGIN]...],"deny","address","connect"}, and if there
 * is one, "upstream":[[URL,ORIGIN]] and "no_proxy" --- */

static void push_pair(struct js *arr, const char *text, const char *origin)
{
	struct js *pair = js_arr();

	js_push_str(pair, text);
	js_push_str(pair, origin ? origin : "");
	js_push(arr, pair);
}

static struct js *rules_to_json(const struct rule_set *s)
{
	struct js *arr = js_arr();

	for (size_t i = 0; i < s->n; i++)
		push_pair(arr, s->v[i].text, s->v[i].origin);
	return arr;
}

static void add_upstream(const struct policy *p, struct js *j)
{
	struct js *arr;

	if (p->upstream) {
		arr = js_arr();
		push_pair(arr, p->upstream->url, p->upstream->origin);
		js_add(j, "upstream", arr);
	}
	if (!p->no_proxy_text.n)
		return;
	arr = js_arr();
	for (size_t i = 0; i < p->no_proxy_text.n; i++)
		push_pair(arr, p->no_proxy_text.v[i], p->no_proxy_origin.v[i]);
	js_add(j, "no_proxy", arr);
}

struct js *policy_to_json(const struct policy *p)
{
	struct js *j = js_obj(), *nets = js_arr(), *connect = js_arr();

	for (size_t i = 0; i < p->n_nets; i++)
		push_pair(nets, p->nets[i].text, p->nets[i].origin);
	for (size_t i = 0; i < p->connect_text.n; i++)
		push_pair(connect, p->connect_text.v[i], p->connect_origin.v[i]);
	js_add_str(j, "egress", egress_name(p->egress));
	js_add_bool(j, "sni_match", p->sni_match);
	js_add_bool(j, "ech_refuse", p->ech_refuse);
	js_add(j, "allow", rules_to_json(&p->allow));
	js_add(j, "deny", rules_to_json(&p->deny));
	js_add(j, "address", nets);
	js_add(j, "connect", connect);
	add_upstream(p, j);
	return j;
}

typedef int add_fn(struct policy *p, const char *text, const char *origin, struct err **e);

static int pairs_from_json(struct policy *p, const struct js *j, const char *key, add_fn *add, struct err **e)
{
	const struct js *arr = js_get(j, key);

	if (!js_is_arr(arr))
		return err_set(e, EINVAL, "policy: \"%s\" is missing or no list", key);
	for (const struct js *pair = js_first(arr); pair; pair = js_next(pair)) {
		const char *text = js_is_arr(pair) && js_len(pair) == 2 ? js_value_str(js_at(pair, 0)) : NULL;
		const char *origin = text ? js_value_str(js_at(pair, 1)) : NULL;

		if (!origin)
			return err_set(e, EINVAL, "policy: an entry of \"%s\" is not [text, origin]", key);
		if (add(p, text, *origin ? origin : NULL, e) < 0)
			return err_wrap(e, "policy");
	}
	return 0;
}

static int bool_from_json(const struct js *j, const char *key, bool *ret, struct err **e)
{
	bool v = js_bool_or(j, key, false);

	if (v != js_bool_or(j, key, true)) /* absent or of another type: each call gave its default */
		return err_set(e, EINVAL, "policy: \"%s\" is missing or no boolean", key);
	*ret = v;
	return 0;
}

static int keys_from_json(const struct js *j, enum egress *ret, struct err **e)
{
	static const char *const keys[] = {"egress",  "sni_match", "ech_refuse", "allow",    "deny",
					   "address", "connect",   "upstream",   "no_proxy", NULL};
	const unsigned needed = (1u << 7) - 1; /* the first seven */
	const char *egress = js_is_obj(j) ? js_str(j, "egress") : NULL;
	unsigned seen = 0;

	if (!egress)
		return err_set(e, EINVAL, "policy: no object with \"egress\"");
	for (const struct js *m = js_first(j); m; m = js_next(m)) {
		size_t i = 0;

		while (keys[i] && !str_eq(keys[i], js_key(m)))
			i++;
		if (!keys[i])
			return err_set(e, EINVAL, "policy: unknown key");
		if (seen & 1u << i)
			return err_set(e, EINVAL, "policy: a key is given twice");
		seen |= 1u << i;
	}
	if ((seen & needed) != needed)
		return err_set(e, EINVAL, "policy: a key is missing");
	for (size_t i = 0; i < ELEMENTS(egress_names); i++)
		if (str_eq(egress, egress_names[i])) {
			*ret = (enum egress)i;
			return 0;
		}
	return err_set(e, EINVAL, "policy: unknown egress");
}

static void cleanup_policy(struct policy **p)
{
	policy_destroy(*p);
}

struct policy *policy_from_json(const struct js *j, struct err **e)
{
	CLEANUP(cleanup_policy) struct policy *p = NULL;
	enum egress egress = EGRESS_OFF;

	if (keys_from_json(j, &egress, e) < 0)
		return NULL;
	p = policy_create(egress);
	if (bool_from_json(j, "sni_match", &p->sni_match, e) < 0 ||
	    bool_from_json(j, "ech_refuse", &p->ech_refuse, e) < 0 ||
	    pairs_from_json(p, j, "allow", policy_add_allow, e) < 0 ||
	    pairs_from_json(p, j, "deny", policy_add_deny, e) < 0 ||
	    pairs_from_json(p, j, "address", policy_add_address, e) < 0 ||
	    pairs_from_json(p, j, "connect", policy_add_connect, e) < 0 ||
	    (js_get(j, "upstream") && pairs_from_json(p, j, "upstream", policy_set_upstream, e) < 0) ||
	    (js_get(j, "no_proxy") && pairs_from_json(p, j, "no_proxy", policy_add_no_proxy, e) < 0))
		return NULL;
	return TAKE_PTR(p);
}
