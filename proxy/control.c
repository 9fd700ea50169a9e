#include "proxy/control.h"
#include "base/log.h"
#include "base/wire.h"
#include "proxy/accesslog.h"
#include "proxy/denied.h"
#include "proxy/dns.h"
#include "proxy/egress.h"
#include "proxy/forward.h"
#include "proxy/hang.h"
#include "proxy/idle.h"
#include "proxy/loopback.h"
#include "proxy/tally.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COUNTERS_FIRST_MS 200  /* after the first change */
#define COUNTERS_EVERY_MS 1000 /* while changes go on */
#define COUNTERS_BYTES    400  /* of one app, besides its name and rules: eight numbers and their names */
#define COUNTERS_MESSAGE                                                                                     \
	(64u << 10) /* then the next begins; with one app more it is far below WIRE_MAX_BYTES */
#define CRASH_PAGE_MIN 256

/* --- crash page --- */

static char *crash_page;
static size_t crash_page_len;
static const struct app *crash_page_app; /* whose name is there, so that it is not copied for every read */

static void crash_page_map(int fd, int64_t len)
{
	void *m;

	if (fd < 0 || len < CRASH_PAGE_MIN || len > 1 << 20 || crash_page)
		return;
	m = mmap(NULL, (size_t)len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m == MAP_FAILED) {
		log_warning("the crash page cannot be mapped: %s; a crash will not be blamed on an app",
			    strerror(errno));
		return;
	}
	crash_page = m;
	crash_page_len = (size_t)len;
}

/* The page is "active byte, name, NUL": byte 0 is 1 while the bytes of `name` are parsed. */
void crash_page_enter(const struct app *a)
{
	if (!crash_page)
		return;
	if (crash_page_app != a) {
		size_t n = strlen(a->name);

		if (n > crash_page_len - 2)
			n = crash_page_len - 2;
		memcpy(crash_page + 1, a->name, n);
		crash_page[1 + n] = 0;
		crash_page_app = a;
	}
	__atomic_store_n(crash_page, 1, __ATOMIC_RELEASE);
}

void crash_page_leave(void)
{
	if (crash_page)
		__atomic_store_n(crash_page, 0, __ATOMIC_RELEASE);
}

void crash_page_forget(const struct app *a)
{
	if (crash_page_app == a)
		crash_page_app = NULL;
}

/* --- out --- */

static void say(struct proxy *p, struct js *msg)
{
	/* EPIPE: the channel was closed, which is read next and ends this process in good order */
	if (p->wire && wire_send(p->wire, msg, NULL, 0) < 0 && errno != EPIPE)
		log_warning("a message to the supervisor was lost: %s", strerror(errno));
	else if (!p->wire)
		js_free(msg);
}

static struct js *message(const char *type, const struct app *a)
{
	struct js *j = js_obj();

	js_add_str(j, "t", type);
	if (a)
		js_add_str(j, "app", a->name);
	return j;
}

void control_need(struct app *a, size_t n)
{
	struct js *j = message("need", a);

	js_add_int(j, "launch", (int64_t)a->launch);
	js_add_int(j, "n", (int64_t)n);
	say(a->proxy, j);
}

void control_denied(struct app *a, int kind, const char *host, uint16_t port, const char *rule,
		    const char *hint, uint64_t count)
{
	struct js *j = message(kind == DENIED_UNREACHABLE ? "unreachable" : "denied", a);

	if (kind == DENIED_LOOKUP)
		js_add_str(j, "operation", "resolve");
	js_add_str(j, "host", host);
	js_add_int(j, "port", port);
	js_add_str(j, "rule", rule);
	js_add_str(j, "hint", hint);
	js_add_int(j, "count", (int64_t)count);
	say(a->proxy, j);
}

void control_use(struct app *a, const char *what)
{
	struct js *j = message(what, a);

	js_add_int(j, "n", (int64_t)a->gate_n);
	say(a->proxy, j);
}

static struct js *counters_json(const struct app *a, bool all, size_t *bytes)
{
	const struct app_counters *c = &a->counters;
	struct js *j = js_obj(), *rules;
	size_t n;

