/* What changed in meaning. Text, origins, comments, order of files and the name of the profile mean nothing
 * here. */
#include "unit/internal.h"
#include <stddef.h>
#include <string.h>

static bool has_app_port(const struct unit *u, uint16_t port)
{
	for (size_t i = 0; i < u->n_listen; i++)
		if (u->listen[i].app_port == port)
			return true;
	return false;
}

/* Only the host's side differs: what the app was told ($PORT is the first), and what it listens on inside, is the
 * same. Without a jail there is no such side. */
static bool same_inside(const struct unit *a, const struct unit *b)
{
	if (!a->n_listen || !b->n_listen || a->listen[0].app_port != b->listen[0].app_port ||
	    a->enforce == UNIT_ENFORCE_OFF || b->enforce == UNIT_ENFORCE_OFF)
		return false;
	if (!str_eq(a->listen_address, b->listen_address) &&
	    unit_address_clash(a->listen_address, b->listen_address))
		return false; /* the old socket has to go before the new one can come */
	for (size_t i = 0; i < a->n_listen; i++)
		if (!has_app_port(b, a->listen[i].app_port))
			return false;
	for (size_t i = 0; i < b->n_listen; i++)
		if (!has_app_port(a, b->listen[i].app_port))
			return false;
	return true;
}

static bool by_word(const struct unit *u)
{
	return u->ready == UNIT_READY_NOTIFY || u->ready == UNIT_READY_FD;
}

static unsigned change_of(const struct unit_key *k, const struct unit *a, const struct unit *b)
{
	if (k->kind == K_PROFILE)
		return 0; /* only its keys matter, and they are compared themselves */
	if (k->kind == K_LISTEN || strcmp(k->name, "ListenAddress") == 0)
		return UNIT_CHANGE_PORTS | (same_inside(a, b) ? UNIT_CHANGE_LIVE : UNIT_CHANGE_RESTART);
	/* The listeners of egress are made with the jail: opening it at all needs a new one. */
	if (strcmp(k->name, "Egress") == 0 && (a->egress == UNIT_EGRESS_OFF || b->egress == UNIT_EGRESS_OFF))
		return UNIT_CHANGE_RESTART;
	/* The app is told at its start how it is listened to. */
	if (k->offset == offsetof(struct unit, ready) && (by_word(a) || by_word(b)))
		return UNIT_CHANGE_RESTART;
	return k->live ? UNIT_CHANGE_LIVE : UNIT_CHANGE_RESTART;
}

unsigned unit_diff(const struct unit *before, const struct unit *after)
{
	unsigned change = 0;

	for (size_t i = 0; i < unit_table.n; i++)
		if (!unit_value_equal(&unit_table.v[i], before, after))
			change |= change_of(&unit_table.v[i], before, after);
	return change;
}
