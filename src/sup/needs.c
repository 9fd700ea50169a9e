/*
 * [Needs], before each launch.
 *
 * Theory of operation. An app with [Needs] gets a plan first, by which src/sandbox/needs.c looks around. What has a
 * version is asked for it inside a jail made by that plan, one after the other; meanwhile the app is `starting`, nothing
 * else waits, and a stop kills the query and is over when it is gone. Then the launch is begun anew by EV_HELD. An answer
 * holds for this attempt, and for later ones while the program is the same file; a script is asked every time, because
 * shims decide by their surroundings. Something missing is a start that is refused: one paragraph says what, and what to
 * install. OptionalBin= is said in the log and in status, and refuses nothing.
 */
#include "sup/app.h"
#include "base/log.h"
#include "sandbox/needs.h"
#include "sandbox/version.h"
#include <errno.h>
#include <sys/stat.h>

struct needs_memory { /* of one program's answer */
	char *program, *version, *why;
	unsigned attempt;
	bool same_while_file; /* not a script */
	struct stat st;
};
struct app_needs {
	struct version_query *query;
	char *asked;
	struct needs_memory memory[NEEDS_ASK_MAX];
	unsigned next; /* of memory, to be replaced */
	unsigned met;  /* number of the attempt for which all is well; 0: none */
	bool met_once;
	char *optional; /* what is missing of OptionalBin=, one paragraph; NULL: nothing */
	struct err *failed;
};

static struct app_needs *needs_of(struct app *a)
{
	if (!a->needs)
		a->needs = xcalloc(1, sizeof *a->needs);
	return a->needs;
}

