/*
 * Network policy of one app. Pure: no I/O, no clock, no globals. One decide() serves the proxy, `sbxsv check
 * --allow` and, later, policy DNS and learning, so that what is shown is what is enforced.
 *
 * A name is judged first (policy_decide_host); the proxy then resolves it, and every address of the answer is
 * judged (policy_decide_answer): one address that is not public refuses the whole answer. A literal address is
 * judged by policy_decide_addr. Addresses that are local to this machine are known only to the kernel: local.h asks
 * it, at dial time, in addition to all this.
 */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define HOST_MAX 254 /* RFC 1035 2.3.4: 253 characters and a NUL */

/* --- host names and addresses (src/policy/host.c, addr.c) --- */

struct addr { /* an IPv4 or IPv6 address */
	int family; /* AF_INET or AF_INET6 */
	union {
		struct in_addr v4;
		struct in6_addr v6;
	};
};

enum addr_class {
	ADDR_PUBLIC,
	ADDR_PRIVATE, /* RFC 1918, 100.64/10, fc00::/7: reachable with AllowAddress= */
	ADDR_LOOPBACK,
	ADDR_LINK_LOCAL, /* never grantable */
	ADDR_UNSPECIFIED,
	ADDR_MULTICAST,
	ADDR_RESERVED, /* documentation, benchmarking, 0/8, 240/4, Teredo, anything outside 2000::/3 */
	ADDR_METADATA, /* cloud metadata outside link-local (168.63.129.16, fd00:ec2::/32, ...): never grantable */
};

/* Canonical form of a host given by a client or a rule: lower case, one trailing dot dropped, IDNA refused, each
 * label [a-z0-9_-]. Returns 0 and fills out; -1 when it is no host name (also for anything number-like that is not
 * a canonical dotted quad: that is an address, see host_parse_addr). `len` bytes, NUL bytes are refused. */
int host_canon(const char *text, size_t len, char out[HOST_MAX], struct err **e);
/* A dot-less name (search domains would complete it) is canonical too; resolve every name as a fully qualified one. */
/* Canonical dotted quad, or IPv6 text without brackets and without a zone. A v4-mapped address becomes AF_INET. */
int host_parse_addr(const char *text, size_t len, struct addr *ret);
void addr_format(const struct addr *a, char out[INET6_ADDRSTRLEN]);
/* Class of the address; v4-mapped, NAT64 (64:ff9b::/96), 6to4 and v4-compatible are judged by what they embed (but
 * a v4-compatible address is never public: RFC 4291 2.5.5.1 deprecates them). */
enum addr_class addr_classify(const struct addr *a);
const char *addr_class_name(enum addr_class c);
/* The IPv4 address inside a v4-mapped, NAT64, 6to4 or v4-compatible one; false when there is none. A question that
 * the kernel answers (is it this machine's own?) must be asked about this one too. */
bool addr_embedded(const struct addr *a, struct addr *ret);
/* A v4-mapped address becomes AF_INET; a family that is neither becomes AF_UNSPEC, which is reserved. */
void addr_from_sockaddr(struct addr *ret, const struct sockaddr_storage *sa);
socklen_t addr_to_sockaddr(const struct addr *a, uint16_t port, struct sockaddr_storage *ret);
bool addr_equal(const struct addr *a, const struct addr *b);

/* --- rules --- */

enum egress { EGRESS_OFF, EGRESS_HOSTS, EGRESS_ALL };
const char *egress_name(enum egress e);

struct policy; /* immutable once built; opaque */

struct policy *policy_create(enum egress egress);
void policy_destroy(struct policy *p);
enum egress policy_egress(const struct policy *p);
/* Each parses one value of a unit key. `origin` is "notes.app:12" and is carried into verdicts. -1 with *e.
 *
 * Allow=  host, *.host (the host and everything below it; two labels or more after the star), a public address
 *         (IPv6 in brackets), each with :PORT or :LOW-HIGH; without one: 80, 443, 8080, 8443.
 * Deny=   the same, any address, and one label after a star is enough; without a port: every port. Wins over Allow=,
 *         AllowAddress= and Egress=all; an address also refuses the names that resolve to it.
 * AllowAddress=  ADDRESS:PORT, ADDRESS/BITS:PORT, :LOW-HIGH or :*; IPv6 in brackets, [fd00::]/8:443.
 * Connect= ports and ranges, separated by commas. None at all: every port. Only read when Egress=all. */
int policy_add_allow(struct policy *p, const char *text, const char *origin, struct err **e);   /* Allow= */
int policy_add_deny(struct policy *p, const char *text, const char *origin, struct err **e);    /* Deny= */
int policy_add_address(struct policy *p, const char *text, const char *origin, struct err **e); /* AllowAddress= */
int policy_add_connect(struct policy *p, const char *text, const char *origin, struct err **e); /* Connect=443,8000-8100 */
void policy_set_sni_match(struct policy *p, bool on); /* SniPolicy=match (default) or off */
void policy_set_ech_refuse(struct policy *p, bool on); /* Ech=refuse; default allow */
/* Ports that a connection may be allowed on, at most `max`, those named one by one first. *ret_more: there are
 * others. Returns how many. */
size_t policy_ports(const struct policy *p, uint16_t *out, size_t max, bool *ret_more);
bool policy_sni_match(const struct policy *p);
bool policy_ech_refuse(const struct policy *p);

