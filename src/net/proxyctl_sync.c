#include "net/proxyctl_sync.h"
#include "base/str.h"

struct pc_sync {
	struct pc_sync *next;
	uint64_t n;
	proxyctl_sync_fn *fn;
	void *data;
};

uint64_t pc_sync_add(struct pc_syncs *s, proxyctl_sync_fn *fn, void *data)
{
	struct pc_sync *w = xcalloc(1, sizeof *w), **at = &s->first;

	*w = (struct pc_sync){.n = ++s->last, .fn = fn, .data = data};
	while (*at)
		at = &(*at)->next;
	*at = w;
	return w->n;
}

void pc_sync_done(struct pc_syncs *s, uint64_t n)
{
	while (s->first && s->first->n <= n) {
		struct pc_sync *w = s->first;

		s->first = w->next;
		w->fn(w->data);
		free(w);
	}
}
