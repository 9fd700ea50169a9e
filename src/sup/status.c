/* What is shown: the keys of doc/design.md section 12, from what the running process got, and the events of
 * an app. */
#include "sup/app.h"
#include "base/clock.h"
#include "config.h"
#include "monitor/usage.h"
#include "policy/policy.h"
#include <dirent.h>
#include <sys/wait.h>

/* --- events --- */

void status_emit_state(struct app *a, enum app_state from)
{
	struct js *ev = js_obj();

	js_add_str(ev, "type", "state");
	js_add_str(ev, "app", a->name);
	js_add_str(ev, "state", app_state_name(a->state));
	js_add_str(ev, "from", app_state_name(from));
	if (a->launch)
		js_add_int(ev, "pid", a->pid);
	if (a->reason && a->state != APP_STARTING) /* that of an earlier attempt */
		js_add_str(ev, "reason", a->reason);
	if (a->hint && a->hint[0] && a->state != APP_STARTING)
		js_add_str(ev, "hint", a->hint);
	if (a->state == APP_BACKOFF)
		js_add_int(ev, "next_start_ms", a->next_start_ms - clk_mono_ms());
	if (a->state == APP_FAILED)
		hooks_happened(a, "OnFail", ev);
	events_emit(a->sup->events, ev);
}

void status_emit_ready(struct app *a, const char *what)
{
	struct js *ev = js_obj();

	js_add_str(ev, "type", "ready");
	js_add_str(ev, "app", a->name);
	js_add_int(ev, "pid", a->pid);
	js_add_int(ev, "launch", (int64_t)a->launches);
	js_add_str(ev, "message", what);
	hooks_happened(a, "OnReady", ev);
	events_emit(a->sup->events, ev);
}

/* The one event that is for hooks alone: all others see the state. */
void status_hook_start(struct app *a)
{
	CLEANUP_JS struct js *ev = js_obj();

	js_add_str(ev, "type", "start");
	js_add_str(ev, "app", a->name);
	js_add_int(ev, "pid", a->pid);
	js_add_int(ev, "launch", (int64_t)a->launches);
	hooks_happened(a, "OnStart", ev);
}

static void add_status(struct js *o, const struct last_exit *x)
{
	if (WIFSIGNALED(x->status))
		js_add_str(o, "signal", signal_name(WTERMSIG(x->status)));
	else
		js_add_int(o, "code", WEXITSTATUS(x->status));
	if (limits_word(x))
		js_add_str(o, "limit", limits_word(x));
}

void status_emit_exit(struct app *a)
{
	struct js *ev = js_obj();
	char text[160];

	app_text_of_exit(&a->last_exit, text, sizeof text);
	js_add_str(ev, "type", "exit");
	js_add_str(ev, "app", a->name);
	js_add_int(ev, "pid", a->pid);
	js_add_str(ev, "message", a->launch_error && !a->up ? a->launch_error : text);
	add_status(ev, &a->last_exit);
	js_add_int(ev, "after_ms", a->last_exit.after_ms);
	js_add_bool(ev, "expected", a->state == APP_STOPPING && a->after != AFTER_RETRY);
	if (!a->prepare)
		hooks_happened(a, "OnExit", ev);
	events_emit(a->sup->events, ev);
}

/* --- one app --- */

static const char *listener_state(const struct listener *l)
{
	if (l->holder)
		return "taken";
	if (l->by_app)
		return "app";
	return l->fd >= 0 ? "held" : "free";
}

static struct js *one_port(const struct listener *l, const char *app_key)
{
	struct js *o = js_obj();

	js_add_int(o, "host", l->host_port);
	js_add_int(o, app_key, l->app_port);
	js_add_str(o, "address", l->address);
	js_add_str(o, "state", listener_state(l));
	if (l->holder)
		js_add_str(o, "holder", l->holder);
	return o;
}

/* Before the first start nothing is held yet: then what the unit names is shown as free. */
static void each_port(const struct app *a, const char *app_key, struct js *out, const char *app)
{
	const struct unit *u = app_newest(a);
	size_t n = a->n_listeners ? a->n_listeners : u ? u->n_listen : 0;

	for (size_t i = 0; i < n; i++) {
		struct listener planned = {.fd = -1};
		struct js *o;

		if (!a->n_listeners) {
			planned.host_port = u->listen[i].host_port;
			planned.app_port = u->listen[i].app_port;
			planned.address = u->listen_address;
		}
		o = one_port(a->n_listeners ? &a->listeners[i] : &planned, app_key);
		if (app)
			js_add_str(o, "app", app);
		js_push(out, o);
	}
}

