/*
 * Requests of persons, and whoever waits for their result. A waiter is armed when its own request has been
 * handled by the table, and is answered by the first state that settles it. A request for all apps is one
 * waiter an app, and one answer when the last of them is in.
 */
#include "sup/app.h"
#include "base/clock.h"
#include <errno.h>
#include <signal.h>
#include <string.h>

struct command { /* one call of sup_command() */
	sup_done_fn *done;
	void *data;
	size_t open; /* waiters left, and one while they are being added */
	int code;
	struct strbuf message;
	struct strbuf notes; /* for when all is well: what happened to other apps */
};

struct waiter {
	struct waiter *next;
	struct command *command;
	enum app_event event;
	bool armed;
};

static void command_answer(struct command *c, int code, const char *text)
{
	if (code > c->code)
		c->code = code;
	if (text && *text) {
		if (c->message.len)
			strbuf_addc(&c->message, '\n');
		strbuf_adds(&c->message, text);
	}
	if (--c->open)
		return;
	if (!c->code && c->notes.len)
		strbuf_addf(&c->message, "%s%s", c->message.len ? "\n" : "", c->notes.p);
	c->done(c->data, c->code, c->message.p ? c->message.p : "");
	strbuf_finish(&c->message);
	strbuf_finish(&c->notes);
	free(c);
}

static void add_indented(struct strbuf *b, const char *text)
{
	for (; *text; text++) {
		strbuf_addc(b, *text);
		if (*text == '\n')
			strbuf_adds(b, "  ");
	}
}

/* "notes: it failed", and every further line of reason and hint indented: one block an app. */
static char *block(const char *name, const char *reason, const char *hint)
{
	struct strbuf b = STRBUF_INIT;

	strbuf_addf(&b, "%s: ", name);
	add_indented(&b, reason);
	if (hint && *hint) {
		strbuf_adds(&b, "\n  ");
		add_indented(&b, hint);
	}
	return strbuf_take(&b);
}

/* Does this state answer the request? Then with which code and text (NULL: none). */
static bool settled(const struct app *a, enum app_event wanted, int *code, char **text)
{
	CLEANUP_FREE char *reason = NULL;

	*code = 0;
	*text = NULL;
	if (wanted == EV_STOP)
		return a->state != APP_STOPPING;
	if (wanted == EV_IDLE && a->state == APP_IDLE)
		return true;
	switch (a->state) {
	case APP_RUNNING:
	case APP_UNHEALTHY:
		return true;
	case APP_BACKOFF:
		*code = 1;
		reason = xasprintf("%s; the next start is in %lld ms", a->reason ? a->reason : "it ended",
				   (long long)(a->next_start_ms - clk_mono_ms()));
		*text = block(a->name, reason, a->hint);
		return true;
	case APP_WAITING:
		if (!a->stuck)
			return false;
		*code = 1;
		*text = block(a->name, a->reason ? a->reason : "it waits", a->hint);
		return true;
	case APP_FAILED:
	case APP_STOPPED:
		*code = 1;
		*text = block(a->name, a->reason ? a->reason : "it was stopped", a->hint);
		return true;
	default:
		return false;
	}
}

void command_settle(struct app *a, const enum app_event *handled)
{
	struct waiter **at = &a->waiters;

	while (*at) {
		struct waiter *w = *at;
		CLEANUP_FREE char *text = NULL;
		int code;

		if (handled && w->event == *handled)
			w->armed = true;
		if (!w->armed || !settled(a, w->event, &code, &text)) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		command_answer(w->command, code, text);
		free(w);
	}
}

void command_abandon(struct app *a, bool ends, const char *why)
{
	while (a->waiters) {
		struct waiter *w = a->waiters;
		CLEANUP_FREE char *text = xasprintf("%s: %s", a->name, why);
		bool stopped = ends && w->event == EV_STOP;

		a->waiters = w->next;
		command_answer(w->command, stopped ? 0 : 1, stopped ? NULL : text);
		free(w);
	}
}

void command_overtaken(struct app *a, enum app_event e)
{
	CLEANUP_FREE char *text =
		xasprintf("%s: another request came before this one was carried out", a->name);
	struct waiter **at = &a->waiters;

	while (*at) {
		struct waiter *w = *at;

		if (w->armed || w->event != e) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		command_answer(w->command, 1, text);
		free(w);
	}
}

static void take_note(struct command *c, const struct app *a, enum app_event e, const struct strv *with)
{
	CLEANUP_FREE char *names = strv_join(with, ", ");
	const char *many = with->n > 1 ? "s" : "";

	if (!with->n)
		return;
	if (c->notes.len)
		strbuf_addc(&c->notes, '\n');
	if (e == EV_START)
		strbuf_addf(&c->notes, "%s: started first, because it requires the app%s: %s", a->name, many,
			    names);
	else
		strbuf_addf(&c->notes, "%s: %s too, because the app%s require%s it: %s", a->name,
			    e == EV_STOP ? "stopped" : "restarted", many, with->n > 1 ? "" : "s", names);
}

