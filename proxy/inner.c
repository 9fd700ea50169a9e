#include "proxy/inner.h"
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>

#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78 /* linux/in6.h, kernel 4.15 */
#endif

/* RFC 2544 and RFC 6052: not loopback, not somebody's address. For a client whose family the app does not
 * listen on. */
#define STANDIN_V4 0xc6120002u                                  /* 198.18.0.2 */
static const uint8_t standin_v6[12] = {0x00, 0x64, 0xff, 0x9b}; /* 64:ff9b::/96, then the v4 address */

void inner_peer(const struct sockaddr_storage *peer, struct addr *ret)
{
	memset(ret, 0, sizeof *ret);
	if (peer->ss_family == AF_INET) {
		ret->family = AF_INET;
		ret->v4 = ((const struct sockaddr_in *)(const void *)peer)->sin_addr;
	} else if (peer->ss_family == AF_INET6) {
		const struct in6_addr *a = &((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr;

		if (IN6_IS_ADDR_V4MAPPED(a)) {
			ret->family = AF_INET;
			memcpy(&ret->v4, a->s6_addr + 12, 4);
		} else if (!IN6_IS_ADDR_LOOPBACK(a)) {
			ret->family = AF_INET6;
			ret->v6 = *a;
		}
	}
	if (ret->family == AF_INET && (ntohl(ret->v4.s_addr) >> 24) == 127)
		ret->family = 0;
}

static void address_for(const struct addr *peer, int family, struct addr *ret)
{
	*ret = *peer;
	/* A link-local client has a scope that means nothing inside. */
	if (peer->family == AF_INET6 && family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&peer->v6))
		return;
	if (peer->family == AF_INET && family == AF_INET)
		return;
	memset(ret, 0, sizeof *ret);
	ret->family = family;
	if (family == AF_INET) {
		ret->v4.s_addr = htonl(STANDIN_V4);
		return;
	}
	memcpy(&ret->v6, standin_v6, sizeof standin_v6);
	if (peer->family == AF_INET)
		memcpy(ret->v6.s6_addr + 12, &peer->v4, 4);
	else
		memcpy(ret->v6.s6_addr + 12, peer->v6.s6_addr + 12, 4);
}

/* The address of `a` for a socket of family sock_family: v4-mapped where a dual-stack socket needs it. */
static socklen_t sockaddr_for(const struct addr *a, int sock_family, uint16_t port,
			      struct sockaddr_storage *ret)
{
	struct sockaddr_in6 *s6 = (struct sockaddr_in6 *)(void *)ret;
	struct sockaddr_in *s4 = (struct sockaddr_in *)(void *)ret;

	memset(ret, 0, sizeof *ret);
	if (sock_family == AF_INET) {
		s4->sin_family = AF_INET;
		s4->sin_port = htons(port);
		s4->sin_addr = a->v4;
		return sizeof *s4;
	}
	s6->sin6_family = AF_INET6;
	s6->sin6_port = htons(port);
	if (a->family == AF_INET6) {
		s6->sin6_addr = a->v6;
	} else {
		s6->sin6_addr.s6_addr[10] = s6->sin6_addr.s6_addr[11] = 0xff;
		memcpy(s6->sin6_addr.s6_addr + 12, &a->v4, 4);
	}
	return sizeof *s6;
}

static bool is_bound(int sock)
{
	static const uint8_t none[16], mapped_none[16] = {[10] = 0xff, [11] = 0xff};
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof sa;

	if (getsockname(sock, (struct sockaddr *)&sa, &len) < 0)
		return false;
	if (sa.ss_family == AF_INET)
		return ((struct sockaddr_in *)(void *)&sa)->sin_addr.s_addr != 0;
	return memcmp(&((struct sockaddr_in6 *)(void *)&sa)->sin6_addr, none, 16) != 0 &&
	       memcmp(&((struct sockaddr_in6 *)(void *)&sa)->sin6_addr, mapped_none, 16) != 0;
}

static int bind_peer(int sock, int sock_family, int family, const struct addr *peer)
{
	struct sockaddr_storage sa;
	struct addr from;
	socklen_t len;
	int one = 1;

	address_for(peer, family, &from);
	len = sockaddr_for(&from, sock_family, 0, &sa);
	/* IP_FREEBIND works on the shared inet part of an AF_INET6 socket too and covers v4-mapped addresses.
	 */
	(void)setsockopt(sock, IPPROTO_IP, IP_FREEBIND, &one, sizeof one);
	/* The port is chosen at connect time, so that many clients of one address do not use up the range. */
	(void)setsockopt(sock, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
	if (sock_family == AF_INET6)
		(void)setsockopt(sock, IPPROTO_IPV6, IPV6_FREEBIND, &one, sizeof one);
	if (bind(sock, (struct sockaddr *)&sa, len) == 0)
		return 0;
	return errno == EINVAL && is_bound(sock) ? 0 : -1; /* bound in an earlier round of retries */
}

int inner_connect(int sock, int sock_family, int family, const struct addr *peer, uint16_t port)
{
	struct addr to = {.family = family};
	struct sockaddr_storage sa;
	socklen_t len;
	int one = 1;

	(void)setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (peer->family && bind_peer(sock, sock_family, family, peer) < 0)
		return INNER_NO_ADDRESS;
	if (family == AF_INET)
		to.v4.s_addr = htonl(INADDR_LOOPBACK);
	else
		to.v6 = in6addr_loopback;
	len = sockaddr_for(&to, sock_family, port, &sa);
	if (connect(sock, (struct sockaddr *)&sa, len) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return errno;
	/* On loopback the handshake is over by now, only nobody waited for it: ask again, and save a turn of
	 * the loop. */
	if (connect(sock, (struct sockaddr *)&sa, len) == 0)
		return 0;
	return errno == EALREADY ? EINPROGRESS : errno;
}

int inner_connect_result(int sock)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof peer;
	int error = 0;
	socklen_t n = sizeof error;

	if (getsockopt(sock, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
		return errno;
	if (error) {
		const struct sockaddr none = {.sa_family = AF_UNSPEC};

		(void)connect(sock, &none, sizeof none); /* so that it can be connected again */
		return error;
	}
	return getpeername(sock, (struct sockaddr *)&peer, &len) == 0 ? 0 : EINPROGRESS;
}
