/*
 * Messages of sd_notify(3): lines of NAME=value in one datagram. Pure. An app is not trusted: what is not understood is
 * left out, and text is bounded and made safe for a terminal.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NOTIFY_STATUS_MAX = 512 }; /* bytes of STATUS= that are kept */
#define NOTIFY_EXTEND_MAX_MS (24 * 3600 * INT64_C(1000))

struct notify_message {
	bool ready, reloading, stopping;
	bool watchdog, watchdog_trigger; /* WATCHDOG=1, WATCHDOG=trigger */
	bool main_pid;                   /* MAINPID=, which is never followed */
	bool has_status;
	char *status;      /* escaped; NULL with has_status: it is empty now */
	int64_t extend_ms; /* EXTEND_TIMEOUT_USEC=; 0: none */
};
/* False: it is no such message (a NUL byte, or no line of that form), and *ret is untouched. */
bool notify_parse(const char *text, size_t len, struct notify_message *ret);
void notify_message_finish(struct notify_message *m);
