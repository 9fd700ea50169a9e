/*
 * allow, deny: rules for the running app, for a time, or for good. At run time the supervisor does it all; --save
 * writes the drop-in here, with or without a supervisor, and then asks it to read and apply that.
 */
#include "cli/allow_path.h"
#include "cli/remote.h"
#include "cli/subject.h"
#include "cli/table.h"
#include "base/parse.h"
#include "net/proxyctl.h"
#include "sandbox/rules.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { OPT_FOR = CLI_LONG, OPT_SAVE };

struct wish {
	struct cli *c;
	const struct command *cmd;
	const char *app;
	bool deny, save;
	int64_t for_ms;
	struct js *replies; /* with --json */
};

static const char *verb(const struct wish *w)
{
	return w->deny ? "deny" : "allow";
}

/* --- what came of it --- */

static void line(const struct wish *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void line(const struct wish *w, const char *fmt, ...)
{
	CLEANUP_FREE char *text = NULL, *safe = NULL;
	va_list ap;

	va_start(ap, fmt);
	text = xvasprintf(fmt, ap);
	va_end(ap);
	safe = cli_safe(text);
	printf("%s: %s\n", w->app, safe);
}

static void print_rule(const struct wish *w, const char *host, const struct js *reply)
{
	const char *rule = js_str(reply, "rule");
	CLEANUP_FREE char *time = format_duration(w->for_ms);

	for (const struct js *d = js_first(js_get(reply, "dropped")); d; d = js_next(d))
		if (!w->save)
			line(w, "%s was taken back", js_value_str(d) ? js_value_str(d) : "?");
	if (js_bool_or(reply, "already", false))
		line(w, "the unit allows %s; nothing to add", host);
	else if (rule && w->for_ms)
		line(w, "%s for %s", rule, time);
	else if (rule && !w->save)
		line(w, "%s until the supervisor ends; to keep it: sbxsv %s %s %s --save", rule, verb(w),
		     w->app, host);
	if (js_str(reply, "partly"))
		line(w, "note: %s", js_str(reply, "message"));
}

static void print_reply(const struct wish *w, const char *host, const struct js *reply)
{
	print_rule(w, host, reply);
	if (js_bool_or(reply, "restart_needed", false))
		line(w,
		     "restart needed: its jail was made without a way to this, and gets one with its next "
		     "start: sbxsv restart %s",
		     w->app);
	else if (!js_bool_or(reply, "running", true))
		line(w, "it is not running (%s): the rule counts from its next start",
		     js_str(reply, "state") ? js_str(reply, "state") : "?");
}

/* --- the supervisor --- */

static int ask(struct wish *w, struct ctl_client *cl, const char *host, struct js **ret)
{
	CLEANUP_FREE char *suffix = xasprintf("/%s", verb(w)), *path = remote_app_path(w->app, suffix);
	CLEANUP_JS struct js *body = js_obj(), *reply = NULL;
	int code;
	int64_t result;

	if (!path)
		return CLI_NO_APP;
	js_add_str(body, "host", host);
	if (w->for_ms)
		js_add_int(body, "for_ms", w->for_ms);
	if (w->save)
		js_add_bool(body, "saved", true);
	code = remote_call(cl, "POST", path, body, &reply);
	if (code)
		return code;
	result = js_int_or(reply, "code", CLI_FAILED);
	if (result) {
		const char *text = js_str(reply, "message");

		(void)cli_fail(CLI_FAILED, "%s: %s", w->app, text ? text : "failed");
		return result > 0 && result <= CLI_REFUSED ? (int)result : CLI_FAILED;
	}
	*ret = TAKE_PTR(reply);
	return CLI_OK;
}

static int at_run_time(struct wish *w, char *const *hosts)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL;
	int worst = remote_open(w->c, &cl);

	if (worst == CLI_NO_SUPERVISOR)
		(void)cli_fail(worst,
			       "a rule at run time needs a running app; --save writes it into the unit");
	for (; !worst && *hosts; hosts++) {
		CLEANUP_JS struct js *reply = NULL;

		worst = ask(w, cl, *hosts, &reply);
		if (worst)
			break;
		if (w->c->json)
			js_push(w->replies, TAKE_PTR(reply));
		else
			print_reply(w, *hosts, reply);
	}
	return worst;
}

