/* Units on the disk: malformed files, drop-ins, profiles, templates, ownership, directories, sbxsv.conf, man
 * pages. */
#include "base/fd.h"
#include "base/file.h"
#include "sandbox/rules.h"
#include "unit/unit.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define BASE     "[App]\nExec=/bin/true\nWorkingDirectory=/srv/x\n"
#define STRANGER 54321 /* a uid that is nobody's */

static char tmp[] = "/tmp/sbxsv-test-unit-XXXXXX";
static struct unit_dirs dirs;

static void put(const char *dir, const char *name, const void *data, size_t len, mode_t mode)
{
	CLEANUP_FREE char *path = path_join(dir, name), *parent = path_dirname(path);
	CLEANUP_FD int fd = -1;

	(void)mkdir(parent, 0755);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, data, len), 0);
	assert_int_equal(fchmod(fd, mode), 0);
}

static void app(const char *name, const char *text)
{
	put(dirs.apps, name, text, strlen(text), 0644);
}

static void profile(const char *name, const char *text)
{
	put(dirs.profiles, name, text, strlen(text), 0644);
}

static void clean_dir(const char *dir)
{
	CLEANUP_FREE char *command = xasprintf("rm -rf '%s' && mkdir -m 0755 '%s'", dir, dir);

	assert_int_equal(system(command), 0);
}

static int fresh_apps(void **state)
{
	(void)state;
	clean_dir(dirs.apps);
	return 0;
}

static char *source_path(const char *rel)
{
	return path_join(SRCDIR, rel);
}

/* The tree may belong to another user than the one who runs the tests: the profiles are copied. */
static int setup(void **state)
{
	CLEANUP_FREE char *units = source_path("units"), *command = NULL;

	(void)state;
	alarm(120); /* a FIFO that is opened would hang */
	if (!mkdtemp(tmp) || chmod(tmp, 0755) < 0)
		return -1;
	dirs.config = path_join(tmp, "config");
	dirs.apps = path_join(tmp, "config/apps.d");
	dirs.state = path_join(tmp, "state");
	dirs.runtime = path_join(tmp, "run");
	dirs.profiles = path_join(tmp, "units");
	dirs.home = path_join(tmp, "home");
	dirs.user = xstrdup("tester");
	dirs.uid = geteuid();
	dirs.min_port = 1024;
	rules_wire_checks(&dirs);
	command = xasprintf(
		"mkdir -p -m 0755 '%s' '%s' '%s' && cp '%s'/*.conf '%s'/*.app '%s' && chmod -R go-w '%s'",
		dirs.config, dirs.apps, dirs.profiles, units, units, dirs.profiles, tmp);
	return system(command);
}

static int teardown(void **state)
{
	CLEANUP_FREE char *command = xasprintf("rm -rf '%s'", tmp);

	(void)state;
	unit_dirs_finish(&dirs);
	return system(command);
}

static struct unit *load(const char *name)
{
	struct unit_problems p = {0};
	struct unit *u = unit_load(&dirs, name, &p);

	if (!u) {
		CLEANUP_FREE char *all = unit_problems_text(&p);

		fail_msg("%s: %s", name, all);
	}
	assert_int_equal(p.n, 0);
	return u;
}

static void refused(const char *name, const char *want)
{
	struct unit_problems p = {0};
	CLEANUP_UNIT struct unit *u = unit_load(&dirs, name, &p);
	CLEANUP_FREE char *all = unit_problems_text(&p);

	if (u || p.n != 1 || !strstr(all, want))
		fail_msg("%s: wanted \"%s\", got %zu: %s", name, want, p.n, all);
	unit_problems_clear(&p);
}

/* --- malformed files: tests/it/data/broken-units/cases.txt --- */

struct broken {
	char *name, *text, *kind;
	unsigned line;
	struct strbuf content;
};
struct broken_list {
	struct broken *v;
	size_t n, cap;
};

static void add_bytes(struct strbuf *b, const char *hex)
{
	unsigned byte;
	int used;

	for (; sscanf(hex, "%2x%n", &byte, &used) == 1; hex += used)
		strbuf_addc(b, (char)byte);
}

static void add_content(struct broken *c, const char *line)
{
	char ch;
	unsigned n;

	if (str_starts(line, "!base"))
		strbuf_adds(&c->content, BASE);
	else if (str_starts(line, "!bytes "))
		add_bytes(&c->content, line + strlen("!bytes "));
	else if (sscanf(line, "!repeat %c %u", &ch, &n) == 2)
		while (n--)
			strbuf_addc(&c->content, ch);
	else if (str_starts(line, "!chop"))
		c->content.len--;
	else if (str_starts(line, "!kind "))
		c->kind = xstrdup(line + strlen("!kind "));
	else
		strbuf_addf(&c->content, "%s\n", line);
}