	js_add_int(j, "in_open", (int64_t)c->in_open);
	js_add_int(j, "in_total", (int64_t)c->in_total);
	js_add_int(j, "out_open", (int64_t)c->out_open);
	js_add_int(j, "out_allowed", (int64_t)c->out_allowed);
	js_add_int(j, "out_denied", (int64_t)c->out_denied);
	js_add_int(j, "out_ech", (int64_t)c->out_ech);
	js_add_int(j, "bytes_in", (int64_t)c->bytes_in);
	js_add_int(j, "bytes_out", (int64_t)c->bytes_out);
	if (idle_unused_ms(a->idle) >= 0)
		js_add_int(j, "unused_ms", idle_unused_ms(a->idle));
	rules = tally_json(a->tally, all, &n);
	if (rules)
		js_add(j, "rules", rules);
	*bytes += COUNTERS_BYTES + strlen(a->name) + n;
	return j;
}

/* Those that changed, or all; an empty message still answers a question. */
static void send_counters(struct proxy *p, const char *only, bool all)
{
	struct js *j = NULL, *apps = NULL;
	size_t n = 0, bytes = 0;

	for (struct app *a = p->apps; a; a = a->next) {
		if (only ? !str_eq(a->name, only) : !all && !a->counters_changed)
			continue;
		a->counters_changed = false;
		if (!apps)
			apps = js_obj();
		js_add(apps, a->name, counters_json(a, all, &bytes));
		n++;
		if (bytes < COUNTERS_MESSAGE)
			continue;
		bytes = 0;
		j = message("counters", NULL);
		js_add(j, "apps", apps);
		apps = NULL;
		say(p, j);
	}
	if (!apps && (n || !all))
		return;
	j = message("counters", NULL);
	js_add(j, "apps", apps ? apps : js_obj());
	say(p, j);
}

static void on_counters_timer(struct loop_timer *t)
{
	struct proxy *p = t->data;
	bool any = false;

	for (struct app *a = p->apps; a; a = a->next)
		any |= a->counters_changed;
	if (!any)
		return;
	send_counters(p, NULL, false);
	loop_timer_start(t, COUNTERS_EVERY_MS);
}

void control_counters_soon(struct proxy *p)
{
	if (!loop_timer_active(&p->counters_timer))
		loop_timer_start(&p->counters_timer, COUNTERS_FIRST_MS);
}

/* --- in --- */

static void on_hello(struct proxy *p, const struct js *m, int *fds, size_t n)
{
	int64_t v = js_int_or(m, "v", -1);

	if (v != WIRE_VERSION) {
		log_error("the supervisor speaks version %lld of the protocol, this sbxsv-proxy %d: install "
			  "one release of both",
			  (long long)v, WIRE_VERSION);
		exit(1);
	}
	(void)p;
	crash_page_map(n ? fds[0] : -1, js_int_or(m, "status", 0));
}

static void on_policy(struct app *a, const struct js *m)
{
	CLEANUP_ERR struct err *e = NULL;
	struct policy *policy = policy_from_json(js_get(m, "policy"), &e);
	const char *closed = js_str(m, "closed");

	if (!policy) { /* fail closed: what cannot be read allows nothing */
		log_error("policy of %s: %s; its egress is closed", a->name, err_msg(e));
		policy = policy_create(EGRESS_OFF);
		closed = "its policy could not be read";
	}
	free(a->where);
	a->where = xstrdup(js_str(m, "where"));
	app_set_policy(a, policy, closed);
}

static void on_listen(struct app *a, const struct js *m, int *fds, size_t n)
{
	const struct js *ports = js_get(m, "ports");

	if (js_len(ports) != n) {
		log_error("listen of %s: %zu ports but %zu sockets; ignored", a->name, js_len(ports), n);
		return;
	}
	forward_listeners_begin(a->forward);
	for (const struct js *j = js_first(ports); j; j = js_next(j)) {
		int64_t host = js_int_or(j, "host", 0), inner = js_int_or(j, "app", 0);

		if (host > 0 && host < 65536 && inner > 0 && inner < 65536)
			forward_listener(a->forward, TAKE_FD(*fds), (uint16_t)host, (uint16_t)inner);
		fds++;
	}
	forward_listeners_end(a->forward);
}

