/* Two units that want the same port of this machine. Each is right by itself, so this is found among all. */
#include "base/parse.h"
#include "unit/internal.h"
#include <arpa/inet.h>
#include <string.h>

struct where {
	int family;
	unsigned char bytes[sizeof(struct in6_addr)];
};

static int read_address(const char *text, struct where *ret)
{
	struct where w = {.family = AF_INET};

	if (inet_pton(AF_INET, text, w.bytes) != 1) {
		w.family = AF_INET6;
		if (inet_pton(AF_INET6, text, w.bytes) != 1)
			return -1;
	}
	*ret = w;
	return 0;
}

static bool unspecified(const struct where *w)
{
	static const unsigned char zero[sizeof w->bytes];

	return memcmp(w->bytes, zero, sizeof zero) == 0;
}

/* Sockets for Listen= are IPV6_V6ONLY, so the families have nothing to do with each other. */
bool unit_address_clash(const char *a, const char *b)
{
	struct where wa, wb;

	if (read_address(a, &wa) < 0 || read_address(b, &wb) < 0)
		return str_eq(a, b);
	if (wa.family != wb.family)
		return false;
	return unspecified(&wa) || unspecified(&wb) || memcmp(wa.bytes, wb.bytes, sizeof wa.bytes) == 0;
}

/* "notes.app:9": an origin is a place in a file. */
void unit_problem_add_at(struct unit_problems *p, const char *origin, const char *text)
{
	const char *colon = strrchr(origin, ':');
	CLEANUP_FREE char *file = colon ? xstrndup(origin, (size_t)(colon - origin)) : xstrdup(origin);
	uint64_t line = 0;

	if (colon && parse_u64(colon + 1, UINT32_MAX, &line) < 0)
		line = 0;
	unit_problem_add(p, file, (unsigned)line, "%s", text);
}

static void compare(const struct unit *u, const struct unit *o, struct unit_problems *p)
{
	if (!unit_address_clash(u->listen_address, o->listen_address))
		return;
	for (size_t i = 0; i < u->n_listen; i++)
		for (size_t j = 0; j < o->n_listen; j++) {
			CLEANUP_FREE char *text = NULL;

			if (u->listen[i].host_port != o->listen[j].host_port)
				continue;
			text = xasprintf(
				"port %u is already Listen= of app %s (%s): choose another host port, "
				"such as Listen=%u:%u",
				u->listen[i].host_port, o->name, o->listen[j].origin,
				u->listen[i].host_port < UINT16_MAX ? u->listen[i].host_port + 1u : 8080u,
				u->listen[i].app_port);
			unit_problem_add_at(p, u->listen[i].origin, text);
		}
}

void unit_clash_check(const struct unit *u, const struct unit_scan *scan, size_t n, struct unit_problems *p)
{
	if (!u->enabled)
		return;
	for (size_t i = 0; i < n && i < scan->n; i++) {
		const struct unit *o = scan->v[i].unit;

		if (o && o->enabled && !str_eq(o->name, u->name))
			compare(u, o, p);
	}
}
