/* ClientHello: whole and in pieces the same result; a name that comes out is canonical. */
#include "proxy/sni.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
