/*
 * A jail is built at launch and does not change, so a path is granted for good: a line of the drop-in, written when the plan of
 * the unit as it would be gives the app the path, and put in force by starting the app again. What no unit is given is refused
 * here with the reason that the launch would have. A port of this machine is a line of the drop-in too, but one that the running app
 * gets at once.
 */
#include "cli/allow_path.h"
#include "base/file.h"
#include "cli/remote.h"
#include "cli/subject.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { PATHS_MAX = 64 };

struct path_wish {
	struct cli *c;
	const char *app;
	struct unit_edit v[PATHS_MAX];
	char *paths[PATHS_MAX]; /* absolute, as written otherwise */
	size_t n;
	int refused; /* accept() said no by a rule: the exit code */
};

static void wish_finish(struct path_wish *w)
{
	for (size_t i = 0; i < w->n; i++) {
		free(w->paths[i]);
		free((char *)(uintptr_t)w->v[i].text);
	}
}

static void line(const struct path_wish *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void line(const struct path_wish *w, const char *fmt, ...)
{
	CLEANUP_FREE char *text = NULL, *safe = NULL;
	va_list ap;

	if (w->c->json)
		return;
	va_start(ap, fmt);
	text = xvasprintf(fmt, ap);
	va_end(ap);
	safe = cli_safe(text);
	printf("%s: %s\n", w->app, safe);
}

/* As a value of a unit: a percent sign is doubled; what cannot be written there is refused. */
static int add_path(struct path_wish *w, const char *key, const char *path)
{
	CLEANUP_FREE char *cwd = path[0] == '/' ? NULL : getcwd(NULL, 0),
			  *full = path_join(cwd ? cwd : "/", path);
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;
	struct stat st;

	if (!*path || strpbrk(full, "\r\n") || strstr(full, "$PORT") || strchr(" \t", full[strlen(full) - 1]))
		return cli_fail(CLI_USAGE, "a path like this cannot be written into a unit");
	if (w->n == PATHS_MAX)
		return cli_fail(CLI_USAGE, "at most %d paths at once", PATHS_MAX);
	if (lstat(full, &st) < 0 && errno == ENOENT) {
		CLEANUP_FREE char *safe = cli_safe(full);

		return cli_fail(CLI_FAILED, "%s does not exist: make it first (mkdir, touch), then allow it",
				safe);
	}
	for (const char *p = full; *p; p++)
		strbuf_adds(&b, *p == '%' ? "%%" : (char[]){*p, 0});
	w->paths[w->n] = TAKE_PTR(full);
	w->v[w->n++] = (struct unit_edit){.key = key, .text = strbuf_take(&b), .path = true};
	return CLI_OK;
}

static int add_port(struct path_wish *w, const char *key, const char *port)
{
	if (!*port || port[strcspn(port, " \t\r\n")])
		return cli_fail(CLI_USAGE, "--loopback: a port such as 5432, or app:NAME");
	if (w->n == PATHS_MAX)
		return cli_fail(CLI_USAGE, "at most %d ports at once", PATHS_MAX);
	w->v[w->n++] = (struct unit_edit){.key = key, .text = xstrdup(port)};
	return CLI_OK;
}

static const struct {
	int id;
	const char *key;
	enum plan_access want;
	int (*add)(struct path_wish *w, const char *key, const char *value);
} kinds[] = {
	{OPT_ALLOW_READ, "Read", PLAN_READ, add_path},
	{OPT_ALLOW_WRITE, "Write", PLAN_WRITE, add_path},
	{OPT_ALLOW_SOCKET, "UnixSocket", PLAN_READ, add_path},
	{OPT_ALLOW_LOOPBACK, "Loopback", PLAN_READ, add_port},
};

bool allow_path_asked(const struct cli_args *a)
{
	for (size_t i = 0; i < ELEMENTS(kinds); i++)
		if (cli_has(a, kinds[i].id))
			return true;
	return false;
}

static enum plan_access wanted(const char *key)
{
	for (size_t i = 0; i < ELEMENTS(kinds); i++)
		if (str_eq(kinds[i].key, key))
			return kinds[i].want;
	return PLAN_READ;
}

static int shows_all(struct path_wish *w, const struct plan *p, struct err **e)
{
	const struct plan_fs fs = plan_fs_real();

	for (size_t i = 0; i < w->n; i++) {
		const struct plan_path *by = NULL;

		if (plan_decide_on_disk(p, &fs, w->paths[i], &by) >= wanted(w->v[i].key))
			continue;
		w->refused = CLI_REFUSED;
		return err_set(e, EPERM, "%s=%s would change nothing: %s wins", w->v[i].key, w->v[i].text,
			       by ? by->reason : "another line");
	}
	return 0;
}

/* The unit as it would be. */
static int accept_unit(void *data, const struct unit *u, struct err **e)
{
	struct path_wish *w = data;
	struct unit_problems problems = {0};
	CLEANUP_PLAN struct plan *p = NULL;
	CLEANUP_FREE char *text = NULL;

	if (u->enforce == UNIT_ENFORCE_OFF) {
		w->refused = CLI_REFUSED;
		return err_set(e, EPERM, "it runs without a jail (Enforce=off) and sees everything");
	}
	if (!w->v[0].path)
		return 0;
	p = subject_plan(w->c, u, NULL, &problems);
	text = unit_problems_text(&problems);
	unit_problems_clear(&problems);
	if (!p) {
		w->refused = CLI_REFUSED;
		return err_set(e, EPERM, "nothing was written, because the unit would not be started:\n%s",
			       text);
	}
	return shows_all(w, p, e);
}

static int write_dropin(struct path_wish *w, struct unit_dropin *ret)
{
	struct unit_problems problems = {0};
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FREE char *wrong = NULL;

	if (unit_dropin_edit(&w->c->dirs, w->app, w->v, w->n, accept_unit, w, ret, &problems, &e) == 0)
		return CLI_OK;
	wrong = unit_problems_text(&problems);
	unit_problems_clear(&problems);
	if (*wrong)
		return cli_fail(CLI_FAILED,
				"%s: nothing was written, because the unit would not be valid:\n%s", w->app,
				wrong);
	return cli_fail(w->refused ? w->refused : CLI_FAILED, "%s: %s", w->app, err_msg(e));
}

/* The supervisor reads the drop-in; what ran is started again by that, and so is what had failed. */
static int put_in_force(struct path_wish *w)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL;
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FREE char *path = remote_app_path(w->app, ""), *start = remote_app_path(w->app, "/start");
	CLEANUP_JS struct js *report = NULL, *body = js_obj(), *reply = NULL, *status = NULL;
	const char *state;
	int code;

	cl = ctl_client_open(&w->c->dirs, &e);
	if (!cl && remote_open_code(e) == CLI_NO_SUPERVISOR) {
		line(w, "no supervisor runs: it counts from the next start");
		return CLI_OK;
	}
	if (!cl)
		return cli_fail(remote_open_code(e), "it was written, but it is not in force: %s",
				err_msg(e));
	code = remote_call(cl, "POST", "/v1/reload", NULL, &report);
	if (!code)
		code = remote_call(cl, "GET", path, NULL, &status);
	if (code)
		return code;
	state = js_str(status, "state");
	if (str_eq(state, "stopped")) {
		line(w, "it is not running: it counts from the next start");
		return CLI_OK;
	}
	if (w->v[0].path)
		line(w, "it is started again, because a jail is built at the start");
	js_add_bool(body, "wait", true);
	code = remote_call(cl, "POST", start, body, &reply);
	if (!code && js_int_or(reply, "code", CLI_FAILED))
		code = cli_fail(CLI_FAILED, "%s",
				js_str(reply, "message") ? js_str(reply, "message") : "failed");
	return code;
}

