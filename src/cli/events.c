#include "cli/lines.h"
#include "cli/remote.h"
#include <stdio.h>
#include <string.h>

static void add_safe(struct strbuf *b, const char *before, const char *text)
{
	CLEANUP_FREE char *safe = cli_safe(text);

	strbuf_addf(b, "%s%s", before, safe);
}

/* Of a text its first line: an event is one line. The whole is in --json and in status. */
static void add_value(struct strbuf *b, const struct js *v)
{
	const char *text = js_value_str(v);
	CLEANUP_FREE char *printed = text ? xstrndup(text, strcspn(text, "\n")) : js_print(v),
			  *safe = cli_safe(printed);

	strbuf_addf(b, " %s=%s%s%s%s", js_key(v), text ? "\"" : "", safe,
		    text && strchr(text, '\n') ? " ..." : "", text ? "\"" : "");
}

/* The keys every event has come first, then the message, then the rest as it is. */
static char *event_text(const struct js *e)
{
	static const char *const head[] = {"seq", "timestamp", "app", "type", "message", NULL};
	static const char *const change[] = {"seq",   "timestamp", "app",  "type", "message",
					     "state", "from",      "hint", NULL};
	const char *from = js_str(e, "from"), *state = js_str(e, "state");
	const char *const *known = from && state ? change : head;
	CLEANUP_FREE char *when = cli_safe(js_str(e, "timestamp")), *app = cli_safe(js_str(e, "app"));
	CLEANUP_FREE char *type = cli_safe(js_str(e, "type")), *message = NULL;
	struct strbuf b = STRBUF_INIT;

	strbuf_addf(&b, "%s %s %s", when, app, type);
	if (js_str(e, "message")) {
		message = cli_safe(js_str(e, "message"));
		strbuf_addf(&b, ": %s", message);
	} else if (known == change) {
		message = xasprintf("%s -> %s", from, state);
		add_safe(&b, ": ", message);
	}
	for (const struct js *v = js_first(e); v; v = js_next(v)) {
		bool shown = false;

		for (const char *const *h = known; *h; h++)
			shown = shown || str_eq(*h, js_key(v));
		if (!shown)
			add_value(&b, v);
	}
	return strbuf_take(&b);
}

static int print_event(void *data, const char *text, size_t len)
{
	const struct cli *c = data;
	CLEANUP_JS struct js *e = c->json ? NULL : js_parse(text, len, NULL);
	CLEANUP_FREE char *line = NULL;

	line = e ? event_text(e) : remote_json_safe(text, len);
	puts(line);
	return lines_written();
}

static int run(struct cli *c, const struct cli_args *a)
{
	CLEANUP_FREE char *path = NULL;
	unsigned n = 0;
	int code;

	if (a->n_rest > 1)
		return cli_usage(&cmd_events, "events: name one app, or none for all");
	if (a->n_rest && !unit_name_valid(a->rest[0]))
		return cli_bad_name(a->rest[0]);
	code = lines_wanted(&cmd_events, a, 50, &n);
	if (code)
		return code;
	path = xasprintf("/v1/events?lines=%u&follow=%d%s%s", n, cli_has(a, 'f'), a->n_rest ? "&app=" : "",
			 a->n_rest ? a->rest[0] : "");
	return lines_stream(c, path, print_event, c);
}

static const struct cli_option options[] = {
	{'f', "follow", NULL, "go on with the events to come"},
	{'n', "lines", "N", "how many old events (50)"},
	{0, NULL, NULL, NULL},
};

const struct command cmd_events = {
	.name = "events",
	.usage = "events [APP] [-f] [-n N] [--json]",
	.help = "what happened: states, exits, refusals, ports",
	.flags = CLI_JSON,
	.options = options,
	.fn = run,
};
