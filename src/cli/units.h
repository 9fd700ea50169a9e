/* Commands that change unit files. */
#pragma once
#include "cli/cli.h"

/* CLI_OK, or CLI_NO_APP after a message: is there a file NAME.app (or a template of it)? */
int units_there(const struct cli *c, const char *name);
/* A supervisor that runs reads the units again, and what it says about them is shown. Without one: CLI_OK. */
int units_reload(struct cli *c);
