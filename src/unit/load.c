/*
 * From sources (profile, unit, drop-ins) to a unit. Every source is read into assignments; they are applied
 * in order, so that each bad value is reported even where a later file replaces it. Listen= and User= go
 * first, because $PORT and ~ in other values depend on them. Pure: files and users come through struct
 * build_env.
 */
#include "unit/internal.h"
#include <string.h>

/* --- one source --- */

struct source_reader {
	const struct source *src;
	const struct key_table *t;
	struct assigns *out;
	size_t first; /* out->n at the start of this source */
	struct unit_problems *p;
};

static bool on_section(void *data, const char *section, unsigned line)
{
	struct source_reader *r = data;

	return unit_key_section_check(r->t, section, r->src->shown, line, r->p);
}

static void on_key(void *data, const char *section, const char *name, const char *value, unsigned line)
{
	struct source_reader *r = data;
	const struct unit_key *k = unit_key_find(r->t, section, name);
	struct assigns *out = r->out;

	if (!k) {
		unit_key_report_unknown(r->t, section, name, r->src->shown, line, r->p);
		return;
	}
	if (r->src->layer == LAYER_PROFILE && (k->flags & KEY_UNIT_ONLY)) {
		unit_problem_add(r->p, r->src->shown, line, "[%s] %s= belongs in a unit, not in a profile",
				 section, name);
		return;
	}
	for (size_t i = r->first; !k->list && i < out->n; i++)
		if (out->v[i].key == k) {
			unit_problem_add(r->p, r->src->shown, line,
					 "[%s] %s= is set twice in this file (first in line %u)", section,
					 name, out->v[i].line);
			return;
		}
	VEC_GROW(out->v, out->n, out->cap);
	out->v[out->n++] = (struct assign){.key = k,
					   .raw = xstrdup(value),
					   .origin = xasprintf("%s:%u", r->src->shown, line),
					   .shown = xstrdup(r->src->shown),
					   .line = line,
					   .layer = r->src->layer};
}

void unit_source_parse(const struct source *src, const struct key_table *t, struct assigns *ret,
		       struct unit_problems *p)
{
	struct source_reader r = {.src = src, .t = t, .out = ret, .first = ret->n, .p = p};
	const struct reader_handler h = {.section = on_section, .key = on_key, .data = &r};

	unit_reader_parse(src->shown, src->text, src->len, &h, p);
}

static void assign_finish(struct assign *a)
{
	free(a->raw);
	free(a->origin);
	free(a->shown);
}

void unit_assigns_finish(struct assigns *a)
{
	for (size_t i = 0; i < a->n; i++)
		assign_finish(&a->v[i]);
	free(a->v);
	*a = (struct assigns){0};
}

void unit_sources_finish(struct sources *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->v[i].shown);
		free(s->v[i].path);
		free(s->v[i].text);
	}
	free(s->v);
	*s = (struct sources){0};
}

/* --- the build --- */

struct build {
	const struct build_env *env;
	struct unit *u;
	struct unit_problems *p;
	struct assigns all; /* profile first */
	struct key_state *states;
	struct value_ctx ctx;
	const char *shown; /* of the unit file */
	size_t before;     /* p->n at the start */
	bool home_reported;
};

static void build_finish(struct build *b)
{
	unit_free(b->u);
	unit_assigns_finish(&b->all);
	free(b->states);
}

static const struct assign *last_of(const struct assigns *a, const char *section, const char *name)
{
	const struct unit_key *k = unit_key_find(&unit_table, section, name);

	for (size_t i = a->n; i--;)
		if (a->v[i].key == k)
			return &a->v[i];
	return NULL;
}

/* Puts the keys of the profile in front of all others. */
static void add_profile(struct build *b)
{
	const struct assign *named = last_of(&b->all, "Sandbox", "Profile");
	const struct unit_key *key = unit_key_find(&unit_table, "Sandbox", "Profile");
	const char *name = named ? named->raw : key->default_text;
	struct source src = {0};
	struct assigns body = b->all;
	CLEANUP_ERR struct err *e = NULL;

	if (!b->env->profile || !unit_name_valid(name))
		return; /* a bad name is reported when its value is set */
	if (!b->env->profile(b->env->data, name, &src, &e)) {
		unit_problem_add(b->p, named ? named->shown : b->shown, named ? named->line : 0,
				 "Profile=%s: %s", name, err_msg(e));
		return;
	}
	src.layer = LAYER_PROFILE;
	strv_add(&b->u->sources, src.path);
	b->all = (struct assigns){0};
	unit_source_parse(&src, &unit_table, &b->all, b->p);
	for (size_t i = 0; i < body.n; i++) {
		VEC_GROW(b->all.v, b->all.n, b->all.cap);
		b->all.v[b->all.n++] = body.v[i];
	}
	free(body.v);
	free(src.shown);
	free(src.path);
	free(src.text);
}

static void apply_defaults(const struct value_ctx *c, const struct key_table *t, void *base)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct unit_key *k = &t->v[i];

		if (k->kind == K_STATUS)
			unit_value_free(k, base); /* sets the bit of status 0 */
		if (unit_key_has_default(k))
			(void)unit_value_set(c, k, base, k->default_text, "default", NULL);
	}
}

