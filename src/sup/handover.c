/*
 * Everything the supervisor knows, as data, for an exec of itself (upgrade.c), and back.
 *
 * Theory of operation. Saving changes nothing: the supervisor may have to go on. Restoring does nothing but to make what was:
 * no message, no file, no signal, no event of the state table; so it can be rehearsed in another process with descriptors that
 * lead nowhere (base/keep.h). What belongs to a module is written and read by it; here are the fields of struct app and struct
 * sup. Whoever adds one to them that must survive an upgrade adds it to the tables below. Times are monotonic, and the
 * machine did not restart.
 *
 * Not kept are requests over the control socket, and what is going on in the few moments that are waited for: a launch, an
 * end, a port that is taken back.
 */
#include "sup/app.h"
#include "base/log.h"
#include "sandbox/cgroup.h"
#include "trace/refused.h"

static const struct keep_field app_fields[] = {
	KEEP(app, BOOL, broken),          KEEP(app, BOOL, removed),
	KEEP(app, UINT, attempt),         KEEP(app, TIMER, timer),
	KEEP(app, TIMER, gate_timer),     KEEP(app, INT, gate),
	KEEP(app, BOOL, network_told),    KEEP(app, BOOL, gate_told),
	KEEP(app, I64, next_start_ms),    KEEP(app, BOOL, launch_later),
	KEEP(app, BOOL, prepared),        KEEP(app, BOOL, launch_done),
	KEEP(app, BOOL, reaped),          KEEP(app, BOOL, up),
	KEEP(app, INT, short_of),         KEEP(app, TEXT, launch_error),
	KEEP(app, BOOL, no_jail),         KEEP(app, TEXT, run_user),
	KEEP(app, STRV, hidden),          KEEP(app, BOOL, sees_newcomer),
	KEEP(app, U64, launches),         KEEP(app, I64, up_ms),
	KEEP(app, I64, ready_ms),         KEEP(app, INT, pid),
	KEEP(app, U64, pid_start),        KEEP(app, FD, diag_fd),
	KEEP(app, FD, userns_fd),         KEEP(app, FD, netns_fd),
	KEEP(app, BOOL, judged),          KEEP(app, BOOL, audit_harder),
	KEEP(app, TEXT, program),         KEEP(app, UINT, judge_uid),
	KEEP(app, UINT, judge_gid),       KEEP(app, TEXT, capture),
	KEEP(app, BOOL, reaches_out),     KEEP(app, TIMER, live_timer),
	KEEP(app, TEXT, reason),          KEEP(app, BOOL, stuck),
	KEEP(app, TEXT, because),         KEEP(app, TEXT, hint),
	KEEP(app, UINT, instance_number), KEEP(app, TEXT, group),
	KEEP(app, UINT, group_limits),    KEEP(app, TEXT, group_error),
};
static const struct keep_field restart_fields[] = {KEEP(restart, UINT, failures),
						   KEEP(restart, UINT, shorts)};
static const struct keep_field exit_fields[] = {
	KEEP(last_exit, INT, status), KEEP(last_exit, I64, at_wall_ms), KEEP(last_exit, I64, after_ms),
	KEEP(last_exit, INT, limit), KEEP(last_exit, U64, limit_bytes)};
static const struct keep_field listener_fields[] = {
	KEEP(listener, U16, host_port), KEEP(listener, U16, app_port), KEEP(listener, TEXT, address),
	KEEP(listener, FD, fd),         KEEP(listener, TEXT, holder),  KEEP(listener, BOOL, by_app),
};
static const struct keep_field loopback_fields[] = {KEEP(loopback, U16, inside), KEEP(loopback, U16, host),
						    KEEP(loopback, BOOL, held), KEEP(loopback, TEXT, app)};
static const struct keep_field rule_fields[] = {KEEP(liverule, INT, key), KEEP(liverule, TEXT, text),
						KEEP(liverule, TEXT, origin), KEEP(liverule, I64, until_ms)};
static const struct keep_field process_fields[] = {
	KEEP(instance_process, TEXT, app), KEEP(instance_process, INT, pid),
	KEEP(instance_process, U64, start), KEEP(instance_process, BOOL, jailed)};
