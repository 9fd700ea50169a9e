/*
 * sbxsv-proxy across an exec of the supervisor: it goes on, with all its connections, and does not notice. Messages that it sends
 * meanwhile wait in the socket. One that another version of the protocol is spoken with is replaced, as after a crash.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "net/proxyctl_internal.h"
#include <poll.h>
#include <signal.h>

#define GONE_MS 1000 /* a proxy that was killed needs a few ms */

static const struct keep_field counters[] = {
	KEEP(proxyctl_app_counters, U64, in_open),    KEEP(proxyctl_app_counters, U64, in_total),
	KEEP(proxyctl_app_counters, U64, out_open),   KEEP(proxyctl_app_counters, U64, out_allowed),
	KEEP(proxyctl_app_counters, U64, out_denied), KEEP(proxyctl_app_counters, U64, bytes_in),
	KEEP(proxyctl_app_counters, U64, bytes_out),  KEEP(proxyctl_app_counters, U64, out_ech),
};
static const struct keep_field app_fields[] = {
	KEEP(pc_app, TEXT, name),           KEEP(pc_app, INT, gate),    KEEP(pc_app, U64, launch),
	KEEP(pc_app, U64, gate_n),          KEEP(pc_app, I64, idle_ms), KEEP(pc_app, BOOL, idle_by_traffic),
	KEEP(pc_app, I64, unused_since_ms), KEEP(pc_app, FD, names_fd), KEEP(pc_app, UINT, crashes),
	KEEP(pc_app, I64, pool_failed_ms),
};
static const struct keep_field jail_fields[] = {
	KEEP(proxyctl_jail, FD, userns_fd),
	KEEP(proxyctl_jail, FD, netns_fd),
	KEEP(proxyctl_jail, FD, egress_fd),
};
static const struct keep_field denied_fields[] = {
	KEEP(pc_denied, TEXT, host), KEEP(pc_denied, TEXT, rule),   KEEP(pc_denied, TEXT, hint),
	KEEP(pc_denied, U16, port),  KEEP(pc_denied, BOOL, lookup), KEEP(pc_denied, BOOL, unreachable),
	KEEP(pc_denied, U64, count), KEEP(pc_denied, I64, last_ms),
};
static const struct keep_field rule_fields[] = {
	KEEP(pc_tally_rule, TEXT, rule),    KEEP(pc_tally_rule, U64, allowed),
	KEEP(pc_tally_rule, U64, denied),   KEEP(pc_tally_rule, U64, allowed_0),
	KEEP(pc_tally_rule, U64, denied_0),
};
static const struct keep_field tally_fields[] = {KEEP(pc_tally, U64, allowed), KEEP(pc_tally, U64, denied)};
static const struct keep_field fields[] = {
	KEEP(proxyctl, U64, launches), KEEP(proxyctl, U64, gates),     KEEP(proxyctl, INT, pid),
	KEEP(proxyctl, FD, pidfd),     KEEP(proxyctl, TIMER, restart), KEEP(proxyctl, I64, started_ms),
};

/* --- what is kept of one app --- */

static struct js *sockets_js(struct keep *k, const struct proxyctl_socket *v, size_t n)
{
	struct js *out = js_arr();

	for (size_t i = 0; i < n; i++) {
		struct js *o = js_obj();

		keep_fd(k, o, "fd", v[i].fd);
		js_add_int(o, "port", v[i].port);
		js_add_int(o, "to", v[i].to);
		js_add_bool(o, "held", v[i].held);
		js_push(out, o);
	}
	return out;
}

static void sockets_from(struct keep *k, const struct js *list, struct proxyctl_socket *v, size_t max,
			 size_t *n)
{
	for (const struct js *o = js_first(list); o && *n < max; o = js_next(o)) {
		v[*n] = (struct proxyctl_socket){.fd = keep_take_fd(k, o, "fd"),
						 .port = (uint16_t)js_int_or(o, "port", 0),
						 .to = (uint16_t)js_int_or(o, "to", 0),
						 .held = js_bool_or(o, "held", false)};
		++*n;
	}
}

static struct js *fds_js(struct keep *k, const int *fds, size_t n)
{
	struct js *out = js_arr();

	for (size_t i = 0; i < n; i++)
		keep_push_fd(k, out, fds[i]);
	return out;
}

static void fds_from(struct keep *k, const struct js *list, int *fds, size_t max, size_t *n)
{
	for (const struct js *v = js_first(list); v && *n < max; v = js_next(v))
		fds[(*n)++] = keep_take_value(k, v);
}

static struct js *jail_js(struct keep *k, const struct proxyctl_jail *j)
{
	struct js *o = js_obj();

