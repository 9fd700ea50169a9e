#include "base/str.h"
#include <stdio.h>
#include <string.h>

static void oom(void)
{
	static const char msg[] = "out of memory, ending\n";

	(void)!write(2, msg, sizeof msg - 1);
	abort();
}

void *xmalloc(size_t n)
{
	void *p = malloc(n ? n : 1);

	if (!p)
		oom();
	return p;
}

void *xcalloc(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size ? size : 1);

	if (!p)
		oom();
	return p;
}

void *xrealloc(void *old, size_t n)
{
	void *p = realloc(old, n ? n : 1);

	if (!p)
		oom();
	return p;
}

char *xstrdup(const char *s)
{
	return s ? xstrndup(s, strlen(s)) : NULL;
}

char *xstrndup(const char *s, size_t n)
{
	size_t len = strnlen(s, n);
	char *p = xmalloc(len + 1);

	memcpy(p, s, len);
	p[len] = 0;
	return p;
}

char *xvasprintf(const char *fmt, va_list ap)
{
	char *p = NULL;

	if (vasprintf(&p, fmt, ap) < 0 || !p)
		oom();
	return p;
}

char *xasprintf(const char *fmt, ...)
{
	va_list ap;
	char *p;

	va_start(ap, fmt);
	p = xvasprintf(fmt, ap);
	va_end(ap);
	return p;
}

