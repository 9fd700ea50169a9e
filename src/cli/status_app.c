/* status APP: one app in full. */
#include "cli/remote.h"
#include "cli/status.h"
#include "cli/table.h"
#include "cli/violation.h"
#include "trace/observer.h"
#include "sandbox/limits.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void field(const char *label, const char *text)
{
	CLEANUP_FREE char *safe = NULL;

	if (!text || !*text)
		return;
	safe = cli_safe(text);
	printf("%14s: %s\n", label, safe);
}

static void field_list(const char *label, const struct js *list)
{
	for (const struct js *v = js_first(list); v; v = js_next(v)) {
		CLEANUP_FREE char *number = js_value_str(v) ? NULL : js_print(v);

		field(label, js_value_str(v) ? js_value_str(v) : number);
		label = "";
	}
}

static void field_number(const char *label, const struct js *obj, const char *key)
{
	CLEANUP_FREE char *text = NULL;
	int64_t n;

	if (js_int(obj, key, &n) == 0) {
		text = xasprintf("%" PRId64, n);
		field(label, text);
	}
}

/* Texts of several lines keep their lines, indented under the label. */
static void paragraph(const char *label, const char *text)
{
	CLEANUP_FREE char *first = NULL;
	size_t len;

	if (!text || !*text)
		return;
	len = strcspn(text, "\n");
	first = xstrndup(text, len);
	field(label, first);
	if (text[len])
		remote_print_lines("                ", text + len + 1);
}

static void print_isolation(const struct js *app)
{
	static const char *const parts[] = {"user_ns", "mount_ns",     "pid_ns",        "net_ns",
					    "seccomp", "no_new_privs", "nested_ns_off", NULL};
	const struct js *i = js_get(app, "isolation");
	CLEANUP_FREE char *word = status_isolation_word(app);
	CLEANUP_STRBUF struct strbuf have = STRBUF_INIT, lack = STRBUF_INIT;

	if (!i)
		return;
	for (const char *const *p = parts; *p; p++) {
		struct strbuf *b = js_bool_or(i, *p, false) ? &have : &lack;

		strbuf_addf(b, "%s%s", b->len ? " " : "", *p);
	}
	if (js_int_or(i, "landlock", 0) > 0)
		strbuf_addf(&have, " landlock=%" PRId64, js_int_or(i, "landlock", 0));
	else
		strbuf_adds(&lack, lack.len ? " landlock" : "landlock");
	field("isolation", word);
	field("in force", have.p);
	field("not there", lack.p);
	field_list("not in force", js_get(i, "missing"));
	if (js_str(i, "unix_why"))
		field("unix sockets", js_str(i, "unix_why"));
	if (js_bool_or(i, "survivors_possible", false))
		field("warning",
		      "survivors possible: without a pid namespace a process can outlive the app's stop");
	if (js_bool_or(i, "groups_kept", false))
		field("groups", "supplementary groups of this user could not be dropped");
}

static void print_ports(const struct js *app)
{
	const char *label = "ports";

	for (const struct js *p = js_first(js_get(app, "ports")); p; p = js_next(p)) {
		const char *address = js_str(p, "address"), *state = js_str(p, "state"),
			   *holder = js_str(p, "holder");
		CLEANUP_FREE char *text =
			xasprintf("%s:%" PRId64 " -> %" PRId64 " (%s%s%s)", address ? address : "",
				  js_int_or(p, "host", 0), js_int_or(p, "app", 0), state ? state : "?",
				  holder ? ": " : "", holder ? holder : "");

		field(label, text);
		label = "";
	}
}

/* What becomes of a new connection, in words. */
static const char *gate_text(const char *gate)
{
	return str_eq(gate, "serve")   ? "served"
	       : str_eq(gate, "rest")  ? "start the app"
	       : str_eq(gate, "hold")  ? "wait until the app takes them"
	       : str_eq(gate, "reset") ? "reset, because the app does not run"
				       : gate;
}

static const char *recorded_text(const char *mode)
{
	return str_eq(mode, "writes")
		       ? "recorded where it would write; reads too with Violations=all in [Audit]"
	       : str_eq(mode, "all") ? "recorded, reads too"
	       : str_eq(mode, "off") ? "not recorded (Violations=off)"
				     : mode;
}

static bool any_traffic(const struct js *counters)
{
	int64_t n;

	for (const struct js *v = js_first(counters); v; v = js_next(v))
		if (js_value_int(v, &n) == 0 && n > 0)
			return true;
	return false;
}

