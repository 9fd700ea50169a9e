#include "proxy/sni.h"
#include "base/cleanup.h"
#include <string.h>

/* RFC 8446 and, for the name extension, RFC 6066 3 */
#define RECORD_HEADER       5
#define RECORD_MAX          16384 /* RFC 8446 5.1 */
#define CONTENT_MIN         20
#define CONTENT_HANDSHAKE   22
#define CONTENT_MAX         24
#define SSL2_BIT            0x80 /* of the length of a record of SSL 2 (RFC 5246 E.2) */
#define HANDSHAKE_HEADER    4
#define CLIENT_HELLO        1
#define EXT_SERVER_NAME     0
#define EXT_EARLY_DATA      42
#define EXT_ECH             0xfe0d /* RFC 9849 */
#define EXT_ESNI            0xffce /* its draft forerunner */
#define NAME_TYPE_HOST_NAME 0

static enum sni_result bad(struct sni *s, const char *reason)
{
	s->host[0] = 0;
	s->reason = reason;
	return SNI_BAD;
}

static unsigned be16(const uint8_t *p)
{
	return (unsigned)p[0] << 8 | p[1];
}

/* --- reading handshake bytes through the record headers between them --- */

struct reader {
	const uint8_t *buf;
	size_t at;     /* next byte in buf */
	size_t record; /* bytes left in the current record */
	size_t left;   /* bytes left in the enclosing structure */
	bool failed;
};

static uint8_t next_byte(struct reader *r)
{
	if (r->left == 0) {
		r->failed = true;
		return 0;
	}
	if (r->record == 0) { /* the walk has checked every header and that the bytes are there */
		r->record = be16(r->buf + r->at + 3);
		r->at += RECORD_HEADER;
	}
	r->record--;
	r->left--;
	return r->buf[r->at++];
}

static unsigned read_int(struct reader *r, unsigned bytes)
{
	unsigned v = 0;

	while (bytes-- > 0)
		v = v << 8 | next_byte(r);
	return v;
}

static void skip(struct reader *r, size_t n)
{
	while (n-- > 0 && !r->failed)
		(void)next_byte(r);
}

/* Narrows the reader to a vector of n bytes; returns what follows it, for leave(). */
static size_t enter(struct reader *r, size_t n)
{
	size_t rest;

	if (n > r->left) {
		r->failed = true;
		r->left = 0;
		return 0;
	}
	rest = r->left - n;
	r->left = n;
	return rest;
}

static void leave(struct reader *r, size_t rest)
{
	if (r->left != 0) /* a vector must be used up */
		r->failed = true;
	r->left = rest;
}

/* --- ClientHello --- */

static enum sni_result parse_name(struct sni *s, struct reader *r)
{
	char name[HOST_MAX + 1];
	struct addr a;
	unsigned list, n;

	if (r->left < 2)
		return bad(s, "an empty server_name extension");
	list = read_int(r, 2);
	if (list != r->left || list == 0)
		return bad(s, "the list of server names is empty or has a wrong length");
	if (read_int(r, 1) != NAME_TYPE_HOST_NAME)
		return bad(s, "a server name that is no host name");
	n = read_int(r, 2);
	if (r->failed || n > r->left)
		return bad(s, "a server name longer than its list");
	if (n < r->left)
		return bad(s, "more than one server name");
	if (n == 0 || n >= sizeof name)
		return bad(s, "a server name that is empty or too long");
	for (unsigned i = 0; i < n; i++)
		name[i] = (char)next_byte(r);
	if (host_parse_addr(name, n, &a) == 0)
		return bad(s, "an address as server name");
	if (host_canon(name, n, s->host, NULL) < 0)
		return bad(s, "a server name that is no valid host name");
	return SNI_OK;
}

static enum sni_result parse_extensions(struct sni *s, struct reader *r)
{
	bool seen = false;

