/* Inside src/policy only: rules as parsed, and the index that finds them. */
#pragma once
#include "policy/policy.h"
#include "base/cleanup.h"
#include "base/str.h"

struct port_range {
	uint16_t low, high;
};

enum rule_kind { RULE_HOST, RULE_WILDCARD, RULE_ADDRESS };
enum rule_key { KEY_ALLOW, KEY_DENY };

struct rule { /* one Allow= or Deny= */
	enum rule_kind kind;
	char *host; /* canonical name, without the star; or the address as addr_format() writes it */
	struct port_range ports[4];
	unsigned n_ports;
	char *text, *origin; /* as written; origin may be NULL */
	uint32_t next;       /* in its hash chain; RULE_END ends it */
};
#define RULE_END UINT32_MAX

struct rule_set { /* rules in the order written, and chains by a hash of `host` */
	struct rule *v;
	size_t n, cap;
	uint32_t *heads;
	size_t n_heads; /* a power of two, or 0 */
};

struct net_rule { /* one AllowAddress= */
	struct addr net;
	unsigned bits;
	struct port_range ports;
	char *text, *origin;
};

struct policy {
	enum egress egress;
	struct rule_set allow, deny;
	struct net_rule *nets;
	size_t n_nets, cap_nets;
	struct port_range *connect;
	size_t n_connect, cap_connect;
	struct strv connect_text, connect_origin; /* as written, for the JSON form */
	bool sni_match, ech_refuse;
	struct upstream *upstream; /* UpstreamProxy=, or NULL */
	struct rule_set no_proxy;
	struct net_rule *no_proxy_nets;
	size_t n_no_proxy_nets, cap_no_proxy_nets;
	struct strv no_proxy_text, no_proxy_origin; /* as written, for the JSON form */
};

/* upstream.c */
void policy_upstream_finish(struct policy *p);


/* host.c: ADDR_LOOPBACK or ADDR_METADATA for a name that is never granted, else ADDR_PUBLIC. */
enum addr_class host_closed_class(const char *host);
/* addr.c */
bool addr_bits_match(const uint8_t *a, const uint8_t *net, unsigned bits);
/* rule.c: `ret` owns nothing on failure; text and origin are left to the caller. */
int rule_parse(const char *text, enum rule_key key, struct rule *ret, struct err **e);
int net_rule_parse(const char *text, struct net_rule *ret, struct err **e);
typedef void port_sink(void *data, struct port_range r);
int ports_parse(const char *text, port_sink *sink, void *data, struct err **e); /* "443,8000-8100" */
enum { PORT_DEFAULTS = 4 };
extern const uint16_t port_defaults[PORT_DEFAULTS]; /* of Allow= without a port */
bool port_is_default(uint16_t port);
static inline bool port_in(const struct port_range *r, uint16_t port)
{
	return port >= r->low && port <= r->high;
}
/* ruleset.c */
void rule_set_add(struct rule_set *s, struct rule *r); /* takes what r owns */
void rule_set_finish(struct rule_set *s);
/* The rule written first that fits, or NULL. */
const struct rule *rule_set_find_host(const struct rule_set *s, const char *host, uint16_t port);
/* Walks over the ranges of all rules that name `host`, in no order that counts. False ends the walk. */
typedef bool rule_range_fn(void *data, const struct port_range *r);
void rule_set_each_range(const struct rule_set *s, const char *host, rule_range_fn *fn, void *data);
const struct rule *rule_set_find_addr(const struct rule_set *s, const struct addr *a, uint16_t port);
