/* The merged unit as text that could be a unit itself, each line under a comment that says where it is from.
 */
#include "unit/internal.h"
#include <string.h>

static void print_line(const char *section, bool *any, const char *origin, const char *key, const char *raw,
		       struct strbuf *out)
{
	if (!*any)
		strbuf_addf(out, "%s[%s]\n", out->len ? "\n" : "", section);
	*any = true;
	strbuf_addf(out, "# %s\n%s=%s\n", origin, key, raw);
}

/* u may be NULL, when something is wrong with it. */
static void print_section(const struct unit *u, const struct assigns *all, const char *section,
			  struct strbuf *out)
{
	bool any = false;

	/* Table order, so that two units can be compared; lines of one list key stay in their own order. */
	for (size_t k = 0; k < unit_table.n; k++) {
		bool written = false;

		if (strcmp(unit_table.v[k].section, section) != 0)
			continue;
		for (size_t i = 0; i < all->n; i++) {
			const struct assign *a = &all->v[i];

			if (a->key != &unit_table.v[k])
				continue;
			CLEANUP_FREE char *shown =
				a->key->kind == K_PROXY_URL ? unit_masked_url(a->raw) : xstrdup(a->raw);

			print_line(section, &any, a->origin, a->key->name, shown, out);
			written = true;
		}
		/* The one value that follows from others. */
		if (u && !written && u->egress == UNIT_EGRESS_HOSTS &&
		    strcmp(unit_table.v[k].name, "Egress") == 0)
			print_line(section, &any,
				   u->allow.n ? "implied by Allow=" : "implied by AllowAddress=", "Egress",
				   "hosts", out);
	}
}

char *unit_effective(const struct unit_dirs *d, const char *name, struct unit_problems *p)
{
	CLEANUP(unit_assigns_finish) struct assigns all = {0};
	CLEANUP_UNIT struct unit *u = NULL;
	struct strbuf out = STRBUF_INIT;
	const char *section = "";

	u = unit_load_with(d, name, p, &all);
	if (!all.n)
		return NULL;
	for (size_t i = 0; i < unit_table.n; i++) {
		if (strcmp(unit_table.v[i].section, section) == 0)
			continue;
		section = unit_table.v[i].section;
		print_section(u, &all, section, &out);
	}
	return strbuf_take(&out);
}
