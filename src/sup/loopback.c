/*
 * Loopback=PORT and Loopback=app:NAME. A jail has a listener for each, and the proxy relays what comes there to a
 * port of the host. Of an app by name that is its first Listen= port. Nothing else has to be done for an app that
 * is still starting: the gate of its port makes clients wait.
 *
 * When the port of a named app changes, the jails that name it get a listener of the new number, and what connects
 * to the old number goes to the new port too, as long as the jail lives: a program that read the number once need
 * not read it again.
 *
 * The port of an app in a jail is held by the supervisor. While it is not (another process had it first, the unit is
 * gone), nobody is reached through the name: whoever has the port is not whom the unit names.
 */
#include "sup/app.h"
#include "base/log.h"
#include <errno.h>

void loopback_forget(struct app *a)
{
	for (size_t i = 0; i < a->n_loopback; i++)
		free(a->loopback[i].app);
	free(a->loopback);
	a->loopback = NULL;
	a->n_loopback = 0;
}

/* The port that it holds, or is going to hold; 0 with *e. */
static uint16_t port_of(const struct app *a, const char *name, struct err **e)
{
	const struct app *peer = app_find(a->sup, name);
	const struct unit *u = peer ? peer->unit : NULL;

	if (peer && peer->n_listeners)
		return peer->listeners[0].host_port;
	if (u && u->n_listen)
		return u->listen[0].host_port;
	(void)err_set(e, EAGAIN, "Loopback=app:%s: its port is not known, because %s", name,
		      !peer ? "there is no such app"
		      : !u  ? "its unit has errors"
			    : "it has no Listen=");
	return 0;
}

/* Without a jail the app binds the host's port itself. */
static bool is_held(const struct app *a, const char *name)
{
	const struct app *peer = app_find(a->sup, name);

	return !peer || !peer->unit || app_jailed(peer->unit);
}

struct list {
	struct loopback v[NET_LOOPBACK_MAX];
	size_t n;
};

static bool has(const struct list *l, uint16_t inside)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].inside == inside)
			return true;
	return false;
}

/* One that is there wins: numbers come first, then what apps have now, then what they had. */
static int add(struct list *l, uint16_t inside, uint16_t host, const char *app, bool held, struct err **e)
{
	if (has(l, inside))
		return 0;
	if (l->n == NET_LOOPBACK_MAX)
		return err_set(e, E2BIG, "too many Loopback= ports (at most %d)", NET_LOOPBACK_MAX);
	l->v[l->n++] = (struct loopback){inside, host, held, (char *)(uintptr_t)app};
	return 0;
}

static int make_list(const struct app *a, bool keep, struct list *ret, struct err **e)
{
	const struct unit *u = prepare_unit(a);

	for (size_t i = 0; i < u->n_loopback; i++)
		if (add(ret, u->loopback[i], u->loopback[i], NULL, false, e) < 0)
			return -1;
	for (size_t i = 0; i < u->loopback_app.n; i++) {
		const char *name = u->loopback_app.v[i].text;
		uint16_t port = port_of(a, name, e);
		bool held = is_held(a, name);

		if (!port || add(ret, port, port, name, held, e) < 0)
			return -1;
		for (size_t k = 0; keep && k < a->n_loopback && ret->n < NET_LOOPBACK_MAX; k++)
			if (str_eq(a->loopback[k].app, name))
				(void)add(ret, a->loopback[k].inside, port, name, held, NULL);
	}
	return 0;
}

static void put(struct app *a, const struct list *l)
{
	struct loopback *v = xcalloc(l->n, sizeof *v);

	for (size_t i = 0; i < l->n; i++) {
		v[i] = l->v[i];
		v[i].app = xstrdup(v[i].app); /* before the old ones go */
	}
	loopback_forget(a);
	a->loopback = v;
	a->n_loopback = l->n;
}

int loopback_plan(struct app *a, struct err **e)
{
	struct list l = {.n = 0};

	if (make_list(a, false, &l, e) < 0)
		return -1;
	put(a, &l);
	return 0;
}

static bool same(const struct app *a, const struct list *l)
{
	bool equal = a->n_loopback == l->n;

	for (size_t i = 0; i < l->n && equal; i++)
		equal = a->loopback[i].inside == l->v[i].inside && a->loopback[i].host == l->v[i].host &&
			a->loopback[i].held == l->v[i].held && str_eq(a->loopback[i].app, l->v[i].app);
	return equal;
}

int loopback_renew(struct app *a, struct err **e)
{
	struct proxyctl_loopback v[NET_LOOPBACK_MAX];
	struct list l = {.n = 0};

	if (!a->launch || a->no_jail || !a->unit)
		return 0;
	if (make_list(a, true, &l, e) < 0)
		return -1;
	if (same(a, &l))
		return 0;
	for (size_t i = 0; i < l.n; i++)
		v[i] = (struct proxyctl_loopback){l.v[i].inside, l.v[i].host, l.v[i].held};
	if (proxyctl_set_loopback(a->sup->proxy, a->name, v, l.n, e) < 0)
		return -1;
	put(a, &l);
	return 0;
}

static bool names(const struct app *a, const struct app *peer)
{
	for (size_t i = 0; a->unit && i < a->unit->loopback_app.n; i++)
		if (str_eq(a->unit->loopback_app.v[i].text, peer->name))
			return true;
	return false;
}

void loopback_follow(struct app *peer)
{
	for (struct app *a = peer->sup->apps; a; a = a->next) {
		CLEANUP_ERR struct err *e = NULL;

		if (a == peer || !names(a, peer) || loopback_renew(a, &e) == 0)
			continue;
		log_warning("%s: %s; it keeps the ports it has until its next start", a->name, err_msg(e));
		events_note(a->sup->events, "port", a->name,
			    "%s; it keeps the ports it has until its next start", err_msg(e));
	}
}

const struct loopback *loopback_at(const struct app *a, uint16_t inside)
{
	for (size_t i = 0; i < a->n_loopback; i++)
		if (a->loopback[i].inside == inside)
			return &a->loopback[i];
	return NULL;
}
