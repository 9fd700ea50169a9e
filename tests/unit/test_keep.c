/* What a process keeps over an exec: everything comes back as it was, and what is damaged is refused and never believed. */
#include "base/keep.h"
#include "unit/unit.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

struct sample {
	bool yes, no;
	int number;
	unsigned big;
	uint16_t port;
	int64_t far;
	uint64_t huge;
	char *text, *bytes, *none;
	struct strv list;
	int fd, absent;
};
static const struct keep_field fields[] = {
	KEEP(sample, BOOL, yes),  KEEP(sample, BOOL, no),   KEEP(sample, INT, number),
	KEEP(sample, UINT, big),  KEEP(sample, U16, port),  KEEP(sample, I64, far),
	KEEP(sample, U64, huge),  KEEP(sample, TEXT, text), KEEP(sample, TEXT, bytes),
	KEEP(sample, TEXT, none), KEEP(sample, STRV, list), KEEP(sample, FD, fd),
	KEEP(sample, FD, absent),
};

static void sample_finish(struct sample *s)
{
	free(s->text);
	free(s->bytes);
	strv_clear(&s->list);
}

static int written(struct sample *s)
{
	CLEANUP_KEEP struct keep *k = keep_create();
	struct js *root = js_obj();
	int fd;

	keep_save(k, root, fields, ELEMENTS(fields), s);
	fd = keep_write(k, root, NULL);
	assert_true(fd >= 0);
	return fd;
}

static void test_everything_comes_back(void **state)
{
	char text[] = "a \"quoted\" text", bytes[] = "caf\xe9 \xff\x01";
	struct sample s = {.yes = true,
			   .number = -7,
			   .big = UINT32_MAX,
			   .port = 65535,
			   .far = INT64_C(1) << 52,
			   .huge = UINT64_MAX,
			   .text = text,
			   .bytes = bytes,
			   .fd = open("/dev/null", O_RDONLY | O_CLOEXEC),
			   .absent = -1};
	struct sample got = {0};
	CLEANUP_KEEP struct keep *k = NULL;
	int memfd;

	(void)state;
	strv_add(&s.list, "one");
	strv_add(&s.list, "");
	strv_add(&s.list, "caf\xe9");
	memfd = written(&s);
	k = keep_open(memfd, false, NULL);
	assert_non_null(k);
	keep_load(k, keep_root(k), fields, ELEMENTS(fields), &got);
	assert_false(keep_error(k, NULL));
	assert_true(got.yes && !got.no);
	assert_int_equal(got.number, s.number);
	assert_int_equal(got.big, s.big);
	assert_int_equal(got.port, s.port);
	assert_true(got.far == s.far && got.huge == s.huge);
	assert_string_equal(got.text, text);
	assert_string_equal(got.bytes, bytes);
	assert_null(got.none);
	assert_true(strv_eq(&got.list, &s.list));
	assert_int_equal(got.fd, s.fd);
	assert_int_equal(got.absent, -1);
	assert_int_equal(keep_close_rest(k), 0);
	sample_finish(&got);
	strv_clear(&s.list);
	(void)close(s.fd);
	(void)close(memfd);
}

/* A descriptor has one owner; in a rehearsal it is another one. */
static void test_descriptors(void **state)
{
	struct sample s = {.fd = open("/dev/null", O_RDONLY | O_CLOEXEC), .absent = -1};
	CLEANUP_KEEP struct keep *k = NULL;
	CLEANUP_ERR struct err *e = NULL;
	int memfd = written(&s), got;

	(void)state;
	k = keep_open(memfd, true, NULL);
	got = keep_take_fd(k, keep_root(k), "fd");
	assert_true(got >= 0 && got != s.fd);
	assert_false(keep_error(k, NULL));
	assert_int_equal(keep_take_fd(k, keep_root(k), "fd"), -1);
	assert_true(keep_error(k, &e));
	assert_non_null(strstr(err_msg(e), "taken already"));
	assert_null(keep_get_text(k, keep_root(k),
				  "text")); /* after the first thing that is wrong all is absent */
	assert_int_equal(fcntl(s.fd, F_GETFD), FD_CLOEXEC);
	(void)close(got);
	(void)close(s.fd);
	(void)close(memfd);
}

static struct keep *opened(const char *text, size_t len, struct err **e)
{
	int fd = memfd_create("test", MFD_CLOEXEC);
	struct keep *k;

	assert_true(write(fd, text, len) == (ssize_t)len);
	k = keep_open(fd, true, e);
	(void)close(fd);
	return k;
}

static void test_damage_is_refused(void **state)
{
	static const char *const bad[] = {
		"x",
		"sbxsv-handover 1",
		"sbxsv-handover 1 0\n",
		"sbxsv-handover 1 1\n",
		"sbxsv-handover 1 1\n2\n{}",
		"sbxsv-handover 1 1\n99999999999999999999\n{}\n",
		"sbxsv-handover 1 2\n2\n{}\n",
		"sbxsv-handover 1 4294967295\n2\n{}\n",
		"sbxsv-handover 1 1\n2\n{}\n",             /* no list of descriptors */
		"sbxsv-handover 1 1\n11\n{\"fds\":[2]}\n", /* stderr is not ours to take */
		"sbxsv-handover 1 1\n13\n{\"fds\":[9,9]}\n",
		"sbxsv-handover 1 1\n12\n{\"fds\":[-1]}\n",
		"sbxsv-handover 1 1\n12\n{\"fds\":\"9\"} \n",
	};
	CLEANUP_ERR struct err *e = NULL;
	struct keep *k;

	(void)state;
	for (size_t i = 0; i < ELEMENTS(bad); i++) {
		assert_null(opened(bad[i], strlen(bad[i]), &e));
		assert_non_null(e);
	}
	assert_null(opened("sbxsv-handover 2 1\n10\n{\"fds\":[]}\n", 34, &e));
	assert_non_null(strstr(err_msg(e), "version 2"));
	k = opened("sbxsv-handover 1 1\n10\n{\"fds\":[]}\n", 34, &e);
	assert_non_null(k);
	keep_destroy(k);
}

