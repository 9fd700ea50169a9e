#include "cli/refusals.h"
#include "base/fd.h"
#include "cli/cli.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { KINDS_MAX = 1000, LINES_MAX = 20 };

void refusals_init(struct refusals *r)
{
	r->list = js_arr();
	r->lost = 0;
}

void refusals_finish(struct refusals *r)
{
	js_free(r->list);
	r->list = NULL;
}

static bool same(const struct js *a, const struct js *b)
{
	static const char *const keys[] = {"operation", "path", "host", "rule"};

	for (size_t i = 0; i < ELEMENTS(keys); i++)
		if (!str_eq(js_str(a, keys[i]), js_str(b, keys[i])))
			return false;
	return js_int_or(a, "port", 0) == js_int_or(b, "port", 0);
}

void refusals_add(struct refusals *r, struct js *event)
{
	int64_t n = js_int_or(event, "count", 1);
	struct js *e = NULL;

	for (const struct js *i = js_first(r->list); i && !e; i = js_next(i))
		if (same(i, event))
			e = (struct js *)i; /* of our own list */
	if (e) {
		n += js_int_or(e, "count", 1);
		js_remove(e, "count");
		js_add_int(e, "count", n);
	} else if (js_len(r->list) < KINDS_MAX) {
		js_push(r->list, event);
		return;
	} else {
		r->lost += (uint64_t)n;
	}
	js_free(event);
}

void refusals_add_hosts(struct refusals *r, const char *app, const struct js *denied)
{
	static const char *const texts[] = {"host", "rule", "hint"};

	for (const struct js *d = js_first(denied); d; d = js_next(d)) {
		struct js *e = js_obj();

		js_add_str(e, "app", app);
		js_add_str(e, "type", "violation");
		js_add_str(e, "operation", "connect");
		for (size_t i = 0; i < ELEMENTS(texts); i++)
			if (js_str(d, texts[i]))
				js_add_str(e, texts[i], js_str(d, texts[i]));
		js_add_int(e, "port", js_int_or(d, "port", 0));
		js_add_str(e, "action", "denied");
		if (js_int_or(d, "count", 1) > 1)
			js_add_int(e, "count", js_int_or(d, "count", 1));
		js_push(r->list, e);
	}
}

/* What to type: an option of exec, or a remark. */
static char *advice_of(const struct js *e)
{
	const char *hint = js_str(e, "hint");

	if (!hint || !*hint)
		return xstrdup("");
	if (str_starts(hint, "Allow="))
		return xasprintf("; to allow it: --allow %s", hint + strlen("Allow="));
	return xasprintf(str_starts(hint, "--") ? "; to allow it: %s" : "; %s", hint);
}

static void print_one(const struct js *e)
{
	CLEANUP_FREE char *advice = advice_of(e), *safe = NULL;
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
	const char *path = js_str(e, "path"), *op = js_str(e, "operation"), *rule = js_str(e, "rule");

	if (path)
		strbuf_addf(&b, "%s %s", op, path);
	else if (js_int_or(e, "port", 0))
		strbuf_addf(&b, "%s:%" PRId64, js_str(e, "host"), js_int_or(e, "port", 0));
	else
		strbuf_addf(&b, "%s %s", op, js_str(e, "host"));
	if (js_int_or(e, "count", 1) > 1)
		strbuf_addf(&b, " %" PRId64 "x", js_int_or(e, "count", 1));
	strbuf_addf(&b, " (%s)%s", rule ? rule : "?", advice);
	safe = cli_safe(b.p);
	(void)fprintf(stderr, "sbxsv: refused: %s\n", safe);
}

void refusals_print(const struct refusals *r)
{
	size_t n = 0;

	for (const struct js *e = js_first(r->list); e && n < LINES_MAX; e = js_next(e), n++)
		print_one(e);
	if (js_len(r->list) > n)
		(void)fprintf(stderr, "sbxsv: refused: %zu more (--report FILE has all)\n", js_len(r->list) - n);
	if (r->lost)
		(void)fprintf(stderr, "sbxsv: %" PRIu64 " refusals or calls more were not recorded one by one\n", r->lost);
}

int refusals_report(const struct refusals *r, int fd, int exit_code)
{
	CLEANUP_JS struct js *o = js_obj();
	CLEANUP_FREE char *text = NULL, *line = NULL;

	js_add_int(o, "exit", exit_code);
	js_add(o, "refusals", js_copy(r->list));
	js_add_int(o, "lost", (int64_t)r->lost);
	text = js_print_pretty(o);
	line = xasprintf("%s\n", text);
	return fd_write_all(fd, line, strlen(line));
}
