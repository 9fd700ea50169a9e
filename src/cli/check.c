/*
 * Is it right, and what would it be allowed? Without a daemon, but with the daemon's own code: the reader of
 * src/unit, the plan of src/sandbox, the decisions of src/policy.
 */
#include "cli/subject.h"
#include "cli/limits_view.h"
#include "cli/live.h"
#include "base/file.h"
#include "base/parse.h"
#include "policy/local.h"
#include "policy/policy.h"
#include "sandbox/needs.h"
#include "sandbox/rules.h"
#include "unit/order.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { OPT_ALLOW = CLI_LONG, OPT_PATH };

/* --- files --- */

struct report {
	const struct cli *c;
	struct js *problems, *notes; /* with --json */
	struct strv seen;            /* what is wrong with the settings is found again with each unit */
	size_t n_problems, n_units;
	bool no_app;               /* a name was given that is none of an app */
	struct limits_view limits; /* asked when the first unit has some */
	bool limits_known;
};

static void problem(struct report *r, const struct unit_problem *p)
{
	CLEANUP_FREE char *file = cli_safe(p->file), *text = cli_safe(p->text);
	CLEANUP_FREE char *line =
		p->line ? xasprintf("%s:%u: %s", file, p->line, text) : xasprintf("%s: %s", file, text);
	struct js *j;

	for (size_t i = 0; i < r->seen.n; i++)
		if (str_eq(r->seen.v[i], line))
			return;
	r->n_problems++;
	if (!r->c->json)
		puts(line);
	strv_take(&r->seen, TAKE_PTR(line));
	if (!r->c->json)
		return;
	j = js_obj();
	js_add_str(j, "file", p->file);
	if (p->line)
		js_add_int(j, "line", p->line);
	js_add_str(j, "text", p->text);
	js_push(r->problems, j);
}

static void take_problems(struct report *r, struct unit_problems *p)
{
	for (size_t i = 0; i < p->n; i++)
		problem(r, &p->v[i]);
	unit_problems_clear(p);
}

static void note(struct report *r, const char *text)
{
	CLEANUP_FREE char *safe = cli_safe(text);

	if (r->c->json)
		js_push_str(r->notes, text);
	else
		printf("note: %s\n", safe);
}

static void note_limits(struct report *r, const struct unit *u)
{
	CLEANUP_STRV struct strv missing = {0};

	if (!u->limit_memory && !u->limit_cpu_percent && !u->limit_tasks)
		return;
	if (!r->limits_known)
		limits_view_get(r->c, &r->limits);
	r->limits_known = true;
	limits_missing(u, u->enforce != UNIT_ENFORCE_OFF, r->limits.has, (const char *const *)r->limits.why,
		       &missing);
	for (size_t i = 0; i < missing.n; i++) {
		CLEANUP_FREE char *text = xasprintf("%s: %s", u->name, missing.v[i]);

		note(r, text);
	}
}

static void note_needs(struct report *r, const struct unit *u, const struct plan *plan)
{
	CLEANUP_STRV struct strv notes = {0};

	needs_report(u, plan, &notes);
	for (size_t i = 0; i < notes.n; i++)
		note(r, notes.v[i]);
}

/* A unit that reads well: what is not acted on yet, and whether its jail can be planned on this machine. */
static void unit_is_valid(struct report *r, const struct unit *u, const struct unit_scan *scan)
{
	struct unit_problems p = {0};
	CLEANUP_PLAN struct plan *plan = NULL;

	r->n_units++;
	for (size_t i = 0; i < u->not_in_force.n; i++)
		note(r, u->not_in_force.v[i]);
	note_limits(r, u);
	plan = subject_plan(r->c, u, scan, &p);
	take_problems(r, &p);
	if (plan)
		note_needs(r, u, plan);
}

/* Names in After= and Requires= that nobody has. */
static void order_notes(struct report *r, const struct unit *u, const struct unit_scan *scan)
{
	CLEANUP_STRV struct strv notes = {0};

	unit_order_notes(u, scan, &notes);
	for (size_t i = 0; i < notes.n; i++)
		note(r, notes.v[i]);
}

/* One unit by itself: its ports are compared with those of all others, and the apps it names looked up. */
static void check_among_others(struct report *r, const struct unit *u)
{
	struct unit_problems p = {0};
	struct unit_scan scan = {0};

	if (unit_scan_dir(&r->c->dirs, &scan, NULL))
		return;
	unit_clash_check(u, &scan, scan.n, &p);
	unit_peers_check(u, &scan, &p);
	unit_order_check_one(u, &scan, &p);
	take_problems(r, &p);
	order_notes(r, u, &scan);
	unit_scan_finish(&scan);
}

