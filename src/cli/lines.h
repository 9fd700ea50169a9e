/* What logs and events have in common: lines of the supervisor, now and as they come. */
#pragma once
#include "cli/cli.h"

/* -n, or `other` without it. CLI_OK, or an exit code after a message. */
int lines_wanted(const struct command *cmd, const struct cli_args *a, unsigned other, unsigned *ret);
/* Calls `line` for each line of the answer; the exit code, after a message if not
 * CLI_OK. */
int lines_stream(struct cli *c, const char *path, int (*line)(void *data, const char *text, size_t len),
		 void *data);
/* Flushes stdout; not 0 when it cannot be written any more (`| head`), which ends the stream. */
int lines_written(void);
