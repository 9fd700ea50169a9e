/* Linked before the loop (--wrap): deadlines of more than a second pass twenty times as fast, so that a test
 * can see them all. proxy_quick is sbxsv-proxy with this, and nothing else changed. */
#include "base/loop.h"

void __real_loop_timer_start(struct loop_timer *w, int64_t after_ms);
void __wrap_loop_timer_start(struct loop_timer *w, int64_t after_ms);
void __wrap_loop_timer_start(struct loop_timer *w, int64_t after_ms)
{
	__real_loop_timer_start(w, after_ms > 1000 ? after_ms / 20 : after_ms);
}
