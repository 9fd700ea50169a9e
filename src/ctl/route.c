#include "ctl/route.h"
#include "base/json.h"
#include "base/parse.h"
#include "base/str.h"
#include "unit/unit.h"
#include <errno.h>
#include <string.h>

#define FOR_MAX_MS   (366 * INT64_C(86400000)) /* a year: whoever wants more wants it saved */
#define LINES        20
#define GRACE_MAX_MS (3600 * 1000)             /* one hour: more is a mistake in the unit of time */

/* What each operation takes. NAME in a path stands for one segment. */
static const char *const no_words[] = {NULL};
static const char *const wait_words[] = {"wait", NULL};
static const char *const start_words[] = {"wait", "prepare", NULL};
static const char *const kill_words[] = {"signal", NULL};
static const char *const status_words[] = {"usage", NULL};
static const char *const rule_words[] = {"host", "for_ms", "saved", NULL};
static const char *const shutdown_words[] = {"grace_ms", NULL};
static const char *const logs_words[] = {"lines", "follow", "since_ms", "json", NULL};
static const char *const events_words[] = {"lines", "follow", "app", NULL};
static const char *const violations_words[] = {"app", "since_ms", NULL};

static const struct route {
	enum ctl_op op;
	const char *method, *path;
	const char *const *query, *const *body;
	bool star; /* NAME may be "*", all apps */
} routes[] = {
	{CTL_VERSION, "GET", "/v1/version", no_words, no_words, false},
	{CTL_STATUS, "GET", "/v1/status", status_words, no_words, false},
	{CTL_APP, "GET", "/v1/apps/NAME", no_words, no_words, false},
	{CTL_START, "POST", "/v1/apps/NAME/start", no_words, start_words, true},
	{CTL_STOP, "POST", "/v1/apps/NAME/stop", no_words, wait_words, true},
	{CTL_RESTART, "POST", "/v1/apps/NAME/restart", no_words, start_words, true},
	{CTL_KILL, "POST", "/v1/apps/NAME/kill", no_words, kill_words, false},
	{CTL_ALLOW, "POST", "/v1/apps/NAME/allow", no_words, rule_words, false},
	{CTL_DENY, "POST", "/v1/apps/NAME/deny", no_words, rule_words, false},
	{CTL_RELOAD, "POST", "/v1/reload", no_words, no_words, false},
	{CTL_SHUTDOWN, "POST", "/v1/shutdown", no_words, shutdown_words, false},
	{CTL_UPGRADE, "POST", "/v1/upgrade", no_words, wait_words, false},
	{CTL_LOGS, "GET", "/v1/apps/NAME/logs", logs_words, no_words, false},
	{CTL_EVENTS, "GET", "/v1/events", events_words, no_words, false},
	{CTL_PORTS, "GET", "/v1/ports", no_words, no_words, false},
	{CTL_VIOLATIONS, "GET", "/v1/violations", violations_words, no_words, false},
};

bool ctl_route_row(size_t i, const char **ret_method, const char **ret_path)
{
	if (i >= ELEMENTS(routes))
		return false;
	*ret_method = routes[i].method;
	*ret_path = routes[i].path;
	return true;
}

static int hex(int c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

/* Percent-decodes into out. Control bytes, NUL, DEL and a broken escape are refused; '+' means itself. */
static int decode(const char *in, size_t len, char *out, size_t cap)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		int c = (unsigned char)in[i];

		if (c == '%') {
			if (i + 2 >= len || hex(in[i + 1]) < 0 || hex(in[i + 2]) < 0)
				return -1;
			c = hex(in[i + 1]) * 16 + hex(in[i + 2]);
			i += 2;
		}
		if (c < 0x20 || c == 0x7f || n + 1 >= cap)
			return -1;
		out[n++] = (char)c;
	}
	out[n] = 0;
	return 0;
}

static bool known(const char *const *words, const char *word)
{
	for (; *words; words++)
		if (strcmp(*words, word) == 0)
			return true;
	return false;
}

static int unknown_word(const char *what, const char *word, const char *const *words, struct err **e)
{
	CLEANUP_FREE char *shown = str_escape(word, strlen(word));
	const char *near = str_nearest(word, words);

	return near ? err_set(e, EINVAL, "unknown %s \"%s\"; did you mean \"%s\"?", what, shown, near)
		    : err_set(e, EINVAL, "unknown %s \"%s\"", what, shown);
}

