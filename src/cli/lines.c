#include "cli/lines.h"
#include "base/parse.h"
#include "cli/remote.h"
#include <stdio.h>

int lines_wanted(const struct command *cmd, const struct cli_args *a, unsigned other, unsigned *ret)
{
	const char *text = cli_value(a, 'n');
	uint64_t n = other;

	if (text && parse_u64(text, CTL_LINES_MAX, &n))
		return cli_usage(cmd, "-n: a number of lines from 0 to %u is needed", CTL_LINES_MAX);
	*ret = (unsigned)n;
	return CLI_OK;
}

int lines_stream(struct cli *c, const char *path, int (*line)(void *data, const char *text, size_t len),
		 void *data)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL;
	CLEANUP_ERR struct err *e = NULL;
	long status = 0;
	int code = remote_open(c, &cl);

	if (code)
		return code;
	if (ctl_client_stream(cl, path, line, data, &status, &e))
		return cli_fail(status == 404 ? CLI_NO_APP
				: status      ? CLI_FAILED
					      : remote_open_code(e),
				"%s", err_msg(e));
	return CLI_OK;
}

int lines_written(void)
{
	return fflush(stdout) || ferror(stdout) ? 1 : 0;
}