	while (r->left > 0 && !r->failed) {
		unsigned type = read_int(r, 2);
		size_t rest = enter(r, read_int(r, 2));

		if (r->failed)
			break;
		if (type == EXT_SERVER_NAME) {
			if (seen)
				return bad(s, "two server_name extensions");
			seen = true;
			if (parse_name(s, r) != SNI_OK)
				return SNI_BAD;
		} else {
			s->early |= type == EXT_EARLY_DATA;
			s->ech |= type == EXT_ECH || type == EXT_ESNI;
			skip(r, r->left);
		}
		leave(r, rest);
	}
	return r->failed ? bad(s, "an extension longer than the ClientHello") : SNI_OK;
}

static enum sni_result parse_hello(struct sni *s, struct reader *r)
{
	unsigned n;
	size_t rest;

	if (read_int(r, 1) != 3) /* legacy_version: SSL 3.0 to TLS 1.2; which one is the origin's business */
		return bad(s, "a ClientHello of an unknown version");
	skip(r, 1 + 32); /* minor version, random */
	n = read_int(r, 1);
	if (n > 32)
		return bad(s, "a ClientHello with a wrong session id");
	skip(r, n);
	n = read_int(r, 2);
	if (n < 2 || n % 2)
		return bad(s, "a ClientHello with a wrong list of ciphers");
	skip(r, n);
	n = read_int(r, 1);
	if (n < 1)
		return bad(s, "a ClientHello without compression methods");
	skip(r, n);
	if (r->failed)
		return bad(s, "a ClientHello shorter than its parts");
	if (r->left == 0) /* extensions may be absent before TLS 1.3 */
		return SNI_OK;
	rest = enter(r, read_int(r, 2));
	if (r->failed || rest != 0)
		return bad(s, "the extensions do not fill the ClientHello");
	return parse_extensions(s, r);
}

/* --- records --- */

static enum sni_result check_record(struct sni *s, const uint8_t *h, size_t have)
{
	if (h[0] != CONTENT_HANDSHAKE && s->record)
		return bad(s, "another record inside the ClientHello");
	if (h[0] >= CONTENT_MIN && h[0] <= CONTENT_MAX && h[0] != CONTENT_HANDSHAKE)
		return bad(s, "another record before the ClientHello");
	if (h[0] & SSL2_BIT)
		return bad(s, "a ClientHello in the form of SSL 2");
	if (h[0] != CONTENT_HANDSHAKE)
		return SNI_NOT_TLS;
	if (have >= 2 && h[1] != 3)
		return bad(s, "a record of an unknown protocol version");
	if (have >= 3 && h[2] > 4)
		return bad(s, "a record of an unknown protocol version");
	if (have >= RECORD_HEADER && (be16(h + 3) == 0 || be16(h + 3) > RECORD_MAX))
		return bad(s, "an empty or too long record");
	return SNI_MORE;
}

/* Called after each whole record: constant work until the last one, however short a client makes them. */
static enum sni_result check_payload(struct sni *s, const uint8_t *buf)
{
	struct reader r = {.buf = buf, .left = s->payload};
	size_t size;

	if (read_int(&r, 1) != CLIENT_HELLO)
		return bad(s, "a handshake that begins with something else than a ClientHello");
	if (s->payload < HANDSHAKE_HEADER)
		return SNI_MORE;
	size = HANDSHAKE_HEADER + (size_t)read_int(&r, 3);
	if (size > SNI_BYTES_MAX - RECORD_HEADER)
		return bad(s, "a ClientHello that is too long");
	if (s->payload < size)
		return SNI_MORE;
	if (s->payload > size)
		return bad(s, "bytes after the ClientHello in its record");
	return parse_hello(s, &r);
}

enum sni_result sni_parse(struct sni *s, const uint8_t *buf, size_t len)
{
	enum sni_result result = SNI_MORE;

	while (result == SNI_MORE && s->record < len) {
		const uint8_t *h = buf + s->record;
		size_t have = len - s->record;

		result = check_record(s, h, have);
		/* The same verdict however the bytes are cut up: at once, not when so many are there. */
		if (result == SNI_MORE && have >= RECORD_HEADER &&
		    s->record + RECORD_HEADER + be16(h + 3) > SNI_BYTES_MAX)
			result = bad(s, "a ClientHello that is too long");
		if (result != SNI_MORE || have < RECORD_HEADER || have - RECORD_HEADER < be16(h + 3))
			break;
		s->payload += be16(h + 3);
		s->record += RECORD_HEADER + be16(h + 3);
		result = check_payload(s, buf);
	}
	if (result == SNI_MORE && len >= SNI_BYTES_MAX)
		return bad(s, "a ClientHello that is too long");
	return result;
}

