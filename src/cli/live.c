#include "cli/live.h"
#include "ctl/client.h"
#include <string.h>

static bool key_of(const char *name, enum policy_key *ret)
{
	static const enum policy_key all[] = {POLICY_ALLOW, POLICY_DENY, POLICY_ADDRESS};

	for (size_t i = 0; i < ELEMENTS(all); i++)
		if (str_eq(name, policy_key_name(all[i]))) {
			*ret = all[i];
			return true;
		}
	return false;
}

static void take_rules(struct live_view *l)
{
	const struct js *rules = js_get(l->status, "live_rules");

	l->v = xcalloc(js_len(rules), sizeof *l->v);
	for (const struct js *r = js_first(rules); r; r = js_next(r)) {
		struct rules_extra x = {.text = js_str(r, "text"), .origin = js_str(r, "origin")};

		if (x.text && x.origin && key_of(js_str(r, "key"), &x.key))
			l->v[l->n++] = x;
	}
}

void live_view_get(const struct cli *c, const char *app, struct live_view *ret)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = ctl_client_open(&c->dirs, NULL);
	CLEANUP_FREE char *path = xasprintf("/v1/apps/%s", app);
	long status = 0;

	*ret = (struct live_view){0};
	if (!cl)
		return;
	ret->status = ctl_client_call(cl, "GET", path, NULL, &status, NULL);
	ret->asked = ret->status && status == 200;
	if (ret->asked)
		take_rules(ret);
}

void live_view_finish(struct live_view *l)
{
	free(l->v);
	js_free(l->status);
}