static const struct keep_field sup_fields[] = {
	KEEP(sup, U64, proxy_restarts), KEEP(sup, I64, started_ms),    KEEP(sup, I64, started_wall_ms),
	KEEP(sup, BOOL, record_failed), KEEP(sup, BOOL, any_unjailed), KEEP(sup, UINT, upgrades),
	KEEP(sup, STRV, graves),        KEEP(sup, TIMER, grave_timer), KEEP(sup, I64, grave_ms),
};

/* --- an array of structs --- */

static void save_array(struct keep *k, struct js *o, const char *key, const struct keep_field *f, size_t n_f,
		       const void *v, size_t n, size_t size)
{
	struct js *list = js_arr();

	for (size_t i = 0; i < n; i++) {
		struct js *one = js_obj();

		keep_save(k, one, f, n_f, (const char *)v + i * size);
		js_push(list, one);
	}
	js_add(o, key, list);
}
#define SAVE_ARRAY(k, o, key, f, v, n) save_array(k, o, key, f, ELEMENTS(f), v, n, sizeof *(v))

static void *load_array(struct keep *k, const struct js *o, const char *key, const struct keep_field *f,
			size_t n_f, size_t size, size_t *ret_n)
{
	const struct js *list = js_get(o, key);
	char *v = xcalloc(js_len(list) + 1, size);

	*ret_n = 0;
	for (const struct js *one = js_first(list); one; one = js_next(one))
		keep_load(k, one, f, n_f, v + size * (*ret_n)++);
	return v;
}
#define LOAD_ARRAY(k, o, key, f, v, n) ((v) = load_array(k, o, key, f, ELEMENTS(f), sizeof *(v), n))

static void add_if(struct js *o, const char *key, struct js *value)
{
	if (value)
		js_add(o, key, value);
}

/* --- one app --- */

static void save_restart(struct keep *k, struct js *o, const struct restart *r)
{
	struct js *starts = js_arr();

	for (size_t i = 0; i < r->n; i++)
		js_push_int(starts, r->starts[(r->at + r->cap - r->n + i) % r->cap]);
	keep_save(k, o, restart_fields, ELEMENTS(restart_fields), r);
	js_add(o, "starts", starts);
}

static void load_restart(struct keep *k, const struct js *o, struct restart *r)
{
	const struct js *starts = js_get(o, "starts");

	for (const struct js *v = js_first(starts); v; v = js_next(v)) {
		int64_t ms = 0;

		(void)js_value_int(v, &ms);
		restart_started(r, (unsigned)js_len(starts), ms);
	}
	keep_load(k, o, restart_fields, ELEMENTS(restart_fields), r);
}

static void save_caught(struct js *o, const struct app *a)
{
	struct js *ports;

	if (!a->caught)
		return;
	ports = js_arr();
	for (size_t i = 0; i < a->caught->n; i++)
		js_push_int(ports, a->caught->v[i]);
	js_add(o, "caught", ports);
}

static void load_caught(const struct js *o, struct app *a)
{
	const struct js *ports = js_get(o, "caught");

	if (!ports)
		return;
	a->caught = xcalloc(1, sizeof *a->caught);
	for (const struct js *v = js_first(ports); v && a->caught->n < ELEMENTS(a->caught->v);
	     v = js_next(v)) {
		int64_t port = 0;

		(void)js_value_int(v, &port);
		a->caught->v[a->caught->n++] = (uint16_t)port;
	}
}

static void save_process(struct keep *k, struct js *o, const struct app *a)
{
	if (!a->launch)
		return;
	js_add(o, "launch", launch_save(k, a->launch));
	if (a->isolation_known)
		js_add(o, "isolation", isolation_save(k, &a->isolation));
	if (a->ready && a->state == APP_STARTING)
		js_add_int(o, "ready", ready_begun_ms(a->ready));
	add_if(o, "notices", notices_save(k, a));
	add_if(o, "health", health_save(k, a));
	add_if(o, "observer", violations_save(k, a));
}

