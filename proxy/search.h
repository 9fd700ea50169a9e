/*
 * The search domains of resolv.conf(5). An app's own resolver reads the same file, and when a name is not
 * there it asks again with each of them behind it (or, with a high ndots, before it asks for the name itself):
 * that is one lookup of one name, and is told as one.
 */
#pragma once
#include "proxy/app.h"

#define SEARCH_MAX 32 /* domains; glibc took 6 for long, since 2.26 any number */

/* True when host is "NAME.DOMAIN" of a search domain (the longest one that fits); ret is NAME. */
bool search_strip(const struct proxy *p, const char *host, char ret[HOST_MAX]);
