#include "proxy/access.h"
#include "base/clock.h"
#include "base/str.h"
#include <netinet/in.h>
#include <string.h>

struct access {
	int64_t began_ms, began_mono_ms;
	struct addr client, address;
	uint16_t client_port, port;
	char method[REQUEST_METHOD_MAX + 1];
	char *host, *upstream, *rule, *error;
	enum access_verdict verdict;
	uint64_t bytes[2];
};

static void set(char **at, const char *text)
{
	free(*at);
	*at = xstrdup(text);
}

struct access *access_begin(const struct accesslog *log, int client_fd)
{
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof sa;
	struct access *a;

	if (!log)
		return NULL;
	a = xcalloc(1, sizeof *a);
	a->began_ms = clk_wall_ms();
	a->began_mono_ms = clk_mono_ms();
	if (getpeername(client_fd, (struct sockaddr *)&sa, &len) == 0) {
		addr_from_sockaddr(&a->client, &sa);
		a->client_port =
			ntohs(sa.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&sa)->sin6_port
						       : ((struct sockaddr_in *)(void *)&sa)->sin_port);
	}
	return a;
}

void access_target(struct access *a, const struct target *t, const struct request *r, const char *buf)
{
	if (!a)
		return;
	set(&a->host, t->host);
	a->port = t->port;
	if (r && r->method.len && r->method.len <= REQUEST_METHOD_MAX) {
		memcpy(a->method, buf + r->method.at, r->method.len);
		a->method[r->method.len] = 0;
	}
}

void access_connected(struct access *a, const struct addr *peer, const char *upstream)
{
	if (!a)
		return;
	a->address = *peer;
	set(&a->upstream, upstream);
}

void access_verdict(struct access *a, enum access_verdict v, const char *rule)
{
	if (!a)
		return;
	a->verdict = v;
	set(&a->rule, rule);
}

void access_error(struct access *a, const char *text)
{
	if (a)
		set(&a->error, text);
}

uint64_t *access_bytes(struct access *a, int i, uint64_t *other)
{
	return a ? &a->bytes[i] : other;
}

void access_end(struct accesslog *log, struct access *a, const char *front)
{
	if (!a)
		return;
	if (log)
		accesslog_add(log, &(struct access_entry){
					   .began_ms = a->began_ms,
					   .took_ms = clk_mono_ms() - a->began_mono_ms,
					   .client = a->client.family ? &a->client : NULL,
					   .client_port = a->client_port,
					   .front = front,
					   .method = a->method,
					   .host = a->host,
					   .port = a->port,
					   .address = a->address.family ? &a->address : NULL,
					   .upstream = a->upstream,
					   .verdict = a->verdict,
					   .rule = a->rule,
					   .error = a->error,
					   .bytes_out = a->bytes[0],
					   .bytes_in = a->bytes[1],
				   });
	free(a->host);
	free(a->upstream);
	free(a->rule);
	free(a->error);
	free(a);
}
