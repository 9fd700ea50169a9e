/*
 * status --watch.
 *
 * Theory of operation. A child follows the events of the supervisor and passes each line on through a pipe; the parent sleeps
 * until there is one, a key or a signal, and then asks for the status and draws it anew. So nothing happens while nothing
 * happens: times are shown as times of day, which do not grow old. The child asks for the last event too: when it comes the
 * connection is there, and a status that is asked for then misses nothing. After an upgrade in place it connects again.
 *
 * Without a terminal there is a line for each change, after one for each app; with --json an object for each.
 */
#include "cli/watch.h"
#include "base/clock.h"
#include "base/fd.h"
#include "cli/keys.h"
#include "cli/remote.h"
#include "cli/table.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#define QUIET_MS    50   /* events that come together are one picture */
#define AGAIN_MS    100  /* after the connection was cut: an upgrade in place, or the end? */
#define LISTENING   "{}" /* from the child: what changes from here on is passed on */
#define NAME_WIDTH  18
#define PORTS_WIDTH 13
#define ROWS_AROUND 4
#define LINE_WIDTH  80 /* when the terminal does not say */

struct watch {
	struct cli *c;
	const char *app;
	struct strbuf input; /* of the pipe, up to the end of a line */
	struct strv shown;   /* without a terminal: "name state" of each app */
	bool seen;           /* the app that was named is there */
};

/* --- the child --- */

struct ear {
	int fd;
	bool fresh; /* the line that comes is the first of its connection, and old */
};

static int pass_on(void *data, const char *text, size_t len)
{
	struct ear *ear = data;

	if (ear->fresh) {
		text = LISTENING;
		len = strlen(LISTENING);
	}
	ear->fresh = false;
	return fd_write_all(ear->fd, text, len) < 0 || fd_write_all(ear->fd, "\n", 1) < 0;
}

static _Noreturn void listen_for_events(struct cli *c, int fd)
{
	int code = CLI_OK;

	(void)signal(SIGINT, SIG_IGN); /* the parent's to take, and to end us */
	(void)signal(SIGPIPE, SIG_IGN);
	for (;;) {
		struct ear ear = {.fd = fd, .fresh = true};
		CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL;
		CLEANUP_ERR struct err *e = NULL;
		long status = 0;

		code = remote_open(c, &cl);
		if (code)
			break;
		if (ctl_client_stream(cl, "/v1/events?lines=1&follow=1", pass_on, &ear, &status, &e) == 0)
			break; /* the parent is gone */
		if (err_code(e) != EPIPE) {
			code = cli_fail(status ? CLI_FAILED : remote_open_code(e), "%s", err_msg(e));
			break;
		}
		(void)usleep(AGAIN_MS * 1000);
	}
	_exit(code);
}

static pid_t start_child(struct cli *c, int *ret_fd)
{
	pid_t parent = getpid(), pid;
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(p[0]);
		if (getppid() == parent)
			listen_for_events(c, p[1]);
		_exit(CLI_OK);
	}
	(void)close(p[1]);
	*ret_fd = p[0];
	if (pid < 0)
		(void)close(p[0]);
	return pid;
}

/* --- a terminal --- */

/* "notes-of-a-long-n..." */
static void add_cut(struct table *t, const char *text, size_t max)
{
	if (text && strlen(text) > max)
		table_addf(t, "%.*s...", (int)max - 3, text);
	else
		table_add(t, text);
}

/* The time of day at which its state began, or the day when that is long ago. */
static void add_since(struct table *t, const struct js *app)
{
	int64_t at = clk_wall_ms() - js_int_or(app, "since_ms", 0);
	time_t s = (time_t)(at / 1000), now = time(NULL);
	struct tm tm;
	char text[32] = "";

	if (localtime_r(&s, &tm))
		(void)strftime(text, sizeof text, now - s < 86400 ? "%H:%M:%S" : "%Y-%m-%d", &tm);
	table_add(t, text);
}

