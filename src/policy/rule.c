/*
 * The text of Allow=, Deny=, AllowAddress= and Connect=. A rule that would grant more than its reader can see
 * is an error, never a warning: a whole top-level domain, an address range in the wrong key, a place that is
 * never granted.
 */
#include "policy/rules.h"
#include "base/parse.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

const uint16_t port_defaults[PORT_DEFAULTS] = {80, 443, 8080, 8443};

bool port_is_default(uint16_t port)
{
	for (size_t i = 0; i < PORT_DEFAULTS; i++)
		if (port_defaults[i] == port)
			return true;
	return false;
}

/* "443" or "8000-8100" */
static int range_parse(const char *text, struct port_range *ret, struct err **e)
{
	const char *dash = strchr(text, '-');
	struct port_range r;
	char low[8];

	if (dash) {
		if ((size_t)(dash - text) >= sizeof low)
			return err_set(e, EINVAL, "a port is a number from 1 to 65535");
		memcpy(low, text, (size_t)(dash - text));
		low[dash - text] = 0;
		if (parse_port(low, &r.low) < 0 || parse_port(dash + 1, &r.high) < 0)
			return err_set(e, EINVAL, "a port range is LOW-HIGH, two numbers from 1 to 65535");
		if (r.low > r.high)
			return err_set(e, EINVAL, "the port range ends before it begins");
	} else {
		if (parse_port(text, &r.low) < 0)
			return err_set(
				e, EINVAL,
				"a port is a number from 1 to 65535 without leading zeros, or LOW-HIGH");
		r.high = r.low;
	}
	*ret = r;
	return 0;
}

int ports_parse(const char *text, port_sink *sink, void *data, struct err **e)
{
	CLEANUP_FREE char *copy = xstrdup(text);
	char *rest = copy, *word;

	while ((word = strsep(&rest, ","))) {
		struct port_range r;

		if (range_parse(str_trim(word), &r, e) < 0)
			return -1;
		sink(data, r);
	}
	return 0;
}

/* Splits "HOST", "HOST:PORTS" and "[V6]:PORTS". The host part is text[0..*ret_len), brackets taken off. */
static int split_port(const char *text, const char **ret_host, size_t *ret_len, const char **ret_ports,
		      bool *ret_bracketed, struct err **e)
{
	const char *colon = strchr(text, ':'), *close;

	*ret_bracketed = text[0] == '[';
	if (!*ret_bracketed) {
		if (colon && strchr(colon + 1, ':'))
			return err_set(
				e, EINVAL,
				"write an IPv6 address in brackets: [2001:db8::1] or [2001:db8::1]:443");
		*ret_host = text;
		*ret_len = colon ? (size_t)(colon - text) : strlen(text);
		*ret_ports = colon ? colon + 1 : NULL;
		return 0;
	}
	close = strchr(text, ']');
	if (!close || (close[1] && close[1] != ':'))
		return err_set(e, EINVAL, "an IPv6 address in brackets is [ADDRESS] or [ADDRESS]:PORT");
	*ret_host = text + 1;
	*ret_len = (size_t)(close - text - 1);
	*ret_ports = close[1] == ':' ? close + 2 : NULL;
	return 0;
}

static int closed_error(enum addr_class c, struct err **e)
{
	if (c == ADDR_LOOPBACK)
		return err_set(e, EPERM, "this machine is never granted by a rule: use Loopback=PORT");
	return err_set(e, EPERM, "%s addresses are never granted", addr_class_name(c));
}

static int address_rule(const struct addr *a, const char *shown, enum rule_key key, struct rule *r,
			struct err **e)
{
	enum addr_class c = addr_classify(a);
	char text[INET6_ADDRSTRLEN];

	if (key == KEY_ALLOW && c == ADDR_PRIVATE)
		return err_set(e, EINVAL, "a private address has its own key: AllowAddress=%s%s", shown,
			       strstr(shown, "]:") || (shown[0] != '[' && strchr(shown, ':')) ? "" : ":PORT");
	if (key == KEY_ALLOW && c != ADDR_PUBLIC)
		return closed_error(c, e);
	addr_format(a, text);
	r->kind = RULE_ADDRESS;
	r->host = xstrdup(text);
	return 0;
}

/* Second-level registries of country domains, as in co.uk and com.au: a star below one is as wide as "*.com".
 */
static bool is_country_registry(const char *host)
{
	static const char *const second[] = {"co", "com", "net", "org", "gov", "edu", "ac", "or", "ne", "go"};
	const char *dot = strchr(host, '.');

	if (!dot || strlen(dot + 1) != 2)
		return false;
	for (size_t i = 0; i < ELEMENTS(second); i++)
		if (strlen(second[i]) == (size_t)(dot - host) &&
		    strncmp(second[i], host, (size_t)(dot - host)) == 0)
			return true;
	return false;
}

