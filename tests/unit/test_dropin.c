/* The drop-in of allow --save: its text, and the file under disks that are full and files that are in the way. */
#include "unit/internal.h"
#include "base/fd.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <cmocka.h>

#define ADD(key, text)                                                                                       \
	{                                                                                                    \
		(key), (text), false, false                                                                  \
	}
#define DROP(key, text)                                                                                      \
	{                                                                                                    \
		(key), (text), true, false                                                                   \
	}

static void edited(const char *before, const struct unit_edit *v, size_t n, const char *after)
{
	CLEANUP_FREE char *got = unit_edit_text(before, v, n), *again = unit_edit_text(got, v, n);

	assert_string_equal(got, after);
	assert_string_equal(again, after); /* twice is once */
}

static void test_add(void **state)
{
	const struct unit_edit a[] = {ADD("Allow", "x.com")},
			       two[] = {ADD("Allow", "x.com"), ADD("Allow", "y.com:22")};

	(void)state;
	edited("", a, 1, "[Network]\nAllow=x.com\n");
	edited("# mine", two, 2, "# mine\n\n[Network]\nAllow=x.com\nAllow=y.com:22\n");
	edited("[Network]\nEgress=hosts\n\n[Log]\nTimestamps=yes\n", a, 1,
	       "[Network]\nEgress=hosts\nAllow=x.com\n\n[Log]\nTimestamps=yes\n");
	edited("[Log]\nTimestamps=yes\n", a, 1, "[Log]\nTimestamps=yes\n\n[Network]\nAllow=x.com\n");
	/* there already, in other spellings */
	edited("[Network]\nAllow = a.com  X.COM b.com\n", a, 1, "[Network]\nAllow = a.com  X.COM b.com\n");
	/* not a rule: another section, a comment, a longer name, another key */
	edited("[Prepare]\nAllow=x.com\n", a, 1, "[Prepare]\nAllow=x.com\n\n[Network]\nAllow=x.com\n");
	edited("[Network]\n#Allow=x.com\nAllow=x.com.au\nAllowAddress=x.com\n", a, 1,
	       "[Network]\n#Allow=x.com\nAllow=x.com.au\nAllowAddress=x.com\nAllow=x.com\n");
	/* cleared below it */
	edited("[Network]\nAllow=x.com\nAllow=\n", a, 1, "[Network]\nAllow=x.com\nAllow=\nAllow=x.com\n");
	/* the last of several sections */
	edited("[Network]\nDeny=q.com\n[App]\nNice=1\n[Network]\nAllow=\n", a, 1,
	       "[Network]\nDeny=q.com\n[App]\nNice=1\n[Network]\nAllow=\nAllow=x.com\n");
}

/* A path is a whole line, of [Sandbox]. */
static void test_paths(void **state)
{
	const struct unit_edit a[] = {{"Read", "/a b/c", false, true}}, w[] = {{"Write", "/x", false, true}};

	(void)state;
	edited("", a, 1, "[Sandbox]\nRead=/a b/c\n");
	edited("[Network]\nAllow=x.com\n", a, 1, "[Network]\nAllow=x.com\n\n[Sandbox]\nRead=/a b/c\n");
	edited("[Sandbox]\nRead = /a b/c \n", a, 1, "[Sandbox]\nRead = /a b/c \n");
	edited("[Sandbox]\nRead=/a\nRead=b/c\n", a, 1, "[Sandbox]\nRead=/a\nRead=b/c\nRead=/a b/c\n");
	edited("[Sandbox]\nRead=/x\nWrite=/x y\n\n[Log]\n", w, 1,
	       "[Sandbox]\nRead=/x\nWrite=/x y\nWrite=/x\n\n[Log]\n");
	edited("[Sandbox]\nWrite=/x\nWrite=\n", w, 1, "[Sandbox]\nWrite=/x\nWrite=\nWrite=/x\n");
}

