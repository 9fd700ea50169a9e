/*
 * Versions and ranges, by number: 3.9 is older than 3.10. A range is words that must all hold, each a pair of bounds:
 * from (inclusive) to (exclusive). Part of a range that is left out, or x, is any number, as in npm's ranges.
 */
#include "unit/internal.h"
#include <string.h>

enum { PARTS = 3, NUMBER_MAX = 999999 };
struct bound {
	unsigned v[PARTS];
	bool none;
};
struct parts {
	unsigned v[PARTS];
	unsigned n; /* how many are known */
};

static struct parts read_parts(const char *s)
{
	struct parts p = {0};

	if (*s == 'v' || *s == 'V')
		s++;
	while (p.n < PARTS && *s >= '0' && *s <= '9') {
		unsigned x = 0;

		for (; *s >= '0' && *s <= '9'; s++)
			x = x > NUMBER_MAX / 10 ? NUMBER_MAX : x * 10 + (unsigned)(*s - '0');
		p.v[p.n++] = x;
		if (*s++ != '.')
			break;
	}
	return p;
}

static struct bound exactly(const struct parts *p)
{
	return (struct bound){.v = {p->v[0], p->v[1], p->v[2]}};
}

/* The first version behind all those that begin with the first n parts. */
static struct bound behind(const struct parts *p, unsigned n)
{
	struct bound b = {.none = n == 0};

	for (unsigned i = 0; i < n; i++)
		b.v[i] = p->v[i];
	if (n)
		b.v[n - 1]++;
	return b;
}

/* ^ keeps the first part that is not zero, ~ the second one (the first, if there is no second). */
static unsigned kept(char op, const struct parts *p)
{
	if (op == '~')
		return p->n < 2 ? p->n : 2;
	for (unsigned i = 0; i < p->n; i++)
		if (p->v[i])
			return i + 1;
	return p->n;
}

static void read_word(const char *word, struct bound *from, struct bound *to)
{
	const char *digits = word + strcspn(word, "0123456789");
	const struct parts p = read_parts(digits);
	bool equal = digits > word && digits[-1] == '=';

	*from = (struct bound){.none = true};
	*to = (struct bound){.none = true};
	switch (*word) {
	case '>':
		*from = equal ? exactly(&p) : behind(&p, p.n);
		break;
	case '<':
		*to = equal ? behind(&p, p.n) : exactly(&p);
		break;
	case '^':
	case '~':
		*from = exactly(&p);
		*to = behind(&p, kept(*word, &p));
		break;
	default:
		*from = exactly(&p);
		*to = behind(&p, p.n);
	}
}

/* Is v at least b? -1: that depends on parts of v that are not known. */
static int at_least(const struct parts *v, const struct bound *b)
{
	bool rest = false;

	for (unsigned i = 0; i < v->n; i++)
		if (v->v[i] != b->v[i])
			return v->v[i] > b->v[i];
	for (unsigned i = v->n; i < PARTS; i++)
		rest |= b->v[i] != 0;
	return rest ? -1 : 1;
}

int unit_version_in(const char *version, const char *range)
{
	const struct parts v = read_parts(version);
	int verdict = 1;

	if (!v.n)
		return -1;
	for (const char *t = range + strspn(range, " "); *t; t += strspn(t, " ")) {
		CLEANUP_FREE char *word = xstrndup(t, strcspn(t, " "));
		struct bound from, to;
		int low, high;

		t += strlen(word);
		read_word(word, &from, &to);
		low = from.none ? 1 : at_least(&v, &from);
		high = to.none ? 0 : at_least(&v, &to);
		if (low == 0 || high == 1)
			return 0;
		if (low < 0 || high < 0)
			verdict = -1;
	}
	return verdict;
}
