/* Request head, the head built from it, and the chunk filter: any bytes, whole and in pieces, must come out
 * the same, and what goes upstream must be a head that the strict parser reads as the same request. */
#include "proxy/request.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_spans(const struct request *r, const char *buf)
{
	char canon[HOST_MAX];

	assert(r->head_len <= REQUEST_HEAD_MAX && r->n_fields <= REQUEST_FIELDS_MAX && r->target.port != 0);
	for (unsigned i = 0; i < r->n_fields; i++) {
		const struct request_field *f = &r->fields[i];

		assert(f->name.len > 0 && (size_t)f->name.at + f->name.len < r->head_len);
		assert((size_t)f->value.at + f->value.len < r->head_len);
		assert(!memchr(buf + f->value.at, '\n', f->value.len) &&
		       !memchr(buf + f->value.at, 0, f->value.len));
	}
	assert(r->target.literal || (host_canon(r->target.host, strlen(r->target.host), canon, NULL) == 0 &&
				     strcmp(canon, r->target.host) == 0));
}

/* "GET /x" upstream, put back into absolute form, must mean what the client's request meant. */
static void check_built(const struct request *r, const char *buf)
{
	static char out[REQUEST_OUT_MAX], again[REQUEST_OUT_MAX + HOST_MAX + 64];
	struct request r2 = {0};
	size_t n = request_build(r, buf, out, sizeof out), m;
	const char *sp;

	if (r->connect) {
		assert(n == 0);
		return;
	}
	assert(n > 4 && memcmp(out + n - 4, "\r\n\r\n", 4) == 0 && !memchr(out, 0, n));
	sp = memchr(out, ' ', n);
	assert(sp);
	m = (size_t)snprintf(again, sizeof again, "%.*s http://%s%s%s:%u", (int)(sp - out), out,
			     strchr(r->target.host, ':') ? "[" : "", r->target.host,
			     strchr(r->target.host, ':') ? "]" : "", r->target.port);
	if (sp[1] == '*')
		sp++;
	memcpy(again + m, sp + 1, n - (size_t)(sp + 1 - out));
	m += n - (size_t)(sp + 1 - out);
	if (m > REQUEST_HEAD_MAX || r->n_fields > REQUEST_FIELDS_MAX - 3 ||
	    r->path.len > REQUEST_LINE_MAX - 400)
		return; /* grew over a limit by what was added here */
	assert(request_parse(&r2, again, m) == PARSE_DONE);
	assert(r2.head_len == m && r2.target.port == r->target.port &&
	       strcmp(r2.target.host, r->target.host) == 0);
	assert(r2.body == r->body && r2.content_length == r->content_length && r2.websocket == r->websocket);
}

static size_t filter(const uint8_t *data, size_t size, size_t piece, char *out, enum parse *ret)
{
	struct chunk c = {0};
	size_t at = 0, len = 0;

	*ret = PARSE_MORE;
	while (at < size && *ret == PARSE_MORE) {
		size_t n = size - at < piece ? size - at : piece, used, got;
		char *copy = malloc(n);

		if (!copy)
			abort();
		memcpy(copy, data + at, n);
		*ret = chunk_filter(&c, copy, n, &used, &got);
		assert(got <= used && used <= n && (*ret != PARSE_MORE || used == n));
		memcpy(out + len, copy, got);
		len += got;
		at += used;
		free(copy);
	}
	return len;
}

static void check_chunks(const uint8_t *data, size_t size, size_t piece)
{
	char *a = malloc(size + 1), *b = malloc(size + 1);
	enum parse pa, pb;
	size_t na, nb;

	if (!a || !b)
		abort();
	na = filter(data, size, size + 1, a, &pa);
	nb = filter(data, size, piece, b, &pb);
	assert(pa == pb && (pa == PARSE_BAD || (na == nb && memcmp(a, b, na) == 0)));
	if (pa == PARSE_DONE) { /* what is left is plain: nothing more to take out */
		nb = filter((uint8_t *)a, na, piece, b, &pb);
		assert(pb == PARSE_DONE && nb == na && memcmp(a, b, na) == 0);
	}
	free(a);
	free(b);
}

/* `host` NULL: a request to a proxy; else one to a site at port 80, whose name may be known. */
static void check_request(const char *buf, size_t size, size_t step, const char *host)
{
	struct request whole = {.origin = host != NULL}, pieces;
	enum parse p, q = PARSE_MORE;

	if (host) {
		memcpy(whole.target.host, host, strlen(host) + 1);
		whole.target.port = 80;
	}
	pieces = whole;
	p = request_parse(&whole, buf, size);
	for (size_t n = 0; q == PARSE_MORE; n += step) {
		q = request_parse(&pieces, buf, n < size ? n : size);
		if (n >= size)
			break;
	}
	assert(p == q && whole.status == pieces.status && whole.head_len == pieces.head_len);
	if (p != PARSE_DONE)
		return;
	assert(!host || (whole.target.port == 80 && whole.target.host[0] && !whole.connect));
	assert(!host || !*host || strcmp(whole.target.host, host) == 0);
	check_spans(&whole, buf);
	check_built(&whole, buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *buf = (const char *)data + 1;
	size_t step;
	int status;

	if (size < 2)
		return 0;
	step = data[0] % 37 + 1u;
	size--;
	check_request(buf, size, step, NULL);
	check_request(buf, size, step, "");
	check_request(buf, size, step, "allowed.example");
	check_chunks(data + 1, size, step);
	(void)response_status(buf, size, &status);
	return 0;
}