static struct js *problems_js(const struct unit_problems *p)
{
	struct js *out = js_arr();

	for (size_t i = 0; i < p->n; i++) {
		CLEANUP_FREE char *text =
			p->v[i].line ? xasprintf("%s:%u: %s", p->v[i].file, p->v[i].line, p->v[i].text)
				     : xasprintf("%s: %s", p->v[i].file, p->v[i].text);

		js_push_str(out, text);
	}
	return out;
}

static struct js *counters_js(const struct app *a)
{
	struct proxyctl_app_counters c = {0};
	struct js *o = js_obj();

	proxyctl_counters(a->sup->proxy, a->name, &c);
	js_add_int(o, "in_open", (int64_t)c.in_open);
	js_add_int(o, "in_total", (int64_t)c.in_total);
	js_add_int(o, "out_open", (int64_t)c.out_open);
	js_add_int(o, "out_allowed", (int64_t)c.out_allowed);
	js_add_int(o, "out_denied", (int64_t)c.out_denied);
	js_add_int(o, "out_ech", (int64_t)c.out_ech);
	js_add_int(o, "bytes_in", (int64_t)c.bytes_in);
	js_add_int(o, "bytes_out", (int64_t)c.bytes_out);
	return o;
}

/* One that is tried again has its last words too where one app is shown: it has failed already. */
static void add_reason(struct js *o, const struct app *a, bool full)
{
	CLEANUP_FREE char *words = full && a->state == APP_BACKOFF && a->reason ? explain_backoff(a) : NULL;
	CLEANUP_FREE char *hint =
		words ? xasprintf("it is started again by itself; its whole log: sbxsv logs %s", a->name)
		      : NULL;

	if (a->reason)
		js_add_str(o, "reason", words ? words : a->reason);
	if (a->hint && a->hint[0])
		js_add_str(o, "hint", a->hint);
	else if (hint)
		js_add_str(o, "hint", hint);
}

static struct js *short_status(const struct app *a, bool full)
{
	const struct unit *u = app_newest(a);
	struct js *o = js_obj(), *ports = js_arr(), *session;
	int64_t now = clk_mono_ms();

	js_add_str(o, "name", a->name);
	js_add_str(o, "state", app_state_name(a->state));
	js_add_int(o, "since_ms", now - a->since_ms);
	if (u) {
		if (u->description)
			js_add_str(o, "description", u->description);
		js_add_bool(o, "enabled", u->enabled);
		js_add_str(o, "mode", unit_mode_name(u->mode));
		js_add_str(o, "enforce", unit_enforce_name(u->enforce));
	}
	if (a->launch && !a->reaped)
		js_add_int(o, "pid", a->pid);
	if (a->up_ms)
		js_add_int(o, "uptime_ms", now - a->up_ms);
	js_add_int(o, "launches", (int64_t)a->launches);
	add_reason(o, a, full);
	if (a->state == APP_WAITING)
		js_add(o, "waits_for", order_awaited(a));
	if (full && needs_optional(a))
		js_add_str(o, "optional", needs_optional(a));
	if (a->state == APP_BACKOFF)
		js_add_int(o, "next_start_ms", a->next_start_ms > now ? a->next_start_ms - now : 0);
	session = session_status(a);
	if (session)
		js_add(o, "session", session);
	js_add_bool(o, "restart_needed",
		    app_alive(a) && ((a->newest && !a->broken) || a->sees_newcomer ||
				     network_restart_needed(a) || stdio_outdated(a)));
	if (a->prepare)
		js_add(o, "preparing", prepare_status(a));
	js_add(o, "problems", problems_js(&a->problems));
	each_port(a, "app", ports, NULL);
	js_add(o, "ports", ports);
	js_add(o, "counters", counters_js(a));
	if (a->isolation_known)
		js_add(o, "isolation", isolation_js(&a->isolation));
	if (a->instances || (u && u->mode == UNIT_STDIO))
		stdio_status(a, o);
	return o;
}

