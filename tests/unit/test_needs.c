/* [Needs]: versions and ranges, and what is looked for on a disk that the test makes up. */
#include "sandbox/needs.h"
#include "sandbox/version.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void ranges(void **state)
{
	static const struct {
		const char *range, *version;
		int in;
	} rows[] = {
		{">=18", "v18.0.0", 1},
		{">=18", "v18.20.4", 1},
		{">=18", "v17.9.9", 0},
		{">=18", "v100.0.0", 1},
		{">=3.10 <4", "3.9.18", 0},
		{">=3.10 <4", "3.10.0", 1},
		{">=3.10 <4", "3.100.1", 1},
		{">=3.10 <4", "4.0.0", 0},
		{"^18", "v18.2.3", 1},
		{"^18", "v19.0.0", 0},
		{"^18.2.3", "v18.2.2", 0},
		{"^18.2.3", "v18.9.0", 1},
		{"^0.3", "0.3.9", 1},
		{"^0.3", "0.4.0", 0},
		{"^0.0.3", "0.0.4", 0},
		{"~3.10", "3.10.7", 1},
		{"~3.10", "3.11.0", 0},
		{"~3", "3.99.0", 1},
		{"~3", "4.0.0", 0},
		{"~3.10.2", "3.10.1", 0},
		{"~3.10.2", "3.10.3", 1},
		{"18.x", "v18.99.9", 1},
		{"18.x", "v19.0.0", 0},
		{"18.*", "18.0.0", 1},
		{"18", "18.4.2", 1},
		{"18.4", "18.40.0", 0},
		{"=18.4.2", "v18.4.2", 1},
		{"=18.4.2", "18.4.3", 0},
		{">18", "18.9.0", 0},
		{">18", "19.0.0", 1},
		{">18.1", "18.1.9", 0},
		{"<=18", "18.9.0", 1},
		{"<=18", "19.0.0", 0},
		{"<18", "17.99.99", 1},
		{"<18", "18.0.0", 0},
		{"  >=18   <20 ", "19.5.0", 1},
		{">=18 <20", "20.0.0", 0},
		{"", "1.0.0", 1},
		{">=18", "23.0.0-nightly2024", 1},
		{">=18", "", -1},
		{">=18", "none", -1},
		/* what a path tells is not all of it */
		{">=3.11", "3.11", 1},
		{">=3.11.4", "3.11", -1},
		{"<3.11.4", "3.11", -1},
		{"<3.11", "3.11", 0},
		{"~3.11", "3.11", 1},
		{"=3.11.4", "3.11", -1},
		{"=3.11.4", "3.12", 0},
		{">=3.9 <3.11.4", "3.8", 0},
		{">=999999", "99999999999", 1},
	};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(rows); i++)
		if (unit_version_in(rows[i].version, rows[i].range) != rows[i].in)
			fail_msg("%s in %s is not %d", rows[i].version, rows[i].range, rows[i].in);
}

static void answers(void **state)
{
	char v[8];

	(void)state;
	assert_false(version_find("v18.20.40\n", v, sizeof v)); /* does not fit */
	assert_true(version_find("v18.2.4\n", v, sizeof v));
	assert_string_equal(v, "18.2.4");
	assert_true(version_find("Python 3.11.\n", v, sizeof v));
	assert_string_equal(v, "3.11");
	assert_true(version_find("python3 is 4\n", v, sizeof v));
	assert_string_equal(v, "4");
	assert_false(version_find("", v, sizeof v));
	assert_false(version_find("no number here\n", v, sizeof v));
	assert_false(version_find("123456789\n", v, sizeof v));
}

static void by_path(const char *path, const char *want)
{
	CLEANUP_FREE char *v = needs_version_by_path(path);

	if (!str_eq(v, want))
		fail_msg("%s: %s, not %s", path, v ? v : "none", want ? want : "none");
}

static void paths_that_tell(void **state)
{
	(void)state;
	by_path("/usr/bin/python3.11", "3.11");
	by_path("/usr/bin/python3", NULL);
	by_path("/home/x/.nvm/versions/node/v18.20.4/bin/node", "18.20.4");
	by_path("/home/x/.pyenv/versions/3.12.1/bin/python", "3.12.1");
	by_path("/opt/node18/bin/node", NULL);
	by_path("/opt/7/bin/node", NULL);
	by_path("/opt/1.2.3/node", NULL);
	by_path("node", NULL);
}

/* --- a disk: programs at these paths, directories above them, nothing else --- */

static const char *const programs[] = {"/usr/bin/sh", "/usr/bin/node",           "/srv/venv/bin/python",
				       "/srv/run",    "/home/x/.local/bin/frob", "/hidden/bin/secret",
				       NULL};

static int disk_lstat(void *data, const char *path, struct stat *st)
{
	size_t n = strlen(path);

	(void)data;
	*st = (struct stat){0};
	for (const char *const *p = programs; *p; p++) {
		if (strcmp(*p, path) == 0)
			st->st_mode = S_IFREG | 0755;
		else if (strncmp(*p, path, n) == 0 && ((*p)[n] == '/' || n == 1))
			st->st_mode = S_IFDIR | 0755;
	}
	errno = ENOENT;
	return st->st_mode ? 0 : -1;
}

