/*
 * [Hooks]: commands that run when something happens to an app, with the event as JSON on standard input.
 *
 * Theory of operation. A hook is a launch of its own by the plan of the app: its paths, its user, its limits, but no
 * network, and nothing of the app's processes in sight. So it may run what the app may run, also when the app is not there
 * any more. With Unsafe=yes it runs outside: in /, with the app's environment and user, and only if nothing of the
 * command lies where an app could have put it. One at a time for an app, in the order of the events; what waits is
 * bounded, and what is too much is dropped and said. A hook that fails, hangs or cannot be started is a line in the log: the
 * app never waits for it. During the shutdown none is begun, and the one that runs is killed.
 */
#include "sup/app.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum {
	WAITING_MAX = 16,
	TIME_MS = 10000,      /* then it is killed; below the time an upgrade waits */
	VIOLATION_MS = 1000,  /* a flood of refusals is one hook a second */
	INPUT_MAX = 32 << 10,
	AGAIN_MS = 1000, /* it was killed, and is still there */
};

struct waiting {
	struct waiting *next;
	const char *name; /* "OnReady"; static */
	char *json;
};

struct hook_run { /* in s->hook_runs; outlives its app */
	struct hook_run *next;
	struct sup *sup;
	struct app *app; /* NULL: it is forgotten */
	char *app_name;
	const char *name;
	struct launch *launch;
	struct loop_io ended;
	struct loop_timer deadline;
	bool up, overdue, jailed, killed;
	char *error;
};

struct hooks {
	struct waiting *head, **tail;
	size_t n;
	uint64_t dropped, missed; /* missed: refusals since the last OnViolation= */
	int64_t violation_ms;
	struct hook_run *run;
};

static const char *command_of(const struct unit *u, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; u && i < u->hooks.n; i++)
		if (strncmp(u->hooks.v[i].text, name, n) == 0 && u->hooks.v[i].text[n] == '=')
			return u->hooks.v[i].text + n + 1;
	return NULL;
}

static void say(struct app *a, const char *name, const char *text)
{
	CLEANUP_FREE char *line = xasprintf("hook %s: %s", name, text);

	logs_note(a->logs, line);
	events_note(a->sup->events, "hook", a->name, "%s", line);
}

static void go_on(struct app *a);

/* --- its end --- */

static void run_free(struct hook_run *r)
{
	struct hook_run **at = &r->sup->hook_runs;

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	if (r->app)
		r->app->hooks->run = NULL;
	loop_io_stop(&r->ended);
	loop_timer_stop(&r->deadline);
	launch_destroy(r->launch);
	free(r->error);
	free(r->app_name);
	free(r);
}

static void report(const struct hook_run *r, int status)
{
	struct last_exit x = {.status = status};
	CLEANUP_FREE char *late = NULL;
	char text[80];

	if (!r->app)
		return;
	app_text_of_exit(&x, text, sizeof text);
	late = xasprintf("took longer than %d s and was killed", TIME_MS / 1000);
	if (r->error && !r->up)
		say(r->app, r->name, r->error);
	else if (r->overdue)
		say(r->app, r->name, late);
	else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		say(r->app, r->name, text);
}

static void on_ended(struct loop_io *w, unsigned events)
{
	struct hook_run *r = w->data;
	struct app *a = r->app;
	struct sup *s = r->sup;
	int status = 0, own;

	(void)events;
	if (pidfd_reap(w->fd, &status) == 0)
		return;
	if (r->up && launch_exit_status(r->launch, &own) == 0)
		status = own;
	report(r, status);
	run_free(r);
	if (a)
		go_on(a);
	shutdown_step(s);
}

/* As app_kill(): outside of a jail its init ends by itself when what runs below it is killed; killed first, it would let
 * all that loose. */
static void kill_run(struct hook_run *r)
{
	bool below = !r->jailed && r->up;

	if (below)
		strays_kill_below(launch_pid(r->launch));
	if (!below || r->killed)
		(void)pidfd_signal(launch_pidfd(r->launch), SIGKILL);
	r->killed = true;
	loop_timer_start(&r->deadline, AGAIN_MS);
}

static void on_deadline(struct loop_timer *w)
{
	struct hook_run *r = w->data;

	r->overdue |= !r->killed;
	kill_run(r);
}

/* A failure is told when the process is reaped, which is dead or dying. */
static void on_done(void *data, struct launch *l, struct launch_done *done, const struct err *error)
{
	struct hook_run *r = data;

	(void)l;
	(void)done; /* its sockets and descriptors are closed */
	r->up = !error;
	if (error)
		r->error = xstrdup(err_msg(error));
}

/* --- its beginning --- */

/* `words`: separated by line feeds, see unit_set_hook(). */
static void split(const char *words, struct strv *ret)
{
	while (*words) {
		size_t n = strcspn(words, "\n");

		strv_take(ret, xstrndup(words, n));
		words += n + (words[n] == '\n');
	}
}

