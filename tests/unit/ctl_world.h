/* A control server in a child process, with a supervisor that has no apps (fake_sup.c), and clients for it.
 */
#pragma once
#include "base/clock.h"
#include "base/file.h"
#include "ctl/client.h"
#include "fake_sup.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <cmocka.h>

#define HANG_MS 20000

struct world {
	char dir[64];
	struct unit_dirs dirs;
	pid_t server;
};
/* cmocka fixtures; tear_down ends the server and fails the test when that did not end in order */
int set_up(void **state);
int tear_down(void **state);
int wait_exit(struct world *w); /* of the server: its exit status, or -1 */
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

/* One request over the client; fails the test unless the HTTP status is `want`. Owned by caller. */
struct js *call(struct world *w, const char *method, const char *path, const char *body, long want);
int64_t control_number(struct world *w, const char *key); /* of "control" in /v1/status */
void wait_number(struct world *w, const char *key, int64_t want);
void kill_notes(struct world *w, const char *signal); /* see fake_sup.h */
/* A plain connection; -1 with errno. */
int dial(const struct world *w);
int dial_and_send(const struct world *w, const char *text);
char *read_until(int fd, const char *stop); /* everything until the server closes, or until `stop` was seen */
char *raw(const struct world *w, const char *text); /* one request, everything that comes back */
