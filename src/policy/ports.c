/* Which ports the rules speak of, for those who have to listen ahead of a connection. */
#include "policy/rules.h"

struct list {
	uint16_t *out;
	size_t n, max;
	bool more;
};

static void add(struct list *l, uint16_t port)
{
	if (port == 0)
		return;
	for (size_t i = 0; i < l->n; i++)
		if (l->out[i] == port)
			return;
	if (l->n < l->max)
		l->out[l->n++] = port;
	else
		l->more = true;
}

static void add_range(struct list *l, const struct port_range *r)
{
	for (unsigned port = r->low; port <= r->high && !l->more; port++)
		add(l, (uint16_t)port);
}

static void add_defaults(struct list *l)
{
	for (size_t i = 0; i < PORT_DEFAULTS; i++)
		add(l, port_defaults[i]);
}

static bool single(const struct port_range *r)
{
	return r->low == r->high;
}

/* What was named one by one comes before ranges: those may fill all the room there is. */
static void add_pass(struct list *l, const struct policy *p, bool ranges)
{
	for (size_t i = 0; i < p->allow.n; i++) {
		const struct rule *r = &p->allow.v[i];

		for (unsigned k = 0; k < r->n_ports; k++)
			if (single(&r->ports[k]) != ranges)
				add_range(l, &r->ports[k]);
	}
	for (size_t i = 0; i < p->n_nets; i++)
		if (single(&p->nets[i].ports) != ranges)
			add_range(l, &p->nets[i].ports);
	for (size_t i = 0; p->egress == EGRESS_ALL && i < p->n_connect; i++)
		if (single(&p->connect[i]) != ranges)
			add_range(l, &p->connect[i]);
}

size_t policy_ports(const struct policy *p, uint16_t *out, size_t max, bool *ret_more)
{
	struct list l = {.out = out, .max = max};

	if (p->egress != EGRESS_OFF) {
		add_pass(&l, p, false);
		if (p->egress == EGRESS_ALL && p->n_connect == 0) { /* every port */
			add_defaults(&l);
			l.more = true;
		}
		add_pass(&l, p, true);
	}
	*ret_more = l.more;
	return l.n;
}
