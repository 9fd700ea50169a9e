/* `sbxsv allow APP --read PATH`: what of this machine an app may see, its disk and its own ports. */
#pragma once
#include "cli/cli.h"

enum { OPT_ALLOW_READ = CLI_LONG + 64, OPT_ALLOW_WRITE, OPT_ALLOW_SOCKET, OPT_ALLOW_LOOPBACK };
bool allow_path_asked(const struct cli_args *a);
int allow_path(struct cli *c, const struct cli_args *a);
