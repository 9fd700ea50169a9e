/*
 * Golden tests of plans. Each tests/unit/golden/plan/NAME.case describes a world, a disk and a unit;
 * NAME.expect is the plan as text, or the problems. With SBXSV_GOLDEN_UPDATE=1 the .expect files are written
 * anew: read the diff.
 *
 * Sections of a case, each begun by "== NAME": `world` (home, uid, root, other, data, env, allow), `disk`
 * (see fake_fs.h; a merged-usr Debian is there already), `decide` (paths to ask plan_decide() about), `unit`
 * (the unit file).
 *
 * Whatever the case, a plan has to keep the invariants checked in check_plan().
 */
#include "fake_fs.h"
#include "base/file.h"
#include "net/net.h"
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

struct world {
	struct fake_fs disk;
	struct unit_dirs dirs;
	struct conf conf;
	struct strv others, others_data, env, decide;
	struct strbuf unit;
	char *home;
	uid_t uid;
	bool root;
};

static const char *const debian[] = {
	"d /usr/local/bin",
	"d /usr/lib",
	"d /usr/lib64",
	"d /usr/sbin",
	"l /bin -> usr/bin",
	"l /sbin -> usr/sbin",
	"l /lib -> usr/lib",
	"l /lib64 -> usr/lib64",
	"d /opt",
	"d /var/lib",
	"d:0:1777 /tmp",
	"d /run",
	"l /var/run -> /run",
	"d /proc",
	"d /dev",
	"c /dev/null",
	"f /etc/hosts",
	"l /etc/localtime -> /usr/share/zoneinfo/UTC",
	"f /usr/share/zoneinfo/UTC",
	"x /usr/bin/dash = \x7f"
	"ELF",
	"l /usr/bin/sh -> dash",
	"x /usr/bin/env = \x7f"
	"ELF",
	"x /usr/bin/python3.11 = \x7f"
	"ELF",
	"l /usr/bin/python3 -> python3.11",
	"x /usr/bin/bash = \x7f"
	"ELF",
};

static const char *golden_dir(void)
{
	static char dir[4096];
	const char *src = getenv("srcdir");

	(void)snprintf(dir, sizeof dir, "%s/tests/unit/golden/plan", src ? src : ".");
	return dir;
}

/* --- reading a case --- */

static void world_line(struct world *w, const char *line)
{
	const char *value = strchr(line, ' ');

	value = value ? value + 1 : "";
	if (str_starts(line, "home ")) {
		free(w->home);
		w->home = xstrdup(value);
	} else if (str_starts(line, "uid ")) {
		w->uid = (uid_t)atoi(value);
	} else if (strcmp(line, "root") == 0) {
		w->root = true;
	} else if (str_starts(line, "other ")) {
		strv_add(&w->others, value);
	} else if (str_starts(line, "data ")) {
		strv_add(&w->others, value);
		strv_add(&w->others_data, value);
	} else if (str_starts(line, "env ")) {
		strv_add(&w->env, value);
	} else if (str_starts(line, "allow ")) {
		VEC_GROW(w->conf.allowlist.v, w->conf.allowlist.n, w->conf.allowlist.cap);
		w->conf.allowlist.v[w->conf.allowlist.n++] =
			(struct unit_value){xstrdup(value), xstrdup("sbxsv.conf:3")};
	} else {
		fail_msg("world line \"%s\"", line);
	}
}

static void case_line(struct world *w, const char *section, const char *line)
{
	if (strcmp(section, "unit") == 0) {
		strbuf_adds(&w->unit, line);
		strbuf_addc(&w->unit, '\n');
		return;
	}
	if (!*line || *line == '#')
		return;
	if (strcmp(section, "world") == 0)
		world_line(w, line);
	else if (strcmp(section, "disk") == 0)
		assert_int_equal(fake_fs_add(&w->disk, line), 0);
	else if (strcmp(section, "decide") == 0)
		strv_add(&w->decide, line);
	else
		fail_msg("section \"%s\"", section);
}