static struct js *list_js(const struct unit_list *l)
{
	struct js *out = js_arr();

	for (size_t i = 0; i < l->n; i++)
		js_push_str(out, l->v[i].text);
	return out;
}

static struct js *strv_js(const struct strv *l)
{
	struct js *out = js_arr();

	for (size_t i = 0; i < l->n; i++)
		js_push_str(out, l->v[i]);
	return out;
}

/* What Loopback=app:NAME means: of the running jail, or, while there is none, of the unit. */
static struct js *loopback_apps(const struct app *a)
{
	struct js *out = js_arr();

	for (size_t i = 0; i < a->unit->loopback_app.n; i++) {
		const char *name = a->unit->loopback_app.v[i].text;
		bool found = false;

		for (size_t k = 0; k < a->n_loopback; k++) {
			struct js *o;

			if (!str_eq(a->loopback[k].app, name))
				continue;
			found = true;
			o = js_obj();
			js_add_str(o, "app", name);
			js_add_int(o, "port", a->loopback[k].inside);
			js_add_int(o, "to", a->loopback[k].host);
			js_push(out, o);
		}
		if (!found) {
			struct js *o = js_obj();

			js_add_str(o, "app", name);
			js_push(out, o);
		}
	}
	return out;
}

/* Without its password. */
static void add_upstream(struct js *o, const struct unit *u)
{
	CLEANUP_FREE char *shown = policy_upstream_shown(u->upstream_proxy);

	js_add_str(o, "upstream_proxy", shown);
	js_add(o, "no_proxy", list_js(&u->no_proxy));
}

/* Of the definition in force: what the running process was started with. */
static void add_rules(struct js *o, const struct app *a)
{
	const struct unit *u = a->unit;
	struct js *loopback = js_arr();

	js_add_str(o, "file", u->file);
	js_add(o, "sources", strv_js(&u->sources));
	js_add(o, "not_in_force", strv_js(&u->not_in_force));
	js_add_str(o, "read_mode", unit_read_mode_name(u->read_mode));
	js_add_str(o, "egress", egress_name(network_egress(a)));
	if (a->capture)
		js_add_str(o, "transparent", a->capture);
	js_add(o, "allow", list_js(&u->allow));
	js_add(o, "deny", list_js(&u->deny));
	js_add(o, "allow_address", list_js(&u->allow_address));
	if (u->upstream_proxy)
		add_upstream(o, u);
	js_add(o, "live_rules", live_rules(a));
	js_add(o, "secrets", list_js(&u->secret));
	for (size_t i = 0; i < u->n_loopback; i++)
		js_push_int(loopback, u->loopback[i]);
	js_add(o, "loopback", loopback);
	js_add(o, "loopback_apps", loopback_apps(a));
}

static void add_last_exit(struct js *o, const struct last_exit *x)
{
	struct js *e = js_obj();
	char text[80], stamp[CLK_STAMP_LEN];

	app_text_of_exit(x, text, sizeof text);
	js_add_str(e, "text", text);
	add_status(e, x);
	js_add_str(e, "at", clk_stamp(x->at_wall_ms, stamp, sizeof stamp));
	js_add_int(e, "after_ms", x->after_ms);
	js_add(o, "last_exit", e);
}

static void add_log(struct js *o, const struct logs *l)
{
	struct logs_stats st;
	struct js *j = js_obj();

	logs_stats(l, &st);
	js_add_str(j, "target", logs_target_name(l));
	if (logs_path(l))
		js_add_str(j, "path", logs_path(l));
	js_add_int(j, "lines", (int64_t)st.lines);
	js_add_int(j, "bytes", (int64_t)st.bytes);
	js_add_int(j, "dropped_lines", (int64_t)st.dropped_lines);
	js_add_int(j, "dropped_bytes", (int64_t)st.dropped_bytes);
	if (st.last_error)
		js_add_str(j, "error", st.last_error);
	js_add(o, "log", j);
}

static void add_usage(struct js *o, const struct app *a)
{
	struct usage use;

	if (a->instances
		    ? !stdio_usage(a, &use)
		    : !a->launch || a->reaped || (!limits_usage(a, &use) && usage_read(a->pid, &use) < 0))
		return;
	js_add_int(o, "processes", use.processes);
	js_add_int(o, "memory_bytes", (int64_t)use.rss_bytes);
	js_add_int(o, "cpu_ms", (int64_t)use.cpu_ms);
}

