/* What the access log (accesslog.h) will say of one connection, gathered while it lives. All of these take NULL
 * for "there is no log", and a connection then costs nothing. */
#pragma once
#include "proxy/accesslog.h"
#include "proxy/request.h"

struct access;
/* NULL when `log` is. */
struct access *access_begin(const struct accesslog *log, int client_fd);
/* `buf` is what `r` was parsed from, for its method; NULL: it is no request. */
void access_target(struct access *a, const struct target *t, const struct request *r, const char *buf);
/* `peer`: family 0 when it is not known; `upstream`: or NULL. */
void access_connected(struct access *a, const struct addr *peer, const char *upstream);
void access_verdict(struct access *a, enum access_verdict v, const char *rule); /* the last one counts */
void access_error(struct access *a, const char *text);
/* Where bytes are counted: 0 from the client, 1 to it. `other` without a log. */
uint64_t *access_bytes(struct access *a, int i, uint64_t *other);
/* Writes the line, frees a. */
void access_end(struct accesslog *log, struct access *a, const char *front);
