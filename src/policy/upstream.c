/*
 * Through another proxy: where a connection that was allowed goes, UpstreamProxy= and NoProxy=.
 *
 * It is part of the policy, so that one message and one generation change both together. Whether a target may
 * be reached is decided before and apart from this; here is only the way to it.
 */
#include "policy/rules.h"
#include "base/parse.h"
#include <errno.h>
#include <string.h>
#include <strings.h>

#define URL_MAX         2048
#define NO_PROXY_MAX    4096
#define CREDENTIALS_MAX 512 /* of user and password each, decoded */

static void upstream_free(struct upstream *u)
{
	if (!u)
		return;
	free(u->host);
	free(u->shown);
	free(u->authorization);
	free(u->url);
	free(u->origin);
	free(u);
}

/* The URL may hold a password: no message quotes it. */
static int url_error(struct err **e)
{
	return err_set(e, EINVAL,
		       "not http://HOST:PORT or http://USER:PASSWORD@HOST:PORT (in user and password, a "
		       "character that is no letter, digit, '-', '.', '_' or '~' is written as %%XX)");
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* RFC 3986 2.1; appends. Control bytes have no place in credentials (RFC 7617 2). */
static int percent_decode(const char *p, size_t len, struct strbuf *out)
{
	size_t before = out->len;

	for (size_t i = 0; i < len; i++) {
		int c = (unsigned char)p[i];

		if (c == '%') {
			int high = i + 2 < len ? hex(p[i + 1]) : -1, low = i + 2 < len ? hex(p[i + 2]) : -1;

			if (high < 0 || low < 0)
				return -1;
			c = high << 4 | low;
			i += 2;
		} else if (c <= ' ' || c >= 0x7f || strchr("/?#@:", c)) {
			return -1;
		}
		if (c < ' ' || c == 0x7f || out->len - before >= CREDENTIALS_MAX)
			return -1;
		strbuf_addc(out, (char)c);
	}
	return 0;
}

/* RFC 4648 4 */
static char *base64(const char *data, size_t len)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *p = (const unsigned char *)data;
	struct strbuf b = STRBUF_INIT;

	for (size_t i = 0; i < len; i += 3) {
		uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < len ? (uint32_t)p[i + 1] << 8 : 0) |
			     (i + 2 < len ? (uint32_t)p[i + 2] : 0);

		strbuf_addc(&b, digits[v >> 18]);
		strbuf_addc(&b, digits[v >> 12 & 63]);
		strbuf_addc(&b, i + 1 < len ? digits[v >> 6 & 63] : '=');
		strbuf_addc(&b, i + 2 < len ? digits[v & 63] : '=');
	}
	return strbuf_take(&b);
}

/* "user:password", each percent-encoded, to what a Proxy-Authorization field says (RFC 7617 2). */
static int take_credentials(const char *p, size_t len, struct upstream *u)
{
	const char *colon = memchr(p, ':', len);
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
	CLEANUP_FREE char *text = NULL;

	if (!colon || colon == p || percent_decode(p, (size_t)(colon - p), &b) < 0)
		return -1;
	if (memchr(b.p, ':', b.len)) /* RFC 7617 2: no user name has one */
		return -1;
	strbuf_addc(&b, ':');
	if (percent_decode(colon + 1, (size_t)(p + len - colon - 1), &b) < 0)
		return -1;
	text = base64(b.p, b.len);
	u->authorization = xasprintf("Basic %s", text);
	return 0;
}

/* "host:port" or "[v6]:port" */
static int take_host(const char *p, struct upstream *u)
{
	const char *colon = strrchr(p, ':'), *host = p;
	size_t len = colon ? (size_t)(colon - p) : 0;
	bool bracketed = *p == '[';
	char name[HOST_MAX];

	if (!len || parse_port(colon + 1, &u->port) < 0)
		return -1;
	if (bracketed && (len < 4 || p[len - 1] != ']'))
		return -1;
	if (bracketed) {
		host++;
		len -= 2;
	}
	if (len == strlen("localhost") && strncasecmp(host, "localhost", len) == 0) { /* RFC 6761 6.3 */
		host = "127.0.0.1";
		len = strlen(host);
	}
	if (host_parse_addr(host, len, &u->addr) == 0) {
		char text[INET6_ADDRSTRLEN];

		if (memchr(host, ':', len) ? !bracketed : bracketed)
			return -1;
		addr_format(&u->addr, text);
		u->literal = true;
		u->host = xstrdup(text);
	} else {
		if (bracketed || host_canon(host, len, name, NULL) < 0)
			return -1;
		u->host = xstrdup(name);
	}
	u->shown = xasprintf(strchr(u->host, ':') ? "http://[%s]:%u" : "http://%s:%u", u->host, u->port);
	return 0;
}

static struct upstream *upstream_parse(const char *url, struct err **e)
{
	static const char scheme[] = "http://";
	struct upstream *u = xcalloc(1, sizeof *u);
	const char *rest = url + sizeof scheme - 1, *at;
	size_t len = strlen(url);
	CLEANUP_FREE char *host = NULL;

