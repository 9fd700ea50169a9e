/*
 * One value of one key into the field of its struct. Each kind has one setter; a setter works on a copy and
 * stores only when everything is right, so that a bad value changes nothing. Lists keep the origin of each
 * element.
 */
#include "base/file.h"
#include "base/parse.h"
#include "unit/internal.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>

static void set_str(char **field, const char *text)
{
	char *copy = xstrdup(text);

	free(*field);
	*field = copy;
}

const char *unit_enum_word(const struct unit_key *k, size_t i)
{
	return k->words[i] + (k->words[i][0] == '!');
}

int unit_enum_index(const struct unit_key *k, const char *text)
{
	for (size_t i = 0; k->words[i]; i++)
		if (strcmp(unit_enum_word(k, i), text) == 0)
			return (int)i;
	return -1;
}

bool unit_enum_in_force(const struct unit_key *k, const char *text)
{
	int i = unit_enum_index(k, text);

	return i < 0 || k->words[i][0] != '!';
}

static int bad_word(const struct unit_key *k, const char *text, struct err **e)
{
	CLEANUP_STRV struct strv words = {0};
	CLEANUP_FREE char *all = NULL, *shown = unit_shown_text(text);
	const char *near;

	for (size_t i = 0; k->words[i]; i++)
		strv_add(&words, unit_enum_word(k, i));
	all = strv_join(&words, ", ");
	near = str_nearest(text, (const char *const *)words.v);
	return err_set(e, 0, "%s is not one of %s%s%s%s", shown, all, near ? " (did you mean " : "",
		       near ? near : "", near ? "?)" : "");
}

static int set_enum(struct set *s, struct err **e)
{
	int i = unit_enum_index(s->k, s->text);

	if (i < 0)
		return bad_word(s->k, s->text, e);
	if (s->k->kind == K_ENUM_STR)
		set_str(s->field, s->text);
	else if (s->k->kind == K_ENUM_BOOL)
		*(bool *)s->field = i != 0;
	else
		memcpy(s->field, &i, sizeof i);
	return 0;
}

static int set_bool(struct set *s, struct err **e)
{
	if (parse_bool(s->text, s->field) < 0)
		return err_set(e, 0, "%s is neither yes nor no", s->text);
	return 0;
}

static int set_ms(struct set *s, struct err **e)
{
	int64_t v;

	if (parse_duration_ms(s->text, &v) < 0)
		return err_set(e, 0, "%s is not a duration such as 500ms, 2s or 5min", s->text);
	if (v < s->k->min)
		return err_set(e, 0, "%s is too short: at least %lld ms", s->text, (long long)s->k->min);
	if (s->k->max && v > s->k->max)
		return err_set(e, 0, "%s is too long: at most %lld s", s->text,
			       (long long)(s->k->max / 1000));
	*(int64_t *)s->field = v;
	return 0;
}

static int number(const struct set *s, uint64_t *ret, struct err **e)
{
	uint64_t v, max = s->k->max ? (uint64_t)s->k->max : UINT32_MAX;

	if (parse_u64(s->text, UINT64_MAX, &v) < 0)
		return err_set(e, 0, "%s is not a whole number", s->text);
	if (v < (uint64_t)s->k->min || v > max)
		return err_set(e, 0, "%s is out of range: from %lld to %llu", s->text, (long long)s->k->min,
			       (unsigned long long)max);
	*ret = v;
	return 0;
}

static int set_number(struct set *s, struct err **e)
{
	uint64_t v = 0;

	if (number(s, &v, e) < 0)
		return -1;
	if (s->k->kind == K_UINT)
		*(unsigned *)s->field = (unsigned)v;
	else
		*(uint64_t *)s->field = v;
	return 0;
}

static int set_size(struct set *s, struct err **e)
{
	uint64_t v;

	if (parse_size(s->text, &v) < 0)
		return err_set(e, 0, "%s is not a size such as 512K, 10M or 2G", s->text);
	if (v < (uint64_t)s->k->min)
		return err_set(e, 0, "%s is too small: at least %lld bytes", s->text, (long long)s->k->min);
	*(uint64_t *)s->field = v;
	return 0;
}

static int set_nice(struct set *s, struct err **e)
{
	bool minus = s->text[0] == '-';
	uint64_t v;

	if (parse_u64(s->text + minus, minus ? 20 : 19, &v) < 0)
		return err_set(e, 0, "%s is not a niceness from -20 to 19", s->text);
	*(int *)s->field = minus ? -(int)v : (int)v;
	return 0;
}