static const char *const gate_names[] = {
	[PROXY_GATE_HOLD] = "hold",
	[PROXY_GATE_SERVE] = "serve",
	[PROXY_GATE_RESET] = "reset",
	[PROXY_GATE_REST] = "rest",
};

struct js *sup_app_status(struct sup *s, const char *name)
{
	struct app *a = app_find(s, name);
	struct js *o, *denied, *said, *health, *limits;

	if (!a && sup_has_app(s, name)) /* just written */
		a = app_find(s, name);
	if (!a)
		return NULL;
	o = short_status(a, true);
	if (a->unit)
		add_rules(o, a);
	if (a->run_user)
		js_add_str(o, "user", a->run_user);
	if (a->last_exit.known)
		add_last_exit(o, &a->last_exit);
	js_add_str(o, "gate", gate_names[a->gate]);
	js_add(o, "rules", proxyctl_rules(s->proxy, a->name));
	denied = proxyctl_denied(s->proxy, a->name);
	js_add(o, "denied", denied ? denied : js_arr());
	js_add(o, "unreachable", proxyctl_unreachable(s->proxy, a->name));
	js_add(o, "violations", violations_status(a));
	said = notices_status(a);
	if (said)
		js_add(o, "notify", said);
	health = health_status(a);
	if (health)
		js_add(o, "health", health);
	limits = limits_status(a);
	if (limits)
		js_add(o, "limits", limits);
	add_usage(o, a);
	if (a->logs)
		add_log(o, a->logs);
	return o;
}

/* --- all --- */

int64_t sup_count_fds(void)
{
	CLEANUP_DIR DIR *d = opendir("/proc/self/fd");
	int64_t n = 0;

	while (d && readdir(d))
		n++;
	return d ? n - 3 : -1; /* ".", ".." and the directory itself */
}

static struct js *supervisor_js(struct sup *s)
{
	struct js *o = js_obj(), *dirs = js_obj(), *proxy = js_obj(), *ev = js_obj();
	char stamp[CLK_STAMP_LEN];

	js_add_str(o, "version", PACKAGE_VERSION);
	js_add_int(o, "pid", getpid());
	js_add_int(o, "uptime_ms", clk_mono_ms() - s->started_ms);
	js_add_str(o, "started", clk_stamp(s->started_wall_ms, stamp, sizeof stamp));
	js_add_str(dirs, "config", s->dirs->config);
	js_add_str(dirs, "apps", s->dirs->apps);
	js_add_str(dirs, "state", s->dirs->state);
	js_add_str(dirs, "runtime", s->dirs->runtime);
	js_add(o, "instance_dirs", dirs);
	js_add_bool(o, "root", s->dirs->root_mode);
	js_add_bool(o, "shutting_down", s->down);
	js_add_int(o, "upgrades", s->upgrades);
	if (proxyctl_pid(s->proxy) > 0)
		js_add_int(proxy, "pid", proxyctl_pid(s->proxy));
	js_add_int(proxy, "restarts", (int64_t)s->proxy_restarts);
	js_add(o, "proxy", proxy);
	js_add(o, "problems", problems_js(&s->problems));
	js_add_str(ev, "path", events_path(s->events));
	js_add_int(ev, "dropped", (int64_t)events_dropped(s->events));
	js_add(o, "events", ev);
	js_add(o, "limits", limits_machine(s));
	js_add_int(o, "fds", sup_count_fds());
	return o;
}

struct js *sup_status(struct sup *s, bool usage)
{
	struct js *o = js_obj(), *apps = js_arr();

	for (const struct app *a = s->apps; a; a = a->next)
		if (!a->dead) {
			struct js *one = short_status(a, false);

			if (usage)
				add_usage(one, a);
			js_push(apps, one);
		}
	js_add(o, "supervisor", supervisor_js(s));
	js_add(o, "apps", apps);
	return o;
}

struct js *sup_ports(struct sup *s)
{
	struct js *out = js_arr();

	for (const struct app *a = s->apps; a; a = a->next)
		if (!a->dead)
			each_port(a, "app_port", out, a->name);
	return out;
}
