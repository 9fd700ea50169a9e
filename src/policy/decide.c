/*
 * The decisions. Order, the same everywhere: what is never granted, Deny=, Egress=off, the grants, default
 * deny. A verdict starts as a denial and is turned into a grant at the one place that found the rule.
 */
#include "policy/rules.h"
#include <stdio.h>
#include <string.h>

static void text(char *out, size_t cap, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void text(char *out, size_t cap, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(out, cap, fmt, ap); /* a verdict's texts are for people: cut when too long */
	va_end(ap);
}
#define SET(field, ...) text((field), sizeof(field), __VA_ARGS__)

/* The same of plain strings: every grant needs two, and a format costs as much as all else in a decision. */
static void join(char *out, size_t cap, const char *const *v, size_t n)
{
	size_t at = 0;

	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(v[i]);

		if (len > cap - 1 - at)
			len = cap - 1 - at;
		memcpy(out + at, v[i], len);
		at += len;
	}
	out[at] = 0;
}
#define JOIN(field, ...)                                                                                     \
	do {                                                                                                 \
		const char *const v_[] = {__VA_ARGS__};                                                      \
		join((field), sizeof(field), v_, sizeof v_ / sizeof *v_);                                    \
	} while (0)

static void set_rule(struct verdict *v, const char *key, const char *rule, const char *origin)
{
	JOIN(v->rule, origin ? origin : "", origin ? " " : "", key, "=", rule);
}

static void set_allow(struct verdict *v, const char *key, const char *rule, const char *origin)
{
	v->action = VERDICT_ALLOW;
	set_rule(v, key, rule, origin);
	JOIN(v->reason, key, "= allows it");
	v->hint[0] = 0;
}

static void set_closed(struct verdict *v, enum addr_class c, uint16_t port)
{
	SET(v->rule, "closed: %s", addr_class_name(c));
	if (c == ADDR_LOOPBACK) {
		SET(v->reason, "this machine is closed to apps");
		SET(v->hint, "Loopback=%u", port);
	} else {
		SET(v->reason, "%s addresses are never reachable", addr_class_name(c));
	}
}

/* "x.com" or "[2606::1]", with ":PORT" unless Allow= means that port by itself. */
static void target(char *out, size_t cap, const char *host, uint16_t port, bool always_port)
{
	const char *open = strchr(host, ':') ? "[" : "", *close = *open ? "]" : "";

	if (always_port || !port_is_default(port))
		text(out, cap, "%s%s%s:%u", open, host, close, port);
	else
		text(out, cap, "%s%s%s", open, host, close);
}

static bool connect_has(const struct policy *p, uint16_t port)
{
	for (size_t i = 0; i < p->n_connect; i++)
		if (port_in(&p->connect[i], port))
			return true;
	return p->n_connect == 0;
}

static const struct net_rule *find_net(const struct policy *p, const struct addr *a, uint16_t port)
{
	for (size_t i = 0; i < p->n_nets; i++) {
		const struct net_rule *r = &p->nets[i];
		const void *net = &r->net.v6, *in = &a->v6;

		if (r->net.family == AF_INET) {
			net = &r->net.v4;
			in = &a->v4;
		}
		if (r->net.family == a->family && port_in(&r->ports, port) &&
		    addr_bits_match(in, net, r->bits))
			return r;
	}
	return NULL;
}

/* Nothing grants it: says so, with the line that would. `host` is a name or an address as text. */
static void default_deny(const struct policy *p, const char *host, uint16_t port, bool is_private,
			 struct verdict *v)
{
	char shown[HOST_MAX + 16];

	SET(v->rule, "default-deny");
	if (is_private) {
		target(shown, sizeof shown, host, port, true);
		SET(v->reason, "a private address needs an AllowAddress= line");
		SET(v->hint, "AllowAddress=%s", shown);
		return;
	}
	if (p->egress == EGRESS_ALL) {
		SET(v->reason, "no Connect= line has port %u", port);
		SET(v->hint, "Connect=%u", port);
		return;
	}
	if (!v->literal && !strchr(host, '.')) {
		SET(v->reason, "a name without a dot cannot be allowed: use the full name");
		return;
	}
	target(shown, sizeof shown, host, port, false);
	if (p->egress == EGRESS_OFF)
		SET(v->reason, "the app has no network access (Egress=off)");
	else
		SET(v->reason, "no Allow= line names this %s and port", v->literal ? "address" : "host");
	SET(v->hint, "Allow=%s", shown);
}