static void on_gate(struct app *a, const struct js *m)
{
	const char *mode = js_str(m, "mode");
	int64_t n = js_int_or(m, "n", 0), idle_ms = js_int_or(m, "idle_ms", 0);
	struct app_gate g = {.gate = GATE_HOLD,
			     .n = n > 0 ? (uint64_t)n : 0,
			     .idle_ms = idle_ms > 0 ? idle_ms : 0,
			     .idle_by_traffic = str_eq(js_str(m, "idle_by"), "traffic")};

	if (str_eq(mode, "serve"))
		g.gate = GATE_SERVE;
	else if (str_eq(mode, "reset"))
		g.gate = GATE_RESET;
	else if (str_eq(mode, "rest"))
		g.gate = GATE_REST;
	app_set_gate(a, &g);
}

/* In the message: the sockets of UDP, those of TCP, then the map of names. */
static void jail_dns(struct app *a, size_t udp, size_t tcp, bool names, int *fds)
{
	int *map = fds + udp + tcp;

	if (!udp && !tcp)
		return;
	a->dns = dns_create(a, names ? TAKE_FD(*map) : -1);
	for (; udp; udp--, fds++)
		dns_udp(a->dns, TAKE_FD(*fds));
	for (; tcp; tcp--, fds++)
		dns_tcp(a->dns, TAKE_FD(*fds));
}

static void jail_loopback(struct app *a, const struct js *m, int *fds)
{
	const struct js *to = js_first(js_get(m, "loopback_to")),
			*held = js_first(js_get(m, "loopback_held"));

	if (!a->loopback)
		a->loopback = loopback_create(a);
	loopback_listeners_begin(a->loopback);
	for (const struct js *j = js_first(js_get(m, "loopback")); j; j = js_next(j), fds++) {
		int64_t port, host, must = 0;

		if (held && js_value_int(held, &must) < 0)
			must = 1;
		held = held ? js_next(held) : NULL;
		if (js_value_int(j, &port) < 0 || port < 1 || port > 65535)
			port = 0;
		if (!to || js_value_int(to, &host) < 0 || host < 1 || host > 65535)
			host = port;
		to = to ? js_next(to) : NULL;
		if (port)
			loopback_listener(a->loopback, TAKE_FD(*fds), (uint16_t)port, (uint16_t)host,
					  must != 0);
	}
	loopback_listeners_end(a->loopback);
}

/* The jail stays, its Loopback= ports are others. */
static void on_loopback(struct app *a, const struct js *m, int *fds, size_t n)
{
	int64_t launch = js_int_or(m, "launch", -1);

	if (launch <= 0 || (uint64_t)launch != a->launch || js_len(js_get(m, "loopback")) != n)
		log_error("loopback of %s: the message does not match; ignored", a->name);
	else
		jail_loopback(a, m, fds);
}

static void jail_transparent(struct app *a, const struct js *ports, int *fds)
{
	for (const struct js *j = js_first(ports); j; j = js_next(j), fds++) {
		int64_t port;

		if (js_value_int(j, &port) == 0 && port >= 0 && port <= 65535)
			transparent_listener(a->egress, TAKE_FD(*fds), (uint16_t)port);
	}
}

static void on_jail(struct app *a, const struct js *m, int *fds, size_t n)
{
	const struct js *transparent = js_get(m, "transparent"), *loopback = js_get(m, "loopback");
	bool egress = js_bool_or(m, "egress", false), names = js_bool_or(m, "names", false);
	int64_t launch = js_int_or(m, "launch", 0), udp = js_int_or(m, "dns_udp", 0),
		tcp = js_int_or(m, "dns_tcp", 0);

	app_drop(a);
	if (launch <= 0 || udp < 0 || udp > FD_PASS_MAX || tcp < 0 || tcp > FD_PASS_MAX ||
	    egress + js_len(transparent) + (size_t)udp + (size_t)tcp + names + js_len(loopback) != n) {
		log_error("jail of %s: the message does not match its sockets; ignored", a->name);
		return;
	}
	a->launch = (uint64_t)launch;
	a->jail_fds = n - js_len(loopback);
	fds_hold(a->jail_fds);
	if (egress || js_len(transparent))
		a->egress = egress_create(a, egress ? TAKE_FD(*fds) : -1);
	fds += egress;
	jail_transparent(a, transparent, fds);
	fds += js_len(transparent);
	jail_dns(a, (size_t)udp, (size_t)tcp, names, fds);
	fds += udp + tcp + names;
	jail_loopback(a, m, fds);
	forward_jail_ready(a->forward);
}

