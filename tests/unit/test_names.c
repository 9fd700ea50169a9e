/* The map of names and addresses: stable, bounded, and whole whatever is found in the shared memory. */
#include "proxy/names.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/wire.h"
#include <arpa/inet.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* The clock stands still but for what a test adds (linked with --wrap). */
static int64_t now_ms = 1000000;
int64_t __wrap_clk_mono_ms(void);
int64_t __wrap_clk_mono_ms(void)
{
	return now_ms;
}

static int memory(void)
{
	int fd = memfd_create("names", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, WIRE_NAMES_BYTES), 0);
	return fd;
}

static struct names *open_copy(int fd)
{
	struct names *n = names_open(dup(fd), NULL);

	assert_non_null(n);
	return n;
}

static struct in_addr assign(struct names *n, const char *host)
{
	struct in_addr a = {0};

	assert_int_equal(names_assign(n, host, &a), 0);
	return a;
}

static struct in_addr assign_number(struct names *n, unsigned i)
{
	char host[32];

	(void)snprintf(host, sizeof host, "h%u.x.com", i);
	return assign(n, host);
}

static struct in_addr ip(const char *text)
{
	struct in_addr a;

	assert_int_equal(inet_pton(AF_INET, text, &a), 1);
	return a;
}

static void assert_name(const struct names *n, struct in_addr a, const char *host)
{
	const char *found = names_find(n, a);

	if (!host)
		assert_null(found);
	else
		assert_string_equal(found ? found : "(none)", host);
}

static void test_stable(void **state)
{
	int fd = memory();
	struct names *n = open_copy(fd);
	struct in_addr x, y;

	(void)state;
	x = assign(n, "x.com");
	y = assign(n, "y.com");
	assert_int_equal(x.s_addr, ip("198.18.1.0").s_addr);
	assert_int_not_equal(x.s_addr, y.s_addr);
	assert_int_equal(assign(n, "x.com").s_addr, x.s_addr);
	assert_name(n, x, "x.com");
	assert_name(n, y, "y.com");
	names_close(n);

	n = open_copy(fd); /* the next proxy */
	assert_name(n, x, "x.com");
	assert_int_equal(assign(n, "y.com").s_addr, y.s_addr);
	assert_int_equal(assign(n, "x.com").s_addr, x.s_addr);
	assert_int_not_equal(assign(n, "z.com").s_addr, x.s_addr);
	names_close(n);
	close(fd);
}

static void test_not_given_out(void **state)
{
	static const char *const none[] = {"198.18.0.0",  "198.18.0.1",      "198.18.0.255", "198.18.1.1",
					   "198.18.17.0", "198.19.255.255",  "198.20.0.0",   "198.17.255.255",
					   "0.0.0.0",     "255.255.255.255", "127.0.0.1",    "11.2.0.10"};
	struct names *n = names_open(-1, NULL);

	(void)state;
	assert_non_null(n);
	assert_name(n, ip("198.18.1.0"), NULL);
	(void)assign(n, "x.com");
	for (size_t i = 0; i < ELEMENTS(none); i++) {
		assert_name(n, ip(none[i]), NULL);
		names_hold(n, ip(none[i]));
		names_release(n, ip(none[i]));
	}
	names_close(n);
	names_close(NULL);
}

static void test_is_fake(void **state)
{
	static const struct {
		const char *text;
		bool fake;
	} cases[] = {{"198.18.0.1", true},  {"198.18.1.0", true},      {"198.19.255.255", true},
		     {"198.20.0.0", false}, {"198.17.255.255", false}, {"1.1.1.1", false},
		     {"::1", false},        {"c612:100::", false},     {"::ffff:198.18.1.0", true}};
	struct addr a;

	(void)state;
	for (size_t i = 0; i < ELEMENTS(cases); i++) {
		assert_int_equal(host_parse_addr(cases[i].text, strlen(cases[i].text), &a), 0);
		assert_int_equal(names_is_fake(&a), cases[i].fake);
	}
}

/* 4,096 names; the next needs one that was not used for twice the time to live, the oldest first. */
static void test_full(void **state)
{
	struct names *n = names_open(-1, NULL);
	struct in_addr a, first, second;

	(void)state;
	first = assign_number(n, 0);
	now_ms += 1000;
	second = assign_number(n, 1);
	for (unsigned i = 2; i < NAMES_MAX; i++)
		(void)assign_number(n, i);
	assert_int_equal(names_assign(n, "new.x.com", &a), -1);
	assert_int_equal(assign_number(n, 0).s_addr, first.s_addr); /* used: now the youngest */

	now_ms += 2 * NAMES_TTL_S * 1000 - 1;
	assert_int_equal(names_assign(n, "new.x.com", &a), -1);
	now_ms += 1;
	a = assign(n, "new.x.com");
	assert_name(n, second, NULL); /* refused from now on, and never another host */
	assert_name(n, a, "new.x.com");
	assert_name(n, first, "h0.x.com");
	assert_int_not_equal(a.s_addr, second.s_addr);
	names_close(n);
}