static int set_cpu(struct set *s, struct err **e)
{
	CLEANUP_FREE char *digits = xstrdup(s->raw); /* '%' is no expansion here */
	size_t n = strlen(digits);
	uint64_t v;

	if (n && digits[n - 1] == '%')
		digits[n - 1] = 0;
	else
		digits[0] = 0;
	if (parse_u64(digits, 100000, &v) < 0 || v == 0)
		return err_set(e, 0, "%s is not a share of one processor such as 50%% or 200%%", s->raw);
	*(unsigned *)s->field = (unsigned)v;
	return 0;
}

static int set_signal(struct set *s, struct err **e)
{
	int sig;

	if (parse_signal(s->text, &sig) < 0)
		return err_set(e, 0, "%s is not a signal such as TERM, INT or HUP", s->text);
	if (sig == SIGSTOP || sig == SIGTSTP || sig == SIGCONT || sig == SIGCHLD)
		return err_set(e, 0, "%s does not end a program", s->text);
	*(int *)s->field = sig;
	return 0;
}

static int set_text(struct set *s, struct err **e)
{
	(void)e;
	set_str(s->field, s->text);
	return 0;
}

/* "-" of an optional path stays in front; the rest is checked and normalised. Owned by caller, NULL with *e.
 */
static char *path_value(const char *text, bool may_be_absent, const char *key, struct err **e)
{
	bool dash = *text == '-';
	CLEANUP_FREE char *p = NULL;

	if (dash && !may_be_absent) {
		err_set(e, 0, "%s= takes no '-' before the path: it has to exist", key);
		return NULL;
	}
	if (unit_check_path(text + dash, e) < 0)
		return NULL;
	p = path_join("/", text + dash);
	return xasprintf("%s%s", dash ? "-" : "", p);
}

/* A path is one value to the end of the line: it may contain spaces. "-~/x" expands too. */
static char *expanded_path(const struct set *s, bool may_be_absent, struct err **e)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
	bool dash = may_be_absent && s->raw[0] == '-';

	if (dash)
		strbuf_addc(&b, '-');
	if (unit_expand_text(s->c, s->raw + dash, true, &b, e) < 0)
		return NULL;
	return path_value(b.p ? b.p : "", may_be_absent, s->k->name, e);
}

static int set_path(struct set *s, struct err **e)
{
	char *p = expanded_path(s, s->k->kind == K_PATHS_OPT || s->k->kind == K_PATH_STRV, e);

	if (!p)
		return -1;
	if (s->k->kind == K_PATH) {
		free(*(char **)s->field);
		*(char **)s->field = p;
	} else if (s->k->kind == K_PATH_STRV) {
		strv_take(s->field, p);
	} else {
		unit_list_add(s->field, p, s->origin);
	}
	return 0;
}

static int set_search_path(struct set *s, struct err **e)
{
	if (strchr(s->raw, ':'))
		return err_set(e, 0, "one directory a line: %s= may repeat", s->k->name);
	return set_path(s, e);
}

static int set_device(struct set *s, struct err **e)
{
	CLEANUP_FREE char *p = expanded_path(s, true, e);

	if (!p)
		return -1;
	if (!str_starts(p + (*p == '-'), "/dev/"))
		return err_set(e, 0, "%s is not below /dev", p);
	unit_list_add(s->field, TAKE_PTR(p), s->origin);
	return 0;
}

static int set_words(struct set *s, struct err **e)
{
	struct strv words = {0};

	if (unit_expand_words(s->c, s->k->name, s->raw, &words, e) < 0)
		return -1;
	if (!words.n || !words.v[0][0]) {
		strv_clear(&words);
		return err_set(e, 0, "no program is named");
	}
	strv_clear(s->field);
	*(struct strv *)s->field = words;
	return 0;
}

static int set_shell(struct set *s, struct err **e)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
	struct value_ctx c = *s->c;

	/* ~ and $PORT are the shell's own business here: HOME and PORT are in its environment, quoting rules
	 * are its. */
	for (const char *t = s->raw; *t;) {
		size_t n = strcspn(t, "%");

		strbuf_add(&b, t, n);
		t += n;
		if (*t) {
			char two[3] = {t[0], t[1], 0};

			if (unit_expand_text(&c, two, false, &b, e) < 0)
				return -1;
			t += t[1] ? 2 : 1;
		}
	}
	set_str(s->field, b.p ? b.p : "");
	return 0;
}

static int set_url_path(struct set *s, struct err **e)
{
	if (unit_check_url_path(s->text, e) < 0)
		return -1;
	return set_text(s, e);
}

static int set_proxy_url(struct set *s, struct err **e)
{
	const struct unit_dirs *d = s->c->dirs;

	if (d->check_upstream && d->check_upstream(s->raw, e) < 0)
		return -1;
	set_str(s->field, s->raw);
	return 0;
}

