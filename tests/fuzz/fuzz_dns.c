/* A message to policy DNS: whatever it is, the answer is a well-formed one to that question, no longer than the asker takes,
 * and an address in it stands for the name that was asked for. */
#include "proxy/dnsanswer.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct dns_view view = {.app = "notes"};

static void set_up(void)
{
	struct policy *p = policy_create(EGRESS_HOSTS);

	assert(policy_add_allow(p, "allowed.example", "notes.app:3", NULL) == 0);
	assert(policy_add_allow(p, "*.wild.example:22", "notes.app:4", NULL) == 0);
	assert(policy_add_deny(p, "no.wild.example", "notes.app:5", NULL) == 0);
	view.policy = p;
	view.names = names_open(-1, NULL);
	assert(view.names);
}

static unsigned be16(const uint8_t *p)
{
	return (unsigned)(p[0] << 8 | p[1]);
}

/* The end of the record at `at`: a pointer to the question or the root, then the fixed part and the data. */
static size_t record_end(const uint8_t *out, size_t len, size_t at, unsigned *ret_type, size_t *ret_data)
{
	size_t name = out[at] == 0 ? 1 : 2;

	assert(out[at] == 0 || (len - at > 2 && be16(out + at) == 0xc00c));
	at += name;
	assert(len - at >= 10);
	*ret_type = be16(out + at);
	*ret_data = at + 10;
	at += 10 + be16(out + at + 8);
	assert(at <= len);
	return at;
}

static void check_address(const struct dns_query *q, const uint8_t *data)
{
	struct addr a = {.family = AF_INET};
	struct verdict v;
	const char *host;

	memcpy(&a.v4, data, 4);
	if (addr_classify(&a) == ADDR_LOOPBACK) {
		assert(strstr(q->host, "localhost"));
		return;
	}
	host = names_find(view.names, a.v4);
	policy_decide_name(view.policy, q->host, &v);
	assert(host && strcmp(host, q->host) == 0 && v.action == VERDICT_ALLOW && names_is_fake(&a));
}

static void check_answer(const uint8_t *msg, const struct dns_query *q, const uint8_t *out, size_t len)
{
	size_t at = DNS_HEADER + (size_t)q->question_len, value;
	unsigned type;

	assert(len >= at && (out[2] & 0x80) && be16(out) == q->id && be16(out + 8) == 0);
	assert(be16(out + 4) == (q->question_len ? 1 : 0));
	assert(memcmp(out + DNS_HEADER, msg + DNS_HEADER, q->question_len) == 0);
	for (unsigned i = be16(out + 6); i; i--) {
		at = record_end(out, len, at, &type, &value);
		assert(type == q->type || q->type == DNS_TYPE_ANY);
		if (type == DNS_TYPE_A)
			check_address(q, out + value);
	}
	assert(be16(out + 10) == (q->edns ? 1 : 0));
	if (q->edns) {
		at = record_end(out, len, at, &type, &value);
		assert(type == DNS_TYPE_OPT);
		if (at > value)
			assert(be16(out + value) == 15 && 4 + be16(out + value + 2) == at - value);
	}
	assert(at == len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t out[DNS_ANSWER_MAX], *msg = malloc(size ? size : 1);
	struct dns_denial denial;
	struct dns_query q;
	enum dnsmsg parsed;

	if (!view.policy)
		set_up();
	assert(msg);
	memcpy(msg, data, size);
	parsed = dnsmsg_parse(msg, size, &q);
	for (unsigned udp = 0; udp < 2; udp++) {
		size_t len = dns_answer(&view, msg, size, udp, out, &denial);

		assert((len == 0) == (parsed == DNSMSG_DROP));
		if (!len)
			continue;
		assert(len <= sizeof out && (!udp || len <= q.udp_size));
		check_answer(msg, &q, out, len);
		if (denial.denied)
			assert(parsed == DNSMSG_QUESTION && (out[3] & 15) == DNS_NXDOMAIN &&
			       be16(out + 6) == 0);
	}
	free(msg);
	return 0;
}
