/*
 * [Prepare]: a command that makes what the app needs (npm ci, pip install), once for each content of its files.
 *
 * Theory of operation. When an app is about to be launched, the fingerprint of [Prepare] is compared with the one in
 * STATE/prepared/NAME. If they differ, the command is launched first, by the same code as the app and in its jail, but
 * with the network that [Prepare] Allow= gives instead of the app's, and without its ports. The app is `starting` all that
 * time, its clients wait. Success writes the fingerprint, by rename, and the app is launched; a failure is tried again
 * Retries= times, then the app is failed. So whatever is killed in the middle, no fingerprint says that something was
 * prepared that was not. The fingerprint is that of the files before the command ran: when they are changed meanwhile
 * (by the command itself, too), the next start prepares once more rather than once too few.
 */
#include "sup/app.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#define PREPARED_DIR "prepared"
enum {
	FILES_MAX = 16 << 20 /* bytes of Files= together: they are read while the loop waits */
};

struct prepare {
	struct app *app;
	struct unit view; /* of the unit in force; refreshed whenever it is asked for */
	char *fingerprint;
	unsigned tries;
	int64_t since_ms;
	struct loop_timer deadline, again;
	bool overdue;
};

/* --- the fingerprint --- */

static void add_text(struct sha256 *s, const char *text)
{
	sha256_add(s, text ? text : "", (text ? strlen(text) : 0) + 1);
}

