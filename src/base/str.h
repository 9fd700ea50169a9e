/*
 * Strings. The x-allocators end the process with a message when memory is gone: on Linux that means the
 * kernel refused a small allocation, and a supervisor that runs on with half a state would be worse than one
 * that is restarted. Sizes that a peer or a file chooses are bounded before they reach an allocator.
 */
#pragma once
#include "base/cleanup.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *xmalloc(size_t n) __attribute__((malloc, returns_nonnull));
void *xcalloc(size_t n, size_t size) __attribute__((malloc, returns_nonnull));
void *xrealloc(void *p, size_t n) __attribute__((returns_nonnull));
char *xstrdup(const char *s) __attribute__((malloc)); /* NULL in, NULL out */
char *xstrndup(const char *s, size_t n) __attribute__((malloc, returns_nonnull));
char *xasprintf(const char *fmt, ...) PRINTF_LIKE(1, 2) __attribute__((malloc, returns_nonnull));
char *xvasprintf(const char *fmt, va_list ap) __attribute__((format(printf, 1, 0), malloc, returns_nonnull));

/* Grows array `a` (with capacity variable `cap`) so that index `n` is valid. */
#define VEC_GROW(a, n, cap)                                                                                  \
	do {                                                                                                 \
		if ((size_t)(n) >= (size_t)(cap)) {                                                          \
			(cap) = (cap) ? (cap)*2 : 8;                                                         \
			(a) = xrealloc((a), (size_t)(cap) * sizeof *(a));                                    \
		}                                                                                            \
	} while (0)

bool str_eq(const char *a, const char *b); /* both NULL is equal */
bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
char *str_trim(char *s); /* in place: cuts trailing and skips leading space and tab */
/* Edit distance, for "nearest valid word". */
size_t str_distance(const char *a, const char *b);
/* Of `words` (NULL-terminated) the only one that begins so, or the nearest within a third of the length; or
 * NULL. */
const char *str_nearest(const char *word, const char *const *words);
/* Copy safe for a terminal and a log line: control bytes, DEL, C1 and broken UTF-8 become \xNN. Owned by
 * caller. */
char *str_escape(const char *s, size_t len);

/* A growing string. Init with STRBUF_INIT; strbuf_finish frees; strbuf_take moves the text out (never NULL).
 */
struct strbuf {
	char *p; /* NUL-terminated when not NULL */
	size_t len, cap;
};
#define STRBUF_INIT                                                                                          \
	{                                                                                                    \
		NULL, 0, 0                                                                                   \
	}
void strbuf_add(struct strbuf *b, const void *data, size_t len);
void strbuf_adds(struct strbuf *b, const char *s);
void strbuf_addc(struct strbuf *b, char c);
void strbuf_addf(struct strbuf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void strbuf_reset(struct strbuf *b);
char *strbuf_take(struct strbuf *b);
void strbuf_finish(struct strbuf *b);
#define CLEANUP_STRBUF CLEANUP(strbuf_finish)

/* A list of owned strings, `v` NULL-terminated once anything was added. Zero-initialise. */
struct strv {
	char **v;
	size_t n, cap;
};
void strv_add(struct strv *l, const char *s); /* copies */
void strv_take(struct strv *l, char *s);      /* owns s */
void strv_addf(struct strv *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
bool strv_has(const struct strv *l, const char *s);
void strv_copy(struct strv *to, const struct strv *from); /* appends */
bool strv_eq(const struct strv *a, const struct strv *b);
char *strv_join(const struct strv *l, const char *sep); /* owned by caller */
void strv_clear(struct strv *l);                        /* frees all, list is reusable */
#define CLEANUP_STRV CLEANUP(strv_clear)
