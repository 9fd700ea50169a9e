/* Commands that change unit files. */
#pragma once
#include "cli/cli.h"

/* CLI_OK, or CLI_NO_APP after a message: is there a file NAME.app (or a template of it)? */
int units_there(const struct cli *c, const char *name);
/* A supervisor that runs reads the units again, and what it says about them is shown. Without one: CLI_OK. */
/* Of "web@8080" with a template and no file: a link to the template, which makes it an app. *ret_link: its path, owned by
 * caller, untouched when none was made. 0, or an exit code after a message. */
int units_instance(const struct cli *c, const char *name, char **ret_link);
int units_reload(struct cli *c);
