/* ClientHello: whole and in pieces the same result; a name that comes out is canonical. */
#include "proxy/sni.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What follows a ClientHello: in pieces and whole it ends the same way, and what waits is bounded. */
static void check_after(const uint8_t *data, size_t size, size_t step)
{
	struct sni_after whole = {.early = step & 1}, pieces = whole;
	enum sni_later r, q = LATER_MORE;
	size_t n, from = 0, to = 0;

	r = sni_after(&whole, data, size, &n);
	assert(n <= size && (r != LATER_MORE || size - n < SNI_AFTER_HELD));
	while (q == LATER_MORE && to < size) {
		size_t part;

		to = size - to < step ? size : to + step;
		q = sni_after(&pieces, data + from, to - from, &part);
		assert(part <= to - from && (q != LATER_MORE || to - from - part < SNI_AFTER_HELD));
		from += part;
	}
	assert(q == r && (r == LATER_OVER || from == n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sni whole = {0}, pieces = {0};
	enum sni_result r, q = SNI_MORE;
	char canon[HOST_MAX];
	size_t step;

	if (size < 2)
		return 0;
	step = data[0] % 61 + 1u;
	data++;
	size--;
	check_after(data, size, step);
	r = sni_parse(&whole, data, size);
	for (size_t n = 0; q == SNI_MORE; n += step) {
		size_t have = n < size ? n : size;
		uint8_t *copy = malloc(have + 1); /* the buffer moves as it grows */

		if (!copy)
			abort();
		memcpy(copy, data, have);
		q = sni_parse(&pieces, copy, have);
		free(copy);
		if (n >= size)
			break;
	}
	/* a hello that ends beyond the limit may be met by the limit first when it comes in pieces */
	assert(r == q || (size > SNI_BYTES_MAX && q == SNI_BAD));
	if (r == SNI_OK && whole.host[0])
		assert(host_canon(whole.host, strlen(whole.host), canon, NULL) == 0 &&
		       strcmp(canon, whole.host) == 0);
	else
		assert(whole.host[0] == 0);
	assert((r == SNI_BAD) == (whole.reason != NULL));
	return 0;
}