static void set_dirs(struct world *w)
{
	struct unit_dirs *d = &w->dirs;
	const char *h = w->home;

	d->root_mode = w->root;
	d->uid = w->root ? 0 : w->uid;
	d->home = xstrdup(w->root ? "/root" : h);
	d->user = xstrdup(w->root ? "root" : "ann");
	d->config = w->root ? xstrdup("/etc/sbxsv") : path_join(h, ".config/sbxsv");
	d->apps = path_join(d->config, "apps.d");
	d->state = w->root ? xstrdup("/var/lib/sbxsv") : path_join(h, ".local/state/sbxsv");
	d->runtime = w->root ? xstrdup("/run/sbxsv") : xstrdup("/run/user/1000/sbxsv");
	d->profiles = xstrdup("/usr/share/sbxsv/units");
	d->state_home = w->root ? xstrdup("/var/lib") : path_join(h, ".local/state");
	d->runtime_home = w->root ? xstrdup("/run") : xstrdup("/run/user/1000");
}

static void world_read(struct world *w, const char *path)
{
	CLEANUP_FREE char *text = NULL;
	CLEANUP_ERR struct err *e = NULL;
	char section[32] = "", *save = NULL;
	CLEANUP_FREE char *spaced = NULL;

	*w = (struct world){.home = xstrdup("/home/ann"), .uid = 1000, .unit = STRBUF_INIT};
	for (size_t i = 0; i < ELEMENTS(debian); i++)
		assert_int_equal(fake_fs_add(&w->disk, debian[i]), 0);
	if (file_read(AT_FDCWD, path, 1 << 20, &text, NULL, &e) < 0)
		fail_msg("%s", err_msg(e));
	(void)spaced;
	for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		if (str_starts(l, "== "))
			(void)snprintf(section, sizeof section, "%s", l + 3);
		else
			case_line(w, section, l);
	}
	set_dirs(w);
}

static void world_finish(struct world *w)
{
	fake_fs_finish(&w->disk);
	for (size_t i = 0; i < w->conf.allowlist.n; i++) {
		free(w->conf.allowlist.v[i].text);
		free(w->conf.allowlist.v[i].origin);
	}
	free(w->conf.allowlist.v);
	strv_clear(&w->others);
	strv_clear(&w->others_data);
	strv_clear(&w->env);
	strv_clear(&w->decide);
	strbuf_finish(&w->unit);
	unit_dirs_finish(&w->dirs);
	free(w->home);
}

/* --- invariants --- */

/* No entry lies behind a symlink of the disk. */
static void check_resolved(struct world *w, const struct plan_path *p)
{
	struct plan_fs fs = fake_fs_view(&w->disk);
	CLEANUP_FREE char *at = xstrdup(p->path);
	struct stat st;

	while (strcmp(at, "/") != 0) {
		char *up = path_dirname(at);

		if (fs.lstat(fs.data, at, &st) == 0)
			assert_false(S_ISLNK(st.st_mode));
		else /* made by this launch */
			assert_true(p->create || p->empty || p->absent);
		free(at);
		at = up;
	}
}

static const struct plan_path *above(const struct plan *p, size_t i)
{
	const struct plan_path *best = NULL;

	for (size_t k = 0; k < i; k++)
		if (path_is_below(p->paths[i].path, p->paths[k].path))
			best = &p->paths[k];
	return best;
}

static bool shows(const struct plan_path *p)
{
	return p && p->access != PLAN_HIDE && !p->empty;
}

