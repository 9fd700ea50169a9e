/*
 * What apps are refused: the observers of their jails, and one store for what they and the proxy see.
 *
 * Which calls of a jail are looked at is decided at its launch, for a filter stays: [Audit] Violations=, and `all` instead of
 * `writes` for the attempt after one that failed soon. So an app that cannot start pays for the reason, and one that runs does
 * not.
 */
#include "sup/app.h"
#include "base/clock.h"
#include "base/log.h"
#include "sandbox/judge.h"
#include "trace/observer.h"
#include "trace/refused.h"
#include <arpa/inet.h>
#include <signal.h>

_Static_assert((int)JUDGE_READ == (int)OBSERVED_READ && (int)JUDGE_WRITE == (int)OBSERVED_WRITE &&
		       (int)JUDGE_EXEC == (int)OBSERVED_EXEC && (int)JUDGE_CONNECT == (int)OBSERVED_UNIX,
	       "an observer asks a judge");

enum {
	SOON_MS = 10000,  /* as for [Restart]: who was ready for so long has started */
	FREEZE_MS = 1500, /* a thread that waits for room takes a second */
	END_MS = 50       /* they were told when their apps ended: only a dead file system takes so long */
};

enum audit violations_mode(const struct app *a, const struct plan *p)
{
	enum audit mode = audit_from(a->unit->audit_violations);

	if (p->nested_sandbox || !p->netns)
		return AUDIT_OFF;
	return mode == AUDIT_WRITES && a->audit_harder ? AUDIT_ALL : mode;
}

void violations_ended(struct app *a, bool failed)
{
	bool soon = !a->ready_ms || clk_mono_ms() - a->ready_ms < SOON_MS;

	a->audit_harder = failed ? soon || (a->audit_harder && soon) : false;
}

/* --- the store --- */

static void on_event(void *data, struct js *event)
{
	struct app *a = data;

	refused_add(a->sup->refused, event, clk_wall_ms());
	hooks_happened(a, "OnViolation", event);
	events_emit(a->sup->events, event);
}

static bool is_port_of(const struct app *a, uint16_t port)
{
	for (size_t i = 0; !a->dead && a->unit && i < a->unit->n_listen; i++)
		if (a->unit->listen[i].host_port == port)
			return true;
	return false;
}

/* The app's own port of the host is refused it too, but asking for that is how programs wait for themselves. */
static char *on_local(void *data, uint16_t port)
{
	struct app *a = data, *other = a->sup->apps;

	if (is_port_of(a, port))
		return NULL;
	while (other && !is_port_of(other, port))
		other = other->next;
	return other && other->unit->listen[0].host_port == port /* the one that app:NAME stands for */
		       ? xasprintf("Loopback=app:%s", other->name)
		       : xasprintf("Loopback=%u", port);
}

static void on_lost(void *data, uint64_t n)
{
	struct app *a = data;

	refused_lost(a->sup->refused, a->name, n);
}

/* The proxy sees hosts, the observer who connects: the last one that went there. */
static void add_process(struct sup *s, struct js *event)
{
	const char *name = js_str(event, "app"), *host = js_str(event, "host");
	const struct app *a = name ? app_find(s, name) : NULL;
	char command[32];
	pid_t pid;

	if (!a || !a->observer || !host || js_get(event, "pid"))
		return;
	if (observer_who(a->observer, host, (uint16_t)js_int_or(event, "port", 0), &pid, command,
			 sizeof command) < 0)
		return;
	js_add_int(event, "pid", pid);
	js_add_str(event, "command", command);
}

static void hook(struct sup *s, const struct js *event)
{
	struct app *a = js_str(event, "app") ? app_find(s, js_str(event, "app")) : NULL;

	if (a)
		hooks_happened(a, "OnViolation", event);
}

void violations_from_proxy(struct sup *s, const struct js *event)
{
	struct js *own = js_copy(event);

	if (str_eq(js_str(own, "type"), "violation")) {
		add_process(s, own);
		refused_add(s->refused, own, clk_wall_ms());
		hook(s, own);
	}
	events_emit(s->events, own);
}

/* --- the observer --- */

void violations_plan(struct app *a, const struct plan *p)
{
	judge_destroy(a->judge);
	a->judge = violations_mode(a, p) == AUDIT_OFF ? NULL : judge_create(p);
	free(a->program);
	a->program = xstrdup(p->program);
	a->judge_uid = geteuid() == 0 ? p->user.uid : (uid_t)-1;
	a->judge_gid = p->user.gid;
}

/* The listener, root and mount namespace are in `c`. Where this fails the launch has to end: sbxsv-init keeps a duplicate of the
 * listener, and the app would wait for ever. */