static int name_rule(const char *host, size_t len, enum rule_key key, struct rule *r, struct err **e)
{
	char canon[HOST_MAX];

	r->kind = RULE_HOST;
	if (len >= 2 && host[0] == '*' && host[1] == '.') {
		r->kind = RULE_WILDCARD;
		host += 2;
		len -= 2;
	} else if (len == 1 && host[0] == '*') {
		return err_set(e, EINVAL,
			       "\"*\" is no rule: Egress=all opens every public host, Egress=off none");
	} else if (len > 0 && host[0] == '.') {
		return err_set(e, EINVAL, "write *%.*s for a host and everything below it", (int)len, host);
	}
	if (memchr(host, '*', len))
		return err_set(e, EINVAL,
			       "a star stands only at the front and for whole labels, as in *.example.com");
	if (host_canon(host, len, canon, e) < 0)
		return -1;
	if (key == KEY_ALLOW) {
		enum addr_class c = host_closed_class(canon);

		if (c != ADDR_PUBLIC)
			return closed_error(c, e);
		if (!strchr(canon, '.'))
			return r->kind == RULE_WILDCARD
				       ? err_set(e, EINVAL,
						 "*.%s is a whole top-level domain: two labels at least",
						 canon)
				       : err_set(e, EINVAL, "%s is no full host name: it has no dot", canon);
		if (r->kind == RULE_WILDCARD && is_country_registry(canon))
			return err_set(e, EINVAL, "anybody can register a name below %s: name the hosts",
				       canon);
	}
	r->host = xstrdup(canon);
	return 0;
}

/* A user name in it may come with a password: then nothing of it is repeated. */
static int a_url(const char *text, const char *host, struct err **e)
{
	int n = (int)strcspn(host, "/?#");

	if (!n || memchr(host, '@', (size_t)n))
		return err_set(e, EINVAL, "write the host only, without \"%.*s\"", (int)(host - text), text);
	return err_set(e, EINVAL, "write the host only, without \"%.*s\": %.*s", (int)(host - text), text, n,
		       host);
}

/* Shapes that people write by mistake, each with the answer to it. */
static int common_mistakes(const char *text, enum rule_key key, struct err **e)
{
	if (!*text)
		return err_set(e, EINVAL, "the rule is empty");
	if (strlen(text) > 2 * HOST_MAX)
		return err_set(e, EINVAL, "the rule is too long for a host name");
	if (strstr(text, "://"))
		return a_url(text, strstr(text, "://") + 3, e);
	if (strchr(text, '@'))
		return err_set(e, EINVAL, "write the host only, without a user name");
	if (strchr(text, '/'))
		return key == KEY_ALLOW
			       ? err_set(e, EINVAL,
					 "paths are not part of a rule, and an address range is "
					 "AllowAddress=")
			       : err_set(e, EINVAL, "neither paths nor address ranges are part of a rule");
	if (text[0] == '!')
		return err_set(e, EINVAL, "there is no negation: use Deny=");
	return 0;
}

int rule_parse(const char *text, enum rule_key key, struct rule *ret, struct err **e)
{
	struct rule r = {0};
	const char *host = NULL, *ports = NULL;
	struct addr a;
	bool bracketed = false;
	size_t len = 0;

	if (common_mistakes(text, key, e) < 0 || split_port(text, &host, &len, &ports, &bracketed, e) < 0)
		return -1;
	if (ports) {
		if (range_parse(ports, &r.ports[0], e) < 0)
			return -1;
		r.n_ports = 1;
	} else if (key == KEY_DENY) {
		r.ports[r.n_ports++] = (struct port_range){1, UINT16_MAX};
	} else {
		for (size_t i = 0; i < PORT_DEFAULTS; i++)
			r.ports[r.n_ports++] = (struct port_range){port_defaults[i], port_defaults[i]};
	}
	if (bracketed && !memchr(host, ':', len))
		return err_set(e, EINVAL, "brackets are for IPv6 addresses only");
	if (host_parse_addr(host, len, &a) == 0) {
		if (address_rule(&a, text, key, &r, e) < 0)
			return -1;
	} else if (bracketed) {
		return err_set(e, EINVAL, "[%.*s] is no IPv6 address (a zone cannot be given)", (int)len,
			       host);
	} else if (name_rule(host, len, key, &r, e) < 0) {
		return -1;
	}
	*ret = r;
	return 0;
}

