/*
 * Why an app is not running, in words for a person: what happened, the last lines it wrote, what it was
 * refused, what to do. The first line of a reason stands by itself (in the table of sbxsv status); what
 * follows is below it.
 */
#include "sup/app.h"
#include "base/clock.h"
#include "policy/policy.h"
#include <arpa/inet.h>
#include <string.h>

#define LAST_LINES   5 /* of its log in the reason of a failure */
#define REFUSALS_MAX 3
#define SEEN_MAX     64 /* listeners inside a jail that are looked at */

/* The last lines that the app itself wrote since its last start; those of ours in the log say nothing new
 * here. */
static void add_last_output(const struct app *a, struct strbuf *b)
{
	CLEANUP_STRV struct strv lines = {0};
	size_t first = 0, theirs = 0, skip;

	if (!a->logs)
		return;
	logs_tail(a->logs, 8 * LAST_LINES, &lines);
	for (size_t i = 0; i < lines.n; i++)
		if (str_starts(lines.v[i], LOG_STARTED) || str_starts(lines.v[i], LOG_PREPARING))
			first = i;
	for (size_t i = first; i < lines.n; i++)
		theirs += !str_starts(lines.v[i], "[sbxsv] ");
	if (theirs)
		strbuf_adds(b, "\nlast output:");
	skip = theirs > LAST_LINES ? theirs - LAST_LINES : 0;
	for (size_t i = first; i < lines.n; i++) {
		if (str_starts(lines.v[i], "[sbxsv] "))
			continue;
		if (skip)
			skip--;
		else
			strbuf_addf(b, "\n  %.300s", lines.v[i]);
	}
}

/* What the jail refused since the oldest start that counts, newest first; what to type for it goes to `todo`. */
static void add_refusals(const struct app *a, struct strbuf *b, struct strbuf *todo)
{
	CLEANUP_JS struct js *list =
		violations_since(a, clk_wall_ms() - a->unit->limit_interval_ms, REFUSALS_MAX);
	unsigned n = 0;

	for (const struct js *v = js_first(list); v; v = js_next(v)) {
		const char *path = js_str(v, "path"), *host = js_str(v, "host"), *rule = js_str(v, "rule"),
			   *hint = js_str(v, "hint");
		CLEANUP_FREE char *command = violations_command(a, v);

		strbuf_addf(b, "\n%s%s %.900s", n++ ? "  " : "refused: ", js_str(v, "operation"),
			    path   ? path
			    : host ? host
				   : "?");
		if (js_int_or(v, "port", 0))
			strbuf_addf(b, ":%lld", (long long)js_int_or(v, "port", 0));
		strbuf_addf(b, " (%.300s)", rule ? rule : "?");
		if (command)
			strbuf_addf(todo, "to allow %s: %s\n", path ? "that path" : "that host", command);
		else if (hint && *hint)
			strbuf_addf(b, "; %.300s", hint);
	}
}

void explain_giveup(struct app *a, const char *cause, const char *hint, bool limit)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT, todo = STRBUF_INIT;

	strbuf_adds(&b, cause);
	if (limit)
		strbuf_addf(
			&b,
			"; it was started %u times within %lld s (LimitBurst=%u) and is not started again",
			a->unit->limit_burst, (long long)(a->unit->limit_interval_ms / 1000),
			a->unit->limit_burst);
	else
		strbuf_adds(&b, "; [Restart] Policy=no, so it is not started again");
	add_last_output(a, &b);
	add_refusals(a, &b, &todo);
	if (*hint)
		strbuf_addf(&todo, "%s\n", hint);
	strbuf_addf(&todo, "read the log (sbxsv logs %s), repair it, then: sbxsv start %s", a->name, a->name);
	if (app_jailed(a->unit))
		strbuf_addf(
			&todo,
			"\nis a file or a host missing? sbxsv check --path %s FILE, sbxsv check --allow %s "
			"HOST:PORT",
			a->name, a->name);
	app_say(a, todo.p, "%s", b.p);
}

void explain_unprepared(struct app *a, const char *cause)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT, todo = STRBUF_INIT;

	strbuf_adds(&b, cause);
	add_last_output(a, &b);
	add_refusals(a, &b, &todo);
	strbuf_addf(&todo,
		    "what it wrote: sbxsv logs %s; hosts that it needs belong into Allow= of [Prepare]; "
		    "then: sbxsv start %s",
		    a->name, a->name);
	app_say(a, todo.p, "%s", b.p);
}

