/*
 * The access log, seen from the master (alone.h).
 *
 * The worker must not have a file: whoever took it over could change what was logged before. It gets a pipe, and
 * the master, who looks at no byte of it, appends what comes out to the file. Standard output that is a pipe, a
 * socket or a terminal goes to the worker as it is. SIGHUP opens the file again under its name.
 */
#pragma once
#include "base/err.h"
#include "base/loop.h"

struct alone_log;
/* `name`: a file, or "-" for standard output. NULL with *e. */
struct alone_log *alone_log_open(struct loop *l, const char *name, struct err **e);
int alone_log_fd(const struct alone_log *g);               /* for the worker; stays ours */
int alone_log_reopen(struct alone_log *g, struct err **e); /* -1: it goes on where it was */
void alone_log_between(struct alone_log *g);               /* a worker died: its last line may be half */
void alone_log_close(struct alone_log *g);                 /* NULL is fine; writes what is left */