static void tell(const struct path_wish *w, const struct unit_dropin *d)
{
	CLEANUP_JS struct js *o = NULL;
	struct js *lines;

	for (size_t i = 0; i < w->n; i++)
		line(w, "%s=%s %s %s", w->v[i].key, w->v[i].text,
		     d->changed ? "is written into" : "stands already in", d->path);
	if (!w->c->json)
		return;
	o = js_obj();
	lines = js_arr();
	for (size_t i = 0; i < w->n; i++) {
		CLEANUP_FREE char *text = xasprintf("%s=%s", w->v[i].key, w->v[i].text);

		js_push_str(lines, text);
	}
	js_add_str(o, "app", w->app);
	js_add_str(o, "file", d->path);
	js_add_bool(o, "changed", d->changed);
	js_add(o, "lines", lines);
	remote_print_json(o);
}

int allow_path(struct cli *c, const struct cli_args *a)
{
	CLEANUP(wish_finish) struct path_wish w = {.c = c};
	CLEANUP_UNIT struct unit *u = NULL;
	CLEANUP_FREE char *file = NULL;
	struct unit_dropin dropin = {0};
	int code = CLI_OK;

	if (a->n_rest != 1)
		return cli_usage(
			&cmd_allow,
			"allow --read, --write, --unix-socket, --loopback: name one app, and hosts apart");
	w.app = a->rest[0];
	u = subject_load(c, w.app, &code);
	if (!u)
		return code;
	for (size_t i = 0; i < a->n_opts && !code; i++)
		for (size_t k = 0; k < ELEMENTS(kinds) && !code; k++)
			if (a->opts[i].id == kinds[k].id)
				code = kinds[k].add(&w, kinds[k].key, a->opts[i].value);
	for (size_t i = 1; i < w.n && !code; i++)
		if (w.v[i].path != w.v[0].path)
			code = cli_usage(&cmd_allow,
					 "allow: --loopback apart from paths, which start the app again");
	if (!code)
		code = write_dropin(&w, &dropin);
	file = dropin.path;
	if (code)
		return code;
	tell(&w, &dropin);
	return put_in_force(&w);
}
