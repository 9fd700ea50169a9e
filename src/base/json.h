/* JSON: the only user of cJSON. `struct js` is a tree; a value added to an object or array belongs to it. */
#pragma once
#include "base/err.h"
#include "base/str.h"

struct js;
#define JSON_MAX_BYTES (8u << 20)
/* At most JSON_MAX_BYTES, depth 32; bytes after the value are an error. */
struct js *js_parse(const char *text, size_t len, struct err **e);
void js_free(struct js *j);
char *js_print(const struct js *j);        /* one line; owned by caller; never NULL */
char *js_print_pretty(const struct js *j); /* for people */
static inline void cleanup_js_(struct js **j)
{
	js_free(*j);
}
#define CLEANUP_JS CLEANUP(cleanup_js_)

struct js *js_obj(void);
struct js *js_arr(void);
struct js *js_copy(const struct js *j); /* deep */
/* Text that is not UTF-8 is written with each broken byte as U+FFFD. A NULL value adds null. */
void js_add_str(struct js *obj, const char *key, const char *value);
void js_add_int(struct js *obj, const char *key, int64_t value); /* exact to 2^53 */
void js_add_num(struct js *obj, const char *key, double value);
void js_add_bool(struct js *obj, const char *key, bool value);
void js_add(struct js *obj, const char *key, struct js *value); /* owns value */
void js_remove(struct js *obj, const char *key);                /* nothing when absent */
void js_push(struct js *arr, struct js *value);                 /* owns value */
void js_push_str(struct js *arr, const char *value);
void js_push_int(struct js *arr, int64_t value);

bool js_is_obj(const struct js *j);
bool js_is_arr(const struct js *j);
size_t js_len(const struct js *arr);                    /* 0 when not an array or object */
const struct js *js_at(const struct js *arr, size_t i); /* O(i) */
const struct js *js_first(const struct js *j);          /* first child of an array or object, or NULL */
const struct js *js_next(const struct js *child);
const char *js_key(const struct js *child);                      /* of a member of an object */
const struct js *js_get(const struct js *obj, const char *key);  /* NULL when absent */
const char *js_str(const struct js *obj, const char *key);       /* NULL when absent or not a string */
const char *js_value_str(const struct js *value);                /* NULL when not a string */
int js_int(const struct js *obj, const char *key, int64_t *ret); /* -1 when absent or not a whole number */
int js_value_int(const struct js *value, int64_t *ret);
int64_t js_int_or(const struct js *obj, const char *key, int64_t other);
double js_num_or(const struct js *obj, const char *key, double other);
bool js_bool_or(const struct js *obj, const char *key, bool other);
