/*
 * The proxy's view of an app: its rules, its host ports, its gate, and the sockets of its jail.
 *
 * An app without a network of its own (Enforce=off) has no rules and binds its ports itself: the kernel then
 * gives the supervisor no way to hold them.
 */
#include "sup/app.h"
#include "base/clock.h"
#include "base/log.h"
#include "sandbox/rules.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

static int tell_listeners(struct app *a, struct err **e)
{
	CLEANUP_FREE struct proxyctl_listen *v = xcalloc(a->n_listeners, sizeof *v);
	size_t n = 0;

	for (size_t i = 0; i < a->n_listeners; i++)
		if (a->listeners[i].fd >= 0)
			v[n++] = (struct proxyctl_listen){.fd = a->listeners[i].fd,
							  .host_port = a->listeners[i].host_port,
							  .app_port = a->listeners[i].app_port};
	return proxyctl_set_listeners(a->sup->proxy, a->name, v, n, e);
}

/* The rules of `live` for the functions of src/sandbox. Owned by caller; the texts are not. */
static struct rules_extra *extras(const struct liverules *live)
{
	struct rules_extra *v = xcalloc(live->n, sizeof *v);

	for (size_t i = 0; i < live->n; i++)
		v[i] = (struct rules_extra){live->v[i].key, live->v[i].text, live->v[i].origin};
	return v;
}

enum egress network_egress(const struct app *a)
{
	CLEANUP_FREE struct rules_extra *v = extras(&a->live);

	return rules_egress(prepare_unit(a), v, a->live.n);
}

struct policy *network_policy(const struct unit *u, const struct liverules *live, struct err **e)
{
	CLEANUP_FREE struct rules_extra *v = extras(live);

	return rules_with(u, v, live->n, e);
}

/* While it is prepared the rules are those of [Prepare]: what was given at run time can only take from them. */
static struct policy *policy_now(const struct app *a, const struct liverules *live, struct err **e)
{
	CLEANUP_FREE struct rules_extra *v = extras(live);
	size_t n = 0;

	for (size_t i = 0; i < live->n; i++)
		if (!a->prepare || v[i].key == POLICY_DENY)
			v[n++] = v[i];
	return rules_with(prepare_unit(a), v, n, e);
}

static int tell_policy(struct app *a, const struct liverules *live, struct err **e)
{
	struct policy *p = policy_now(a, live, e);
	int r = p ? proxyctl_set_policy(a->sup->proxy, a->name, p, e) : -1;

	policy_destroy(p);
	return r;
}

int network_rules_again(struct app *a, struct err **e)
{
	return app_jailed(a->unit) ? tell_policy(a, &a->live, e) : 0;
}

int network_policy_fits(const struct unit *u, const struct liverules *live, struct err **e)
{
	struct policy *p = network_policy(u, live, e);
	bool fits = p && proxyctl_policy_fits(p);

	if (p && !fits)
		(void)err_set(e, EMSGSIZE, "the network rules are too many to hand to sbxsv-proxy");
	policy_destroy(p);
	return fits ? 0 : -1;
}

int network_swap_rules(struct app *a, struct liverules *rules, struct err **e)
{
	struct liverules before = a->live;
	int r = a->network_told ? tell_policy(a, rules, e) : network_policy_fits(a->unit, rules, e);

	if (r < 0)
		return -1;
	a->live = *rules;
	*rules = before;
	stdio_rules(a);
	return 0;
}

static bool port_listed(const struct net_ports *p, uint16_t port)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->v[i] == port)
			return true;
	return false;
}

static bool own_port(const struct unit *u, uint16_t port)
{
	for (size_t i = 0; i < u->n_listen; i++)
		if (u->listen[i].app_port == port)
			return true;
	return false;
}

/* Listeners are made at launch, for the ports of the rules of then. */
static bool misses_port(const struct app *a)
{
	struct policy *rules = network_policy(a->unit, &a->live, NULL);
	struct net_ports now;
	bool more, missing = false;

	if (!rules)
		return false;
	now.n = policy_ports(rules, now.v, ELEMENTS(now.v), &more);
	policy_destroy(rules);
	for (size_t i = 0; i < now.n; i++)
		missing |= !port_listed(a->caught, now.v[i]) && !own_port(a->unit, now.v[i]) &&
			   now.v[i] != NET_DNS_PORT;
	return missing;
}

