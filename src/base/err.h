/*
 * Errors that carry context. A function that can fail takes `struct err **e` last (NULL: the caller does not
 * want the text), returns -1 or NULL, and leaves *e untouched on success. Callers add context with
 * err_wrap(); only the edge (main, an API reply, a log line) prints. The text says what failed, where, and
 * what to do.
 */
#pragma once
#include "base/cleanup.h"

struct err; /* opaque; owned by whoever holds the pointer; err_free() */

/* Each returns -1, so that `return err_set(e, ...)` works. An error already in *e is replaced. */
int err_set(struct err **e, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);   /* code: an errno or 0 */
int err_sys(struct err **e, int errnum, const char *fmt, ...) PRINTF_LIKE(3, 4); /* appends ": strerror" */
int err_wrap(struct err **e, const char *fmt, ...) PRINTF_LIKE(2, 3);            /* prefixes "context: " */

const char *err_msg(const struct err *e); /* never NULL; valid until the error changes */
int err_code(const struct err *e);        /* the errno or 0 */
void err_free(struct err *e);             /* NULL is fine */
static inline void cleanup_err_(struct err **e)
{
	err_free(*e);
}
#define CLEANUP_ERR CLEANUP(cleanup_err_)