static void add_ports(struct table *t, const struct js *app)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;

	for (const struct js *p = js_first(js_get(app, "ports")); p; p = js_next(p))
		strbuf_addf(&b, "%s%" PRId64, b.len ? "," : "", js_int_or(p, "host", 0));
	add_cut(t, b.p, PORTS_WIDTH);
}

static void add_row(struct table *t, const struct js *app)
{
	const char *reason = js_str(app, "reason");
	const struct js *problem = js_first(js_get(app, "problems"));
	const char *note = problem && js_value_str(problem)           ? js_value_str(problem)
			   : reason                                   ? reason
			   : js_bool_or(app, "restart_needed", false) ? "restart needed"
								      : NULL;
	CLEANUP_FREE char *first = note ? xstrndup(note, strcspn(note, "\n")) : NULL;
	int64_t pid = js_int_or(app, "pid", 0);

	add_cut(t, js_str(app, "name"), NAME_WIDTH);
	table_add(t, js_str(app, "state"));
	if (pid)
		table_addf(t, "%" PRId64, pid);
	else
		table_add(t, NULL);
	add_since(t, app);
	table_addf(t, "%" PRId64, js_int_or(app, "launches", 0));
	add_ports(t, app);
	table_add(t, first);
}

static size_t rows_that_fit(void)
{
	struct winsize ws;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) < 0 || ws.ws_row <= ROWS_AROUND)
		return SIZE_MAX;
	return (size_t)(ws.ws_row - ROWS_AROUND);
}

static void draw(struct watch *w, const struct js *status)
{
	static const char *const header[] = {"NAME", "STATE", "PID", "SINCE", "STARTS", "PORTS", "NOTE"};
	struct table t = {.columns = ELEMENTS(header), .edge = table_terminal_width(LINE_WIDTH)};
	size_t n = 0, room = rows_that_fit();

	for (size_t i = 0; i < ELEMENTS(header); i++)
		table_add(&t, header[i]);
	for (const struct js *a = js_first(js_get(status, "apps")); a; a = js_next(a)) {
		if (w->app && !str_eq(js_str(a, "name"), w->app))
			continue;
		w->seen = true;
		if (n++ < room)
			add_row(&t, a);
	}
	fputs("\033[H\033[J", stdout); /* home, erase below: ECMA-48 8.3.21, 8.3.39 */
	table_print(&t);
	if (n > room)
		printf("... and %zu more\n", n - room);
	if (!n)
		puts("no apps");
	fputs("q ends", stdout);
}

/* --- lines --- */

static void print_line(struct watch *w, const char *when, const char *name, const char *state,
		       const char *reason)
{
	CLEANUP_FREE char *first = reason ? xstrndup(reason, strcspn(reason, "\n")) : NULL;
	CLEANUP_FREE char *s_when = cli_safe(when), *s_name = cli_safe(name), *s_state = cli_safe(state),
			  *s_reason = first ? cli_safe(first) : NULL;
	CLEANUP_JS struct js *o = NULL;
	CLEANUP_FREE char *text = NULL, *safe = NULL;

	if (!w->c->json) {
		printf("%s %s %s%s%s\n", s_when, s_name, s_state, s_reason ? ": " : "",
		       s_reason ? s_reason : "");
		return;
	}
	o = js_obj();
	js_add_str(o, "timestamp", when);
	js_add_str(o, "app", name);
	js_add_str(o, "state", state);
	if (reason)
		js_add_str(o, "reason", reason);
	text = js_print(o);
	safe = remote_json_safe(text, strlen(text));
	puts(safe);
}

/* True: it is another one than the last that was shown. */
static bool is_news(struct watch *w, const char *name, const char *state)
{
	CLEANUP_FREE char *now = xasprintf("%s %s", name, state);
	size_t n = strlen(name) + 1;

	for (size_t i = 0; i < w->shown.n; i++) {
		if (strncmp(w->shown.v[i], now, n) != 0)
			continue;
		if (str_eq(w->shown.v[i], now))
			return false;
		free(w->shown.v[i]);
		w->shown.v[i] = TAKE_PTR(now);
		return true;
	}
	strv_add(&w->shown, now);
	return true;
}

