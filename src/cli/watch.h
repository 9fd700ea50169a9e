/* status --watch: the states of all apps, or of one, shown again whenever something happens. */
#pragma once
#include "cli/cli.h"

int watch_status(struct cli *c, const char *app); /* NULL: all */