/* Sets every bit after the first `bits`: the last address of the network. */
static void last_of(const struct addr *net, unsigned bits, struct addr *ret)
{
	uint8_t *b;
	unsigned total = net->family == AF_INET ? 32 : 128;

	*ret = *net;
	b = ret->family == AF_INET ? (uint8_t *)&ret->v4 : ret->v6.s6_addr;
	for (unsigned i = bits; i < total; i++)
		b[i / 8] |= (uint8_t)(0x80u >> (i % 8));
}

static bool host_bits_set(const struct addr *a, unsigned bits)
{
	const uint8_t *b = a->family == AF_INET ? (const uint8_t *)&a->v4 : a->v6.s6_addr;
	unsigned total = a->family == AF_INET ? 32 : 128;

	for (unsigned i = bits; i < total; i++)
		if (b[i / 8] & (0x80u >> (i % 8)))
			return true;
	return false;
}

static bool grantable(enum addr_class c)
{
	return c == ADDR_PUBLIC || c == ADDR_PRIVATE;
}

/* A wide range may hold places that are never granted (10.0.0.0/8 and an address of this machine, for one):
 * they stay refused, because the class is judged before the rule. Only a range that begins or ends in one is
 * an error. */
static int net_check(const struct net_rule *r, struct err **e)
{
	bool v4 = r->net.family == AF_INET;
	unsigned least = v4 ? 8 : 7; /* 10.0.0.0/8 and fc00::/7 are the widest ranges with one owner */
	struct addr last;
	enum addr_class c;

	if (r->bits < least)
		return err_set(e, EINVAL, "the range is wider than /%u: name the networks, or use Egress=all",
			       least);
	if (host_bits_set(&r->net, r->bits))
		return err_set(e, EINVAL,
			       "the address has bits set beyond /%u: write the network's first address",
			       r->bits);
	last_of(&r->net, r->bits, &last);
	c = addr_classify(&r->net);
	if (grantable(c))
		c = addr_classify(&last);
	return grantable(c) ? 0 : closed_error(c, e);
}

static int prefix_parse(const char *text, size_t len, unsigned max, unsigned *ret, struct err **e)
{
	char buf[4];
	uint64_t v;

	if (len == 0 || len >= sizeof buf)
		return err_set(e, EINVAL, "the prefix length is a number up to %u", max);
	memcpy(buf, text, len);
	buf[len] = 0;
	if (parse_u64(buf, max, &v) < 0 || (len > 1 && buf[0] == '0'))
		return err_set(e, EINVAL, "the prefix length is a number up to %u", max);
	*ret = (unsigned)v;
	return 0;
}

static int net_syntax_error(struct err **e)
{
	return err_set(e, EINVAL,
		       "write ADDRESS:PORT or ADDRESS/BITS:PORT, IPv6 as [ADDRESS]:PORT, the port a number, "
		       "LOW-HIGH or *");
}

int net_rule_parse(const char *text, struct net_rule *ret, struct err **e)
{
	struct net_rule r = {.ports = {1, UINT16_MAX}};
	const char *ports = strrchr(text, ':'), *host = text, *slash, *end;
	size_t len;

	if (!ports || ports == text || strlen(text) > 2 * INET6_ADDRSTRLEN)
		return net_syntax_error(e);
	if (text[0] == '[') {
		host = text + 1;
		end = strchr(host, ']');
		if (!end || end > ports || (end[1] != ':' && end[1] != '/'))
			return net_syntax_error(e);
		len = (size_t)(end - host);
		slash = end[1] == '/' ? end + 1 : NULL;
		if (!memchr(host, ':', len) || (!slash && end + 1 != ports))
			return net_syntax_error(e);
	} else {
		slash = memchr(text, '/', (size_t)(ports - text));
		len = (size_t)((slash ? slash : ports) - text);
		if (memchr(host, ':', len))
			return net_syntax_error(e);
	}
	if (host_parse_addr(host, len, &r.net) < 0)
		return err_set(e, EINVAL, "\"%.*s\" is no address; names belong in Allow=", (int)len, host);
	r.bits = r.net.family == AF_INET ? 32 : 128;
	if (slash && text[0] == '[' && r.net.family == AF_INET)
		return err_set(e, EINVAL, "write an IPv4 range in its own form, as in 10.0.0.0/8");
	if (slash && prefix_parse(slash + 1, (size_t)(ports - slash - 1), r.bits, &r.bits, e) < 0)
		return -1;
	if (strcmp(ports + 1, "*") != 0 && range_parse(ports + 1, &r.ports, e) < 0)
		return -1;
	if (net_check(&r, e) < 0)
		return -1;
	*ret = r;
	return 0;
}
