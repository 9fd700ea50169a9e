/*
 * Theory of operation. The entries of a plan are paths, and the most specific one decides. All of them lie in one hash
 * table; a question walks over the path once, with the hash of what it has passed, and looks into the table at the end
 * of each component. Entries of three kinds count apart, as in plan_decide(): those of the plan, those of what a backend
 * makes itself (/tmp /dev /proc), and hidden places that nothing shows anyway. There is a judge for each running app, so
 * it is kept small: entries of 16 bytes, and one text with all paths and reasons.
 */
#include "sandbox/judge.h"
#include "base/file.h"
#include "sandbox/plan_internal.h"
#include <string.h>

enum kind { KIND_PLAN, KIND_MADE, KIND_UNSEEN, KINDS };
struct entry {
	uint32_t hash, path, reason; /* offsets in the text */
	uint16_t len;
	uint8_t access : 2, dir : 1, empty : 1, kind : 2;
};
struct judge {
	struct entry *v;
	uint32_t n;
	uint16_t *table; /* number of an entry and one, 0: free */
	uint32_t cap;    /* a power of two, and more than n */
	char *text;
	uint32_t home; /* 0: none */
};

static const struct plan_path made[] = {
	{.path = (char *)"/tmp", .access = PLAN_WRITE, .dir = true, .reason = (char *)"the app's own /tmp"},
	{.path = (char *)"/dev", .access = PLAN_READ, .dir = true, .reason = (char *)"the app's own /dev"},
	{.path = (char *)"/proc", .access = PLAN_READ, .dir = true, .reason = (char *)"the app's own /proc"},
};

static const uint32_t fnv_start = 2166136261u, fnv_prime = 16777619u; /* FNV-1a */

static uint32_t hash_of(const char *path)
{
	uint32_t h = fnv_start;

	for (; *path; path++)
		h = (h ^ (unsigned char)*path) * fnv_prime;
	return h;
}

static uint32_t put(struct strbuf *b, const char *text)
{
	uint32_t at = (uint32_t)b->len;

	strbuf_add(b, text, strlen(text) + 1);
	return at;
}

/* Neighbours often have the same reason. */
static uint32_t put_reason(const struct judge *j, struct strbuf *b, const char *reason)
{
	for (uint32_t i = j->n; i > 0 && i + 16 > j->n; i--)
		if (strcmp(b->p + j->v[i - 1].reason, reason) == 0)
			return j->v[i - 1].reason;
	return put(b, reason);
}

static void add(struct judge *j, struct strbuf *b, const struct plan_path *p, enum kind kind)
{
	uint32_t h = hash_of(p->path), i = h & (j->cap - 1);
	size_t len = strlen(p->path);

	if (len > UINT16_MAX || j->n + 1 >= UINT16_MAX)
		return; /* longer than any path that is asked about; no plan has so many */
	while (j->table[i])
		i = (i + 1) & (j->cap - 1);
	j->v[j->n] = (struct entry){.hash = h,
				    .path = put(b, p->path),
				    .reason = put_reason(j, b, p->reason),
				    .len = (uint16_t)len,
				    .access = (uint8_t)(p->access & 3),
				    .dir = p->dir,
				    .empty = p->empty,
				    .kind = (uint8_t)(kind & 3)};
	j->table[i] = (uint16_t)++j->n;
}

static struct judge *judge_new(size_t n)
{
	struct judge *j = xcalloc(1, sizeof *j);

	for (j->cap = 64; j->cap < n + n / 2;)
		j->cap *= 2;
	j->table = xcalloc(j->cap, sizeof *j->table);
	j->v = xcalloc(n, sizeof *j->v);
	return j;
}

struct judge *judge_create(const struct plan *p)
{
	struct judge *j = judge_new(p->n_paths + p->n_unseen + ELEMENTS(made));
	struct strbuf b = STRBUF_INIT;

