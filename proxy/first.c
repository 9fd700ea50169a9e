#include "proxy/first.h"
#include "proxy/request.h"
#include <stdbool.h>
#include <string.h>
#include <strings.h>

/* RFC 8446 5.1: types of records, and what all their versions begin with */
#define TLS_TYPE_MIN  0x14
#define TLS_HANDSHAKE 0x16
#define TLS_TYPE_MAX  0x18
#define TLS_MAJOR     3

static bool is_method_byte(char c)
{
	return (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
}

static bool is_blank(char c)
{
	return c == '\r' || c == '\n' || c == ' ' || c == '\t';
}

/* RFC 9113 3.4 */
static bool is_h2_preface(const char *line, size_t len)
{
	return len >= 14 && memcmp(line, "PRI * HTTP/2.0", 14) == 0;
}

/*
 * A record of another type before the ClientHello (servers skip warnings: OpenSSL, Go), or the ClientHello in the form
 * of SSL 2 (RFC 5246 E.2; OpenSSL takes it), whose length is at most that of a record.
 */
static enum first tls_otherwise(const unsigned char *b, size_t len)
{
	if (b[0] >= TLS_TYPE_MIN && b[0] <= TLS_TYPE_MAX)
		return len < 2 ? FIRST_MORE : b[1] == TLS_MAJOR ? FIRST_TLS : FIRST_RAW;
	if (b[0] < 0x80 || b[0] > 0xc1)
		return FIRST_RAW;
	if (len < 3)
		return FIRST_MORE;
	if (b[2] != 1) /* client-hello */
		return FIRST_RAW;
	return len < 4 ? FIRST_MORE : b[3] == TLS_MAJOR ? FIRST_TLS : FIRST_RAW;
}

/* HTTP/0.9 has no field that names a site, but some servers read fields after such a line too. */
static bool is_simple_request(const char *line, size_t word, const char *end)
{
	const char *p = line + word;

	while (p < end && (*p == ' ' || *p == '\t'))
		p++;
	return word == 3 && memcmp(line, "GET", 3) == 0 && p < end && *p == '/';
}

enum first first_bytes(const char *buf, size_t len)
{
	size_t n = 0;
	const char *end;
	enum first tls;

	if (!len)
		return FIRST_MORE;
	if ((unsigned char)buf[0] == TLS_HANDSHAKE)
		return FIRST_TLS;
	tls = tls_otherwise((const unsigned char *)buf, len);
	if (tls != FIRST_RAW)
		return tls;
	for (; len && is_blank(*buf); buf++) /* servers skip empty lines (RFC 9112 2.2) */
		len--;
	while (n < len && n <= REQUEST_METHOD_MAX && is_method_byte(buf[n]))
		n++;
	if (n == len && n <= REQUEST_METHOD_MAX)
		return FIRST_MORE;
	if (n == 0 || n > REQUEST_METHOD_MAX)
		return FIRST_RAW;
	if (buf[n] != ' ' && buf[n] != '\t')
		return FIRST_RAW;
	end = memchr(buf, '\n', len);
	if (!end && len <= REQUEST_LINE_MAX)
		return FIRST_MORE;
	if (!end)
		return FIRST_HTTP; /* too long for one, as its parser will say: never passed on unread */
	if (is_h2_preface(buf, (size_t)(end - buf)))
		return FIRST_HTTP2;
	for (const char *p = buf + n; end - p >= 5; p++)
		if (strncasecmp(p, "HTTP/", 5) == 0)
			return FIRST_HTTP;
	return is_simple_request(buf, n, end) ? FIRST_HTTP : FIRST_RAW;
}

/* --- as it passes --- */

enum { BEFORE, WORD, REST };

static bool is_token_byte(char c) /* RFC 9110 5.6.2 */
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* What lenient servers take for white space: isspace(), and str.split() of Python too. */
static bool is_space(char c)
{
	unsigned char u = (unsigned char)c;

	return (u >= 0x09 && u <= 0x0d) || (u >= 0x1c && u <= 0x20) || u == 0x85 || u == 0xa0;
}

/* "HTTP/" in any case. None of its beginnings ends in another one, so a mismatch begins anew. */
static bool match_version(struct line_watch *w, char c)
{
	static const char version[] = "http/";
	char low = c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;

	w->match = low == version[w->match] ? (uint8_t)(w->match + 1) : low == version[0] ? 1 : 0;
	return w->match == sizeof version - 1;
}

enum line first_line(struct line_watch *w, const char *buf, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		char c = buf[i];

		switch (w->phase) {
		case BEFORE:
			if (is_space(c))
				continue;
			if (!is_token_byte(c))
				return LINE_OVER;
			w->phase = WORD;
			continue;
		case WORD:
			if (c != '\n' && is_space(c))
				w->phase = REST;
			else if (!is_token_byte(c))
				return LINE_OVER;
			continue;
		default:
			if (c == '\n')
				return LINE_OVER;
			if (match_version(w, c))
				return LINE_HTTP;
		}
	}
	return LINE_MORE;
}
