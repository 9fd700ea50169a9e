/*
 * Captured connections: a program connected to a site by itself, the jail's network brought it here, and
 * getsockname() says where it wanted to go.
 *
 * An address that policy DNS gave out stands for a name: that is judged and dialled at once. So is an address that the
 * rules allow. Any other may still be that of a site whose name the rules allow (a program that kept an address, or
 * asked another name server): its first bytes are read, and when they name a site (server name of TLS, Host of HTTP)
 * that name is judged and dialled by its own addresses, never by the one that the program gave. When no name at all is
 * allowed at that port there is nothing to wait for. A Deny= of the address stands whatever the name is.
 *
 * A refusal is a reset, and an event that says why.
 */
#include "base/log.h"
#include "base/str.h"
#include "proxy/control.h"
#include "proxy/denied.h"
#include "proxy/dns.h"
#include "proxy/egress.h"
#include "proxy/first.h"
#include "proxy/outgoing.h"
#include <string.h>

struct tport {
	struct acceptor acc;
	struct tport *next;
	struct egress_listener *l;
	uint16_t port; /* or 0: any */
};

struct tports {
	struct tport *head;
};

/* --- front --- */

/* The bytes do not name a site that could be judged. */
static void unnamed(struct outgoing *c, const char *reason)
{
	const struct setup *s = c->setup;
	CLEANUP_FREE char *rule = xasprintf("%s: %s", *s->verdict.rule ? s->verdict.rule : "HTTP", reason);

	denied_add(c->app->denied, s->target.host, s->target.port, rule, s->verdict.hint, s->verdict.rule);
	outgoing_reset(c);
}

static void on_gave_up(struct outgoing *c, bool eof)
{
	if (!eof && !c->setup->target.literal &&
	    c->setup->first == FIRST_MORE) { /* the other side speaks first */
		outgoing_judge(c);
		return;
	}
	unnamed(c, eof ? "it ended before it named a site" : "it named no site in time");
}

static void on_refuse(struct outgoing *c, const struct verdict *v)
{
	(void)v;
	outgoing_reset(c);
}

static void on_fail(struct outgoing *c, enum failure why, int errnum, const char *text)
{
	(void)why;
	(void)errnum;
	log_debug("%s: %s port %u: %s", c->app->name, c->setup->target.host, c->setup->target.port, text);
	outgoing_reset(c);
}

static void read_hello(struct outgoing *c)
{
	struct setup *s = c->setup;
	enum sni_result result;

	crash_page_enter(c->app);
	result = sni_parse(&s->sni, (const uint8_t *)s->buf, s->len);
	crash_page_leave();
	if (result == SNI_MORE)
		return;
	if (s->sni.ech) {
		c->app->counters.out_ech++;
		app_counted(c->app);
	}
	if (result != SNI_OK) {
		unnamed(c, s->sni.reason);
	} else if (!s->sni.host[0]) {
		unnamed(c, "the ClientHello names no server");
	} else if (s->sni.ech && c->app->policy && policy_ech_refuse(c->app->policy)) {
		unnamed(c, "encrypted ClientHello (Ech=refuse)");
	} else {
		memcpy(s->target.host, s->sni.host, sizeof s->target.host);
		s->target.literal = false;
		outgoing_judge(c);
	}
}

static void read_request(struct outgoing *c)
{
	struct setup *s = c->setup;
	enum parse p;

	s->req.origin = true;
	s->req.target.port = s->target.port;
	crash_page_enter(c->app);
	p = request_parse(&s->req, s->buf, s->len);
	crash_page_leave();
	if (p == PARSE_MORE)
		return;
	if (p == PARSE_BAD) {
		unnamed(c, s->req.reason);
		return;
	}
	s->target = s->req.target;
	outgoing_judge(c);
}

static void on_bytes(struct outgoing *c)
{
	struct setup *s = c->setup;

	if (s->first == FIRST_MORE)
		s->first = (uint8_t)first_bytes(s->buf, s->len);
	if (s->first == FIRST_TLS)
		read_hello(c);
	else if (sni_tls_port(s->target.port))
		unnamed(c, "not TLS, on a port of TLS");
	else if (s->first == FIRST_HTTP)
		read_request(c);
	else if (s->first != FIRST_MORE && !s->target.literal)
		outgoing_judge(c);
	else if (s->first != FIRST_MORE)
		unnamed(c, "neither TLS nor HTTP, so it names no site");
}

