/*
 * Rules by name. A name is looked up once as it is and once for each of its parents, so that a list of 20,000
 * rules costs no more than one of 20. Of several rules that fit, the one written first is reported.
 */
#include "policy/rules.h"
#include <string.h>

static uint32_t hash(const char *s) /* FNV-1a; the keys are the unit's own, nobody floods them */
{
	uint32_t h = 2166136261u;

	for (; *s; s++)
		h = (h ^ (uint8_t)*s) * 16777619u;
	return h;
}

static void link_rule(struct rule_set *s, uint32_t i)
{
	uint32_t *head = &s->heads[hash(s->v[i].host) & (s->n_heads - 1)];

	s->v[i].next = *head;
	*head = i;
}

static void grow_index(struct rule_set *s)
{
	s->n_heads = s->n_heads ? s->n_heads * 2 : 16;
	s->heads = xrealloc(s->heads, s->n_heads * sizeof *s->heads);
	for (size_t i = 0; i < s->n_heads; i++)
		s->heads[i] = RULE_END;
	for (uint32_t i = 0; i < s->n; i++)
		link_rule(s, i);
}

void rule_set_add(struct rule_set *s, struct rule *r)
{
	VEC_GROW(s->v, s->n, s->cap);
	s->v[s->n] = *r;
	if (s->n >= s->n_heads)
		grow_index(s);
	link_rule(s, (uint32_t)s->n);
	s->n++;
}

void rule_set_finish(struct rule_set *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->v[i].host);
		free(s->v[i].text);
		free(s->v[i].origin);
	}
	free(s->v);
	free(s->heads);
	*s = (struct rule_set){0};
}

static bool rule_has_port(const struct rule *r, uint16_t port)
{
	for (unsigned i = 0; i < r->n_ports; i++)
		if (port_in(&r->ports[i], port))
			return true;
	return false;
}

/* The lowest index in the chain of `key`, not above `best`, that has one of the kinds (a bit each). */
static uint32_t find(const struct rule_set *s, const char *key, unsigned kinds, uint16_t port, uint32_t best)
{
	if (s->n == 0)
		return best;
	for (uint32_t i = s->heads[hash(key) & (s->n_heads - 1)]; i != RULE_END; i = s->v[i].next) {
		const struct rule *r = &s->v[i];

		if (i < best && kinds & (1u << r->kind) && rule_has_port(r, port) &&
		    strcmp(r->host, key) == 0)
			best = i;
	}
	return best;
}

const struct rule *rule_set_find_host(const struct rule_set *s, const char *host, uint16_t port)
{
	uint32_t best = find(s, host, 1u << RULE_HOST | 1u << RULE_WILDCARD, port, RULE_END);

	for (const char *dot = strchr(host, '.'); dot; dot = strchr(dot + 1, '.'))
		best = find(s, dot + 1, 1u << RULE_WILDCARD, port, best);
	return best == RULE_END ? NULL : &s->v[best];
}

static bool each_range(const struct rule_set *s, const char *key, unsigned kinds, rule_range_fn *fn,
		       void *data)
{
	for (uint32_t i = s->heads[hash(key) & (s->n_heads - 1)]; i != RULE_END; i = s->v[i].next) {
		const struct rule *r = &s->v[i];

		if (!(kinds & (1u << r->kind)) || strcmp(r->host, key) != 0)
			continue;
		for (unsigned k = 0; k < r->n_ports; k++)
			if (!fn(data, &r->ports[k]))
				return false;
	}
	return true;
}

void rule_set_each_range(const struct rule_set *s, const char *host, rule_range_fn *fn, void *data)
{
	if (s->n == 0 || !each_range(s, host, 1u << RULE_HOST | 1u << RULE_WILDCARD, fn, data))
		return;
	for (const char *dot = strchr(host, '.'); dot; dot = strchr(dot + 1, '.'))
		if (!each_range(s, dot + 1, 1u << RULE_WILDCARD, fn, data))
			return;
}

const struct rule *rule_set_find_addr(const struct rule_set *s, const struct addr *a, uint16_t port)
{
	char text[INET6_ADDRSTRLEN];
	uint32_t best;

	addr_format(a, text);
	best = find(s, text, 1u << RULE_ADDRESS, port, RULE_END);
	return best == RULE_END ? NULL : &s->v[best];
}
