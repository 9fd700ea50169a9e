/*
 * Random worlds: a small disk full of symlinks, a unit that asks for whatever there is, other apps, secrets.
 * Whatever comes out as a plan must keep its promises, judged here by resolving paths anew, not by plan code.
 * The generator is a fixed sequence, so a failure is the same again; it prints the world.
 */
#include "fake_fs.h"
#include "base/file.h"
#include "sandbox/judge.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

enum { WORLDS = 4000 };
#define HOME "/home/ann"

struct rng {
	uint64_t s;
};

static unsigned below(struct rng *r, unsigned n)
{
	r->s ^= r->s << 13; /* xorshift64, Marsaglia 2003 */
	r->s ^= r->s >> 7;
	r->s ^= r->s << 17;
	return (unsigned)((r->s >> 11) % n);
}

/* A few names, so that things meet. */
static const char *const names[] = {"a",       "b",  "app",   "data",    ".ssh",
				    ".config", "gh", "notes", ".bashrc", "x"};
static const char *const roots[] = {HOME,
				    HOME "/apps",
				    HOME "/.config",
				    "/srv",
				    "/var/lib/p",
				    "/opt/x",
				    HOME "/apps/mail",
				    HOME "/apps/notes",
				    HOME "/apps/notes"};

static char *random_path(struct rng *r)
{
	struct strbuf b = STRBUF_INIT;

	strbuf_adds(&b, roots[below(r, ELEMENTS(roots))]);
	for (unsigned i = below(r, 4); i > 0; i--)
		strbuf_addf(&b, "/%s", names[below(r, ELEMENTS(names))]);
	return strbuf_take(&b);
}

static void random_disk(struct rng *r, struct fake_fs *f)
{
	static const char *const fixed[] = {"d /usr/bin",
					    "x /usr/bin/python3 = ELF",
					    "l /bin -> usr/bin",
					    "d /etc",
					    "d /opt",
					    "d:1000 " HOME "/apps/notes",
					    "d:1000 " HOME "/.ssh",
					    "d:1000 " HOME "/apps/mail",
					    "d:1000 " HOME "/.config/gh",
					    "d:1000 " HOME "/.config/sbxsv/apps.d",
					    "d:1000 " HOME "/.local/state/sbxsv",
					    "d:0:1777 /tmp"};
	static const char kinds[] = {'d', 'd', 'd', 'f', 'x', 'l', 'l', 's', 'p'};

	for (size_t i = 0; i < ELEMENTS(fixed); i++)
		assert_int_equal(fake_fs_add(f, fixed[i]), 0);
	for (unsigned i = below(r, 24); i > 0; i--) {
		CLEANUP_FREE char *path = random_path(r), *target = random_path(r), *line = NULL;
		char kind = kinds[below(r, ELEMENTS(kinds))];
		struct plan_fs fs = fake_fs_view(f);
		CLEANUP_FREE char *up = path_dirname(path);
		struct stat st;

		/* what is there stays, and nothing grows below a file or a link */
		if (fs.lstat(f, path, &st) == 0)
			continue;
		for (; strcmp(up, "/") != 0 && (fs.lstat(f, up, &st) < 0 || S_ISDIR(st.st_mode));) {
			char *next = path_dirname(up);

			free(up);
			up = next;
		}
		if (strcmp(up, "/") != 0)
			continue;
		line = xasprintf("%c:%d %s %s%s", kind, below(r, 6) ? 1000 : 0, path,
				 kind == 'l' ? "-> " : "live", kind == 'l' ? target : "");
		assert_int_equal(fake_fs_add(f, line), 0);
	}
}

/* Where a path really leads, the way the kernel walks; NULL: nowhere. `absent`: below what is not there, as
 * written. */
static char *walk(struct fake_fs *f, const char *path, bool absent)
{
	struct plan_fs fs = fake_fs_view(f);
	CLEANUP_FREE char *rest = xstrdup(path), *at = xstrdup("");
	int links = 0;

	while (rest[strspn(rest, "/")]) {
		size_t skip = strspn(rest, "/"), len = strcspn(rest + skip, "/");
		CLEANUP_FREE char *next = xasprintf("%s/%.*s", at, (int)len, rest + skip),
				  *left = xstrdup(rest + skip + len);
		CLEANUP_FREE char *target = NULL;
		struct stat st;

		if (fs.lstat(f, next, &st) < 0)
			return absent ? path_join(next, *left ? left + 1 : ".") : NULL;
		free(rest);
		if (!S_ISLNK(st.st_mode)) {
			rest = TAKE_PTR(left);
			free(at);
			at = TAKE_PTR(next);
			continue;
		}
		target = fs.readlink(f, next);
		rest = xasprintf("%s%s", target, left); /* only absolute targets here */
		at[0] = 0;
		if (++links > 40)
			return NULL;
	}
	return *at ? TAKE_PTR(at) : xstrdup("/");
}