static struct plan *plan_of(struct app *a, const char *name, const char *words, struct err **e)
{
	CLEANUP_STRV struct strv argv = {0};
	CLEANUP_FREE struct unit_value *env = xcalloc(a->unit->environment.n + 1, sizeof *env);
	CLEANUP_FREE char *which = xasprintf("SBXSV_HOOK=%s", name);
	struct unit u = *a->unit;
	struct plan *p;

	split(words, &argv);
	memcpy(env, u.environment.v, u.environment.n * sizeof *env);
	env[u.environment.n] = (struct unit_value){.text = which, .origin = (char *)(uintptr_t) "[Hooks]"};
	u.environment = (struct unit_list){.v = env, .n = u.environment.n + 1};
	u.exec = argv;
	u.shell = NULL;
	u.exec_origin = (char *)(uintptr_t) "[Hooks]";
	u.allow = u.allow_address = u.connect = u.loopback_app = (struct unit_list){0};
	u.egress = UNIT_EGRESS_OFF;
	u.n_loopback = 0;
	u.ready = UNIT_READY_EXEC;
	u.watchdog_ms = 0;
	if (u.hooks_unsafe) {
		u.path = (struct unit_list){0}; /* apps may write there */
		u.enforce = UNIT_ENFORCE_OFF;
		u.backend = UNIT_BACKEND_NONE;
	}
	p = run_plan_of_hook(a, &u, e);
	if (!p || !u.hooks_unsafe)
		return p;
	free(p->workdir);
	p->workdir = xstrdup("/");
	if (outside_check(a, p, e) == 0)
		return p;
	plan_free(p);
	return NULL;
}

static struct net_plan no_network;

static int begin(struct app *a, struct hook_run *r, const struct waiting *w, const char *words,
		 struct err **e)
{
	CLEANUP_PLAN struct plan *p = plan_of(a, w->name, words, e);
	CLEANUP_FREE char *mark = xasprintf("[hook %s] ", w->name);
	CLEANUP_FD int in = -1, out = -1;
	struct launch_io io = {
		.init_fd = a->sup->init_fd, .supervisor_pidfd = a->sup->self_pidfd, .new_session = true};
	const struct backend *b;

	if (!p)
		return -1;
	b = p->netns ? backend_for(a->unit, e) : &backend_none;
	if (!b)
		return -1;
	/* no pipe: nobody would be there to write what it does not take, and of a user who has many it takes little (pipe(7)) */
	in = fd_sealed("sbxsv-event", w->json, strlen(w->json));
	if (in < 0)
		return err_sys(e, errno, "its input");
	out = a->logs ? logs_open_pipe_marked(a->logs, mark, e)
		      : err_set(e, ENOMEM, "its log cannot be opened");
	if (out < 0)
		return -1;
	io.stdin_fd = in;
	io.stdout_fd = io.stderr_fd = out;
	if (p->netns) {
		io.inside_net = network_inside;
		io.inside_net_data = &no_network;
	}
	r->jailed = b != &backend_none;
	a->sup->any_unjailed |= !r->jailed;
	r->launch = b->launch(a->sup->loop, p, &io, on_done, r, e);
	return r->launch ? 0 : -1;
}

static void run(struct app *a, const struct waiting *w, const char *words)
{
	struct hook_run *r = xcalloc(1, sizeof *r);
	CLEANUP_ERR struct err *e = NULL;

	r->sup = a->sup;
	r->app = a;
	r->app_name = xstrdup(a->name);
	r->name = w->name;
	r->next = a->sup->hook_runs;
	a->sup->hook_runs = r;
	a->hooks->run = r;
	loop_timer_init(a->sup->loop, &r->deadline, on_deadline, r);
	if (begin(a, r, w, words, &e) < 0) {
		say(a, w->name, err_msg(e));
		run_free(r);
		return;
	}
	loop_io_init(a->sup->loop, &r->ended, launch_pidfd(r->launch), LOOP_READ, on_ended, r);
	loop_timer_start(&r->deadline, TIME_MS);
}

static struct waiting *take(struct hooks *h)
{
	struct waiting *w = h->head;

	h->head = w->next;
	if (!h->head)
		h->tail = &h->head;
	h->n--;
	return w;
}

static void waiting_free(struct waiting *w)
{
	free(w->json);
	free(w);
}

/* The next one that there still is a command for. */
static void go_on(struct app *a)
{
	struct hooks *h = a->hooks;

	while (h->head && !h->run && !a->sup->down && !a->sup->hand_over) {
		struct waiting *w = take(h);
		const char *words = command_of(a->unit, w->name);

		if (words)
			run(a, w, words);
		waiting_free(w);
	}
}

static void on_later(struct loop_defer *d)
{
	struct sup *s = d->data;

	for (struct app *a = s->apps; a; a = a->next)
		if (a->hooks && !a->dead)
			go_on(a);
}

void hooks_init(struct sup *s)
{
	loop_defer_init(s->loop, &s->hooks_defer, on_later, s);
}

