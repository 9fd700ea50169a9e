#include "cli/lines.h"
#include "base/clock.h"
#include "base/parse.h"
#include "cli/remote.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { OPT_RAW = CLI_LONG, OPT_SINCE };

/* One app whose lines are shown. Several that are followed have a thread each: what they share is stdout,
 * and a line is written under its lock. */
struct one {
	struct cli *c;
	char *path;
	const char *app; /* NULL: no need to say whose line it is */
	bool raw, json;
	int code;
	pthread_t thread;
	bool has_thread;
};

static int print_line(void *data, const char *text, size_t len)
{
	const struct one *o = data;
	CLEANUP_FREE char *safe = o->raw    ? NULL
				  : o->json ? remote_json_safe(text, len)
					    : str_escape(text, len);
	int r;

	flockfile(stdout);
	if (o->app && !o->json)
		printf("%s | ", o->app);
	if (o->raw)
		(void)fwrite(text, 1, len, stdout);
	else
		fputs(safe, stdout);
	putchar('\n');
	r = lines_written();
	if (r && o->app) /* nobody reads: the other threads, which wait for lines, would not notice */
		_exit(CLI_OK);
	funlockfile(stdout);
	return r;
}

static void *show(void *data)
{
	struct one *o = data;

	o->code = lines_stream(o->c, o->path, print_line, o);
	return NULL;
}

/* "10min": so long ago; "2026-10-25T20:05:42Z": then. */
static int since_of(const struct cli_args *a, int64_t *ret_ms)
{
	const char *text = cli_value(a, OPT_SINCE);
	int64_t ms;

	*ret_ms = 0;
	if (!text)
		return CLI_OK;
	if (clk_parse_stamp(text, strlen(text), ret_ms) == 0)
		return CLI_OK;
	if (parse_duration_ms(text, &ms) || ms < 0)
		return cli_usage(&cmd_logs, "logs --since: a time such as 30s, 10min or 2h (so long ago) or "
					    "2026-10-25T20:05:42Z is needed");
	*ret_ms = clk_wall_ms() - ms;
	return CLI_OK;
}

/* What is asked of the supervisor, behind the app's path. */
static int query_of(const struct cli *c, const struct cli_args *a, struct strbuf *ret)
{
	int64_t since = 0;
	unsigned n = 0;
	int code = since_of(a, &since);

	if (code == CLI_OK)
		code = lines_wanted(&cmd_logs, a, 50, &n);
	if (code)
		return code;
	strbuf_addf(ret, "/logs?follow=%d", cli_has(a, 'f'));
	if (!since || cli_has(a, 'n'))
		strbuf_addf(ret, "&lines=%u", n);
	if (since)
		strbuf_addf(ret, "&since_ms=%lld", (long long)since);
	if (c->json)
		strbuf_adds(ret, "&json=1");
	return CLI_OK;
}

static int show_all(struct one *v, size_t n, bool threads)
{
	int code = CLI_OK;

	for (size_t i = 0; i < n; i++) {
		v[i].has_thread =
			threads && i + 1 < n && pthread_create(&v[i].thread, NULL, show, &v[i]) == 0;
		if (!v[i].has_thread && threads && i + 1 < n)
			return cli_fail(CLI_FAILED, "logs: no thread can be made for %s", v[i].app);
		if (!v[i].has_thread)
			(void)show(&v[i]);
	}
	for (size_t i = 0; i < n; i++) {
		if (v[i].has_thread)
			(void)pthread_join(v[i].thread, NULL);
		if (v[i].code > code)
			code = v[i].code;
	}
	return code;
}

static int run(struct cli *c, const struct cli_args *a)
{
	CLEANUP_STRBUF struct strbuf query = STRBUF_INIT;
	CLEANUP_STRV struct strv paths = {0};
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL;
	CLEANUP_FREE struct one *v = NULL;
	bool raw = cli_has(a, OPT_RAW), several = a->n_rest > 1;
	int code;

	if (a->n_rest < 1)
		return cli_usage(&cmd_logs, "logs: name an app");
	if (raw && c->tty)
		return cli_usage(&cmd_logs, "logs --raw: not to a terminal, which an app could then control");
	if (raw && c->json)
		return cli_usage(&cmd_logs, "logs: --raw and --json exclude each other");
	code = query_of(c, a, &query);
	if (code)
		return code;
	v = xcalloc((size_t)a->n_rest, sizeof *v);
	for (int i = 0; i < a->n_rest; i++) {
		char *path = remote_app_path(a->rest[i], query.p);

		if (!path)
			return CLI_NO_APP;
		strv_take(&paths, path);
		v[i] = (struct one){.c = c,
				    .path = path,
				    .app = several ? a->rest[i] : NULL,
				    .raw = raw,
				    .json = c->json};
	}
	if (several &&
	    (code = remote_open(c, &cl))) /* one message, and libcurl is loaded before the threads */
		return code;
	return show_all(v, (size_t)a->n_rest, several && cli_has(a, 'f'));
}

static const struct cli_option options[] = {
	{'f', "follow", NULL, "go on with the lines to come"},
	{'n', "lines", "N", "how many old lines (50; with --since all)"},
	{OPT_RAW, "raw", NULL, "bytes as the app wrote them; not to a terminal"},
	{OPT_SINCE, "since", "T", "lines since then: 10min, 2h (ago), 2026-10-25T20:05:42Z"},
	{0, NULL, NULL, NULL},
};

const struct command cmd_logs = {
	.name = "logs",
	.usage = "logs APP... [-f] [-n N] [--since T] [--raw] [--json]",
	.help = "what apps wrote to their standard output and error",
	.flags = CLI_JSON,
	.options = options,
	.fn = run,
};
