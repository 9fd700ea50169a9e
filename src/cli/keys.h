/* What a command that goes on until somebody has seen enough waits for: a key, a signal, a reader that is gone. */
#pragma once
#include <stdint.h>

enum { KEYS_QUIT = 1, KEYS_GONE = 2, KEYS_INPUT = 4 };
/* Keys come without Enter from here on, when stdin is a terminal that is ours. SIGINT, SIGTERM and SIGHUP are a wish to
 * quit; the second one is not waited for. */
void keys_begin(void);
void keys_end(void);
/* Until q (or a signal), until nobody reads stdout any more, until `fd` has something (-1: none), or until the time is
 * over (below 0: no limit). 0: the time is over. */
int keys_wait(int fd, int64_t ms);
