/*
 * What a client of SOCKS5 says (RFC 1928): a greeting and one request. Pure: no I/O, no allocation.
 *
 * The messages may come joined or cut at any byte. No authentication is offered: each app has a listener of its own.
 * CONNECT is the only command. A name must be a host name as everywhere (no NUL, no port, no brackets), or an address
 * as text, which counts as an address.
 */
#pragma once
#include "proxy/request.h"

enum socks_reply { /* RFC 1928 6 */
		   SOCKS_GRANTED,
		   SOCKS_FAILED,
		   SOCKS_NOT_ALLOWED,
		   SOCKS_NET_UNREACHABLE,
		   SOCKS_HOST_UNREACHABLE,
		   SOCKS_REFUSED,
		   SOCKS_COMMAND = 7,
		   SOCKS_ADDRESS_TYPE = 8,
};
#define SOCKS_REPLY_LEN 10

struct socks {                /* zero-initialise */
	struct target target; /* PARSE_DONE */
	size_t used; /* bytes of `buf` that were messages; after PARSE_DONE the rest is the tunnel's */
	uint8_t reply[2 + SOCKS_REPLY_LEN];
	uint8_t reply_len; /* to be sent now, whatever the result; then set it to 0 */
	bool greeted;
};
/* `buf` holds everything the client said. PARSE_BAD: close after the reply. */
enum parse socks_parse(struct socks *s, const char *buf, size_t len);
void socks_reply(enum socks_reply code, uint8_t out[SOCKS_REPLY_LEN]);
