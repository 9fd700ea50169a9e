/*
 * A proxy that hangs is worse than one that crashes: nobody starts it again. Every few seconds of its processor time (an
 * idle one has none, so nothing ticks) it is looked whether the loop went on; if not, it aborts. Then it is started again,
 * and the crash page says whose bytes it was busy with.
 */
#pragma once
#include "base/loop.h"

#define HANG_CPU_S 5

void hang_watch(const struct loop *l);
void hang_progress(void); /* one of many things to be done in this turn is done */