static void test_held(void **state)
{
	struct names *n = names_open(-1, NULL);
	struct in_addr v[NAMES_MAX], a;

	(void)state;
	for (unsigned i = 0; i < NAMES_MAX; i++) {
		v[i] = assign_number(n, i);
		names_hold(n, v[i]);
		names_hold(n, v[i]);
	}
	now_ms += 1000000;
	assert_int_equal(names_assign(n, "new.x.com", &a), -1);
	names_release(n, v[7]);
	assert_int_equal(names_assign(n, "new.x.com", &a), -1);
	names_release(n, v[7]);
	assert_int_equal(names_assign(n, "new.x.com", &a), -1); /* its time begins when it is released */
	now_ms += 2 * NAMES_TTL_S * 1000;
	a = assign(n, "new.x.com");
	assert_name(n, v[7], NULL);
	names_release(n, v[7]); /* no pair: nothing */
	for (unsigned i = 0; i < NAMES_MAX; i++)
		if (i != 7)
			assert_int_equal(assign_number(n, i).s_addr, v[i].s_addr);
	names_close(n);
}

/* A hundred thousand names, as fast as the rules let them in: no address leads to two of them in a short time. */
static void test_churn(void **state)
{
	struct names *n = names_open(-1, NULL);
	struct in_addr a = {0}, kept = assign(n, "kept.x.com");
	unsigned got = 0;

	(void)state;
	names_hold(n, kept);
	for (unsigned i = 0; i < 100000; i++) {
		char host[32];

		(void)snprintf(host, sizeof host, "h%u.x.com", i);
		now_ms += 5;
		if (names_assign(n, host, &a) < 0)
			continue;
		got++;
		assert_name(n, a, host);
	}
	assert_name(n, kept, "kept.x.com");
	/* 500 s at one slot in 60 s each */
	assert_in_range(got, NAMES_MAX, NAMES_MAX * (500 / 60 + 2));
	names_close(n);
}

/* --- what may be found in the memory --- */

static void test_too_small(void **state)
{
	CLEANUP_ERR struct err *e = NULL;
	int fd = memfd_create("names", MFD_CLOEXEC);

	(void)state;
	assert_null(names_open(dup(fd), &e));
	assert_non_null(strstr(err_msg(e), "0 bytes"));
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_null(names_open(fd, NULL));
}

/* Where the bytes of the entries begin, found and not known. */
static size_t find_text(const uint8_t *m, const char *text)
{
	const uint8_t *p = memmem(m, WIRE_NAMES_BYTES, text, strlen(text));

	assert_non_null(p);
	return (size_t)(p - m);
}

/* Every prefix of the bytes that replacing a name writes, front to back and back to front: the others are there,
 * the replaced one is what it was, what it is to be, or not there. */
static void test_torn(void **state)
{
	int fd = memory(), copy = memory();
	uint8_t *m = mmap(NULL, WIRE_NAMES_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, copy, 0);
	CLEANUP_FREE uint8_t *before = xmalloc(WIRE_NAMES_BYTES), *after = xmalloc(WIRE_NAMES_BYTES);
	struct names *n = open_copy(fd);
	struct in_addr old = assign(n, "a-rather-long-name.example.com"),
		       other = assign(n, "other.example.com"), new;
	size_t low = WIRE_NAMES_BYTES, high = 0;

	(void)state;
	for (unsigned i = 2; i < NAMES_MAX; i++)
		(void)assign_number(n, i);
	assert_int_equal(pread(fd, before, WIRE_NAMES_BYTES, 0), WIRE_NAMES_BYTES);
	now_ms += 1000000;
	new = assign(n, "new.example.com");
	assert_name(n, old, NULL);
	assert_int_equal(pread(fd, after, WIRE_NAMES_BYTES, 0), WIRE_NAMES_BYTES);
	names_close(n);
	for (size_t i = 0; i < WIRE_NAMES_BYTES; i++)
		if (before[i] != after[i]) {
			low = i < low ? i : low;
			high = i + 1;
		}
	assert_in_range(high - low, 16, 300);
	for (unsigned backwards = 0; backwards < 2; backwards++)
		for (size_t cut = low; cut <= high; cut++) {
			const char *is_old, *is_new;

			memcpy(m, backwards ? after : before, WIRE_NAMES_BYTES);
			memcpy(m + low, (backwards ? before : after) + low, cut - low);
			n = open_copy(copy);
			is_old = names_find(n, old);
			is_new = names_find(n, new);
			assert_false(is_old && is_new);
			if (is_old)
				assert_string_equal(is_old, "a-rather-long-name.example.com");
			if (is_new)
				assert_string_equal(is_new, "new.example.com");
			assert_name(n, other, "other.example.com");
			now_ms += 1000000;
			assert_name(n, assign(n, "again.example.com"), "again.example.com");
			names_close(n);
		}
	munmap(m, WIRE_NAMES_BYTES);
	close(fd);
	close(copy);
}

