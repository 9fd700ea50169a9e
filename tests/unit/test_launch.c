/* The supervisor's side of a launch, with real jails where this user may make them; and what failures mean.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/fd.h"
#include "sandbox/jail.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define INIT "./sbxsv-init" /* the build directory is the working directory of make check */

struct seen {
	struct loop *loop;
	struct launch *launch;
	struct loop_io dead;
	char *error;
	int code, status, calls;
	struct isolation isolation;
	size_t sockets;
};

static void on_dead(struct loop_io *w, unsigned events)
{
	struct seen *s = w->data;
	int status = 0;

	(void)events;
	if (pidfd_reap(w->fd, &status) == 0)
		return;
	loop_io_stop(w);
	if (launch_exit_status(s->launch, &s->status) < 0)
		s->status = -1;
	/* the owner hears of the launch before it hears of the death */
	assert_int_equal(s->calls, 1);
	loop_break(s->loop);
}

static void on_done(void *data, struct launch *l, struct launch_done *done, const struct err *error)
{
	struct seen *s = data;

	(void)l;
	s->calls++;
	s->error = error ? xstrdup(err_msg(error)) : NULL;
	s->code = err_code(error);
	s->isolation = done->isolation;
	done->isolation = (struct isolation){0};
	s->sockets = done->sockets.n;
}

static struct plan *small_plan(const char *command)
{
	static const char *const roots[] = {"/bin", "/lib", "/lib64", "/usr"};
	struct plan *p = xcalloc(1, sizeof *p);

	p->app = xstrdup("test");
	p->program = xstrdup("/bin/sh");
	strv_add(&p->argv, "sh");
	strv_add(&p->argv, "-c");
	strv_add(&p->argv, command);
	strv_add(&p->env, "PATH=/usr/bin:/bin");
	p->workdir = xstrdup("/");
	p->user = (struct plan_user){.uid = geteuid() ? geteuid() : 65534,
				     .gid = geteuid() ? getegid() : 65534,
				     .name = xstrdup("test")};
	p->netns = true;
	for (size_t i = 0; i < ELEMENTS(roots); i++) {
		char target[256];
		ssize_t n = readlink(roots[i], target, sizeof target - 1);

		if (n > 0) {
			target[n] = 0;
			VEC_GROW(p->links, p->n_links, p->cap_links);
			p->links[p->n_links++] =
				(struct plan_link){.path = xstrdup(roots[i]), .target = xstrdup(target)};
		} else if (access(roots[i], F_OK) == 0) {
			VEC_GROW(p->paths, p->n_paths, p->cap_paths);
			p->paths[p->n_paths++] = (struct plan_path){
				.path = xstrdup(roots[i]), .access = PLAN_READ, .dir = true};
		}
	}
	return p;
}

typedef int hook(void *data, struct launch_sockets *out, struct err **e);

static void need_jails(void)
{
	struct probe p = {.init_program = INIT};
	CLEANUP_ERR struct err *e = NULL;

	if (access(INIT, X_OK) == 0 && backend_linux.probe(&p, &e) == 0) {
		isolation_finish(&p.isolation);
		return;
	}
	print_message("no jails here: %s\n", err_msg(e));
	err_free(TAKE_PTR(e)); /* skip() jumps and runs no cleanup */
	skip();
}

static void launch_it(struct seen *s, struct plan *p, hook *inside, int kill_it)
{
	int init = open(INIT, O_PATH | O_CLOEXEC), self = pidfd_open_pid(getpid());
	struct launch_io io = {.stdin_fd = -1,
			       .stdout_fd = -1,
			       .stderr_fd = -1,
			       .init_fd = init,
			       .supervisor_pidfd = self,
			       .inside_net = inside,
			       .new_session = true};

	s->loop = loop_create(LOOP_SHIFT_GAPS);
	s->launch = backend_linux.launch(s->loop, p, &io, on_done, s, NULL);
	assert_non_null(s->launch);
	loop_io_init(s->loop, &s->dead, launch_pidfd(s->launch), LOOP_READ, on_dead, s);
	if (kill_it)
		assert_int_equal(pidfd_signal(launch_pidfd(s->launch), kill_it), 0);
	loop_run(s->loop);
	assert_int_equal(s->calls, 1);
	(void)close(init);
	(void)close(self);
}

