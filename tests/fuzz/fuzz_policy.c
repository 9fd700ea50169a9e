/* Rule text, host names, addresses and the JSON form of a policy. The first byte picks which. */
#include "policy/policy.h"
#include "base/str.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool never_granted(enum addr_class c)
{
	return c != ADDR_PUBLIC && c != ADDR_PRIVATE;
}

/* A denial's hint must be a line that is valid and opens exactly what was asked for. */
static void take_hint(const char *canon, const struct addr *a, uint16_t port)
{
	struct policy *p = policy_create(EGRESS_HOSTS);
	struct verdict v;

	for (int round = 0; round < 2; round++) {
		if (a)
			policy_decide_addr(p, a, port, &v);
		else
			policy_decide_host(p, canon, port, &v);
		assert(v.action == (round ? VERDICT_ALLOW : VERDICT_DENY) && v.rule[0] && v.reason[0]);
		if (str_starts(v.hint, "Allow="))
			assert(policy_add_allow(p, v.hint + 6, NULL, NULL) == 0);
		else if (str_starts(v.hint, "AllowAddress="))
			assert(policy_add_address(p, v.hint + 13, NULL, NULL) == 0);
		else
			break;
	}
	policy_destroy(p);
}

static void fuzz_host(const char *text, size_t len)
{
	char canon[HOST_MAX], again[HOST_MAX], shown[INET6_ADDRSTRLEN];
	struct policy *p = policy_create(EGRESS_ALL);
	struct verdict v;
	struct addr a, b;
	bool name = host_canon(text, len, canon, NULL) == 0;

	if (name) {
		assert(host_canon(canon, strlen(canon), again, NULL) == 0 && strcmp(canon, again) == 0);
		assert(host_parse_addr(canon, strlen(canon), &a) < 0);
		policy_decide_host(p, canon, 443, &v);
		take_hint(canon, NULL, (uint16_t)(len * 97 + 22));
	}
	if (host_parse_addr(text, len, &a) == 0) {
		assert(!name);
		addr_format(&a, shown);
		assert(host_parse_addr(shown, strlen(shown), &b) == 0 && addr_equal(&a, &b));
		policy_decide_addr(p, &a, 443, &v);
		assert((v.action == VERDICT_ALLOW) == (addr_classify(&a) == ADDR_PUBLIC));
		take_hint(NULL, &a, 443);
	}
	policy_destroy(p);
}

/* Looked up exactly when some port of all may be connected to: the ports next to each bound of the rules are enough. */
static void check_lookup(const struct policy *p, const char *host, const char *text)
{
	struct verdict name, v;
	bool any = false;
	unsigned long at;

	policy_decide_name(p, host, &name);
	for (const char *s = text; *s && !any; s++) {
		at = strtoul(s, NULL, 10);
		for (unsigned long port = at ? at - 1 : 0; port <= at + 1 && port <= UINT16_MAX; port++) {
			policy_decide_host(p, host, (uint16_t)port, &v);
			any = any || v.action == VERDICT_ALLOW;
		}
	}
	for (size_t i = 0; i < 6 && !any; i++) {
		policy_decide_host(p, host, (const uint16_t[]){1, 80, 443, 8080, 8443, UINT16_MAX}[i], &v);
		any = v.action == VERDICT_ALLOW;
	}
	assert(any == (name.action == VERDICT_ALLOW));
}

static void fuzz_addr(const char *bytes, size_t len)
{
	struct addr a = {.family = AF_INET6};
	struct policy *p = policy_create(EGRESS_ALL);
	struct verdict v;

	if (len >= 16) {
		memcpy(&a.v6, bytes, 16);
		policy_decide_addr(p, &a, 443, &v);
		assert((v.action == VERDICT_ALLOW) == (addr_classify(&a) == ADDR_PUBLIC));
		take_hint(NULL, &a, 25);
	}
	policy_destroy(p);
}

