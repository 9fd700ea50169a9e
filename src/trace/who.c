/* Who of a jail connected where, for what the proxy sees: it knows the name, and not the process. */
#include "trace/observer_internal.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

void who_connects(struct observer *o, const struct known_task *t, const struct sockaddr_in6 *to)
{
	struct connected c = {.to = to->sin6_addr, .port = ntohs(to->sin6_port), .pid = t->pid};

	memcpy(c.comm, t->comm, sizeof c.comm);
	(void)pthread_mutex_lock(&o->lock);
	o->connected[o->n_connected++ % CONNECTED_MAX] = c;
	(void)pthread_mutex_unlock(&o->lock);
}

static bool parse_host(const char *host, struct in6_addr *ret)
{
	memset(ret, 0, sizeof *ret);
	if (inet_pton(AF_INET6, host, ret) == 1)
		return true;
	ret->s6_addr[10] = ret->s6_addr[11] = 0xff;
	return inet_pton(AF_INET, host, &ret->s6_addr[12]) == 1;
}

/* With the lock. */
static const struct connected *find_connected(const struct observer *o, const struct in6_addr *to,
					      uint16_t port)
{
	size_t n = o->n_connected < CONNECTED_MAX ? o->n_connected : CONNECTED_MAX;
	const struct connected *by_port = NULL;

	for (size_t i = 1; i <= n; i++) {
		const struct connected *c = &o->connected[(o->n_connected - i) % CONNECTED_MAX];

		if (c->port != port)
			continue;
		if (to && memcmp(&c->to, to, sizeof *to) == 0)
			return c;
		by_port = by_port ? by_port : c;
	}
	return by_port ? by_port : n ? &o->connected[(o->n_connected - 1) % CONNECTED_MAX] : NULL;
}

int observer_who(struct observer *o, const char *host, uint16_t port, pid_t *ret_pid, char *command,
		 size_t cap)
{
	const struct connected *c;
	struct in6_addr to;
	bool literal = parse_host(host, &to);

	(void)pthread_mutex_lock(&o->lock);
	c = find_connected(o, literal ? &to : NULL, port ? port : 53);
	if (c) {
		*ret_pid = c->pid;
		(void)snprintf(command, cap, "%s", c->comm);
	}
	(void)pthread_mutex_unlock(&o->lock);
	return c ? 0 : -1;
}