/* "Allow=x.com (allowed at run time until 14:05:00; 4m 12s left)" */
static void print_live_rules(const struct js *rules)
{
	const char *label = "at run time";

	for (const struct js *r = js_first(rules); r; r = js_next(r)) {
		const char *key = js_str(r, "key"), *text = js_str(r, "text"), *origin = js_str(r, "origin");
		CLEANUP_FREE char *left = status_duration(r, "expires_ms");
		CLEANUP_FREE char *shown = xasprintf("%s=%s (%s%s%s%s)", key ? key : "?", text ? text : "?",
						     origin ? origin : "?", left ? "; " : "",
						     left ? left : "", left ? " left" : "");

		field(label, shown);
		label = "";
	}
}

/* "app:notes at port 4810", with the port outside where that is another. */
static void print_loopback_apps(const struct js *list)
{
	const char *label = "reaches apps";

	for (const struct js *l = js_first(list); l; l = js_next(l)) {
		const char *name = js_str(l, "app");
		int64_t port = js_int_or(l, "port", 0), to = js_int_or(l, "to", port);
		CLEANUP_FREE char *at = port ? xasprintf(" at port %" PRId64, port) : xstrdup(""),
				  *moved = to != port ? xasprintf(" (now %" PRId64 ")", to) : xstrdup("");
		CLEANUP_FREE char *text = xasprintf("app:%s%s%s", name ? name : "?", at, moved);

		field(label, text);
		label = "";
	}
}

/* "12 allowed, 0 denied: notes.app:12 Allow=x.com" */
static void print_tally(const struct js *rules)
{
	const char *label = "by rule";

	for (const struct js *r = js_first(rules); r; r = js_next(r)) {
		const char *rule = js_str(r, "rule");
		CLEANUP_FREE char *text =
			xasprintf("%" PRId64 " allowed, %" PRId64 " denied: %s", js_int_or(r, "allowed", 0),
				  js_int_or(r, "denied", 0), rule ? rule : "?");

		field(label, text);
		label = "";
	}
}

/* Allowed, so no command would help: the site or the way to it is at fault. */
static void print_unreachable(const struct js *list)
{
	const char *label = "unreachable";

	for (const struct js *d = js_first(list); d; d = js_next(d)) {
		CLEANUP_FREE char *target = cli_denied_target(d);
		CLEANUP_FREE char *why = cli_safe(js_str(d, "reason"));
		CLEANUP_FREE char *text =
			xasprintf("%s %" PRId64 "x, %s", target, js_int_or(d, "count", 1), why);

		field(label, text);
		label = "";
	}
}

static void print_network(const struct js *app)
{
	const struct js *n = js_get(app, "counters");
	const char *label = "denied hosts";

	field("egress", str_eq(js_str(app, "egress"), "off")
				? "off (it reaches no host; Allow=HOST grants one)"
				: js_str(app, "egress"));
	if (js_str(app, "transparent") && !str_eq(js_str(app, "transparent"), "off"))
		field("transparent",
		      str_eq(js_str(app, "transparent"), "nf_tables")
			      ? "programs that know no proxy are caught and judged too (nf_tables)"
			      : js_str(app, "transparent"));
	field_list("allow", js_get(app, "allow"));
	field_list("deny", js_get(app, "deny"));
	field_list("addresses", js_get(app, "allow_address"));
	if (js_str(app, "upstream_proxy"))
		field("through", js_str(app, "upstream_proxy"));
	field_list("not through", js_get(app, "no_proxy"));
	print_live_rules(js_get(app, "live_rules"));
	field_list("loopback", js_get(app, "loopback"));
	print_loopback_apps(js_get(app, "loopback_apps"));
	print_ports(app);
	if (js_len(js_get(app, "ports")))
		field("new conns", gate_text(js_str(app, "gate")));
	if (any_traffic(n)) {
		CLEANUP_FREE char *in = format_bytes((uint64_t)js_int_or(n, "bytes_in", 0));
		CLEANUP_FREE char *out = format_bytes((uint64_t)js_int_or(n, "bytes_out", 0));

		printf("%14s: in %" PRId64 " (%" PRId64 " open), out %" PRId64 " allowed (%" PRId64
		       " open), %" PRId64 " denied; bytes %s in, %s out\n",
		       "connections", js_int_or(n, "in_total", 0), js_int_or(n, "in_open", 0),
		       js_int_or(n, "out_allowed", 0), js_int_or(n, "out_open", 0),
		       js_int_or(n, "out_denied", 0), in, out);
	}
	print_tally(js_get(app, "rules"));
	for (const struct js *d = js_first(js_get(app, "denied")); d; d = js_next(d)) {
		const char *hint = js_str(d, "hint"), *rule = js_str(d, "rule");
		CLEANUP_FREE char *target = cli_denied_target(d);
		CLEANUP_FREE char *text = xasprintf("%s %" PRId64 "x, %s%s%s", target,
						    js_int_or(d, "count", 1), rule ? rule : "?",
						    hint && *hint ? "; to allow it: " : "", hint ? hint : "");

		field(label, text);
		label = "";
	}
	print_unreachable(js_get(app, "unreachable"));
}

