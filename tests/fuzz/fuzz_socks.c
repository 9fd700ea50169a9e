/* SOCKS5: whole and in pieces the same; a target that comes out is one that the rest of the proxy may trust. And what
 * first_bytes() says of a beginning it never takes back. */
#include "proxy/first.h"
#include "proxy/socks_msg.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *copy_of(const uint8_t *data, size_t n)
{
	char *copy = malloc(n + 1); /* no byte more than there is: ASan sees a read beyond */

	if (!copy)
		abort();
	copy = realloc(copy, n ? n : 1);
	if (!copy)
		abort();
	memcpy(copy, data, n);
	return copy;
}

static enum parse in_pieces(const uint8_t *data, size_t size, size_t step, struct socks *s)
{
	enum parse p = PARSE_MORE;

	for (size_t n = step < size ? step : size; p == PARSE_MORE; n = size - n < step ? size : n + step) {
		char *copy = copy_of(data, n);

		s->reply_len = 0;
		p = socks_parse(s, copy, n);
		free(copy);
		if (n == size)
			break;
	}
	return p;
}

static void check_first(const uint8_t *data, size_t size)
{
	enum first was = FIRST_MORE;

	for (size_t n = 0; n <= size && n < 9000; n++) {
		char *copy = copy_of(data, n);
		enum first f = first_bytes(copy, n);

		free(copy);
		assert(was == FIRST_MORE || f == was);
		was = f;
	}
}

static void check_line(const uint8_t *data, size_t size, size_t step)
{
	struct line_watch whole = {0}, pieces = {0};
	enum line r = first_line(&whole, (const char *)data, size), q = LINE_MORE;

	for (size_t at = 0; at < size && q == LINE_MORE; at += step)
		q = first_line(&pieces, (const char *)data + at, size - at < step ? size - at : step);
	assert(q == r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct socks whole = {0}, pieces = {0};
	char canon[HOST_MAX];
	enum parse p, q;
	char *copy;
	size_t step;

	if (size < 2)
		return 0;
	step = data[0] % 61 + 1u;
	data++;
	size--;
	copy = copy_of(data, size);
	p = socks_parse(&whole, copy, size);
	free(copy);
	q = in_pieces(data, size, step, &pieces);
	assert(p == q && whole.reply_len <= sizeof whole.reply);
	check_line(data, size, step);
	if (size < 400)
		check_first(data, size);
	if (p != PARSE_DONE)
		return 0;
	assert(whole.used <= size && whole.used == pieces.used && whole.target.port != 0);
	assert(strcmp(whole.target.host, pieces.target.host) == 0);
	assert(whole.target.literal ||
	       (host_canon(whole.target.host, strlen(whole.target.host), canon, NULL) == 0 &&
		strcmp(canon, whole.target.host) == 0));
	return 0;
}
