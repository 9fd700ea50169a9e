#include "proxy/dnsmsg.h"
#include "base/str.h"
#include <arpa/inet.h>
#include <string.h>

#define NAME_WIRE_MAX 255 /* RFC 1035 2.3.4 */
#define LABEL_MAX     63
#define CLASS_IN      1
#define FLAG_QR       0x8000u
#define FLAG_TC       0x0200u
#define FLAG_RD       0x0100u
#define FLAG_RA       0x0080u
#define FLAG_CD       0x0010u
#define EDNS_DO       0x8000u
#define OPT_LEN       11 /* root, type, class, ttl, rdlength */
#define OPTION_EDE    15 /* RFC 8914 2 */
#define UDP_MIN       512
#define EDE_TEXT_MIN  16 /* a shorter stump says nothing */

struct reader {
	const uint8_t *p;
	size_t len, at;
};

static bool have(const struct reader *r, size_t n)
{
	return r->len - r->at >= n;
}

static uint16_t be16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static bool host_byte(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
	       c == '_';
}

/* The question's name. A pointer or another kind of label is an error; a label that is not of a host name is
 * not, it only makes the name none. */
static int read_name(struct reader *r, struct dns_query *q)
{
	char text[NAME_WIRE_MAX + 1];
	size_t start = r->at, n = 0;
	bool host = true;

	for (;;) {
		uint8_t label;

		if (!have(r, 1))
			return -1;
		label = r->p[r->at++];
		if (label == 0)
			break;
		if (label > LABEL_MAX || !have(r, label) || r->at + label - start >= NAME_WIRE_MAX)
			return -1;
		if (n)
			text[n++] = '.';
		for (unsigned i = 0; i < label; i++) {
			host = host && host_byte(r->p[r->at + i]);
			text[n++] = (char)r->p[r->at + i];
		}
		r->at += label;
	}
	q->root = n == 0;
	if (!n || !host || host_canon(text, n, q->host, NULL) < 0)
		q->host[0] = 0;
	return 0;
}

/* Walks over the options: their lengths must fill the data exactly. */
static int check_options(const uint8_t *p, size_t len)
{
	while (len) {
		size_t n;

		if (len < 4 || (n = be16(p + 2)) > len - 4)
			return -1;
		p += 4 + n;
		len -= 4 + n;
	}
	return 0;
}

/* The additional section of a question: nothing, or one OPT. */
static int read_opt(struct reader *r, struct dns_query *q)
{
	const uint8_t *p = r->p + r->at;
	uint16_t size, len;
	uint8_t version;

	if (!have(r, OPT_LEN) || p[0] != 0 || be16(p + 1) != DNS_TYPE_OPT)
		return -1;
	size = be16(p + 3);
	version = p[6];
	len = be16(p + 9);
	r->at += OPT_LEN;
	if (!have(r, len) || check_options(r->p + r->at, len) < 0)
		return -1;
	r->at += len;
	q->edns = true;
	q->do_bit = be16(p + 7) & EDNS_DO;
	q->udp_size = size > UDP_MIN ? size : UDP_MIN;
	if (version != 0)
		q->rcode = DNS_BADVERS;
	return 0;
}

static enum dnsmsg error(struct dns_query *q, uint8_t rcode)
{
	q->rcode = rcode;
	return DNSMSG_ERROR;
}

static enum dnsmsg read_body(struct reader *r, struct dns_query *q)
{
	unsigned questions = be16(r->p + 4), answers = be16(r->p + 6), authority = be16(r->p + 8),
		 additional = be16(r->p + 10);

	/* RFC 9619: more than one question is FORMERR. Records that a question does not have are one too. */
	if (questions != 1 || answers || authority || additional > 1 || read_name(r, q) < 0 || !have(r, 4))
		return error(q, DNS_FORMERR);
	q->type = be16(r->p + r->at);
	q->class = be16(r->p + r->at + 2);
	r->at += 4;
	q->question_len = (uint16_t)(r->at - DNS_HEADER);
	if (additional && read_opt(r, q) < 0)
		return error(q, DNS_FORMERR);
	if (r->at != r->len)
		return error(q, DNS_FORMERR);
	if (q->rcode)
		return DNSMSG_ERROR;
	if (q->class != CLASS_IN)
		return error(q, DNS_REFUSED);
	if (q->type == DNS_TYPE_OPT || q->type == 0)
		return error(q, DNS_FORMERR);
	return DNSMSG_QUESTION;
}

