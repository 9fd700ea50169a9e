/*
 * The head of one HTTP/1.x request to an explicit proxy, and what a request body needs.
 *
 * Theory of operation. The parser is fed the caller's buffer from the first byte of the request each time
 * more has arrived; it keeps offsets only, never pointers, so the buffer may move. Each line is judged as
 * soon as it is complete: a client that speaks another protocol gets its 400 at once. Nothing is repaired:
 * whatever two parsers could read in two ways (RFC 9112 11.2) is refused, and what goes upstream is written
 * anew from what was understood, with Host from the target, never copied. No I/O, no allocation.
 */
#pragma once
#include "proxy/target.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REQUEST_HEAD_MAX   16384 /* the whole head: 431 beyond */
#define REQUEST_LINE_MAX   8192  /* the first line: 414 beyond (RFC 9112 3 asks for 8000 at least) */
#define REQUEST_METHOD_MAX 32
#define REQUEST_FIELDS_MAX 100                                 /* 431 beyond */
#define REQUEST_OUT_MAX    (REQUEST_HEAD_MAX + HOST_MAX + 256) /* always enough for request_build() */

enum parse { PARSE_MORE, PARSE_DONE, PARSE_BAD };

struct span { /* bytes of the caller's buffer */
	uint16_t at, len;
};
struct request_field {
	struct span name, value; /* value without the white space around it */
	bool drop;               /* hop-by-hop, Proxy-*, Host, or named in Connection: not sent on */
};

enum request_body { BODY_NONE, BODY_LENGTH, BODY_CHUNKED };

struct request {      /* zero-initialise; the fields count once request_parse() returned PARSE_DONE */
	bool connect; /* CONNECT; else an http:// request to send on */
	struct span method;
	/* Filled by request_parse(); with `origin` the caller sets what is known before: the port, and the
	 * host that was judged already, or "". */
	struct target target;
	bool origin; /* no proxy request: what a client sends that believes it talks to the site itself */
	struct span path; /* path and query as sent; empty or beginning with '?' when the path is "/" */
	bool http10, keep_alive;
	bool expect_continue; /* the client waits for 100 before it sends the body; the field is sent on */
	bool websocket;       /* asks for an upgrade to websocket, the only one that is sent on */
	enum request_body body;
	uint64_t content_length; /* BODY_LENGTH; 0 is BODY_NONE */
	struct request_field fields[REQUEST_FIELDS_MAX];
	unsigned n_fields;
	size_t head_len; /* bytes of the head, the empty line included; the body or the tunnel's bytes follow
			  */

	int status; /* PARSE_BAD: 400 405 414 417 431 501 505; close the connection after the answer */
	const char *reason; /* PARSE_BAD: one sentence for people; static, holds no byte of the request */

	/* private */
	uint16_t line, scan;
	uint8_t phase, leading;
	bool has_host, has_te, has_cl, has_expect, has_max_forwards, upgrade_ws, conn_upgrade, conn_close,
		conn_keep;
	struct span host_value;
};
/* `buf` holds everything since the first byte of this request. With `origin` the target is a path, and the site
 * is what Host says: the host that was judged before, if there is one, and no other. After PARSE_DONE or PARSE_BAD do not call
 * again. */
enum parse request_parse(struct request *r, const char *buf, size_t len);
/* The head to send upstream, into `out`: Host from the target, no hop-by-hop field, "Connection: close"
 * unless a websocket is asked for. The version is the client's, so that the answer is one it can read.
 * Returns the length, or 0 when `cap` is too small. */
size_t request_build(const struct request *r, const char *buf, char *out, size_t cap);

/*
 * Chunked request bodies. The filter walks through them as they arrive and takes out, in place, what must not
 * reach the origin: chunk extensions and trailer fields. What is left is a plain chunked body with the same
 * data.
 */
#define CHUNK_LINE_MAX    4096 /* extensions of one chunk, and each trailer line */
#define CHUNK_TRAILER_MAX 8192 /* all trailer lines */
struct chunk {                 /* zero-initialise */
	uint64_t left;         /* of the chunk's data */
	uint32_t line, trailer;
	uint8_t phase, digits;
};
/* Consumes up to `len` bytes: *ret_used of them, of which *ret_out are now at the front of buf, to be sent
 * on. PARSE_DONE: the body is complete (bytes after *ret_used are the next request's). PARSE_BAD: close both
 * sides. */
enum parse chunk_filter(struct chunk *c, char *buf, size_t len, size_t *ret_used, size_t *ret_out);

/* Length of the head of a response including its empty line, or 0. No empty line begins before `from`. */
size_t response_head_end(const char *buf, size_t from, size_t len);
/* The first line of an answer, "HTTP/1.1 101 ...": enough to know whether an upgrade was granted. */
enum parse response_status(const char *buf, size_t len, int *ret_status);