static char *real_path(struct fake_fs *f, const char *path)
{
	return walk(f, path, false);
}

struct world {
	struct fake_fs disk;
	struct strv others, others_data, text;
	struct unit *unit;
};

static void list_add(struct unit_list *l, char *text)
{
	VEC_GROW(l->v, l->n, l->cap);
	l->v[l->n++] = (struct unit_value){text, xstrdup("notes.app:1")};
}

/* Mostly something that is there. */
static char *random_ask(struct rng *r, const struct fake_fs *f)
{
	if (below(r, 3) == 0)
		return random_path(r);
	return xstrdup(f->v[below(r, (unsigned)f->n)].path);
}

static struct unit *random_unit(struct rng *r, const struct fake_fs *f)
{
	static const struct unit_dirs dirs = {.home = (char *)HOME,
					      .user = (char *)"ann",
					      .uid = 1000,
					      .state = (char *)"/s",
					      .runtime = (char *)"/r",
					      .apps = (char *)"/a",
					      .config = (char *)"/c",
					      .profiles = (char *)"/p"};
	static const char text[] = "[App]\nExec=/usr/bin/python3 x\nWorkingDirectory=" HOME "/apps/notes\n";
	struct unit_problems p = {0};
	struct unit *u = unit_parse_buffer(&dirs, "notes", "notes.app", text, sizeof text - 1, &p);
	struct unit_list *lists[] = {&u->read,           &u->read, &u->write,      &u->hide,
				     &u->data_directory, &u->path, &u->unix_socket};

	assert_non_null(u);
	u->read_mode = below(r, 3) ? UNIT_READ_STRICT : UNIT_READ_OPEN;
	if (below(r, 4) == 0) {
		free(u->app_directory);
		free(u->working_directory);
		u->app_directory = random_path(r);
		u->working_directory = xstrdup(u->app_directory);
	}
	for (unsigned i = below(r, 4); i > 0; i--) {
		CLEANUP_FREE char *path = random_ask(r, f);
		struct unit_list *l = lists[below(r, ELEMENTS(lists))];

		list_add(l, l == &u->data_directory ? xstrdup(path) : xasprintf("-%s", path));
	}
	return u;
}

static bool is_own(const struct world *w, const char *path)
{
	const struct unit *u = w->unit;
	CLEANUP_FREE char *app = real_path((struct fake_fs *)&w->disk, u->app_directory);

	if (app && path_is_below(path, app))
		return true;
	for (size_t i = 0; i < u->data_directory.n; i++) {
		CLEANUP_FREE char *data = walk((struct fake_fs *)&w->disk, u->data_directory.v[i].text, true);

		if (data && path_is_below(path, data))
			return true;
	}
	return false;
}

/* No part of `place`, once resolved, is visible; `own`: but for what is this app's own. */
static void check_closed(struct world *w, const struct plan *p, const char *place, bool own)
{
	CLEANUP_FREE char *real = real_path(&w->disk, place);
	const struct plan_path *by;

	if (!real)
		return;
	for (size_t i = 0; i < w->disk.n; i++) {
		const char *path = w->disk.v[i].path;

		/* /tmp is the app's own; a symlink is its target; a socket may be named though it is another
		 * app's */
		if (path_is_below(path, "/tmp") || S_ISLNK(w->disk.v[i].mode) || !path_is_below(path, real) ||
		    (own && is_own(w, path)))
			continue;
		if (plan_decide(p, path, &by) != PLAN_HIDE)
			assert_true(own && by->socket);
	}
}

static const struct plan_path *nearest(const struct plan *p, const char *path)
{
	const struct plan_path *best = NULL;

	for (size_t i = 0; i < p->n_paths; i++)
		if (p->paths[i].dir && path_is_below(path, p->paths[i].path))
			best = &p->paths[i]; /* sorted: the last is the deepest */
	return best;
}

/* What is hidden lies where nobody but root can take the cover away, unless the app itself may write there.
 */
static void check_shut(struct world *w, const struct plan *p, const char *hidden)
{
	struct plan_fs fs = fake_fs_view(&w->disk);
	CLEANUP_FREE char *dir = path_dirname(hidden);

	for (;;) {
		const struct plan_path *n = nearest(p, dir);
		struct stat st;
		char *up;

		if (!n || n->access == PLAN_HIDE || n->empty)
			return;
		if (n->access == PLAN_READ && fs.lstat(fs.data, dir, &st) == 0 && S_ISDIR(st.st_mode) &&
		    (st.st_uid || (st.st_mode & 022)))
			assert_true(n->shut && strcmp(n->path, dir) == 0);
		if (strcmp(dir, "/") == 0)
			return;
		up = path_dirname(dir);
		free(dir);
		dir = up;
	}
}

