/* `sbxsv allow APP --read PATH`: what of the disk an app may see. */
#pragma once
#include "cli/cli.h"

enum { OPT_ALLOW_READ = CLI_LONG + 64, OPT_ALLOW_WRITE, OPT_ALLOW_SOCKET };
bool allow_path_asked(const struct cli_args *a);
int allow_path(struct cli *c, const struct cli_args *a);