static void check_one(struct report *r, const char *word)
{
	struct unit_problems p = {0};
	bool is_path = strchr(word, '/') || str_ends(word, ".app");
	CLEANUP_UNIT struct unit *u = NULL;

	if (is_path)
		u = unit_load_file(&r->c->dirs, word, &p);
	else if (!subject_exists(r->c, word)) {
		CLEANUP_FREE char *none = subject_none(r->c, word);

		unit_problem_add(&p, word, 0, "%s", none);
		r->no_app = true;
	} else
		u = unit_load(&r->c->dirs, word, &p);
	take_problems(r, &p);
	if (!u)
		return;
	unit_is_valid(r, u, NULL);
	check_among_others(r, u);
}

static void check_conf(struct report *r)
{
	struct unit_problems p = {0};
	struct conf conf = {0};

	(void)conf_load(&r->c->dirs, &conf, &p);
	conf_finish(&conf);
	take_problems(r, &p);
}

static int check_all(struct report *r)
{
	CLEANUP_ERR struct err *e = NULL;
	struct unit_scan scan = {0};

	check_conf(r);
	if (unit_scan_dir(&r->c->dirs, &scan, &e))
		return cli_fail(CLI_FAILED, "%s", err_msg(e));
	take_problems(r, &scan.problems);
	for (size_t i = 0; i < scan.n; i++) {
		struct unit_problems p = {0};

		take_problems(r, &scan.v[i].problems);
		if (!scan.v[i].unit)
			continue;
		unit_is_valid(r, scan.v[i].unit, &scan);
		unit_clash_check(scan.v[i].unit, &scan, i, &p); /* with those before it: each pair once */
		take_problems(r, &p);
		order_notes(r, scan.v[i].unit, &scan);
	}
	unit_scan_finish(&scan);
	return CLI_OK;
}

static void print_report(struct report *r)
{
	CLEANUP_JS struct js *j = NULL;
	CLEANUP_FREE char *text = NULL;

	if (r->c->json) {
		j = js_obj();
		js_add_int(j, "units", (int64_t)r->n_units);
		js_add(j, "problems", TAKE_PTR(r->problems));
		js_add(j, "notes", TAKE_PTR(r->notes));
		text = js_print_pretty(j);
		puts(text);
	} else if (!r->n_problems) {
		printf("%zu unit%s, no errors\n", r->n_units, r->n_units == 1 ? "" : "s");
	} else {
		(void)cli_fail(CLI_FAILED, "%zu error%s", r->n_problems, r->n_problems == 1 ? "" : "s");
	}
}

static int check_files(struct cli *c, const struct cli_args *a)
{
	struct report r = {.c = c, .problems = c->json ? js_arr() : NULL, .notes = c->json ? js_arr() : NULL};
	int code = CLI_OK;

	for (int i = 0; i < a->n_rest; i++)
		check_one(&r, a->rest[i]);
	if (!a->n_rest)
		code = check_all(&r);
	print_report(&r);
	limits_view_finish(&r.limits);
	strv_clear(&r.seen);
	return code ? code : r.no_app ? CLI_NO_APP : r.n_problems ? CLI_FAILED : CLI_OK;
}

/* --- questions --- */

/* `access`: how much of a path is granted, in words; NULL: it is about a host. `live`: what was asked about the rules
 * of the run time; NULL: they do not matter. */
static int answer(const struct cli *c, bool allowed, const char *what, const char *access, const char *rule,
		  const char *reason, const char *hint, const struct live_view *live)
{
	CLEANUP_FREE char *s_what = cli_safe(what), *s_rule = cli_safe(rule), *s_reason = cli_safe(reason),
			  *s_hint = cli_safe(hint);

	if (c->json) {
		CLEANUP_JS struct js *j = js_obj();
		CLEANUP_FREE char *text = NULL;

		js_add_bool(j, "allowed", allowed);
		js_add_str(j, "target", what);
		if (access)
			js_add_str(j, "access", access);
		js_add_str(j, "rule", rule);
		js_add_str(j, "reason", reason);
		js_add_str(j, "hint", hint && *hint ? hint : NULL);
		if (live && live->asked)
			js_add_int(j, "live_rules", (int64_t)live->n);
		text = js_print_pretty(j);
		puts(text);
		return allowed ? CLI_OK : CLI_REFUSED;
	}
	printf("%s: %s", allowed ? "allowed" : "refused", s_what);
	if (access)
		printf(" (%s)", access);
	printf("\n  rule: %s\n", s_rule);
	if (reason && *reason)
		printf("  why: %s\n", s_reason);
	if (hint && *hint)
		printf("  to allow it: %s\n", s_hint);
	if (live && live->asked)
		printf("  asked: the unit, and %zu rule%s given at run time\n", live->n,
		       live->n == 1 ? "" : "s");
	else if (live)
		printf("  asked: the unit; no supervisor runs that may have other rules\n");
	return allowed ? CLI_OK : CLI_REFUSED;
}