static void seen_finish(struct seen *s)
{
	launch_destroy(s->launch);
	loop_destroy(s->loop);
	isolation_finish(&s->isolation);
	free(s->error);
}

static void test_layers(void **state)
{
	struct seen s = {0};
	CLEANUP_PLAN struct plan *p = small_plan("exit 42");

	(void)state;
	need_jails();
	launch_it(&s, p, NULL, 0);
	assert_null(s.error);
	assert_int_equal(s.status, 42 << 8);
	assert_string_equal(s.isolation.backend, "linux");
	assert_true(s.isolation.user_ns && s.isolation.mount_ns && s.isolation.pid_ns && s.isolation.net_ns);
	assert_true(s.isolation.seccomp && s.isolation.no_new_privs && s.isolation.nested_ns_off);
	assert_false(s.isolation.survivors_possible);
	assert_int_equal(s.isolation.landlock_abi, landlock_abi());
	assert_int_equal(s.isolation.missing.n, 0);
	seen_finish(&s);
}

static void test_raw_status(void **state)
{
	struct seen s = {0};
	CLEANUP_PLAN struct plan *p = small_plan("kill -SEGV $$");

	(void)state;
	need_jails();
	launch_it(&s, p, NULL, 0);
	assert_int_equal(s.status & 0x7f, SIGSEGV); /* not exit status 139 */
	seen_finish(&s);
}

static int hook_sockets(void *data, struct launch_sockets *out, struct err **e)
{
	(void)data;
	(void)e;
	for (int i = 0; i < 3; i++)
		out->fds[out->n++] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return 0;
}

static void test_sockets_come_out_and_are_closed(void **state)
{
	struct seen s = {0};
	CLEANUP_PLAN struct plan *p = small_plan("exit 0");
	int before, after;

	(void)state;
	need_jails();
	before = open("/dev/null", O_RDONLY | O_CLOEXEC);
	(void)close(before);
	launch_it(&s, p, hook_sockets, 0);
	assert_int_equal(s.sockets, 3);
	seen_finish(&s);
	after = open("/dev/null", O_RDONLY | O_CLOEXEC);
	(void)close(after);
	assert_int_equal(after, before); /* what was not taken was closed */
}

