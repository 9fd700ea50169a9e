/* Chunked bodies (RFC 9112 7.1), see request.h. */
#include "proxy/request.h"
#include <string.h>

enum {
	SIZE,
	SIZE_SPACE,
	EXTENSION,
	SIZE_LF,
	DATA,
	DATA_CR,
	DATA_LF,
	TRAILER,
	TRAILER_LINE,
	TRAILER_LF,
	END_LF,
	FINISHED,
	BROKEN
};

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The size, up to what ends it. Sizes stay below 2^63, and 16 digits are enough for any. */
static int size_byte(struct chunk *c, char b, bool *ret_emit)
{
	int digit = hex_value(b);

	if (digit >= 0) {
		if (++c->digits > 16 || c->left >> 59)
			return -1;
		c->left = c->left << 4 | (uint64_t)digit;
		*ret_emit = true;
		return SIZE;
	}
	if (c->digits == 0)
		return -1;
	c->line = 0;
	if (b == '\r') {
		*ret_emit = true;
		return SIZE_LF;
	}
	return b == ';' ? EXTENSION : b == ' ' || b == '\t' ? SIZE_SPACE : -1;
}

/* Bytes of a line that is dropped: an extension or a trailer. Line ends are CRLF here too. */
static int dropped_byte(struct chunk *c, char b, int stay, int cr)
{
	if (b == '\r')
		return cr;
	if (((unsigned char)b < 0x20 && b != '\t') || b == 0x7f || ++c->line > CHUNK_LINE_MAX)
		return -1;
	if (stay == TRAILER_LINE && ++c->trailer > CHUNK_TRAILER_MAX)
		return -1;
	return stay;
}

/* One byte outside the data: the next phase or -1. *ret_emit: the byte is part of what is sent on. */
static int step(struct chunk *c, char b, bool *ret_emit)
{
	int next;

	switch (c->phase) {
	case SIZE:
		return size_byte(c, b, ret_emit);
	case SIZE_SPACE:
		return b == ';' ? EXTENSION : (b == ' ' || b == '\t') && ++c->line < 64 ? SIZE_SPACE : -1;
	case EXTENSION:
		next = dropped_byte(c, b, EXTENSION, SIZE_LF);
		*ret_emit = next == SIZE_LF;
		return next;
	case SIZE_LF:
		*ret_emit = true;
		c->digits = 0;
		return b != '\n' ? -1 : c->left > 0 ? DATA : TRAILER;
	case DATA_CR:
		*ret_emit = true;
		return b == '\r' ? DATA_LF : -1;
	case DATA_LF:
		*ret_emit = true;
		return b == '\n' ? SIZE : -1;
	case TRAILER:
		*ret_emit = b == '\r';
		c->line = 0;
		return b == ' ' || b == '\t' ? -1 : dropped_byte(c, b, TRAILER_LINE, END_LF);
	case TRAILER_LINE:
		return dropped_byte(c, b, TRAILER_LINE, TRAILER_LF);
	case TRAILER_LF:
		return b == '\n' ? TRAILER : -1;
	case END_LF:
		*ret_emit = true;
		return b == '\n' ? FINISHED : -1;
	default:
		return -1;
	}
}

static size_t copy_data(struct chunk *c, char *to, const char *from, size_t avail)
{
	size_t n = c->left < avail ? (size_t)c->left : avail;

	if (to != from)
		memmove(to, from, n);
	c->left -= n;
	if (c->left == 0)
		c->phase = DATA_CR;
	return n;
}

enum parse chunk_filter(struct chunk *c, char *buf, size_t len, size_t *ret_used, size_t *ret_out)
{
	size_t in = 0, out = 0;
	enum parse result = PARSE_MORE;

	while (in < len && result == PARSE_MORE) {
		bool emit = false;
		int next;

		if (c->phase == DATA) {
			size_t n = copy_data(c, buf + out, buf + in, len - in);

			in += n;
			out += n;
			continue;
		}
		next = step(c, buf[in], &emit);
		if (next < 0) {
			c->phase = BROKEN;
			result = PARSE_BAD;
			break;
		}
		c->phase = (uint8_t)next;
		if (emit)
			buf[out++] = buf[in];
		in++;
		if (next == FINISHED)
			result = PARSE_DONE;
	}
	*ret_used = in;
	*ret_out = out;
	return result;
}
