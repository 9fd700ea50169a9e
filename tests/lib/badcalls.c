/*
 * badcalls: a program that makes calls nobody sane makes, while each of them is looked at. For tests/it/test_observer.py.
 *
 *   badcalls rewrite GOOD BAD N   one thread exchanges the path, another opens it; prints how often BAD could be read
 *   badcalls pointers FILE        paths that are not there, end at a hole, or are a megabyte long; prints the errnos
 *   badcalls die N DIR            children that end while threads of theirs are in a call
 *   badcalls flood PATH N         opens PATH N times; PATH with a %ld is another one each time
 *   badcalls latency PATH N       opens PATH N times; prints the longest time of one in ms
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char shared[4096];
static const char *good, *bad;
static atomic_bool over;

static void *exchange(void *unused)
{
	(void)unused;
	while (!atomic_load(&over)) {
		memcpy(shared, good, strlen(good) + 1);
		memcpy(shared, bad, strlen(bad) + 1);
	}
	return NULL;
}

/* The good file begins with 'g', the bad one with 'b'. */
static int rewrite(long n)
{
	long bads = 0, goods = 0;
	pthread_t t;

	if (pthread_create(&t, NULL, exchange, NULL) != 0)
		return 1;
	for (long i = 0; i < n; i++) {
		int fd = open(shared, O_RDONLY | O_CLOEXEC);
		char c = 0;

		if (fd < 0)
			continue;
		if (read(fd, &c, 1) == 1)
			*(c == 'b' ? &bads : &goods) += 1;
		(void)close(fd);
	}
	atomic_store(&over, true);
	(void)pthread_join(t, NULL);
	printf("bad %ld good %ld\n", bads, goods);
	return 0;
}

static void try(const char *what, long r)
{
	printf("%s %s\n", what, r < 0 ? strerrorname_np(errno) : "ok");
}

static int pointers(const char *file)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), million = 1u << 20;
	char *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *end = two + page, *huge = malloc(million + 1);
	const long odd[] = {0, 1, -1, -4096, 0x7fffffffffff, (long)(1ul << 63), (long)end};
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	int s = socketpair(AF_UNIX, SOCK_STREAM, 0, (int[2]){0, 0});

	if (two == MAP_FAILED || !huge)
		return 1;
	(void)munmap(end, page);
	for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
		try("openat", syscall(SYS_openat, AT_FDCWD, odd[i], O_RDONLY));
		try("openat2", syscall(437, AT_FDCWD, odd[i], odd[i], 24));
		try("renameat2", syscall(SYS_renameat2, AT_FDCWD, odd[i], 12345, odd[i], 0));
		try("linkat", syscall(SYS_linkat, -1, odd[i], 99999, odd[i], 0));
		try("execve", syscall(SYS_execve, odd[i], odd[i], odd[i]));
		try("connect", syscall(SYS_connect, 0, odd[i], 110));
		try("connect", syscall(SYS_connect, 99999, odd[i], 0xffffffff));
		try("mkdirat", syscall(SYS_mkdirat, -100, odd[i], 0700));
	}
	memset(end - 5, 'a', 5); /* no end before the hole */
	try("hole", open(end - 5, O_RDONLY));
	memcpy(end - strlen(file) - 1, file, strlen(file) + 1); /* ends just before it */
	try("border", open(end - strlen(file) - 1, O_RDONLY));
	memset(huge, 'a', million);
	huge[0] = '/';
	huge[million] = 0;
	try("huge", open(huge, O_RDONLY));
	for (size_t i = 1; i < million; i += 2)
		huge[i] = '/';
	try("slashes", open(huge, O_RDONLY));
	huge[4095] = 0;
	try("longest", open(huge, O_RDONLY));
	try("empty", open("", O_RDONLY));
	try("dirfd", openat(99999, "x", O_RDONLY));
	try("socket", openat(s, "x", O_RDONLY));
	memset(sun.sun_path, 'a', sizeof sun.sun_path);
	try("unix", connect(0, (struct sockaddr *)&sun, sizeof sun));
	try("unix", connect(0, (struct sockaddr *)&sun, 2));
	try("unix", connect(0, (struct sockaddr *)&sun, 1));
	free(huge);
	return 0;
}

static void *insist(void *path)
{
	for (;;) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		if (fd >= 0)
			(void)close(fd);
	}
	return NULL;
}

static int die(long n, char *dir)
{
	for (long i = 0; i < n; i++) {
		pid_t pid = fork();
		pthread_t t;

		if (pid == 0) {
			for (int k = 0; k < 4; k++)
				(void)pthread_create(&t, NULL, insist, dir);
			(void)usleep((useconds_t)(i % 17) * 100);
			if (i % 3 == 0)
				_exit(0);
			if (i % 3 == 1)
				(void)raise(SIGKILL);
			(void)execl("/bin/true", "true", (char *)NULL);
			_exit(1);
		}
		if (pid < 0 || waitpid(pid, NULL, 0) != pid)
			return 1;
	}
	printf("done\n");
	return 0;
}

static int flood(const char *path, long n)
{
	char name[4096];
	const char *mark = strstr(path, "%ld");

	for (long i = 0; i < n; i++) {
		if (mark)
			(void)snprintf(name, sizeof name, "%.*s%ld%s", (int)(mark - path), path, i, mark + 3);
		if (open(mark ? name : path, O_RDONLY | O_CLOEXEC) >= 0)
			return 1;
	}
	printf("flooded %ld\n", n);
	return 0;
}

static int latency(const char *path, long n)
{
	double longest = 0;

	for (long i = 0; i < n; i++) {
		struct timespec a, b;
		double ms;
		int fd;

		(void)clock_gettime(CLOCK_MONOTONIC, &a);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		(void)clock_gettime(CLOCK_MONOTONIC, &b);
		if (fd >= 0)
			(void)close(fd);
		ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
		longest = ms > longest ? ms : longest;
		(void)usleep(1000);
	}
	printf("longest %.0f\n", longest);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";

	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 5 && strcmp(what, "rewrite") == 0) {
		good = argv[2];
		bad = argv[3];
		return rewrite(atol(argv[4]));
	}
	if (argc == 3 && strcmp(what, "pointers") == 0)
		return pointers(argv[2]);
	if (argc == 4 && strcmp(what, "die") == 0)
		return die(atol(argv[2]), argv[3]);
	if (argc == 4 && strcmp(what, "flood") == 0)
		return flood(argv[2], atol(argv[3]));
	if (argc == 4 && strcmp(what, "latency") == 0)
		return latency(argv[2], atol(argv[3]));
	return 2;
}