/* No default is anything that would have to be expanded. */
void unit_defaults_set(const struct key_table *t, void *base)
{
	const struct unit_dirs none = {.home = NULL};
	const struct value_ctx c = {.dirs = &none, .name = ""};

	apply_defaults(&c, t, base);
}

/* A bad value may be a good one with a comment behind it, which other formats have. */
static const char *comment_hint(const char *raw, const char *error)
{
	bool comment = strstr(raw, " #") || strstr(raw, " ;") || strstr(raw, "\t#");

	return comment && !strstr(error, "comment") ? " (a comment needs its own line)" : "";
}

/* `early`: the keys other values depend on. */
static void apply_all(struct build *b, bool early)
{
	for (size_t i = 0; i < b->all.n; i++) {
		const struct assign *a = &b->all.v[i];
		struct key_state *st = &b->states[a->key - unit_table.v];
		CLEANUP_ERR struct err *e = NULL;

		if ((a->key->kind == K_LISTEN) != early)
			continue;
		if (unit_value_set(&b->ctx, a->key, b->u, a->raw, a->origin, &e) < 0 &&
		    !(err_code(e) == NO_HOME && b->home_reported)) {
			unit_problem_add(b->p, a->shown, a->line, "[%s] %s: %s%s", a->key->section,
					 a->key->name, err_msg(e), comment_hint(a->raw, err_msg(e)));
			b->home_reported = b->home_reported || err_code(e) == NO_HOME;
		}
		if (!*a->raw)
			st->first = NULL;
		else if (!st->first || !a->key->list)
			st->first = a;
		st->last = a;
	}
}

/* Exec= and Shell= are one choice: the later file decides, one file may name only one. */
static void choose_command(struct build *b)
{
	const struct assign *exec = unit_state_of(b->states, "App", "Exec"),
			    *shell = unit_state_of(b->states, "App", "Shell");

	if (exec && shell) {
		if (strcmp(exec->shown, shell->shown) == 0)
			unit_problem_add(b->p, shell->shown, shell->line,
					 "Exec= and Shell= exclude each other (Exec= is in line %u)",
					 exec->line);
		if (exec > shell) {
			free(b->u->shell);
			b->u->shell = NULL;
		} else {
			strv_clear(&b->u->exec);
		}
	}
	if (exec || shell)
		b->u->exec_origin = xstrdup(exec && (!shell || exec > shell) ? exec->origin : shell->origin);
}

/* Defaults that depend on other keys. */
static void derive(struct build *b)
{
	const struct assign *wd = unit_state_of(b->states, "App", "WorkingDirectory"),
			    *ad = unit_state_of(b->states, "App", "AppDirectory"),
			    *egress = unit_state_of(b->states, "Network", "Egress"),
			    *proxy = unit_state_of(b->states, "Network", "UpstreamProxy");
	struct unit *u = b->u;

	choose_command(b);
	u->working_directory_origin = wd ? xstrdup(wd->origin) : NULL;
	if (!u->app_directory)
		u->app_directory = xstrdup(u->working_directory);
	u->upstream_proxy_origin = proxy ? xstrdup(proxy->origin) : NULL;
	u->app_directory_origin = ad ? xstrdup(ad->origin) : wd ? xstrdup(wd->origin) : NULL;
	if (!unit_state_of(b->states, "Ready", "Type"))
		u->ready = u->n_listen ? UNIT_READY_LISTEN : UNIT_READY_EXEC;
	if (egress && egress->layer != LAYER_PROFILE)
		u->egress_origin = xstrdup(egress->origin);
	/* Egress=off of a profile is a default like any other: Allow= of the unit overrules it. */
	if (u->egress == UNIT_EGRESS_OFF && (!egress || egress->layer == LAYER_PROFILE) &&
	    (u->allow.n || u->allow_address.n)) {
		u->egress = UNIT_EGRESS_HOSTS;
		b->states[unit_key_find(&unit_table, "Network", "Egress") - unit_table.v].first = NULL;
	}
}

/* --- what is read but not acted on --- */

#define NOT_STARTED ": the app is not started"

static void note_not_in_force(struct build *b)
{
	struct unit *plain = xcalloc(1, sizeof *plain);

	apply_defaults(&b->ctx, &unit_table, plain);
	for (size_t i = 0; i < unit_table.n; i++) {
		const struct unit_key *k = &unit_table.v[i];
		const struct assign *a = b->states[i].first;
		bool blocks = k->flags & KEY_BLOCKS;

		if (!a || unit_value_equal(k, b->u, plain))
			continue;
		if (k->kind == K_ENUM_BOOL && b->u->enforce != UNIT_ENFORCE_REQUIRED)
			blocks = false;
		if (!k->in_force)
			strv_addf(&b->u->not_in_force, "%s [%s] %s= is read but not in force yet%s",
				  a->origin, k->section, k->name, blocks ? NOT_STARTED : "");
		else if (k->words && !unit_enum_in_force(k, a->raw))
			strv_addf(&b->u->not_in_force, "%s [%s] %s=%s is read but not in force yet%s",
				  a->origin, k->section, k->name, a->raw, blocks ? NOT_STARTED : "");
	}
	unit_free(plain);
}

