#include "sup/restart.h"
#include "base/str.h"
#include <string.h>

void restart_finish(struct restart *r)
{
	free(r->starts);
	memset(r, 0, sizeof *r);
}

void restart_reset(struct restart *r)
{
	r->n = r->at = 0;
	r->failures = r->shorts = 0;
}

/* Makes room for one more, oldest first. Grows as starts happen: a large LimitBurst costs nothing by itself.
 */
static void grow(struct restart *r, size_t want)
{
	size_t cap = r->cap ? r->cap * 2 : 8;
	int64_t *v = xcalloc(cap < want ? cap : want, sizeof *v);

	for (size_t i = 0; i < r->n; i++)
		v[i] = r->starts[(r->at + r->cap - r->n + i) % r->cap];
	free(r->starts);
	r->starts = v;
	r->cap = cap < want ? cap : want;
	r->at = r->n;
}

void restart_started(struct restart *r, unsigned burst, int64_t now_ms)
{
	if (r->n == r->cap && r->cap < burst)
		grow(r, burst);
	if (!r->cap)
		return;
	r->at %= r->cap;
	r->starts[r->at++] = now_ms;
	if (r->n < r->cap)
		r->n++;
}

void restart_ended(struct restart *r, int64_t ready_ms)
{
	if (ready_ms >= RESTART_STEADY_MS)
		r->failures = 0;
	r->failures++;
}

bool restart_exhausted(const struct restart *r, unsigned burst, int64_t interval_ms, int64_t now_ms)
{
	if (!burst || r->n < burst)
		return false;
	/* the burst-th last start: when it lies inside the interval, `burst` starts do */
	return now_ms - r->starts[(r->at + r->cap - burst) % r->cap] < interval_ms;
}

int64_t restart_delay(unsigned failures, int64_t sec_ms, int64_t max_ms)
{
	int64_t d = sec_ms;

	if (!sec_ms)
		return 0;
	for (unsigned i = 1; i < failures && d < max_ms; i++)
		d *= 2;
	if (d > max_ms)
		d = max_ms > sec_ms ? max_ms : sec_ms;
	return d;
}

int64_t shutdown_grace(int64_t budget_ms, size_t apps)
{
	int64_t grace = budget_ms - SHUTDOWN_RESERVE_BASE_MS - (int64_t)apps * SHUTDOWN_RESERVE_APP_US / 1000;

	return grace > SHUTDOWN_GRACE_MIN_MS ? grace : SHUTDOWN_GRACE_MIN_MS;
}
