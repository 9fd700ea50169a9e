/*
 * The proxy's end of the channel to sbxsvd: messages in, messages out. The protocol is in doc/design.md,
 * section 11.
 *
 * The crash page is memory shared with the supervisor. Before bytes that an app or somebody it talks to made
 * are parsed, the app's name is written there, and it is taken out after; so when a parser dies, the
 * supervisor knows on whose bytes.
 */
#pragma once
#include "proxy/app.h"

/* Owns fd. The wire ends the loop when the supervisor goes. */
void control_start(struct proxy *p, int fd);
void control_finish(struct proxy *p);

void control_need(struct app *a, size_t n);
/* kind: enum denied_kind; `rule` is why, of a site that is unreachable */
void control_denied(struct app *a, int kind, const char *host, uint16_t port, const char *rule,
		    const char *hint, uint64_t count);
void control_counters_soon(struct proxy *p);
void control_use(struct app *a, const char *what); /* "wanted", "unused": at the gate of now */

void crash_page_enter(const struct app *a);
void crash_page_leave(void);
void crash_page_forget(const struct app *a); /* a is about to be freed */
