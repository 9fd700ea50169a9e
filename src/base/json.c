#include "base/json.h"
#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#define JSON_MAX_DEPTH 32

static cJSON *c(const struct js *j)
{
	return (cJSON *)(uintptr_t)j;
}

static struct js *own(cJSON *j)
{
	if (!j) {
		static const char msg[] = "out of memory in JSON, ending\n";

		(void)!write(2, msg, sizeof msg - 1);
		abort();
	}
	return (struct js *)j;
}

/* cJSON recurses up to 1,000 levels; the depth is bounded here, before it parses. */
static bool too_deep(const char *text, size_t len)
{
	int depth = 0;
	bool in_string = false;

	for (size_t i = 0; i < len; i++) {
		if (in_string) {
			if (text[i] == '\\')
				i++;
			else if (text[i] == '"')
				in_string = false;
		} else if (text[i] == '"') {
			in_string = true;
		} else if (text[i] == '{' || text[i] == '[') {
			if (++depth > JSON_MAX_DEPTH)
				return true;
		} else if (text[i] == '}' || text[i] == ']') {
			depth--;
		}
	}
	return false;
}

struct js *js_parse(const char *text, size_t len, struct err **e)
{
	CLEANUP_FREE char *copy = NULL;
	const char *end = NULL;
	cJSON *j;

	if (len > JSON_MAX_BYTES) {
		(void)err_set(e, EFBIG, "JSON: %zu bytes, more than %u", len, JSON_MAX_BYTES);
		return NULL;
	}
	if (memchr(text, 0, len) || too_deep(text, len)) {
		(void)err_set(e, EINVAL, "JSON: a NUL byte, or nested deeper than %d", JSON_MAX_DEPTH);
		return NULL;
	}
	copy = xstrndup(text, len);
	j = cJSON_ParseWithOpts(copy, &end, 1);
	if (!j) {
		(void)err_set(e, EINVAL, "JSON: not valid at byte %zu", end ? (size_t)(end - copy) : 0);
		return NULL;
	}
	return (struct js *)j;
}

void js_free(struct js *j)
{
	cJSON_Delete((cJSON *)j);
}

static char *owned_text(char *s)
{
	if (!s)
		(void)own(NULL);
	return s;
}

char *js_print(const struct js *j)
{
	return owned_text(cJSON_PrintUnformatted(c(j)));
}

char *js_print_pretty(const struct js *j)
{
	return owned_text(cJSON_Print(c(j)));
}

struct js *js_obj(void)
{
	return own(cJSON_CreateObject());
}

struct js *js_arr(void)
{
	return own(cJSON_CreateArray());
}

struct js *js_copy(const struct js *j)
{
	return own(cJSON_Duplicate(c(j), 1));
}

static size_t utf8_seq(const unsigned char *s, size_t left)
{
	size_t n = s[0] < 0x80                    ? 1
		   : s[0] >= 0xc2 && s[0] <= 0xdf ? 2
		   : (s[0] & 0xf0) == 0xe0        ? 3
		   : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4
						  : 0;

	if (n == 0 || left < n)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
	    (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

static struct js *text_value(const char *s)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
	size_t len = strlen(s), i = 0, n;

	while (i < len && (n = utf8_seq((const unsigned char *)s + i, len - i)))
		i += n;
	if (i == len)
		return own(cJSON_CreateString(s));
	for (i = 0; i < len; i += n ? n : 1) {
		n = utf8_seq((const unsigned char *)s + i, len - i);
		if (n)
			strbuf_add(&b, s + i, n);
		else
			strbuf_adds(&b, "\xef\xbf\xbd");
	}
	return own(cJSON_CreateString(b.p ? b.p : ""));
}

void js_add(struct js *obj, const char *key, struct js *value)
{
	cJSON_AddItemToObject(c(obj), key, c(value));
}

void js_add_str(struct js *obj, const char *key, const char *value)
{
	js_add(obj, key, value ? text_value(value) : own(cJSON_CreateNull()));
}

void js_add_int(struct js *obj, const char *key, int64_t value)
{
	js_add(obj, key, own(cJSON_CreateNumber((double)value)));
}

void js_remove(struct js *obj, const char *key)
{
	cJSON_DeleteItemFromObjectCaseSensitive(c(obj), key);
}

void js_add_num(struct js *obj, const char *key, double value)
{
	js_add(obj, key, own(cJSON_CreateNumber(value)));
}

void js_add_bool(struct js *obj, const char *key, bool value)
{
	js_add(obj, key, own(cJSON_CreateBool(value)));
}

void js_push(struct js *arr, struct js *value)
{
	cJSON_AddItemToArray(c(arr), c(value));
}

void js_push_str(struct js *arr, const char *value)
{
	js_push(arr, text_value(value));
}

void js_push_int(struct js *arr, int64_t value)
{
	js_push(arr, own(cJSON_CreateNumber((double)value)));
}

bool js_is_obj(const struct js *j)
{
	return j && cJSON_IsObject(c(j));
}

bool js_is_arr(const struct js *j)
{
	return j && cJSON_IsArray(c(j));
}

size_t js_len(const struct js *arr)
{
	return arr ? (size_t)cJSON_GetArraySize(c(arr)) : 0;
}

const struct js *js_at(const struct js *arr, size_t i)
{
	return (const struct js *)cJSON_GetArrayItem(c(arr), (int)i);
}

const struct js *js_first(const struct js *j)
{
	return j ? (const struct js *)c(j)->child : NULL;
}

const struct js *js_next(const struct js *child)
{
	return (const struct js *)c(child)->next;
}

const char *js_key(const struct js *child)
{
	return c(child)->string;
}

const struct js *js_get(const struct js *obj, const char *key)
{
	return js_is_obj(obj) ? (const struct js *)cJSON_GetObjectItemCaseSensitive(c(obj), key) : NULL;
}

const char *js_value_str(const struct js *value)
{
	return value && cJSON_IsString(c(value)) ? c(value)->valuestring : NULL;
}

const char *js_str(const struct js *obj, const char *key)
{
	return js_value_str(js_get(obj, key));
}

int js_value_int(const struct js *value, int64_t *ret)
{
	double d;

	if (!value || !cJSON_IsNumber(c(value)))
		return -1;
	d = c(value)->valuedouble;
	if (!(d >= -9007199254740992. && d <= 9007199254740992.) || d != floor(d)) /* 2^53 */
		return -1;
	*ret = (int64_t)d;
	return 0;
}

int js_int(const struct js *obj, const char *key, int64_t *ret)
{
	return js_value_int(js_get(obj, key), ret);
}

int64_t js_int_or(const struct js *obj, const char *key, int64_t other)
{
	int64_t v = other;

	(void)js_int(obj, key, &v);
	return v;
}

double js_num_or(const struct js *obj, const char *key, double other)
{
	const struct js *v = js_get(obj, key);

	return v && cJSON_IsNumber(c(v)) ? c(v)->valuedouble : other;
}

bool js_bool_or(const struct js *obj, const char *key, bool other)
{
	const struct js *v = js_get(obj, key);

	return v && cJSON_IsBool(c(v)) ? cJSON_IsTrue(c(v)) != 0 : other;
}
