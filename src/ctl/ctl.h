/* The control API: HTTP/1.1 and JSON on RUNTIME/control.sock. See sbxsv-api(7). */
#pragma once
#include "sup/sup.h"

struct ctl;
/* Binds the socket 0600 (the directory is 0700); peers are checked: same uid or root, our own user and pid
 * namespaces. */
struct ctl *ctl_create(struct loop *l, struct sup *s, const struct unit_dirs *d,
		       void (*on_shutdown)(void *data, int64_t grace_ms), void *data, struct err **e);
void ctl_destroy(struct ctl *c);
/* Across an exec of the supervisor, base/keep.h: the socket is never closed, so that nobody is refused; connections are. */
struct js *ctl_save(struct keep *k, const struct ctl *c);
struct ctl *ctl_restore(struct loop *l, struct sup *s, struct keep *k, const struct js *o,
			void (*on_shutdown)(void *data, int64_t grace_ms), void *data, struct err **e);
/* Answers that are there go out, as far as they can without waiting. False: a shutdown was asked for and is next. */
bool ctl_flush(struct ctl *c);