/* Hosts are shown above already, but for those of which the proxy does not hear. */
static bool shown_above(const struct js *v)
{
	const char *rule = js_str(v, "rule");

	return !js_str(v, "path") && !str_eq(rule, OBSERVED_RULE_EGRESS) &&
	       !str_eq(rule, OBSERVED_RULE_LOCAL);
}

static void print_violations(const struct js *app)
{
	const struct js *all = js_get(app, "violations"), *i = js_get(app, "isolation");
	const char *label = "refused";

	for (const struct js *v = js_first(js_get(all, "last")); v; v = js_next(v)) {
		CLEANUP_FREE char *text = NULL, *advice = NULL;

		if (shown_above(v))
			continue;
		text = violation_text(v);
		advice = violation_advice(v, js_str(app, "name"));
		printf("%14s: %s\n", label, text);
		if (advice)
			printf("%14s  %s%s\n", "", str_starts(advice, "sbxsv ") ? "to allow it: " : "",
			       advice);
		label = "";
	}
	if (js_int_or(all, "lost", 0))
		printf("%14s: %" PRId64 " calls came too fast to be judged\n", "not judged",
		       js_int_or(all, "lost", 0));
	if (i)
		field("file refusals", js_str(i, "violations_error")
					       ? js_str(i, "violations_error")
					       : recorded_text(js_str(i, "violations")));
}

/* "GET /health on 4810 answered 200 (12 checks, the last 2s ago)" */
static void print_health(const struct js *h)
{
	CLEANUP_FREE char *ago = status_duration(h, "last_ms"), *text = NULL;
	const char *last = js_str(h, "last");

	if (!h)
		return;
	if (last)
		text = xasprintf("%s (%" PRId64 " check%s, the last %s ago)", last, js_int_or(h, "checks", 0),
				 js_int_or(h, "checks", 0) == 1 ? "" : "s", ago ? ago : "?");
	field("health", text ? text : "not checked yet");
}

/* What it says of itself. The supervisor has made the text safe for a terminal; what it is told is not trusted twice. */
static void print_notify(const struct js *said)
{
	const char *status = js_str(said, "status");
	CLEANUP_FREE char *text = status ? str_escape(status, strlen(status)) : NULL,
			  *watchdog = status_duration(said, "watchdog_ms");

	field("it says", text);
	if (js_bool_or(said, "reloading", false))
		field("", "it is reloading");
	if (js_bool_or(said, "stopping", false))
		field("", "it is about to end");
	field("watchdog", watchdog);
	if (js_int_or(said, "ignored", 0))
		printf("%14s: %" PRId64 " messages to its $NOTIFY_SOCKET\n", "ignored",
		       js_int_or(said, "ignored", 0));
}

/* "Memory=64M, CPU=50%", then what of it is weaker than it says. */
static void print_limits(const struct js *l)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
	int64_t n;

	if (js_int(l, "memory_bytes", &n) == 0) {
		CLEANUP_FREE char *size = limits_size((uint64_t)n);

		strbuf_addf(&b, "Memory=%s", size);
	}
	if (js_int(l, "cpu_percent", &n) == 0)
		strbuf_addf(&b, "%sCPU=%" PRId64 "%%", b.len ? ", " : "", n);
	if (js_int(l, "tasks", &n) == 0)
		strbuf_addf(&b, "%sTasks=%" PRId64, b.len ? ", " : "", n);
	field("limits", b.p);
	field_list("of these", js_get(l, "missing"));
}

