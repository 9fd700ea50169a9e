/*
 * cgroup: the texts, and the tree of a supervisor on a directory that looks like cgroup v2. What needs the kernel's own
 * (moving, killing, accounting) is in tests/it/test_limits.py; controllers that work are not to be had on every machine, so
 * what is written into their files is tested here.
 */
#include "base/file.h"
#include "sandbox/cgroup.h"
#include "sandbox/limits.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

/* --- texts --- */

static void test_path_of(void **state)
{
	CLEANUP_FREE char *a = cgroup_path_of("0::/user.slice/x.service\n");
	CLEANUP_FREE char *b = cgroup_path_of("9:name=systemd:/\n4:memory:/a/b\n0::/\n");

	(void)state;
	assert_string_equal(a, "/user.slice/x.service");
	assert_string_equal(b, "/");
	assert_null(cgroup_path_of("4:memory:/a/b\n"));
	assert_null(cgroup_path_of("0::/../other\n"));
	assert_null(cgroup_path_of("0::/gone (deleted)\n"));
	assert_null(cgroup_path_of(""));
}

static void test_directory_of(void **state)
{
	const char *hybrid = "25 30 0:22 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
			     "26 30 0:23 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n";
	const char *part = "26 30 0:23 /docker/ab /sys/fs/c\\040g rw - cgroup2 cgroup rw\n"
			   "27 30 0:23 / /mnt rw - cgroup2 cgroup rw\n";
	CLEANUP_FREE char *a = cgroup_directory_of(hybrid, "/"),
			  *b = cgroup_directory_of(hybrid, "/a.slice/b");
	CLEANUP_FREE char *c = cgroup_directory_of(part, "/docker/ab/x"),
			  *d = cgroup_directory_of(part, "/docker/abc");

	(void)state;
	assert_string_equal(a, "/sys/fs/cgroup/unified");
	assert_string_equal(b, "/sys/fs/cgroup/unified/a.slice/b");
	assert_string_equal(c, "/sys/fs/c g/x");
	assert_string_equal(d, "/mnt/docker/abc");
	assert_null(cgroup_directory_of("25 30 0:22 / /sys/fs/cgroup rw - cgroup cgroup rw\n", "/"));
	assert_null(cgroup_directory_of("25 30 0:22 - cgroup2 x\n25\n - cgroup2 \n", "/"));
}

static void test_values(void **state)
{
	uint64_t n = 7;

	(void)state;
	assert_int_equal(cgroup_controllers("cpuset cpu io memory hugetlb pids\n"), CGROUP_ALL);
	assert_int_equal(cgroup_controllers("cpuset cpus hugetlb"), 0);
	assert_int_equal(cgroup_controllers(""), 0);
	assert_int_equal(cgroup_value("low 0\nhigh 3\noom 2\noom_kill 5\n", "oom_kill", &n), 0);
	assert_int_equal(n, 5);
	assert_int_equal(cgroup_value("oom_kill 5\n", "oom", &n), -1);
	assert_int_equal(cgroup_value("oom x\n", "oom", &n), -1);
	assert_int_equal(cgroup_value("oom \n", "oom", &n), -1);
	assert_int_equal(n, 5);
	assert_int_equal(cgroup_lines("1\n2\n"), 2);
	assert_int_equal(cgroup_lines(""), 0);
}

static void test_tag(void **state)
{
	CLEANUP_FREE char *a = cgroup_tag("/run/sbxsv", 1, 2), *b = cgroup_tag("/run/sbxsv", 1, 2),
			  *c = cgroup_tag("/run/sbxsv", 1, 3);

	(void)state;
	assert_string_equal(a, b);
	assert_string_not_equal(a, c);
	assert_true(cgroup_is_tag(a));
	assert_false(cgroup_is_tag("sbxsv-0123"));
	assert_false(cgroup_is_tag("sbxsv-0123456789abcdeg"));
	assert_false(cgroup_is_tag("user.slice"));
}

static void test_sizes(void **state)
{
	CLEANUP_FREE char *a = limits_size(64 << 20), *b = limits_size(1000), *c = limits_size(1536 << 10);

	(void)state;
	assert_string_equal(a, "64M");
	assert_string_equal(b, "1000");
	assert_string_equal(c, "1536K");
}

/* --- a tree --- */

static char dir[64], *group, *proc_file, *mount_file, *systemd;
static const char *busy; /* writes to a file of this name fail with EBUSY */
static const char *const control[] = {"cgroup.procs",    "cgroup.subtree_control",
				      "cgroup.events",   "cgroup.kill",
				      "cgroup.type",     "memory.max",
				      "memory.swap.max", "memory.oom.group",
				      "memory.current",  "memory.stat",
				      "memory.events",   "cpu.max",
				      "cpu.stat",        "pids.max"};

