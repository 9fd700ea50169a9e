/*
 * One question to a port of an app: does it accept a connection (tcp), or does it answer a request with a status below
 * 500 (http)? By a plain socket and the first 12 bytes of the answer (the rest is only read away): a library for HTTP would cost the daemon more memory
 * than everything else of it, to learn one number.
 */
#pragma once
#include "base/loop.h"
#include <stdint.h>

enum probe_result {
	PROBE_OK,
	PROBE_FAILED,
	PROBE_UNKNOWN /* it could not be asked: this machine is short of something */
};
/* A connected-or-connecting non-blocking socket to the app's port, owned by the probe then; -1 with errno. */
typedef int probe_connect_fn(void *data, uint16_t port);
/* Called once, never from within probe_start(); the probe may be stopped (freed) inside or later. `what`: "GET / on
 * 4810 answered 503", "nothing answers on 4810". */
typedef void probe_fn(void *data, enum probe_result r, const char *what);
struct probe_config {
	uint16_t port;
	const char *http_path; /* NULL: tcp; must stay until the end */
	int64_t timeout_ms;
	probe_connect_fn *connect;
	void *data;
};
struct tcp_probe;
struct tcp_probe *probe_start(struct loop *l, const struct probe_config *c, probe_fn *fn, void *fn_data);
void probe_stop(struct tcp_probe *p); /* frees; NULL is fine */
