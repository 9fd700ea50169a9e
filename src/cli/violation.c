#include "cli/violation.h"
#include "cli/cli.h"
#include "trace/observer.h"
#include <inttypes.h>
#include <string.h>

char *violation_text(const struct js *v)
{
	const char *path = js_str(v, "path"), *host = js_str(v, "host"), *op = js_str(v, "operation"),
		   *command = js_str(v, "command"), *rule = js_str(v, "rule");
	int64_t port = js_int_or(v, "port", 0), count = js_int_or(v, "count", 1);
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;

	strbuf_addf(&b, "%s %s", op ? op : "?", path ? path : host ? host : "?");
	if (port)
		strbuf_addf(&b, ":%" PRId64, port);
	if (count > 1)
		strbuf_addf(&b, " %" PRId64 "x", count);
	if (command)
		strbuf_addf(&b, " by %s (pid %" PRId64 ")", command, js_int_or(v, "pid", 0));
	strbuf_addf(&b, ": %s", rule ? rule : "?");
	return cli_safe(b.p);
}

char *violation_advice(const struct js *v, const char *app)
{
	const char *hint = js_str(v, "hint");
	CLEANUP_FREE char *command = NULL;

	/* No rule was asked, and often no name is known: then it is the command that counts. */
	if ((!hint || !*hint) && str_eq(js_str(v, "rule"), OBSERVED_RULE_EGRESS) && !js_str(v, "path"))
		return app ? xasprintf("sbxsv allow %s HOST", app) : xstrdup("--allow HOST");
	if (!hint || !*hint)
		return NULL;
	if (str_starts(hint, "Loopback="))
		command = app ? xasprintf("sbxsv allow %s --loopback %s", app, hint + strlen("Loopback="))
			      : xasprintf("--loopback %s", hint + strlen("Loopback="));
	else if (str_starts(hint, "Allow="))
		command = app ? xasprintf("sbxsv allow %s %s", app, hint + strlen("Allow="))
			      : xasprintf("--allow %s", hint + strlen("Allow="));
	return cli_safe(command ? command : hint);
}
