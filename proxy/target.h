/* Where a connection wants to go: a canonical name, or an address, and a port. */
#pragma once
#include "policy/policy.h"
#include <stdbool.h>
#include <stdint.h>

struct target {
	char host[HOST_MAX]; /* canonical name, or the address as addr_format() writes it */
	bool literal;        /* it is `addr`, not a name */
	struct addr addr;
	uint16_t port;
};