enum dnsmsg dnsmsg_parse(const uint8_t *msg, size_t len, struct dns_query *ret)
{
	struct reader r = {msg, len, DNS_HEADER};
	struct dns_query q = {.udp_size = UDP_MIN};
	enum dnsmsg result;
	unsigned flags;

	if (len < DNS_HEADER)
		return DNSMSG_DROP;
	flags = be16(msg + 2);
	if (flags & FLAG_QR) /* never answer an answer: two servers would talk for ever */
		return DNSMSG_DROP;
	q.id = be16(msg);
	q.opcode = flags >> 11 & 15;
	q.rd = flags & FLAG_RD;
	q.cd = flags & FLAG_CD;
	if (q.opcode != 0)
		result = error(&q, DNS_NOTIMP);
	else if (len > DNS_QUERY_MAX || flags & FLAG_TC)
		result = error(&q, DNS_FORMERR);
	else
		result = read_body(&r, &q);
	*ret = q;
	return result;
}

/* --- answers --- */

void dnsmsg_begin(struct dns_answer *a, uint8_t *out, const uint8_t *msg, const struct dns_query *q, bool udp)
{
	*a = (struct dns_answer){.out = out, .limit = DNS_ANSWER_MAX, .q = q, .ede = -1, .ede_text = ""};
	if (udp && q->udp_size < DNS_ANSWER_MAX)
		a->limit = q->udp_size;
	memcpy(out + DNS_HEADER, msg + DNS_HEADER, q->question_len);
	a->len = DNS_HEADER + (size_t)q->question_len;
	if (q->edns)
		a->limit -= OPT_LEN; /* its place is kept */
}

static uint8_t *record_head(struct dns_answer *a, uint16_t type, uint32_t ttl, size_t len)
{
	uint8_t *p = a->out + a->len;

	if (a->limit - a->len < 12 + len) {
		a->truncated = true;
		return NULL;
	}
	put16(p, 0xc000 | DNS_HEADER); /* the name of the question */
	put16(p + 2, type);
	put16(p + 4, CLASS_IN);
	put16(p + 6, ttl >> 16);
	put16(p + 8, ttl & 0xffff);
	put16(p + 10, (unsigned)len);
	a->len += 12 + len;
	a->records++;
	return p + 12;
}

void dnsmsg_record(struct dns_answer *a, uint16_t type, uint32_t ttl, const void *data, size_t len)
{
	uint8_t *p = record_head(a, type, ttl, len);

	if (p)
		memcpy(p, data, len);
}

void dnsmsg_record_name(struct dns_answer *a, uint16_t type, uint32_t ttl, const char *host)
{
	uint8_t wire[NAME_WIRE_MAX];
	size_t n = 0, label;

	for (; *host; host += label + (host[label] == '.')) {
		label = strcspn(host, ".");
		if (!label || label > LABEL_MAX || n + 1 + label + 1 > sizeof wire)
			return; /* no canonical name */
		wire[n++] = (uint8_t)label;
		memcpy(wire + n, host, label);
		n += label;
	}
	wire[n++] = 0;
	dnsmsg_record(a, type, ttl, wire, n);
}

void dnsmsg_reason(struct dns_answer *a, enum dns_ede code, const char *text)
{
	a->ede = code;
	a->ede_text = text;
}

static size_t put_ede(const struct dns_answer *a, uint8_t *p)
{
	size_t room = a->limit - a->len, text = strlen(a->ede_text);

	if (a->ede < 0 || room < 6)
		return 0;
	if (text > room - 6)
		text = room - 6 < EDE_TEXT_MIN ? 0 : room - 6;
	put16(p, OPTION_EDE);
	put16(p + 2, (unsigned)(2 + text));
	put16(p + 4, (unsigned)a->ede);
	memcpy(p + 6, a->ede_text, text);
	return 6 + text;
}