static void print_resources(const struct js *app)
{
	const struct js *log = js_get(app, "log");
	CLEANUP_FREE char *cpu = status_duration(app, "cpu_ms"), *memory = NULL;
	int64_t bytes, dropped = js_int_or(log, "dropped_lines", 0);

	if (js_int(app, "memory_bytes", &bytes) == 0 && bytes >= 0)
		memory = format_bytes((uint64_t)bytes);
	print_limits(js_get(app, "limits"));
	field_number("processes", app, "processes");
	field("memory", memory);
	field("processor", cpu);
	field("log", js_str(log, js_str(log, "path") ? "path" : "target"));
	if (dropped)
		printf("%14s: %" PRId64 " lines (%" PRId64 " bytes) could not be written\n", "log lost",
		       dropped, js_int_or(log, "dropped_bytes", 0));
	field("log trouble", js_str(log, "error"));
}

/* "1: pid 4711, by claude, for 2h 3m" */
static void print_instances(const struct js *list)
{
	const char *label = "instances";

	for (const struct js *i = js_first(list); i; i = js_next(i)) {
		CLEANUP_FREE char *uptime = status_duration(i, "uptime_ms"), *text = NULL;
		const char *client = js_str(i, "client");

		text = xasprintf("%" PRId64 ": pid %" PRId64 ", by %s, for %s%s", js_int_or(i, "number", 0),
				 js_int_or(i, "pid", 0), client ? client : "?", uptime ? uptime : "?",
				 js_bool_or(i, "restart_needed", false) ? "; started by an older unit" : "");
		field(label, text);
		label = "";
	}
}

static void print_life(const struct js *app)
{
	CLEANUP_FREE char *since = status_duration(app, "since_ms"),
			  *uptime = status_duration(app, "uptime_ms");
	CLEANUP_FREE char *next = status_duration(app, "next_start_ms"),
			  *state = cli_safe(js_str(app, "state")), *use = status_session_note(app);
	const struct js *last = js_get(app, "last_exit");
	const char *at = js_str(last, "at"), *text = js_str(last, "text");

	printf("%14s: %s%s%s%s\n", "state", state, since ? " (for " : "", since ? since : "",
	       since ? ")" : "");
	field("use", use);
	paragraph("why", js_str(app, "reason"));
	paragraph("what to do", js_str(app, "hint"));
	if (str_eq(js_str(app, "state"), "stopped") && !js_str(app, "reason") && js_str(app, "name")) {
		bool stdio = str_eq(js_str(app, "mode"), "stdio");
		CLEANUP_FREE char *start =
			xasprintf("sbxsv %s %s", stdio ? "run" : "start", js_str(app, "name"));

		field(stdio ? "a client runs" : "to start it", start);
	}
	field("useful too", js_str(app, "optional"));
	field("next start in", next);
	field_number("pid", app, "pid");
	field("uptime", uptime);
	field("preparing", js_str(js_get(app, "preparing"), "command"));
	print_instances(js_get(app, "instances"));
	field_number("launches", app, "launches");
	if (text) {
		CLEANUP_FREE char *exit_text = xasprintf("%s%s%s", text, at ? ", at " : "", at ? at : "");

		field("last exit", exit_text);
	}
	if (js_bool_or(app, "restart_needed", false)) {
		CLEANUP_FREE char *why =
			xasprintf("a newer definition, files of a newer app that are not hidden from it yet, "
				  "or a way to "
				  "the network that it was started without: sbxsv restart %s",
				  js_str(app, "name") ? js_str(app, "name") : "NAME");

		field("restart needed", why);
	}
}

void status_print_app(const struct js *app)
{
	field("name", js_str(app, "name"));
	field("description", js_str(app, "description"));
	print_life(app);
	if (!js_bool_or(app, "enabled", true))
		field("enabled", "no");
	field("mode", js_str(app, "mode"));
	field("user", js_str(app, "user"));
	field("unit", js_str(app, "file"));
	field_list("errors", js_get(app, "problems"));
	field_list("not in force", js_get(app, "not_in_force"));
	field("enforce", js_str(app, "enforce"));
	field("read mode", js_str(app, "read_mode"));
	print_isolation(app);
	field_list("secrets", js_get(app, "secrets"));
	print_network(app);
	print_violations(app);
	print_health(js_get(app, "health"));
	print_notify(js_get(app, "notify"));
	print_resources(app);
}