/* --- saved --- */

struct edits {
	struct wish *w;
	struct unit_edit *v;
	size_t n, cap;
	struct strv texts;                    /* what `v` points to */
	size_t *grants, n_grants, cap_grants; /* those of `v` that allow: is there a Deny= that wins? */
	enum policy_key *keys;
	size_t cap_keys;
	int refused; /* accept() said no by a rule: the exit code */
};

static void edits_finish(struct edits *x)
{
	free(x->v);
	free(x->grants);
	free(x->keys);
	strv_clear(&x->texts);
}

static void edit(struct edits *x, enum policy_key key, char *text, bool remove)
{
	strv_take(&x->texts, text);
	VEC_GROW(x->v, x->n, x->cap);
	x->v[x->n++] = (struct unit_edit){.key = policy_key_name(key), .text = text, .remove = remove};
}

static int bad_rule(const char *host, const struct err *e)
{
	CLEANUP_FREE char *safe = cli_safe(host), *why = cli_safe(err_msg(e));

	return cli_fail(err_code(e) == EPERM ? CLI_REFUSED : CLI_USAGE, "%s: %s", safe, why);
}

static int edit_allow(struct edits *x, const char *host)
{
	CLEANUP_ERR struct err *e = NULL;
	enum policy_key key = POLICY_ALLOW;
	char *text = NULL, *against = NULL;

	if (policy_grant_key(host, &key, &e) < 0 || policy_canon_rule(key, host, &text, &e) < 0)
		return bad_rule(host, e);
	if (policy_canon_rule(POLICY_DENY, host, &against, NULL) == 0)
		edit(x, POLICY_DENY, against, true);
	VEC_GROW(x->grants, x->n_grants, x->cap_grants);
	VEC_GROW(x->keys, x->n_grants, x->cap_keys);
	x->keys[x->n_grants] = key;
	x->grants[x->n_grants++] = x->n;
	edit(x, key, text, false);
	return CLI_OK;
}

static int edit_deny(struct edits *x, const char *host)
{
	CLEANUP_ERR struct err *e = NULL;
	char *text = NULL, *grant = NULL, *address = NULL;
	bool valid = policy_canon_rule(POLICY_DENY, host, &text, &e) == 0;

	if (policy_canon_rule(POLICY_ALLOW, host, &grant, NULL) == 0)
		edit(x, POLICY_ALLOW, grant, true);
	if (policy_canon_rule(POLICY_ADDRESS, host, &address, NULL) == 0)
		edit(x, POLICY_ADDRESS, address, true);
	if (valid)
		edit(x, POLICY_DENY, text, false);
	else if (!address) /* a network has no Deny=, but its AllowAddress= can go */
		return bad_rule(host, e);
	return CLI_OK;
}

static int no_deny_wins(struct edits *x, const struct policy *p, struct err **e)
{
	for (size_t i = 0; i < x->n_grants; i++) {
		const char *text = x->v[x->grants[i]].text;
		struct policy_answer answer;

		if (policy_answer_rule(p, x->keys[i], text, &answer, e) < 0)
			return -1;
		if (answer.refused == answer.ports) {
			x->refused = CLI_REFUSED;
			return err_set(e, EPERM,
				       "%s=%s would change nothing, because %s wins: change that first",
				       policy_key_name(x->keys[i]), text, answer.verdict.rule);
		}
		if (answer.refused && !x->w->c->json)
			line(x->w, "note: port %u of %s stays refused by %s", answer.port, text,
			     answer.verdict.rule);
	}
	return 0;
}