bool str_eq(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

bool str_starts(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix)
{
	size_t n = strlen(s), m = strlen(suffix);

	return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

char *str_trim(char *s)
{
	size_t n;

	while (*s == ' ' || *s == '\t')
		s++;
	n = strlen(s);
	while (n && (s[n - 1] == ' ' || s[n - 1] == '\t'))
		s[--n] = 0;
	return s;
}

size_t str_distance(const char *a, const char *b)
{
	size_t n = strnlen(a, 64), m = strnlen(b, 64), row[65];

	for (size_t j = 0; j <= m; j++)
		row[j] = j;
	for (size_t i = 1; i <= n; i++) {
		size_t diag = row[0];

		row[0] = i;
		for (size_t j = 1; j <= m; j++) {
			size_t up = row[j], best = diag + ((a[i - 1] | 0x20) != (b[j - 1] | 0x20));

			if (up + 1 < best)
				best = up + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			diag = up;
			row[j] = best;
		}
	}
	return row[m];
}

/* The one word that begins like this: half-typed rather than misspelled. */
static const char *only_longer(const char *word, const char *const *words)
{
	const char *found = NULL;
	size_t len = strlen(word);

	if (len < 2)
		return NULL;
	for (; *words; words++)
		if (strncasecmp(word, *words, len) == 0) {
			if (found)
				return NULL;
			found = *words;
		}
	return found;
}

const char *str_nearest(const char *word, const char *const *words)
{
	const char *best = only_longer(word, words);
	size_t len = strnlen(word, 64), best_d = len / 3 + 1;

	if (best)
		return best;
	for (; *words; words++) {
		size_t d = str_distance(word, *words), other = strnlen(*words, 64);

		if (2 * d > (len > other ? len : other)) /* more is changed than is kept: another word */
			continue;
		if (d <= best_d && (!best || d < best_d)) {
			best = *words;
			best_d = d;
		}
	}
	return best;
}

/* Length of the valid UTF-8 sequence at s (2..4 bytes, no overlong, no surrogate, no C1 control), or 0. */
static size_t utf8_len(const unsigned char *s, size_t left)
{
	unsigned long cp;
	size_t n;

	if (s[0] >= 0xc2 && s[0] <= 0xdf)
		n = 2, cp = s[0] & 0x1f;
	else if ((s[0] & 0xf0) == 0xe0)
		n = 3, cp = s[0] & 0x0f;
	else if (s[0] >= 0xf0 && s[0] <= 0xf4)
		n = 4, cp = s[0] & 0x07;
	else
		return 0;
	if (left < n)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		cp = cp << 6 | (s[i] & 0x3f);
	}
	if ((n == 3 && cp < 0x800) || (n == 4 && (cp < 0x10000 || cp > 0x10ffff)) ||
	    (cp >= 0xd800 && cp <= 0xdfff))
		return 0;
	/* C1 controls, and the bidirectional overrides that make a line read as something else. */
	if (cp < 0xa0 || (cp >= 0x202a && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069) || cp == 0x2028 ||
	    cp == 0x2029)
		return 0;
	return n;
}

char *str_escape(const char *s, size_t len)
{
	struct strbuf b = STRBUF_INIT;
	const unsigned char *u = (const unsigned char *)s;

	for (size_t i = 0; i < len;) {
		size_t n = 1;

		if (u[i] >= 0x80)
			n = utf8_len(u + i, len - i);
		else if ((u[i] < 0x20 && u[i] != '\t') || u[i] == 0x7f)
			n = 0;
		if (n)
			strbuf_add(&b, s + i, n);
		else
			strbuf_addf(&b, "\\x%02x", u[i]);
		i += n ? n : 1;
	}
	return strbuf_take(&b);
}

void strbuf_add(struct strbuf *b, const void *data, size_t len)
{
	if (b->len + len + 1 > b->cap) {
		size_t cap = b->cap ? b->cap : 32;

		while (cap < b->len + len + 1)
			cap *= 2;
		b->p = xrealloc(b->p, cap);
		b->cap = cap;
	}
	if (len)
		memcpy(b->p + b->len, data, len);
	b->len += len;
	b->p[b->len] = 0;
}

void strbuf_adds(struct strbuf *b, const char *s)
{
	strbuf_add(b, s, strlen(s));
}

void strbuf_addc(struct strbuf *b, char c)
{
	strbuf_add(b, &c, 1);
}

void strbuf_addf(struct strbuf *b, const char *fmt, ...)
{
	CLEANUP_FREE char *s = NULL;
	va_list ap;

	va_start(ap, fmt);
	s = xvasprintf(fmt, ap);
	va_end(ap);
	strbuf_adds(b, s);
}

void strbuf_reset(struct strbuf *b)
{
	b->len = 0;
	if (b->p)
		b->p[0] = 0;
}

char *strbuf_take(struct strbuf *b)
{
	char *p = b->p ? b->p : xstrndup("", 0);

	*b = (struct strbuf)STRBUF_INIT;
	return p;
}

void strbuf_finish(struct strbuf *b)
{
	free(b->p);
	*b = (struct strbuf)STRBUF_INIT;
}

void strv_take(struct strv *l, char *s)
{
	if (l->n + 2 > l->cap) {
		l->cap = l->cap ? l->cap * 2 : 8;
		l->v = xrealloc(l->v, l->cap * sizeof *l->v);
	}
	l->v[l->n++] = s;
	l->v[l->n] = NULL;
}

void strv_add(struct strv *l, const char *s)
{
	strv_take(l, xstrdup(s));
}

void strv_addf(struct strv *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	strv_take(l, xvasprintf(fmt, ap));
	va_end(ap);
}

bool strv_has(const struct strv *l, const char *s)
{
	for (size_t i = 0; i < l->n; i++)
		if (strcmp(l->v[i], s) == 0)
			return true;
	return false;
}

void strv_copy(struct strv *to, const struct strv *from)
{
	for (size_t i = 0; i < from->n; i++)
		strv_add(to, from->v[i]);
}

bool strv_eq(const struct strv *a, const struct strv *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (strcmp(a->v[i], b->v[i]) != 0)
			return false;
	return true;
}

char *strv_join(const struct strv *l, const char *sep)
{
	struct strbuf b = STRBUF_INIT;

	for (size_t i = 0; i < l->n; i++) {
		if (i)
			strbuf_adds(&b, sep);
		strbuf_adds(&b, l->v[i]);
	}
	return strbuf_take(&b);
}

void strv_clear(struct strv *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
	*l = (struct strv){0};
}