static void load_process(struct keep *k, const struct js *o, struct app *a)
{
	const struct js *isolation = js_get(o, "isolation");
	launch_notified_fn *notified = notices_restore(k, js_get(o, "notices"), a);

	if (!js_get(o, "launch"))
		return;
	a->launch = launch_restore(k, a->sup->loop, js_get(o, "launch"), notified, a);
	if (isolation) {
		isolation_restore(k, isolation, &a->isolation);
		a->isolation_known = true;
	}
	health_restore(k, js_get(o, "health"), a);
	violations_restore(k, js_get(o, "observer"), a);
	if (keep_error(k, NULL) || !a->unit)
		keep_wrong(k, "%s: a process without a unit was handed over", a->name);
	else
		run_watch(a, js_int_or(o, "ready", 0));
}

static struct js *app_save(struct keep *k, const struct app *a)
{
	struct js *o = js_obj(), *restart = js_obj();

	js_add_str(o, "name", a->name);
	js_add_str(o, "state", app_state_name(a->state));
	js_add_int(o, "since_ms", a->since_ms);
	js_add_int(o, "after", a->after);
	add_if(o, "unit", a->unit ? unit_save(k, a->unit) : NULL);
	add_if(o, "newest", a->newest ? unit_save(k, a->newest) : NULL);
	js_add(o, "problems", unit_problems_save(k, &a->problems));
	keep_save(k, o, app_fields, ELEMENTS(app_fields), a);
	save_restart(k, restart, &a->restart);
	js_add(o, "restart", restart);
	save_process(k, o, a);
	save_caught(o, a);
	SAVE_ARRAY(k, o, "loopback", loopback_fields, a->loopback, a->n_loopback);
	SAVE_ARRAY(k, o, "live", rule_fields, a->live.v, a->live.n);
	SAVE_ARRAY(k, o, "listeners", listener_fields, a->listeners, a->n_listeners);
	if (a->last_exit.known)
		SAVE_ARRAY(k, o, "last_exit", exit_fields, &a->last_exit, 1);
	if (order_save(a))
		js_add_str(o, "held_back", order_save(a));
	js_add(o, "instances", stdio_save(k, a));
	add_if(o, "prepare", prepare_save(k, a));
	add_if(o, "hooks", hooks_save(k, a));
	keep_text(k, o, "optional", needs_optional(a));
	add_if(o, "logs", a->logs ? logs_save(k, a->logs) : NULL);
	add_if(o, "refused", refused_save(k, a->sup->refused, a->name));
	return o;
}

static bool state_named(const char *name, enum app_state *ret)
{
	for (int s = 0; name && s < APP_STATE_MAX; s++)
		if (str_eq(app_state_name((enum app_state)s), name)) {
			*ret = (enum app_state)s;
			return true;
		}
	return false;
}

static void load_definition(struct keep *k, const struct js *o, struct app *a)
{
	a->unit = unit_restore(k, js_get(o, "unit"));
	a->newest = unit_restore(k, js_get(o, "newest"));
	unit_problems_restore(k, js_get(o, "problems"), &a->problems);
	if (keep_error(k, NULL))
		return;
	sup_configure_logs(a);
	if (a->logs && js_get(o, "logs"))
		logs_restore(k, js_get(o, "logs"), a->logs);
	refused_restore(k, js_get(o, "refused"), a->sup->refused, a->name);
}

/* Numbers that stand for something. A newer version may have more of them. */
static void check_numbers(struct keep *k, const struct app *a)
{
	if (a->gate > PROXY_GATE_REST)
		keep_wrong(k, "%s: a gate that this version does not know", a->name);
	if (a->last_exit.limit > LIMIT_FILE_SIZE)
		keep_wrong(k, "%s was ended by a limit that this version does not know", a->name);
	for (size_t i = 0; i < a->live.n; i++)
		if (!*policy_key_name(a->live.v[i].key) || !a->live.v[i].text)
			keep_wrong(k, "%s: a rule given at run time that this version does not know", a->name);
}

