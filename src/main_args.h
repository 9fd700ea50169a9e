/* The command line of sbxsvd. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct main_args {
	const char *config, *apps, *state, *runtime, *instance; /* NULL: not given */
	bool foreground, debug;
	pid_t watch_pid; /* 0: none */
	int notify_fd;   /* -1: none */
	int handover_fd; /* what the program before left us, base/keep.h; -1: we begin */
	bool rehearsal;  /* and we only say whether we understand it */
};
/* -1: go on; otherwise the exit code (--help, --version, a wrong option). Directories that were given replace
 * those of the environment (SBXSV_*_DIR). */
int main_args_parse(int argc, char **argv, struct main_args *ret);
