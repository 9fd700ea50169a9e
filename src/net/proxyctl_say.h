/*
 * Messages to the proxy as data, with the sockets that go with them; see doc/design.md, "Proxy protocol". `fds` has
 * room for FD_PASS_MAX; they stay the app's. Each message is owned by the caller. Private to proxyctl.
 */
#pragma once
#include "base/fd.h"
#include "net/proxyctl_app.h"

struct js *pc_message_new(const char *type, const char *app); /* app NULL: of none */
struct js *pc_say_listeners(const struct pc_app *a, int *fds, size_t *ret_n);
struct js *pc_say_gate(const struct pc_app *a);
struct js *pc_say_jail(const struct pc_app *a, int *fds, size_t *ret_n); /* one must be there */
struct js *pc_say_loopback(const struct pc_app *a, int *fds, size_t *ret_n);
_Static_assert(NET_SOCKETS_MAX + 1 <= FD_PASS_MAX && 2 * NET_LOOPBACK_MAX <= FD_PASS_MAX, "");