static void add_case(struct broken_list *l, char *head)
{
	size_t at = 0;
	int used = 0;

	VEC_GROW(l->v, l->n, l->cap);
	l->v[l->n] = (struct broken){0};
	while (!(head[at] == ' ' && head[at + 1] >= '0' && head[at + 1] <= '9'))
		at++;
	l->v[l->n].name = xasprintf("%.*s.app", (int)at, head);
	assert_int_equal(sscanf(head + at, " %u %n", &l->v[l->n].line, &used), 1);
	l->v[l->n++].text = xstrdup(head + at + used);
}

static struct broken_list read_cases(void)
{
	CLEANUP_FREE char *path = source_path("tests/it/data/broken-units/cases.txt"), *text = NULL;
	struct broken_list l = {0};
	CLEANUP_ERR struct err *e = NULL;
	size_t len;
	char *rest, *line;

	if (file_read(AT_FDCWD, path, 1 << 20, &text, &len, &e) < 0)
		fail_msg("%s", err_msg(e));
	rest = text;
	while ((line = strsep(&rest, "\n"))) {
		if (str_starts(line, "@ "))
			add_case(&l, line + 2);
		else if (l.n && *line)
			add_content(&l.v[l.n - 1], line);
	}
	return l;
}

static void make_socket(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0 && strlen(path) < sizeof a.sun_path);
	memcpy(a.sun_path, path, strlen(path));
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
}

static void make_case(const struct broken *c)
{
	CLEANUP_FREE char *path = path_join(dirs.apps, c->name);
	unsigned mode = 0644;

	if (str_eq(c->kind, "dir"))
		assert_int_equal(mkdir(path, 0755), 0);
	else if (str_eq(c->kind, "fifo"))
		assert_int_equal(mkfifo(path, 0644), 0);
	else if (str_eq(c->kind, "socket"))
		make_socket(path);
	else if (str_eq(c->kind, "loop"))
		assert_int_equal(symlink(c->name, path), 0);
	else if (str_eq(c->kind, "dangling"))
		assert_int_equal(symlink("nowhere.app", path), 0);
	else {
		if (c->kind)
			assert_int_equal(sscanf(c->kind, "mode=%o", &mode), 1);
		put(dirs.apps, c->name, c->content.p ? c->content.p : "", c->content.len, mode);
	}
}

static void expect_problem(const struct broken *c, const struct unit_problems *p, size_t want)
{
	size_t hits = 0, right = 0;

	for (size_t i = 0; i < p->n; i++) {
		if (strcmp(p->v[i].file, c->name) != 0)
			continue;
		hits++;
		right += p->v[i].line == c->line && strstr(p->v[i].text, c->text);
	}
	if (hits != want || right != want) {
		CLEANUP_FREE char *all = unit_problems_text(p);

		fail_msg("%s: wanted line %u \"%s\", got:\n%s", c->name, c->line, c->text, all);
	}
}

static const struct unit_scan_entry *find(const struct unit_scan *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++)
		if (strcmp(s->v[i].name, name) == 0)
			return &s->v[i];
	return NULL;
}

/* Each malformed file gives its one error, and the good apps beside them are read. */
static void test_broken_files(void **state)
{
	struct broken_list l = read_cases();
	CLEANUP(unit_scan_finish) struct unit_scan s = {0};
	CLEANUP_ERR struct err *e = NULL;

	(void)state;
	assert_true(l.n >= 45);
	for (size_t i = 0; i < l.n; i++)
		make_case(&l.v[i]);
	app("aaa-good.app", BASE);
	app("zzz-good.app", BASE "[Network]\nListen=4810\n");
	if (unit_scan_dir(&dirs, &s, &e) < 0)
		fail_msg("%s", err_msg(e));
	for (size_t i = 0; i < l.n; i++) {
		struct broken *c = &l.v[i];
		CLEANUP_FREE char *name = xstrndup(c->name, strlen(c->name) - strlen(".app"));
		const struct unit_scan_entry *ent = find(&s, name);

		if (geteuid() == 0 && str_eq(c->kind, "mode=0000"))
			; /* root reads everything */
		else if (unit_name_valid(name)) {
			assert_non_null(ent);
			assert_null(ent->unit);
			expect_problem(c, &ent->problems, 1);
			assert_int_equal(ent->problems.n, 1);
		} else {
			expect_problem(c, &s.problems, 1);
		}
		free(c->name);
		free(c->text);
		free(c->kind);
		strbuf_finish(&c->content);
	}
	free(l.v);
	assert_non_null(find(&s, "aaa-good")->unit);
	assert_non_null(find(&s, "zzz-good")->unit);
}