	if (str_starts(url, "socks5://") || str_starts(url, "socks5h://") || str_starts(url, "https://")) {
		(void)err_set(e, EINVAL, "only an http:// proxy is supported: most listen for that too");
		upstream_free(u);
		return NULL;
	}
	if (len > URL_MAX || !str_starts(url, scheme)) {
		(void)url_error(e);
		upstream_free(u);
		return NULL;
	}
	at = strrchr(rest, '@');
	/* Many people and tools write a slash behind the port. */
	host = xstrdup(at ? at + 1 : rest);
	if (*host && host[strlen(host) - 1] == '/')
		host[strlen(host) - 1] = 0;
	if ((at && take_credentials(rest, (size_t)(at - rest), u) < 0) || take_host(host, u) < 0) {
		(void)url_error(e);
		upstream_free(u);
		return NULL;
	}
	return u;
}

int policy_set_upstream(struct policy *p, const char *url, const char *origin, struct err **e)
{
	struct upstream *u;

	if (p->upstream)
		return err_set(e, EEXIST, "UpstreamProxy= is given twice");
	u = upstream_parse(url, e);
	if (!u)
		return err_wrap(e, "UpstreamProxy=");
	u->url = xstrdup(url);
	u->origin = xstrdup(origin);
	p->upstream = u;
	return 0;
}

/* A network is written without ports here: "10.0.0.0/8". */
static int no_proxy_net(const char *text, struct net_rule *ret, struct err **e)
{
	CLEANUP_FREE char *with_ports = xasprintf("%s:*", text);

	if (strchr(text, '/') && net_rule_parse(with_ports, ret, NULL) == 0)
		return 0;
	return err_set(e, EINVAL, "\"%s\" is no network such as 10.0.0.0/8 or [fd00::]/8", text);
}

int policy_add_no_proxy(struct policy *p, const char *text, const char *origin, struct err **e)
{
	struct net_rule net;
	struct rule r;

	if (p->no_proxy_text.n >= NO_PROXY_MAX)
		return err_set(e, E2BIG, "more than %d NoProxy= rules", NO_PROXY_MAX);
	if (strchr(text, '/')) {
		if (no_proxy_net(text, &net, e) < 0)
			return err_wrap(e, "NoProxy=%s", text);
		net.text = net.origin = NULL;
		VEC_GROW(p->no_proxy_nets, p->n_no_proxy_nets, p->cap_no_proxy_nets);
		p->no_proxy_nets[p->n_no_proxy_nets++] = net;
	} else {
		if (rule_parse(text, KEY_DENY, &r, e) < 0)
			return err_wrap(e, "NoProxy=%s", text);
		r.text = r.origin = NULL;
		rule_set_add(&p->no_proxy, &r);
	}
	strv_add(&p->no_proxy_text, text);
	strv_add(&p->no_proxy_origin, origin ? origin : "");
	return 0;
}

int policy_check_upstream(const char *url, struct err **e)
{
	struct upstream *u = upstream_parse(url, e);

	upstream_free(u);
	return u ? 0 : -1;
}

int policy_check_no_proxy(const char *text, struct err **e)
{
	struct net_rule net;

	return strchr(text, '/') ? no_proxy_net(text, &net, e) : policy_check_deny_rule(text, e);
}

char *policy_upstream_shown(const char *url)
{
	struct upstream *u = upstream_parse(url, NULL);
	char *shown = u ? xstrdup(u->shown) : NULL;

	upstream_free(u);
	return shown;
}

bool policy_upstream_has_password(const char *url)
{
	return strchr(url, '@') != NULL;
}

static bool net_holds(const struct net_rule *r, const struct addr *a)
{
	return a->family == r->net.family &&
	       (a->family == AF_INET
			? addr_bits_match((const uint8_t *)&a->v4, (const uint8_t *)&r->net.v4, r->bits)
			: addr_bits_match(a->v6.s6_addr, r->net.v6.s6_addr, r->bits));
}

const struct upstream *policy_upstream(const struct policy *p, const char *host, const struct addr *a,
				       uint16_t port)
{
	struct addr v4;

	if (!p->upstream)
		return NULL;
	if (!a)
		return rule_set_find_host(&p->no_proxy, host, port) ? NULL : p->upstream;
	if (rule_set_find_addr(&p->no_proxy, a, port))
		return NULL;
	if (addr_embedded(a, &v4) && rule_set_find_addr(&p->no_proxy, &v4, port))
		return NULL;
	for (size_t i = 0; i < p->n_no_proxy_nets; i++)
		if (net_holds(&p->no_proxy_nets[i], a))
			return NULL;
	return p->upstream;
}

void policy_upstream_finish(struct policy *p)
{
	upstream_free(p->upstream);
	rule_set_finish(&p->no_proxy);
	free(p->no_proxy_nets);
	strv_clear(&p->no_proxy_text);
	strv_clear(&p->no_proxy_origin);
}