	keep_save(k, o, jail_fields, ELEMENTS(jail_fields), j);
	js_add(o, "transparent", sockets_js(k, j->transparent, j->n_transparent));
	js_add(o, "loopback", sockets_js(k, j->loopback, j->n_loopback));
	js_add(o, "dns_udp", fds_js(k, j->dns_udp, j->n_dns_udp));
	js_add(o, "dns_tcp", fds_js(k, j->dns_tcp, j->n_dns_tcp));
	return o;
}

static void jail_from(struct keep *k, const struct js *o, struct proxyctl_jail *j)
{
	*j = (struct proxyctl_jail){.egress_fd = -1};
	keep_load(k, o, jail_fields, ELEMENTS(jail_fields), j);
	sockets_from(k, js_get(o, "transparent"), j->transparent, ELEMENTS(j->transparent),
		     &j->n_transparent);
	sockets_from(k, js_get(o, "loopback"), j->loopback, ELEMENTS(j->loopback), &j->n_loopback);
	fds_from(k, js_get(o, "dns_udp"), j->dns_udp, ELEMENTS(j->dns_udp), &j->n_dns_udp);
	fds_from(k, js_get(o, "dns_tcp"), j->dns_tcp, ELEMENTS(j->dns_tcp), &j->n_dns_tcp);
}

/* The one that decided last first. */
static struct js *tally_js(struct keep *k, const struct pc_tally *t)
{
	struct js *o = js_obj(), *rules = js_arr();

	keep_save(k, o, tally_fields, ELEMENTS(tally_fields), t);
	for (size_t i = 0; i < t->n; i++) {
		struct js *r = js_obj();

		keep_save(k, r, rule_fields, ELEMENTS(rule_fields), &t->v[i]);
		js_push(rules, r);
	}
	js_add(o, "rules", rules);
	return o;
}

static void tally_from(struct keep *k, const struct js *o, struct pc_tally *t)
{
	keep_load(k, o, tally_fields, ELEMENTS(tally_fields), t);
	for (const struct js *r = js_first(js_get(o, "rules")); r && t->n < PC_TALLY_MAX; r = js_next(r)) {
		struct pc_tally_rule rule = {0};

		keep_load(k, r, rule_fields, ELEMENTS(rule_fields), &rule);
		if (!rule.rule) {
			keep_wrong(k, "a rule without a text was handed over");
			continue;
		}
		VEC_GROW(t->v, t->n, t->cap);
		t->v[t->n++] = rule;
	}
}

static struct js *counters_js(struct keep *k, const struct proxyctl_app_counters *c)
{
	struct js *o = js_obj();

	keep_save(k, o, counters, ELEMENTS(counters), c);
	return o;
}

static struct js *app_js(struct keep *k, const struct pc_app *a)
{
	struct js *o = js_obj(), *listen = js_arr(), *denied = js_arr();

	keep_save(k, o, app_fields, ELEMENTS(app_fields), a);
	if (a->policy)
		keep_js(k, o, "policy", js_copy(a->policy));
	for (size_t i = 0; i < a->n_listen; i++) {
		struct js *l = js_obj();

		keep_fd(k, l, "fd", a->listen[i].fd);
		js_add_int(l, "host", a->listen[i].host_port);
		js_add_int(l, "app", a->listen[i].app_port);
		js_push(listen, l);
	}
	js_add(o, "listen", listen);
	if (a->launch)
		js_add(o, "jail", jail_js(k, &a->jail));
	js_add(o, "before", counters_js(k, &a->before));
	js_add(o, "now", counters_js(k, &a->now));
	js_add(o, "tally", tally_js(k, &a->tally));
	for (size_t i = 0; i < a->n_denied; i++) {
		struct js *d = js_obj();

		keep_save(k, d, denied_fields, ELEMENTS(denied_fields), &a->denied[i]);
		js_push(denied, d);
	}
	js_add(o, "denied", denied);
	return o;
}

static void listen_from(struct keep *k, const struct js *list, struct pc_app *a)
{
	a->listen = xcalloc(js_len(list) + 1, sizeof *a->listen);
	for (const struct js *l = js_first(list); l; l = js_next(l))
		a->listen[a->n_listen++] =
			(struct proxyctl_listen){.fd = keep_take_fd(k, l, "fd"),
						 .host_port = (uint16_t)js_int_or(l, "host", 0),
						 .app_port = (uint16_t)js_int_or(l, "app", 0)};
}

