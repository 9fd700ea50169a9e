#include "proxy/tally.h"
#include "base/cleanup.h"
#include "base/str.h"
#include <stdint.h>
#include <string.h>

#define BYTES_EACH 64 /* of the JSON around a rule's text */

struct entry {
	char *rule;
	uint64_t allowed, denied;
	bool changed;
};
struct tally {
	struct entry v[TALLY_RULES]; /* the one used last is the first */
	size_t n;
};

struct tally *tally_create(void)
{
	return xcalloc(1, sizeof(struct tally));
}

void tally_destroy(struct tally *t)
{
	for (size_t i = 0; t && i < t->n; i++)
		free(t->v[i].rule);
	free(t);
}

static struct entry *to_front(struct tally *t, size_t i)
{
	struct entry e = t->v[i];

	memmove(t->v + 1, t->v, i * sizeof e);
	t->v[0] = e;
	return t->v;
}

static struct entry *find(struct tally *t, const char *rule)
{
	for (size_t i = 0; i < t->n; i++)
		if (strncmp(t->v[i].rule, rule, TALLY_TEXT) == 0)
			return to_front(t, i);
	if (t->n == TALLY_RULES)
		free(t->v[--t->n].rule);
	t->v[t->n] = (struct entry){.rule = xasprintf("%.*s", TALLY_TEXT, rule)};
	return to_front(t, t->n++);
}

void tally_add(struct tally *t, const char *rule, bool allowed)
{
	struct entry *e = find(t, rule);

	e->changed = true;
	if (allowed)
		e->allowed++;
	else
		e->denied++;
}

struct js *tally_json(struct tally *t, bool all, size_t *ret_bytes)
{
	struct js *j = NULL;
	size_t bytes = 0;

	for (size_t i = 0; i < t->n; i++) {
		struct entry *e = &t->v[i];
		struct js *o;

		if (!all && !e->changed)
			continue;
		e->changed = false;
		o = js_obj();
		js_add_int(o, "allowed", (int64_t)e->allowed);
		js_add_int(o, "denied", (int64_t)e->denied);
		if (!j)
			j = js_obj();
		js_add(j, e->rule, o);
		bytes += strlen(e->rule) + BYTES_EACH;
	}
	*ret_bytes = bytes;
	return j;
}