/* --- drop-ins, profiles, templates --- */

static void test_dropins(void **state)
{
	CLEANUP_UNIT struct unit *u = NULL;
	CLEANUP_FREE char *dir = path_join(dirs.apps, "a.app.d");

	(void)state;
	app("a.app", BASE "Description=one\n[Network]\nAllow=a.com\nAllow=b.com\n[Restart]\nSec=1s\n");
	app("a.app.d/20-b.conf", "[Network]\nAllow=d.com\n[Restart]\nSec=3s\n");
	app("a.app.d/10-a.conf", "[App]\nShell=exec b\n[Network]\nAllow=\nAllow=c.com\n[Restart]\nSec=2s\n");
	app("a.app.d/.hidden.conf", "nonsense\n");
	app("a.app.d/x.conf~", "nonsense\n");
	app("a.app.d/x.conf.tmp", "nonsense\n");
	app("a.app.d/readme.txt", "nonsense\n");
	u = load("a");
	assert_int_equal(u->allow.n, 2);
	assert_string_equal(u->allow.v[0].text, "c.com");
	assert_string_equal(u->allow.v[0].origin, "a.app.d/10-a.conf:5");
	assert_string_equal(u->allow.v[1].text, "d.com");
	assert_int_equal(u->restart_ms, 3000);
	assert_string_equal(u->shell, "exec b");
	assert_int_equal(u->exec.n, 0);
	assert_string_equal(u->exec_origin, "a.app.d/10-a.conf:2");
	assert_int_equal(u->sources.n, 4);
	assert_true(path_is_below(u->sources.v[1], dir));
	/* a bad value that a later file replaces is still an error, and only of this app */
	app("a.app.d/10-a.conf", "[Restart]\nSec=never\n");
	refused("a", "a.app.d/10-a.conf:2: [Restart] Sec: never is not a duration");
	app("b.app", BASE);
	unit_free(load("b"));
	app("b.app.d", "a file\n");
	refused("b", "b.app.d: it is a regular file, not a directory");
}

static void test_profiles(void **state)
{
	CLEANUP_UNIT struct unit *off = NULL, *hosts = NULL;

	(void)state;
	profile("lab.conf",
		"[Sandbox]\nReadMode=allowlist\nRead=/srv/lab\n[Network]\nEgress=off\n[Restart]\nSec=7s\n");
	app("off.app", BASE "[Sandbox]\nProfile=lab\nRead=/srv/own\n[Restart]\nSec=1s\n");
	off = load("off");
	assert_int_equal(off->read_mode, UNIT_READ_ALLOWLIST);
	assert_int_equal(off->read.n, 2);
	assert_string_equal(off->read.v[0].origin, "units/lab.conf:3");
	assert_string_equal(off->read.v[1].text, "/srv/own");
	assert_int_equal(off->restart_ms, 1000);
	assert_int_equal(off->egress, UNIT_EGRESS_OFF);
	/* the Egress=off of a profile is a default: Allow= in the unit opens it; off in the unit beside
	 * Allow= is an error */
	app("hosts.app", BASE "[Sandbox]\nProfile=lab\n[Network]\nAllow=x.com\n");
	hosts = load("hosts");
	assert_int_equal(hosts->egress, UNIT_EGRESS_HOSTS);
	app("both.app", BASE "[Sandbox]\nProfile=lab\n[Network]\nEgress=off\nAllow=x.com\n");
	refused("both", "both.app:8: Allow= beside Egress=off (both.app:7)");
	/* what makes no sense in a profile is an error of the profile */
	profile("wrong.conf", "[App]\nExec=/bin/sh\n");
	app("wrong.app", BASE "[Sandbox]\nProfile=wrong\n");
	refused("wrong", "units/wrong.conf:2: [App] Exec= belongs in a unit, not in a profile");
	app("missing.app", BASE "[Sandbox]\nProfile=opne\n");
	refused("missing", "missing.app:5: Profile=opne: there is no such profile in");
}