static void put_opt(struct dns_answer *a)
{
	uint8_t *p = a->out + a->len;
	size_t options = put_ede(a, p + OPT_LEN);

	p[0] = 0;
	put16(p + 1, DNS_TYPE_OPT);
	put16(p + 3, DNS_ANSWER_MAX);
	put16(p + 5, a->rcode >> 4 << 8); /* upper bits of the rcode, version 0 */
	put16(p + 7, a->q->do_bit ? EDNS_DO : 0);
	put16(p + 9, (unsigned)options);
	a->len += OPT_LEN + options;
}

size_t dnsmsg_end(struct dns_answer *a, uint16_t rcode)
{
	const struct dns_query *q = a->q;
	/* RA although nothing is recursed: without it glibc takes an empty answer for a referral and asks the
	 * next server (resolv/res_send.c). */
	unsigned flags = FLAG_QR | FLAG_RA | (unsigned)q->opcode << 11 | (rcode & 15u);

	a->rcode = rcode;
	put16(a->out, q->id);
	put16(a->out + 2,
	      flags | (q->rd ? FLAG_RD : 0) | (q->cd ? FLAG_CD : 0) | (a->truncated ? FLAG_TC : 0));
	put16(a->out + 4, q->question_len ? 1 : 0);
	put16(a->out + 6, a->records);
	put16(a->out + 8, 0);
	put16(a->out + 10, q->edns ? 1 : 0);
	if (q->edns)
		put_opt(a);
	return a->len;
}

size_t dnsmsg_refuse_unread(const uint8_t *msg, size_t len, uint8_t *out)
{
	if (len < DNS_HEADER || msg[2] & 0x80)
		return 0;
	memset(out, 0, DNS_HEADER);
	memcpy(out, msg, 2);
	put16(out + 2, FLAG_QR | FLAG_RA | (msg[2] & 1u) << 8 | DNS_REFUSED);
	return DNS_HEADER;
}

/* --- reverse names --- */

static bool reverse_v4(const char *labels, size_t len, struct addr *ret)
{
	char text[INET_ADDRSTRLEN];
	size_t n = 0;

	/* "4.3.2.1" backwards; host_parse_addr() refuses what is no canonical quad */
	if (len >= sizeof text)
		return false;
	for (size_t end = len; end; end--) {
		size_t start = end;

		while (start && labels[start - 1] != '.')
			start--;
		memcpy(text + n, labels + start, end - start);
		n += end - start;
		if (!start)
			break;
		text[n++] = '.';
		end = start;
	}
	return host_parse_addr(text, n, ret) == 0 && ret->family == AF_INET;
}

static bool reverse_v6(const char *labels, size_t len, struct addr *ret)
{
	static const char hex[] = "0123456789abcdef";
	struct sockaddr_in6 sa = {.sin6_family = AF_INET6};
	struct sockaddr_storage ss = {0};

	if (len != 63) /* 32 digits and the dots between */
		return false;
	for (unsigned i = 0; i < 32; i++) {
		const char *digit = labels[2 * i] ? strchr(hex, labels[2 * i]) : NULL;
		unsigned byte = 15 - i / 2;

		if (!digit || (i < 31 && labels[2 * i + 1] != '.'))
			return false;
		sa.sin6_addr.s6_addr[byte] |= (uint8_t)((unsigned)(digit - hex) << (i % 2 ? 4 : 0));
	}
	memcpy(&ss, &sa, sizeof sa);
	addr_from_sockaddr(ret, &ss);
	return true;
}

bool dnsmsg_reverse(const char *host, struct addr *ret)
{
	static const char v4[] = ".in-addr.arpa", v6[] = ".ip6.arpa";
	struct addr a;
	bool ok = false;

	if (str_ends(host, v4))
		ok = reverse_v4(host, strlen(host) - strlen(v4), &a);
	else if (str_ends(host, v6))
		ok = reverse_v6(host, strlen(host) - strlen(v6), &a);
	if (ok)
		*ret = a;
	return ok;
}
