#include "cli/limits_view.h"
#include "ctl/client.h"

const char *limits_key(unsigned index)
{
	static const char *const keys[] = {"Memory=", "CPU=", "Tasks="};

	return keys[index];
}

static bool ask(const struct cli *c, struct limits_view *ret)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = ctl_client_open(&c->dirs, NULL);
	CLEANUP_JS struct js *reply = NULL;
	const struct js *limits;
	long status = 0;

	if (!cl)
		return false;
	reply = ctl_client_call(cl, "GET", "/v1/status", NULL, &status, NULL);
	limits = reply && status == 200 ? js_get(js_get(reply, "supervisor"), "limits") : NULL;
	for (unsigned i = 0; limits && i < ELEMENTS(ret->why); i++)
		ret->why[i] = xstrdup(js_str(limits, cgroup_controller_name(1u << i)));
	return limits != NULL;
}

void limits_view_get(const struct cli *c, struct limits_view *ret)
{
	struct cgroup_tree *t;

	*ret = (struct limits_view){0};
	if (!ask(c, ret)) {
		t = cgroup_try(NULL);
		for (unsigned i = 0; i < ELEMENTS(ret->why); i++)
			ret->why[i] = xstrdup(cgroup_why_not(t, 1u << i));
		cgroup_close(t);
	}
	for (unsigned i = 0; i < ELEMENTS(ret->why); i++)
		ret->has |= ret->why[i] ? 0 : 1u << i;
}

void limits_view_finish(struct limits_view *v)
{
	for (unsigned i = 0; i < ELEMENTS(v->why); i++)
		free(TAKE_PTR(v->why[i]));
}