static void test_templates(void **state)
{
	CLEANUP(unit_scan_finish) struct unit_scan s = {0};
	CLEANUP_FREE char *link = path_join(dirs.apps, "web@8001.app"), *text = NULL;
	CLEANUP_UNIT struct unit *other = NULL;

	(void)state;
	app("web@.app", "[App]\nExec=/bin/x %i\nWorkingDirectory=~/%i\n[Network]\nListen=%i\n");
	app("web@.app.d/all.conf", "[Restart]\nSec=4s\n");
	app("web@8001.app.d/one.conf", "[Stop]\nTimeout=9s\n");
	app("web@8002.app", "[App]\nExec=/bin/y\nWorkingDirectory=~/y\n");
	assert_int_equal(symlink("web@.app", link), 0);
	assert_int_equal(unit_scan_dir(&dirs, &s, NULL), 0);
	text = unit_problems_text(&s.problems);
	assert_string_equal(text, "");
	assert_int_equal(s.n, 2);
	assert_string_equal(s.v[0].name, "web@8001");
	assert_string_equal(s.v[0].unit->exec.v[1], "8001");
	assert_int_equal(s.v[0].unit->listen[0].host_port, 8001);
	assert_int_equal(s.v[0].unit->restart_ms, 4000);
	assert_int_equal(s.v[0].unit->stop_timeout_ms, 9000);
	assert_string_equal(s.v[1].unit->exec.v[0], "/bin/y");
	assert_int_equal(s.v[1].unit->restart_ms, 4000);
	/* an instance nobody enabled can still be read */
	other = load("web@8009");
	assert_int_equal(other->listen[0].host_port, 8009);
	unit_scan_finish(&s);
	/* a broken template is an error of the directory */
	app("web@.app", "[App]\nExek=x\n");
	assert_int_equal(unit_scan_dir(&dirs, &s, NULL), 0);
	assert_true(s.problems.n >= 1);
	assert_string_equal(s.problems.v[0].file, "web@.app");
	assert_null(find(&s, "web@8001")->unit);
	assert_non_null(find(&s, "web@8002")->unit);
}

static void test_scratch_files(void **state)
{
	static const char *const names[] = {".a.app",    "a.app~",    ".#a.app", "#a.app#",
					    "a.app.tmp", "a.app.swp", "README",  "a.conf"};
	CLEANUP(unit_scan_finish) struct unit_scan s = {0};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(names); i++)
		app(names[i], "nonsense\n");
	assert_int_equal(unit_scan_dir(&dirs, &s, NULL), 0);
	assert_int_equal(s.n, 0);
	assert_int_equal(s.problems.n, 0);
	unit_scan_finish(&s);
	/* no directory at all: no apps, no error */
	clean_dir(dirs.apps);
	assert_int_equal(rmdir(dirs.apps), 0);
	assert_int_equal(unit_scan_dir(&dirs, &s, NULL), 0);
	assert_int_equal(s.n, 0);
	put(dirs.config, "apps.d", "", 0, 0644);
	assert_int_equal(unit_scan_dir(&dirs, &s, NULL), -1);
	assert_int_equal(unlink(dirs.apps), 0);
}

/* --- who could have changed it --- */

static void set_mode(const char *rel, mode_t mode)
{
	CLEANUP_FREE char *path = path_join(dirs.apps, rel);

	assert_int_equal(chmod(path, mode), 0);
}

static void test_writable_by_others(void **state)
{
	CLEANUP(unit_scan_finish) struct unit_scan s = {0};
	CLEANUP_ERR struct err *e = NULL;

	(void)state;
	app("a.app", BASE);
	app("a.app.d/x.conf", "[Restart]\nSec=1s\n");
	unit_free(load("a"));
	set_mode("a.app", 0664); /* group-writable: the default of many systems; as a user that is fine */
	unit_free(load("a"));
	set_mode("a.app", 0646);
	refused("a", "a.app: the file is writable by everybody");
	set_mode("a.app", 0644);
	set_mode("a.app.d/x.conf", 0666);
	refused("a", "a.app.d/x.conf: the file is writable by everybody");
	set_mode("a.app.d/x.conf", 0644);
	set_mode("a.app.d", 0777);
	refused("a", "a.app.d: the directory ");
	set_mode("a.app.d", 01777);
	unit_free(load("a"));
	assert_int_equal(chmod(dirs.config, 0777), 0);
	refused("a", "is writable by everybody: chmod o-w");
	assert_int_equal(unit_scan_dir(&dirs, &s, &e), -1);
	assert_non_null(strstr(err_msg(e), "is writable by everybody"));
	assert_int_equal(chmod(dirs.config, 0755), 0);
}

static void own(const char *rel, uid_t uid)
{
	CLEANUP_FREE char *path = path_join(dirs.apps, rel);

	assert_int_equal(lchown(path, uid, (gid_t)-1), 0);
}

