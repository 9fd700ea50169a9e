/*
 * Times, pure. Restart bookkeeping of one app: how long to wait before the next start, and when to stop
 * trying. Pure; times are monotonic milliseconds given by the caller.
 *
 * Delay: Sec, doubled with each failure up to MaxSec; an app that was ready for 10 s begins at Sec again.
 * Limit: at most LimitBurst starts within LimitInterval (0: no limit). The next start would be one too many,
 * so the app is given up when it ends. A start by a person forgets both.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESTART_STEADY_MS 10000 /* ready for so long: the backoff begins anew */

struct restart {
	int64_t *starts; /* ring of the last start times */
	size_t cap, n, at;
	unsigned failures; /* in a row */
	unsigned shorts;   /* starts in a row that the machine had no room for */
};
void restart_finish(struct restart *r);
void restart_reset(struct restart *r);
void restart_started(struct restart *r, unsigned burst, int64_t now_ms);
/* A process ended that had been ready for `ready_ms` (0: never). */
void restart_ended(struct restart *r, int64_t ready_ms);
/* Would one more start be over the limit? */
bool restart_exhausted(const struct restart *r, unsigned burst, int64_t interval_ms, int64_t now_ms);
int64_t restart_delay(unsigned failures, int64_t sec_ms, int64_t max_ms);

/* Global shutdown: what the kernel needs after SIGKILL is kept free at the end of the budget (see
 * shutdown.c). */
#define SHUTDOWN_RESERVE_BASE_MS 20
#define SHUTDOWN_RESERVE_APP_US  3500
#define SHUTDOWN_GRACE_MIN_MS    20
int64_t shutdown_grace(int64_t budget_ms, size_t apps);
