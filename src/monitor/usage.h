/* Resource use of a process tree (a pid-namespace init and everything below it): summed from /proc. */
#pragma once
#include <stdint.h>
#include <sys/types.h>

#define USAGE_MAX_PROCESSES 4096 /* a fork bomb does not hold us up longer than this */

struct usage {
	unsigned processes; /* root included */
	uint64_t rss_bytes; /* pages shared between them count in each */
	uint64_t cpu_ms;    /* user + system of the living, and of children they have waited for */
};
int usage_read(pid_t root, struct usage *ret); /* -1 when the root is gone */