/* Needs to give files away. */
static void test_owners(void **state)
{
	CLEANUP_FREE char *link = NULL;
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FREE char *text = NULL;
	size_t len;

	(void)state;
	if (geteuid() != 0)
		skip(); /* a jump that runs no cleanup: nothing may be held here */
	link = path_join(dirs.apps, "l.app");
	app("a.app", BASE);
	app("a.app.d/x.conf", "[Restart]\nSec=1s\n");
	assert_int_equal(symlink("a.app", link), 0);
	unit_free(load("l"));
	for (int root = 0; root <= 1; root++) {
		dirs.root_mode = root;
		own("a.app", STRANGER);
		refused("a", "a.app: the file belongs to uid 54321");
		own("a.app", 0);
		own("a.app.d/x.conf", STRANGER);
		refused("a", "a.app.d/x.conf: the file belongs to uid 54321");
		own("a.app.d/x.conf", 0);
		own("a.app.d", STRANGER);
		refused("a", "belongs to uid 54321");
		own("a.app.d", 0);
		own("l.app", STRANGER);
		refused("l", "the link ");
		own("l.app", 0);
		unit_free(load("a"));
	}
	/* root mode only: group-writable, and directories above that belong to somebody */
	set_mode("a.app", 0664);
	refused("a", "a.app: the file is writable by its group: chmod go-w");
	set_mode("a.app", 0644);
	assert_int_equal(chown(dirs.config, STRANGER, (gid_t)-1), 0);
	refused("a", "belongs to uid 54321: under a root supervisor it has to belong to root");
	assert_int_equal(unit_trusted_read(&dirs, dirs.config, 100, &text, &len, &e), -1);
	assert_int_equal(chown(dirs.config, 0, (gid_t)-1), 0);
	assert_int_equal(chmod(dirs.config, 0775), 0);
	refused("a", "is writable by its group: chmod go-w");
	assert_int_equal(chmod(dirs.config, 0755), 0);
	dirs.root_mode = false;
}

static void test_symlinked_unit(void **state)
{
	CLEANUP_FREE char *target = path_join(tmp, "real.app"), *link = path_join(dirs.apps, "notes.app"),
			  *mid = path_join(tmp, "mid");
	CLEANUP_UNIT struct unit *u = NULL;

	(void)state;
	put(tmp, "real.app", BASE, strlen(BASE), 0644);
	assert_int_equal(symlink("../../mid", link), 0);
	assert_int_equal(symlink(target, mid), 0);
	u = load("notes");
	assert_string_equal(u->name, "notes");
	assert_int_equal(chmod(target, 0666), 0);
	refused("notes", "notes.app: the file is writable by everybody");
	assert_int_equal(unlink(mid), 0);
	assert_int_equal(unlink(target), 0);
}

static void test_load_file(void **state)
{
	struct unit_problems p = {0};
	CLEANUP_FREE char *path = path_join(tmp, "elsewhere.app"), *all = NULL,
			  *odd = path_join(tmp, "odd.txt");
	CLEANUP_UNIT struct unit *u = NULL;

	(void)state;
	put(tmp, "elsewhere.app", BASE, strlen(BASE), 0644);
	put(tmp, "elsewhere.app.d/x.conf", "[Restart]\nSec=1s\n", 17, 0644);
	u = unit_load_file(&dirs, path, &p);
	assert_non_null(u);
	assert_string_equal(u->name, "elsewhere");
	assert_int_equal(u->restart_ms, 1000);
	assert_null(unit_load_file(&dirs, odd, &p));
	all = unit_problems_text(&p);
	assert_non_null(strstr(all, "ends with .app"));
	unit_problems_clear(&p);
}

/* --- the effective unit --- */