/* --- after it --- */

#define CONTENT_CHANGE_CIPHER 20
#define CONTENT_ALERT         21
#define CONTENT_DATA          23
#define CONTENT_HEARTBEAT     24
#define PEEK                  6 /* type, length, version: enough to tell a ClientHello from encrypted bytes */

/* The record at `h`, with its header and PEEK bytes of its payload (or all). */
static enum sni_later after_record(struct sni_after *a, const uint8_t *h)
{
	unsigned n = be16(h + 3);
	const uint8_t *p = h + RECORD_HEADER;

	/* of middleboxes: RFC 8446 D.4; a warning, which servers skip: OpenSSL does with user_canceled */
	if (h[0] == CONTENT_CHANGE_CIPHER || h[0] == CONTENT_ALERT || h[0] == CONTENT_HEARTBEAT) {
		a->left = RECORD_HEADER + n;
		return LATER_MORE;
	}
	if (h[0] == CONTENT_DATA && a->early && a->skipped + n <= SNI_EARLY_MAX) {
		a->skipped += n;
		a->left = RECORD_HEADER + n;
		return LATER_MORE;
	}
	if (h[0] == CONTENT_HANDSHAKE &&
	    n == 0) /* skipped too: to be refused as a ClientHello that has one */
		return LATER_HELLO;
	if (h[0] != CONTENT_HANDSHAKE || p[0] != CLIENT_HELLO)
		return LATER_OVER;
	/* TLS 1.2 resumed: an encrypted Finished after change_cipher_spec, which may begin with any byte. */
	if (n >= PEEK && (p[1] != 0 || p[4] != 3))
		return LATER_OVER;
	return LATER_HELLO;
}

enum sni_later sni_after(struct sni_after *a, const uint8_t *buf, size_t len, size_t *ret_pass)
{
	enum sni_later result = LATER_MORE;
	size_t at = 0;

	while (at < len && result == LATER_MORE) {
		size_t have = len - at, need = RECORD_HEADER;

		if (a->left) {
			size_t n = a->left < have ? a->left : have;

			a->left -= (uint32_t)n;
			at += n;
			continue;
		}
		if (have >= need && buf[at] == CONTENT_HANDSHAKE)
			need += be16(buf + at + 3) < PEEK ? be16(buf + at + 3) : PEEK;
		if (have < need)
			break;
		result = after_record(a, buf + at);
	}
	*ret_pass = result == LATER_OVER ? len : at;
	return result;
}

/* --- the verdict --- */

bool sni_tls_port(uint16_t port)
{
	return port == 443 || port == 8443;
}

bool sni_judge(const struct policy *p, const struct verdict *v, const char *host, uint16_t port,
	       const struct sni *s, enum sni_result result, const char **ret_reason)
{
	const char *reason = NULL;
	bool match = policy_sni_match(p) && !v->literal;

	if (result == SNI_MORE)
		reason = "the ClientHello is not complete";
	else if (result == SNI_BAD && (match || policy_ech_refuse(p)))
		reason = s->reason;
	else if (result == SNI_NOT_TLS && match && sni_tls_port(port))
		reason = "not TLS, on a port of TLS (SniPolicy=off would let it pass)";
	else if (result == SNI_OK && s->ech && policy_ech_refuse(p))
		reason = "encrypted ClientHello (Ech=refuse)";
	else if (result == SNI_OK && match && !s->host[0])
		reason = "the ClientHello names no server";
	else if (result == SNI_OK && match && strcmp(s->host, host) != 0)
		reason = "the ClientHello names another server than the one that was allowed";
	if (reason)
		*ret_reason = reason;
	return reason == NULL;
}