static void put(const char *path, const char *text)
{
	CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static char *get(const char *name)
{
	CLEANUP_FREE char *path = path_join(group, name);
	char *text = NULL;
	size_t len;

	return file_read(AT_FDCWD, path, 4096, &text, &len, NULL) == 0 ? text : xstrdup("(absent)");
}

static int fake_make(int at, const char *name)
{
	CLEANUP_FD int fd = -1;

	if (mkdirat(at, name, 0755) < 0)
		return -1;
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < ELEMENTS(control); i++) {
		CLEANUP_FD int f = openat(fd, control[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

		assert_true(f >= 0);
	}
	return 0;
}

static int fake_remove(int at, const char *name)
{
	CLEANUP_FD int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (size_t i = 0; fd >= 0 && i < ELEMENTS(control); i++)
		(void)unlinkat(fd, control[i], 0);
	return unlinkat(at, name, AT_REMOVEDIR);
}

static int fake_write(int at, const char *name, const char *text)
{
	CLEANUP_FD int fd = openat(at, name, O_WRONLY | O_APPEND | O_CLOEXEC);

	if (busy && strcmp(name, busy) == 0) {
		errno = EBUSY;
		return -1;
	}
	return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && write(fd, "\n", 1) == 1
		       ? 0
		       : -1;
}

static struct cgroup_world world(void)
{
	return (struct cgroup_world){.proc_cgroup = proc_file,
				     .mountinfo = mount_file,
				     .systemd = systemd,
				     .any_fs = true,
				     .make = fake_make,
				     .remove = fake_remove,
				     .write = fake_write};
}

static void control_file(const char *name, const char *text)
{
	CLEANUP_FREE char *path = path_join(group, name);

	put(path, text);
}

static int set_up(void **state)
{
	CLEANUP_FREE char *mounts = NULL, *cg = NULL;

	(void)state;
	(void)snprintf(dir, sizeof dir, "/tmp/sbxsv-cgroup-XXXXXX");
	assert_non_null(mkdtemp(dir));
	cg = path_join(dir, "cg");
	group = path_join(cg, "svc");
	proc_file = path_join(dir, "cgroup");
	mount_file = path_join(dir, "mountinfo");
	systemd = path_join(dir, "systemd");
	assert_int_equal(mkdir(cg, 0755), 0);
	assert_int_equal(mkdir(group, 0755), 0);
	put(proc_file, "0::/svc\n");
	mounts = xasprintf("36 35 0:30 / %s rw - cgroup2 cgroup rw\n", cg);
	put(mount_file, mounts);
	control_file("cgroup.controllers", "cpuset cpu memory pids\n");
	control_file("cgroup.type", "domain\n");
	control_file("cgroup.procs", "");
	control_file("cgroup.subtree_control", "");
	busy = NULL;
	return 0;
}

static int tear_down(void **state)
{
	CLEANUP_FREE char *command = xasprintf("rm -rf %s", dir);

	(void)state;
	assert_int_equal(system(command), 0);
	free(group);
	free(proc_file);
	free(mount_file);
	free(systemd);
	return 0;
}

static char *below(const struct cgroup_tree *t, const char *name)
{
	CLEANUP_FREE char *path = path_join(cgroup_base(t), name);

	return get(path);
}

static void test_divided(void **state)
{
	struct cgroup_world w = world();
	struct cgroup_tree *t = cgroup_open(&w, dir);
	CLEANUP_FREE char *own = get("cgroup.subtree_control"), *base = NULL, *leaf = NULL, *after = NULL;

	(void)state;
	assert_non_null(cgroup_base(t));
	assert_true(str_starts(cgroup_base(t), group));
	assert_int_equal(cgroup_has(t), CGROUP_ALL);
	assert_null(cgroup_why_not(t, CGROUP_CPU));
	assert_string_equal(own, "+memory\n+cpu\n+pids\n");
	base = below(t, "cgroup.subtree_control");
	leaf = below(t, "supervisor/cgroup.procs");
	assert_string_equal(base, own);
	assert_string_equal(leaf, "0\n"); /* we moved, before anything was enabled */
	cgroup_close(t);
	after = get("cgroup.subtree_control");
	assert_string_equal(after, "+memory\n+cpu\n+pids\n-memory\n-cpu\n-pids\n");
	free(TAKE_PTR(after));
	after = get("cgroup.procs");
	assert_string_equal(after, "0\n"); /* back */
}

/* The root of all groups has no cgroup.type, and may have processes beside groups: nobody moves. */
static void test_root(void **state)
{
	CLEANUP_FREE char *type = path_join(group, "cgroup.type"), *leaf = NULL;
	struct cgroup_world w = world();
	struct cgroup_tree *t;

	(void)state;
	assert_int_equal(unlink(type), 0);
	t = cgroup_open(&w, dir);
	assert_int_equal(cgroup_has(t), CGROUP_ALL);
	leaf = below(t, "supervisor/cgroup.procs");
	assert_string_equal(leaf, "(absent)");
	cgroup_close(t);
}

static void test_others_are_there(void **state)
{
	struct cgroup_world w = world();
	struct cgroup_tree *t;
	CLEANUP_FREE char *procs = NULL;

	(void)state;
	control_file("cgroup.procs", "1\n");
	busy = "cgroup.subtree_control";
	t = cgroup_open(&w, dir);
	assert_int_equal(cgroup_has(t), 0);
	assert_non_null(strstr(cgroup_why_not(t, CGROUP_MEMORY), "another process (pid 1) is in "));
	assert_non_null(cgroup_base(t)); /* groups without controllers still can be made */
	procs = get("cgroup.procs");
	assert_string_equal(procs, "1\n0\n"); /* we went back */
	cgroup_close(t);
}

static void test_some_controllers(void **state)
{
	struct cgroup_world w = world();
	struct cgroup_limits l = {.memory = 64 << 20, .cpu_percent = 50, .tasks = 9};
	struct cgroup_tree *t;
	unsigned set = 99;
	int fd;

	(void)state;
	control_file("cgroup.controllers", "memory\n");
	t = cgroup_open(&w, dir);
	assert_int_equal(cgroup_has(t), CGROUP_MEMORY);
	assert_non_null(strstr(cgroup_why_not(t, CGROUP_CPU), "the cpu controller is not there in "));
	fd = cgroup_group_make(t, "a", &l, &set, NULL);
	assert_true(fd >= 0);
	(void)close(fd);
	assert_int_equal(set, CGROUP_MEMORY);
	cgroup_close(t);
}

static void test_delegation(void **state)
{
	struct cgroup_world w = world();
	struct cgroup_tree *t;

	(void)state;
	put(systemd, ""); /* systemd runs, and has said nothing */
	t = cgroup_open(&w, dir);
	assert_null(cgroup_base(t));
	assert_int_equal(cgroup_has(t), 0);
	assert_non_null(strstr(cgroup_why_not(t, CGROUP_MEMORY), "Delegate=yes"));
	cgroup_close(t);
	assert_int_equal(setenv("SBXSV_DELEGATED", "1", 1), 0);
	t = cgroup_open(&w, dir);
	assert_int_equal(cgroup_has(t), CGROUP_ALL);
	cgroup_close(t);
	assert_int_equal(unsetenv("SBXSV_DELEGATED"), 0);
}

static void test_nowhere(void **state)
{
	struct cgroup_world w = world();
	struct cgroup_tree *t;

	(void)state;
	put(proc_file, "4:memory:/x\n");
	t = cgroup_open(&w, dir);
	assert_null(cgroup_base(t));
	assert_non_null(cgroup_why_not(t, CGROUP_PIDS));
	cgroup_close(t);
	put(proc_file, "0::/nosuch\n");
	t = cgroup_open(&w, dir);
	assert_null(cgroup_base(t));
	cgroup_close(t);
}

static void test_group(void **state)
{
	struct cgroup_world w = world();
	struct cgroup_tree *t = cgroup_open(&w, dir);
	struct cgroup_limits l = {.memory = 64 << 20, .cpu_percent = 150, .tasks = 9};
	struct cgroup_count c;
	CLEANUP_FREE char *memory = NULL, *cpu = NULL, *pids = NULL, *swap = NULL, *oom = NULL,
			  *killed = NULL;
	CLEANUP_FREE char *stat = path_join(cgroup_base(t), "app.a/cpu.stat"),
			  *current = path_join(cgroup_base(t), "app.a/memory.current"),
			  *mstat = path_join(cgroup_base(t), "app.a/memory.stat"),
			  *events = path_join(cgroup_base(t), "app.a/memory.events"),
			  *procs = path_join(cgroup_base(t), "app.a/cgroup.procs");
	unsigned set = 0;
	int fd = cgroup_group_make(t, "a", &l, &set, NULL);

	(void)state;
	assert_true(fd >= 0);
	(void)close(fd);
	assert_int_equal(set, CGROUP_ALL);
	memory = below(t, "app.a/memory.max");
	swap = below(t, "app.a/memory.swap.max");
	oom = below(t, "app.a/memory.oom.group");
	cpu = below(t, "app.a/cpu.max");
	pids = below(t, "app.a/pids.max");
	assert_string_equal(memory, "67108864\n");
	assert_string_equal(swap, "0\n");
	assert_string_equal(oom, "1\n");
	assert_string_equal(cpu, "150000 100000\n");
	assert_string_equal(pids, "9\n");
	put(stat, "usage_usec 1234\nuser_usec 1000\n");
	put(current, "5000\n");
	put(mstat, "anon 1\ninactive_file 2000\n");
	put(events, "oom 1\noom_kill 3\n");
	put(procs, "1\n2\n");
	cgroup_group_count(t, "a", &c);
	assert_int_equal(c.cpu_us, 1234);
	assert_int_equal(c.memory, 3000);
	assert_int_equal(c.oom, 1);
	assert_int_equal(c.oom_kills, 3);
	assert_int_equal(c.processes, 2);
	assert_true(cgroup_group_kill(t, "a"));
	killed = below(t, "app.a/cgroup.kill");
	assert_string_equal(killed, "1\n");
	assert_int_equal(cgroup_group_remove(t, "a"), 0);
	assert_false(cgroup_group_there(t, "a"));
	assert_false(cgroup_group_kill(t, "a"));
	cgroup_group_count(t, "a", &c);
	assert_true(c.cpu_us == UINT64_MAX && c.oom_kills == UINT64_MAX);
	cgroup_close(t);
}

/* A limit that cannot be set is no reason not to start. */
static void test_limit_refused(void **state)
{
	struct cgroup_world w = world();
	struct cgroup_tree *t = cgroup_open(&w, dir);
	struct cgroup_limits l = {.memory = 64 << 20, .cpu_percent = 50};
	CLEANUP_ERR struct err *e = NULL;
	unsigned set = 0;
	int fd;

	(void)state;
	busy = "cpu.max";
	fd = cgroup_group_make(t, "a", &l, &set, &e);
	assert_true(fd >= 0);
	(void)close(fd);
	assert_int_equal(set, CGROUP_MEMORY);
	assert_non_null(strstr(err_msg(e), "a: cpu.max of its control group"));
	cgroup_close(t);
}

/* What a killed supervisor left: its own tree at the same place, and one that only its record names. */
static void test_remains(void **state)
{
	struct cgroup_world w = world();
	CLEANUP_FREE char *tag = NULL, *left = NULL, *other = path_join(group, "sbxsv-00000000000000aa"),
			  *strange = path_join(group, "user.slice");
	CLEANUP_FD int at = open(group, O_RDONLY | O_DIRECTORY | O_CLOEXEC), in = -1;
	struct cgroup_tree *t;
	struct stat st;

	(void)state;
	assert_int_equal(stat(dir, &st), 0);
	tag = cgroup_tag(dir, st.st_dev, st.st_ino);
	assert_int_equal(fake_make(at, tag), 0);
	in = openat(at, tag, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(fake_make(in, "app.old"), 0);
	assert_int_equal(fake_make(at, path_basename(other)), 0);
	assert_int_equal(fake_make(at, path_basename(strange)), 0);
	t = cgroup_open(&w, dir);
	left = below(t, "app.old/cgroup.procs");
	assert_string_equal(left, "(absent)");
	cgroup_reap(t, strange, 0);
	assert_int_equal(access(strange, F_OK), 0);
	cgroup_reap(t, other, 0);
	assert_int_not_equal(access(other, F_OK), 0);
	cgroup_reap(t, NULL, 0);
	cgroup_close(t);
}

static void test_trial_leaves_nothing(void **state)
{
	struct cgroup_world w = world();
	struct cgroup_tree *t = cgroup_try(&w);
	CLEANUP_FREE char *base = xstrdup(cgroup_base(t));

	(void)state;
	assert_int_equal(cgroup_has(t), CGROUP_ALL);
	assert_int_equal(access(base, F_OK), 0);
	cgroup_close(t);
	assert_int_not_equal(access(base, F_OK), 0);
}

static void test_missing(void **state)
{
	struct unit u = {.limit_memory = 64 << 20, .limit_cpu_percent = 50, .limit_tasks = 5};
	const char *why[3] = {"m", "c", "p"};
	CLEANUP_STRV struct strv all = {0}, some = {0}, none = {0};

	(void)state;
	limits_missing(&u, false, 0, why, &all);
	assert_int_equal(all.n, 3);
	assert_string_equal(
		all.v[0], "Memory=64M holds for each process by itself here, not for the app as a whole: m");
	assert_string_equal(all.v[1], "CPU=50% is not enforced here: c");
	limits_missing(&u, true, CGROUP_CPU, why, &some);
	assert_int_equal(some.n, 1);
	limits_missing(&u, false, CGROUP_ALL, why, &none);
	assert_int_equal(none.n, 0);
}

#define TREE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_path_of),
		cmocka_unit_test(test_directory_of),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_tag),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_missing),
		TREE(test_divided),
		TREE(test_root),
		TREE(test_others_are_there),
		TREE(test_some_controllers),
		TREE(test_delegation),
		TREE(test_nowhere),
		TREE(test_group),
		TREE(test_limit_refused),
		TREE(test_remains),
		TREE(test_trial_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