static void test_effective(void **state)
{
	struct unit_problems p = {0};
	CLEANUP_FREE char *text = NULL;
	CLEANUP_UNIT struct unit *u = NULL, *again = NULL;

	(void)state;
	app("notes.app", "[Network]\nAllow=gone.com\nListen=4810:80\n[App]\nExec=/bin/x $PORT "
			 "'%n'\nWorkingDirectory=~/n\n");
	app("notes.app.d/a.conf",
	    "[Network]\nAllow=\nAllow=api.example.com\n[App]\nDescription=Notes\n[Restart]\nSec=1s\n");
	app("notes.app.d/b.conf", "[Restart]\nSec=2s\n");
	text = unit_effective(&dirs, "notes", &p);
	assert_int_equal(p.n, 0);
	assert_non_null(strstr(
		text,
		"[App]\n# notes.app.d/a.conf:5\nDescription=Notes\n# notes.app:5\nExec=/bin/x $PORT '%n'\n"
		"# notes.app:6\nWorkingDirectory=~/n\n\n[Restart]\n# notes.app.d/b.conf:2\nSec=2s\n\n"));
	assert_non_null(strstr(
		text, "# notes.app.d/a.conf:3\nAllow=api.example.com\n# notes.app:3\nListen=4810:80\n"));
	assert_null(strstr(text, "gone.com"));
	assert_non_null(strstr(text, "# units/strict.conf:"));
	/* it is a unit of the same meaning itself */
	u = load("notes");
	clean_dir(dirs.apps);
	app("notes.app", text);
	again = load("notes");
	assert_int_equal(unit_diff(u, again), 0);
	free(unit_effective(&dirs, "nothing", &p));
	assert_int_equal(p.n, 1);
	unit_problems_clear(&p);
}

/* --- what is shipped --- */

static void check_shipped_profile(const char *file)
{
	CLEANUP_FREE char *name = xstrndup(file, strlen(file) - strlen(".conf"));
	CLEANUP_FREE char *text = xasprintf(BASE "[Sandbox]\nProfile=%s\n", name), *with_port = NULL;

	app("plain.app", text);
	unit_free(load("plain"));
	with_port = xasprintf("%s[Network]\nListen=4810\nAllow=example.com\n", text);
	app("port.app", with_port);
	unit_free(load("port"));
}

static void test_shipped(void **state)
{
	CLEANUP_DIR DIR *dir = opendir(dirs.profiles);
	unsigned profiles = 0, templates = 0;

	(void)state;
	assert_non_null(dir);
	for (struct dirent *ent; (ent = readdir(dir));) {
		if (str_ends(ent->d_name, ".conf") && strcmp(ent->d_name, "wrong.conf") != 0) {
			check_shipped_profile(ent->d_name);
			profiles++;
		} else if (str_ends(ent->d_name, ".app")) {
			CLEANUP_FREE char *path = path_join(dirs.profiles, ent->d_name);
			struct unit_problems p = {0};
			CLEANUP_UNIT struct unit *u = unit_load_file(&dirs, path, &p);
			CLEANUP_FREE char *all = unit_problems_text(&p);

			assert_string_equal(all, "");
			assert_non_null(u);
			assert_int_equal(u->not_in_force.n, 0);
			templates++;
		}
	}
	assert_true(profiles >= 7 && templates >= 1);
}

/* --- sbxsv.conf --- */

static void test_conf(void **state)
{
	struct unit_problems p = {0};
	CLEANUP(conf_finish) struct conf c = {0};
	CLEANUP_FREE char *all = NULL;
	static const char good[] =
		"[Supervisor]\nShutdownBudget=250ms\nUser=apps\n[Sandbox]\nRead=/srv/shared\nRead=-~/x\n";
	static const char bad[] = "[Supervisor]\nShutdownBudget=1ms\nUser=root\n[Sandbox]\nWrite=/x\n[App]\n";

	(void)state;
	assert_int_equal(conf_load(&dirs, &c, &p), 0);
	assert_int_equal(c.shutdown_budget_ms, 300);
	assert_string_equal(c.default_user, "sbxsv");
	conf_finish(&c);
	put(dirs.config, "sbxsv.conf", good, strlen(good), 0644);
	assert_int_equal(conf_load(&dirs, &c, &p), 0);
	assert_int_equal(c.shutdown_budget_ms, 250);
	assert_string_equal(c.default_user, "apps");
	assert_int_equal(c.allowlist.n, 2);
	assert_string_equal(c.allowlist.v[0].origin, "sbxsv.conf:5");
	conf_finish(&c);
	put(dirs.config, "sbxsv.conf", bad, strlen(bad), 0644);
	assert_int_equal(conf_load(&dirs, &c, &p), -1);
	all = unit_problems_text(&p);
	assert_int_equal(p.n, 4);
	assert_non_null(strstr(all, "sbxsv.conf:2: [Supervisor] ShutdownBudget: 1ms is too short: at least 50 ms"));
	assert_non_null(strstr(all, "sbxsv.conf:5: Write= is not a key of [Sandbox]"));
	assert_int_equal(c.shutdown_budget_ms, 300);
	unit_problems_clear(&p);
}

/* --- directories --- */

