/* Who may use the control socket, and how it comes to be there. */
#include "ctl_world.h"
#include "ctl/ctl.h"
#include <sched.h>

/* Does a process made by `unshare_flags` (and uid) get an answer? It must not. */
static bool is_answered(struct world *w, int flags, uid_t uid)
{
	int status = -1;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		/* a new pid namespace is entered by the next child only */
		if ((flags && unshare(flags)) || (uid && setresuid(uid, uid, uid)))
			_exit(2);
		if ((flags & CLONE_NEWPID) && (pid = fork()) > 0) {
			(void)waitpid(pid, &status, 0);
			_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 3);
		}
		int fd = dial(w);
		char c;

		if (fd < 0)
			_exit(4);
		(void)send(fd, "GET /v1/version HTTP/1.1\r\nHost: x\r\n\r\n", 38, MSG_NOSIGNAL);
		_exit(recv(fd, &c, 1, 0) == 1 ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 2)
		skip(); /* no user namespaces here */
	assert_in_range(WEXITSTATUS(status), 0, 1);
	return WEXITSTATUS(status) == 0;
}

static void test_peer_in_this_namespace(void **state)
{
	assert_true(is_answered(*state, 0, 0));
	assert_int_equal(control_number(*state, "refused"), 0);
}

static void test_peer_in_another_user_namespace(void **state)
{
	assert_false(is_answered(*state, CLONE_NEWUSER, 0));
	assert_int_equal(control_number(*state, "refused"), 1);
}

static void test_peer_in_another_pid_namespace(void **state)
{
	/* as root without a user namespace: only the pid namespace differs */
	assert_false(is_answered(*state, geteuid() ? CLONE_NEWUSER | CLONE_NEWPID : CLONE_NEWPID, 0));
}

static void test_peer_of_another_uid(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *path = NULL;

	if (geteuid())
		skip(); /* a jump that runs no cleanup: nothing may be held here */
	path = xasprintf("%s/control.sock", w->dir);
	/* as if somebody had opened the door: the check does not rely on it */
	assert_int_equal(chmod(w->dir, 0755), 0);
	assert_int_equal(chmod(path, 0666), 0);
	assert_false(is_answered(w, 0, 65534));
	assert_int_equal(chmod(w->dir, 0700), 0);
}

static void try_bind(const struct unit_dirs *d, const char *words)
{
	CLEANUP_ERR struct err *e = NULL;
	struct loop *l = loop_create(0);
	struct ctl *c = ctl_create(l, NULL, d, NULL, NULL, &e);

	if (words) {
		assert_null(c);
		if (!strstr(err_msg(e), words))
			fail_msg("\"%s\" lacks \"%s\"", err_msg(e), words);
	} else {
		assert_non_null(c);
	}
	ctl_destroy(c);
	loop_destroy(l);
}

static void test_bind(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *long_dir = xasprintf("%s/%0100d", w->dir, 0), *sub = xasprintf("%s/sub", w->dir);
	CLEANUP_FREE char *path = xasprintf("%s/control.sock", sub);
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct unit_dirs d = {.runtime = long_dir};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	FILE *f;

	try_bind(&d, "--runtime");
	d.runtime = sub;
	try_bind(&d, NULL);
	assert_int_equal(access(path, F_OK), -1); /* ours is removed at the end */
	(void)snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
	(void)close(fd); /* a stale socket: nobody listens */
	try_bind(&d, NULL);
	f = fopen(path, "we");
	assert_non_null(f);
	(void)fclose(f);
	try_bind(&d, "is no socket");
	assert_int_equal(access(path, F_OK), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_peer_in_this_namespace),
		T(test_peer_in_another_user_namespace),
		T(test_peer_in_another_pid_namespace),
		T(test_peer_of_another_uid),
		T(test_bind),
	};

	(void)alarm(120); /* a hang guard for the whole program */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
