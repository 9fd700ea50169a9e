/* Loopback=app:NAME: what one unit says about another is right or wrong only when both are known. */
#include "base/parse.h"
#include "unit/internal.h"
#include <string.h>

static const struct unit_scan_entry *find(const struct unit_scan *scan, const char *name)
{
	for (size_t i = 0; i < scan->n; i++)
		if (str_eq(scan->v[i].name, name))
			return &scan->v[i];
	return NULL;
}

static char *unknown(const struct unit *u, const char *name, const struct unit_scan *scan)
{
	CLEANUP_STRV struct strv names = {0};
	const char *near;

	strv_add(&names, ""); /* so that there is a list */
	for (size_t i = 0; i < scan->n; i++)
		if (!str_eq(scan->v[i].name, u->name))
			strv_add(&names, scan->v[i].name);
	near = str_nearest(name, (const char *const *)names.v);
	return near && *near ? xasprintf("there is no app %s: did you mean app:%s?", name, near)
			     : xasprintf("there is no app %s", name);
}

/* What the proxy dials is 127.0.0.1, then ::1. */
static bool on_loopback(const char *address)
{
	return unit_address_clash(address, "127.0.0.1") || unit_address_clash(address, "::1");
}

/* NULL: it can be reached. */
static char *wrong(const struct unit *u, const struct unit *o)
{
	if (!o->n_listen)
		return xasprintf("%s has no Listen=, so there is nothing to reach", o->name);
	if (!on_loopback(o->listen_address))
		return xasprintf("%s listens on %s alone, not on this machine's loopback", o->name,
				 o->listen_address);
	for (size_t i = 0; i < u->n_listen; i++)
		if (u->listen[i].app_port == o->listen[0].host_port)
			return xasprintf(
				"the port of %s, %u, is the app's own port of %s: give one of them another",
				o->name, (unsigned)o->listen[0].host_port, u->listen[i].origin);
	return NULL;
}

void unit_peers_check(const struct unit *u, const struct unit_scan *scan, struct unit_problems *p)
{
	for (size_t i = 0; i < u->loopback_app.n; i++) {
		const struct unit_value *v = &u->loopback_app.v[i];
		const struct unit_scan_entry *peer = find(scan, v->text);
		CLEANUP_FREE char *text = !peer        ? unknown(u, v->text, scan)
					  : peer->unit ? wrong(u, peer->unit)
						       : NULL;
		CLEANUP_FREE char *whole =
			text ? xasprintf("[Network] Loopback=app:%s: %s", v->text, text) : NULL;

		if (whole)
			unit_problem_add_at(p, v->origin, whole);
	}
}
