/* The same by lsof(8), where sock_diag or /proc/PID/fd is missing: a child with a hard time limit. */
#include "ports/internal.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define LSOF_MS        2000
#define LSOF_MAX_BYTES (256u << 10)

static pid_t spawn_lsof(char *const argv[], int out, struct err **e)
{
	static char path[] = "PATH=/usr/bin:/usr/sbin:/bin:/sbin:/usr/local/bin", locale[] = "LC_ALL=C";
	char *const env[] = {path, locale, NULL};
	static const char *const places[] = {"/usr/bin/lsof", "/usr/sbin/lsof", "/usr/local/bin/lsof", NULL};
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t at;
	sigset_t none;
	pid_t pid = -1;
	int r = ENOENT;

	(void)posix_spawn_file_actions_init(&fa);
	(void)posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	(void)posix_spawn_file_actions_adddup2(&fa, out, 1);
	(void)posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", O_WRONLY, 0);
	(void)posix_spawnattr_init(&at);
	(void)sigemptyset(&none);
	(void)posix_spawnattr_setsigmask(&at, &none);
	(void)posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSIGMASK);
	for (const char *const *p = places; *p && r; p++)
		r = posix_spawn(&pid, *p, &fa, &at, argv, env);
	(void)posix_spawnattr_destroy(&at);
	(void)posix_spawn_file_actions_destroy(&fa);
	if (r) {
		(void)err_sys(e, r, "lsof (install it: package lsof)");
		return -1;
	}
	return pid;
}

/* Reads until EOF or the deadline. */
static int collect(int fd, int64_t deadline, struct strbuf *out, struct err **e)
{
	char chunk[4096];

	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int64_t left = deadline - clk_mono_ms();
		int r = left > 0 ? poll(&p, 1, (int)left) : 0;
		ssize_t n;

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return err_set(e, ETIMEDOUT, "lsof gave no answer within %d s", LSOF_MS / 1000);
		n = read(fd, chunk, sizeof chunk);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, errno, "lsof");
		if (n == 0)
			return 0;
		if (out->len + (size_t)n > LSOF_MAX_BYTES)
			return err_set(e, EFBIG, "lsof printed more than %u bytes", LSOF_MAX_BYTES);
		strbuf_add(out, chunk, (size_t)n);
	}
}

static int run_lsof(char *const argv[], struct strbuf *out, struct err **e)
{
	int ends[2], status = 0, r;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(e, errno, "lsof: pipe");
	pid = spawn_lsof(argv, ends[1], e);
	(void)close(ends[1]);
	if (pid < 0) {
		(void)close(ends[0]);
		return -1;
	}
	r = collect(ends[0], clk_mono_ms() + LSOF_MS, out, e);
	(void)close(ends[0]);
	if (r < 0)
		(void)kill(pid, SIGKILL); /* ours and not waited for: the pid is still its */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return r; /* the exit status says nothing: 1 is also "nobody" */
}

/* "[::1]:4810" "*:4810" "127.0.0.1:4810" -> the address as inet_ntop writes it. `v6`: what "*" means. */
static void plain_address(const char *name, bool v6, char *ret, size_t cap)
{
	const char *colon = strrchr(name, ':');
	size_t len = colon ? (size_t)(colon - name) : strlen(name);

	if (len == 1 && name[0] == '*') {
		(void)snprintf(ret, cap, "%s", v6 ? "::" : "0.0.0.0");
		return;
	}
	if (len >= 2 && name[0] == '[' && name[len - 1] == ']') {
		name++;
		len -= 2;
	}
	(void)snprintf(ret, cap, "%.*s", (int)len, name);
}

int ports_find_lsof(uint16_t port, struct port_holders *ret, struct err **e)
{
	/* lsof(8) OUTPUT FOR OTHER PROGRAMS: p = pid, f = fd, t = IPv4 or IPv6, n = name */
	char which[32], prog[] = "lsof", a[] = "-nP", states[] = "-sTCP:LISTEN", fields[] = "-Fptn";
	char *argv[] = {prog, a, which, states, fields, NULL};
	CLEANUP_STRBUF struct strbuf out = STRBUF_INIT;
	char *save = NULL, address[46];
	uint64_t pid = 0;
	bool v6 = false;

	(void)snprintf(which, sizeof which, "-iTCP:%u", port);
	if (run_lsof(argv, &out, e) < 0)
		return -1;
	for (char *line = out.p ? strtok_r(out.p, "\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\n", &save)) {
		if (line[0] == 'p' && parse_u64(line + 1, INT32_MAX, &pid) < 0)
			return err_set(e, EPROTO, "lsof: not understood: %s", line);
		if (line[0] == 't')
			v6 = strcmp(line + 1, "IPv6") == 0;
		if (line[0] == 'n' && pid) {
			plain_address(line + 1, v6, address, sizeof address);
			ports_add_process(ret, (pid_t)pid, address);
		}
	}
	return 0;
}