static void forget(struct needs_memory *m)
{
	free(m->program);
	free(m->version);
	free(m->why);
	*m = (struct needs_memory){0};
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static const struct needs_memory *recall(const struct app *a, const char *program)
{
	struct stat st;

	for (size_t i = 0; i < ELEMENTS(a->needs->memory); i++) {
		const struct needs_memory *m = &a->needs->memory[i];

		if (!str_eq(m->program, program))
			continue;
		if (m->attempt == a->attempt)
			return m;
		if (m->version && m->same_while_file && stat(program, &st) == 0 && same_file(&st, &m->st))
			return m;
	}
	return NULL;
}

static bool is_script(const char *program)
{
	const struct plan_fs fs = plan_fs_real();
	CLEANUP_FREE char *head = fs.head(fs.data, program, 2);

	return !head || str_eq(head, "#!");
}

static void remember(struct app *a, const char *version, const char *why)
{
	struct app_needs *n = a->needs;
	struct needs_memory *m = NULL;

	for (size_t i = 0; i < ELEMENTS(n->memory); i++)
		if (str_eq(n->memory[i].program, n->asked))
			m = &n->memory[i];
	if (!m)
		m = &n->memory[n->next++ % ELEMENTS(n->memory)];
	forget(m);
	*m = (struct needs_memory){.program = TAKE_PTR(n->asked),
				   .version = xstrdup(version),
				   .why = xstrdup(why),
				   .attempt = a->attempt};
	m->same_while_file = stat(m->program, &m->st) == 0 && !is_script(m->program);
}

/* Reaped, whatever the answer is. A stop has waited for that. */
static void on_version(void *data, const char *version, const struct err *why)
{
	struct app *a = data;
	struct app_needs *n = a->needs;
	int code = why ? err_code(why) : 0;

	if (why && shortage_is(code)) {
		err_free(TAKE_PTR(n->failed));
		(void)err_set(&n->failed, code, "%s --version: %s", n->asked, err_msg(why));
		free(TAKE_PTR(n->asked));
	} else {
		remember(a, version, why ? err_msg(why) : NULL);
	}
	version_destroy(TAKE_PTR(n->query));
	if (a->state == APP_STOPPING)
		action_nothing_runs(a);
	else
		app_event(a, EV_HELD);
}

static int ask(struct app *a, struct plan *p, const char *program, struct err **e)
{
	const struct backend *b = backend_for(a->unit, e);

	if (!b) {
		plan_free(p);
		return -1;
	}
	a->needs->query = version_ask(a->sup->loop, b, p, program, a->sup->init_fd, a->sup->self_pidfd,
				      on_version, a, e);
	if (!a->needs->query)
		return -1;
	free(a->needs->asked);
	a->needs->asked = xstrdup(program);
	return 0;
}

static void note_optional(struct app *a, const struct needs *found)
{
	CLEANUP_FREE char *text = found->optional.n ? strv_join(&found->optional, "; ") : NULL;

	if (text && !str_eq(text, a->needs->optional) && a->logs)
		logs_note(a->logs, text);
	free(a->needs->optional);
	a->needs->optional = TAKE_PTR(text);
}

/* All that can be known is: is it enough? */
static enum needs_verdict judge(struct app *a, const struct needs *found)
{
	CLEANUP_FREE char *reason = NULL, *hint = NULL, *then = NULL;

	note_optional(a, found);
	if (!found->missing.n) {
		a->needs->met = a->attempt;
		a->needs->met_once = true;
		return NEEDS_MET;
	}
	then = xasprintf("sbxsv start %s", a->name);
	reason = needs_reason(found);
	hint = needs_hint(found, then);
	app_say(a, hint, "%s", reason);
	free(a->launch_error);
	a->launch_error = xstrdup(reason);
	if (a->logs)
		logs_note(a->logs, reason);
	return NEEDS_LACKS;
}

static enum needs_verdict look(struct app *a, struct plan **p, struct needs *found, struct err **e)
{
	const struct plan_fs fs = plan_fs_real();

	needs_look(a->unit, *p, &fs, found);
	if (found->missing.n) /* no need to ask for more */
		return judge(a, found);
	for (size_t i = 0; i < found->n_ask; i++) {
		const struct needs_memory *m = recall(a, found->ask[i].program);

		if (!m)
			return ask(a, TAKE_PTR(*p), found->ask[i].program, e) < 0 ? NEEDS_ERROR
										  : NEEDS_PENDING;
		needs_answer(found, &found->ask[i], m->version, m->why);
	}
	return judge(a, found);
}

/* Before its first [Prepare] the program of an app may not be there yet; then that of [Prepare] looks around. */
static struct plan *plan_of(struct app *a, struct err **e)
{
	struct plan *p = run_plan(a, a->unit, e);
	struct unit view = *a->unit;

	if (p || !view.prepare_exec.n)
		return p;
	err_free(TAKE_PTR(*e));
	view.exec = view.prepare_exec;
	view.shell = NULL;
	return run_plan(a, &view, e);
}

enum needs_verdict needs_check(struct app *a, struct err **e)
{
	CLEANUP_PLAN struct plan *p = NULL;
	CLEANUP(needs_finish) struct needs found = {0};
	struct app_needs *n;

	if (!a->unit->needs.n)
		return NEEDS_MET;
	n = needs_of(a);
	if (n->query)
		return NEEDS_PENDING;
	if (n->met_once && n->met == a->attempt)
		return NEEDS_MET;
	if (n->failed) {
		(void)err_set(e, err_code(n->failed), "%s", err_msg(n->failed));
		err_free(TAKE_PTR(n->failed));
		return NEEDS_ERROR;
	}
	p = plan_of(a, e);
	return p ? look(a, &p, &found, e) : NEEDS_ERROR;
}

bool needs_asking(const struct app *a)
{
	return a->needs && a->needs->query;
}

bool needs_stop(struct app *a)
{
	if (!needs_asking(a))
		return false;
	version_stop(a->needs->query);
	return true;
}

const char *needs_optional(const struct app *a)
{
	return a->needs ? a->needs->optional : NULL;
}

/* The answers are not kept across an exec of the supervisor: the next start asks again. */
void needs_restore(struct app *a, char *optional)
{
	if (optional)
		needs_of(a)->optional = optional;
}

void needs_release(struct app *a)
{
	struct app_needs *n = TAKE_PTR(a->needs);

	if (!n)
		return;
	version_destroy(n->query);
	for (size_t i = 0; i < ELEMENTS(n->memory); i++)
		forget(&n->memory[i]);
	err_free(n->failed);
	free(n->asked);
	free(n->optional);
	free(n);
}