/* --- upstream.c: through another proxy --- */
struct upstream { /* all but `url` and `authorization` may be shown */
	char *host;          /* canonical name, or the address as addr_format() writes it */
	bool literal;        /* it is `addr` */
	struct addr addr;
	uint16_t port;
	char *authorization; /* value of a Proxy-Authorization field, or NULL */
	char *shown;         /* "http://proxy.example:3128" */
	char *url, *origin;  /* as written, with the password; private to upstream.c and policy.c */
};
/* UpstreamProxy=http://[USER:PASSWORD@]HOST:PORT. Twice is an error. No message quotes the value. */
int policy_set_upstream(struct policy *p, const char *url, const char *origin, struct err **e);
/* NoProxy=  as Deny=, or a network without ports (10.0.0.0/8, [fd00::]/8). Networks are for targets that are written as
 * addresses: a name that goes through the other proxy is not resolved here. */
int policy_add_no_proxy(struct policy *p, const char *text, const char *origin, struct err **e);
/* The proxy that an allowed connection to `host`, or to the address `a` when that is not NULL, goes through. NULL: none. */
const struct upstream *policy_upstream(const struct policy *p, const char *host, const struct addr *a, uint16_t port);
int policy_check_upstream(const char *url, struct err **e);
int policy_check_no_proxy(const char *text, struct err **e);
bool policy_upstream_has_password(const char *url);
/* "http://proxy:3128" of a good URL, without user and password; else NULL. Owned by caller. */
char *policy_upstream_shown(const char *url);

/* Syntax checks for the unit reader (no policy needed): 0, or -1 with the reason. */
int policy_check_host_rule(const char *text, struct err **e);
int policy_check_deny_rule(const char *text, struct err **e);
int policy_check_address_rule(const char *text, struct err **e);
int policy_check_ports(const char *text, struct err **e);

/* The form that travels to sbxsv-proxy. from_json accepts only what to_json makes. */
struct js *policy_to_json(const struct policy *p);
struct policy *policy_from_json(const struct js *j, struct err **e);

enum verdict_action { VERDICT_ALLOW, VERDICT_DENY };
struct verdict {
	enum verdict_action action;
	bool by_address;    /* allowed by AllowAddress=, so a private address is all right */
	bool literal;       /* the target was an address, so there is no name an SNI must equal */
	char rule[320];     /* "notes.app:12 Allow=*.x.com", or "default-deny", "closed: loopback", ... */
	char reason[160];   /* one clause for people: "no Allow= line names this host" */
	char hint[320];     /* the line that would allow it, "Allow=x.com", or "" when nothing can */
};
/* `host` canonical, see host_canon. */
void policy_decide_host(const struct policy *p, const char *host, uint16_t port, struct verdict *ret);
/* Does a Deny= name it? Then *ret is that verdict. */
bool policy_denies_host(const struct policy *p, const char *host, uint16_t port, struct verdict *ret);
/* May `host` be looked up at all: allowed if it is allowed at some port, by that port's verdict; else the verdict on
 * the default port of the rule that comes nearest. */
void policy_decide_name(const struct policy *p, const char *host, struct verdict *ret);
void policy_decide_addr(const struct policy *p, const struct addr *a, uint16_t port, struct verdict *ret);
/* Can any name at all be reached at this port? False: whoever connects to an address there need not be asked for one. */
bool policy_port_open(const struct policy *p, uint16_t port);
/* The verdict on an address that local_route() (policy/local.h) calls this machine's own, whatever the rules say. */
void policy_decide_own(uint16_t port, struct verdict *ret);
/* The answer of resolving `host`, already allowed with verdict `by`. Any address that may not be dialled refuses
 * all of it. */
void policy_decide_answer(const struct policy *p, const char *host, uint16_t port, const struct verdict *by,
			  const struct addr *answer, size_t n, struct verdict *ret);

/* --- rules as texts (src/policy/probe.c): for those who change them --- */
enum policy_key { POLICY_ALLOW, POLICY_DENY, POLICY_ADDRESS };
const char *policy_key_name(enum policy_key key); /* "Allow", "Deny", "AllowAddress" */
int policy_add(struct policy *p, enum policy_key key, const char *text, const char *origin, struct err **e);
void policy_set_egress(struct policy *p, enum egress e);
/* The key of the line that grants `text`: Allow= where that is valid, else AllowAddress=. -1 with the reason;
 * err_code EPERM when nothing may ever grant it, EINVAL when it is no rule. */
int policy_grant_key(const char *text, enum policy_key *ret, struct err **e);
/* The same rule in its one form: lower case, addresses as addr_format() writes them. Owned by caller. */
int policy_canon_rule(enum policy_key key, const char *text, char **ret, struct err **e);
/* What the policy says to what a rule names: each of its ports, of a range the first and the last; of a network the
 * first address, of a wildcard the host itself. */
struct policy_answer {
	unsigned ports, refused;
	uint16_t port;          /* the first that is refused, */
	struct verdict verdict; /* and why */
};
int policy_answer_rule(const struct policy *p, enum policy_key key, const char *text, struct policy_answer *ret,
		       struct err **e);
/* Does a line grant anything that Deny=TEXT would take away? Deny= lines are not looked at. */
bool policy_grants_any(const struct policy *p, const char *text);
