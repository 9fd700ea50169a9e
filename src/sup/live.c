/*
 * `sbxsv allow` and `deny` while the app runs. The rules in force are those of the unit and those given at run
 * time; a change makes the whole policy anew and hands it over, or changes nothing. Whoever asked is answered when
 * the proxy says that it judges by it.
 *
 *   allow HOST  takes back the run-time Deny= of the same text; adds a rule unless the unit allows it already.
 *               A Deny= that names the host in another way wins: then nothing is changed, and its line is named.
 *   deny HOST   takes back the run-time rule of the same text; adds a Deny= unless nothing is left that allows it.
 */
#include "sup/app.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>

enum { CODE_OK = 0, CODE_FAILED = 1, CODE_USAGE = 2, CODE_NO_APP = 4, CODE_REFUSED = 6 };

/* --- the end of a rule --- */

#define LOOK_MS                                                                                              \
	20000 /* the loop's timers stand still while the machine sleeps: the clock is looked at again */

static void emit(const struct app *a, const char *action, const char *rule, int64_t for_ms,
		 const char *message)
{
	struct js *ev = js_obj();

	js_add_str(ev, "type", "policy");
	js_add_str(ev, "app", a->name);
	js_add_str(ev, "action", action);
	js_add_str(ev, "rule", rule);
	if (for_ms)
		js_add_int(ev, "for_ms", for_ms);
	js_add_str(ev, "message", message);
	events_emit(a->sup->events, ev);
}

static void arm(struct app *a)
{
	int64_t next = liverules_next(&a->live), now = clk_boot_ms();
	int64_t left = next > now ? next - now : 0;

	if (next)
		loop_timer_start(&a->live_timer, left < LOOK_MS ? left : LOOK_MS);
	else
		loop_timer_stop(&a->live_timer);
}

static char *shown(enum policy_key key, const char *text)
{
	return xasprintf("%s=%s", policy_key_name(key), text);
}

/* Fewer rules are never too many, and they were valid when they were given: the proxy takes them. */
static void on_end(struct loop_timer *t)
{
	struct app *a = t->data;
	CLEANUP(liverules_finish) struct liverules rest = {0};
	CLEANUP_ERR struct err *e = NULL;
	struct liverules ended = {0};
	struct liverule r;

	liverules_copy(&rest, &a->live);
	while (liverules_expired(&rest, clk_boot_ms(), &r)) {
		VEC_GROW(ended.v, ended.n, ended.cap);
		ended.v[ended.n++] = r;
	}
	if (ended.n && network_swap_rules(a, &rest, &e) < 0) {
		log_error("%s: rules whose time is over: %s; tried again", a->name, err_msg(e));
		liverules_finish(&ended);
		loop_timer_start(&a->live_timer, LOOK_MS);
		return;
	}
	for (size_t i = 0; i < ended.n; i++) {
		CLEANUP_FREE char *rule = shown(ended.v[i].key, ended.v[i].text),
				  *text = xasprintf("%s ended: its time is over", rule);

		emit(a, "ended", rule, 0, text);
	}
	liverules_finish(&ended);
	arm(a);
}

void live_init(struct app *a)
{
	loop_timer_init(a->sup->loop, &a->live_timer, on_end, a);
}

void live_finish(struct app *a)
{
	loop_timer_stop(&a->live_timer);
	liverules_finish(&a->live);
}

struct js *live_rules(const struct app *a)
{
	struct js *out = js_arr();
	int64_t now = clk_boot_ms();

	for (size_t i = 0; i < a->live.n; i++) {
		const struct liverule *r = &a->live.v[i];
		struct js *o = js_obj();

		js_add_str(o, "key", policy_key_name(r->key));
		js_add_str(o, "text", r->text);
		js_add_str(o, "origin", r->origin);
		if (r->until_ms)
			js_add_int(o, "expires_ms", r->until_ms > now ? r->until_ms - now : 0);
		js_push(out, o);
	}
	return out;
}

/* --- a request --- */

struct change {
	struct app *app;
	const struct sup_rule *want;
	struct liverules rules; /* as they will be */
	struct js *result;      /* what is said besides code and message */
	struct strbuf message;
	struct strv dropped; /* rules taken back */
	char *added;         /* "Allow=x.com"; NULL: none */
	enum policy_key key;
	char *text; /* in its one form */
};

static void change_finish(struct change *c)
{
	liverules_finish(&c->rules);
	js_free(c->result);
	strbuf_finish(&c->message);
	strv_clear(&c->dropped);
	free(c->added);
	free(c->text);
}