static int set_ip(struct set *s, struct err **e)
{
	struct in6_addr a;

	if (inet_pton(AF_INET, s->text, &a) != 1 && inet_pton(AF_INET6, s->text, &a) != 1)
		return err_set(e, 0, "%s is not an address of this machine such as 127.0.0.1, 0.0.0.0 or ::1",
			       s->text);
	return set_text(s, e);
}

static int set_user(struct set *s, struct err **e)
{
	const char *t = s->text;
	size_t n = strlen(t);

	/* useradd(8): the names it makes by default, plus '.' as some directories use it. */
	if (!(isalpha((unsigned char)*t) || *t == '_') || n > 32)
		return err_set(e, 0, "%s is not a user or group name", t);
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)t[i]) && !strchr("_-.", t[i]))
			return err_set(e, 0, "%s is not a user or group name", t);
	if (strcmp(t, "root") == 0)
		return err_set(e, 0, "an app never runs as root: name another user");
	return set_text(s, e);
}

static int set_profile(struct set *s, struct err **e)
{
	if (!unit_name_valid(s->text) || strchr(s->text, '@'))
		return err_set(e, 0, "%s is not the name of a profile: a file of units/ without .conf",
			       s->text);
	return set_text(s, e);
}

static int set_kind(struct set *s, struct err **e)
{
	switch ((enum key_kind)s->k->kind) {
	case K_TEXT:
		return set_text(s, e);
	case K_SHELL:
		return set_shell(s, e);
	case K_WORDS:
		return set_words(s, e);
	case K_PATHS:
		return strcmp(s->k->name, "Path") == 0 ? set_search_path(s, e) : set_path(s, e);
	case K_PATH:
	case K_PATHS_OPT:
	case K_PATH_STRV:
		return set_path(s, e);
	case K_ENUM:
	case K_ENUM_STR:
	case K_ENUM_BOOL:
		return set_enum(s, e);
	case K_BOOL:
		return set_bool(s, e);
	case K_MS:
		return set_ms(s, e);
	case K_UINT:
	case K_COUNT:
		return set_number(s, e);
	case K_SIZE:
		return set_size(s, e);
	case K_NICE:
		return set_nice(s, e);
	case K_CPU:
		return set_cpu(s, e);
	case K_SIGNAL:
		return set_signal(s, e);
	case K_URLPATH:
		return set_url_path(s, e);
	case K_USER:
		return set_user(s, e);
	case K_DEVICE:
		return set_device(s, e);
	case K_IP:
		return set_ip(s, e);
	case K_PROXY_URL:
		return set_proxy_url(s, e);
	case K_PROFILE:
		return set_profile(s, e);
	case K_NEED:
		return s->k->list ? unit_set_word_list(s, e) : unit_set_need_range(s, e);
	case K_HOOK:
		return unit_set_hook(s, e);
	case K_APPS:
	case K_ENV:
	case K_ENVNAMES:
	case K_STATUS:
	case K_SECRET:
	case K_HOSTS:
	case K_ADDRESSES:
	case K_PORTS:
	case K_LISTEN:
	case K_LOOPBACK:
	case K_NO_PROXY:
		return unit_set_word_list(s, e);
	}
	return err_set(e, 0, "no parser for this key: this is a bug in sbxsv");
}

/* Kinds that look at the raw text themselves, because quoting or a '-' comes before expansion. */
static bool takes_raw(const struct unit_key *k)
{
	switch (k->kind) {
	case K_SHELL:
	case K_WORDS:
	case K_PATH:
	case K_PATHS:
	case K_PATHS_OPT:
	case K_PATH_STRV:
	case K_DEVICE:
	case K_ENV:
	case K_HOOK:
	case K_CPU:
	case K_PROXY_URL: /* its % is that of a URL */
		return true;
	default:
		return false;
	}
}

static void clear_list(const struct unit_key *k, void *base)
{
	if (k->kind == K_NEED)
		unit_list_drop_named((struct unit_list *)((char *)base + k->offset), k->name);
	else
		unit_value_free(k, base);
}

int unit_value_set(const struct value_ctx *c, const struct unit_key *k, void *base, const char *raw,
		   const char *origin, struct err **e)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
	struct set s = {.c = c,
			.k = k,
			.base = base,
			.field = (char *)base + k->offset,
			.raw = raw,
			.origin = origin};

	if (!*raw) {
		if (!k->list)
			return err_set(e, 0, "the value is empty: remove the line to get the default");
		clear_list(k, base);
		return 0;
	}
	if (!takes_raw(k) && unit_expand_text(c, raw, k->kind == K_TEXT, &b, e) < 0)
		return -1;
	s.text = b.p ? b.p : "";
	return set_kind(&s, e);
}