bool network_restart_needed(const struct app *a)
{
	if (!a->launch || a->no_jail || !a->unit || network_egress(a) == EGRESS_OFF)
		return false;
	return !a->reaches_out || (a->caught && misses_port(a));
}

int network_apply(struct app *a, struct err **e)
{
	if (a->network_told)
		return 0;
	if (!app_jailed(a->unit)) {
		proxyctl_remove(a->sup->proxy, a->name);
		a->network_told = true;
		a->gate_told = false;
		return 0;
	}
	if (tell_listeners(a, e) < 0 || tell_policy(a, &a->live, e) < 0)
		return -1;
	proxyctl_idle(a->sup->proxy, a->name, session_is(a) ? a->unit->idle_timeout_ms : 0,
		      a->unit->idle_by_traffic);
	a->network_told = true;
	return 0;
}

static enum proxy_gate wanted_gate(const struct app *a)
{
	switch (a->state) {
	case APP_RUNNING:
	case APP_UNHEALTHY:
		return PROXY_GATE_SERVE;
	case APP_IDLE:
		return PROXY_GATE_REST;
	case APP_STARTING:
		return PROXY_GATE_HOLD;
	case APP_WAITING:
		return !a->stuck || clk_mono_ms() - a->since_ms < APP_BACKOFF_HOLD_MS ? PROXY_GATE_HOLD
										      : PROXY_GATE_RESET;
	case APP_STOPPING:
		return a->after == AFTER_STAY || a->after == AFTER_FORGET ? PROXY_GATE_RESET
									  : PROXY_GATE_HOLD;
	case APP_BACKOFF:
		return clk_mono_ms() - a->since_ms < APP_BACKOFF_HOLD_MS ? PROXY_GATE_HOLD : PROXY_GATE_RESET;
	case APP_STOPPED:
	case APP_FAILED:
	case APP_STATE_MAX:
		break;
	}
	return PROXY_GATE_RESET;
}

void network_gate(struct app *a)
{
	enum proxy_gate g = wanted_gate(a);

	if (g == a->gate && a->gate_told)
		return;
	a->gate = g;
	if (!a->n_listeners || !a->unit || !app_jailed(a->unit))
		return;
	proxyctl_gate(a->sup->proxy, a->name, g);
	a->gate_told = true;
}

/* --- the jail's sockets --- */

int network_plan(struct app *a, struct network_plan *ret, struct err **e)
{
	const struct unit *u = prepare_unit(a);
	struct policy *rules;

	if (loopback_plan(a, e) < 0)
		return -1;
	*ret = (struct network_plan){.net = {.egress = network_egress(a) != EGRESS_OFF,
					     .ports_only = net_ports_only(),
					     .loopback = ret->loopback,
					     .n_loopback = a->n_loopback}};
	for (size_t i = 0; i < a->n_loopback; i++)
		ret->loopback[i] = a->loopback[i].inside;
	a->reaches_out = ret->net.egress;
	if (!ret->net.egress)
		return 0;
	rules = policy_now(a, &a->live, e);
	if (!rules)
		return -1;
	ret->net.ports = ret->ports;
	ret->net.n_ports = policy_ports(rules, ret->ports, NET_PORTS_MAX, &ret->net.more_ports);
	policy_destroy(rules);
	ret->net.own = ret->own;
	for (size_t i = 0; i < u->n_listen && i < ELEMENTS(ret->own); i++)
		ret->own[ret->net.n_own++] = u->listen[i].app_port;
	return 0;
}

int network_inside(void *data, struct launch_sockets *out, struct err **e)
{
	return net_inside_pack(data, out->fds, ELEMENTS(out->fds), &out->n, out->facts, sizeof out->facts, e);
}

static void remember_capture(struct app *a, const struct net_inside_result *made)
{
	free(a->capture);
	a->capture = net_capture_text(made);
	free(TAKE_PTR(a->caught));
	if (made->capture != NET_CAPTURE_PORTS)
		return;
	a->caught = xcalloc(1, sizeof *a->caught);
	for (uint32_t i = 0; i < made->n && a->caught->n < ELEMENTS(a->caught->v); i++)
		if (made->of[i].kind == NET_TRANSPARENT && !port_listed(a->caught, made->of[i].port))
			a->caught->v[a->caught->n++] = made->of[i].port;
}

