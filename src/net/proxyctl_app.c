#include "net/proxyctl_app.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "base/wire.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define POLICY_ROOM 1024u /* for the rest of the message */

struct pc_app *pc_app_find(struct pc_app *list, const char *name)
{
	for (struct pc_app *a = list; a && name; a = a->next)
		if (str_eq(a->name, name))
			return a;
	return NULL;
}

struct pc_app *pc_app_get(struct pc_app **list, const char *name)
{
	struct pc_app *a = pc_app_find(*list, name);

	if (a)
		return a;
	a = xcalloc(1, sizeof *a);
	a->name = xstrdup(name);
	a->jail.userns_fd = a->jail.netns_fd = a->jail.egress_fd = a->names_fd = -1;
	a->next = *list;
	*list = a;
	return a;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

static void listeners_close(struct proxyctl_listen *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		close_fd(&v[i].fd);
	free(v);
}

static void denied_finish(struct pc_denied *d)
{
	free(d->host);
	free(d->rule);
	free(d->hint);
}

void pc_app_free(struct pc_app **list, struct pc_app *a)
{
	while (*list != a)
		list = &(*list)->next;
	*list = a->next;
	pc_app_drop_jail(a);
	close_fd(&a->names_fd);
	listeners_close(a->listen, a->n_listen);
	for (size_t i = 0; i < a->n_denied; i++)
		denied_finish(&a->denied[i]);
	free(a->denied);
	pc_tally_finish(&a->tally);
	js_free(a->policy);
	free(a->name);
	free(a);
}

bool pc_policy_fits(const struct js *policy)
{
	CLEANUP_FREE char *text = js_print(policy);

	return strlen(text) + POLICY_ROOM < WIRE_LARGE_MAX;
}

bool pc_app_policy(struct pc_app *a, struct js *policy)
{
	CLEANUP_FREE char *before = a->policy ? js_print(a->policy) : NULL;
	CLEANUP_FREE char *now = js_print(policy);

	js_free(a->policy);
	a->policy = policy;
	return !str_eq(before, now);
}

int pc_app_listeners(struct pc_app *a, const struct proxyctl_listen *v, size_t n, struct err **e)
{
	struct proxyctl_listen *copy;

	if (n > FD_PASS_MAX)
		return err_set(e, E2BIG, "%s listens on %zu ports; at most %d are possible", a->name, n,
			       FD_PASS_MAX);
	copy = xcalloc(n ? n : 1, sizeof *copy);
	for (size_t i = 0; i < n; i++) {
		copy[i] = v[i];
		copy[i].fd = fcntl(v[i].fd, F_DUPFD_CLOEXEC, 3);
		if (copy[i].fd < 0) {
			int errnum = errno;

			listeners_close(copy, i);
			return err_sys(e, errnum, "the listening sockets of %s cannot be kept", a->name);
		}
	}
	listeners_close(a->listen, a->n_listen);
	a->listen = copy;
	a->n_listen = n;
	return 0;
}

static void close_sockets(struct proxyctl_socket *v, size_t *n)
{
	for (size_t i = 0; i < *n; i++)
		close_fd(&v[i].fd);
	*n = 0;
}

void pc_app_drop_jail(struct pc_app *a)
{
	struct proxyctl_jail *j = &a->jail;

	if (!a->launch)
		return;
	a->launch = 0;
	a->pool_message = 0;
	close_fd(&j->userns_fd);
	close_fd(&j->netns_fd);
	close_fd(&j->egress_fd);
	close_sockets(j->transparent, &j->n_transparent);
	fd_close_many(j->dns_udp, j->n_dns_udp);
	fd_close_many(j->dns_tcp, j->n_dns_tcp);
	j->n_dns_udp = j->n_dns_tcp = 0;
	close_sockets(j->loopback, &j->n_loopback);
}

/* The proxy maps what it was given, so it must not be able to shrink it under a later proxy. */
void pc_app_names(struct pc_app *a)
{
	int fd;

	if (a->names_fd >= 0)
		return;
	fd = fd_memory("sbxsv-names");
	if (fd >= 0 && ftruncate(fd, WIRE_NAMES_BYTES) == 0 &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
		a->names_fd = fd;
		return;
	}
	log_warning("%s: no memory for its map of names (%s): a restart of sbxsv-proxy forgets them", a->name,
		    strerror(errno));
	if (fd >= 0)
		(void)close(fd);
}

static int *room_for(struct proxyctl_jail *j, enum net_kind kind, uint16_t port)
{
	struct proxyctl_socket *s = NULL;

	switch (kind) {
	case NET_EGRESS:
		return j->egress_fd < 0 ? &j->egress_fd : NULL;
	case NET_DNS_UDP:
		return j->n_dns_udp < ELEMENTS(j->dns_udp) ? &j->dns_udp[j->n_dns_udp++] : NULL;
	case NET_DNS_TCP:
		return j->n_dns_tcp < ELEMENTS(j->dns_tcp) ? &j->dns_tcp[j->n_dns_tcp++] : NULL;
	case NET_TRANSPARENT:
		if (j->n_transparent < ELEMENTS(j->transparent))
			s = &j->transparent[j->n_transparent++];
		break;
	case NET_LOOPBACK:
		if (j->n_loopback < ELEMENTS(j->loopback))
			s = &j->loopback[j->n_loopback++];
		break;
	}
	if (!s)
		return NULL;
	s->port = s->to = port;
	return &s->fd;
}

void proxyctl_jail_fill(struct proxyctl_jail *j, int *userns_fd, int *netns_fd,
			const struct net_inside_result *r, int *fds)
{
	*j = (struct proxyctl_jail){
		.userns_fd = TAKE_FD(*userns_fd), .netns_fd = TAKE_FD(*netns_fd), .egress_fd = -1};
	for (size_t i = 0; i < r->n && i < NET_SOCKETS_MAX; i++) {
		int *to = room_for(j, (enum net_kind)r->of[i].kind, r->of[i].port);

		if (to)
			*to = TAKE_FD(fds[i]);
		else
			close_fd(&fds[i]);
	}
}

static uint64_t count_of(const struct js *j, const char *key)
{
	int64_t n = js_int_or(j, key, 0);

	return n > 0 ? (uint64_t)n : 0;
}

void pc_app_counters(struct pc_app *a, const struct js *j)
{
	int64_t unused = js_int_or(j, "unused_ms", -1);

	pc_tally_read(&a->tally, js_get(j, "rules"));
	a->unused_since_ms = unused >= 0 && unused < clk_mono_ms() ? clk_mono_ms() - unused : 0;
	a->now = (struct proxyctl_app_counters){
		.in_open = count_of(j, "in_open"),
		.in_total = count_of(j, "in_total"),
		.out_open = count_of(j, "out_open"),
		.out_allowed = count_of(j, "out_allowed"),
		.out_denied = count_of(j, "out_denied"),
		.out_ech = count_of(j, "out_ech"),
		.bytes_in = count_of(j, "bytes_in"),
		.bytes_out = count_of(j, "bytes_out"),
	};
}

void pc_app_totals(const struct pc_app *a, struct proxyctl_app_counters *ret)
{
	*ret = (struct proxyctl_app_counters){
		.in_open = a->now.in_open,
		.in_total = a->before.in_total + a->now.in_total,
		.out_open = a->now.out_open,
		.out_allowed = a->before.out_allowed + a->now.out_allowed,
		.out_denied = a->before.out_denied + a->now.out_denied,
		.out_ech = a->before.out_ech + a->now.out_ech,
		.bytes_in = a->before.bytes_in + a->now.bytes_in,
		.bytes_out = a->before.bytes_out + a->now.bytes_out,
		.unused_ms = a->idle_ms && a->gate == PROXY_GATE_SERVE && a->unused_since_ms
				     ? clk_mono_ms() - a->unused_since_ms
				     : -1,
	};
}

void pc_app_proxy_died(struct pc_app *a)
{
	struct proxyctl_app_counters all;

	pc_app_totals(a, &all);
	all.in_open = all.out_open = 0;
	a->before = all;
	pc_tally_proxy_died(&a->tally);
	a->pool_message = 0;
	a->unused_since_ms = 0;
	a->now = (struct proxyctl_app_counters){0};
}

size_t pc_app_pool_grant(struct pc_app *a, size_t n)
{
	int64_t second = clk_mono_ms() / 1000;

	if (second != a->pool_second) {
		a->pool_second = second;
		a->pool_made = 0;
	}
	if (n > PC_POOL_RATE - a->pool_made)
		n = PC_POOL_RATE - a->pool_made;
	a->pool_made += n;
	return n;
}

static int text_read(const struct js *m, const char *key, char *out, size_t cap)
{
	const char *text = js_str(m, key);
	size_t n = 0;

	if (!text)
		return -1;
	for (; text[n] && n + 1 < cap; n++)
		out[n] = (unsigned char)text[n] < 0x20 || text[n] == 0x7f ? '?' : text[n];
	out[n] = 0;
	return 0;
}

int pc_refusal_read(const struct js *m, struct pc_refusal *ret)
{
	struct pc_refusal r = {0};
	int64_t port = js_int_or(m, "port", -1), count = js_int_or(m, "count", -1);

	if (port < 0 || port > UINT16_MAX || count < 1)
		return -1;
	r.port = (uint16_t)port;
	r.lookup = str_eq(js_str(m, "operation"), "resolve");
	r.unreachable = str_eq(js_str(m, "t"), "unreachable");
	r.count = (uint64_t)count;
	if (text_read(m, "host", r.host, sizeof r.host) < 0 ||
	    text_read(m, "rule", r.rule, sizeof r.rule) < 0 ||
	    text_read(m, "hint", r.hint, sizeof r.hint) < 0)
		return -1;
	*ret = r;
	return 0;
}

void pc_app_denied(struct pc_app *a, const struct pc_refusal *r)
{
	struct pc_denied d = {0};
	size_t i;

	for (i = 0; i < a->n_denied; i++)
		if (a->denied[i].port == r->port && a->denied[i].lookup == r->lookup &&
		    a->denied[i].unreachable == r->unreachable && str_eq(a->denied[i].host, r->host) &&
		    str_eq(a->denied[i].rule, r->rule))
			break;
	if (i < a->n_denied) {
		d = a->denied[i];
	} else {
		if (a->n_denied == PC_DENIED_MAX)
			denied_finish(&a->denied[--a->n_denied]);
		VEC_GROW(a->denied, a->n_denied, a->cap_denied);
		i = a->n_denied++;
		d.host = xstrdup(r->host);
		d.rule = xstrdup(r->rule);
		d.port = r->port;
		d.lookup = r->lookup;
		d.unreachable = r->unreachable;
	}
	free(d.hint);
	d.hint = xstrdup(r->hint);
	d.count += r->count;
	d.last_ms = clk_wall_ms();
	memmove(&a->denied[1], &a->denied[0], i * sizeof d);
	a->denied[0] = d;
}

static struct js *denied_json(const struct pc_denied *d)
{
	struct js *j = js_obj();
	char stamp[CLK_STAMP_LEN];