static void clear_env(void)
{
	static const char *const names[] = {"XDG_CONFIG_HOME",   "XDG_STATE_HOME", "XDG_RUNTIME_DIR",
					    "SBXSV_CONFIG_DIR",  "SBXSV_APPS_DIR", "SBXSV_STATE_DIR",
					    "SBXSV_RUNTIME_DIR", "SBXSV_UNITS_DIR"};

	for (size_t i = 0; i < ELEMENTS(names); i++)
		(void)unsetenv(names[i]);
}

static void test_dirs_env(void **state)
{
	CLEANUP(unit_dirs_finish) struct unit_dirs d = {0};
	CLEANUP_ERR struct err *e = NULL;

	(void)state;
	clear_env();
	setenv("SBXSV_CONFIG_DIR", "/c", 1);
	setenv("SBXSV_STATE_DIR", "/s/", 1);
	setenv("SBXSV_RUNTIME_DIR", "/r", 1);
	setenv("SBXSV_UNITS_DIR", "/u", 1);
	assert_int_equal(unit_dirs_init(&d, NULL, &e), 0);
	assert_string_equal(d.config, "/c");
	assert_string_equal(d.apps, "/c/apps.d");
	assert_string_equal(d.state, "/s");
	assert_string_equal(d.runtime, "/r");
	assert_string_equal(d.profiles, "/u");
	assert_int_equal(d.uid, geteuid());
	unit_dirs_finish(&d);
	setenv("SBXSV_STATE_DIR", "relative", 1);
	assert_int_equal(unit_dirs_init(&d, NULL, &e), -1);
	assert_non_null(strstr(err_msg(e), "SBXSV_STATE_DIR=relative is not an absolute path"));
	clear_env();
	assert_int_equal(unit_dirs_init(&d, "Bad Name", &e), -1);
}

/* As an ordinary user, in a child when the tests run as root. */
static int user_dirs(void)
{
	struct unit_dirs d = {0}, again = {0};
	int r = 1;

	if (geteuid() == 0 && setresuid(STRANGER, STRANGER, STRANGER) < 0)
		return 2;
	clear_env();
	setenv("HOME", "/home/somebody", 1);
	setenv("XDG_STATE_HOME", "not/absolute", 1);
	setenv("XDG_RUNTIME_DIR", "/run/x", 1);
	if (unit_dirs_init(&d, NULL, NULL) < 0)
		return 3;
	if (!d.root_mode && str_eq(d.config, "/home/somebody/.config/sbxsv") &&
	    str_eq(d.apps, "/home/somebody/.config/sbxsv/apps.d") &&
	    str_eq(d.state, "/home/somebody/.local/state/sbxsv") && str_eq(d.runtime, "/run/x/sbxsv") &&
	    str_eq(d.runtime_home, "/run/x") && str_eq(d.state_home, "/home/somebody/.local/state") &&
	    d.profiles[0] == '/')
		r = 0;
	unit_dirs_finish(&d);
	/* an instance has its own set, apart from the profiles */
	if (unit_dirs_init(&d, "lab", NULL) < 0 || !str_eq(d.config, "/home/somebody/.config/sbxsv-lab") ||
	    !str_eq(d.state, "/home/somebody/.local/state/sbxsv-lab") ||
	    !str_eq(d.runtime, "/run/x/sbxsv-lab") ||
	    !str_eq(d.apps, "/home/somebody/.config/sbxsv-lab/apps.d"))
		r = 4;
	unit_dirs_finish(&d);
	/* without a runtime directory every program of the user still finds the same one */
	(void)unsetenv("XDG_RUNTIME_DIR");
	if (unit_dirs_init(&d, NULL, NULL) < 0 || unit_dirs_init(&again, NULL, NULL) < 0 ||
	    !str_eq(d.runtime, again.runtime) || str_starts(d.runtime, "/tmp"))
		r = 5;
	unit_dirs_finish(&d);
	unit_dirs_finish(&again);
	return r;
}

static int root_dirs(void)
{
	struct unit_dirs d = {0};
	int r = 1;

	clear_env();
	setenv("HOME", "/home/somebody", 1); /* as sudo may leave it */
	if (unit_dirs_init(&d, NULL, NULL) < 0)
		return 2;
	if (d.root_mode && str_eq(d.config, "/etc/sbxsv") && str_eq(d.state, "/var/lib/sbxsv") &&
	    str_eq(d.runtime, "/run/sbxsv") && d.min_port == 0 && !str_eq(d.home, "/home/somebody"))
		r = 0;
	unit_dirs_finish(&d);
	return r;
}

