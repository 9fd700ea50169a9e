#include "cli/run_net.h"
#include "base/program.h"
#include "sandbox/identity.h"
#include <errno.h>

static void forget(struct run_net *n, bool denials_too)
{
	size_t kept = 0;

	for (size_t i = 0; i < n->n_extra; i++) {
		if (!denials_too && n->extra[i].key == POLICY_DENY) {
			n->extra[kept++] = n->extra[i];
			continue;
		}
		free((char *)(uintptr_t)n->extra[i].text);
		free((char *)(uintptr_t)n->extra[i].origin);
	}
	n->n_extra = kept;
}

void run_net_take(struct run_net *n, const struct js *rules)
{
	static const enum policy_key keys[] = {POLICY_ALLOW, POLICY_DENY, POLICY_ADDRESS};

	forget(n, true);
	n->extra = xrealloc(n->extra, (js_len(rules) + 1) * sizeof *n->extra);
	for (const struct js *r = js_first(rules); r; r = js_next(r)) {
		const char *text = js_str(r, "text"), *origin = js_str(r, "origin");

		for (size_t k = 0; k < ELEMENTS(keys) && text && origin; k++)
			if (str_eq(js_str(r, "key"), policy_key_name(keys[k])))
				n->extra[n->n_extra++] =
					(struct rules_extra){keys[k], xstrdup(text), xstrdup(origin)};
	}
}

void run_net_keep_denials(struct run_net *n)
{
	forget(n, false);
}

bool run_net_reaches_out(const struct run_net *n)
{
	return rules_egress(n->unit, n->extra, n->n_extra) != EGRESS_OFF;
}

int run_net_apply(struct run_net *n, struct err **e)
{
	struct policy *p = n->proxy ? rules_with(n->unit, n->extra, n->n_extra, e) : NULL;
	int r = 0;

	if (n->proxy)
		r = p ? proxyctl_set_policy(n->proxy, n->unit->name, p, e) : -1;
	policy_destroy(p);
	return r;
}

static int loopback(struct run_net *n, const struct unit_scan *scan, struct err **e)
{
	const struct unit *u = n->unit;
	size_t at = 0;

	for (size_t i = 0; i < u->n_loopback && at < ELEMENTS(n->loopback); i++)
		n->loopback[at++] = u->loopback[i];
	for (size_t i = 0; i < u->loopback_app.n && at < ELEMENTS(n->loopback); i++) {
		const struct unit *peer = NULL;

		for (size_t k = 0; k < scan->n; k++)
			if (str_eq(scan->v[k].name, u->loopback_app.v[i].text))
				peer = scan->v[k].unit;
		if (!peer || !peer->n_listen)
			return err_set(e, ENOENT, "Loopback=app:%s: its port is not known",
				       u->loopback_app.v[i].text);
		n->loopback[at++] = peer->listen[0].host_port;
	}
	n->plan.loopback = n->loopback;
	n->plan.n_loopback = at;
	return 0;
}

int run_net_start(struct run_net *n, struct loop *l, const struct conf *conf, const struct unit_scan *scan,
		  const struct proxyctl_hooks *hooks, struct err **e)
{
	CLEANUP_FREE char *program = program_find("sbxsv-proxy", SBXSV_SBINDIR);
	struct policy *p;
	uid_t uid;
	gid_t gid;

	n->plan = (struct net_plan){
		.egress = run_net_reaches_out(n), .ports_only = net_ports_only(), .ports = n->ports};
	if (loopback(n, scan, e) < 0)
		return -1;
	if (!n->plan.egress && !n->plan.n_loopback)
		return 0;
	if (identity_of_proxy(conf, &uid, &gid, e) < 0)
		return -1;
	p = rules_with(n->unit, n->extra, n->n_extra, e);
	if (!p)
		return -1;
	n->plan.n_ports = policy_ports(p, n->ports, NET_PORTS_MAX, &n->plan.more_ports);
	policy_destroy(p);
	n->proxy = proxyctl_create(l, program, uid, gid, hooks, e);
	return n->proxy ? run_net_apply(n, e) : -1;
}

int run_net_inside(void *data, struct launch_sockets *out, struct err **e)
{
	return net_inside_pack(data, out->fds, ELEMENTS(out->fds), &out->n, out->facts, sizeof out->facts, e);
}

void run_net_attach(struct run_net *n, struct launch_done *done)
{
	struct net_inside_result made;
	struct proxyctl_jail jail;

	if (!n->proxy || done->netns_fd < 0)
		return;
	net_inside_unpack(done->sockets.facts, &made);
	proxyctl_jail_fill(&jail, &done->userns_fd, &done->netns_fd, &made, done->sockets.fds);
	done->sockets.n = 0;
	proxyctl_set_jail(n->proxy, n->unit->name, &jail);
}

void run_net_finish(struct run_net *n)
{
	if (n->proxy)
		proxyctl_destroy(n->proxy);
	forget(n, true);
	free(n->extra);
}