static void check_paths(struct world *w, const struct plan *p)
{
	for (size_t i = 0; i < p->n_paths; i++) {
		const struct plan_path *e = &p->paths[i], *up = above(p, i);
		bool is_tmp = strcmp(e->path, "/tmp") == 0;
		const struct plan_path *by;

		check_resolved(w, e);
		assert_non_null(e->reason);
		if (i) /* sorted, no duplicates, everything below a directory follows it directly */
			assert_string_not_equal(e->path, p->paths[i - 1].path);
		for (size_t k = i + 2; k < p->n_paths; k++)
			if (path_is_below(p->paths[k].path, e->path))
				assert_true(path_is_below(p->paths[k - 1].path, e->path));
		if (up)
			assert_true(up->dir);
		/* a cover needs something to cover; an empty directory needs nothing there */
		if (e->access == PLAN_HIDE)
			assert_true(shows(up));
		if (e->empty && e->access == PLAN_READ && !is_tmp)
			assert_false(shows(up));
		/* whatever is granted can be walked to */
		if (shows(e) && p->read_mode != UNIT_READ_OPEN && strcmp(e->path, "/") != 0) {
			CLEANUP_FREE char *dir = path_dirname(e->path);

			if (strcmp(dir, "/") != 0) {
				(void)plan_decide(p, dir, &by);
				assert_non_null(by);
			}
		}
		assert_int_equal(plan_decide(p, e->path, &by), is_tmp     ? PLAN_WRITE
							       : shows(e) ? e->access
									  : PLAN_HIDE);
	}
}

/* No secret, nothing of sbxsv, is readable in any plan, unless Secret= says so. */
static void check_hidden(struct world *w, const struct plan *p, const struct unit *u)
{
	size_t n;
	const struct unit_secret *s = unit_secrets(&n);
	const char *own[] = {w->dirs.config, w->dirs.state, w->dirs.runtime, w->dirs.profiles};
	struct plan_fs fs = fake_fs_view(&w->disk);
	const struct plan_path *by;
	struct stat st;

	for (size_t i = 0; i < n; i++) {
		CLEANUP_FREE char *path = xasprintf("%s/%s", w->home, s[i].path);

		/* whether it is there or not */
		if ((fs.lstat(fs.data, path, &st) < 0 || !S_ISLNK(st.st_mode)) && !u->secret.n)
			assert_int_equal(plan_decide(p, path, &by), PLAN_HIDE);
	}
	/* what exists of other apps and of Hide= shows nothing, unless it is this app's too */
	for (size_t i = 0; i < w->others.n; i++) {
		bool there = fs.lstat(fs.data, w->others.v[i], &st) == 0;
		CLEANUP_FREE char *file = path_join(w->others.v[i], there && S_ISDIR(st.st_mode) ? "x" : ".");

		if (there && !str_eq(u->app_directory, w->others.v[i]))
			assert_int_equal(plan_decide(p, file, &by), PLAN_HIDE);
	}
	for (size_t i = 0; i < u->hide.n; i++) {
		bool there = fs.lstat(fs.data, u->hide.v[i].text, &st) == 0;
		CLEANUP_FREE char *file =
			path_join(u->hide.v[i].text, there && S_ISDIR(st.st_mode) ? "x" : ".");

		if (there)
			assert_int_equal(plan_decide(p, file, &by), PLAN_HIDE);
	}
	for (size_t i = 0; i < ELEMENTS(own); i++) {
		CLEANUP_FREE char *file = path_join(own[i], "x.app");

		if (fs.lstat(fs.data, own[i], &st) == 0)
			assert_int_equal(plan_decide(p, file, &by), PLAN_HIDE);
	}
}

/* --- running a case --- */

static char *decisions(struct world *w, const struct plan *p)
{
	static const char *const names[] = {[PLAN_HIDE] = "no", [PLAN_READ] = "read", [PLAN_WRITE] = "write"};
	struct plan_fs fs = fake_fs_view(&w->disk);
	struct strbuf b = STRBUF_INIT;

	for (size_t i = 0; i < w->decide.n; i++) {
		const struct plan_path *by;
		enum plan_access a = plan_decide_on_disk(p, &fs, w->decide.v[i], &by);

		strbuf_addf(&b, "decide %s: %s%s%s\n", w->decide.v[i], names[a], by ? " by " : "",
			    by ? by->reason : "");
	}
	return strbuf_take(&b);
}