/* Does `path` match the pattern, with its NAME segment (raw) in *ret_name? */
static bool match(const char *pattern, const char *path, size_t len, const char **ret_name, size_t *ret_len)
{
	const char *end = path + len, *name = strstr(pattern, "NAME"), *slash;
	size_t head = name ? (size_t)(name - pattern) : strlen(pattern), tail;

	if (len < head || memcmp(path, pattern, head) != 0)
		return false;
	if (!name)
		return len == head;
	slash = memchr(path + head, '/', len - head);
	if (!slash)
		slash = end;
	tail = (size_t)(end - slash);
	if (strlen(name + 4) != tail || memcmp(slash, name + 4, tail) != 0)
		return false;
	*ret_name = path + head;
	*ret_len = (size_t)(slash - path) - head;
	return true;
}

static int set_app(struct ctl_call *c, const char *text, size_t len, bool star, int *status, struct err **e)
{
	CLEANUP_FREE char *shown = str_escape(text, len);
	char name[sizeof c->app];

	if (decode(text, len, name, sizeof name) == 0) {
		if (star && strcmp(name, "*") == 0)
			return 0;
		if (unit_name_valid(name)) {
			memcpy(c->app, name, sizeof name);
			return 0;
		}
	}
	*status = 404;
	return err_set(e, ENOENT, "\"%s\" is no name of an app", shown);
}

static int query_value(struct ctl_call *c, const char *key, const char *value, int *status, struct err **e)
{
	uint64_t n;

	if (strcmp(key, "lines") == 0) {
		if (parse_u64(value, CTL_LINES_MAX, &n))
			return err_set(e, EINVAL, "lines: a number from 0 to %u is needed", CTL_LINES_MAX);
		c->lines = (unsigned)n;
		return 0;
	}
	if (strcmp(key, "follow") == 0)
		return parse_bool(value, &c->follow) ? err_set(e, EINVAL, "follow: 0 or 1 is needed") : 0;
	if (strcmp(key, "json") == 0)
		return parse_bool(value, &c->json) ? err_set(e, EINVAL, "json: 0 or 1 is needed") : 0;
	if (strcmp(key, "usage") == 0)
		return parse_bool(value, &c->usage) ? err_set(e, EINVAL, "usage: 0 or 1 is needed") : 0;
	if (strcmp(key, "since_ms") == 0) {
		if (parse_u64(value, INT64_MAX, &n))
			return err_set(e, EINVAL, "since_ms: milliseconds since 1970 are needed");
		c->since_ms = (int64_t)n;
		return 0;
	}
	return set_app(c, value, strlen(value), false, status, e); /* "app": all that is left in the tables */
}

static int parse_query(const struct route *r, const char *q, struct ctl_call *c, int *status, struct err **e)
{
	const char *seen[8];
	size_t n_seen = 0;

	while (*q) {
		size_t len = strcspn(q, "&");
		const char *eq = memchr(q, '=', len);
		size_t key_len = eq ? (size_t)(eq - q) : len;
		char key[32], value[256] = "";

		if (decode(q, key_len, key, sizeof key) ||
		    (eq && decode(eq + 1, len - key_len - 1, value, sizeof value)))
			return err_set(e, EINVAL, "the query part of the request is malformed");
		if (!known(r->query, key))
			return unknown_word("query argument", key, r->query, e);
		for (size_t i = 0; i < n_seen; i++)
			if (strcmp(seen[i], key) == 0)
				return err_set(e, EINVAL, "query argument \"%s\" is given twice", key);
		for (const char *const *w = r->query; *w; w++)
			if (strcmp(*w, key) == 0)
				seen[n_seen++] = *w;
		if (query_value(c, key, value, status, e))
			return -1;
		q += len + (q[len] == '&');
	}
	return 0;
}

/* A bool and nothing else reads as itself with both defaults. */
static int bool_value(const struct js *body, const char *key, bool *ret, struct err **e)
{
	bool v = js_bool_or(body, key, true);

	if (v != js_bool_or(body, key, false))
		return err_set(e, EINVAL, "%s: true or false is needed", key);
	*ret = v;
	return 0;
}