/* "host", "host:port", "[v6]", "[v6]:port", a bare v6 address. The port is 443 when none is given. */
static int split_target(const char *text, char **ret_host, uint16_t *ret_port)
{
	const char *colon = strrchr(text, ':'), *end;
	struct addr a;

	*ret_port = 0;
	if (text[0] == '[') {
		end = strchr(text, ']');
		if (!end || (end[1] && (end[1] != ':' || parse_port(end + 2, ret_port))))
			return -1;
		*ret_host = xstrndup(text + 1, (size_t)(end - text) - 1);
		return 0;
	}
	if (!colon || host_parse_addr(text, strlen(text), &a) == 0) {
		*ret_host = xstrdup(text);
		return 0;
	}
	if (parse_port(colon + 1, ret_port))
		return -1;
	*ret_host = xstrndup(text, (size_t)(colon - text));
	return 0;
}

/* What ends at a listener that Loopback= makes inside: 127.0.0.1 and ::1, and the unspecified address, which
 * the kernel takes for them (connect(2) on tcp(7) sockets: ip_route_output_key_hash_rcu(), tcp_v6_connect()).
 * Nothing else of 127.0.0.0/8. */
static bool is_loopback(const char *host)
{
	static const char *const addresses[] = {"127.0.0.1", "::1", "0.0.0.0", "::"};
	struct addr a, known;

	if (host_parse_addr(host, strlen(host), &a) < 0)
		return strcasecmp(host, "localhost") == 0;
	for (size_t i = 0; i < ELEMENTS(addresses); i++)
		if (host_parse_addr(addresses[i], strlen(addresses[i]), &known) == 0 &&
		    addr_equal(&a, &known))
			return true;
	return false;
}

/* The line that grants this port of the host; NULL: none. Owned by caller. */
static char *loopback_grant(const struct cli *c, const struct unit *u, const char *host, uint16_t port)
{
	CLEANUP(unit_scan_finish) struct unit_scan scan = {0};

	if (!is_loopback(host))
		return NULL;
	for (size_t i = 0; i < u->n_loopback; i++)
		if (u->loopback[i] == port)
			return xasprintf("Loopback=%u", port);
	if (!u->loopback_app.n || unit_scan_dir(&c->dirs, &scan, NULL) < 0)
		return NULL;
	for (size_t i = 0; i < u->loopback_app.n; i++)
		for (size_t k = 0; k < scan.n; k++) {
			const struct unit *peer = scan.v[k].unit;

			if (peer && peer->n_listen && peer->listen[0].host_port == port &&
			    str_eq(scan.v[k].name, u->loopback_app.v[i].text))
				return xasprintf("%s Loopback=app:%s", u->loopback_app.v[i].origin,
						 u->loopback_app.v[i].text);
		}
	return NULL;
}

/* What the rules grant and the kernel calls this machine's own is refused, as by the proxy when it dials. */
static int decide_addr(const struct policy *p, const struct addr *a, uint16_t port, struct verdict *ret,
		       struct err **e)
{
	struct verdict v;

	policy_decide_addr(p, a, port, &v);
	if (v.action == VERDICT_ALLOW) {
		if (local_open(e) < 0)
			return -1;
		if (local_route(a) == ROUTE_LOCAL)
			policy_decide_own(port, &v);
	}
	*ret = v;
	return 0;
}

static int decide(const struct policy *p, const char *host, uint16_t port, struct verdict *ret,
		  struct err **e)
{
	char canonical[HOST_MAX];
	struct addr a;

	if (host_parse_addr(host, strlen(host), &a) == 0)
		return decide_addr(p, &a, port, ret, e);
	if (host_canon(host, strlen(host), canonical, e))
		return -1;
	policy_decide_host(p, canonical, port, ret);
	return 0;
}

