/*
 * DNS messages (RFC 1035, EDNS0 of RFC 6891): questions in, answers out. Pure; no allocation, no I/O.
 *
 * Theory of operation. The parser is total: every message is a question, an error that has an answer, or
 * something that gets none. It follows no compression pointer, because a question has none. The question is
 * echoed byte by byte, so that the case of the asker (0x20) comes back; what is judged is the canonical host
 * name, and a label with a byte that no host name has makes it no host name.
 *
 * An answer is built in the caller's buffer: begin, records, end. What does not fit is left out and the answer
 * marked as truncated.
 */
#pragma once
#include "policy/policy.h"
#include <stddef.h>

#define DNS_QUERY_MAX  1024 /* longer ones get FORMERR: a question, EDNS and its padding are far below */
#define DNS_ANSWER_MAX 1232 /* DNS flag day 2020; also the size we say we take */

enum { /* types, RFC 1035 3.2.2 and the IANA registry */
       DNS_TYPE_A = 1,
       DNS_TYPE_SOA = 6,
       DNS_TYPE_PTR = 12,
       DNS_TYPE_HINFO = 13,
       DNS_TYPE_AAAA = 28,
       DNS_TYPE_OPT = 41,
       DNS_TYPE_SVCB = 64,
       DNS_TYPE_HTTPS = 65,
       DNS_TYPE_ANY = 255,
};
enum {
	DNS_NOERROR = 0,
	DNS_FORMERR = 1,
	DNS_SERVFAIL = 2,
	DNS_NXDOMAIN = 3,
	DNS_NOTIMP = 4,
	DNS_REFUSED = 5,
	DNS_BADVERS = 16,
};
enum dns_ede { /* RFC 8914 4 */
	       DNS_EDE_OTHER = 0,
	       /* "An internal security policy imposed by the operator of the server": exactly that. Filtered (17) is
	 * what the client asked for, Prohibited (18) a client that may not ask at all. */
	       DNS_EDE_BLOCKED = 15,
	       DNS_EDE_NOT_READY = 14,
};

struct dns_query {
	uint16_t id;
	uint8_t opcode;
	bool rd, cd;
	uint16_t type, class;
	uint16_t question_len; /* bytes of the question, at DNS_HEADER; 0: cannot be echoed */
	char host[HOST_MAX];   /* canonical; "" when it is no host name */
	bool root;             /* the name is "." */
	bool edns, do_bit;
	uint16_t udp_size; /* what the asker takes by UDP: 512 or more */
	uint8_t rcode;     /* DNSMSG_ERROR: what to answer */
};
#define DNS_HEADER 12

enum dnsmsg {
	DNSMSG_QUESTION, /* well-formed, standard, one question of class IN */
	DNSMSG_ERROR,    /* answer with q->rcode */
	DNSMSG_DROP,     /* no answer: too short, or itself an answer */
};
enum dnsmsg dnsmsg_parse(const uint8_t *msg, size_t len, struct dns_query *ret);

struct dns_answer {
	uint8_t *out;
	size_t len, limit;
	const struct dns_query *q;
	uint16_t rcode; /* 12 bits */
	uint16_t records;
	bool truncated;
	int ede; /* -1: none */
	const char *ede_text;
};
/* `msg` is what was parsed into q; `out` of DNS_ANSWER_MAX bytes. Over TCP pass udp false. */
void dnsmsg_begin(struct dns_answer *a, uint8_t *out, const uint8_t *msg, const struct dns_query *q,
		  bool udp);
/* One record of the question's name. */
void dnsmsg_record(struct dns_answer *a, uint16_t type, uint32_t ttl, const void *data, size_t len);
/* The same with a host name as its data (PTR). */
void dnsmsg_record_name(struct dns_answer *a, uint16_t type, uint32_t ttl, const char *host);
/* The reason of a failure, for an asker that speaks EDNS. The text is not copied; it is cut to what fits. */
void dnsmsg_reason(struct dns_answer *a, enum dns_ede code, const char *text);
size_t dnsmsg_end(struct dns_answer *a, uint16_t rcode); /* the length */
/* An answer from the header alone, for bytes that may not be looked at: 12 bytes, or 0. */
size_t dnsmsg_refuse_unread(const uint8_t *msg, size_t len, uint8_t *out);

/* The address in a name below in-addr.arpa or ip6.arpa, if it is a whole one. */
bool dnsmsg_reverse(const char *host, struct addr *ret);
