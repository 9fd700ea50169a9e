#include "cli/lines.h"
#include "base/parse.h"
#include "cli/remote.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

int lines_wanted(const struct command *cmd, const struct cli_args *a, unsigned other, unsigned *ret)
{
	const char *text = cli_value(a, 'n');
	uint64_t n = other;

	if (text && parse_u64(text, CTL_LINES_MAX, &n))
		return cli_usage(cmd, "-n: a number of lines from 0 to %u is needed", CTL_LINES_MAX);
	*ret = (unsigned)n;
	return CLI_OK;
}

/* The same request for the lines to come only. Owned by caller; NULL: it asked for nothing to come. */
static char *lines_to_come(const char *path)
{
	CLEANUP_FREE char *copy = xstrdup(path);
	char *save = NULL, *query = strchr(copy, '?');
	struct strbuf b = STRBUF_INIT;

	if (!query || !strstr(query, "follow=1"))
		return NULL;
	*query++ = 0;
	strbuf_addf(&b, "%s?lines=0", copy);
	for (char *q = strtok_r(query, "&", &save); q; q = strtok_r(NULL, "&", &save))
		if (!str_starts(q, "lines=") && !str_starts(q, "since_ms="))
			strbuf_addf(&b, "&%s", q);
	return strbuf_take(&b);
}

/* The program that served us was replaced by another in the same process, sbxsv upgrade. */
static bool was_upgraded(struct cli *c, struct ctl_client **cl)
{
	int64_t before = js_int_or(ctl_client_version(*cl), "upgrades", 0);
	struct ctl_client *now = ctl_client_open(&c->dirs, NULL);

	if (!now || js_int_or(ctl_client_version(now), "upgrades", 0) <= before) {
		ctl_client_close(now);
		return false;
	}
	ctl_client_close(*cl);
	*cl = now;
	return true;
}

int lines_stream(struct cli *c, const char *path, int (*line)(void *data, const char *text, size_t len),
		 void *data)
{
	CLEANUP_FREE char *again = lines_to_come(path);
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL;
	int code = remote_open(c, &cl);

	if (code)
		return code;
	for (;;) {
		CLEANUP_ERR struct err *e = NULL;
		long status = 0;

		if (ctl_client_stream(cl, path, line, data, &status, &e) == 0)
			return CLI_OK;
		if (!again || err_code(e) != EPIPE || !was_upgraded(c, &cl))
			return cli_fail(status == 404 ? CLI_NO_APP
					: status      ? CLI_FAILED
						      : remote_open_code(e),
					"%s", err_msg(e));
		(void)cli_fail(CLI_OK,
			       "the supervisor was upgraded: lines of this moment may be missing here");
		path = again;
	}
}

int lines_written(void)
{
	return fflush(stdout) || ferror(stdout) ? 1 : 0;
}
