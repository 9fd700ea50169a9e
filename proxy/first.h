/*
 * What do the first bytes of a connection to a site begin? Pure.
 *
 * Only what names a site is told apart: a TLS record, and the line of an HTTP/1 request. A line counts when it begins
 * with a word of capitals (a method as servers take them; RFC 9110 9.1), white space after it, and holds "HTTP/": so
 * the words of SMTP, FTP, IRC, SIP, Redis or NATS are none, nor is anything binary. Bytes that may still become such
 * a line are waited for. HTTP/2 without TLS (RFC 9113 3.3) names its sites in compressed headers, which nobody here reads.
 */
#pragma once
#include <stddef.h>

enum first { FIRST_MORE, FIRST_TLS, FIRST_HTTP, FIRST_HTTP2, FIRST_RAW };
/* `buf` holds everything the client said so far. */
enum first first_bytes(const char *buf, size_t len);
