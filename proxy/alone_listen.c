#include "proxy/alone_listen.h"
#include "base/parse.h"
#include "base/str.h"
#include "policy/policy.h"
#include "proxy/portholder.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 4096 /* the kernel cuts it to net.core.somaxconn */

static int parse_where(const char *text, struct addr *ret_addr, uint16_t *ret_port, struct err **e)
{
	const char *colon = strrchr(text, ':'), *host = colon ? text : "127.0.0.1";
	size_t len = colon ? (size_t)(colon - text) : strlen(host);
	bool bracketed = len > 2 && host[0] == '[' && host[len - 1] == ']';
	uint64_t port;

	if (bracketed) {
		host++;
		len -= 2;
	}
	if (len == strlen("localhost") && memcmp(host, "localhost", len) == 0) {
		host = "127.0.0.1";
		len = strlen(host);
	}
	if (parse_u64(colon ? colon + 1 : text, UINT16_MAX, &port) < 0 ||
	    host_parse_addr(host, len, ret_addr) < 0 || (ret_addr->family == AF_INET6) != bracketed)
		return err_set(e, EINVAL, "--listen %s: not PORT, ADDRESS:PORT or [IPV6-ADDRESS]:PORT", text);
	*ret_port = (uint16_t)port;
	return 0;
}

static char *shown(const struct addr *a, uint16_t port)
{
	char text[INET6_ADDRSTRLEN];

	addr_format(a, text);
	return xasprintf(a->family == AF_INET6 ? "[%s]:%u" : "%s:%u", text, port);
}

static int bind_error(const char *where, uint16_t port, int errnum, struct err **e)
{
	CLEANUP_FREE char *who = NULL;

	if (errnum == EADDRINUSE) {
		who = portholder(port);
		return err_set(e, errnum, "%s is taken%s%s: choose another port, or stop that program", where,
			       who ? " by " : "", who ? who : "");
	}
	if (errnum == EACCES && port < 1024)
		return err_set(e, errnum, "port %u is for root: choose one from 1024 up", port);
	if (errnum == EADDRNOTAVAIL)
		return err_set(e, errnum, "%s is no address of this machine", where);
	return err_sys(e, errnum, "%s cannot be listened on", where);
}

int alone_listen(const char *text, bool anywhere, char **ret_where, struct err **e)
{
	CLEANUP_FREE char *where = NULL;
	CLEANUP_FD int fd = -1;
	struct sockaddr_storage sa;
	socklen_t len;
	struct addr a;
	uint16_t port = 0;
	int one = 1;

	if (parse_where(text, &a, &port, e) < 0)
		return -1;
	where = shown(&a, port);
	if (addr_classify(&a) != ADDR_LOOPBACK && !anywhere)
		return err_set(e, EPERM,
			       "--listen %s: other machines could use this proxy, and it asks nobody for a "
			       "password; give --listen-anywhere too if that is meant",
			       where);
	len = addr_to_sockaddr(&a, port, &sa);
	fd = socket(a.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(e, errno, "no socket");
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(fd, (struct sockaddr *)&sa, len) < 0 || listen(fd, BACKLOG) < 0)
		return bind_error(where, port, errno, e);
	if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
		return err_sys(e, errno, "getsockname");
	port = ntohs(sa.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&sa)->sin6_port
					      : ((struct sockaddr_in *)&sa)->sin_port);
	*ret_where = shown(&a, port);
	return TAKE_FD(fd);
}