/* The supervisor cannot take what the child passes: a shortage, and nothing leaks. */
static void test_no_descriptors_left(void **state)
{
	struct seen s = {0};
	CLEANUP_PLAN struct plan *p = small_plan("exit 0");
	struct rlimit old, tight;
	int top;

	(void)state;
	need_jails();
	s.loop = loop_create(0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	tight = old;
	top = open("/dev/null", O_RDONLY | O_CLOEXEC);
	(void)close(top);
	loop_destroy(s.loop);
	tight.rlim_cur = (rlim_t)top + 7; /* enough to begin: loop, init, pidfds, the socket pair */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
	launch_it(&s, p, hook_sockets, 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(s.code, EMFILE);
	seen_finish(&s);
}

static int hook_fails(void *data, struct launch_sockets *out, struct err **e)
{
	(void)data;
	(void)out;
	return err_set(e, EADDRINUSE, "Loopback=80: taken");
}

static void test_hook_fails(void **state)
{
	struct seen s = {0};
	CLEANUP_PLAN struct plan *p = small_plan("exit 0");

	(void)state;
	need_jails();
	launch_it(&s, p, hook_fails, 0);
	assert_string_equal(s.error, "test: jail: Loopback=80: taken (step network)");
	seen_finish(&s);
}

static int hook_hangs(void *data, struct launch_sockets *out, struct err **e)
{
	(void)data;
	(void)out;
	(void)e;
	(void)pause();
	return 0;
}

static void test_killed_in_the_middle(void **state)
{
	struct seen s = {0};
	CLEANUP_PLAN struct plan *p = small_plan("exit 0");

	(void)state;
	need_jails();
	launch_it(&s, p, hook_hangs, SIGKILL);
	assert_string_equal(s.error, "test: jail: the launching child was killed");
	assert_int_equal(s.status, -1);
	seen_finish(&s);
}

/* A signal sent before sbxsv-init exists waits for it. */
static void test_early_signal(void **state)
{
	struct seen s = {0};
	CLEANUP_PLAN struct plan *p = small_plan("sleep 1000");

	(void)state;
	need_jails();
	launch_it(&s, p, NULL, SIGTERM);
	assert_null(s.error);
	assert_int_equal(s.status & 0x7f, SIGTERM);
	seen_finish(&s);
}

static void test_refusals(void **state)
{
	CLEANUP_PLAN struct plan *p = small_plan("exit 0");
	CLEANUP_ERR struct err *e = NULL;
	struct launch_io io = {.init_fd = -1, .supervisor_pidfd = -1};
	struct loop *l = loop_create(0);

	(void)state;
	p->user.uid = 0;
	assert_null(backend_linux.launch(l, p, &io, on_done, NULL, &e));
	assert_non_null(strstr(err_msg(e), "never runs as root"));
	assert_null(backend_none.launch(l, p, &io, on_done, NULL, &e));
	loop_destroy(l);
}

static void explains(const struct machine *m, int error, const char *step, const char *want)
{
	CLEANUP_FREE char *text = explain_failure(m, error, step);

	if (!want) {
		assert_null(text);
		return;
	}
	assert_non_null(text);
	if (!strstr(text, want))
		fail_msg("\"%s\" does not say \"%s\"", text, want);
}

static void test_explanations(void **state)
{
	const struct machine plain = {.apparmor_restrict = -1, .userns_clone = -1, .max_userns = 10000};
	struct machine m = plain;

	(void)state;
	m.apparmor_restrict = 1;
	explains(&m, EACCES, "ids", "contrib/apparmor/sbxsv");
	explains(&m, EPERM, "namespaces", "contrib/apparmor/sbxsv");
	explains(&m, EACCES, "mounts", "contrib/apparmor/sbxsv");
	m.root = true;
	explains(&m, EPERM, "namespaces", "container");
	m = plain;
	m.max_userns = 0;
	explains(&m, ENOSPC, "namespaces", "sysctl -w user.max_user_namespaces=");
	m = plain;
	explains(&m, ENOSPC, "namespaces", "nested too deep");
	m.userns_clone = 0;
	explains(&m, EPERM, "namespaces", "kernel.unprivileged_userns_clone=1");
	m = plain;
	explains(&m, EPERM, "proc", "best-effort");
	explains(&m, ENOSYS, "mounts", "5.12");
	explains(&m, ENOENT, "workdir", "WorkingDirectory=");
	explains(&m, EIO, "mounts", NULL);
}

static void test_filters(void **state)
{
	(void)state;
	for (unsigned v = 0; v < FILTER_VARIANTS; v++) {
		const struct sock_fprog *f = filter_get(v, NULL);
		struct sock_fprog fresh;

		assert_non_null(f);
		assert_true(f->len > 50 && f->len <= 4096); /* BPF_MAXINSNS */
		assert_ptr_equal(filter_get(v, NULL), f);
		/* what was made when the project was built is what the rules say */
		assert_int_equal(filter_build(v, &fresh, NULL), 0);
		assert_int_equal(f->len, fresh.len);
		assert_memory_equal(f->filter, fresh.filter, f->len * sizeof *f->filter);
		free(fresh.filter);
	}
	/* what is allowed more is checked less */
	assert_true(filter_get(FILTER_NESTED, NULL)->len < filter_get(0, NULL)->len);
	assert_true(filter_get(FILTER_UNIX, NULL)->len < filter_get(0, NULL)->len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layers),
		cmocka_unit_test(test_raw_status),
		cmocka_unit_test(test_sockets_come_out_and_are_closed),
		cmocka_unit_test(test_no_descriptors_left),
		cmocka_unit_test(test_hook_fails),
		cmocka_unit_test(test_killed_in_the_middle),
		cmocka_unit_test(test_early_signal),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_explanations),
		cmocka_unit_test(test_filters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
