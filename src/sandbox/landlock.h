/* Landlock, the second layer: what the mounts already refuse is refused once more, by other code of the kernel. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum landlock_grant { LANDLOCK_GRANT_READ, LANDLOCK_GRANT_WRITE, LANDLOCK_GRANT_DEVICES, LANDLOCK_GRANT_PROC, LANDLOCK_GRANT_LIST };
struct landlock {
	int fd; /* the ruleset; -1: no layer */
	int abi;
	uint64_t fs; /* rights it governs */
};
int landlock_abi(void); /* 0: none, switched off, or too old to be used (ABI 1 forbids every move between directories) */
/* Plain calls only, for the child. -1 with errno. `files` false: scopes only. */
int landlock_open(struct landlock *l, int abi, bool files);
int landlock_allow(const struct landlock *l, int path_fd, bool dir, enum landlock_grant g);
int landlock_enforce(const struct landlock *l); /* needs no_new_privs; no mount can be changed afterwards */
