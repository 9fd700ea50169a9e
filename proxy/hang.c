#include "proxy/hang.h"
#include "base/log.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static const struct loop *watched;
static volatile sig_atomic_t progress;

/* abort() is async-signal-safe: signal-safety(7). */
static void on_processor_time(int sig)
{
	static uint64_t seen = UINT64_MAX;
	uint64_t now = loop_turns(watched) + (unsigned)progress;

	(void)sig;
	if (now == seen)
		abort();
	seen = now;
}

void hang_progress(void)
{
	progress++;
}

void hang_watch(const struct loop *l)
{
	struct sigaction act = {.sa_handler = on_processor_time, .sa_flags = SA_RESTART};
	const struct itimerval every = {.it_interval = {.tv_sec = HANG_CPU_S},
					.it_value = {.tv_sec = HANG_CPU_S}};

	watched = l;
	if (sigaction(SIGPROF, &act, NULL) < 0 || setitimer(ITIMER_PROF, &every, NULL) < 0)
		log_warning("a proxy that hangs would not be noticed: %s", strerror(errno));
}