static int observe(struct app *a, struct observer_config *c, struct err **e)
{
	c->app = a->name;
	c->program = a->program;
	c->uid = a->judge_uid;
	c->gid = a->judge_gid;
	c->judge = TAKE_PTR(a->judge);
	c->decide = judge_bits;
	c->words = judge_words;
	c->gone = judge_gone;
	c->event = on_event;
	c->listens = net_loopback_listens;
	c->host_diag = net_open_diag;
	c->local = on_local;
	c->lost = on_lost;
	c->data = a;
	a->observer = observer_create(a->sup->loop, c, e);
	return a->observer ? 0 : -1;
}

int violations_listening(void *data, const struct launch_audit *fds, struct err **e)
{
	struct app *a = data;
	struct observer_config c = {.listener = fds->listener_fd,
				    .root = fds->root_fd,
				    .mntns = fds->mntns_fd,
				    .diag = fds->diag_fd,
				    .network_off = network_egress(a) == EGRESS_OFF};

	return observe(a, &c, e);
}

/* --- across an exec of the supervisor --- */

struct js *violations_save(struct keep *k, const struct app *a)
{
	struct js *o;

	if (!a->observer)
		return NULL;
	o = observer_save(k, a->observer);
	judge_save(k, o, "judge", observer_judge(a->observer));
	return o;
}

void violations_restore(struct keep *k, const struct js *o, struct app *a)
{
	struct observer_config c = {.listener = -1};
	CLEANUP_ERR struct err *e = NULL;

	if (!o)
		return;
	observer_config_restore(k, o, &c);
	a->judge = judge_restore(k, o, "judge");
	if (!a->judge || keep_error(k, NULL) || observe(a, &c, &e) == 0)
		return;
	log_warning("%s: %s; it is started again", a->name, err_msg(e));
	(void)pidfd_signal(launch_pidfd(a->launch), SIGKILL);
}

bool violations_freeze(struct sup *s, char **ret_who)
{
	for (struct app *a = s->apps; a; a = a->next)
		if (a->observer && !observer_freeze(a->observer, FREEZE_MS)) {
			*ret_who = xstrdup(a->name);
			return false;
		}
	return true;
}

void violations_thaw(struct sup *s)
{
	for (struct app *a = s->apps; a; a = a->next)
		if (a->observer)
			observer_thaw(a->observer);
}

bool violations_drain(struct app *a, void (*drained)(void *data))
{
	return !a->observer || a->sup->down || observer_drain(a->observer, drained);
}

void violations_release(struct app *a)
{
	observer_destroy(TAKE_PTR(a->observer), 0);
	judge_destroy(TAKE_PTR(a->judge));
	free(TAKE_PTR(a->program));
}

void violations_finish(void)
{
	observer_finish(END_MS);
}

/* --- what is shown --- */

struct js *violations_status(const struct app *a)
{
	const struct refused *r = a->sup->refused;
	struct js *o = js_obj();

	js_add_int(o, "total", (int64_t)refused_total(r, a->name));
	js_add_int(o, "lost", (int64_t)refused_lost_of(r, a->name));
	js_add(o, "last", refused_list(r, a->name, 0, VIOLATIONS_IN_STATUS));
	return o;
}

struct js *sup_violations(struct sup *s, const char *app, int64_t since_ms)
{
	struct js *o = js_obj(), *apps = js_arr();

	for (const struct app *a = s->apps; a; a = a->next) {
		struct js *one;

		if (a->dead || (app && strcmp(a->name, app) != 0))
			continue;
		one = js_obj();
		js_add_str(one, "app", a->name);
		js_add_str(one, "mode", audit_name(a->isolation_known ? a->isolation.audit : AUDIT_OFF));
		js_add_bool(one, "running", a->isolation_known);
		js_add_int(one, "total", (int64_t)refused_total(s->refused, a->name));
		js_add_int(one, "lost", (int64_t)refused_lost_of(s->refused, a->name));
		js_push(apps, one);
	}
	js_add(o, "apps", apps);
	js_add(o, "violations", refused_list(s->refused, app, since_ms, VIOLATIONS_MAX));
	return o;
}

/* What a person types to allow it. NULL: nothing, or not one command. Owned by caller. */
char *violations_command(const struct app *a, const struct js *event)
{
	const char *hint = js_str(event, "hint");

	if (hint && str_starts(hint, "Allow="))
		return xasprintf("sbxsv allow %s %s", a->name, hint + strlen("Allow="));
	return hint && str_starts(hint, "sbxsv ") ? xstrdup(hint) : NULL;
}

struct js *violations_since(const struct app *a, int64_t wall_ms, size_t max)
{
	return refused_list(a->sup->refused, a->name, wall_ms, max);
}