char *explain_backoff(const struct app *a)
{
	struct strbuf b = STRBUF_INIT;

	strbuf_adds(&b, a->reason);
	if (!strstr(a->reason, "\nlast output:"))
		add_last_output(a, &b);
	return strbuf_take(&b);
}

char *explain_repair(const struct app *a)
{
	return xasprintf("correct the unit (it is started as soon as it is saved), or make what is missing; "
			 "then: sbxsv "
			 "start %s",
			 a->name);
}

/* --- not ready in time --- */

static bool is_ours(const struct app *a, const struct net_listener *l)
{
	struct in_addr proxy;

	(void)inet_pton(AF_INET, NET_PROXY_ADDRESS, &proxy);
	if (l->family == AF_INET && memcmp(l->address, &proxy, sizeof proxy) == 0)
		return true;
	return loopback_at(a, l->port) != NULL;
}

static bool is_declared(const struct unit *u, uint16_t port)
{
	for (size_t i = 0; i < u->n_listen; i++)
		if (u->listen[i].app_port == port)
			return true;
	return false;
}

/* The ports the app listens on inside its jail instead, each once: "8000, 9229". Returns the first, 0 without
 * any. */
static uint16_t elsewhere(const struct app *a, struct strbuf *b)
{
	struct net_listener found[SEEN_MAX];
	int n = a->diag_fd < 0 ? 0 : net_list_listeners(a->diag_fd, 0, found, SEEN_MAX, NULL);
	uint16_t first = 0;

	for (int i = 0; i < n; i++) {
		bool again = is_ours(a, &found[i]) || is_declared(a->unit, found[i].port);

		for (int j = 0; j < i; j++)
			again = again || found[j].port == found[i].port;
		if (again)
			continue;
		strbuf_addf(b, "%s%u", first ? ", " : "", found[i].port);
		first = first ? first : found[i].port;
	}
	return first;
}

static bool listens_on(const struct app *a, uint16_t port)
{
	struct net_listener one;

	return a->diag_fd >= 0 && net_list_listeners(a->diag_fd, port, &one, 1, NULL) > 0;
}

/* The ports of Listen= where nothing listens. Returns the first of them, 0 without any. */
static const struct unit_listen *silent(const struct app *a, struct strbuf *b)
{
	const struct unit *u = a->unit;
	const struct unit_listen *first = NULL;

	for (size_t i = 0; i < u->n_listen; i++) {
		if (listens_on(a, u->listen[i].app_port))
			continue;
		strbuf_addf(b, "%s port %u", first ? "," : "", u->listen[i].app_port);
		first = first ? first : &u->listen[i];
		if (u->ready == UNIT_READY_HTTP) /* which asks the first port only */
			break;
	}
	return first;
}

void explain_late(struct app *a)
{
	CLEANUP_STRBUF struct strbuf ports = STRBUF_INIT, others = STRBUF_INIT;
	CLEANUP_FREE char *hint = NULL;
	const struct unit *u = a->unit;
	long long ms = (long long)u->ready_timeout_ms;
	const struct unit_listen *l = a->up ? silent(a, &ports) : NULL;
	uint16_t other;

	if (!a->up) {
		app_say(a, "sbxsv doctor measures how long a jail takes here",
			"not ready within %lld ms: its jail could not be built in that time", ms);
		return;
	}
	if (notices_waiting_for(a)) {
		app_say(a, "does it need longer? [Ready] Timeout=, or EXTEND_TIMEOUT_USEC= of sd_notify(3)",
			"not ready within %lld ms: %s", (long long)(clk_mono_ms() - a->since_ms),
			notices_waiting_for(a));
		return;
	}
	if (!l) {
		app_say(a, "does it need longer? [Ready] Timeout=", "not ready within %lld ms: %s", ms,
			a->ready ? ready_waiting_for(a->ready) : "it does not answer");
		return;
	}
	other = elsewhere(a, &others);
	if (other)
		hint = xasprintf(
			"give the program its port ($PORT in Exec=, or PORT in its environment), or write "
			"Listen=%u:%u",
			l->host_port, other);
	else
		hint = xstrdup(
			"it has to listen on the port of Listen= (PORT in its environment) by itself; if it "
			"only needs longer: [Ready] Timeout=");
	app_say(a, hint, "not ready within %lld ms: it does not listen on%s%s%s", ms, ports.p,
		other ? ", but on port " : "", other ? others.p : "");
}
