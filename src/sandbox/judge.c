/*
 * Theory of operation. The entries of a plan are paths, and the most specific one decides. All of them lie in one hash
 * table; a question walks over the path once, with the hash of what it has passed, and looks into the table at the end
 * of each component. Entries of three kinds count apart, as in plan_decide(): those of the plan, those of what a backend
 * makes itself (/tmp /dev /proc), and hidden places that nothing shows anyway.
 */
#include "sandbox/judge.h"
#include "base/file.h"
#include "sandbox/plan_internal.h"
#include <string.h>

enum kind { KIND_PLAN, KIND_MADE, KIND_UNSEEN, KINDS };
struct slot {
	struct plan_path p; /* path NULL: free */
	enum kind kind;
	size_t len;
	uint32_t hash;
};
struct judge {
	struct slot *slots;
	size_t cap, n; /* cap is a power of two, and more than twice n */
	char *home;
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

static void add(struct judge *j, const struct plan_path *p, enum kind kind)
{
	uint32_t h = hash_of(p->path);
	size_t i = h & (j->cap - 1);

	while (j->slots[i].p.path)
		i = (i + 1) & (j->cap - 1);
	j->slots[i] = (struct slot){.p = *p, .kind = kind, .len = strlen(p->path), .hash = h};
	j->slots[i].p.path = xstrdup(p->path);
	j->slots[i].p.reason = xstrdup(p->reason);
	j->n++;
}

struct judge *judge_create(const struct plan *p)
{
	struct judge *j = xcalloc(1, sizeof *j);

	for (j->cap = 64; j->cap < 2 * (p->n_paths + p->n_unseen + ELEMENTS(made)) + 2;)
		j->cap *= 2;
	j->slots = xcalloc(j->cap, sizeof *j->slots);
	for (size_t i = 0; i < p->n_paths; i++)
		add(j, &p->paths[i], KIND_PLAN);
	for (size_t i = 0; i < p->n_unseen; i++)
		add(j, &p->unseen[i], KIND_UNSEEN);
	for (size_t i = 0; i < ELEMENTS(made); i++)
		add(j, &made[i], KIND_MADE);
	j->home = xstrdup(p->user.home);
	return j;
}

void judge_destroy(struct judge *j)
{
	if (!j)
		return;
	for (size_t i = 0; i < j->cap; i++) {
		free(j->slots[i].p.path);
		free(j->slots[i].p.reason);
	}
	free(j->slots);
	free(j->home);
	free(j);
}

/* The first `len` bytes of `path`, whose hash is `h`; `whole`: that is all of it. */
static void look(const struct judge *j, const char *path, size_t len, uint32_t h, bool whole,
		 const struct plan_path *best[KINDS])
{
	for (size_t i = h & (j->cap - 1); j->slots[i].p.path; i = (i + 1) & (j->cap - 1)) {
		const struct slot *s = &j->slots[i];

		if (s->hash == h && s->len == len && memcmp(s->p.path, path, len) == 0 && (s->p.dir || whole))
			best[s->kind] = &s->p;
	}
}

static const struct plan_path *decide(const struct plan_path *const best[KINDS], const char *path)
{
	const struct plan_path *by = best[KIND_PLAN], *own = best[KIND_MADE];

	if (own && (!by || strlen(by->path) <= strlen(own->path)))
		by = own;
	if (by && (!by->empty || by->access == PLAN_HIDE))
		return by;
	if (best[KIND_UNSEEN])
		return best[KIND_UNSEEN];
	return by && strcmp(by->path, path) == 0 ? by : NULL;
}

void judge_path(const struct judge *j, const char *path, struct judge_answer *ret)
{
	const struct plan_path *best[KINDS] = {NULL}, *by;
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
	by = decide(best, path);
	*ret = (struct judge_answer){
		.access = by && !by->empty ? by->access : PLAN_HIDE,
		.way = by && by->empty && strcmp(by->path, path) == 0,
		.by = by,
	};
}

/* --- words --- */

char *judge_rule(const struct judge_answer *a)
{
	return xstrdup(a->by ? a->by->reason : "nothing grants it");
}

static bool is_guarded(const struct plan_path *p)
{
	return p->access == PLAN_HIDE &&
	       (str_starts(p->reason, "secret place") || str_starts(p->reason, "sbxsv"));
}

/* Would Read= or Write= of it be taken? What guard.c says when it knows the whole unit decides; this is for a hint. */
static bool grantable(const struct judge *j, const char *path, bool write)
{
	if (plan_never(path, write) || (j->home && path_is_below(j->home, path)))
		return false;
	if (write && j->home && plan_is_login(j->home, path))
		return false;
	for (size_t i = 0; i < j->cap; i++) {
		const struct slot *s = &j->slots[i];

		if (s->p.path && is_guarded(&s->p) &&
		    (path_is_below(path, s->p.path) || path_is_below(s->p.path, path)))
			return false;
	}
	return true;
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

/* A hidden place says itself what to do. */
static char *hint_of_place(const struct plan_path *by)
{
	static const char secret[] = "secret place (";
	const char *name = by->reason + sizeof secret - 1;

	if (str_starts(by->reason, secret) && !strstr(by->reason, "another user"))
		return xasprintf("Secret=%.*s in [Sandbox] of its unit shows it to the app",
				 (int)strcspn(name, ")"), name);
	if (str_ends(by->reason, " Hide="))
		return xstrdup("it is hidden by that line, which wins over every grant");
	if (str_starts(by->reason, "belongs to another app"))
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
	if (j->home && str_eq(up, j->home) && !exists && !plan_is_login(j->home, path))
		return xasprintf("a home directory is never granted as a whole: name a directory below it with %s",
				 app ? "DataDirectory=" : "--write");
	return NULL;
}

char *judge_hint(const struct judge *j, const char *app, enum judge_want want, const char *path, bool exists,
		 bool dir)
{
	struct judge_answer a;
	char *of_place;

	judge_path(j, path, &a);
	of_place = a.by && a.access == PLAN_HIDE && !a.by->empty ? hint_of_place(a.by) : NULL;
	if (of_place)
		return of_place;
	if (a.by && is_guarded(a.by))
		return NULL;
	if (path_is_below(path, "/dev"))
		return app ? xasprintf("Device=%s in [Sandbox] of its unit", path) : NULL;
	if (want == JUDGE_CONNECT)
		return grant(app, "unix-socket", path);
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
