/* usage: real process trees. */
#include "base/fd.h"
#include "monitor/usage.h"
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <cmocka.h>

static void say(int fd)
{
	(void)!write(fd, "x", 1);
}

static void *fork_from_a_thread(void *arg)
{
	if (fork() == 0) {
		(void)prctl(PR_SET_NAME, ") 1 2 (", 0, 0, 0); /* a name that looks like fields */
		say(*(int *)arg);
		for (;;)
			(void)pause();
	}
	for (;;)
		(void)pause();
	return NULL;
}

/* root -> child that holds 32 MB and burned some CPU -> grandchild, made by a second thread. */
static void tree(int fd)
{
	if (fork() == 0) {
		size_t n = 32 << 20;
		char *mem = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		volatile uint64_t spin = 0;
		struct timespec t;
		pthread_t th;

		memset(mem, 1, n);
		do {
			for (int i = 0; i < 1000000; i++)
				spin += (uint64_t)i;
			(void)spin;
			(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
		} while (t.tv_sec == 0 && t.tv_nsec < 200000000);
		(void)pthread_create(&th, NULL, fork_from_a_thread, &fd);
		for (;;)
			(void)pause();
	}
	for (;;)
		(void)pause();
}

static void test_a_tree_is_summed(void **state)
{
	struct usage before, u;
	int ends[2];
	char c;
	pid_t pid;

	(void)state;
	assert_int_equal(usage_read(getpid(), &before), 0);
	assert_int_equal(before.processes, 1);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		(void)setpgid(0, 0);
		(void)alarm(60);
		tree(ends[1]);
	}
	(void)close(ends[1]);
	assert_int_equal(read(ends[0], &c, 1), 1);
	assert_int_equal(usage_read(pid, &u), 0);
	assert_int_equal(u.processes, 3);
	assert_true(u.rss_bytes > 32u << 20 && u.rss_bytes < 400u << 20);
	assert_in_range(u.cpu_ms, 150, 20000);
	assert_int_equal(kill(-pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	(void)close(ends[0]);
	assert_int_equal(usage_read(pid, &u), -1);
	assert_int_equal(u.processes, 3); /* untouched */
	assert_int_equal(usage_read(0, &u), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_tree_is_summed)};

	return cmocka_run_group_tests_name("usage", tests, NULL, NULL);
}
