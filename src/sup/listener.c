/*
 * The host side of Listen=: sockets that the supervisor holds from the first start of an app until its unit
 * is gone or names other ports. They survive every restart of the app and of sbxsv-proxy, so that a port is
 * never free for a stranger and no connect is refused. Only the proxy accepts.
 *
 * Enforce=off: the app binds on the host itself. Its port is only looked at: taken by another process means
 * failed, as for a jailed app.
 */
#include "sup/app.h"
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#define GONE_TRIES 5

static int listening_socket(const char *address, uint16_t port, struct err **e)
{
	struct sockaddr_storage sa;
	struct addr where;
	CLEANUP_FD int fd = -1;
	socklen_t len;
	int one = 1;

	if (host_parse_addr(address, strlen(address), &where) < 0)
		return err_set(e, EINVAL, "ListenAddress=%s is not an IP address", address);
	len = addr_to_sockaddr(&where, port, &sa);
	fd = socket(where.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(e, errno, "cannot make a socket for port %u", port);
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (where.family == AF_INET6)
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
	if (bind(fd, (struct sockaddr *)&sa, len) < 0 || listen(fd, APP_LISTEN_BACKLOG) < 0)
		return err_sys(e, errno, "cannot listen on %s port %u", address, port);
	return TAKE_FD(fd);
}

static const struct app *held_by_sibling(const struct app *a, const struct listener *l)
{
	for (const struct app *o = a->sup->apps; o; o = o->next)
		for (size_t i = 0; o != a && i < o->n_listeners; i++)
			if (o->listeners[i].host_port == l->host_port &&
			    unit_address_clash(o->listeners[i].address, l->address) &&
			    (o->listeners[i].fd >= 0 || app_alive(o)))
				return o;
	return NULL;
}

/* The port is taken. Take it back from an orphan of the app, or say who has it. */
static enum hold taken(struct app *a, struct listener *l, struct err **e)
{
	const struct app *o = held_by_sibling(a, l);
	CLEANUP_ERR struct err *why = NULL;
	const char *reason;

	free(l->holder);
	l->holder = NULL;
	if (o) {
		l->holder = xasprintf("app %s", o->name);
		/* A sibling that is about to let go of it (a renamed unit, two apps that swap ports): try
		 * again soon. */
		(void)err_set(e, o->newest || o->removed || o->state == APP_STOPPING ? EAGAIN : EADDRINUSE,
			      "port %u is already Listen= of app %s", l->host_port, o->name);
		return HOLD_FAILED;
	}
	if (reclaim_start(a, l->host_port, &why) == 0)
		return HOLD_PENDING;
	l->holder = reclaim_describe(l->host_port);
	if (!l->holder)
		return HOLD_GONE;
	reason = strstr(err_msg(why), " is left alone: "); /* of a holder that is named already */
	reason = reason ? strchr(reason, ':') + 2 : err_msg(why);
	(void)err_set(e, EADDRINUSE, "port %u is taken by %s; it was left alone: %s", l->host_port, l->holder,
		      reason);
	return HOLD_FAILED;
}

/* shutdown() ends the listening for the proxy's duplicate too, so that another app can have the port at once.
 */
static void let_go(struct listener *l)
{
	if (l->fd >= 0)
		(void)shutdown(l->fd, SHUT_RDWR);
	fd_close_many(&l->fd, 1);
}

static enum hold hold_one(struct app *a, struct listener *l, bool jailed, struct err **e)
{
	CLEANUP_ERR struct err *why = NULL;
	CLEANUP_FD int fd = -1;
	enum hold h = HOLD_GONE;

	l->by_app = !jailed;
	if (l->fd >= 0 && jailed)
		return HOLD_DONE;
	let_go(l);
	a->network_told = false;
	/* A process that ends has closed its table of descriptors a moment before its sockets: whoever had the port cannot be
	 * found, and then does not have it any more. */
	for (int tries = 0; tries < GONE_TRIES && h == HOLD_GONE; tries++) {
		err_free(TAKE_PTR(why));
		fd = listening_socket(l->address, l->host_port, &why);
		h = fd < 0 && err_code(why) == EADDRINUSE ? taken(a, l, e) : HOLD_DONE;
	}
	if (h == HOLD_GONE)
		(void)err_set(e, EAGAIN, "port %u is taken by a process that cannot be found", l->host_port);
	if (h != HOLD_DONE)
		return h == HOLD_GONE ? HOLD_FAILED : h;
	if (fd < 0) {
		(void)err_set(e, err_code(why), "%s", err_msg(why));
		return HOLD_FAILED;
	}
	free(l->holder);
	l->holder = NULL;
	if (jailed)
		l->fd = TAKE_FD(fd);
	return HOLD_DONE;
}

static void listener_finish(struct listener *l)
{
	let_go(l);
	free(l->address);
	free(l->holder);
}

static struct listener *find(struct app *a, uint16_t host_port, const char *address)
{
	for (size_t i = 0; i < a->n_listeners; i++)
		if (a->listeners[i].host_port == host_port && str_eq(a->listeners[i].address, address))
			return &a->listeners[i];
	return NULL;
}

/* Makes the list that the unit in force names; what was held already is kept. */
static void follow_unit(struct app *a)
{
	const struct unit *u = a->unit;
	struct listener *v = xcalloc(u->n_listen, sizeof *v);

	a->network_told &= a->n_listeners == u->n_listen;
	for (size_t i = 0; i < u->n_listen; i++) {
		struct listener *old = find(a, u->listen[i].host_port, u->listen_address);

		v[i].fd = -1;
		if (old) {
			v[i] = *old;
			*old = (struct listener){.fd = -1};
		} else {
			v[i].address = xstrdup(u->listen_address);
			v[i].host_port = u->listen[i].host_port;
		}
		a->network_told &= v[i].app_port == u->listen[i].app_port;
		v[i].app_port = u->listen[i].app_port;
	}
	listener_release(a);
	a->listeners = v;
	a->n_listeners = u->n_listen;
}

enum hold listener_hold(struct app *a, struct err **e)
{
	bool jailed = app_jailed(a->unit);

	follow_unit(a);
	for (size_t i = 0; i < a->n_listeners; i++) {
		enum hold h;

		if (!jailed && a->listeners[i].host_port != a->listeners[i].app_port) {
			(void)err_set(e, EINVAL,
				      "Listen=%u:%u beside Enforce=off: without a jail the app binds the "
				      "host's port "
				      "itself, so both numbers must be the same",
				      a->listeners[i].host_port, a->listeners[i].app_port);
			return HOLD_FAILED;
		}
		h = hold_one(a, &a->listeners[i], jailed, e);
		if (h != HOLD_DONE)
			return h;
	}
	return HOLD_DONE;
}

int listener_move(struct app *a, struct err **e)
{
	const struct unit *u = a->unit;
	CLEANUP_FREE int *fresh = xcalloc(u->n_listen, sizeof *fresh);

	for (size_t i = 0; i < u->n_listen; i++) {
		const struct listener *old = find(a, u->listen[i].host_port, u->listen_address);

		fresh[i] = -1;
		if (old && old->fd >= 0)
			continue;
		fresh[i] = listening_socket(u->listen_address, u->listen[i].host_port, e);
		if (fresh[i] < 0) {
			fd_close_many(fresh, i);
			return -1;
		}
	}
	follow_unit(a);
	for (size_t i = 0; i < a->n_listeners; i++)
		if (fresh[i] >= 0)
			a->listeners[i].fd = fresh[i];
	a->network_told = false;
	return 0;
}

void listener_release(struct app *a)
{
	for (size_t i = 0; i < a->n_listeners; i++)
		listener_finish(&a->listeners[i]);
	free(a->listeners);
	a->listeners = NULL;
	a->n_listeners = 0;
}
