/*
 * A hosts(5) file, read once and again when it has changed. c-ares before 1.22 reads it for every lookup, which
 * with a list of a hundred thousand blocked hosts stops everybody's traffic for tens of milliseconds.
 *
 * The text is kept as it is (in lower case) and searched: a table of it would cost several times the memory.
 */
#pragma once
#include "policy/policy.h"
#include <stddef.h>

#define HOSTS_PATH      "/etc/hosts"
#define HOSTS_BYTES_MAX (16u << 20) /* a longer file is not used, and the log says so */

/* The addresses of a canonical name, of every line that has it; the first `max` of them. Returns how many there are. */
size_t hosts_find(const char *path, const char *host, struct addr *v, size_t max);
