#include "proxy/first.h"
#include "proxy/request.h"
#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define TLS_HANDSHAKE 0x16 /* RFC 8446 5.1 */

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

enum first first_bytes(const char *buf, size_t len)
{
	size_t n = 0;
	const char *end;

	if (len && (unsigned char)buf[0] == TLS_HANDSHAKE)
		return FIRST_TLS;
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
	return FIRST_RAW;
}

/* --- as it passes --- */

enum { BEFORE, WORD, REST };

static bool is_token_byte(char c) /* RFC 9110 5.6.2 */
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
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
			if (is_blank(c))
				continue;
			if (!is_token_byte(c))
				return LINE_OVER;
			w->phase = WORD;
			continue;
		case WORD:
			if (c == ' ' || c == '\t')
				w->phase = REST;
			else if (!is_token_byte(c))
				return LINE_OVER;
			continue;
		default:
			if (c == '\n' || c == 0)
				return LINE_OVER;
			if (match_version(w, c))
				return LINE_HTTP;
		}
	}
	return LINE_MORE;
}
