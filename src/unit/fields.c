/* What equality and the end of life mean for the field behind a key. */
#include "unit/internal.h"
#include <string.h>

enum unit_store unit_store_of(const struct unit_key *k)
{
	switch ((enum key_kind)k->kind) {
	case K_TEXT:
	case K_SHELL:
	case K_PATH:
	case K_ENUM_STR:
	case K_URLPATH:
	case K_USER:
	case K_IP:
	case K_PROXY_URL:
	case K_PROFILE:
		return STORE_STR;
	case K_ENUM:
	case K_NICE:
	case K_SIGNAL:
		return STORE_INT;
	case K_ENUM_BOOL:
	case K_BOOL:
		return STORE_BOOL;
	case K_MS:
		return STORE_I64;
	case K_UINT:
	case K_CPU:
		return STORE_UINT;
	case K_COUNT:
	case K_SIZE:
		return STORE_U64;
	case K_WORDS:
	case K_PATH_STRV:
		return STORE_STRV;
	case K_STATUS:
		return STORE_STATUS;
	case K_LISTEN:
		return STORE_LISTEN;
	case K_LOOPBACK:
		return STORE_LOOPBACK;
	case K_PATHS:
	case K_PATHS_OPT:
	case K_APPS:
	case K_ENV:
	case K_ENVNAMES:
	case K_SECRET:
	case K_DEVICE:
	case K_HOSTS:
	case K_ADDRESSES:
	case K_PORTS:
	case K_NO_PROXY:
	case K_NEED:
	case K_HOOK:
		break;
	}
	return STORE_LIST;
}

static bool list_equal(const struct unit_list *a, const struct unit_list *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (strcmp(a->v[i].text, b->v[i].text) != 0)
			return false;
	return true;
}

static bool listen_equal(const struct unit *a, const struct unit *b)
{
	if (a->n_listen != b->n_listen)
		return false;
	for (size_t i = 0; i < a->n_listen; i++)
		if (a->listen[i].host_port != b->listen[i].host_port ||
		    a->listen[i].app_port != b->listen[i].app_port)
			return false;
	return true;
}

bool unit_value_equal(const struct unit_key *k, const void *base_a, const void *base_b)
{
	const void *a = (const char *)base_a + k->offset, *b = (const char *)base_b + k->offset;
	const struct unit *ua = base_a, *ub = base_b;

	switch (unit_store_of(k)) {
	case STORE_STR:
		return str_eq(*(char *const *)a, *(char *const *)b);
	case STORE_INT:
	case STORE_UINT:
		return memcmp(a, b, sizeof(int)) == 0;
	case STORE_BOOL:
		return *(const bool *)a == *(const bool *)b;
	case STORE_I64:
	case STORE_U64:
		return memcmp(a, b, sizeof(int64_t)) == 0;
	case STORE_STRV:
		return strv_eq(a, b);
	case STORE_STATUS:
		return memcmp(a, b, sizeof ua->success_status) == 0;
	case STORE_LISTEN:
		return listen_equal(ua, ub);
	case STORE_LOOPBACK:
		return ua->n_loopback == ub->n_loopback && list_equal(&ua->loopback_app, &ub->loopback_app) &&
		       (!ua->n_loopback ||
			memcmp(ua->loopback, ub->loopback, ua->n_loopback * sizeof *ua->loopback) == 0);
	case STORE_LIST:
		break;
	}
	return list_equal(a, b);
}

static void listen_free(struct unit *u)
{
	for (size_t i = 0; i < u->n_listen; i++)
		free(u->listen[i].origin);
	free(u->listen);
	u->listen = NULL;
	u->n_listen = 0;
}

void unit_value_free(const struct unit_key *k, void *base)
{
	void *field = (char *)base + k->offset;
	struct unit *u = base;

	switch (unit_store_of(k)) {
	case STORE_STR:
		free(*(char **)field);
		*(char **)field = NULL;
		break;
	case STORE_STRV:
		strv_clear(field);
		break;
	case STORE_LIST:
		unit_list_clear(field);
		break;
	case STORE_STATUS:
		memset(field, 0, sizeof u->success_status);
		u->success_status[0] = 1; /* exit status 0 is always success */
		break;
	case STORE_LISTEN:
		listen_free(u);
		break;
	case STORE_LOOPBACK:
		free(u->loopback);
		u->loopback = NULL;
		u->n_loopback = 0;
		unit_list_clear(&u->loopback_app);
		break;
	case STORE_INT:
	case STORE_BOOL:
	case STORE_I64:
	case STORE_UINT:
	case STORE_U64:
		break;
	}
}
