/* Who listens on a TCP port of this network namespace, for the message that it is taken. */
#pragma once
#include <stdint.h>

/* "python3 (pid 4711)", "a process of uid 33", or NULL when nobody is seen. Owned by caller. */
char *portholder(uint16_t port);