/* The unit as it would be. */
static int accept_unit(void *data, const struct unit *u, struct err **e)
{
	struct edits *x = data;
	struct policy *p;
	int r;

	if (u->enforce == UNIT_ENFORCE_OFF) {
		x->refused = CLI_REFUSED;
		return err_set(
			e, EPERM,
			"it runs without a jail (Enforce=off) and reaches everything: rules mean nothing");
	}
	p = rules_of_unit(u, e);
	if (!p)
		return -1;
	r = no_deny_wins(x, p, e);
	if (r == 0 && !proxyctl_policy_fits(p))
		r = err_set(e, E2BIG, "the network rules would be too many for one app");
	policy_destroy(p);
	return r;
}

static int write_dropin(struct edits *x, struct unit_dropin *ret)
{
	struct unit_problems problems = {0};
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FREE char *wrong = NULL;

	if (unit_dropin_edit(&x->w->c->dirs, x->w->app, x->v, x->n, accept_unit, x, ret, &problems, &e) == 0)
		return CLI_OK;
	wrong = unit_problems_text(&problems);
	unit_problems_clear(&problems);
	if (*wrong)
		return cli_fail(CLI_FAILED,
				"%s: nothing was written, because the unit would not be valid:\n%s",
				x->w->app, wrong);
	return cli_fail(x->refused ? x->refused : CLI_FAILED, "%s: %s", x->w->app, err_msg(e));
}

/* It starts again by itself: with the rules it has now. */
static int await_start(struct wish *w, struct ctl_client *cl)
{
	CLEANUP_FREE char *path = remote_app_path(w->app, "/start");
	CLEANUP_JS struct js *body = js_obj(), *reply = NULL;
	int code;

	if (!w->c->json)
		line(w, "it is started again, because its way to the network is made with its jail");
	js_add_bool(body, "wait", true);
	code = path ? remote_call(cl, "POST", path, body, &reply) : CLI_NO_APP;
	if (!code && js_int_or(reply, "code", CLI_FAILED))
		code = cli_fail(CLI_FAILED, "%s",
				js_str(reply, "message") ? js_str(reply, "message") : "failed");
	return code;
}

static int put_in_force(struct wish *w, char *const *hosts)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL;
	CLEANUP_ERR struct err *e = NULL;
	bool restarting = false;

	cl = ctl_client_open(&w->c->dirs, &e);
	if (!cl && remote_open_code(e) == CLI_NO_SUPERVISOR) {
		if (!w->c->json)
			line(w, "no supervisor runs: it counts from the next start");
		return CLI_OK;
	}
	if (!cl)
		return cli_fail(remote_open_code(e), "it was written, but it is not in force: %s",
				err_msg(e));
	for (; *hosts; hosts++) {
		CLEANUP_JS struct js *reply = NULL;
		int code = ask(w, cl, *hosts, &reply);

		if (code)
			return code;
		restarting |= js_bool_or(reply, "restarting", false);
		if (w->c->json)
			js_push(w->replies, TAKE_PTR(reply));
		else if (!hosts[1] && !restarting)
			print_reply(w, *hosts, reply);
	}
	return restarting ? await_start(w, cl) : CLI_OK;
}

static int save(struct wish *w, char *const *hosts)
{
	CLEANUP(edits_finish) struct edits x = {.w = w};
	CLEANUP_FREE char *path = NULL;
	struct unit_dropin dropin;
	int code = CLI_OK;

	for (char *const *h = hosts; *h && !code; h++)
		code = w->deny ? edit_deny(&x, *h) : edit_allow(&x, *h);
	if (!code)
		code = write_dropin(&x, &dropin);
	if (code)
		return code;
	path = dropin.path;
	for (size_t i = 0; i < x.n && !w->c->json; i++)
		if (!x.v[i].remove)
			line(w, "%s=%s %s %s", x.v[i].key, x.v[i].text,
			     dropin.changed ? "is written into" : "stands already in", path);
	return put_in_force(w, hosts);
}