static void app_from(struct keep *k, const struct js *o, struct proxyctl *p)
{
	CLEANUP_FREE char *name = keep_get_text(k, o, "name");
	struct pc_app *a;

	if (!name) {
		keep_wrong(k, "an app of sbxsv-proxy has no name");
		return;
	}
	a = pc_app_get(&p->apps, name);
	free(TAKE_PTR(a->name));
	keep_load(k, o, app_fields, ELEMENTS(app_fields), a);
	if (!a->name || a->gate > PROXY_GATE_REST) {
		keep_wrong(k, "an app of sbxsv-proxy has no gate");
		a->name = a->name ? a->name : TAKE_PTR(name);
		a->gate = PROXY_GATE_RESET;
	}
	a->policy = keep_get_js(k, o, "policy");
	listen_from(k, js_get(o, "listen"), a);
	if (a->launch)
		jail_from(k, js_get(o, "jail"), &a->jail);
	keep_load(k, js_get(o, "before"), counters, ELEMENTS(counters), &a->before);
	keep_load(k, js_get(o, "now"), counters, ELEMENTS(counters), &a->now);
	tally_from(k, js_get(o, "tally"), &a->tally);
	for (const struct js *d = js_first(js_get(o, "denied")); d && a->n_denied < PC_DENIED_MAX;
	     d = js_next(d)) {
		struct pc_denied one = {0};

		keep_load(k, d, denied_fields, ELEMENTS(denied_fields), &one);
		VEC_GROW(a->denied, a->n_denied, a->cap_denied);
		a->denied[a->n_denied++] = one;
	}
}

/* --- all --- */

bool proxyctl_can_be_saved(const struct proxyctl *p)
{
	return !p->syncs.first && (!p->wire || wire_left(p->wire) == wire_accepted(p->wire));
}

struct js *proxyctl_save(struct keep *k, const struct proxyctl *p)
{
	struct js *o = js_obj(), *apps = js_arr();

	js_add_int(o, "protocol", WIRE_VERSION);
	keep_save(k, o, fields, ELEMENTS(fields), p);
	keep_fd(k, o, "crash_fd", p->crash_fd);
	if (p->wire)
		keep_fd(k, o, "wire", wire_fd(p->wire));
	keep_u64(o, "syncs", p->syncs.last);
	js_add_bool(o, "complained", p->in.complained);
	for (const struct pc_app *a = p->apps; a; a = a->next) {
		struct js *one = js_obj();

		keep_js(k, one, "app", app_js(k, a));
		js_push(apps, one);
	}
	js_add(o, "apps", apps);
	return o;
}

/* Nobody understands it any more. */
void proxyctl_replace(struct proxyctl *p)
{
	struct pollfd end = {.fd = p->pidfd, .events = POLLIN};
	int status;

	if (p->pidfd >= 0) {
		(void)pidfd_signal(p->pidfd, SIGKILL);
		(void)poll(&end, 1, GONE_MS);
		(void)pidfd_reap(p->pidfd, &status);
		fd_close_many(&p->pidfd, 1);
	}
	p->pid = 0;
	p->outdated = false;
	for (struct pc_app *a = p->apps; a; a = a->next)
		pc_app_proxy_died(a);
	if (p->hooks.restarted)
		p->hooks.restarted(p->hooks.data,
				   "sbxsv-proxy spoke another version of the protocol and was replaced");
	pc_start(p);
}

bool proxyctl_outdated(const struct proxyctl *p)
{
	return p->outdated;
}

struct proxyctl *proxyctl_restore(struct keep *k, const struct js *o, struct loop *l, const char *program,
				  uid_t run_uid, gid_t run_gid, const struct proxyctl_hooks *hooks,
				  struct err **e)
{
	struct proxyctl *p = pc_new(l, program, run_uid, run_gid, hooks);
	bool same = js_int_or(o, "protocol", 0) == WIRE_VERSION;
	int wire;

	keep_load(k, o, fields, ELEMENTS(fields), p);
	p->crash_fd = keep_take_mapped(k, o, "crash_fd", CRASH_PAGE_BYTES);
	wire = keep_take_fd(k, o, "wire");
	p->syncs.last = keep_get_u64(k, o, "syncs");
	p->in.complained = js_bool_or(o, "complained", false);
	for (const struct js *one = js_first(js_get(o, "apps")); one; one = js_next(one)) {
		CLEANUP_JS struct js *app = keep_get_js(k, one, "app");

		if (app)
			app_from(k, app, p);
	}
	if (keep_error(k, e) || (keep_is_rehearsal(k) && pc_check_program(p, e) < 0) ||
	    pc_map_crash_page(p, e) < 0) {
		fd_close_many(&wire, 1);
		proxyctl_destroy(p);
		return NULL;
	}
	/* with the timer there is none, and the next one is told all */
	p->outdated = (!same || p->pidfd < 0) && !loop_timer_active(&p->restart);
	if (same && wire >= 0 && p->pidfd >= 0) {
		pc_watch(p, wire);
		return p;
	}
	fd_close_many(&wire, 1);
	if (same && p->pidfd >= 0) /* it was killed, and is not reaped yet */
		pc_watch_end(p);
	return p;
}
