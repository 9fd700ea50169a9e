/* What policy DNS says to one message: dnsmsg.h, the policy and the names put together. No I/O. */
#pragma once
#include "proxy/dnsmsg.h"
#include "proxy/names.h"

struct dns_view { /* of one app */
	const char *app;
	const struct policy *policy; /* NULL: not known yet */
	struct names *names;
};
struct dns_denial {
	uint16_t type;
	bool denied;         /* a name was refused: to be counted and reported */
	char host[HOST_MAX]; /* "" when it is no host name */
	struct verdict verdict;
};
/* Writes at most DNS_ANSWER_MAX bytes to out and returns how many; 0: no answer. */
size_t dns_answer(const struct dns_view *v, const uint8_t *msg, size_t len, bool udp, uint8_t *out,
		  struct dns_denial *ret);
