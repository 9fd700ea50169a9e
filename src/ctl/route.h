/*
 * A request of the control API as data: which operation, on which app, with which arguments. Pure: text in,
 * struct out; no HTTP library, no supervisor. This is what tests/fuzz/fuzz_ctl.c feeds.
 *
 * Strict: an unknown path, query argument or body key is an error that names the nearest word; so is an
 * argument that the operation does not take. A misspelt {"wiat":false} must not silently mean something else.
 */
#pragma once
#include "base/err.h"
#include "ctl/protocol.h"
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ctl_op {
	CTL_VERSION,
	CTL_STATUS,
	CTL_APP,
	CTL_START,
	CTL_STOP,
	CTL_RESTART,
	CTL_KILL,
	CTL_ALLOW,
	CTL_DENY,
	CTL_RELOAD,
	CTL_SHUTDOWN,
	CTL_UPGRADE,
	CTL_LOGS,
	CTL_EVENTS,
	CTL_PORTS,
	CTL_VIOLATIONS,
	CTL_OP_MAX,
};

#define CTL_LINES_ALL UINT_MAX
struct ctl_call {
	enum ctl_op op;
	char app[160];    /* valid name, or "" (all apps, or none named) */
	bool wait;        /* start, stop, restart; default yes */
	bool prepare;     /* start, restart: [Prepare] runs again */
	int signal;       /* kill */
	char host[320];   /* allow, deny: as typed */
	int64_t for_ms;   /* allow, deny; 0: until the supervisor ends */
	bool saved;       /* allow, deny: the caller has written it into a drop-in */
	int64_t grace_ms; /* shutdown; -1: the configured budget */
	unsigned lines;   /* logs, events: how many old ones; CTL_LINES_ALL: logs since_ms without a number */
	bool follow;
	bool usage;       /* status */
	bool json;        /* logs: an object a line */
	int64_t since_ms; /* violations, logs: wall clock; 0: all */
};

/* `target`: the request target as sent, "/v1/apps/notes/logs?lines=5". `body` may be empty. 0, or -1 with the
 * HTTP status that answers it in *ret_status (400, 404, 405, 413) and the reason. */
int ctl_route(const char *method, const char *target, const char *body, size_t len, struct ctl_call *ret,
	      int *ret_status, struct err **e);
/* True for the one operation table's `i`th row; for the test that compares it with sbxsv-api(7). */
bool ctl_route_row(size_t i, const char **ret_method, const char **ret_path);
