#include "sup/app.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "trace/refused.h"
#include <string.h>

struct app *app_create(struct sup *s, const char *name)
{
	struct app *a = xcalloc(1, sizeof *a), **at = &s->apps;

	a->sup = s;
	a->name = xstrdup(name);
	a->diag_fd = a->userns_fd = a->netns_fd = -1;
	a->gate = PROXY_GATE_RESET;
	*(int64_t *)(uintptr_t)&a->since_ms = clk_mono_ms();
	while (*at && strcmp((*at)->name, name) < 0)
		at = &(*at)->next;
	a->next = *at;
	*at = a;
	s->n_apps++;
	action_init(a);
	live_init(a);
	return a;
}

struct app *app_find(const struct sup *s, const char *name)
{
	for (struct app *a = s->apps; a; a = a->next)
		if (!a->dead && strcmp(a->name, name) == 0)
			return a;
	return NULL;
}

/* "web@.app" of "web@8080", if it is there; owned by caller. */
static char *template_of(const struct sup *s, const char *name)
{
	const char *at = unit_name_valid(name) ? strchr(name, '@') : NULL;
	CLEANUP_FREE char *file = at ? xasprintf("%.*s@.app", (int)(at - name), name) : NULL,
			  *path = file ? path_join(s->dirs->apps, file) : NULL;

	return path && access(path, F_OK) == 0 ? TAKE_PTR(file) : NULL;
}

char *sup_no_app(const struct sup *s, const char *name)
{
	CLEANUP_FREE const char **names = xcalloc(s->n_apps + 1, sizeof *names);
	CLEANUP_FREE char *shown = str_escape(name, strlen(name)), *template = template_of(s, name);
	const char *near;
	size_t n = 0;

	for (const struct app *a = s->apps; a; a = a->next)
		if (!a->dead && !a->removed)
			names[n++] = a->name;
	near = str_nearest(name, names);
	if (template)
		return xasprintf("there is no app \"%s\", only its template %s; sbxsv enable %s makes it",
				 shown, template, shown);
	return near ? xasprintf("there is no app \"%s\"; did you mean \"%s\"?", shown, near)
		    : xasprintf("there is no app \"%s\"; sbxsv status lists them", shown);
}

void app_free(struct app *a)
{
	struct app **at = &a->sup->apps;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	a->sup->n_apps--;
	command_abandon(a, true, "the app was removed");
	order_forget(a);
	action_finish(a);
	live_finish(a);
	stdio_release(a);
	prepare_release(a);
	hooks_release(a);
	run_release(a);
	listener_release(a);
	if (a->sup->proxy)
		proxyctl_remove(a->sup->proxy, a->name);
	refused_forget(a->sup->refused, a->name);
	logs_destroy(a->logs);
	unit_free(a->unit);
	unit_free(a->newest);
	unit_problems_clear(&a->problems);
	restart_finish(&a->restart);
	free(a->launch_error);
	free(a->run_user);
	free(a->group_error);
	free(a->group);
	free(a->capture);
	free(a->caught);
	strv_clear(&a->hidden);
	needs_release(a);
	free(a->because);
	free(a->reason);
	free(a->hint);
	free(a->name);
	free(a);
}

/* The one place where the state of an app is written. */
static void set_state(struct app *a, enum app_state to)
{
	if (a->state == to)
		return;
	*(enum app_state *)(uintptr_t)&a->state = to;
	*(int64_t *)(uintptr_t)&a->since_ms = clk_mono_ms();
	action_left_state(a);
}

void app_restore_state(struct app *a, enum app_state state, int64_t since_ms)
{
	*(enum app_state *)(uintptr_t)&a->state = state;
	*(int64_t *)(uintptr_t)&a->since_ms = since_ms;
}

static void app_step(struct app *a, enum app_event e)
{
	enum app_state from = a->state;
	struct state_step st = state_step(from, e);

	if (!st.valid) {
		log_debug("%s: %s means nothing while %s", a->name, app_event_name(e), app_state_name(from));
		return;
	}
	log_debug("%s: %s: %s -> %s, %s", a->name, app_event_name(e), app_state_name(from),
		  app_state_name(st.next), app_action_name(st.action));
	set_state(a, st.next);
	app_act(a, st.action);
	network_gate(a);
	if (from != st.next)
		status_emit_state(a, from);
	command_settle(a, app_event_is_request(e) ? &e : NULL);
	if (from != st.next)
		order_moved(a);
}

void app_bury(struct sup *s)
{
	if (s->stepping || s->walks)
		return;
	for (struct app *a = s->apps, *next; a; a = next) {
		next = a->next;
		if (a->dead)
			app_free(a);
	}
}

/* Events raised inside a step wait here until it is over: no action ever sees another one half done. */
void app_event(struct app *a, enum app_event e)
{
	struct sup *s = a->sup;

	VEC_GROW(s->queue, s->queue_n, s->queue_cap);
	s->queue[s->queue_n++] = (struct queued){.app = a, .event = e, .attempt = a->attempt};
	if (s->stepping)
		return;
	s->stepping = true;
	while (s->queue_at < s->queue_n) {
		struct queued q = s->queue[s->queue_at++];

		if (q.app->dead || (!app_event_is_request(q.event) && q.attempt != q.app->attempt))
			continue;
		app_step(q.app, q.event);
	}
	s->queue_at = s->queue_n = 0;
	s->stepping = false;
	app_bury(s);
	shutdown_step(s);
}

void app_forget(struct app *a)
{
	a->dead = true;
}

void app_say(struct app *a, const char *hint, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	free(a->reason);
	a->reason = xvasprintf(fmt, ap);
	va_end(ap);
	free(a->hint);
	a->hint = xstrdup(hint);
}

void app_say_nothing(struct app *a)
{
	free(a->reason);
	free(a->hint);
	a->reason = a->hint = NULL;
}

bool app_alive(const struct app *a)
{
	return a->launch || a->instances;
}

const struct unit *app_newest(const struct app *a)
{
	return a->newest ? a->newest : a->unit;
}

bool app_jailed(const struct unit *u)
{
	return backend_for(u, NULL) != &backend_none;
}
