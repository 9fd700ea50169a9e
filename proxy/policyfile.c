#include "proxy/policyfile.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int add_fn(struct policy *p, const char *text, const char *origin, struct err **e);

enum key_kind { LIST, WORD, LINE };
struct key {
	const char *name;
	enum key_kind kind;
	add_fn *add;              /* LIST: each word; LINE: the whole value */
	const char *const *words; /* WORD */
	const char *elsewhere;    /* not a key here: why */
};

static const char *const egress_words[] = {"off", "hosts", "all", NULL};
static const char *const sni_words[] = {"match", "off", NULL};
static const char *const ech_words[] = {"allow", "refuse", NULL};

enum { K_EGRESS, K_SNI, K_ECH, K_UPSTREAM, K_ALLOW, K_DENY, K_ADDRESS, K_CONNECT, K_NO_PROXY, KEYS_USED };
static const struct key keys[] = {
	[K_EGRESS] = {"Egress", WORD, NULL, egress_words, NULL},
	[K_SNI] = {"SniPolicy", WORD, NULL, sni_words, NULL},
	[K_ECH] = {"Ech", WORD, NULL, ech_words, NULL},
	[K_UPSTREAM] = {"UpstreamProxy", LINE, policy_set_upstream, NULL, NULL},
	[K_ALLOW] = {"Allow", LIST, policy_add_allow, NULL, NULL},
	[K_DENY] = {"Deny", LIST, policy_add_deny, NULL, NULL},
	[K_ADDRESS] = {"AllowAddress", LIST, policy_add_address, NULL, NULL},
	[K_CONNECT] = {"Connect", LIST, policy_add_connect, NULL, NULL},
	[K_NO_PROXY] = {"NoProxy", LIST, policy_add_no_proxy, NULL, NULL},
	[KEYS_USED] = {"Listen", WORD, NULL, NULL, "give --listen instead"},
	{"ListenAddress", WORD, NULL, NULL, "give --listen instead"},
	{"Loopback", WORD, NULL, NULL, "only an app in a jail has a loopback of its own"},
	{"Ask", WORD, NULL, NULL, "there is nobody to ask"},
};

struct setting {
	char *value, *origin;
	unsigned line; /* 0: an option */
};
struct settings {
	struct setting *v;
	size_t n, cap;
};

struct reader {
	const char *shown;
	struct strv *problems;
	struct settings set[KEYS_USED];
	unsigned line;
	bool any_password;
};

static void settings_clear(struct settings *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->v[i].value);
		free(s->v[i].origin);
	}
	s->n = 0;
}

static void reader_finish(struct reader *r)
{
	for (size_t k = 0; k < KEYS_USED; k++) {
		settings_clear(&r->set[k]);
		free(r->set[k].v);
	}
}