static void check_promises(struct world *w, const struct plan *p)
{
	static const char *const never_written[] = {"/etc", "/usr", HOME "/.bashrc", HOME "/.ssh",
						    HOME "/.config"};
	const struct unit *u = w->unit;
	const struct plan_path *by;

	check_closed(w, p, HOME "/.ssh", false);
	check_closed(w, p, HOME "/.config/gh", false);
	check_closed(w, p, HOME "/.config/sbxsv", true); /* an app beside its unit is its own */
	check_closed(w, p, HOME "/.local/state/sbxsv", false);
	for (size_t i = 0; i < w->others.n; i++)
		check_closed(w, p, w->others.v[i], true);
	for (size_t i = 0; i < u->hide.n; i++)
		check_closed(w, p, u->hide.v[i].text + 1, true);
	for (size_t i = 0; i < ELEMENTS(never_written); i++)
		if (plan_decide(p, never_written[i], &by) == PLAN_WRITE)
			assert_true(by->socket);
	/* the home directory is never shown by itself but in open mode */
	if (u->read_mode == UNIT_READ_STRICT)
		assert_int_equal(plan_decide(p, HOME "/some-new-file", &by), PLAN_HIDE);
	/* whatever is written to must be somewhere that was asked for */
	for (size_t i = 0; i < p->n_paths; i++) {
		const struct plan_path *e = &p->paths[i];
		CLEANUP_FREE char *real = real_path(&w->disk, e->path);

		if (real) /* no symlink left */
			assert_string_equal(real, e->path);
		else
			assert_true(e->create || e->empty || e->absent);
		if (e->access == PLAN_HIDE)
			check_shut(w, p, e->path);
		if (e->access == PLAN_WRITE && !e->socket)
			assert_true(is_own(w, e->path) || u->write.n);
	}
	/* no live socket of others can be connected to: the family is off, or it is covered or granted */
	for (size_t i = 0; p->unix_sockets && i < w->disk.n; i++)
		if (S_ISSOCK(w->disk.v[i].mode) && plan_decide(p, w->disk.v[i].path, &by) != PLAN_HIDE)
			assert_true(by->socket || str_eq(by->reason, "system"));
}

/* What was asked for and not refused works by the name it was asked for, unless something hides it. */
static void check_granted(struct world *w, const struct plan *p)
{
	struct plan_fs fs = fake_fs_view(&w->disk);
	const struct unit *u = w->unit;
	const struct plan_path *by;

	if (u->hide.n || u->read_mode == UNIT_READ_OPEN)
		return;
	for (size_t i = 0; i < u->read.n; i++) {
		const char *path = u->read.v[i].text + 1;
		CLEANUP_FREE char *real = real_path(&w->disk, path);

		if (real && plan_decide_on_disk(p, &fs, path, &by) == PLAN_HIDE) {
			assert_non_null(by);
			assert_true(by->access == PLAN_HIDE && !by->empty);
		}
	}
	assert_int_not_equal(plan_decide_on_disk(p, &fs, u->working_directory, &by), PLAN_HIDE);
}

static bool at_a_link(const struct plan *p, const char *path)
{
	for (size_t i = 0; i < p->n_links; i++)
		if (path_is_below(path, p->links[i].path))
			return true;
	return false;
}

/* What the threads of an observer are told is what plan_decide() says. */
static void check_judge_at(const struct plan *p, const struct judge *j, const char *path)
{
	const struct plan_path *by;
	struct judge_answer a;
	CLEANUP_FREE char *rule = NULL, *hint = NULL;

	if (at_a_link(p, path))
		return;
	judge_path(j, path, &a);
	assert_int_equal(a.access, plan_decide(p, path, &by));
	assert_true(!a.reason == !by);
	if (by)
		assert_string_equal(a.reason, by->reason);
	assert_int_equal(a.way, by && by->empty && strcmp(by->path, path) == 0);
	rule = judge_rule(&a);
	hint = judge_hint(j, "notes", JUDGE_READ, path, true, true);
	/* never an advice to take a secret as an ordinary path */
	if (by && str_starts(by->reason, "secret place") && hint)
		assert_null(strstr(hint, "--read"));
}

static void check_judge(const struct plan *p)
{
	struct judge *j = judge_create(p);

	check_judge_at(p, j, "/");
	for (size_t i = 0; i < p->n_paths + p->n_unseen; i++) {
		const struct plan_path *e = i < p->n_paths ? &p->paths[i] : &p->unseen[i - p->n_paths];
		CLEANUP_FREE char *up = path_dirname(e->path), *below_it = path_join(e->path, "x/y"),
				  *beside = xasprintf("%s-x", e->path);

		check_judge_at(p, j, e->path);
		check_judge_at(p, j, up);
		check_judge_at(p, j, below_it);
		check_judge_at(p, j, beside);
	}
	judge_destroy(j);
}