static void test_contradiction(void **state)
{
	const struct unit_edit a[] = {DROP("Deny", "x.com"), ADD("Allow", "x.com")},
			       d[] = {DROP("Allow", "x.com"), DROP("AllowAddress", "x.com"),
				      ADD("Deny", "x.com")};

	(void)state;
	edited("[Network]\nDeny=x.com\n", a, 2, "[Network]\nAllow=x.com\n");
	edited("[Network]\nAllow=a.com x.com b.com\n", d, 3, "[Network]\nAllow=a.com b.com\nDeny=x.com\n");
	edited("[Network]\nDeny=xx.com *.x.com x.com:80\n", a, 2,
	       "[Network]\nDeny=xx.com *.x.com x.com:80\nAllow=x.com\n");
	edited("[Network]\nAllow=x.com\nAllow=x.com\n\n# end\n", d, 3, "[Network]\nDeny=x.com\n\n# end\n");
	edited("[Prepare]\nDeny=x.com\n", a, 2, "[Prepare]\nDeny=x.com\n\n[Network]\nAllow=x.com\n");
}

static bool lists(const struct unit_list *l, const char *text)
{
	for (size_t i = 0; i < l->n; i++)
		if (str_eq(l->v[i].text, text))
			return true;
	return false;
}

/* Any file: afterwards the unit says what was asked for, all else it says is as it was, and once more changes nothing.
 * What it says is the reader's business. */
static void check_random(unsigned *seed)
{
	static const char *const network[] = {"Allow=x.com",   "Allow=y.com x.com",       "Allow=",
					      "Deny=x.com",    "Deny=z.com x.com q.com",  "Deny=",
					      "Allow = y.com", "AllowAddress=10.0.0.1:5", "",
					      "# Allow=x.com"};
	const struct unit_edit v[] = {DROP("Deny", "x.com"), ADD("Allow", "x.com")};
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
	CLEANUP_FREE char *after = NULL, *again = NULL;
	CLEANUP_UNIT struct unit *was = NULL, *is = NULL;
	struct unit_dirs d = {.home = (char[]){"/home/me"}};
	struct unit_problems p = {0};
	bool in_network = false;

	strbuf_adds(&b, "[App]\nExec=/bin/true\nWorkingDirectory=/srv/x\n");
	for (unsigned n = (unsigned)rand_r(seed) % 12; n; n--) {
		unsigned r = (unsigned)rand_r(seed);

		if (r % 5 == 0)
			in_network = !in_network;
		if (r % 5 == 0)
			strbuf_adds(&b, in_network ? "[Network]\n" : "[App]\n");
		else
			strbuf_addf(&b, "%s\n",
				    in_network ? network[r / 5 % ELEMENTS(network)] : "Environment=A=1");
	}
	after = unit_edit_text(b.p, v, 2);
	again = unit_edit_text(after, v, 2);
	assert_string_equal(after, again);
	was = unit_parse_buffer(&d, "t", "t.app", b.p, b.len, &p);
	is = unit_parse_buffer(&d, "t", "t.app", after, strlen(after), &p);
	assert_int_equal(p.n, 0);
	assert_true(lists(&is->allow, "x.com"));
	assert_false(lists(&is->deny, "x.com"));
	for (size_t i = 0; i < was->allow.n; i++)
		assert_true(lists(&is->allow, was->allow.v[i].text));
	for (size_t i = 0; i < was->deny.n; i++)
		assert_true(lists(&is->deny, was->deny.v[i].text) || str_eq(was->deny.v[i].text, "x.com"));
	assert_int_equal(is->environment.n, was->environment.n);
	assert_int_equal(is->allow_address.n, was->allow_address.n);
}

static void test_random(void **state)
{
	unsigned seed = 20261201;

	(void)state;
	for (int i = 0; i < 5000; i++)
		check_random(&seed);
}

/* --- the file --- */

struct world {
	char base[32];
	struct unit_dirs d;
	char *dir, *file;
};