static void test_damage(void **state)
{
	int fd = memory();
	uint8_t *m = mmap(NULL, WIRE_NAMES_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct names *n = open_copy(fd);
	struct in_addr a[3] = {assign(n, "a0.example.com"), assign(n, "a1.example.com"),
			       assign(n, "a2.example.com")};
	size_t at, stride;

	(void)state;
	names_close(n);
	at = find_text(m, "a1.example.com");
	stride = find_text(m, "a2.example.com") - at;
	m[at] = 'b'; /* the checksum does not fit */
	n = open_copy(fd);
	assert_name(n, a[0], "a0.example.com");
	assert_name(n, a[1], NULL);
	assert_name(n, a[2], "a2.example.com");
	names_close(n);

	m[at] = 'a';
	memcpy(m + at + stride - 64, m + at - 64, stride); /* an entry at another's place */
	n = open_copy(fd);
	assert_name(n, a[0], "a0.example.com");
	assert_name(n, a[2], NULL);
	assert_string_equal(names_find(n, assign(n, "a1.example.com")), "a1.example.com");
	assert_string_equal(names_find(n, assign(n, "a2.example.com")), "a2.example.com");
	names_close(n);

	memset(m, 0xff, WIRE_NAMES_BYTES); /* no map at all */
	n = open_copy(fd);
	assert_name(n, a[0], NULL);
	assert_name(n, assign(n, "a5.example.com"), "a5.example.com");
	names_close(n);
	n = open_copy(fd);
	assert_name(n, ip("198.18.1.0"), "a5.example.com");
	names_close(n);
	munmap(m, WIRE_NAMES_BYTES);
	close(fd);
}

struct said { /* a name that was told to somebody */
	unsigned number;
	struct in_addr a;
};

static _Noreturn void assign_until_killed(int fd, int out)
{
	struct names *n = names_open(fd, NULL);

	for (unsigned i = 0;; i = (i + 1) % 3000) {
		char host[64];
		struct said s = {.number = i};

		(void)snprintf(host, sizeof host, "a-name-that-takes-some-time-%u.x.com", i);
		if (!n || names_assign(n, host, &s.a) < 0 || write(out, &s, sizeof s) != sizeof s)
			_exit(1);
	}
}

/* A real kill at any moment: what was told before it holds after it. */
static void test_killed(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 60; round++) {
		int fd = memory(), pipe_fd[2];
		struct said s;
		struct names *n;
		pid_t child;

		assert_int_equal(pipe(pipe_fd), 0);
		child = fork();
		if (child == 0)
			assign_until_killed(fd, pipe_fd[1]);
		close(pipe_fd[1]);
		for (unsigned i = 0; i < 1 + round * round; i++) /* each round lets it come further */
			assert_int_equal(read(pipe_fd[0], &s, sizeof s), sizeof s);
		kill(child, SIGKILL);
		assert_int_equal(waitpid(child, NULL, 0), child);
		n = open_copy(fd);
		do {
			char host[64];

			(void)snprintf(host, sizeof host, "a-name-that-takes-some-time-%u.x.com", s.number);
			assert_name(n, s.a, host);
		} while (read(pipe_fd[0], &s, sizeof s) == sizeof s);
		names_close(n);
		close(pipe_fd[0]);
		close(fd);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stable),    cmocka_unit_test(test_not_given_out),
		cmocka_unit_test(test_is_fake),   cmocka_unit_test(test_full),
		cmocka_unit_test(test_held),      cmocka_unit_test(test_churn),
		cmocka_unit_test(test_torn),      cmocka_unit_test(test_damage),
		cmocka_unit_test(test_too_small), cmocka_unit_test(test_killed),
	};

	return cmocka_run_group_tests_name("names", tests, NULL, NULL);
}