/* The content of a file that the app may have put there: a regular one, or none. 0, or -1 with *e. */
static int add_file(struct sha256 *s, const char *path, size_t *room, struct err **e)
{
	bool may_be_absent = *path == '-';
	CLEANUP_FD int at = open(path + may_be_absent, O_PATH | O_CLOEXEC), fd = -1;
	CLEANUP_FREE char *again = NULL;
	char buf[16384];
	struct stat st;
	ssize_t n;

	add_text(s, path + may_be_absent);
	if (at < 0 && may_be_absent && (errno == ENOENT || errno == ENOTDIR)) {
		add_text(s, "absent");
		return 0;
	}
	if (at < 0 || fstat(at, &st) < 0)
		return err_sys(e, errno, "[Prepare] Files=%s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, EINVAL, "[Prepare] Files=%s is no regular file", path);
	again = xasprintf("/proc/self/fd/%d", at);
	fd = open(again, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 &&
	    errno == EAGAIN) /* else we would wait for its holder, 45 s (proc(5), lease-break-time) */
		return err_set(e, ETIMEDOUT, "[Prepare] Files=%s: a program has a lease on it (fcntl(2))",
			       path);
	if (fd < 0)
		return err_sys(e, errno, "[Prepare] Files=%s", path);
	add_text(s, "content");
	while ((n = read(fd, buf, sizeof buf)) > 0) {
		if ((size_t)n > *room)
			return err_set(e, EFBIG,
				       "[Prepare] Files= are more than %d MiB together: name lock files",
				       FILES_MAX >> 20);
		*room -= (size_t)n;
		sha256_add(s, buf, (size_t)n);
	}
	if (n < 0)
		return err_sys(e, errno, "[Prepare] Files=%s", path);
	sha256_add(s, &st.st_size, sizeof st.st_size); /* where the next one begins */
	return 0;
}

static int fingerprint(const struct unit *u, char *ret, struct err **e)
{
	uint8_t sum[SHA256_BYTES];
	size_t room = FILES_MAX;
	struct sha256 s;

	sha256_init(&s);
	add_text(&s, u->app_directory ? u->app_directory : u->working_directory);
	add_text(&s, u->working_directory);
	for (size_t i = 0; i < u->prepare_exec.n; i++)
		add_text(&s, u->prepare_exec.v[i]);
	add_text(&s, "");
	for (size_t i = 0; i < u->prepare_files.n; i++)
		if (add_file(&s, u->prepare_files.v[i], &room, e) < 0)
			return -1;
	sha256_end(&s, sum);
	for (size_t i = 0; i < sizeof sum; i++)
		(void)snprintf(ret + 2 * i, 3, "%02x", sum[i]);
	return 0;
}

/* --- the mark --- */

static int open_marks(const struct app *a, struct err **e)
{
	CLEANUP_FREE char *dir = path_join(a->sup->dirs->state, PREPARED_DIR);

	return file_private_dir(dir, e);
}

static bool is_marked(const struct app *a, const char *want)
{
	CLEANUP_FD int dir = open_marks(a, NULL);
	CLEANUP_FREE char *text = NULL;
	size_t len;

	return dir >= 0 && file_read(dir, a->name, 256, &text, &len, NULL) == 0 && str_eq(chomp(text), want);
}

/* What cannot be written costs another run at the next start. */
static void mark(const struct app *a, const char *sum)
{
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FD int dir = open_marks(a, &e);
	CLEANUP_FREE char *text = xasprintf("%s\n", sum);

	if (dir < 0 || file_write_atomic(dir, a->name, text, strlen(text), 0600, &e) < 0)
		log_warning("%s: that it is prepared is not remembered: %s", a->name, err_msg(e));
}

void sup_prepare_again(struct sup *s, const char *name)
{
	for (const struct app *a = s->apps; a; a = a->next) {
		CLEANUP_FD int dir = -1;

		if (name && strcmp(a->name, name) != 0)
			continue;
		dir = open_marks(a, NULL);
		if (dir >= 0)
			(void)unlinkat(dir, a->name, 0);
	}
}

/* --- what it is launched by --- */

const struct unit *prepare_unit(const struct app *a)
{
	struct prepare *p = a->prepare;
	const struct unit *u = a->unit;
	struct unit *v;

	if (!p || !u)
		return u;
	v = &p->view;
	*v = *u;
	v->exec = u->prepare_exec;
	v->shell = NULL;
	v->exec_origin = (char *)(uintptr_t) "[Prepare] Exec=";
	v->allow = u->prepare_allow;
	v->allow_address = v->connect = v->loopback_app = (struct unit_list){0};
	v->egress = u->prepare_allow.n ? UNIT_EGRESS_HOSTS : UNIT_EGRESS_OFF;
	v->egress_origin =
		(char *)(uintptr_t) "[Prepare]"; /* it is said: nothing given at run time implies more */
	v->n_loopback = v->n_listen = 0;
	v->ready = UNIT_READY_EXEC;
	v->watchdog_ms = 0;
	return v;
}

static char *command_text(const struct app *a)
{
	return strv_join(&a->unit->prepare_exec, " ");
}

static void drop(struct app *a)
{
	struct prepare *p = TAKE_PTR(a->prepare);

	if (!p)
		return;
	loop_timer_stop(&p->deadline);
	loop_timer_stop(&p->again);
	free(p->fingerprint);
	free(p);
}

void prepare_stop(struct app *a)
{
	CLEANUP_ERR struct err *e = NULL;

	if (!a->prepare)
		return;
	drop(a);
	if (network_rules_again(a, &e) < 0)
		log_warning("%s: %s", a->name, err_msg(e));
}

void prepare_release(struct app *a)
{
	drop(a);
}

static void on_again(struct loop_timer *w)
{
	struct prepare *p = w->data;

	app_event(p->app, EV_HELD);
}

static void on_deadline(struct loop_timer *w)
{
	struct prepare *p = w->data;

	p->overdue = true;
	if (p->app->launch && !p->app->reaped)
		(void)pidfd_signal(launch_pidfd(p->app->launch), SIGKILL);
}

static struct prepare *create(struct app *a)
{
	struct prepare *p = a->prepare = xcalloc(1, sizeof *p);

	p->app = a;
	loop_timer_init(a->sup->loop, &p->deadline, on_deadline, p);
	loop_timer_init(a->sup->loop, &p->again, on_again, p);
	return p;
}

static int begin(struct app *a, const char *sum, struct err **e)
{
	struct prepare *p = a->prepare;

	if (!p) {
		p = create(a);
		p->since_ms = clk_mono_ms();
	}
	free(p->fingerprint);
	p->fingerprint = xstrdup(sum);
	p->overdue = false;
	p->tries++;
	free(TAKE_PTR(a->launch_error));
	return network_rules_again(a, e);
}

enum prepare_next prepare_next(struct app *a, struct err **e)
{
	char sum[2 * SHA256_BYTES + 1];

	if (a->prepared ||
	    !a->unit->prepare_exec.n) { /* prepared: just now, whatever that did to the files */
		a->prepared = false;
		prepare_stop(a);
		return PREPARE_DONE;
	}
	if (fingerprint(a->unit, sum, e) < 0)
		return PREPARE_FAILED;
	if (!a->prepare && is_marked(a, sum))
		return PREPARE_DONE;
	return begin(a, sum, e) < 0 ? PREPARE_FAILED : PREPARE_RUN;
}

void prepare_launched(struct app *a)
{
	struct prepare *p = a->prepare;
	CLEANUP_FREE char *command = command_text(a), *text = NULL;

	loop_timer_start(&p->deadline, a->unit->prepare_timeout_ms);
	text = xasprintf(LOG_PREPARING ", pid %d: %s%s", (int)a->pid, command,
			 p->tries > 1 ? " (once more)" : "");
	logs_note(a->logs, text + strlen("[sbxsv] "));
	events_note(a->sup->events, "prepare", a->name, "%s", text + strlen("[sbxsv] "));
}

/* --- its end --- */

static void succeeded(struct app *a)
{
	CLEANUP_FREE char *text = xasprintf("prepared in %lld ms", (long long)a->last_exit.after_ms);

	mark(a, a->prepare->fingerprint);
	prepare_stop(a);
	a->prepared = true;
	logs_note(a->logs, text);
	events_note(a->sup->events, "prepare", a->name, "%s", text);
	app_event(a, EV_HELD);
}

static char *cause_of(struct app *a)
{
	CLEANUP_FREE char *command = command_text(a);
	char text[80];

	if (a->launch_error && !a->up)
		return xasprintf("prepare: %s", a->launch_error);
	if (a->prepare->overdue)
		return xasprintf("prepare: %s took longer than %lld s and was killed", command,
				 (long long)(a->unit->prepare_timeout_ms / 1000));
	app_text_of_exit(&a->last_exit, text, sizeof text);
	return xasprintf("prepare: %s %s", command, text);
}

static void failed(struct app *a, const char *cause)
{
	struct prepare *p = a->prepare;
	CLEANUP_FREE char *why = NULL;

	violations_ended(a, true);
	logs_note(a->logs, cause);
	events_note(a->sup->events, "prepare", a->name, "%s", cause);
	if (p->tries <= a->unit->prepare_retries) {
		app_say(a, "", "%s; it is tried again", cause);
		loop_timer_start(&p->again,
				 restart_delay(p->tries, a->unit->restart_ms, a->unit->restart_max_ms));
		return;
	}
	why = p->tries > 1 ? xasprintf("%s (%u times)", cause, p->tries) : xstrdup(cause);
	explain_unprepared(a, why);
	prepare_stop(a);
	app_event(a, EV_REFUSED);
}

void prepare_ended(struct app *a)
{
	int status = a->last_exit.status;
	bool success = a->up && !a->prepare->overdue && WIFEXITED(status) && WEXITSTATUS(status) == 0;
	bool short_of = !a->up && a->short_of, stopping = a->state == APP_STOPPING;
	CLEANUP_FREE char *cause = cause_of(a), *passing = short_of ? shortage_hint(a->short_of) : NULL;
	enum app_event verdict = stopping ? action_verdict(a) : EV_SHORT;

	loop_timer_stop(&a->prepare->deadline);
	status_emit_exit(a);
	run_release(a);
	sup_record(a->sup);
	if (stopping || short_of) {
		if (!stopping)
			app_say(a, passing, "%s", cause);
		prepare_stop(a);
		app_event(a, verdict);
	} else if (success) {
		succeeded(a);
	} else {
		failed(a, cause);
	}
}

struct js *prepare_status(const struct app *a)
{
	const struct prepare *p = a->prepare;
	CLEANUP_FREE char *command = NULL;
	struct js *o;

	if (!p)
		return NULL;
	command = command_text(a);
	o = js_obj();
	js_add_str(o, "command", command);
	js_add_int(o, "tries", p->tries);
	js_add_int(o, "retries", a->unit->prepare_retries);
	js_add_int(o, "since_ms", clk_mono_ms() - p->since_ms);
	return o;
}

/* --- over an upgrade --- */

static const struct keep_field fields[] = {
	KEEP(prepare, TEXT, fingerprint), KEEP(prepare, UINT, tries),  KEEP(prepare, I64, since_ms),
	KEEP(prepare, TIMER, deadline),   KEEP(prepare, TIMER, again), KEEP(prepare, BOOL, overdue),
};

struct js *prepare_save(struct keep *k, const struct app *a)
{
	struct js *o = a->prepare ? js_obj() : NULL;

	if (o)
		keep_save(k, o, fields, ELEMENTS(fields), a->prepare);
	return o;
}

void prepare_restore(struct keep *k, const struct js *o, struct app *a)
{
	if (o)
		keep_load(k, o, fields, ELEMENTS(fields), create(a));
}