static struct hooks *hooks_of(struct app *a)
{
	if (!a->hooks) {
		a->hooks = xcalloc(1, sizeof *a->hooks);
		a->hooks->tail = &a->hooks->head;
	}
	return a->hooks;
}

static char *input_of(struct hooks *h, const char *name, const struct js *event)
{
	CLEANUP_JS struct js *own = js_copy(event);
	CLEANUP_FREE char *text = NULL;
	char stamp[CLK_STAMP_LEN];

	js_add_str(own, "hook", name);
	js_add_str(own, "timestamp", clk_stamp(clk_wall_ms(), stamp, sizeof stamp));
	if (h->missed) {
		js_add_int(own, "missed", (int64_t)h->missed);
		h->missed = 0;
	}
	text = js_print(own);
	return strlen(text) < INPUT_MAX ? xasprintf("%s\n", text) : NULL;
}

/* Too soon after the last one: the next says how many there were. */
static bool is_flood(struct hooks *h, const char *name)
{
	int64_t now = clk_mono_ms();

	if (strcmp(name, "OnViolation") != 0)
		return false;
	if (h->violation_ms && now - h->violation_ms < VIOLATION_MS) {
		h->missed++;
		return true;
	}
	h->violation_ms = now;
	return false;
}

/* Owns json. */
static void put(struct hooks *h, const char *name, char *json)
{
	struct waiting *w = xcalloc(1, sizeof *w);

	*w = (struct waiting){.name = name, .json = json};
	*h->tail = w;
	h->tail = &w->next;
	h->n++;
}

void hooks_happened(struct app *a, const char *name, const struct js *event)
{
	struct hooks *h;
	char *json;

	if (a->sup->down || a->dead || !command_of(a->unit, name))
		return;
	h = hooks_of(a);
	if (is_flood(h, name))
		return;
	json = input_of(h, name, event);
	if (!json || h->n >= WAITING_MAX) {
		free(json);
		if (!h->dropped++)
			say(a, name, "is left out: too many wait for the one that runs");
		return;
	}
	put(h, name, json);
	loop_defer_start(&a->sup->hooks_defer); /* not in the middle of what happens */
}

void hooks_release(struct app *a)
{
	struct hooks *h = TAKE_PTR(a->hooks);

	if (!h)
		return;
	if (h->run)
		h->run->app = NULL;
	while (h->head)
		waiting_free(take(h));
	free(h);
}

/* --- all of them --- */

size_t hooks_running(const struct sup *s)
{
	size_t n = 0;

	for (const struct hook_run *r = s->hook_runs; r; r = r->next)
		n++;
	return n;
}

const char *hooks_busy(const struct sup *s)
{
	return s->hook_runs ? s->hook_runs->app_name : NULL;
}

bool hooks_knows(const struct sup *s, pid_t pid)
{
	for (const struct hook_run *r = s->hook_runs; r; r = r->next)
		if (r->launch && launch_pid(r->launch) == pid)
			return true;
	return false;
}

void hooks_kill(struct sup *s)
{
	for (struct hook_run *r = s->hook_runs; r; r = r->next)
		kill_run(r);
}

void hooks_finish(struct sup *s)
{
	loop_defer_stop(&s->hooks_defer);
	for (; s->hook_runs; run_free(s->hook_runs)) {
		s->hook_runs->killed = true;
		kill_run(s->hook_runs);
	}
}

/* --- across an exec of the supervisor: none is begun before it, those that run are waited for, and those that wait go along --- */

static const char *const names[] = {"OnStart", "OnReady", "OnExit", "OnFail", "OnViolation"};

static const struct keep_field fields[] = {
	KEEP(hooks, U64, dropped),
	KEEP(hooks, U64, missed),
	KEEP(hooks, I64, violation_ms),
};

struct js *hooks_save(struct keep *k, const struct app *a)
{
	struct js *o, *waiting;

	if (!a->hooks)
		return NULL;
	o = js_obj();
	waiting = js_arr();
	keep_save(k, o, fields, ELEMENTS(fields), a->hooks);
	for (const struct waiting *w = a->hooks->head; w; w = w->next) {
		struct js *one = js_obj();

		js_add_str(one, "name", w->name);
		keep_text(k, one, "json", w->json);
		js_push(waiting, one);
	}
	js_add(o, "waiting", waiting);
	return o;
}

void hooks_restore(struct keep *k, const struct js *o, struct app *a)
{
	struct hooks *h;

	if (!o)
		return;
	h = hooks_of(a);
	keep_load(k, o, fields, ELEMENTS(fields), h);
	for (const struct js *one = js_first(js_get(o, "waiting")); one; one = js_next(one)) {
		CLEANUP_FREE char *json = keep_get_text(k, one, "json");

		for (size_t i = 0; json && i < ELEMENTS(names); i++)
			if (str_eq(js_str(one, "name"), names[i]))
				put(h, names[i], TAKE_PTR(json));
	}
}

void hooks_go_on(struct sup *s)
{
	loop_defer_start(&s->hooks_defer);
}
