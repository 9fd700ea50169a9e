/* The CLI's side of the control API, over libcurl. Blocking. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "unit/unit.h"

struct ctl_client;
/* NULL with err_code ENOENT or ECONNREFUSED when no supervisor answers (exit code 5). */
struct ctl_client *ctl_client_open(const struct unit_dirs *d, struct err **e);
void ctl_client_close(struct ctl_client *c);
/* method "GET" or "POST"; body may be NULL (owned by caller). Returns the reply object; *ret_status the HTTP status. */
struct js *ctl_client_call(struct ctl_client *c, const char *method, const char *path, const struct js *body, long *ret_status,
			   struct err **e);
/* Streams lines (logs -f, events -f) until the server ends or `line` returns non-zero. */
int ctl_client_stream(struct ctl_client *c, const char *path, int (*line)(void *data, const char *text, size_t len), void *data,
		      struct err **e);