static void put(const char *path, const char *text)
{
	CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

static char *get(const char *path)
{
	char *text = NULL;

	return file_read(AT_FDCWD, path, 1 << 20, &text, NULL, NULL) < 0 ? NULL : text;
}

static int setup(void **state)
{
	static struct world w;
	CLEANUP_FREE char *unit = NULL, *text = NULL;

	memset(&w, 0, sizeof w);
	(void)snprintf(w.base, sizeof w.base, "/var/tmp/sbxsv-di-XXXXXX");
	assert_non_null(mkdtemp(w.base));
	w.d.apps = w.d.config = w.d.state = w.d.runtime = w.d.profiles = w.base;
	w.d.home = (char[]){"/home/nobody"};
	w.d.user = (char[]){"me"};
	w.d.uid = geteuid();
	w.d.root_mode = geteuid() == 0;
	unit = xasprintf("%s/strict.conf", w.base);
	put(unit, "[Sandbox]\nReadMode=strict\n");
	free(unit);
	unit = xasprintf("%s/notes.app", w.base);
	text = xasprintf("[App]\nExec=/bin/true\n%sWorkingDirectory=%s/w\n", geteuid() ? "" : "User=nobody\n",
			 w.base);
	put(unit, text);
	w.dir = xasprintf("%s/notes.app.d", w.base);
	w.file = xasprintf("%s/" UNIT_ALLOW_DROPIN, w.dir);
	*state = &w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *command = xasprintf("rm -rf %s", w->base);

	free(w->dir);
	free(w->file);
	return system(command);
}

static int refuse(void *data, const struct unit *u, struct err **e)
{
	*(size_t *)data = u->allow.n;
	return err_set(e, EPERM, "no");
}

static int try(struct world *w, const struct unit_edit *v, size_t n, unit_accept_fn *accept, void *data,
	       struct unit_dropin *ret, struct err **e)
{
	struct unit_problems p = {0};
	int r = unit_dropin_edit(&w->d, "notes", v, n, accept, data, ret, &p, e);

	if (r < 0 && p.n)
		(void)err_set(e, EINVAL, "%s:%u: %s", p.v[0].file, p.v[0].line, p.v[0].text);
	unit_problems_clear(&p);
	return r;
}

static void test_write(void **state)
{
	struct world *w = *state;
	const struct unit_edit a[] = {ADD("Allow", "x.com")},
			       bad[] = {ADD("Allow", "y.com"), ADD("Listen", "x")};
	CLEANUP_ERR struct err *e = NULL;
	struct unit_dropin r = {0};
	CLEANUP_FREE char *text = NULL, *before = NULL;
	struct stat st;
	size_t seen = 0;

	/* what does not pass leaves nothing, not even a directory */
	assert_int_equal(try(w, bad, 2, NULL, NULL, &r, &e), -1);
	if (!strstr(err_msg(e), "notes.app.d/50-allow.conf:5: [Network] Listen: x is neither"))
		fail_msg("%s", err_msg(e));
	assert_int_equal(try(w, a, 1, refuse, &seen, &r, &e), -1);
	assert_int_equal(seen, 1);
	assert_int_equal(lstat(w->dir, &st), -1);
	if (try(w, a, 1, NULL, NULL, &r, &e) < 0)
		fail_msg("%s", err_msg(e));
	assert_true(r.changed);
	assert_string_equal(r.path, w->file);
	free(r.path);
	before = get(w->file);
	assert_non_null(strstr(before, "[Network]\nAllow=x.com\n"));
	assert_int_equal(stat(w->file, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(stat(w->dir, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(try(w, a, 1, NULL, NULL, &r, &e), 0);
	assert_false(r.changed);
	free(r.path);
	text = get(w->file);
	assert_string_equal(text, before);
}

/* The kernel's own way of a disk that fills up in the middle of a write: RLIMIT_FSIZE. */
static void test_full_disk(void **state)
{
	struct world *w = *state;
	const struct unit_edit a[] = {ADD("Allow", "x.com")}, b[] = {ADD("Allow", "y.com")};
	const struct rlimit small = {20, RLIM_INFINITY}, large = {RLIM_INFINITY, RLIM_INFINITY};
	CLEANUP_ERR struct err *e = NULL;
	struct unit_dropin r = {0};
	CLEANUP_FREE char *before = NULL, *after = NULL,
			  *left = xasprintf("%s/." UNIT_ALLOW_DROPIN ".tmp", w->dir);
	struct stat st;

	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(try(w, a, 1, NULL, NULL, &r, &e), -1);
	assert_non_null(strstr(err_msg(e), "it is as it was"));
	assert_int_equal(lstat(w->dir, &st), -1); /* made for it, so it went again */
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &large), 0);
	assert_int_equal(try(w, a, 1, NULL, NULL, &r, &e), 0);
	free(r.path);
	before = get(w->file);
	put(left, "of one that was killed");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(try(w, b, 1, NULL, NULL, &r, &e), -1);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &large), 0);
	after = get(w->file);
	assert_string_equal(after, before);
	assert_int_equal(lstat(left, &st), -1);
	assert_int_equal(try(w, b, 1, NULL, NULL, &r, &e), 0);
	free(r.path);
}

static void test_in_the_way(void **state)
{
	struct world *w = *state;
	const struct unit_edit a[] = {ADD("Allow", "x.com")};
	CLEANUP_ERR struct err *e = NULL;
	struct unit_dropin r = {0};
	CLEANUP_FREE char *victim = xasprintf("%s/victim", w->base), *text = NULL;

	put(victim, "[Network]\n");
	assert_int_equal(mkdir(w->dir, 0755), 0);
	assert_int_equal(symlink(victim, w->file), 0);
	assert_int_equal(try(w, a, 1, NULL, NULL, &r, &e), -1);
	assert_non_null(strstr(err_msg(e), "symlink"));
	text = get(victim);
	assert_string_equal(text, "[Network]\n");
	assert_int_equal(unlink(w->file), 0);
	assert_int_equal(mkfifo(w->file, 0600), 0);
	assert_int_equal(try(w, a, 1, NULL, NULL, &r, &e), -1);
	assert_non_null(strstr(err_msg(e), "FIFO"));
	assert_int_equal(unlink(w->file), 0);
	put(w->file, "[Network]\nAllow=x\n");
	assert_int_equal(chmod(w->file, 0666), 0);
	assert_int_equal(try(w, a, 1, NULL, NULL, &r, &e), -1);
	assert_non_null(strstr(err_msg(e), "writable by everybody"));
	assert_int_equal(unlink(w->file), 0);
	assert_int_equal(rmdir(w->dir), 0);
	assert_int_equal(symlink(w->base, w->dir), 0);
	assert_int_equal(try(w, a, 1, NULL, NULL, &r, &e), -1);
	assert_non_null(strstr(err_msg(e), "symlink"));
}

/* The text takes its place among the other drop-ins of the name. */
static void test_order(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *before = xasprintf("%s/10-a.conf", w->dir),
			  *after = xasprintf("%s/60-b.conf", w->dir);
	const struct unit_edit a[] = {ADD("Allow", "x.com")};
	CLEANUP_ERR struct err *e = NULL;
	struct unit_dropin r = {0};
	size_t seen = 99;

	assert_int_equal(mkdir(w->dir, 0755), 0);
	put(before, "[Network]\nAllow=a.com\n");
	assert_int_equal(try(w, a, 1, refuse, &seen, &r, &e), -1);
	assert_int_equal(seen, 2);
	put(after, "[Network]\nAllow=\n"); /* clears what was before it */
	assert_int_equal(try(w, a, 1, refuse, &seen, &r, &e), -1);
	assert_int_equal(seen, 0);
}

#define FILES(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_add),
		cmocka_unit_test(test_contradiction),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_paths),
		FILES(test_write),
		FILES(test_full_disk),
		FILES(test_in_the_way),
		FILES(test_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
