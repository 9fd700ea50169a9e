#include "proxy/app.h"
#include "base/str.h"
#include "proxy/control.h"
#include "proxy/denied.h"
#include "proxy/dns.h"
#include "proxy/egress.h"
#include "proxy/forward.h"
#include "proxy/idle.h"
#include "proxy/loopback.h"
#include "proxy/tally.h"

struct app *app_find(struct proxy *p, const char *name)
{
	for (struct app *a = p->apps; a; a = a->next)
		if (str_eq(a->name, name))
			return a;
	return NULL;
}

struct app *app_get(struct proxy *p, const char *name)
{
	struct app *a = app_find(p, name);

	if (a)
		return a;
	a = xcalloc(1, sizeof *a);
	a->proxy = p;
	a->name = xstrdup(name);
	conns_join(&a->conns);
	a->forward = forward_create(a);
	a->idle = idle_create(a);
	a->denied = denied_create(a);
	a->tally = tally_create();
	a->next = p->apps;
	p->apps = a;
	return a;
}

void app_remove(struct app *a)
{
	struct app **at = &a->proxy->apps;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	app_drop(a);
	crash_page_forget(a);
	forward_destroy(a->forward);
	idle_destroy(a->idle);
	denied_destroy(a->denied);
	tally_destroy(a->tally);
	conns_leave(&a->conns);
	policy_destroy(a->policy);
	free(a->closed);
	free(a->where);
	free(a->name);
	free(a);
}

void app_set_policy(struct app *a, struct policy *policy, const char *closed)
{
	policy_destroy(a->policy);
	a->policy = policy;
	a->generation++;
	free(a->closed);
	a->closed = xstrdup(closed);
	egress_judge_again(a->egress);
}

void app_set_gate(struct app *a, const struct app_gate *g)
{
	enum gate before = a->gate;

	a->gate = g->gate;
	a->gate_n = g->n;
	a->idle_ms = g->idle_ms;
	a->idle_by_traffic = g->idle_by_traffic;
	forward_gate_changed(a->forward);
	idle_gate(a->idle, before);
}

void app_drop(struct app *a)
{
	a->launch = 0;
	fds_give_back(a->jail_fds);
	a->jail_fds = 0;
	forward_drop(a->forward);
	loopback_destroy(a->loopback);
	a->loopback = NULL;
	egress_destroy(a->egress);
	a->egress = NULL;
	dns_destroy(a->dns); /* after the connections: they hold names */
	a->dns = NULL;
}

void app_conn_add(struct app *a, struct app_conns *l, struct app_conn *c)
{
	c->prev = NULL;
	c->next = l->head;
	if (c->next)
		c->next->prev = c;
	l->head = c;
	l->n++;
	conns_add(&a->conns);
	a->counters.out_open++;
	app_counted(a);
}

void app_conn_dialled(struct app_conn *c)
{
	if (!c->dialled)
		conns_dialled();
	c->dialled = true;
}

void app_conn_remove(struct app *a, struct app_conns *l, struct app_conn *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		l->head = c->next;
	if (c->next)
		c->next->prev = c->prev;
	l->n--;
	conns_sub(&a->conns, c->dialled);
	a->counters.out_open--;
	app_counted(a);
}

void app_counted(struct app *a)
{
	a->counters_changed = true;
	control_counters_soon(a->proxy);
}

int app_port_family(const struct proxy *p, uint16_t host_port)
{
	int family = AF_UNSPEC;

	for (const struct app *a = p->apps; a && family == AF_UNSPEC; a = a->next)
		family = forward_family(a->forward, host_port);
	return family;
}
