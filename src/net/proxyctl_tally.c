#include "net/proxyctl_tally.h"
#include <string.h>

#define RULE_TEXT_MAX 640 /* as of a refusal, struct pc_refusal */

static void begin_again(struct pc_tally_rule *r)
{
	r->allowed_0 += r->allowed;
	r->denied_0 += r->denied;
	r->allowed = r->denied = 0;
}

static void push_out_last(struct pc_tally *t)
{
	struct pc_tally_rule *r = &t->v[--t->n];

	begin_again(r);
	t->allowed += r->allowed_0;
	t->denied += r->denied_0;
	free(r->rule);
}

/* At the front. */
static struct pc_tally_rule *rule_of(struct pc_tally *t, const char *name)
{
	struct pc_tally_rule r = {0};
	size_t i = 0;

	while (i < t->n && !str_eq(t->v[i].rule, name))
		i++;
	if (i < t->n) {
		r = t->v[i];
	} else {
		if (t->n == PC_TALLY_MAX)
			push_out_last(t);
		VEC_GROW(t->v, t->n, t->cap);
		i = t->n++;
		r.rule = xstrdup(name);
	}
	memmove(&t->v[1], &t->v[0], i * sizeof r);
	t->v[0] = r;
	return &t->v[0];
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

void pc_tally_read(struct pc_tally *t, const struct js *rules)
{
	if (!js_is_obj(rules))
		return;
	for (const struct js *j = js_first(rules); j; j = js_next(j)) {
		CLEANUP_FREE char *name = js_key(j) ? clean(js_key(j)) : NULL;
		uint64_t allowed = count_of(j, "allowed"), denied = count_of(j, "denied");
		struct pc_tally_rule *r;

		if (!name || !*name)
			continue;
		r = rule_of(t, name);
		if (allowed < r->allowed || denied < r->denied) /* it had forgotten the rule */
			begin_again(r);
		r->allowed = allowed;
		r->denied = denied;
	}
}

void pc_tally_proxy_died(struct pc_tally *t)
{
	for (size_t i = 0; i < t->n; i++)
		begin_again(&t->v[i]);
}

static void push(struct js *list, const char *rule, uint64_t allowed, uint64_t denied)
{
	struct js *j = js_obj();

	js_add_str(j, "rule", rule);
	js_add_int(j, "allowed", (int64_t)allowed);
	js_add_int(j, "denied", (int64_t)denied);
	js_push(list, j);
}

struct js *pc_tally_list(const struct pc_tally *t)
{
	struct js *list = js_arr();

	for (size_t i = 0; i < t->n; i++)
		push(list, t->v[i].rule, t->v[i].allowed_0 + t->v[i].allowed,
		     t->v[i].denied_0 + t->v[i].denied);
	if (t->allowed || t->denied)
		push(list, PC_TALLY_OTHERS, t->allowed, t->denied);
	return list;
}

void pc_tally_finish(struct pc_tally *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->v[i].rule);
	free(t->v);
	t->v = NULL;
	t->n = t->cap = 0;
}