	strbuf_add(&b, "", 1);
	if (p->user.home)
		j->home = put(&b, p->user.home);
	for (size_t i = 0; i < p->n_paths; i++)
		add(j, &b, &p->paths[i], KIND_PLAN);
	for (size_t i = 0; i < p->n_unseen; i++)
		add(j, &b, &p->unseen[i], KIND_UNSEEN);
	for (size_t i = 0; i < ELEMENTS(made); i++)
		add(j, &b, &made[i], KIND_MADE);
	j->text = xrealloc(b.p, b.len);
	return j;
}

/* Of each entry four digits (kind, access, directory, empty), its path and its reason. */
void judge_save(struct keep *k, struct js *o, const char *key, const struct judge *j)
{
	struct strbuf b = STRBUF_INIT;

	strbuf_add(&b, j->text + j->home, strlen(j->text + j->home) + 1); /* at 0 there is an empty text */
	for (uint32_t i = 0; i < j->n; i++) {
		const struct entry *e = &j->v[i];

		strbuf_addf(&b, "%u%u%u%u", e->kind, e->access, e->dir, e->empty);
		strbuf_add(&b, j->text + e->path, strlen(j->text + e->path) + 1);
		strbuf_add(&b, j->text + e->reason, strlen(j->text + e->reason) + 1);
	}
	keep_bytes(k, o, key, b.p, b.len);
	strbuf_finish(&b);
}

static const char *next_text(const char **p, const char *end)
{
	const char *at = *p, *nul = memchr(at, 0, (size_t)(end - at));

	if (!nul)
		return NULL;
	*p = nul + 1;
	return at;
}

static size_t count_texts(const char *p, const char *end)
{
	size_t n = 0;

	while (next_text(&p, end))
		n++;
	return n;
}

struct judge *judge_restore(struct keep *k, const struct js *o, const char *key)
{
	struct judge *j;
	size_t len;
	const char *p = keep_get_bytes(k, o, key, &len), *end = p + len, *home = next_text(&p, end), *path, *reason;
	struct strbuf b = STRBUF_INIT;

	if (!home || !len) {
		keep_wrong(k, "what a jail grants was not handed over");
		return NULL;
	}
	j = judge_new(count_texts(p, end) / 2);
	strbuf_add(&b, "", 1);
	if (*home)
		j->home = put(&b, home);
	while ((path = next_text(&p, end)) && (reason = next_text(&p, end)) && strspn(path, "0123") >= 4) {
		struct plan_path one = {.path = (char *)(uintptr_t)path + 4,
					.reason = (char *)(uintptr_t)reason,
					.access = (enum plan_access)(path[1] - '0'),
					.dir = path[2] != '0',
					.empty = path[3] != '0'};

		add(j, &b, &one, (enum kind)(path[0] - '0') % KINDS);
	}
	j->text = xrealloc(b.p, b.len);
	return j;
}

void judge_destroy(struct judge *j)
{
	if (!j)
		return;
	free(j->table);
	free(j->v);
	free(j->text);
	free(j);
}

/* The first `len` bytes of `path`, whose hash is `h`; `whole`: that is all of it. */
static void look(const struct judge *j, const char *path, size_t len, uint32_t h, bool whole,
		 const struct entry *best[KINDS])
{
	for (uint32_t i = h & (j->cap - 1); j->table[i]; i = (i + 1) & (j->cap - 1)) {
		const struct entry *e = &j->v[j->table[i] - 1];

		if (e->hash == h && e->len == len && memcmp(j->text + e->path, path, len) == 0 &&
		    (e->dir || whole))
			best[e->kind] = e;
	}
}

static const struct entry *decide(const struct entry *const best[KINDS], size_t len)
{
	const struct entry *by = best[KIND_PLAN], *own = best[KIND_MADE];

	if (own && (!by || by->len <= own->len))
		by = own;
	if (by && (!by->empty || by->access == PLAN_HIDE))
		return by;
	if (best[KIND_UNSEEN])
		return best[KIND_UNSEEN];
	return by && by->len == len ? by : NULL;
}

