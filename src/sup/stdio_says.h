/* What a process of `sbxsv run` says, as data (the messages: src/ctl/join.c). Pure. The first message: sup_instance_hello(). */
#pragma once
#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum instance_word { SAYS_STARTED, SAYS_EXITED, SAYS_REFUSED, SAYS_LOST };
struct instance_says {
	enum instance_word word;
	pid_t pid;                  /* started: of its jail, above 1 */
	bool again;                 /* it runs for some time, the supervisor is new to it */
	const struct js *isolation; /* an object, or NULL. Of the message, as the next */
	int status;                 /* exited: as waitpid(2) gives it */
	const struct js *event;     /* refused: of type violation */
	uint64_t n;                 /* lost: at least one */
};
bool instance_says_read(const struct js *m, struct instance_says *ret); /* false: it makes no sense */