static int body_value(struct ctl_call *c, const struct js *v, const struct js *body, struct err **e)
{
	const char *key = js_key(v), *text = js_value_str(v);
	int64_t n;

	if (strcmp(key, "wait") == 0)
		return bool_value(body, key, &c->wait, e);
	if (strcmp(key, "prepare") == 0)
		return bool_value(body, key, &c->prepare, e);
	if (strcmp(key, "saved") == 0)
		return bool_value(body, key, &c->saved, e);
	if (strcmp(key, "host") == 0) {
		if (!text || !*text || strlen(text) >= sizeof c->host)
			return err_set(e, EINVAL, "host: a text of at most %zu bytes is needed",
				       sizeof c->host - 1);
		memcpy(c->host, text, strlen(text) + 1);
		return 0;
	}
	if (strcmp(key, "for_ms") == 0) {
		if (js_value_int(v, &n) || n < 1 || n > FOR_MAX_MS)
			return err_set(e, EINVAL, "for_ms: a number of milliseconds from 1 to %lld is needed",
				       (long long)FOR_MAX_MS);
		c->for_ms = n;
		return 0;
	}
	if (strcmp(key, "grace_ms") == 0) {
		if (js_value_int(v, &n) || n < 0 || n > GRACE_MAX_MS)
			return err_set(e, EINVAL, "grace_ms: a number of milliseconds from 0 to %d is needed",
				       GRACE_MAX_MS);
		c->grace_ms = n;
		return 0;
	}
	if (!text || parse_signal(text, &c->signal))
		return err_set(e, EINVAL, "signal: a name such as TERM, or its number, is needed");
	return 0;
}

static int parse_body(const struct route *r, const char *text, size_t len, struct ctl_call *c, struct err **e)
{
	CLEANUP_JS struct js *body = NULL;

	if (len) {
		body = js_parse(text, len, e);
		if (!body)
			return err_wrap(e, "body");
		if (!js_is_obj(body))
			return err_set(e, EINVAL, "body: a JSON object is needed");
	}
	for (const struct js *v = js_first(body); v; v = js_next(v)) {
		if (!known(r->body, js_key(v)))
			return unknown_word("key in the body", js_key(v), r->body, e);
		/* js_get finds the first of several: a second one would be checked but not used */
		if (js_get(body, js_key(v)) != v)
			return err_set(e, EINVAL, "key \"%s\" is given twice in the body", js_key(v));
		if (body_value(c, v, body, e))
			return -1;
	}
	if (c->op == CTL_KILL && !c->signal)
		return err_set(e, EINVAL, "kill needs {\"signal\":\"NAME\"} in the body");
	if ((c->op == CTL_ALLOW || c->op == CTL_DENY) && !c->host[0])
		return err_set(e, EINVAL, "a rule needs {\"host\":\"HOST\"} in the body");
	if (c->saved && c->for_ms)
		return err_set(e, EINVAL, "for_ms and saved exclude each other: what is saved has no end");
	return 0;
}

/* The row for path and method. Another method than the path's: 405. */
static const struct route *find_route(const char *method, const char *path, size_t len, const char **ret_name,
				      size_t *ret_len, int *status, struct err **e)
{
	CLEANUP_FREE char *shown = NULL;
	const char *other = NULL;

	for (size_t i = 0; i < ELEMENTS(routes); i++) {
		if (!match(routes[i].path, path, len, ret_name, ret_len))
			continue;
		if (strcmp(routes[i].method, method) == 0)
			return &routes[i];
		other = routes[i].method;
	}
	shown = str_escape(path, len);
	*status = other ? 405 : 404;
	if (other)
		(void)err_set(e, EINVAL, "%s takes %s only", shown, other);
	else
		(void)err_set(e, EINVAL, "no such path: %s (see sbxsv-api(7))", shown);
	return NULL;
}

int ctl_route(const char *method, const char *target, const char *body, size_t len, struct ctl_call *ret,
	      int *ret_status, struct err **e)
{
	struct ctl_call c = {.wait = true, .grace_ms = -1, .lines = CTL_LINES_ALL};
	size_t path_len = strcspn(target, "?"), name_len = 0;
	const char *name = NULL;
	const struct route *r;
	int status = 400;

	if (strlen(target) > CTL_TARGET_MAX || len > CTL_BODY_MAX) {
		*ret_status = 413;
		return err_set(e, EFBIG, "the request is too large (target %u bytes, body %u)",
			       CTL_TARGET_MAX, CTL_BODY_MAX);
	}
	r = find_route(method, target, path_len, &name, &name_len, &status, e);
	if (!r) {
		*ret_status = status;
		return -1;
	}
	c.op = r->op;
	if ((name && set_app(&c, name, name_len, r->star, &status, e)) ||
	    parse_query(r, target + path_len + (target[path_len] == '?'), &c, &status, e) ||
	    parse_body(r, body, len, &c, e)) {
		*ret_status = status;
		return -1;
	}
	if (c.lines == CTL_LINES_ALL && !(c.op == CTL_LOGS && c.since_ms))
		c.lines = LINES;
	*ret = c;
	return 0;
}