void judge_path(const struct judge *j, const char *path, struct judge_answer *ret)
{
	const struct entry *best[KINDS] = {NULL}, *by;
	uint32_t h = fnv_start;
	size_t n = 0;

	look(j, "/", 1, (h ^ '/') * fnv_prime, path[0] == '/' && !path[1], best);
	for (; path[n]; n++) {
		if (path[n] == '/' && n)
			look(j, path, n, h, false, best);
		h = (h ^ (unsigned char)path[n]) * fnv_prime;
	}
	if (n > 1)
		look(j, path, n, h, true, best);
	by = decide(best, n);
	*ret = (struct judge_answer){
		.access = by && !by->empty ? (enum plan_access)by->access : PLAN_HIDE,
		.way = by && by->empty && by->len == n,
		.empty = by && by->empty,
		.reason = by ? j->text + by->reason : NULL,
	};
}

/* --- words --- */

char *judge_rule(const struct judge_answer *a)
{
	return xstrdup(a->reason ? a->reason : "nothing grants it");
}

static bool is_guarded(enum plan_access access, const char *reason)
{
	return access == PLAN_HIDE && (str_starts(reason, "secret place") || str_starts(reason, "sbxsv"));
}

/* A directory of PATH, or in one: people run programs from there, and a hostile app would like its owner to forget that. */
static bool is_of_programs(const char *path)
{
	const char *list = getenv("PATH");
	CLEANUP_FREE char *dirs = xstrdup(list ? list : "");
	char *save = NULL;

	for (char *d = strtok_r(dirs, ":", &save); d; d = strtok_r(NULL, ":", &save))
		if (path_is_below(path, d))
			return true;
	return false;
}

/* Would Read= or Write= of it be taken? What guard.c says when it knows the whole unit decides; this is for a hint. */
static bool grantable(const struct judge *j, const char *path, bool write)
{
	const char *home = j->home ? j->text + j->home : NULL;

	if (plan_never(path, write) || (home && path_is_below(home, path)))
		return false;
	if (write && ((home && plan_is_login(home, path)) || is_of_programs(path)))
		return false;
	for (uint32_t i = 0; i < j->n; i++) {
		const char *at = j->text + j->v[i].path;

		if (is_guarded((enum plan_access)j->v[i].access, j->text + j->v[i].reason) &&
		    (path_is_below(path, at) || path_is_below(at, path)))
			return false;
	}
	return true;
}

/* Can it be a value of a unit, and be typed? What is shown escaped would name another path when it is pasted. */
static bool can_be_written(const char *path)
{
	CLEANUP_FREE char *safe = str_escape(path, strlen(path));

	return strcmp(safe, path) == 0 && !strchr(" \t\\", path[strlen(path) - 1]) && !strstr(path, "$PORT");
}

/* As one word of a shell. Owned by caller. */
static char *shell_word(const char *path)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=@%:,";
	struct strbuf b = STRBUF_INIT;

	if (!path[strspn(path, plain)])
		return xstrdup(path);
	strbuf_addc(&b, '\'');
	for (; *path; path++)
		if (*path == '\'')
			strbuf_adds(&b, "'\\''");
		else
			strbuf_addc(&b, *path);
	strbuf_addc(&b, '\'');
	return strbuf_take(&b);
}

static char *grant(const char *app, const char *option, const char *path)
{
	CLEANUP_FREE char *word = shell_word(path);

	return app ? xasprintf("sbxsv allow %s --%s %s", app, option, word)
		   : xasprintf("--%s %s", option, word);
}