/* What Allow=, Deny= and Egress= say about a target that is not closed by nature. */
static void decide_rules(const struct policy *p, const struct rule *deny, const struct rule *allow,
			 const char *host, uint16_t port, struct verdict *v)
{
	if (deny) {
		set_rule(v, "Deny", deny->text, deny->origin);
		SET(v->reason, "a Deny= line names it");
	} else if (p->egress == EGRESS_OFF) {
		default_deny(p, host, port, false, v);
	} else if (allow) {
		set_allow(v, "Allow", allow->text, allow->origin);
	} else if (p->egress == EGRESS_ALL && connect_has(p, port)) {
		set_allow(v, "Egress", "all", NULL);
	} else {
		default_deny(p, host, port, false, v);
	}
}

static void verdict_init(struct verdict *v, bool literal)
{
	memset(v, 0, sizeof *v);
	v->action = VERDICT_DENY;
	v->literal = literal;
}

/* Every port of the policy is 1..65535, so that port 0 can only be a mistake of the caller. */
static bool refuse_port_0(uint16_t port, struct verdict *v)
{
	if (port != 0)
		return false;
	SET(v->rule, "closed: port 0");
	SET(v->reason, "port 0 is no port");
	return true;
}

void policy_decide_host(const struct policy *p, const char *host, uint16_t port, struct verdict *ret)
{
	char canon[HOST_MAX];
	struct verdict v;
	enum addr_class c;

	verdict_init(&v, false);
	c = host_closed_class(host);
	if (refuse_port_0(port, &v)) {
		;
	} else if (host_canon(host, strlen(host), canon, NULL) < 0 || strcmp(canon, host) != 0) {
		SET(v.rule,
		    "closed: bad name"); /* the caller forgot host_canon(): never let that open a door */
		SET(v.reason, "this is no canonical host name");
	} else if (c != ADDR_PUBLIC) {
		set_closed(&v, c, port);
	} else {
		decide_rules(p, rule_set_find_host(&p->deny, host, port),
			     rule_set_find_host(&p->allow, host, port), host, port, &v);
	}
	*ret = v;
}

bool policy_denies_host(const struct policy *p, const char *host, uint16_t port, struct verdict *ret)
{
	const struct rule *deny = rule_set_find_host(&p->deny, host, port);

	if (deny)
		policy_decide_host(p, host, port, ret);
	return deny != NULL;
}

/* The lowest port from `port` up that no Deny= of the host has; 65536: none. */
struct hole {
	uint32_t port;
	bool moved;
};
static bool skip_range(void *data, const struct port_range *r)
{
	struct hole *h = data;

	if (h->port >= r->low && h->port <= r->high) {
		h->port = (uint32_t)r->high + 1;
		h->moved = true;
	}
	return true;
}

static uint32_t not_denied(const struct policy *p, const char *host, uint16_t port)
{
	struct hole h = {port, true};

	while (h.moved && h.port <= UINT16_MAX) { /* each round passes one range at least */
		h.moved = false;
		rule_set_each_range(&p->deny, host, skip_range, &h);
	}
	return h.port;
}

struct name_search {
	const struct policy *p;
	const char *host;
	uint16_t port; /* an allowed one, or 0 */
	uint16_t near; /* of an Allow= that a Deny= takes back, or 0 */
};
static bool try_range(void *data, const struct port_range *r)
{
	struct name_search *s = data;
	uint32_t port = not_denied(s->p, s->host, r->low);

	if (!s->near)
		s->near = r->low;
	if (port <= r->high)
		s->port = (uint16_t)port;
	return !s->port;
}

void policy_decide_name(const struct policy *p, const char *host, struct verdict *ret)
{
	struct name_search s = {.p = p, .host = host};

	/* in the order of decide_rules(): what is found here is what it will find at that port */
	if (p->egress != EGRESS_OFF)
		rule_set_each_range(&p->allow, host, try_range, &s);
	if (!s.port && p->egress == EGRESS_ALL) {
		const struct port_range all = {1, UINT16_MAX};

		if (p->n_connect == 0)
			(void)try_range(&s, &all);
		for (size_t i = 0; i < p->n_connect && !s.port; i++)
			(void)try_range(&s, &p->connect[i]);
	}
	policy_decide_host(p, host, s.port ? s.port : s.near ? s.near : 443, ret);
}

