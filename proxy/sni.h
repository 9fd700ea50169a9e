/*
 * The server name of a TLS ClientHello, read from the first bytes of a tunnel without decrypting anything.
 *
 * Theory of operation. The caller keeps the first bytes that the client sent in one buffer and forwards none
 * of them before the verdict. A ClientHello may be spread over any number of TCP segments and TLS records
 * (RFC 8446 5.1); the reader walks through the records in place, so nothing is copied. Every length is
 * bounded by the one around it and must use it up exactly. Two names, two extensions, another name type:
 * refused, because the origin may pick the other one than we do. No I/O, no allocation.
 */
#pragma once
#include "policy/policy.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SNI_BYTES_MAX 32768 /* of the client's bytes until the verdict, record headers included */

enum sni_result {
	SNI_MORE,
	SNI_NOT_TLS, /* another protocol: the first byte is of no record */
	SNI_OK,      /* a whole ClientHello; `host` is "" when it names none */
	SNI_BAD,     /* looks like TLS, but malformed, ambiguous or too long; `reason` says why */
};

struct sni {                 /* zero-initialise */
	char host[HOST_MAX]; /* canonical */
	bool ech;            /* carries encrypted_client_hello, be it GREASE or real: they look the same */
	bool early;          /* announces early data (RFC 8446 4.2.10) */
	const char *reason;  /* SNI_BAD; static */

	/* private */
	uint32_t record;  /* next record header; after SNI_OK the first byte that is not of the ClientHello */
	uint32_t payload; /* bytes of handshake in the whole records before it */
};
/* `buf` holds everything the client sent since the tunnel began. After another result than SNI_MORE do not
 * call again. */
enum sni_result sni_parse(struct sni *s, const uint8_t *buf, size_t len);

/* 443 and 8443: where SniPolicy=match lets nothing but TLS pass. */
bool sni_tls_port(uint16_t port);
/*
 * May these first bytes go on? `v` is the verdict that opened the tunnel to `host`:`port`. False with a
 * static reason. SniPolicy=match: a named target takes only a ClientHello with exactly that name; on the
 * ports of TLS also nothing but TLS. A target that was an address has no name to compare.
 * Ech=refuse: none with ECH.
 */
bool sni_judge(const struct policy *p, const struct verdict *v, const char *host, uint16_t port,
	       const struct sni *s, enum sni_result result, const char **ret_reason);

/*
 * A server that answers with HelloRetryRequest gets a second ClientHello (RFC 8446 4.1.2), and some choose the site by
 * that one. So what the client sends after the first is looked at, record by record, until it is clear that no second one
 * can come: another handshake message, or something encrypted. Alerts and the like say nothing about it. Records of early data may come before it, and are skipped
 * by servers up to a limit (16 KiB where it was looked up: OpenSSL, BoringSSL).
 */
#define SNI_EARLY_MAX 65536
enum sni_later { LATER_MORE, LATER_HELLO, LATER_OVER };
struct sni_after { /* zero-initialise, then `early` */
	bool early;
	/* private */
	uint32_t left, skipped;
};
/* `buf` begins where the last call's *ret_pass ended. The first *ret_pass bytes may be sent on; LATER_HELLO: what comes
 * then is a ClientHello; LATER_OVER: all of it, and whatever follows. LATER_MORE leaves less than SNI_AFTER_HELD. */
#define SNI_AFTER_HELD 11
enum sni_later sni_after(struct sni_after *a, const uint8_t *buf, size_t len, size_t *ret_pass);
