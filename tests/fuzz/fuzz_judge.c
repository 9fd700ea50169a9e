/* A plan of fuzzed entries, and fuzzed questions: the judge says what plan_decide() says, and never reads beyond. The same bytes
 * are taken for a system call too. */
#include "sandbox/judge.h"
#include "base/file.h"
#include "trace/call.h"
#include <assert.h>
#include <fcntl.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct plan_path *push(struct plan_path **v, size_t *n, size_t *cap)
{
	VEC_GROW(*v, *n, *cap);
	return &(*v)[(*n)++];
}

/* Lines: a byte of flags, then a path. */
static void add_line(struct plan *p, const char *line, size_t len)
{
	unsigned flags = (unsigned char)line[0];
	CLEANUP_FREE char *text = xstrndup(line + 1, len - 1);
	CLEANUP_FREE char *path = path_join("/", text);
	struct plan_path *e = flags & 0x40 ? push(&p->unseen, &p->n_unseen, &p->cap_unseen)
					   : push(&p->paths, &p->n_paths, &p->cap_paths);

	*e = (struct plan_path){.path = TAKE_PTR(path),
				.access = flags & 0x40 ? PLAN_HIDE : (enum plan_access)(flags % 3),
				.dir = flags & 4,
				.empty = (flags & 8) && (flags & 4) && !(flags & 0x40),
				.reason = xstrdup(flags & 0x10 ? "secret place (ssh)" : "notes.app:1 Read=")};
}

static void ask(const struct plan *p, const struct judge *j, const char *path)
{
	const struct plan_path *by;
	struct judge_answer a;
	CLEANUP_FREE char *rule = NULL;

	judge_path(j, path, &a);
	assert(a.access == plan_decide(p, path, &by));
	assert(!a.reason == !by);
	rule = judge_rule(&a);
	assert(rule[0]);
	for (unsigned want = JUDGE_READ; want <= JUDGE_CONNECT; want++) {
		CLEANUP_FREE char *hint = judge_hint(j, want & 1 ? "notes" : NULL, (enum judge_want)want,
						     path, path[1], path[0]);

		assert(!hint || hint[0]);
	}
}

static void decode(const uint8_t *data, size_t size)
{
	struct seccomp_data d = {0};
	struct call calls[CALL_PATHS_MAX];
	int n;

	memcpy(&d, data, size < sizeof d ? size : sizeof d);
	d.nr &= 511;
	n = call_decode(&d, calls);
	assert(n >= 0 && n <= CALL_PATHS_MAX);
	for (int i = 0; i < n; i++)
		assert(calls[i].kind <= CALL_CONNECT);
}

/* Two entries of one path are not a plan: the first wins in one, the last in the other. */
static bool has(const struct plan *p, const char *line, size_t len)
{
	CLEANUP_FREE char *text = xstrndup(line + 1, len - 1), *path = path_join("/", text);

	for (size_t i = 0; i < p->n_paths; i++)
		if (strcmp(p->paths[i].path, path) == 0)
			return true;
	for (size_t i = 0; i < p->n_unseen; i++)
		if (strcmp(p->unseen[i].path, path) == 0)
			return true;
	return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP_PLAN struct plan *p = xcalloc(1, sizeof *p);
	CLEANUP_FREE char *text = xstrndup((const char *)data, size), *path = NULL;
	struct judge *j;
	size_t n_lines = 0;
	char *at;

	decode(data, size);
	p->user.home = xstrdup("/home/ann");
	for (at = text; strchr(at, '\n') && n_lines < 200; n_lines++) {
		size_t len = strcspn(at, "\n");

		if (len > 1 && !has(p, at, len))
			add_line(p, at, len);
		at += len + 1;
	}
	j = judge_create(p);
	path = path_join("/", at);
	ask(p, j, path);
	for (size_t i = 0; i < p->n_paths; i++) {
		CLEANUP_FREE char *below = path_join(p->paths[i].path, at),
				  *up = path_dirname(p->paths[i].path);

		ask(p, j, p->paths[i].path);
		ask(p, j, below[0] == '/' ? below : "/");
		ask(p, j, up);
	}
	judge_destroy(j);
	return 0;
}