/* Asked without a port, and 443 is not allowed: is another? That is when policy DNS knows the name. */
static bool decide_any_port(const struct policy *p, const char *host, struct verdict *ret)
{
	char canonical[HOST_MAX];
	struct verdict v;

	if (host_canon(host, strlen(host), canonical, NULL))
		return false;
	policy_decide_name(p, canonical, &v);
	if (v.action == VERDICT_ALLOW)
		*ret = v;
	return v.action == VERDICT_ALLOW;
}

/* How a name gets there when another proxy resolves it; NULL: directly. Owned by caller. */
static char *through(const struct policy *p, const char *host, uint16_t port)
{
	const struct upstream *u;
	char canonical[HOST_MAX];
	struct addr a;

	if (host_parse_addr(host, strlen(host), &a) == 0 || host_canon(host, strlen(host), canonical, NULL))
		return NULL;
	u = policy_upstream(p, canonical, NULL, port);
	return u ? xasprintf("by its name; the proxy %s resolves it (%s UpstreamProxy=)", u->shown,
			     u->origin ? u->origin : "")
		 : NULL;
}

static int check_allow(struct cli *c, const char *app, const char *target)
{
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_UNIT struct unit *u = NULL;
	CLEANUP_FREE char *host = NULL, *shown = NULL, *line = NULL, *via = NULL;
	CLEANUP(live_view_finish) struct live_view live = {0};
	struct policy *p;
	struct verdict v;
	const char *how;
	uint16_t port;
	bool any;
	int code = CLI_FAILED;

	if (split_target(target, &host, &port))
		return cli_usage(&cmd_check, "check --allow: \"%s\" is not HOST or HOST:PORT", target);
	any = port == 0;
	port = any ? 443 : port;
	u = subject_load(c, app, &code);
	if (!u)
		return code;
	shown = xasprintf(strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
	if (u->enforce == UNIT_ENFORCE_OFF)
		return answer(c, true, shown, NULL, "Enforce=off",
			      "this app runs without a jail and reaches everything", NULL, NULL);
	line = loopback_grant(c, u, host, port);
	if (line)
		return answer(c, true, shown, NULL, line, "this port of this machine is named in the unit",
			      NULL, NULL);
	live_view_get(c, app, &live);
	p = rules_with(u, live.v, live.n, &e);
	if (!p || decide(p, host, port, &v, &e)) {
		policy_destroy(p);
		return cli_fail(CLI_FAILED, "%s", err_msg(e));
	}
	how = "by its name; every address it resolves to must be public too";
	if (any && v.action == VERDICT_DENY && decide_any_port(p, host, &v)) {
		how = "by its name, and not at port 443 but at those of the rule";
		free(shown);
		shown = xstrdup(host);
	}
	via = through(p, host, port);
	if (via)
		how = via;
	policy_destroy(p);
	if (v.action == VERDICT_DENY && is_loopback(host)) {
		line = xasprintf("Loopback=%u", port);
		return answer(c, false, shown, NULL, v.rule, v.reason, line, &live);
	}
	return answer(c, v.action == VERDICT_ALLOW, shown, NULL, v.rule,
		      v.action == VERDICT_ALLOW && !v.literal && !v.by_address ? how : v.reason, v.hint,
		      &live);
}

/* Links of the disk are resolved as far as the path exists; below that it is taken as it is. */
static char *resolve(const char *path)
{
	CLEANUP_FREE char *cwd = path[0] == '/' ? NULL : getcwd(NULL, 0),
			  *full = path_join(cwd ? cwd : "/", path);
	CLEANUP_FREE char *head = xstrdup(full);

	for (;;) {
		CLEANUP_FREE char *real = realpath(head, NULL), *up = NULL;
		size_t len = strlen(head);

		if (real)
			return path_join(real, full[len] ? full + len + (full[len] == '/') : ".");
		if (str_eq(head, "/"))
			return xstrdup(full);
		up = path_dirname(head);
		free(head);
		head = TAKE_PTR(up);
	}
}

/* Would Read= of this path make a plan? The unit is changed. */
static bool read_would_do(const struct cli *c, struct unit *u, const char *path)
{
	struct unit_problems problems = {0};
	CLEANUP_PLAN struct plan *plan = NULL;
	struct unit_list *l = &u->read;

	VEC_GROW(l->v, l->n, l->cap);
	l->v[l->n++] = (struct unit_value){.text = xstrdup(path), .origin = xstrdup("--path")};
	plan = subject_plan(c, u, NULL, &problems);
	unit_problems_clear(&problems);
	return plan != NULL;
}

/* The jail grants, the mode of the file still refuses: then say so. Under root the app is another user. */
static char *mode_refuses(const struct cli *c, const char *path, bool root)
{
	if (root || access(path, R_OK) == 0 || errno != EACCES)
		return NULL;
	return xasprintf("the jail does not stand in its way, but its permissions do not let %s read it",
			 c->dirs.user);
}

/* The line that would grant it; NULL where none does: what is sbxsv's own, another app's, or hidden by the
 * unit. */
static char *path_hint(const struct cli *c, struct unit *u, const char *path, const struct plan_path *by)
{
	static const char secret[] = "secret place (";
	const char *name;

	if (!by)
		return read_would_do(c, u, path)
			       ? xasprintf("sbxsv allow %s --read %s (or --write)", u->name, path)
			       : NULL;
	if (!str_starts(by->reason, secret))
		return NULL;
	name = by->reason + sizeof secret - 1;
	return xasprintf("Secret=%.*s", (int)strcspn(name, ")"), name);
}

static const char *access_words(const struct cli *c, enum plan_access granted)
{
	switch (granted) {
	case PLAN_WRITE:
		return c->json ? "write" : "read and write";
	case PLAN_READ:
		return c->json ? "read" : "read only";
	default:
		return c->json ? "none" : "not there for the app";
	}
}

static int check_path(struct cli *c, const char *app, const char *path)
{
	struct unit_problems problems = {0};
	CLEANUP_UNIT struct unit *u = NULL;
	CLEANUP_PLAN struct plan *plan = NULL;
	CLEANUP_FREE char *cwd = path[0] == '/' ? NULL : getcwd(NULL, 0),
			  *full = path_join(cwd ? cwd : "/", path);
	CLEANUP_FREE char *real = resolve(path), *wrong = NULL, *hint = NULL, *why = NULL;
	const struct plan_fs fs = plan_fs_real();
	const struct plan_path *by = NULL;
	enum plan_access granted;
	int code = CLI_FAILED;

	u = subject_load(c, app, &code);
	if (!u)
		return code;
	plan = subject_plan(c, u, NULL, &problems);
	wrong = unit_problems_text(&problems);
	unit_problems_clear(&problems);
	if (!plan)
		return cli_fail(CLI_FAILED, "%s", wrong);
	if (u->enforce == UNIT_ENFORCE_OFF)
		return answer(c, true, real, NULL, "Enforce=off", "this app runs without a jail", NULL, NULL);
	granted = plan_decide_on_disk(plan, &fs, full, &by);
	hint = granted == PLAN_HIDE ? path_hint(c, u, real, by) : NULL;
	why = granted != PLAN_HIDE ? mode_refuses(c, real, c->dirs.root_mode) : NULL;
	return answer(c, granted != PLAN_HIDE, real, access_words(c, granted),
		      by ? by->reason : "nothing grants it", why, hint, NULL);
}

static int run(struct cli *c, const struct cli_args *a)
{
	bool allow = cli_has(a, OPT_ALLOW), path = cli_has(a, OPT_PATH);

	if (allow && path)
		return cli_usage(&cmd_check, "check: one question at a time, --allow or --path");
	if ((allow || path) && a->n_rest != 2)
		return cli_usage(&cmd_check, "check %s: name an app and a %s", allow ? "--allow" : "--path",
				 allow ? "host" : "path");
	if (allow)
		return check_allow(c, a->rest[0], a->rest[1]);
	if (path)
		return check_path(c, a->rest[0], a->rest[1]);
	return check_files(c, a);
}

static const struct cli_option options[] = {
	{OPT_ALLOW, "allow", NULL,
	 "APP HOST[:PORT]: may the app reach it, and by which rule? Exit code 0 or 6"},
	{OPT_PATH, "path", NULL,
	 "APP PATH: may the app read or write it, and by which rule? Exit code 0 or 6"},
	{0, NULL, NULL, NULL},
};

const struct command cmd_check = {
	.name = "check",
	.usage = "check [FILE|NAME]... [--json] | check --allow APP HOST[:PORT] | check --path APP PATH",
	.help = "find every error of units, or ask what an app may do; needs no supervisor",
	.flags = CLI_JSON,
	.options = options,
	.fn = run,
};