/* c: who is told what happens to other apps, and, with `wait`, is answered by the result. */
static void request(struct app *a, enum app_event e, struct command *c, bool wait)
{
	CLEANUP_STRV struct strv with = {0};

	if (e != EV_STOP)
		restart_reset(&a->restart); /* a person has looked at it */
	if (wait) {
		struct waiter *w = xcalloc(1, sizeof *w);

		w->event = e;
		w->command = c;
		w->next = a->waiters;
		a->waiters = w;
		c->open++;
	}
	c->open++; /* not answered before it is known what became of other apps */
	order_request(a, e, true, &with);
	take_note(c, a, e, &with);
	if (!wait && e != EV_STOP && a->state == APP_WAITING && a->reason) {
		CLEANUP_FREE char *text = block(a->name, a->reason, NULL);

		command_answer(c, 0, text);
		return;
	}
	command_answer(c, 0, NULL);
}

static const enum app_event event_of[] = {
	[SUP_START] = EV_START, [SUP_STOP] = EV_STOP, [SUP_RESTART] = EV_RESTART};

/* `all` leaves disabled apps alone, unless they run and the request is to stop or restart them. */
static bool meant_by_all(const struct app *a, enum sup_verb v)
{
	const struct unit *u = app_newest(a);

	if (v == SUP_STOP)
		return true;
	if (stdio_mode(a))
		return false;
	if (v == SUP_RESTART && a->state != APP_STOPPED && a->state != APP_FAILED)
		return true;
	return u && u->enabled && u->mode != UNIT_STDIO;
}

/* Session apps that do not run are made idle: to start them all would be what nobody wants. */
static enum app_event event_for_all(const struct app *a, enum sup_verb v)
{
	const struct unit *u = app_newest(a);
	bool active = app_alive(a) || a->state == APP_STARTING || a->state == APP_STOPPING;

	if (v == SUP_STOP || !u || u->mode != UNIT_SESSION || (v == SUP_RESTART && active))
		return event_of[v];
	return EV_IDLE;
}

/* What only clients start; and a restart of what runs, whose new definition cannot start: it would only end a good process. */
static bool spared(const struct app *a, enum sup_verb v, struct command *c)
{
	CLEANUP_FREE char *problems = NULL, *text = NULL, *told = NULL;

	if (v != SUP_STOP && stdio_mode(a) && !a->broken) {
		c->open++;
		told = xasprintf("%s: Mode=stdio: its clients start it; the command for their configuration is: "
				 "sbxsv run %s", a->name, a->name);
		command_answer(c, 1, told);
		return true;
	}
	if (v != SUP_RESTART || !a->broken || !app_alive(a) || a->state == APP_STOPPING)
		return false;
	problems = unit_problems_text(&a->problems);
	text = xasprintf("the unit is broken, so the app was not stopped and runs on as it was:\n%s",
			 chomp(problems));
	c->open++;
	told = block(a->name, text,
		     "correct the lines named above; the file is read again as soon as it changes");
	command_answer(c, 1, told);
	return true;
}

static void request_all(struct sup *s, enum sup_verb verb, bool wait, struct command *c)
{
	CLEANUP_FREE struct app **all = NULL;
	size_t n = order_all(s, &all);

	batch_begin(s);
	for (size_t i = 0; i < n; i++) {
		struct app *o = all[verb == SUP_START ? i : n - 1 - i]; /* what is required is stopped last */

		if (!o->dead && !o->removed && meant_by_all(o, verb) && !spared(o, verb, c))
			request(o, event_for_all(o, verb), c, wait);
	}
	batch_end(s);
}

void sup_command(struct sup *s, enum sup_verb verb, const char *name, bool wait, sup_done_fn *done,
		 void *data)
{
	struct app *a;
	struct command *c;

	if (s->down) {
		done(data, verb == SUP_STOP ? 0 : 1, "the supervisor is shutting down");
		return;
	}
	watch_flush(s->watch);
	a = name ? app_find(s, name) : NULL;
	/* One whose unit is gone only waits for its last process: a start would keep it for ever. */
	if (name && (!a || a->removed)) {
		CLEANUP_FREE char *text = a ? xasprintf("there is no app \"%s\": its unit was removed", name)
					    : sup_no_app(s, name);

		done(data, 4, text);
		return;
	}
	c = xcalloc(1, sizeof *c);
	c->done = done;
	c->data = data;
	c->open = 1;
	if (!a)
		request_all(s, verb, wait, c);
	else if (!spared(a, verb, c))
		request(a, event_of[verb], c, wait);
	command_answer(c, 0, NULL);
}

int sup_kill(struct sup *s, const char *name, int sig, struct err **e)
{
	struct app *a = app_find(s, name);

	if (!a) {
		CLEANUP_FREE char *text = sup_no_app(s, name);

		return err_set(e, ENOENT, "%s", text);
	}
	if (!a->launch || a->reaped || !a->up)
		return err_set(e, ESRCH, "%s is not running (%s)", name, app_state_name(a->state));
	if (pidfd_signal(launch_pidfd(a->launch), sig) < 0)
		return err_sys(e, errno, "cannot send %s to %s", signal_name(sig), name);
	return 0;
}
