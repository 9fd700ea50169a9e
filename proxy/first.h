/*
 * What do the first bytes of a connection to a site begin? Pure.
 *
 * Only what names a site is told apart: a TLS record of any type or a ClientHello of the form of SSL 2, and the line of an
 * HTTP/1 request. A line counts when it begins with a word of capitals (RFC 9110 9.1), white space after it, and holds
 * "HTTP/" or is "GET /...": so the words of SMTP, FTP, IRC, SIP, Redis or NATS are none, nor is anything binary. Bytes that may still become such
 * a line are waited for. HTTP/2 without TLS (RFC 9113 3.3) names its sites in compressed headers, which nobody here reads.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum first { FIRST_MORE, FIRST_TLS, FIRST_HTTP, FIRST_HTTP2, FIRST_RAW };
/* `buf` holds everything the client said so far. */
enum first first_bytes(const char *buf, size_t len);

/*
 * Methods of other letters, and other white space, are taken by some servers too, but words in small letters begin so much else that nothing is
 * held for them. Instead the first line is watched as it passes; when it turns out to be one of a request the connection
 * ends before its Host was sent on.
 */
enum line { LINE_MORE, LINE_OVER, LINE_HTTP };
struct line_watch { /* zero-initialise */
	uint8_t phase, match;
};
/* The next bytes of the first line. After another result than LINE_MORE do not call again. */
enum line first_line(struct line_watch *w, const char *buf, size_t len);