static int say(struct change *c, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
static int say(struct change *c, int code, const char *fmt, ...)
{
	CLEANUP_FREE char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	text = xvasprintf(fmt, ap);
	va_end(ap);
	strbuf_addf(&c->message, "%s%s", c->message.len ? "; " : "", text);
	return code;
}

static void drop(struct change *c, enum policy_key key)
{
	CLEANUP_FREE char *text = NULL;

	if (policy_canon_rule(key, c->want->host, &text, NULL) == 0 && liverules_drop(&c->rules, key, text))
		strv_take(&c->dropped, shown(key, text));
}

static int add(struct change *c)
{
	CLEANUP_ERR struct err *e = NULL;

	if (liverules_set(&c->rules, c->key, c->text, c->want->for_ms, clk_boot_ms(), clk_wall_ms(), &e) < 0)
		return say(c, CODE_FAILED, "%s", err_msg(e));
	c->added = shown(c->key, c->text);
	return CODE_OK;
}

/* Do the unit's rules, less what is denied at run time, allow all of it? A rule for one target only: of others just
 * some targets are asked about. */
static bool unit_allows(struct change *c)
{
	CLEANUP(liverules_finish) struct liverules denied = {0};
	struct policy_answer answer;
	struct policy *p;
	bool all;

	if (strpbrk(c->text, "*/-"))
		return false;
	for (size_t i = 0; i < c->rules.n; i++)
		if (c->rules.v[i].key == POLICY_DENY)
			(void)liverules_set(&denied, POLICY_DENY, c->rules.v[i].text, 0, 0, 0, NULL);
	p = network_policy(c->app->unit, &denied, NULL);
	all = p && policy_answer_rule(p, c->key, c->text, &answer, NULL) == 0 && !answer.refused;
	policy_destroy(p);
	return all;
}

/* With the rule: what does a Deny= that wins leave of it? */
static int judge(struct change *c)
{
	CLEANUP_ERR struct err *e = NULL;
	struct policy *p = network_policy(c->app->unit, &c->rules, &e);
	struct policy_answer answer;
	int r = p ? policy_answer_rule(p, c->key, c->text, &answer, &e) : -1;

	policy_destroy(p);
	if (r < 0)
		return say(c, CODE_FAILED, "%s", err_msg(e));
	if (!answer.refused)
		return CODE_OK;
	if (answer.refused == answer.ports)
		return say(c, CODE_REFUSED, "%s=%s would change nothing, because %s wins: change that first",
			   policy_key_name(c->key), c->text, answer.verdict.rule);
	js_add_str(c->result, "partly", answer.verdict.rule);
	(void)say(c, CODE_OK, "port %u stays refused by %s", answer.port, answer.verdict.rule);
	return CODE_OK;
}

static int bad_rule(struct change *c, const struct err *e)
{
	return say(c, err_code(e) == EPERM ? CODE_REFUSED : CODE_USAGE, "%s: %s", c->want->host, err_msg(e));
}

static int allow(struct change *c)
{
	const struct unit *u = c->app->unit;
	CLEANUP_ERR struct err *e = NULL;

	if (policy_grant_key(c->want->host, &c->key, &e) < 0)
		return bad_rule(c, e);
	(void)policy_canon_rule(c->key, c->want->host, &c->text, NULL); /* it was parsed just now */
	if (u->egress == UNIT_EGRESS_OFF && u->egress_origin)
		return say(c, CODE_REFUSED, "%s says Egress=off: remove that line, or write Egress=hosts",
			   u->egress_origin);
	drop(c, POLICY_DENY);
	if (unit_allows(c)) {
		js_add_bool(c->result, "already", true);
		drop(c, c->key); /* what the unit allows needs no end */
		return CODE_OK;
	}
	if (add(c))
		return CODE_FAILED;
	return judge(c);
}

static int deny(struct change *c)
{
	CLEANUP_ERR struct err *e = NULL;
	bool valid = policy_canon_rule(POLICY_DENY, c->want->host, &c->text, &e) == 0;
	struct policy *p;
	bool left;

	c->key = POLICY_DENY;
	drop(c, POLICY_ALLOW);
	drop(c, POLICY_ADDRESS);
	if (!valid)
		return c->dropped.n ? CODE_OK : bad_rule(c, e);
	p = network_policy(c->app->unit, &c->rules, NULL);
	left = !p || policy_grants_any(p, c->text);
	policy_destroy(p);
	/* A rule that was taken back for nothing else to allow it is refused by default again. */
	return c->dropped.n && !left ? CODE_OK : add(c);
}

/* The rule stands in the unit now: what was said about it at run time is over. */
static int saved(struct change *c)
{
	const struct app *a = c->app;
	const struct unit *u = app_newest(a);
	const struct unit_list *l;
	CLEANUP_ERR struct err *e = NULL;
	enum policy_key keys[] = {POLICY_ALLOW, POLICY_ADDRESS, POLICY_DENY};

	c->key = POLICY_DENY;
	if (!c->want->deny && policy_grant_key(c->want->host, &c->key, &e) < 0)
		return bad_rule(c, e);
	if (policy_canon_rule(c->key, c->want->host, &c->text, &e) < 0 && !c->want->deny)
		return bad_rule(c, e);
	if (a->broken) {
		CLEANUP_FREE char *text = unit_problems_text(&a->problems);

		return say(c, CODE_FAILED, "the unit is broken, so it is not in force: %s", chomp(text));
	}
	for (size_t i = 0; i < ELEMENTS(keys); i++)
		drop(c, keys[i]);
	l = c->key == POLICY_ALLOW ? &u->allow : c->key == POLICY_DENY ? &u->deny : &u->allow_address;
	for (size_t i = 0; c->text && i < l->n && !c->added; i++)
		if (str_eq(l->v[i].text, c->text)) {
			c->added = shown(c->key, c->text);
			js_add_str(c->result, "origin", l->v[i].origin);
		}
	if (!c->added && !c->want->deny)
		return say(c, CODE_FAILED, "it was written, but the unit as it was read does not have it");
	js_add_bool(c->result, "saved", true);
	js_add_bool(c->result, "restarting",
		    app_alive(a) && (a->newest || a->state == APP_STARTING || a->state == APP_STOPPING));
	return CODE_OK;
}

static int decide(struct change *c)
{
	const struct app *a = c->app;

	if (!a->unit)
		return say(c, CODE_FAILED, "its unit is broken, so it has no rules: sbxsv status %s",
			   a->name);
	if (!app_jailed(a->unit))
		return say(c, CODE_REFUSED,
			   "it runs without a jail (Enforce=off) and reaches everything: rules mean nothing");
	if (c->want->saved)
		return saved(c);
	return c->want->deny ? deny(c) : allow(c);
}

static void report(struct change *c)
{
	struct app *a = c->app;
	struct js *o = c->result, *dropped = js_arr();

	for (size_t i = 0; i < c->dropped.n; i++)
		js_push_str(dropped, c->dropped.v[i]);
	js_add(o, "dropped", dropped);
	if (c->added)
		js_add_str(o, "rule", c->added);
	if (c->added && c->want->for_ms)
		js_add_int(o, "expires_ms", c->want->for_ms);
	js_add_str(o, "state", app_state_name(a->state));
	js_add_bool(o, "running", app_alive(a));
	js_add_bool(o, "restart_needed", network_restart_needed(a));
	for (size_t i = 0; i < c->dropped.n && !c->want->saved; i++) {
		CLEANUP_FREE char *text = xasprintf("%s was taken back", c->dropped.v[i]);

		emit(a, "dropped", c->dropped.v[i], 0, text);
	}
	if (c->added && !c->want->saved) {
		CLEANUP_FREE char *text = xasprintf(
			"%s %s", c->added, c->want->for_ms ? "for a time" : "until the supervisor ends");

		emit(a, c->want->deny ? "denied" : "allowed", c->added, c->want->for_ms, text);
	}
}

/* --- the answer --- */

struct pending {
	sup_rule_done_fn *done;
	void *data;
	struct js *result;
};

static void on_settled(void *data)
{
	struct pending *w = data;

	w->done(w->data, w->result);
	free(w);
}

static void answer(struct sup *s, struct change *c, int code, bool wait, sup_rule_done_fn *done, void *data)
{
	struct pending *w;

	js_add_int(c->result, "code", code);
	js_add_str(c->result, "message", c->message.p ? c->message.p : "");
	if (!wait) {
		done(data, TAKE_PTR(c->result));
		return;
	}
	w = xcalloc(1, sizeof *w);
	*w = (struct pending){done, data, TAKE_PTR(c->result)};
	proxyctl_sync(s->proxy, on_settled, w);
}

void sup_settle_rules(struct sup *s, void (*done)(void *data), void *data)
{
	proxyctl_sync(s->proxy, done, data);
}

void sup_rule(struct sup *s, const char *app, const struct sup_rule *want, sup_rule_done_fn *done, void *data)
{
	CLEANUP(change_finish) struct change c = {.want = want, .result = js_obj()};
	CLEANUP_ERR struct err *e = NULL;
	int code;

	if (want->saved && !s->down)
		js_free(sup_reload(s)); /* whatever inotify says or not */
	else
		watch_flush(s->watch);
	c.app = app_find(s, app);
	if (!c.app || s->down) {
		CLEANUP_FREE char *text = sup_no_app(s, app);

		code = c.app ? say(&c, CODE_FAILED, "the supervisor is shutting down")
			     : say(&c, CODE_NO_APP, "%s", text);
		answer(s, &c, code, false, done, data);
		return;
	}
	liverules_copy(&c.rules, &c.app->live);
	code = decide(&c);
	if (code == CODE_OK && (c.dropped.n || c.added) && network_swap_rules(c.app, &c.rules, &e) < 0)
		code = say(&c, CODE_FAILED, "%s; the rules are as they were", err_msg(e));
	if (code == CODE_OK) {
		arm(c.app);
		report(&c);
	}
	answer(s, &c, code, code == CODE_OK, done, data);
}
