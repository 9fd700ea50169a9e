#include "ctl_world.h"
#include "base/log.h"
#include "ctl/ctl.h"

/* --- the child --- */

struct child {
	struct loop *loop;
	struct ctl *ctl;
	const char *dir;
};

static void on_shutdown(void *data, int64_t grace_ms)
{
	struct child *c = data;
	CLEANUP_FREE char *text = xasprintf("%lld", (long long)grace_ms);
	int dir = open(c->dir, O_DIRECTORY | O_CLOEXEC);

	(void)file_write_atomic(dir, "grace", text, strlen(text), 0600, NULL);
	(void)close(dir);
	/* as a supervisor without apps: everything ends at once, from inside this call */
	ctl_destroy(TAKE_PTR(c->ctl));
	loop_break(c->loop);
}

static void on_term(struct loop_signal *w)
{
	loop_break(w->loop);
}

static int serve(const struct world *w, int ready)
{
	CLEANUP_ERR struct err *e = NULL;
	struct child c = {.loop = loop_create(LOOP_SHIFT_GAPS), .dir = w->dir};
	struct sup *s = fake_sup_create(c.loop, w->dir);
	struct loop_signal term;

	log_init("test", LOG_LEVEL_ERROR);
	c.ctl = ctl_create(c.loop, s, &w->dirs, on_shutdown, &c, &e);
	if (!c.ctl) {
		fprintf(stderr, "%s\n", err_msg(e));
		return 1;
	}
	loop_signal_init(c.loop, &term, SIGTERM, on_term, NULL);
	(void)!write(ready, "x", 1);
	(void)close(ready);
	loop_run(c.loop);
	ctl_destroy(c.ctl);
	loop_signal_stop(&term);
	fake_sup_destroy(s);
	loop_destroy(c.loop);
	return 0;
}

int set_up(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);
	int p[2];
	char c;

	(void)snprintf(w->dir, sizeof w->dir, "/tmp/sbxsv-ctl-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	w->dirs.runtime = w->dir;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	(void)fflush(NULL);
	w->server = fork();
	assert_true(w->server >= 0);
	if (w->server == 0) {
		(void)close(p[0]);
		exit(serve(w, p[1]));
	}
	(void)close(p[1]);
	assert_int_equal(read(p[0], &c, 1), 1);
	(void)close(p[0]);
	*state = w;
	return 0;
}

int wait_exit(struct world *w)
{
	int status = -1;

	assert_int_equal(waitpid(w->server, &status, 0), w->server);
	w->server = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int tear_down(void **state)
{
	struct world *w = *state;
	CLEANUP_FREE char *command = xasprintf("rm -rf %s", w->dir);
	int code = 0;

	if (w->server) {
		(void)kill(w->server, SIGTERM);
		code = wait_exit(w);
	}
	if (system(command))
		code = 1;
	free(w);
	return code;
}

/* --- the client's side --- */

struct js *call(struct world *w, const char *method, const char *path, const char *body, long want)
{
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_CTL_CLIENT struct ctl_client *c = ctl_client_open(&w->dirs, &e);
	CLEANUP_JS struct js *b = body ? js_parse(body, strlen(body), NULL) : NULL;
	long status = 0;
	struct js *reply;

	if (!c)
		fail_msg("open: %s", err_msg(e));
	reply = ctl_client_call(c, method, path, b, &status, &e);
	if (!reply)
		fail_msg("%s: %s", path, err_msg(e));
	if (status != want) {
		CLEANUP_FREE char *text = js_print(reply);

		fail_msg("%s %s: %ld, wanted %ld: %s", method, path, status, want, text);
	}
	return reply;
}

int64_t control_number(struct world *w, const char *key)
{
	CLEANUP_JS struct js *j = call(w, "GET", "/v1/status", NULL, 200);

	return js_int_or(js_get(j, "control"), key, -1);
}

void wait_number(struct world *w, const char *key, int64_t want)
{
	int64_t until = clk_mono_ms() + HANG_MS, got;

	while ((got = control_number(w, key)) != want) {
		if (clk_mono_ms() > until)
			fail_msg("%s is %lld, not %lld", key, (long long)got, (long long)want);
		(void)usleep(10000);
	}
}

void kill_notes(struct world *w, const char *signal)
{
	CLEANUP_FREE char *body = xasprintf("{\"signal\":\"%s\"}", signal);

	js_free(call(w, "POST", "/v1/apps/notes/kill", body, 200));
}

int dial(const struct world *w)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct timeval limit = {.tv_sec = HANG_MS / 1000};

	(void)snprintf(sa.sun_path, sizeof sa.sun_path, "%s/control.sock", w->dir);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) ||
	    connect(fd, (struct sockaddr *)&sa, sizeof sa))
		return -1;
	return fd;
}

int dial_and_send(const struct world *w, const char *text)
{
	int fd = dial(w);

	assert_true(fd >= 0);
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
	return fd;
}

/* Everything until the server closes, or until `stop` was seen. */
char *read_until(int fd, const char *stop)
{
	struct strbuf b = STRBUF_INIT;
	char buf[4096];
	ssize_t n;

	strbuf_adds(&b, "");
	while ((!stop || !strstr(b.p, stop)) && (n = recv(fd, buf, sizeof buf, 0)) > 0)
		strbuf_add(&b, buf, (size_t)n);
	return strbuf_take(&b);
}

char *raw(const struct world *w, const char *text)
{
	int fd = dial_and_send(w, text);
	char *reply;

	(void)shutdown(fd, SHUT_WR);
	reply = read_until(fd, NULL);
	(void)close(fd);
	return reply;
}
