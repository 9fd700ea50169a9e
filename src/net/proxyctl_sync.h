/*
 * Who waits until the proxy has taken what it was told. Messages are handled in order, so one number that comes
 * back says it for everything before it. A proxy that dies was not told enough: the next one is asked again.
 * Private to proxyctl.
 */
#pragma once
#include "net/proxyctl.h"

struct pc_sync;
struct pc_syncs {
	struct pc_sync *first;
	uint64_t last; /* number of the newest */
};
/* Returns the number to ask for. */
uint64_t pc_sync_add(struct pc_syncs *s, proxyctl_sync_fn *fn, void *data);
void pc_sync_done(struct pc_syncs *s, uint64_t n); /* calls all up to n */