/* Who talks to one of these starts containers, services or programs of the desktop outside of the jail. */
static bool commands_the_host(const char *path)
{
	static const char *const names[] = {"docker.sock",  "podman.sock",    "containerd.sock",
					    "crio.sock",    "buildkitd.sock", "libvirt-sock",
					    "snapd.socket", "unix.socket",    "system_bus_socket",
					    "bus",          "virtqemud-sock"};
	const char *name = strrchr(path, '/');

	for (size_t i = 0; name && i < ELEMENTS(names); i++)
		if (strcmp(name + 1, names[i]) == 0)
			return true;
	return strstr(path, "/.X11-unix/") || strstr(path, "/systemd/");
}

/* An app that is refused a key of the house does not get a command to paste that hands it over. */
static char *hint_of_socket(const char *app, const char *path)
{
	if (commands_the_host(path))
		return xasprintf(
			"who talks to it can act outside of the jail, so this is no command to paste: "
			"UnixSocket=%s, if that is wanted",
			path);
	return grant(app, "unix-socket", path);
}

/* A hidden place says itself what to do. */
static char *hint_of_place(const char *reason)
{
	static const char secret[] = "secret place (";
	const char *name = reason + sizeof secret - 1;

	if (str_starts(reason, secret) && !strstr(reason, "another user"))
		return xasprintf("Secret=%.*s in [Sandbox] of its unit shows it to the app",
				 (int)strcspn(name, ")"), name);
	if (str_ends(reason, " Hide="))
		return xstrdup("it is hidden by that line, which wins over every grant");
	if (str_starts(reason, "belongs to another app"))
		return xstrdup("DataDirectory= of the same directory in both units shares it");
	return NULL;
}

/* The narrowest place that may be granted so that `path` can be written. */
static char *hint_of_write(const struct judge *j, const char *app, const char *path, bool exists, bool dir)
{
	CLEANUP_FREE char *up = path_dirname(path);

	if (exists && dir && grantable(j, path, true))
		return grant(app, "write", path);
	if (grantable(j, up, true))
		return grant(app, "write", up);
	if (exists && grantable(j, path, true))
		return grant(app, "write", path);
	if (j->home && str_eq(up, j->text + j->home) && !exists && !plan_is_login(j->text + j->home, path))
		return xasprintf(
			"a home directory is never granted as a whole: name a directory below it with %s",
			app ? "DataDirectory=" : "--write");
	return NULL;
}

char *judge_hint(const struct judge *j, const char *app, enum judge_want want, const char *path, bool exists,
		 bool dir)
{
	struct judge_answer a;
	char *of_place;

	judge_path(j, path, &a);
	of_place = a.reason && a.access == PLAN_HIDE && !a.empty ? hint_of_place(a.reason) : NULL;
	if (of_place)
		return of_place;
	if (a.reason && !a.empty && is_guarded(a.access, a.reason))
		return NULL;
	if (!can_be_written(path))
		return NULL;
	if (path_is_below(path, "/dev"))
		return app ? xasprintf("Device=%s in [Sandbox] of its unit", path) : NULL;
	if (want == JUDGE_CONNECT)
		return hint_of_socket(app, path);
	if (want == JUDGE_WRITE)
		return hint_of_write(j, app, path, exists, dir);
	return grantable(j, path, false) ? grant(app, "read", path) : NULL;
}

/* --- for an observer --- */

unsigned judge_bits(const void *judge, const char *path)
{
	struct judge_answer a;

	judge_path(judge, path, &a);
	return (a.access != PLAN_HIDE ? 1u : 0) | (a.access == PLAN_WRITE ? 2u : 0) | (a.way ? 4u : 0);
}

void judge_words(const void *judge, const char *app, unsigned want, const char *path, bool exists, bool dir,
		 char **ret_rule, char **ret_hint)
{
	struct judge_answer a;

	judge_path(judge, path, &a);
	*ret_rule = judge_rule(&a);
	*ret_hint = judge_hint(judge, app, (enum judge_want)want, path, exists, dir);
}

void judge_gone(void *judge)
{
	judge_destroy(judge);
}