static void in_child(int (*fn)(void))
{
	pid_t pid = fork();
	int status = 0;

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(fn());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_dirs_user(void **state)
{
	(void)state;
	in_child(user_dirs);
}

static void test_dirs_root(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	in_child(root_dirs);
}

/* --- man pages --- */

static char *read_doc(const char *rel)
{
	CLEANUP_FREE char *path = source_path(rel);
	CLEANUP_ERR struct err *e = NULL;
	char *text = NULL;
	size_t len;

	if (file_read(AT_FDCWD, path, 1 << 20, &text, &len, &e) < 0)
		fail_msg("%s", err_msg(e));
	return text;
}

/* The text of a key's item, or NULL. Owned by caller. Os is a macro of mdoc and has to be escaped. */
static char *item_of(const char *page, const struct unit_key *k)
{
	CLEANUP_FREE char *head = xasprintf("\n.Ss \\&[%s] keys\n", k->section),
			  *item = xasprintf("\n.It Cm %s%s Ns = ", strcmp(k->name, "Os") == 0 ? "\\&" : "",
					    k->name);
	const char *part = strstr(page, head), *part_end, *at, *end;

	if (!part)
		return NULL;
	part += strlen(head) - 1;
	part_end = strstr(part, "\n.El\n");
	at = strstr(part, item);
	if (!at || !part_end || at > part_end)
		return NULL;
	end = strstr(at + 1, "\n.It Cm ");
	return xstrndup(at, (size_t)((end && end < part_end ? end : part_end) - at) + 1);
}

static void check_page(const char *rel, const struct unit_key *k)
{
	CLEANUP_FREE char *page = read_doc(rel), *item = item_of(page, k),
			  *def = xasprintf("\n.Pq default %s\n", k->default_text);

	if (!item)
		fail_msg("%s: no item for [%s] %s=", rel, k->section, k->name);
	if (k->default_text[0] && k->default_text[0] != '(' && !strstr(item, def))
		fail_msg("%s: [%s] %s=: its default is not said", rel, k->section, k->name);
	if (k->in_force == !!strstr(item, "Not in force yet"))
		fail_msg("%s: [%s] %s=: wrong about whether it is in force", rel, k->section, k->name);
	if (k->list != !!strstr(item, "\nList.\n"))
		fail_msg("%s: [%s] %s=: wrong about whether it is a list", rel, k->section, k->name);
	for (size_t i = 0; k->words && k->words[i]; i++)
		if (!strstr(item, k->words[i] + (k->words[i][0] == '!')))
			fail_msg("%s: [%s] %s=: %s is not named", rel, k->section, k->name, k->words[i]);
}

/* sbxsv.app(5) has an item for every key, with its default, its words and whether it is in force. */
static void test_man_page(void **state)
{
	size_t n;
	const struct unit_key *k = unit_keys(&n);

	(void)state;
	for (size_t i = 0; i < n; i++)
		check_page("doc/sbxsv.app.5", &k[i]);
}

/* ... and every name Secret= takes. */
static void test_man_secrets(void **state)
{
	CLEANUP_FREE char *page = read_doc("doc/sbxsv.app.5");
	char *part = strstr(page, "secret names begin"), *end = strstr(page, "secret names end");
	size_t n;
	const struct unit_secret *s = unit_secrets(&n);

	(void)state;
	assert_true(part && end && part < end);
	*end = 0;
	for (size_t i = 0; i < n; i++) {
		CLEANUP_FREE char *word = xasprintf(" %s ", s[i].name);

		if (!strstr(part, word))
			fail_msg("sbxsv.app.5 does not name Secret=%s", s[i].name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_broken_files, fresh_apps),
		cmocka_unit_test_setup(test_dropins, fresh_apps),
		cmocka_unit_test_setup(test_profiles, fresh_apps),
		cmocka_unit_test_setup(test_templates, fresh_apps),
		cmocka_unit_test_setup(test_scratch_files, fresh_apps),
		cmocka_unit_test_setup(test_writable_by_others, fresh_apps),
		cmocka_unit_test_setup(test_owners, fresh_apps),
		cmocka_unit_test_setup(test_symlinked_unit, fresh_apps),
		cmocka_unit_test_setup(test_load_file, fresh_apps),
		cmocka_unit_test_setup(test_effective, fresh_apps),
		cmocka_unit_test_setup(test_shipped, fresh_apps),
		cmocka_unit_test(test_conf),
		cmocka_unit_test(test_dirs_env),
		cmocka_unit_test(test_dirs_user),
		cmocka_unit_test(test_dirs_root),
		cmocka_unit_test(test_man_page),
		cmocka_unit_test(test_man_secrets),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