static void problem(struct reader *r, unsigned line, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void problem(struct reader *r, unsigned line, const char *fmt, ...)
{
	CLEANUP_FREE char *text = NULL;
	va_list ap;

	if (r->problems->n > POLICYFILE_PROBLEMS)
		return;
	if (r->problems->n == POLICYFILE_PROBLEMS) {
		strv_add(r->problems, "too many errors: the others are not shown");
		return;
	}
	va_start(ap, fmt);
	text = xvasprintf(fmt, ap);
	va_end(ap);
	if (line)
		strv_addf(r->problems, "%s:%u: %s", r->shown, line, text);
	else
		strv_addf(r->problems, POLICYFILE_OPTIONS ": %s", text);
}

/* --- one setting --- */

static const struct key *find_key(struct reader *r, unsigned line, const char *name)
{
	const char *names[ELEMENTS(keys) + 1] = {NULL};
	const char *near;

	for (size_t i = 0; i < ELEMENTS(keys); i++) {
		if (strcmp(keys[i].name, name) == 0) {
			if (!keys[i].elsewhere)
				return &keys[i];
			problem(r, line, "%s= has no meaning here: %s", name, keys[i].elsewhere);
			return NULL;
		}
		names[i] = keys[i].name;
	}
	near = str_nearest(name, names);
	problem(r, line, "%s= is not a key of [Network]%s%s%s", name, near ? ": did you mean " : "",
		near ? near : "", near ? "=?" : "");
	return NULL;
}

static void keep(struct settings *s, char *value, char *origin, unsigned line)
{
	VEC_GROW(s->v, s->n, s->cap);
	s->v[s->n++] = (struct setting){value, origin, line};
}

static void take_word(struct reader *r, const struct key *k, struct settings *s, const char *value,
		      char *origin, unsigned line)
{
	size_t i = 0;

	while (k->words && k->words[i] && strcmp(k->words[i], value) != 0)
		i++;
	if (s->n)
		problem(r, line, "%s= is set twice (first in %s)", k->name, s->v[0].origin);
	else if (k->words && !k->words[i])
		problem(r, line, "%s=%s is not one of %s, %s%s%s", k->name, value, k->words[0], k->words[1],
			k->words[2] ? ", " : "", k->words[2] ? k->words[2] : "");
	else
		keep(s, xstrdup(value), xstrdup(origin), line);
}

static void setting(struct reader *r, const char *name, const char *value, unsigned line)
{
	const struct key *k = find_key(r, line, name);
	struct settings *s = k ? &r->set[k - keys] : NULL;
	CLEANUP_FREE char *origin = line ? xasprintf("%s:%u", r->shown, line) : xstrdup(POLICYFILE_OPTIONS);

	if (!k)
		return;
	if (strstr(value, " #") || strstr(value, " ;") || strstr(value, "\t#")) { /* no value has one */
		problem(r, line, "%s=: a comment needs its own line", name);
		return;
	}
	if (!*value && k->kind == LIST) {
		settings_clear(s);
		return;
	}
	if (!*value) {
		problem(r, line, "%s= is empty: remove the line to get the default", name);
		return;
	}
	if (k->kind != LIST) {
		if (k == &keys[K_UPSTREAM] && line)
			r->any_password |= policy_upstream_has_password(value);
		take_word(r, k, s, value, origin, line);
		return;
	}
	for (const char *t = value; *t;) {
		size_t n = strcspn(t, " \t");

		keep(s, xstrndup(t, n), xstrdup(origin), line);
		t += n;
		t += strspn(t, " \t");
	}
}

/* --- lines --- */

/* "Key=value", trimmed and cut apart; false: a problem. */
static bool cut_line(struct reader *r, char *text, char **ret_value)
{
	char *eq = strchr(text, '=');
	CLEANUP_FREE char *key = xstrndup(text, eq ? (size_t)(eq - text) : 0);
	char *name = str_trim(key);
	size_t n = 0;

	while ((name[n] >= 'a' && name[n] <= 'z') || (name[n] >= 'A' && name[n] <= 'Z'))
		n++;
	if (!eq || !n || name[n] || n > 40) { /* the line itself is not shown: it may hold a password */
		problem(r, r->line, "neither [Network] nor KEY=VALUE, such as Allow=example.com");
		return false;
	}
	memmove(text, name, n + 1);
	*ret_value = str_trim(eq + 1);
	if (str_ends(*ret_value, "\\")) {
		problem(r, r->line, "%s= ends with a backslash: lines cannot be continued", text);
		return false;
	}
	return true;
}

static void take_line(struct reader *r, const char *start, size_t len)
{
	CLEANUP_FREE char *text = NULL, *safe = NULL;
	char *value = NULL;

	if (len > POLICYFILE_LINE_MAX) {
		problem(r, r->line, "the line is %zu bytes long; the limit is %d", len, POLICYFILE_LINE_MAX);
		return;
	}
	text = xstrndup(start, len);
	if (strlen(text) != len) {
		problem(r, r->line, "the line contains a NUL byte");
		return;
	}
	if (*text == '#' || *text == ';' || !text[strspn(text, " \t")])
		return;
	safe = str_escape(text, len);
	if (strcmp(safe, text) != 0)
		problem(r, r->line, "a control character (a carriage return?) or broken UTF-8");
	else if (*text == ' ' || *text == '\t')
		problem(r, r->line, "the line begins with a space (lines cannot be continued)");
	else if (*text == '[' && strcmp(str_trim(text), "[Network]") != 0)
		problem(r, r->line, "the only section here is [Network]");
	else if (*text != '[' && cut_line(r, text, &value))
		setting(r, text, value, r->line);
}

static void take_file(struct reader *r, const char *text, size_t len)
{
	const char *end = text + len;

	while (text < end) {
		const char *nl = memchr(text, '\n', (size_t)(end - text));

		r->line++;
		take_line(r, text, (size_t)((nl ? nl : end) - text));
		text = nl ? nl + 1 : end;
	}
}

static void take_options(struct reader *r, const struct strv *options)
{
	for (size_t i = 0; options && i < options->n; i++) {
		char *eq = strchr(options->v[i], '=');
		CLEANUP_FREE char *key = eq ? xstrndup(options->v[i], (size_t)(eq - options->v[i])) : NULL;

		if (eq)
			setting(r, key, eq + 1, 0);
	}
}

/* --- the policy --- */

static bool is_word(const struct reader *r, int key, const char *word)
{
	return r->set[key].n && strcmp(r->set[key].v[0].value, word) == 0;
}

/* The rules between keys, as src/unit/validate.c has them. */
static enum egress judge_egress(struct reader *r)
{
	const struct settings *allow = &r->set[K_ALLOW], *address = &r->set[K_ADDRESS];
	bool rules = allow->n || address->n;

	if (is_word(r, K_EGRESS, "off") && rules)
		problem(r, (allow->n ? allow : address)->v[0].line,
			"%s= beside Egress=off (%s): remove one of them", allow->n ? "Allow" : "AllowAddress",
			r->set[K_EGRESS].v[0].origin);
	if (r->set[K_CONNECT].n && !is_word(r, K_EGRESS, "all"))
		problem(r, r->set[K_CONNECT].v[0].line,
			"Connect= needs Egress=all; with Egress=hosts write the port behind the host: "
			"Allow=host:port");
	if (r->set[K_NO_PROXY].n && !r->set[K_UPSTREAM].n)
		problem(r, r->set[K_NO_PROXY].v[0].line,
			"NoProxy= needs UpstreamProxy=: without one every connection is direct");
	if (is_word(r, K_EGRESS, "all"))
		return EGRESS_ALL;
	return rules || is_word(r, K_EGRESS, "hosts") ? EGRESS_HOSTS : EGRESS_OFF;
}

static struct policy *build(struct reader *r)
{
	struct policy *p = policy_create(judge_egress(r));

	for (size_t k = 0; k < KEYS_USED; k++)
		for (size_t i = 0; i < r->set[k].n && keys[k].add; i++) {
			const struct setting *s = &r->set[k].v[i];
			CLEANUP_ERR struct err *e = NULL;

			if (keys[k].add(p, s->value, s->origin, &e) < 0)
				problem(r, s->line, "%s", err_msg(e));
		}
	policy_set_sni_match(p, !is_word(r, K_SNI, "off"));
	policy_set_ech_refuse(p, is_word(r, K_ECH, "refuse"));
	if (!r->problems->n)
		return p;
	policy_destroy(p);
	return NULL;
}

static struct policy *parse(struct reader *r, const char *text, size_t len, const struct strv *options)
{
	struct policy *p;

	take_file(r, text, len);
	take_options(r, options);
	p = build(r);
	return p;
}

struct policy *policyfile_parse(const char *text, size_t len, const char *shown, const struct strv *options,
				struct strv *problems)
{
	CLEANUP(reader_finish) struct reader r = {.shown = shown, .problems = problems};

	return parse(&r, text, len, options);
}

/* Whoever can change the rules can open the proxy; whoever can read a password has it. */
static int check_file(int fd, struct stat *st, struct err **e)
{
	if (fstat(fd, st) < 0)
		return err_sys(e, errno, "it cannot be looked at");
	if (!S_ISREG(st->st_mode))
		return err_set(e, EINVAL, "it is not a regular file");
	if (st->st_uid != geteuid() && st->st_uid != 0)
		return err_set(e, EPERM, "it belongs to uid %u, who is neither root nor you", st->st_uid);
	if (st->st_mode & (S_IWGRP | S_IWOTH))
		return err_set(e, EPERM, "others can change it: chmod go-w");
	return 0;
}

static int read_all(int fd, struct strbuf *out, struct err **e)
{
	char chunk[8192];
	ssize_t n;

	while ((n = read(fd, chunk, sizeof chunk)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, errno, "it cannot be read");
		if (out->len + (size_t)n > POLICYFILE_MAX)
			return err_set(e, EFBIG, "it is larger than %u KiB", POLICYFILE_MAX / 1024);
		strbuf_add(out, chunk, (size_t)n);
	}
	return 0;
}

struct policy *policyfile_read(const char *path, const struct strv *options, struct strv *problems)
{
	CLEANUP(reader_finish) struct reader r = {.shown = path, .problems = problems};
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FD int fd = -1;
	CLEANUP_STRBUF struct strbuf text = STRBUF_INIT;
	struct stat st = {0};
	struct policy *p;

	if (!path)
		return parse(&r, "", 0, options);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		(void)err_sys(&e, errno, "it cannot be opened");
	if (fd < 0 || check_file(fd, &st, &e) < 0 || read_all(fd, &text, &e) < 0) {
		strv_addf(problems, "%s: %s", path, err_msg(e));
		return NULL;
	}
	p = parse(&r, text.p ? text.p : "", text.len, options);
	if (p && r.any_password && st.st_mode & (S_IRGRP | S_IROTH)) {
		strv_addf(problems, "%s: it holds a password and others can read it: chmod go-r", path);
		policy_destroy(p);
		return NULL;
	}
	return p;
}
