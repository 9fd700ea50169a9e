#include "net/proxyctl_say.h"

struct js *pc_message_new(const char *type, const char *app)
{
	struct js *j = js_obj();

	js_add_str(j, "t", type);
	if (app)
		js_add_str(j, "app", app);
	return j;
}

struct js *pc_say_listeners(const struct pc_app *a, int *fds, size_t *ret_n)
{
	struct js *j = pc_message_new("listen", a->name), *ports = js_arr();

	for (size_t i = 0; i < a->n_listen; i++) {
		struct js *one = js_obj();

		js_add_int(one, "host", a->listen[i].host_port);
		js_add_int(one, "app", a->listen[i].app_port);
		js_push(ports, one);
		fds[i] = a->listen[i].fd;
	}
	js_add(j, "ports", ports);
	*ret_n = a->n_listen;
	return j;
}

struct js *pc_say_gate(const struct pc_app *a)
{
	static const char *const names[] = {"hold", "serve", "reset", "rest"};
	struct js *j = pc_message_new("gate", a->name);

	js_add_str(j, "mode", names[a->gate]);
	js_add_int(j, "n", (int64_t)a->gate_n);
	if (a->idle_ms) {
		js_add_int(j, "idle_ms", a->idle_ms);
		js_add_str(j, "idle_by", a->idle_by_traffic ? "traffic" : "connections");
	}
	return j;
}

static size_t add_sockets(struct js *j, const char *key, const struct proxyctl_socket *v, size_t n_v,
			  int *fds, size_t n)
{
	struct js *ports = js_arr();

	for (size_t i = 0; i < n_v; i++) {
		js_push_int(ports, v[i].port);
		fds[n++] = v[i].fd;
	}
	js_add(j, key, ports);
	return n;
}

/* Lists of the same length: the ports inside, with a socket each, what they are outside, and whether they must be held. */
static size_t add_loopback(struct js *j, const struct proxyctl_jail *jail, int *fds, size_t n)
{
	struct js *to = js_arr(), *held = js_arr();

	for (size_t i = 0; i < jail->n_loopback; i++) {
		js_push_int(to, jail->loopback[i].to);
		js_push_int(held, jail->loopback[i].held);
	}
	js_add(j, "loopback_to", to);
	js_add(j, "loopback_held", held);
	return add_sockets(j, "loopback", jail->loopback, jail->n_loopback, fds, n);
}

struct js *pc_say_loopback(const struct pc_app *a, int *fds, size_t *ret_n)
{
	struct js *j = pc_message_new("loopback", a->name);

	*ret_n = add_loopback(j, &a->jail, fds, 0);
	js_add_int(j, "launch", (int64_t)a->launch);
	return j;
}

struct js *pc_say_jail(const struct pc_app *a, int *fds, size_t *ret_n)
{
	const struct proxyctl_jail *jail = &a->jail;
	struct js *j = pc_message_new("jail", a->name);
	size_t n = 0;

	js_add_int(j, "launch", (int64_t)a->launch);
	js_add_bool(j, "egress", jail->egress_fd >= 0);
	if (jail->egress_fd >= 0)
		fds[n++] = jail->egress_fd;
	n = add_sockets(j, "transparent", jail->transparent, jail->n_transparent, fds, n);
	js_add_int(j, "dns_udp", (int64_t)jail->n_dns_udp);
	for (size_t i = 0; i < jail->n_dns_udp; i++)
		fds[n++] = jail->dns_udp[i];
	js_add_int(j, "dns_tcp", (int64_t)jail->n_dns_tcp);
	for (size_t i = 0; i < jail->n_dns_tcp; i++)
		fds[n++] = jail->dns_tcp[i];
	js_add_bool(j, "names", a->names_fd >= 0);
	if (a->names_fd >= 0)
		fds[n++] = a->names_fd;
	*ret_n = add_loopback(j, jail, fds, n);
	return j;
}