static void on_start(struct outgoing *c, int upstream)
{
	if (c->setup->first == FIRST_TLS)
		tunnel_pass(c, upstream);
	else if (c->setup->first == FIRST_HTTP)
		http_start(c, upstream);
	else
		tunnel_start(c, upstream, NULL, 0, 0);
}

const struct front front_transparent = {
	.name = "transparent",
	.bytes = on_bytes,
	.gave_up = on_gave_up,
	.refuse = on_refuse,
	.closed = outgoing_reset,
	.fail = on_fail,
	.start = on_start,
};

/* --- where it goes --- */

static bool destination(int fd, struct target *ret)
{
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof sa;

	if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
		return false;
	addr_from_sockaddr(&ret->addr, &sa);
	ret->literal = true;
	ret->port = ntohs(sa.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&sa)->sin6_port
						   : ((struct sockaddr_in *)(void *)&sa)->sin_port);
	addr_format(&ret->addr, ret->host);
	return true;
}

/* An address that was given out instead of a name. */
/* Many proxies grant CONNECT to port 443 only: a plain request is read first then, and sent there as one. */
static bool read_first(const struct outgoing *c)
{
	const struct target *t = &c->setup->target;
	const struct policy *p = c->app->policy;
	struct verdict v;

	if (!p || t->port != 80 || !policy_upstream(p, t->host, NULL, t->port))
		return false;
	policy_decide_host(p, t->host, t->port, &v);
	return v.action == VERDICT_ALLOW;
}

static void judge_name(struct outgoing *c)
{
	if (outgoing_name_of_address(c)) {
		if (read_first(c))
			outgoing_read(c, HELLO_LIMIT_MS);
		else
			outgoing_judge(c);
		return;
	}
	(void)snprintf(c->setup->verdict.rule, sizeof c->setup->verdict.rule, "closed: no site");
	unnamed(c, "no name has this address (any more): look it up again");
}

static void judge_address(struct outgoing *c)
{
	const struct target *t = &c->setup->target;
	const struct policy *p = c->app->policy;
	struct verdict *v = &c->setup->verdict;

	if (p)
		policy_decide_addr(p, &t->addr, t->port, v);
	if (!p || v->action == VERDICT_ALLOW || !str_eq(v->rule, "default-deny") ||
	    !policy_port_open(p, t->port))
		outgoing_judge(c);
	else
		outgoing_read(c, HELLO_LIMIT_MS);
}

static bool on_client(struct acceptor *acc, int fd, const struct sockaddr_storage *peer)
{
	struct tport *tp = acc->data;
	struct outgoing *c = outgoing_create(tp->l, fd, &front_transparent);
	const struct target *t = &c->setup->target;

	(void)peer;
	if (!destination(fd, &c->setup->target) || (tp->port && t->port != tp->port))
		outgoing_reset(c);
	else if (tp->l->app->closed)
		outgoing_closed(c);
	else if (names_is_fake(&t->addr))
		judge_name(c);
	else
		judge_address(c);
	return acc->on;
}

/* --- listeners --- */

void transparent_listener(struct egress_listener *l, int fd, uint16_t port)
{
	struct tport *tp = xcalloc(1, sizeof *tp);

	if (!l->tports)
		l->tports = xcalloc(1, sizeof *l->tports);
	tp->l = l;
	tp->port = port;
	tp->next = l->tports->head;
	l->tports->head = tp;
	acceptor_init(&tp->acc, l->app->proxy->loop, fd, &l->app->conns, on_client, tp);
	acceptor_run(&tp->acc, l->on);
}

void transparent_run(struct tports *t, bool on)
{
	for (struct tport *tp = t ? t->head : NULL; tp; tp = tp->next)
		acceptor_run(&tp->acc, on);
}

void transparent_destroy(struct tports *t)
{
	while (t && t->head) {
		struct tport *tp = t->head;

		t->head = tp->next;
		acceptor_finish(&tp->acc);
		free(tp);
	}
	free(t);
}