/* Whatever single byte is another one: it reads something, or says what is wrong. */
static void test_each_byte(void **state)
{
	char text[] = "text";
	struct sample s = {.number = 5, .text = text, .huge = UINT64_MAX, .fd = -1, .absent = -1};
	int memfd = written(&s);
	char buf[4096];
	ssize_t n = pread(memfd, buf, sizeof buf, 0);

	(void)state;
	assert_true(n > 0);
	for (ssize_t i = 0; i < n; i++) {
		for (int v = 0; v < 256; v += 7) {
			CLEANUP_ERR struct err *e = NULL;
			CLEANUP_KEEP struct keep *k = NULL;
			struct sample got = {0};
			char was = buf[i];

			buf[i] = (char)v;
			k = opened(buf, (size_t)n, &e);
			buf[i] = was;
			if (!k)
				continue;
			keep_load(k, keep_root(k), fields, ELEMENTS(fields), &got);
			(void)keep_close_rest(k);
			sample_finish(&got);
		}
	}
	(void)close(memfd);
}

/* --- units --- */

static const char unit_text[] =
	"[App]\nDescription=caf\xc3\xa9\nExec=/bin/sh -c 'echo \"a b\"; sleep "
	"1'\nWorkingDirectory=/srv/notes\n"
	"DataDirectory=/srv/data\nEnvironment=A=1 B=\"two words\"\nEnabled=no\nAfter=db\nRequires=db cache\n"
	"[Restart]\nPolicy=always\nSec=1s\nSuccessExitStatus=3 "
	"7\n[Stop]\nSignal=INT\n[Ready]\nType=http\nPath=/ready\n"
	"[Sandbox]\nRead=/srv/shared\nHide=-/srv/shared/"
	"x\n[Network]\nListen=4810\nListen=4811:80\nLoopback=5432 app:db\n"
	"Allow=example.com "
	"*.example.org:8443\nDeny=bad.example.org\nAllowAddress=10.0.0.1:5432\nSniPolicy=off\n"
	"[Limits]\nTasks=50\nNice=5\n[Health]\nHttp=/health\nRetries=7\n[Log]\nMaxSize=1M\nTimestamps=yes\n"
	"[Needs]\nBin=sh\nNode=>=18\n[Prepare]\nExec=make "
	"all\nFiles=/srv/notes/package.json\n[Audit]\nViolations=all\n";

static void test_a_unit_comes_back(void **state)
{
	char none[] = "", home[] = "/home/ann";
	struct unit_dirs dirs = {.config = none,
				 .apps = none,
				 .state = none,
				 .runtime = none,
				 .profiles = none,
				 .home = home,
				 .state_home = none,
				 .runtime_home = none};
	struct unit_problems p = {0};
	CLEANUP_UNIT struct unit *u =
		unit_parse_buffer(&dirs, "notes", "notes.app", unit_text, strlen(unit_text), &p);
	CLEANUP_UNIT struct unit *got = NULL;
	CLEANUP_FREE char *text = unit_problems_text(&p);
	CLEANUP_KEEP struct keep *k = keep_create(), *r = NULL;
	struct js *root = js_obj();
	int fd;

	(void)state;
	if (!u)
		print_error("%s", text);
	assert_non_null(u);
	js_add(root, "unit", unit_save(k, u));
	fd = keep_write(k, root, NULL);
	r = keep_open(fd, true, NULL);
	got = unit_restore(r, js_get(keep_root(r), "unit"));
	assert_false(keep_error(r, NULL));
	assert_int_equal(unit_diff(u, got), 0);
	assert_string_equal(got->name, "notes");
	assert_string_equal(got->description, "caf\xc3\xa9");
	assert_true(got->enabled == u->enabled && got->n_listen == 2 && got->listen[1].host_port == 4811);
	assert_string_equal(got->listen[1].origin, u->listen[1].origin);
	assert_string_equal(got->allow.v[1].origin, u->allow.v[1].origin);
	assert_string_equal(got->exec_origin, u->exec_origin);
	assert_true(strv_eq(&got->not_in_force, &u->not_in_force));
	(void)close(fd);
	unit_problems_clear(&p);
}

static void test_an_unknown_key_is_refused(void **state)
{
	CLEANUP_KEEP struct keep *k = keep_create(), *r = NULL;
	CLEANUP_ERR struct err *e = NULL;
	struct js *root = js_obj(), *unit = js_obj(), *keys = js_obj();
	int fd;

	(void)state;
	js_add_str(unit, "name", "notes");
	js_add_str(unit, "file", "notes.app");
	js_add(keys, "Sandbox.Quantum", js_obj());
	js_add(unit, "keys", keys);
	js_add(root, "unit", unit);
	fd = keep_write(k, root, NULL);
	r = keep_open(fd, true, NULL);
	unit_free(unit_restore(r, js_get(keep_root(r), "unit")));
	assert_true(keep_error(r, &e));
	assert_non_null(strstr(err_msg(e), "Sandbox.Quantum"));
	(void)close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_everything_comes_back),
		cmocka_unit_test(test_descriptors),
		cmocka_unit_test(test_damage_is_refused),
		cmocka_unit_test(test_each_byte),
		cmocka_unit_test(test_a_unit_comes_back),
		cmocka_unit_test(test_an_unknown_key_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