static char *disk_head(void *data, const char *path, size_t max)
{
	(void)data;
	(void)max;
	return xstrdup(strcmp(path, "/srv/run") == 0 ? "#! /srv/venv/bin/python -u\nx" : "\177ELF");
}

static char *disk_readlink(void *data, const char *path)
{
	(void)data;
	(void)path;
	errno = EINVAL;
	return NULL;
}

static int disk_list(void *data, const char *path, struct strv *ret)
{
	(void)data;
	(void)path;
	(void)ret;
	errno = ENOENT;
	return -1;
}

static void look(struct unit *u, struct needs *ret)
{
	struct plan_fs fs = {
		.lstat = disk_lstat, .head = disk_head, .readlink = disk_readlink, .list = disk_list};
	static char usr[] = "/usr", srv[] = "/srv", home[] = "/home/x", run[] = "/srv/run";
	struct plan_path shown[] = {{.path = srv, .access = PLAN_WRITE, .dir = true},
				    {.path = usr, .access = PLAN_READ, .dir = true}};
	struct plan p = {.paths = shown, .n_paths = 2, .program = run, .user = {.home = home}};

	strv_add(&p.argv, "/srv/run");
	strv_add(&p.env, "PATH=/hidden/bin:/usr/bin");
	strv_add(&p.env, "KEY=1");
	needs_look(u, &p, &fs, ret);
	strv_clear(&p.argv);
	strv_clear(&p.env);
}

static struct unit *unit_of(const char *needs)
{
	static char home[] = "/home/x";
	const struct unit_dirs dirs = {.home = home};
	CLEANUP_FREE char *text =
		xasprintf("[App]\nExec=/srv/run\nWorkingDirectory=/srv\n[Needs]\n%s", needs);
	struct unit_problems p = {0};
	struct unit *u = unit_parse_buffer(&dirs, "t", "t.app", text, strlen(text), &p);

	assert_non_null(u);
	assert_int_equal(u->not_in_force.n, 0);
	return u;
}

static void what_is_missing(void **state)
{
	CLEANUP_UNIT struct unit *u =
		unit_of("Bin=sh secret frob rg git\nOptionalBin=jq\nEnv=KEY OTHER\nOs=macos\n");
	CLEANUP(needs_finish) struct needs n = {0};
	CLEANUP_FREE char *reason = NULL, *hint = NULL;

	(void)state;
	look(u, &n);
	reason = needs_reason(&n);
	assert_string_equal(
		reason,
		"the program secret is not there for the app (t.app:5 Bin=)\n"
		"the program frob is not there for the app (t.app:5 Bin=); it is in /home/x/.local/bin\n"
		"the program rg is not there for the app (t.app:5 Bin=)\n"
		"the program git is not there for the app (t.app:5 Bin=)\n"
		"the variable OTHER is not set (t.app:7 Env=): Environment=, EnvironmentFile= or "
		"PassEnvironment= sets it\n"
		"the app runs on macos (t.app:8 Os=), and this is linux");
	assert_string_equal(n.missing_at.v[4], "t.app:7");
	assert_int_equal(n.optional.n, 1);
	assert_string_equal(n.optional.v[0],
			    "the program jq is not there for the app (t.app:6 OptionalBin=)");
	hint = needs_hint(&n, "sbxsv start t");
	assert_string_equal(
		hint, "on Debian and Ubuntu: apt install ripgrep git; Path=/home/x/.local/bin in [App] lets "
		      "the app have it; then: sbxsv start t");
}

static void who_is_asked(void **state)
{
	CLEANUP_UNIT struct unit *u = unit_of("Node=>=18\nPython=^3.10\nOs=windows linux\n");
	CLEANUP(needs_finish) struct needs n = {0};

	(void)state;
	look(u, &n);
	assert_int_equal(n.missing.n, 0);
	assert_int_equal(n.n_ask, 2);
	assert_string_equal(n.ask[0].program, "/usr/bin/node");
	assert_string_equal(n.ask[0].range, ">=18");
	/* the interpreter of the app's own script, not the first of PATH */
	assert_string_equal(n.ask[1].program, "/srv/venv/bin/python");
	needs_answer(&n, &n.ask[0], "18.2.0", NULL);
	assert_int_equal(n.missing.n, 0);
	needs_answer(&n, &n.ask[0], "17.2.0", NULL);
	needs_answer(&n, &n.ask[1], NULL, "it hangs");
	assert_string_equal(n.missing.v[0],
			    "Node >=18 is needed (t.app:5 Node=), and /usr/bin/node is version 17.2.0");
	assert_string_equal(n.missing.v[1],
			    "Python ^3.10 is needed (t.app:6 Python=), and /srv/venv/bin/python does not "
			    "say its version: it hangs");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges),          cmocka_unit_test(answers),
		cmocka_unit_test(paths_that_tell), cmocka_unit_test(what_is_missing),
		cmocka_unit_test(who_is_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