char *unit_not_startable(const struct unit *u)
{
	for (size_t i = 0; i < u->not_in_force.n; i++)
		if (str_ends(u->not_in_force.v[i], NOT_STARTED))
			return xstrdup(u->not_in_force.v[i]);
	return NULL;
}

/* --- the result --- */

/* What survives: the last of a scalar, all of a list since it was last cleared. */
static void survivors(const struct build *b, struct assigns *ret)
{
	for (size_t i = 0; i < b->all.n; i++) {
		const struct assign *a = &b->all.v[i];
		const struct key_state *st = &b->states[a->key - unit_table.v];

		if (!st->first || a < st->first || !*a->raw)
			continue;
		VEC_GROW(ret->v, ret->n, ret->cap);
		ret->v[ret->n] = *a;
		ret->v[ret->n].raw = xstrdup(a->raw);
		ret->v[ret->n].origin = xstrdup(a->origin);
		ret->v[ret->n++].shown = xstrdup(a->shown);
	}
}

static void find_home(struct build *b, struct err **e)
{
	const struct unit_dirs *d = b->env->dirs;
	const struct assign *user = last_of(&b->all, "App", "User");

	b->ctx.home = d->home;
	if (!d->root_mode || !b->env->home)
		return;
	b->ctx.home = b->env->home(b->env->data, user && *user->raw ? user->raw : NULL, e);
	if (!b->ctx.home)
		b->ctx.home_error = err_msg(*e);
}

static void build_values(struct build *b)
{
	CLEANUP_ERR struct err *home_err = NULL;
	CLEANUP_FREE char *home = NULL;

	find_home(b, &home_err);
	if (b->ctx.home != b->env->dirs->home)
		home = (char *)(uintptr_t)b->ctx.home;
	apply_defaults(&b->ctx, &unit_table, b->u);
	apply_all(b, true);
	if (b->u->n_listen)
		b->ctx.port = b->u->listen[0].app_port;
	else if (unit_state_of(b->states, "Network", "Listen"))
		b->ctx.port = 1; /* a bad Listen= is reported already: any value keeps $PORT from being a
				    second error */
	apply_all(b, false);
	derive(b);
	if (b->p->n == b->before) /* what follows from an error above would only hide it */
		unit_validate(&(struct validate){.u = b->u,
						 .shown = b->shown,
						 .dirs = b->env->dirs,
						 .states = b->states,
						 .home = b->ctx.home,
						 .p = b->p});
	note_not_in_force(b);
}

/* Syntax is found before values: people read a file from the top. */
static void sort_problems(struct unit_problems *p, size_t first)
{
	for (size_t i = first + 1; i < p->n; i++)
		for (size_t j = i; j > first && strcmp(p->v[j - 1].file, p->v[j].file) == 0 &&
				   p->v[j - 1].line > p->v[j].line;
		     j--) {
			struct unit_problem swap = p->v[j];

			p->v[j] = p->v[j - 1];
			p->v[j - 1] = swap;
		}
}

struct unit *unit_build(const struct build_env *env, const char *name, const char *path,
			const struct sources *s, struct unit_problems *p, struct assigns *ret_assigns)
{
	CLEANUP(build_finish) struct build b = {.env = env, .p = p, .shown = s->v[0].shown, .before = p->n};
	const char *at = strchr(name, '@');

	b.u = xcalloc(1, sizeof *b.u);
	b.states = xcalloc(unit_table.n, sizeof *b.states);
	b.u->name = xstrdup(name);
	b.u->instance = at ? xstrdup(at + 1) : NULL;
	b.u->file = xstrdup(path);
	b.ctx = (struct value_ctx){.dirs = env->dirs, .name = b.u->name, .instance = b.u->instance};
	for (size_t i = 0; i < s->n; i++) {
		if (s->v[i].path[0])
			strv_add(&b.u->sources, s->v[i].path);
		unit_source_parse(&s->v[i], &unit_table, &b.all, p);
	}
	add_profile(&b);
	build_values(&b);
	sort_problems(p, b.before);
	if (ret_assigns)
		survivors(&b, ret_assigns);
	return p->n == b.before ? TAKE_PTR(b.u) : NULL;
}

struct unit *unit_parse_buffer(const struct unit_dirs *d, const char *name, const char *shown,
			       const char *text, size_t len, struct unit_problems *p)
{
	const struct build_env env = {.dirs = d};
	char file[] = "", *shown_copy = xstrdup(shown), *text_copy = xmalloc(len + 1);
	struct source one = {
		.shown = shown_copy, .path = file, .text = text_copy, .len = len, .layer = LAYER_UNIT};
	struct sources s = {.v = &one, .n = 1};
	struct unit *u;

	memcpy(text_copy, text, len);
	text_copy[len] = 0;
	u = unit_build(&env, name, shown, &s, p, NULL);
	free(shown_copy);
	free(text_copy);
	return u;
}
