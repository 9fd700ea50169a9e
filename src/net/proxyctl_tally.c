#include "net/proxyctl_tally.h"
#include <string.h>

#define RULE_TEXT_MAX 640 /* as of a refusal, struct pc_refusal */

static struct pc_tally_rule *rule_of(struct pc_tally *t, const char *name)
{
	for (size_t i = 0; i < t->n; i++)
		if (str_eq(t->v[i].rule, name))
			return &t->v[i];
	if (t->n >= PC_TALLY_MAX && !str_eq(name, PC_TALLY_OTHERS))
		return rule_of(t, PC_TALLY_OTHERS);
	VEC_GROW(t->v, t->n, t->cap);
	t->v[t->n] = (struct pc_tally_rule){.rule = xstrdup(name)};
	return &t->v[t->n++];
}

static uint64_t count_of(const struct js *j, const char *key)
{
	int64_t n = js_int_or(j, key, 0);

	return n > 0 ? (uint64_t)n : 0;
}

/* Bounded, and safe to show. Owned by caller. */
static char *clean(const char *text)
{
	char *s = xstrndup(text, strnlen(text, RULE_TEXT_MAX));

	for (char *p = s; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	return s;
}

/* The numbers are those of the proxy's life until now, so they replace the last ones; but several rules may end in
 * one line here, and there they add up. */
void pc_tally_read(struct pc_tally *t, const struct js *rules)
{
	struct pc_tally_rule *others;

	if (!js_is_obj(rules))
		return;
	for (size_t i = 0; i < t->n; i++)
		if (str_eq(t->v[i].rule, PC_TALLY_OTHERS))
			t->v[i].allowed = t->v[i].denied = 0;
	for (const struct js *j = js_first(rules); j; j = js_next(j)) {
		CLEANUP_FREE char *name = js_key(j) ? clean(js_key(j)) : NULL;
		struct pc_tally_rule *r;

		if (!name || !*name)
			continue;
		r = rule_of(t, name);
		others = str_eq(r->rule, PC_TALLY_OTHERS) ? r : NULL;
		r->allowed = (others ? r->allowed : 0) + count_of(j, "allowed");
		r->denied = (others ? r->denied : 0) + count_of(j, "denied");
	}
}

void pc_tally_proxy_died(struct pc_tally *t)
{
	for (size_t i = 0; i < t->n; i++) {
		struct pc_tally_rule *r = &t->v[i];

		r->allowed_0 += r->allowed;
		r->denied_0 += r->denied;
		r->allowed = r->denied = 0;
	}
}

struct js *pc_tally_list(const struct pc_tally *t)
{
	struct js *list = js_arr();

	for (size_t i = 0; i < t->n; i++) {
		const struct pc_tally_rule *r = &t->v[i];
		struct js *j = js_obj();

		js_add_str(j, "rule", r->rule);
		js_add_int(j, "allowed", (int64_t)(r->allowed_0 + r->allowed));
		js_add_int(j, "denied", (int64_t)(r->denied_0 + r->denied));
		js_push(list, j);
	}
	return list;
}

void pc_tally_finish(struct pc_tally *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->v[i].rule);
	free(t->v);
	*t = (struct pc_tally){0};
}
