/* Resource use of a process tree (everything below a pid-namespace init): summed from /proc. */
#pragma once
#include <stdint.h>
#include <sys/types.h>

struct usage {
	unsigned processes;
	uint64_t rss_bytes;
	uint64_t cpu_ms; /* user + system of the living */
};
int usage_read(pid_t root, struct usage *ret); /* -1 when the root is gone */
