#include "cli/remote.h"
#include "cli/status.h"
#include "cli/table.h"
#include "cli/watch.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { OPT_WATCH = CLI_LONG };

/* --- all apps --- */

char *status_duration(const struct js *app, const char *key)
{
	int64_t ms;

	return js_int(app, key, &ms) ? NULL : format_duration(ms);
}

static char *ports_of(const struct js *app)
{
	struct strbuf b = STRBUF_INIT;

	for (const struct js *p = js_first(js_get(app, "ports")); p; p = js_next(p)) {
		int64_t host = js_int_or(p, "host", 0), inside = js_int_or(p, "app", host);

		strbuf_addf(&b, "%s%" PRId64, b.len ? "," : "", host);
		if (inside != host)
			strbuf_addf(&b, ":%" PRId64, inside);
	}
	return strbuf_take(&b);
}

/* One word for what the running process got; never better than the whole truth below it. */
char *status_isolation_word(const struct js *app)
{
	static const char *const parts[] = {"mount_ns", "pid_ns", "net_ns", "seccomp", "no_new_privs", NULL};
	const struct js *i = js_get(app, "isolation");
	const char *backend = js_str(i, "backend");
	bool whole = true;

	if (!i)
		return NULL;
	for (const char *const *p = parts; *p; p++)
		whole = whole && js_bool_or(i, *p, false);
	if (!backend || str_eq(backend, "none"))
		return xstrdup("NONE");
	if (!whole || js_len(js_get(i, "missing")) || js_bool_or(i, "survivors_possible", false))
		return xasprintf("%s (partial)", backend);
	return xstrdup(backend);
}

/* Of a session app: "resting for 12s, starts with the next connection", "1 connection", "unused for 5s, rests in 55s". */
char *status_session_note(const struct js *app)
{
	const struct js *s = js_get(app, "session");
	CLEANUP_FREE char *unused = status_duration(s, "idle_ms"), *left = status_duration(s, "rests_in_ms");
	int64_t n = js_int_or(s, "connections", 0);

	if (!s)
		return NULL;
	if (str_eq(js_str(app, "state"), "idle"))
		return xasprintf("resting for %s, starts with the next connection", unused ? unused : "?");
	if (left && !n)
		return xasprintf("unused for %s, rests in %s", unused ? unused : "?", left);
	return js_get(s, "connections") ? xasprintf("%" PRId64 " connection%s", n, n == 1 ? "" : "s") : NULL;
}

static char *note_of(const struct js *app)
{
	const char *reason = js_str(app, "reason");
	const struct js *problem = js_first(js_get(app, "problems"));
	CLEANUP_FREE char *next = status_duration(app, "next_start_ms"), *use = status_session_note(app);
	struct strbuf b = STRBUF_INIT;

	if (js_bool_or(app, "restart_needed", false))
		strbuf_adds(&b, "restart needed");
	if (problem && js_value_str(problem))
		strbuf_addf(&b, "%sunit has errors: %s", b.len ? "; " : "", js_value_str(problem));
	if (reason && !problem) /* which is the reason */
		strbuf_addf(&b, "%s%.*s", b.len ? "; " : "", (int)strcspn(reason, "\n"), reason);
	if (next)
		strbuf_addf(&b, "%snext start in %s", b.len ? "; " : "", next);
	if (use)
		strbuf_addf(&b, "%s%s", b.len ? "; " : "", use);
	if (js_get(app, "preparing"))
		strbuf_addf(&b, "%spreparing: %s", b.len ? "; " : "",
			    js_str(js_get(app, "preparing"), "command"));
	if (js_len(js_get(app, "instances")))
		strbuf_addf(&b, "%s%zu instance%s", b.len ? "; " : "", js_len(js_get(app, "instances")),
			    js_len(js_get(app, "instances")) == 1 ? "" : "s");
	else if (str_eq(js_str(app, "mode"), "stdio") && !b.len)
		strbuf_adds(&b, "its clients start it");
	if (!js_bool_or(app, "enabled", true))
		strbuf_addf(&b, "%snot enabled", b.len ? "; " : "");
	return strbuf_take(&b);
}

static void add_row(struct table *t, const struct js *app)
{
	CLEANUP_FREE char *uptime = status_duration(app, "uptime_ms"), *ports = ports_of(app),
			  *isolation = status_isolation_word(app);
	CLEANUP_FREE char *note = note_of(app);
	int64_t pid;

	table_add(t, js_str(app, "name"));
	table_add(t, js_str(app, "state"));
	if (js_int(app, "pid", &pid))
		table_add(t, NULL);
	else
		table_addf(t, "%" PRId64, pid);
	table_add(t, uptime);
	table_addf(t, "%" PRId64, js_int_or(app, "launches", 0));
	table_add(t, ports);
	table_add(t, isolation);
	table_add(t, note);
}

static void print_all(const struct js *status)
{
	static const char *const header[] = {"NAME",     "STATE", "PID",       "UPTIME",
					     "LAUNCHES", "PORTS", "ISOLATION", "NOTE"};
	const struct js *sup = js_get(status, "supervisor");
	struct table t = {.columns = ELEMENTS(header)};

	for (size_t i = 0; i < ELEMENTS(header); i++)
		table_add(&t, header[i]);
	for (const struct js *a = js_first(js_get(status, "apps")); a; a = js_next(a))
		add_row(&t, a);
	if (js_len(js_get(status, "apps")))
		table_print(&t);
	else {
		const char *apps = js_str(js_get(sup, "instance_dirs"), "apps");
		CLEANUP_FREE char *dir = cli_safe(apps ? apps : "apps.d");

		strv_clear(&t.cells);
		printf("no apps; write a unit file in %s, or: sbxsv new NAME -- COMMAND\n", dir);
	}
	remote_complain(js_get(sup, "problems"));
	if (js_bool_or(sup, "shutting_down", false))
		puts("the supervisor is shutting down");
}

/* status APP answers "does it run?" with its exit code. */
static int code_of(const struct js *app)
{
	static const char *const up[] = {"running", "unhealthy", "starting", "idle", "waiting", NULL};
	const char *state = js_str(app, "state");

	for (const char *const *s = up; *s; s++)
		if (str_eq(*s, state))
			return CLI_OK;
	return CLI_NOT_RUNNING;
}

static int run(struct cli *c, const struct cli_args *a)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL;
	CLEANUP_FREE char *path = NULL;
	CLEANUP_JS struct js *reply = NULL;
	const char *app = a->n_rest ? a->rest[0] : NULL;
	int code;

	if (a->n_rest > 1)
		return cli_usage(&cmd_status, "status: name one app, or none for all");
	path = app ? remote_app_path(app, "") : xstrdup("/v1/status");
	if (!path)
		return CLI_NO_APP;
	if (cli_has(a, OPT_WATCH))
		return watch_status(c, app);
	code = remote_open(c, &cl);
	if (!code)
		code = remote_call(cl, "GET", path, NULL, &reply);
	if (code)
		return code;
	if (c->json)
		remote_print_json(reply);
	else if (app)
		status_print_app(reply);
	else
		print_all(reply);
	return app ? code_of(reply) : CLI_OK;
}

static const struct cli_option options[] = {
	{OPT_WATCH, "watch", NULL, "go on, and show it again when something happens; q ends"},
	{0, NULL, NULL, NULL},
};

const struct command cmd_status = {
	.name = "status",
	.usage = "status [APP] [--watch] [--json]",
	.options = options,
	.help = "all apps in a table, or one in full: what it got, what it was refused, why it does not run",
	.flags = CLI_JSON,
	.fn = run,
};
