/* The CLI's side of the control API, over libcurl. Blocking. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "ctl/protocol.h"
#include "unit/unit.h"

struct ctl_client;
/* NULL with err_code ENOENT or ECONNREFUSED when no supervisor answers (exit code 5), EPERM when it refuses
 * us. */
struct ctl_client *ctl_client_open(const struct unit_dirs *d, struct err **e);
void ctl_client_close(struct ctl_client *c); /* NULL is fine */
static inline void cleanup_ctl_client_(struct ctl_client **c)
{
	ctl_client_close(*c);
}
#define CLEANUP_CTL_CLIENT CLEANUP(cleanup_ctl_client_)
/* What /v1/version said when the connection was opened. */
const struct js *ctl_client_version(const struct ctl_client *c);
/* method "GET" or "POST"; body may be NULL (owned by caller). Returns the reply, also that of an error (owned
 * by caller); *ret_status is the HTTP status. A body with "wait":true waits for ever. */
struct js *ctl_client_call(struct ctl_client *c, const char *method, const char *path, const struct js *body,
			   long *ret_status, struct err **e);
/* Streams lines (logs -f, events -f) until the server ends or `line` returns non-zero. -1 with *e when the
 * connection broke, or when the server refused: then *ret_status is its HTTP status (else it is untouched).
 */
int ctl_client_stream(struct ctl_client *c, const char *path,
		      int (*line)(void *data, const char *text, size_t len), void *data, long *ret_status,
		      struct err **e);