static void on_pool(struct app *a, const struct js *m, int *fds, size_t n)
{
	int64_t launch = js_int_or(m, "launch", -1);

	if (launch > 0 && (uint64_t)launch == a->launch)
		forward_pool(a->forward, fds, n); /* takes them; of another launch: closed by the wire */
}

static void on_app_message(struct proxy *p, const char *type, const struct js *m, int *fds, size_t n)
{
	const char *name = js_str(m, "app");
	struct app *a = name ? app_get(p, name) : NULL;

	if (!a)
		log_warning("the supervisor sent %s without an app; ignored", type);
	else if (str_eq(type, "policy"))
		on_policy(a, m);
	else if (str_eq(type, "listen"))
		on_listen(a, m, fds, n);
	else if (str_eq(type, "gate"))
		on_gate(a, m);
	else if (str_eq(type, "jail"))
		on_jail(a, m, fds, n);
	else if (str_eq(type, "loopback"))
		on_loopback(a, m, fds, n);
	else if (str_eq(type, "pool"))
		on_pool(a, m, fds, n);
	else if (str_eq(type, "drop"))
		app_drop(a);
	else if (str_eq(type, "remove"))
		app_remove(a);
}

/* Of a stand-alone proxy (alone.h); a new one takes the place of the old one. */
static void on_access_log(struct proxy *p, int *fds, size_t n)
{
	if (n != 1)
		return;
	accesslog_destroy(p->access);
	p->access = accesslog_create(p->loop, TAKE_FD(fds[0]));
}

static void on_sync(struct proxy *p, const struct js *m)
{
	struct js *j = message("synced", NULL);

	js_add_int(j, "n", js_int_or(m, "n", 0));
	say(p, j);
}

static void on_message(void *data, const struct js *m, int *fds, size_t n)
{
	static const char *const of_app[] = {"policy",   "listen", "gate", "jail",
					     "loopback", "pool",   "drop", "remove"};
	struct proxy *p = data;
	const char *type = js_str(m, "t");

	hang_progress();
	if (str_eq(type, "hello")) {
		on_hello(p, m, fds, n);
		return;
	}
	if (str_eq(type, "stats")) {
		send_counters(p, js_str(m, "app"), true);
		return;
	}
	if (str_eq(type, "access_log")) {
		on_access_log(p, fds, n);
		return;
	}
	if (str_eq(type, "sync")) { /* everything before it has been handled */
		on_sync(p, m);
		return;
	}
	for (size_t i = 0; i < ELEMENTS(of_app); i++)
		if (str_eq(type, of_app[i])) {
			on_app_message(p, type, m, fds, n);
			return;
		}
	log_warning("unknown message %s from the supervisor; ignored", type ? type : "(none)");
}

static void on_closed(void *data, const char *why)
{
	struct proxy *p = data;

	log_debug("the supervisor is gone: %s", why);
	loop_break(p->loop);
}

void control_start(struct proxy *p, int fd)
{
	struct js *j = message("hello", NULL);

	loop_timer_init(p->loop, &p->counters_timer, on_counters_timer, p);
	p->wire = wire_create(p->loop, fd, on_message, on_closed, p);
	wire_take_large(p->wire);
	js_add_int(j, "v", WIRE_VERSION);
	js_add_int(j, "pid", getpid());
	say(p, j);
}

void control_finish(struct proxy *p)
{
	while (p->apps)
		app_remove(p->apps);
	accesslog_destroy(p->access); /* the connections ended above are in it */
	p->access = NULL;
	loop_timer_stop(&p->counters_timer);
	wire_destroy(p->wire);
	p->wire = NULL;
}
