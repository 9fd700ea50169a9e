/* Any text as the policy file of a stand-alone proxy: a policy or problems, never both, never neither; and a
 * policy that can travel to the worker. */
#include "proxy/policyfile.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct strv problems = {0};
	struct policy *p, *q;
	struct js *j;

	if (size > 65536)
		return 0;
	p = policyfile_parse((const char *)data, size, "f", NULL, &problems);
	assert(!p == (problems.n != 0));
	assert(problems.n <= POLICYFILE_PROBLEMS + 1);
	for (size_t i = 0; i < problems.n; i++)
		assert(!strchr(problems.v[i], '\n'));
	if (p) {
		j = policy_to_json(p);
		q = policy_from_json(j, NULL);
		assert(q && policy_egress(q) == policy_egress(p));
		policy_destroy(q);
		js_free(j);
	}
	policy_destroy(p);
	strv_clear(&problems);
	return 0;
}