static void round_trip(const struct policy *p)
{
	struct js *j = policy_to_json(p), *k;
	struct policy *q = policy_from_json(j, NULL);
	char *a, *b;

	assert(q);
	k = policy_to_json(q);
	a = js_print(j);
	b = js_print(k);
	assert(strcmp(a, b) == 0);
	free(a);
	free(b);
	js_free(j);
	js_free(k);
	policy_destroy(q);
}

/* One rule of each kind from the same text; whatever it is, closed places stay closed. */
static void fuzz_rule(const char *text)
{
	static const char *const closed[] = {"127.0.0.1", "::1",     "169.254.169.254",
					     "0.0.0.0",   "fe80::1", "fd00:ec2::254"};
	struct policy *p = policy_create(EGRESS_HOSTS);
	struct verdict v;
	struct addr a;

	assert((policy_add_allow(p, text, "o:1", NULL) == 0) == (policy_check_host_rule(text, NULL) == 0));
	assert((policy_add_deny(p, text, "o:2", NULL) == 0) == (policy_check_deny_rule(text, NULL) == 0));
	assert((policy_add_address(p, text, "o:3", NULL) == 0) ==
	       (policy_check_address_rule(text, NULL) == 0));
	assert((policy_add_connect(p, text, "o:4", NULL) == 0) == (policy_check_ports(text, NULL) == 0));
	assert((policy_set_upstream(p, text, "o:5", NULL) == 0) == (policy_check_upstream(text, NULL) == 0));
	assert((policy_add_no_proxy(p, text, "o:6", NULL) == 0) == (policy_check_no_proxy(text, NULL) == 0));
	round_trip(p);
	check_lookup(p, "x.com", text);
	for (size_t i = 0; i < ELEMENTS(closed); i++) {
		assert(host_parse_addr(closed[i], strlen(closed[i]), &a) == 0 &&
		       never_granted(addr_classify(&a)));
		policy_decide_addr(p, &a, 80, &v);
		assert(v.action == VERDICT_DENY);
	}
	policy_decide_host(p, "localhost", 80, &v);
	assert(v.action == VERDICT_DENY);
	policy_decide_host(p, "com", 443, &v);
	assert(v.action == VERDICT_DENY);
	policy_destroy(p);
}

/* Lines of rules, the first byte of each says which; is a name looked up exactly when it can be reached? */
static void fuzz_rules(const char *text)
{
	struct policy *p = policy_create(EGRESS_HOSTS), *all = policy_create(EGRESS_ALL);
	CLEANUP_FREE char *copy = xstrdup(text);
	char *rest = copy, *line;

	while ((line = strsep(&rest, "\n")))
		for (unsigned i = 0; i < 2 && *line; i++) {
			struct policy *to = i ? all : p;

			if (line[0] == '-')
				(void)policy_add_deny(to, line + 1, NULL, NULL);
			else if (line[0] == '=')
				(void)policy_add_connect(to, line + 1, NULL, NULL);
			else
				(void)policy_add_allow(to, line, NULL, NULL);
		}
	check_lookup(p, "x.com", text);
	check_lookup(all, "x.com", text);
	check_lookup(p, "a.x.com", text);
	policy_destroy(p);
	policy_destroy(all);
}

static void fuzz_json(const char *text, size_t len)
{
	struct js *j = js_parse(text, len, NULL);
	struct policy *p = j ? policy_from_json(j, NULL) : NULL;

	if (p)
		round_trip(p);
	policy_destroy(p);
	js_free(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;
	char *copy;

	if (size < 1 || size > 65536)
		return 0;
	switch (data[0] % 5) {
	case 0:
		fuzz_host(text, size - 1);
		break;
	case 1:
		copy = xstrndup(text, size - 1);
		fuzz_rule(copy);
		free(copy);
		break;
	case 4:
		copy = xstrndup(text, size - 1);
		fuzz_rules(copy);
		free(copy);
		break;
	case 2:
		fuzz_json(text, size - 1);
		break;
	default:
		fuzz_addr(text, size - 1);
	}
	return 0;
}
