#pragma once
#include "cli/cli.h"

/* A completion script on stdout. The exit code. */
int completion_print(const char *shell);
void syntax_print_vim(void); /* syntax.c */