/* --- */

static int run(struct cli *c, const struct cli_args *a, const struct command *cmd, bool deny)
{
	struct wish w = {.c = c, .cmd = cmd, .deny = deny, .save = cli_has(a, OPT_SAVE)};
	CLEANUP_JS struct js *all = js_obj();
	const char *time = cli_value(a, OPT_FOR);
	int code;

	if (a->n_rest < 2)
		return cli_usage(cmd, "%s: name an app and a host", cmd->name);
	if (time && w.save)
		return cli_usage(cmd, "%s: --for and --save exclude each other: what is saved has no end",
				 cmd->name);
	if (time &&
	    (parse_duration_ms(time, &w.for_ms) || w.for_ms < 1 || w.for_ms > 366 * INT64_C(86400000)))
		return cli_usage(cmd, "%s --for: a time such as 30s, 10m or 1h is needed", cmd->name);
	w.app = a->rest[0];
	if (!unit_name_valid(w.app))
		return cli_bad_name(w.app);
	if (w.save && !subject_exists(c, w.app))
		return subject_complain(c, w.app);
	w.replies = js_arr();
	code = w.save ? save(&w, a->rest + 1) : at_run_time(&w, a->rest + 1);
	js_add_str(all, "app", w.app);
	js_add(all, "rules", w.replies);
	if (c->json && !code)
		remote_print_json(all);
	return code;
}

static int run_allow(struct cli *c, const struct cli_args *a)
{
	if (allow_path_asked(a) && cli_has(a, OPT_FOR))
		return cli_usage(&cmd_allow,
				 "allow: a path or a port of this machine is granted for good: no --for");
	if (allow_path_asked(a))
		return allow_path(c, a);
	return run(c, a, &cmd_allow, false);
}

static int run_deny(struct cli *c, const struct cli_args *a)
{
	return run(c, a, &cmd_deny, true);
}

static const struct cli_option options[] = {
	{OPT_FOR, "for", "TIME", "for so long: 30s, 10m, 1h (default: until the supervisor ends)"},
	{OPT_SAVE, "save", NULL,
	 "for good: written into NAME.app.d/50-allow.conf, with or without a supervisor"},
	{0, NULL, NULL, NULL},
};

static const struct cli_option allow_options[] = {
	{OPT_ALLOW_READ, "read", "PATH",
	 "no host but a path: the app may read it; for good, and it is started again"},
	{OPT_ALLOW_WRITE, "write", "PATH", "likewise: it may read and write it"},
	{OPT_ALLOW_SOCKET, "unix-socket", "PATH", "likewise: it may connect to this socket"},
	{OPT_ALLOW_LOOPBACK, "loopback", "PORT",
	 "no host but a port of this machine (or app:NAME): 127.0.0.1:PORT reaches it; for good, and at "
	 "once"},
	{OPT_FOR, "for", "TIME", "for so long: 30s, 10m, 1h (default: until the supervisor ends)"},
	{OPT_SAVE, "save", NULL,
	 "for good: written into NAME.app.d/50-allow.conf, with or without a supervisor"},
	{0, NULL, NULL, NULL},
};

const struct command cmd_allow = {
	.name = "allow",
	.usage = "allow APP HOST[:PORT]... [--for TIME|--save] [--json] | allow APP "
		 "--read|--write|--unix-socket PATH... | allow APP --loopback PORT...",
	.help = "let an app reach a site, an address or a port of this machine, at once; or see a path, by "
		"starting it again",
	.flags = CLI_JSON,
	.options = allow_options,
	.fn = run_allow,
};
const struct command cmd_deny = {
	.name = "deny",
	.usage = "deny APP HOST[:PORT]... [--for TIME|--save] [--json]",
	.help = "the opposite of allow: takes such a rule back, or refuses what the unit allows",
	.flags = CLI_JSON,
	.options = options,
	.fn = run_deny,
};
