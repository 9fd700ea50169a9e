/*
 * The access log of a stand-alone proxy: one JSON object a line for each connection that ended.
 *
 * Theory of operation. The descriptor comes from the master (alone.h): a pipe to it, or a standard output that
 * is no file. Lines are collected and written once an iteration of the loop, and nothing ever waits for whoever
 * reads them: only what is taken without blocking is written, and the rest stays in a buffer of bounded size. A line that finds no room there is dropped and counted, and a line
 * {"time":..,"dropped":N} stands where lines are missing.
 */
#pragma once
#include "base/loop.h"
#include "policy/policy.h"

#define ACCESSLOG_BUFFER (256u << 10)

struct accesslog;
struct accesslog *accesslog_create(struct loop *l, int fd); /* owns fd */
void accesslog_destroy(struct accesslog *a);                /* NULL is fine; writes what is taken at once */

enum access_verdict { ACCESS_NONE, ACCESS_ALLOWED, ACCESS_DENIED };
struct access_entry {
	int64_t began_ms, took_ms; /* wall clock; monotonic */
	const struct addr *client; /* NULL: unknown */
	uint16_t client_port;
	const char *front;  /* "connect" "http" "socks5" "transparent"; "" when nothing was understood */
	const char *method; /* or NULL */
	const char *host;   /* canonical, or NULL */
	uint16_t port;
	const struct addr *address; /* dialled, or NULL */
	const char *upstream;       /* the proxy it went through, or NULL */
	enum access_verdict verdict;
	const char *rule, *error; /* or NULL */
	uint64_t bytes_in, bytes_out;
};
void accesslog_add(struct accesslog *a, const struct access_entry *e);