void network_attach(struct app *a, struct launch_done *done)
{
	struct net_inside_result made;
	struct proxyctl_jail jail;
	CLEANUP_ERR struct err *e = NULL;

	if (done->netns_fd < 0)
		return;
	if (a->unit->ready == UNIT_READY_HTTP || a->unit->health_http ||
	    a->unit->health_tcp) { /* the proxy's control takes the originals */
		a->userns_fd = fcntl(done->userns_fd, F_DUPFD_CLOEXEC, 3);
		a->netns_fd = fcntl(done->netns_fd, F_DUPFD_CLOEXEC, 3);
	}
	net_inside_unpack(done->sockets.facts, &made);
	proxyctl_jail_fill(&jail, &done->userns_fd, &done->netns_fd, &made, done->sockets.fds);
	done->sockets.n = 0;
	remember_capture(a, &made);
	for (size_t i = 0; i < jail.n_loopback; i++) {
		const struct loopback *l = loopback_at(a, jail.loopback[i].port);

		jail.loopback[i].to = l ? l->host : 0;
		jail.loopback[i].held = l && l->held;
	}
	proxyctl_set_jail(a->sup->proxy, a->name, &jail);
	if (loopback_renew(a, &e) < 0) /* what a peer's port became while the jail was built */
		log_warning("%s: %s", a->name, err_msg(e));
}

void network_detach(struct app *a)
{
	free(TAKE_PTR(a->capture));
	free(TAKE_PTR(a->caught));
	loopback_forget(a);
	fd_close_many(&a->userns_fd, 1);
	fd_close_many(&a->netns_fd, 1);
	if (a->launch && !a->no_jail && a->sup->proxy)
		proxyctl_drop_jail(a->sup->proxy, a->name);
}

/* --- checks of readiness and health --- */

/* A process that was started when nothing was to be asked yet: [Health] came with a reload. It is not reaped, so its
 * pid is its own. */
static int find_namespaces(struct app *a)
{
	char user[40], net[40];

	(void)snprintf(user, sizeof user, "/proc/%d/ns/user", (int)a->pid);
	(void)snprintf(net, sizeof net, "/proc/%d/ns/net", (int)a->pid);
	a->userns_fd = open(user, O_RDONLY | O_CLOEXEC);
	a->netns_fd = a->userns_fd < 0 ? -1 : open(net, O_RDONLY | O_CLOEXEC);
	if (a->netns_fd >= 0)
		return 0;
	fd_close_many(&a->userns_fd, 1);
	return -1;
}

static int socket_for(struct app *a)
{
	CLEANUP_ERR struct err *e = NULL;
	int fd = -1;

	if (a->no_jail)
		return socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (a->netns_fd < 0 && find_namespaces(a) < 0)
		return -1;
	if (net_make_sockets(a->userns_fd, a->netns_fd, &fd, 1, &e) < 0) {
		errno = err_code(e);
		return -1;
	}
	(void)fd_set_nonblock(fd, true);
	return fd;
}

/* Where it listens: 127.0.0.1 unless it chose IPv6 alone. */
static bool listens_on_v4(struct app *a, uint16_t port)
{
	struct net_listener found[16];
	int fd = a->diag_fd >= 0 ? a->diag_fd : a->sup->host_diag_fd;
	int n = fd < 0 ? 0 : net_list_listeners(fd, port, found, ELEMENTS(found), NULL);
	static const uint8_t any[16];

	for (int i = 0; i < n; i++)
		if (found[i].family == AF_INET || memcmp(found[i].address, any, sizeof any) == 0)
			return true;
	return n <= 0;
}

int network_connect(void *data, uint16_t port)
{
	struct app *a = data;
	struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct sockaddr_in to4 = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	CLEANUP_FD int fd = socket_for(a);
	int family = 0, r;
	socklen_t len = sizeof family;

	if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len) < 0)
		return -1;
	(void)inet_pton(AF_INET6, listens_on_v4(a, port) ? "::ffff:127.0.0.1" : "::1", &to.sin6_addr);
	if (family == AF_INET)
		r = connect(fd, (struct sockaddr *)&to4, sizeof to4);
	else
		r = connect(fd, (struct sockaddr *)&to, sizeof to);
	return r < 0 && errno != EINPROGRESS ? -1 : TAKE_FD(fd);
}