	js_add_str(j, "host", d->host);
	if (d->lookup)
		js_add_str(j, "operation", "resolve");
	else
		js_add_int(j, "port", d->port);
	js_add_int(j, "count", (int64_t)d->count);
	js_add_str(j, d->unreachable ? "reason" : "rule", d->rule);
	if (!d->unreachable)
		js_add_str(j, "hint", d->hint);
	js_add_str(j, "last", clk_stamp(d->last_ms, stamp, sizeof stamp));
	return j;
}

struct js *pc_app_denied_list(const struct pc_app *a, bool unreachable)
{
	struct js *list = js_arr();

	for (size_t i = 0; i < a->n_denied; i++) {
		if (a->denied[i].unreachable == unreachable)
			js_push(list, denied_json(&a->denied[i]));
	}
	return list;
}

struct js *pc_denied_event(const struct pc_app *a, const struct pc_refusal *r)
{
	struct js *j = js_obj();

	js_add_str(j, "app", a->name);
	js_add_str(j, "type", r->unreachable ? "unreachable" : "violation");
	js_add_str(j, "operation", r->lookup ? "resolve" : "connect");
	js_add_str(j, "host", r->host);
	if (!r->lookup)
		js_add_int(j, "port", r->port);
	js_add_str(j, r->unreachable ? "reason" : "rule", r->rule);
	js_add_str(j, "action", r->unreachable ? "failed" : "denied");
	if (!r->unreachable)
		js_add_str(j, "hint", r->hint);
	if (r->count != 1)
		js_add_int(j, "count", (int64_t)r->count);
	return j;
}