static char *run_case(struct world *w, struct plan_memo *memo)
{
	CLEANUP_UNIT struct unit *u = NULL;
	CLEANUP_PLAN struct plan *p = NULL;
	struct unit_problems problems = {0};
	struct plan_world world = {
		.dirs = &w->dirs,
		.conf = &w->conf,
		.user = {w->uid, w->uid, (char *)"ann", w->home, (char *)"/bin/bash"},
		.others = &w->others,
		.others_data = &w->others_data,
		.environ = w->env.v,
		.fs = memo ? plan_memo_fs(memo) : fake_fs_view(&w->disk),
		.memo = memo,
		.program_dirs = "/usr/local/bin:/usr/bin:/bin",
	};
	struct strbuf out = STRBUF_INIT;
	CLEANUP_FREE char *text = NULL, *asked = NULL;

	u = unit_parse_buffer(&w->dirs, "notes", "notes.app", w->unit.p, w->unit.len, &problems);
	if (u)
		p = plan_make(u, &world, &problems);
	if (p) {
		check_paths(w, p);
		check_hidden(w, p, u);
		text = plan_print(p);
		asked = decisions(w, p);
		strbuf_adds(&out, text);
		for (size_t i = 0; i < p->n_unseen; i++)
			strbuf_addf(&out, "unseen %s\n", p->unseen[i].path);
		strbuf_adds(&out, asked);
		assert_int_equal(problems.n, 0);
	} else {
		assert_int_not_equal(problems.n, 0);
		text = unit_problems_text(&problems);
		strbuf_adds(&out, text);
	}
	unit_problems_clear(&problems);
	return strbuf_take(&out);
}

static void compare(const char *name, const char *got)
{
	CLEANUP_FREE char *path = xasprintf("%s/%s.expect", golden_dir(), name), *want = NULL;

	if (getenv("SBXSV_GOLDEN_UPDATE")) {
		CLEANUP_FILE FILE *f = fopen(path, "w");

		assert_non_null(f);
		assert_true(fputs(got, f) >= 0);
		return;
	}
	if (file_read(AT_FDCWD, path, 1 << 20, &want, NULL, NULL) < 0)
		fail_msg("%s is missing; SBXSV_GOLDEN_UPDATE=1 writes it", path);
	if (strcmp(want, got) != 0)
		fail_msg("%s: the plan is now\n%s", name, got);
}

/* The same plan when the disk is asked through a memo, and when nothing is asked any more. */
static void remembered(const char *name, struct world *w)
{
	struct plan_memo *m = plan_memo_create(fake_fs_view(&w->disk));

	for (int i = 0; i < 2; i++) {
		CLEANUP_FREE char *got = run_case(w, m);

		compare(name, got);
	}
	plan_memo_destroy(m);
}

static void test_cases(void **state)
{
	CLEANUP_DIR DIR *d = opendir(golden_dir());
	size_t n = 0;

	(void)state;
	assert_non_null(d);
	for (struct dirent *e = readdir(d); e; e = readdir(d)) {
		CLEANUP(world_finish) struct world w = {0};
		CLEANUP_FREE char *name = NULL, *path = NULL, *got = NULL;

		if (!str_ends(e->d_name, ".case"))
			continue;
		name = xstrndup(e->d_name, strlen(e->d_name) - strlen(".case"));
		path = xasprintf("%s/%s", golden_dir(), e->d_name);
		world_read(&w, path);
		got = run_case(&w, NULL);
		compare(name, got);
		remembered(name, &w);
		n++;
	}
	assert_true(n > 20);
}

/* The address of the proxy is net's; siblings do not include each other. */
static void test_proxy_address(void **state)
{
	CLEANUP_FREE char *url = xasprintf("http://%s:%d", NET_PROXY_ADDRESS, NET_PROXY_PORT);

	(void)state;
	assert_string_equal(url, PLAN_PROXY_URL);
}

static void test_secret_names(void **state)
{
	const char *const *names = plan_secret_names();
	size_t n = 0;

	(void)state;
	for (; names[n]; n++)
		for (size_t k = 0; k < n; k++)
			assert_string_not_equal(names[n], names[k]);
	assert_true(n > 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cases),
		cmocka_unit_test(test_proxy_address),
		cmocka_unit_test(test_secret_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