static void print_states(struct watch *w, const struct js *status)
{
	char stamp[CLK_STAMP_LEN];

	(void)clk_stamp(clk_wall_ms(), stamp, sizeof stamp);
	for (const struct js *a = js_first(js_get(status, "apps")); a; a = js_next(a)) {
		const char *name = js_str(a, "name"), *state = js_str(a, "state");

		if (!name || !state || (w->app && !str_eq(name, w->app)))
			continue;
		w->seen = true;
		if (is_news(w, name, state))
			print_line(w, stamp, name, state, js_str(a, "reason"));
	}
}

static void print_event(struct watch *w, const char *line, size_t len)
{
	CLEANUP_JS struct js *e = js_parse(line, len, NULL);
	const char *name = e ? js_str(e, "app") : NULL, *state = name ? js_str(e, "state") : NULL;

	if (state && str_eq(js_str(e, "type"), "state") && (!w->app || str_eq(name, w->app)) &&
	    is_news(w, name, state))
		print_line(w, js_str(e, "timestamp"), name, state, js_str(e, "reason"));
}

/* --- both --- */

static int ask(struct watch *w, bool lines)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL; /* each time: an upgrade in place cuts it */
	struct js *status = NULL;
	int code = remote_open(w->c, &cl);

	if (!code)
		code = remote_call(cl, "GET", "/v1/status", NULL, &status);
	if (code)
		return code;
	if (lines)
		print_states(w, status);
	else
		draw(w, status);
	js_free(status);
	if (w->app && !w->seen)
		return cli_fail(CLI_NO_APP, "there is no app %s", w->app);
	return CLI_OK;
}

/* What is in the pipe. False: the child has ended. */
static bool take_events(struct watch *w, int fd, bool lines, bool *ret_ask)
{
	char buf[8192];
	ssize_t n = read(fd, buf, sizeof buf);
	const char *end;

	if (n <= 0)
		return n < 0 && errno == EINTR;
	strbuf_add(&w->input, buf, (size_t)n);
	while ((end = memchr(w->input.p, '\n', w->input.len))) {
		size_t len = (size_t)(end - w->input.p);

		if (!lines || (len == strlen(LISTENING) && memcmp(w->input.p, LISTENING, len) == 0))
			*ret_ask = true;
		else
			print_event(w, w->input.p, len);
		memmove(w->input.p, end + 1, w->input.len - len - 1);
		w->input.len -= len + 1;
		w->input.p[w->input.len] = 0;
	}
	return true;
}

static int follow(struct watch *w, int fd, bool lines)
{
	for (;;) {
		int code = CLI_OK, what = keys_wait(fd, -1);
		bool again = false;

		if (what == KEYS_INPUT && !lines && (what = keys_wait(-1, QUIET_MS)) == 0)
			what = KEYS_INPUT;
		if (what != KEYS_INPUT)
			return CLI_OK;
		if (!take_events(w, fd, lines, &again))
			return -1;
		if (again)
			code = ask(w, lines);
		if (code || fflush(stdout) == EOF)
			return code;
	}
}

int watch_status(struct cli *c, const char *app)
{
	bool lines = !c->tty || c->json;
	struct watch w = {.c = c, .app = app};
	int fd = -1, code, status = 0;
	pid_t child;

	if (app && !unit_name_valid(app))
		return cli_bad_name(app);
	child = start_child(c, &fd);
	if (child < 0)
		return cli_fail(CLI_FAILED, "cannot follow the events: %s", strerror(errno));
	keys_begin();
	code = follow(&w, fd, lines);
	keys_end();
	if (!lines)
		puts("");
	if (code >= 0)
		(void)kill(child, SIGKILL);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (code < 0)
		code = WIFEXITED(status) ? WEXITSTATUS(status) : CLI_FAILED;
	(void)close(fd);
	strbuf_finish(&w.input);
	strv_clear(&w.shown);
	return code;
}
