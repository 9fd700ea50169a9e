#include "sup/liverules.h"
#include <errno.h>
#include <time.h>

static char *origin_of(enum policy_key key, int64_t for_ms, int64_t wall_ms)
{
	const char *what = key == POLICY_DENY ? "denied" : "allowed";
	time_t end = (time_t)((wall_ms + for_ms) / 1000);
	char clock[16] = "";
	struct tm tm;

	if (!for_ms || !localtime_r(&end, &tm) || !strftime(clock, sizeof clock, "%H:%M:%S", &tm))
		return xasprintf("%s at run time", what);
	return xasprintf("%s at run time until %s", what, clock);
}

static size_t find(const struct liverules *l, enum policy_key key, const char *text)
{
	size_t i = 0;

	while (i < l->n && (l->v[i].key != key || !str_eq(l->v[i].text, text)))
		i++;
	return i;
}

int liverules_set(struct liverules *l, enum policy_key key, const char *text, int64_t for_ms, int64_t boot_ms,
		  int64_t wall_ms, struct err **e)
{
	size_t i = find(l, key, text);

	if (i == l->n) {
		if (l->n == LIVERULES_MAX)
			return err_set(e, E2BIG,
				       "there are %d rules given at run time already; write lines into the "
				       "unit instead",
				       LIVERULES_MAX);
		VEC_GROW(l->v, l->n, l->cap);
		l->v[l->n++] = (struct liverule){.key = key, .text = xstrdup(text)};
	}
	free(l->v[i].origin);
	l->v[i].origin = origin_of(key, for_ms, wall_ms);
	l->v[i].until_ms = for_ms ? boot_ms + for_ms : 0;
	return 0;
}

void liverule_finish(struct liverule *r)
{
	free(r->text);
	free(r->origin);
}

static struct liverule take(struct liverules *l, size_t i)
{
	struct liverule r = l->v[i];

	l->n--;
	for (; i < l->n; i++)
		l->v[i] = l->v[i + 1];
	return r;
}

bool liverules_drop(struct liverules *l, enum policy_key key, const char *text)
{
	size_t i = find(l, key, text);
	struct liverule r;

	if (i == l->n)
		return false;
	r = take(l, i);
	liverule_finish(&r);
	return true;
}

const struct liverule *liverules_find(const struct liverules *l, enum policy_key key, const char *text)
{
	size_t i = find(l, key, text);

	return i < l->n ? &l->v[i] : NULL;
}

bool liverules_expired(struct liverules *l, int64_t boot_ms, struct liverule *ret)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].until_ms && l->v[i].until_ms <= boot_ms) {
			*ret = take(l, i);
			return true;
		}
	return false;
}

int64_t liverules_next(const struct liverules *l)
{
	int64_t next = 0;

	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].until_ms && (!next || l->v[i].until_ms < next))
			next = l->v[i].until_ms;
	return next;
}

void liverules_copy(struct liverules *to, const struct liverules *from)
{
	for (size_t i = 0; i < from->n; i++) {
		VEC_GROW(to->v, to->n, to->cap);
		to->v[to->n] = from->v[i];
		to->v[to->n].text = xstrdup(from->v[i].text);
		to->v[to->n++].origin = xstrdup(from->v[i].origin);
	}
}

void liverules_finish(struct liverules *l)
{
	for (size_t i = 0; i < l->n; i++)
		liverule_finish(&l->v[i]);
	free(l->v);
	*l = (struct liverules){0};
}