/* Nothing was asked for by way of a symlink that the app can write. */
static void check_links(struct world *w, const struct plan *p)
{
	struct plan_fs fs = fake_fs_view(&w->disk);
	const struct unit_list *lists[] = {&w->unit->read, &w->unit->write, &w->unit->path,
					   &w->unit->data_directory};
	const struct plan_path *by;

	for (size_t i = 0; i < ELEMENTS(lists); i++) {
		for (size_t k = 0; k < lists[i]->n; k++) {
			const char *text = lists[i]->v[k].text;
			CLEANUP_FREE char *at = xstrdup(text + (text[0] == '-'));
			CLEANUP_FREE char *all = real_path(&w->disk, at);

			for (; all && strcmp(at, "/") != 0;) {
				CLEANUP_FREE char *up = path_dirname(at), *dir = real_path(&w->disk, up);
				CLEANUP_FREE char *here = dir ? path_join(dir, path_basename(at)) : NULL;
				struct stat st;

				if (here && fs.lstat(fs.data, here, &st) == 0 && S_ISLNK(st.st_mode))
					assert_int_not_equal(plan_decide(p, dir, &by), PLAN_WRITE);
				free(at);
				at = TAKE_PTR(up);
			}
		}
	}
}

static void print_world(const struct world *w)
{
	const struct unit *u = w->unit;
	const struct unit_list *lists[] = {&u->read,           &u->write, &u->hide,
					   &u->data_directory, &u->path,  &u->unix_socket};
	static const char *const keys[] = {"Read", "Write", "Hide", "DataDirectory", "Path", "UnixSocket"};

	for (size_t i = 0; i < w->disk.n; i++)
		print_message("%06o %u %s %s\n", w->disk.v[i].mode, w->disk.v[i].uid, w->disk.v[i].path,
			      w->disk.v[i].text ? w->disk.v[i].text : "");
	print_message("mode %s app %s\n", unit_read_mode_name(u->read_mode), u->app_directory);
	for (size_t i = 0; i < ELEMENTS(lists); i++)
		for (size_t k = 0; k < lists[i]->n; k++)
			print_message("%s=%s\n", keys[i], lists[i]->v[k].text);
	for (size_t i = 0; i < w->others.n; i++)
		print_message("other %s\n", w->others.v[i]);
}

static struct world *current; /* for the report of a failure */

static int report(void **state)
{
	(void)state;
	if (current)
		print_world(current);
	return 0;
}

/* true: there was a plan. */
static bool one_world(struct rng *r)
{
	struct unit_dirs dirs = {.home = (char *)HOME,
				 .user = (char *)"ann",
				 .uid = 1000,
				 .config = (char *)HOME "/.config/sbxsv",
				 .apps = (char *)HOME "/.config/sbxsv/apps.d",
				 .state = (char *)HOME "/.local/state/sbxsv",
				 .runtime = (char *)"/run/user/1000/sbxsv",
				 .profiles = (char *)"/usr/share/sbxsv"};
	char *env[] = {NULL};
	static struct world w; /* outlives a failed assertion, for report() */
	struct plan_world pw = {.dirs = &dirs,
				.user = {1000, 1000, (char *)"ann", (char *)HOME, (char *)"/bin/sh"},
				.others = &w.others,
				.others_data = &w.others_data,
				.environ = env,
				.program_dirs = "/usr/bin"};
	struct unit_problems problems = {0};
	struct plan *p;
	bool made;

	w = (struct world){0};
	random_disk(r, &w.disk);
	w.unit = random_unit(r, &w.disk);
	strv_add(&w.others, HOME "/apps/mail");
	for (unsigned i = below(r, 3); i > 0; i--)
		strv_take(&w.others, random_path(r));
	pw.fs = fake_fs_view(&w.disk);
	current = &w;
	p = plan_make(w.unit, &pw, &problems);
	made = p != NULL;
	assert_int_equal(made, problems.n == 0);
	if (p) {
		check_promises(&w, p);
		check_granted(&w, p);
		check_links(&w, p);
		check_judge(p);
	}
	current = NULL;
	plan_free(p);
	unit_problems_clear(&problems);
	unit_free(w.unit);
	strv_clear(&w.others);
	strv_clear(&w.others_data);
	fake_fs_finish(&w.disk);
	return made;
}

static void test_random(void **state)
{
	struct rng r = {0x9e3779b97f4a7c15};
	unsigned made = 0;

	(void)state;
	for (int i = 0; i < WORLDS; i++)
		made += one_world(&r);
	/* else the generator tests refusals only */
	assert_in_range(made, WORLDS / 10, WORLDS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_random, report),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