/* A Deny= of an IPv4 address counts for what a translator or tunnel makes of it too. */
static const struct rule *find_deny(const struct policy *p, const struct addr *a, uint16_t port)
{
	const struct rule *r = rule_set_find_addr(&p->deny, a, port);
	struct addr in;

	return !r && addr_embedded(a, &in) ? rule_set_find_addr(&p->deny, &in, port) : r;
}

static void unmap(const struct addr *a, struct addr *ret)
{
	struct sockaddr_storage ss = {.ss_family = AF_UNSPEC};

	if (a->family == AF_INET || a->family == AF_INET6)
		(void)addr_to_sockaddr(a, 0, &ss);
	addr_from_sockaddr(ret, &ss);
}

void policy_decide_addr(const struct policy *p, const struct addr *given, uint16_t port, struct verdict *ret)
{
	char shown[INET6_ADDRSTRLEN];
	const struct rule *deny;
	const struct net_rule *net;
	struct verdict v;
	struct addr a;
	enum addr_class c;

	verdict_init(&v, true);
	unmap(given, &a);
	addr_format(&a, shown);
	c = addr_classify(&a);
	deny = find_deny(p, &a, port);
	net = p->egress == EGRESS_OFF ? NULL : find_net(p, &a, port);
	if (refuse_port_0(port, &v)) {
		;
	} else if (c != ADDR_PUBLIC && c != ADDR_PRIVATE) {
		set_closed(&v, c, port);
	} else if (!deny && net) {
		set_allow(&v, "AllowAddress", net->text, net->origin);
		v.by_address = true;
	} else if (!deny && c == ADDR_PRIVATE) {
		default_deny(p, shown, port, true, &v);
	} else {
		decide_rules(p, deny, rule_set_find_addr(&p->allow, &a, port), shown, port, &v);
	}
	*ret = v;
}

bool policy_port_open(const struct policy *p, uint16_t port)
{
	if (p->egress == EGRESS_OFF)
		return false;
	if (p->egress == EGRESS_ALL && connect_has(p, port))
		return true;
	for (size_t i = 0; i < p->allow.n; i++) {
		const struct rule *r = &p->allow.v[i];

		for (unsigned k = 0; k < r->n_ports && r->kind != RULE_ADDRESS; k++)
			if (port_in(&r->ports[k], port))
				return true;
	}
	return false;
}

void policy_decide_own(uint16_t port, struct verdict *ret)
{
	verdict_init(ret, true);
	SET(ret->rule, "closed: this machine");
	SET(ret->reason, "the address is one of this machine's own");
	SET(ret->hint, "Loopback=%u", port);
}

/* One address of an answer: true when it may be dialled. */
static bool answer_ok(const struct policy *p, const struct addr *given, uint16_t port, struct verdict *v)
{
	char shown[INET6_ADDRSTRLEN];
	const struct rule *deny;
	struct addr a;
	enum addr_class c;

	unmap(given, &a);
	addr_format(&a, shown);
	c = addr_classify(&a);
	deny = find_deny(p, &a, port);
	if (deny) {
		set_rule(v, "Deny", deny->text, deny->origin);
		SET(v->reason, "the name resolves to %s, which a Deny= line names", shown);
		return false;
	}
	if (c == ADDR_PUBLIC)
		return true;
	if (c == ADDR_PRIVATE && find_net(p, &a, port)) {
		v->by_address = true;
		return true;
	}
	if (c == ADDR_PRIVATE) {
		default_deny(p, shown, port, true, v);
		SET(v->reason, "the name resolves to %s, a private address", shown);
	} else {
		set_closed(v, c, port);
		SET(v->reason, "the name resolves to %s, a %s address", shown, addr_class_name(c));
		if (!str_starts(v->hint, "Loopback="))
			v->hint[0] = 0;
	}
	return false;
}

void policy_decide_answer(const struct policy *p, const char *host, uint16_t port, const struct verdict *by,
			  const struct addr *answer, size_t n, struct verdict *ret)
{
	struct verdict v = *by, denied;

	(void)host;
	if (by->action != VERDICT_ALLOW) {
		*ret = v;
		return;
	}
	verdict_init(&denied, by->literal);
	if (n == 0) {
		SET(denied.rule, "closed: no address");
		SET(denied.reason, "the name has no address");
		*ret = denied;
		return;
	}
	for (size_t i = 0; i < n; i++)
		if (!answer_ok(p, &answer[i], port, &denied)) {
			denied.by_address = false;
			*ret = denied;
			return;
		}
	v.by_address = denied.by_address;
	*ret = v;
}
