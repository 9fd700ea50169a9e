/* SHA-256, FIPS 180-4: for the fingerprint of files. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32
struct sha256 {
	uint32_t h[8];
	uint64_t len;
	uint8_t block[64];
};
void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *data, size_t len);
void sha256_end(struct sha256 *s, uint8_t ret[SHA256_BYTES]);