static void app_load(struct keep *k, const struct js *o, struct sup *s)
{
	const char *name = js_str(o, "name");
	int64_t after = js_int_or(o, "after", 0);
	enum app_state state = APP_STOPPED;
	struct app *a;

	if (!name || !state_named(js_str(o, "state"), &state) || after < AFTER_STAY || after > AFTER_IDLE) {
		keep_wrong(k, "%s is in a state that this version does not know", name ? name : "an app");
		return;
	}
	a = app_create(s, name);
	app_restore_state(a, state, js_int_or(o, "since_ms", 0));
	a->after = (enum app_after)after;
	load_definition(k, o, a);
	keep_load(k, o, app_fields, ELEMENTS(app_fields), a);
	load_restart(k, js_get(o, "restart"), &a->restart);
	load_caught(o, a);
	order_restore(a, js_str(o, "held_back"));
	stdio_restore(k, js_get(o, "instances"), a);
	prepare_restore(k, js_get(o, "prepare"), a);
	hooks_restore(k, js_get(o, "hooks"), a);
	needs_restore(a, keep_get_text(k, o, "optional"));
	LOAD_ARRAY(k, o, "loopback", loopback_fields, a->loopback, &a->n_loopback);
	LOAD_ARRAY(k, o, "live", rule_fields, a->live.v, &a->live.n);
	a->live.cap = a->live.n + 1;
	LOAD_ARRAY(k, o, "listeners", listener_fields, a->listeners, &a->n_listeners);
	if (js_first(js_get(o, "last_exit"))) {
		keep_load(k, js_first(js_get(o, "last_exit")), exit_fields, ELEMENTS(exit_fields),
			  &a->last_exit);
		a->last_exit.known = true;
	}
	check_numbers(k, a);
	load_process(k, o, a);
}

/* --- all --- */

struct js *handover_save(struct keep *k, const struct sup *s)
{
	struct js *o = js_obj(), *apps = js_arr(), *reclaimed = js_arr();

	keep_save(k, o, sup_fields, ELEMENTS(sup_fields), s);
	js_add(o, "conf", conf_save(k, &s->conf));
	js_add(o, "problems", unit_problems_save(k, &s->problems));
	SAVE_ARRAY(k, o, "remains", process_fields, s->remains.v, s->remains.n);
	for (size_t i = 0; i < s->n_reclaimed; i++)
		js_push_int(reclaimed, s->reclaimed[i]);
	js_add(o, "reclaimed", reclaimed);
	js_add(o, "events", events_save(k, s->events));
	js_add(o, "groups", cgroup_save(k, s->groups));
	keep_js(k, o, "proxy", proxyctl_save(k, s->proxy));
	add_if(o, "watch", watch_save(k, s->watch));
	for (const struct app *a = s->apps; a; a = a->next) {
		struct js *one = js_obj();

		keep_js(k, one, "app", app_save(k, a));
		js_push(apps, one);
	}
	js_add(o, "apps", apps);
	return o;
}

void handover_conf(struct keep *k, const struct js *o, struct sup *s)
{
	conf_restore(k, js_get(o, "conf"), &s->conf);
}

void handover_load(struct keep *k, const struct js *o, struct sup *s)
{
	keep_load(k, o, sup_fields, ELEMENTS(sup_fields), s);
	unit_problems_restore(k, js_get(o, "problems"), &s->problems);
	LOAD_ARRAY(k, o, "remains", process_fields, s->remains.v, &s->remains.n);
	s->remains.cap = s->remains.n + 1;
	for (const struct js *v = js_first(js_get(o, "reclaimed")); v; v = js_next(v)) {
		int64_t port = 0;

		(void)js_value_int(v, &port);
		VEC_GROW(s->reclaimed, s->n_reclaimed, s->cap_reclaimed);
		s->reclaimed[s->n_reclaimed++] = (uint16_t)port;
	}
	for (const struct js *one = js_first(js_get(o, "apps")); one; one = js_next(one)) {
		CLEANUP_JS struct js *app = keep_get_js(k, one, "app");

		if (app)
			app_load(k, app, s);
	}
}
