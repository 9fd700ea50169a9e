/*
 * The stand-alone proxy: sbxsv-proxy --listen ADDRESS:PORT.
 *
 * Theory of operation. Two processes. This one, the master, is what the person started: it reads options and
 * the policy file, holds the listening socket, opens the access log, takes signals. It never reads a byte that
 * a stranger wrote. The worker is the same sbxsv-proxy that sbxsvd starts, over the same channel with the same
 * messages (doc/design.md, section 11): one app, "proxy", whose jail is this machine's own network. So the
 * process that parses is confined as always, a policy file may be root's own, and a worker that dies is
 * started again in milliseconds with the listener still open.
 *
 * What the worker says is received and dropped unparsed: nothing here depends on it.
 */
#pragma once
#include "base/str.h"

struct alone {
	const char *listen;     /* PORT, ADDRESS:PORT or [ADDRESS]:PORT */
	bool anywhere;          /* --listen-anywhere */
	const char *policy;     /* file, or NULL */
	struct strv rules;      /* "Key=value" of the options */
	const char *access_log; /* file, "-" for standard output, or NULL */
	const char *user;       /* of the worker under root; NULL: nobody */
	struct strv worker;     /* options passed on */
	bool check;             /* judge the rules and stop */
};
int alone_run(const struct alone *o); /* exit status */
