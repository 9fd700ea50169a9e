/* sbxsv.conf: the supervisor's own settings, same format and strictness as a unit. */
#include "base/file.h"
#include "unit/internal.h"
#include <errno.h>
#include <string.h>

static void conf_read(const struct unit_dirs *d, const struct source *src, struct conf *c,
		      struct unit_problems *p)
{
	const struct value_ctx ctx = {.dirs = d, .name = "sbxsv", .home = d->home};
	CLEANUP(unit_assigns_finish) struct assigns all = {0};

	unit_source_parse(src, &unit_conf_table, &all, p);
	for (size_t i = 0; i < all.n; i++) {
		const struct assign *a = &all.v[i];
		CLEANUP_ERR struct err *e = NULL;

		if (unit_value_set(&ctx, a->key, c, a->raw, a->origin, &e) < 0)
			unit_problem_add(p, a->shown, a->line, "[%s] %s: %s", a->key->section, a->key->name,
					 err_msg(e));
	}
}

int conf_load(const struct unit_dirs *d, struct conf *ret, struct unit_problems *p)
{
	const struct value_ctx ctx = {.dirs = d, .name = "sbxsv", .home = d->home};
	CLEANUP_FREE char *path = path_join(d->config, "sbxsv.conf"), *text = NULL;
	char shown[] = "sbxsv.conf";
	struct source src = {.shown = shown, .path = path, .layer = LAYER_UNIT};
	struct conf c = {0};
	CLEANUP_ERR struct err *e = NULL;
	size_t before = p->n;

	for (size_t i = 0; i < unit_conf_table.n; i++)
		if (unit_key_has_default(&unit_conf_table.v[i]))
			(void)unit_value_set(&ctx, &unit_conf_table.v[i], &c,
					     unit_conf_table.v[i].default_text, "default", NULL);
	if (unit_trusted_read(d, path, FILE_MAX_BYTES, &text, &src.len, &e) == 0) {
		src.text = text;
		conf_read(d, &src, &c, p);
	} else if (err_code(e) != ENOENT || unit_path_exists(path)) {
		unit_problem_add(p, shown, 0, "%s", err_msg(e));
	}
	*ret = c;
	return p->n == before ? 0 : -1;
}

void conf_finish(struct conf *c)
{
	for (size_t i = 0; i < unit_conf_table.n; i++)
		unit_value_free(&unit_conf_table.v[i], c);
	*c = (struct conf){0};
}
