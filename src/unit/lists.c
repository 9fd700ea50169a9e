/* Setters of keys whose value is a list of words, and of keys that share one list (Needs, Hooks). */
#include "base/parse.h"
#include "unit/internal.h"
#include <string.h>

static int add_app(struct set *s, char *word, struct err **e)
{
	const struct unit_list *l = s->field;

	if (!unit_name_valid(word))
		return err_set(e, 0, "%s is not the name of an app", word);
	if (str_eq(word, s->c->name))
		return err_set(e, 0, "%s is the app itself", word);
	for (size_t i = 0; i < l->n; i++)
		if (str_eq(l->v[i].text, word))
			return 0;
	unit_list_add(s->field, xstrdup(word), s->origin);
	return 0;
}

static int add_checked(struct set *s, char *word, int (*check)(const char *, struct err **), struct err **e)
{
	if (check && check(word, e) < 0)
		return -1;
	unit_list_add(s->field, xstrdup(word), s->origin);
	return 0;
}

static int add_status(struct set *s, char *word, struct err **e)
{
	uint64_t v;

	if (parse_u64(word, 255, &v) < 0)
		return err_set(e, 0, "%s is not an exit status from 0 to 255", word);
	((uint8_t *)s->field)[v / 8] |= (uint8_t)(1u << (v % 8));
	return 0;
}

static int add_listen(struct set *s, char *word, struct err **e)
{
	struct unit *u = s->base;
	char *colon = strchr(word, ':');
	struct unit_listen l;

	if (colon)
		*colon = 0;
	if (parse_port(word, &l.host_port) < 0 || parse_port(colon ? colon + 1 : word, &l.app_port) < 0) {
		if (colon)
			*colon = ':';
		return err_set(e, 0, "%s is neither PORT nor HOSTPORT:APPPORT (1 to 65535)%s", word,
			       strpbrk(word, ".[") ? "; an address goes to ListenAddress=" : "");
	}
	for (size_t i = 0; i < u->n_listen; i++)
		if (u->listen[i].host_port == l.host_port)
			return err_set(e, 0, "host port %u is named twice (first in %s)",
				       (unsigned)l.host_port, u->listen[i].origin);
	l.origin = xstrdup(s->origin);
	u->listen = xrealloc(u->listen, (u->n_listen + 1) * sizeof *u->listen);
	u->listen[u->n_listen++] = l;
	return 0;
}

/* Which port that is, and whether there is such an app, is known when all units are: peers.c. */
static int add_loopback_app(struct set *s, const char *name, struct err **e)
{
	struct unit *u = s->base;

	if (!unit_name_valid(name))
		return err_set(e, 0, "app:%s: %s is not the name of an app", name, *name ? name : "nothing");
	if (str_eq(name, s->c->name))
		return err_set(e, 0, "app:%s is the app itself: it reaches its own ports inside", name);
	for (size_t i = 0; i < u->loopback_app.n; i++)
		if (str_eq(u->loopback_app.v[i].text, name))
			return 0;
	unit_list_add(&u->loopback_app, xstrdup(name), s->origin);
	return 0;
}

static int add_loopback(struct set *s, char *word, struct err **e)
{
	struct unit *u = s->base;
	uint16_t port;

	if (str_starts(word, "app:"))
		return add_loopback_app(s, word + 4, e);
	if (parse_port(word, &port) < 0)
		return err_set(e, 0, "%s is neither a port (1 to 65535) nor app:NAME%s", word,
			       strchr(word, ':')
				       ? "; it is always this machine's loopback: write the port alone"
				       : "");
	for (size_t i = 0; i < u->n_loopback; i++)
		if (u->loopback[i] == port)
			return 0;
	u->loopback = xrealloc(u->loopback, (u->n_loopback + 1) * sizeof *u->loopback);
	u->loopback[u->n_loopback++] = port;
	return 0;
}

static int add_secret(struct set *s, char *word, struct err **e)
{
	size_t n;
	const struct unit_secret *all = unit_secrets(&n);
	CLEANUP_STRV struct strv names = {0};
	const char *near;

	for (size_t i = 0; i < n; i++) {
		if (strcmp(all[i].name, word) == 0)
			return add_checked(s, word, NULL, e);
		if (!strv_has(&names, all[i].name))
			strv_add(&names, all[i].name);
	}
	near = str_nearest(word, (const char *const *)names.v);
	if (near)
		return err_set(e, 0, "%s is not a secret place: did you mean %s?", word, near);
	return err_set(e, 0, "%s is not a secret place: sbxsv.app(5) lists the names", word);
}

static int add_env(struct set *s, char *word, struct err **e)
{
	char *eq = strchr(word, '=');

	if (!eq || unit_check_env_name(word, (size_t)(eq - word)) < 0)
		return err_set(e, 0,
			       "%s is not NAME=value (quote the whole when the value has spaces: "
			       "%s=\"NAME=two words\")",
			       word, s->k->name);
	unit_list_add(s->field, xstrdup(word), s->origin);
	return 0;
}

static int add_env_name(struct set *s, char *word, struct err **e)
{
	if (unit_check_env_name(word, strlen(word)) < 0)
		return err_set(e, 0, "%s is not the name of a variable", word);
	return add_checked(s, word, NULL, e);
}

static int add_need(struct set *s, char *word, struct err **e)
{
	static const char *const systems[] = {"linux", "macos", "windows", NULL};
	const char *name = s->k->name;

	if (strcmp(name, "Env") == 0 && unit_check_env_name(word, strlen(word)) < 0)
		return err_set(e, 0, "%s is not the name of a variable", word);
	if (str_ends(name, "Bin") && strchr(word, '/') && unit_check_path(word, e) < 0)
		return -1;
	if (strcmp(name, "Os") == 0) {
		size_t i = 0;

		while (systems[i] && strcmp(systems[i], word) != 0)
			i++;
		if (!systems[i])
			return err_set(e, 0, "%s is not one of linux, macos, windows", word);
	}
	unit_list_add(s->field, xasprintf("%s=%s", name, word), s->origin);
	return 0;
}

static int add_word(struct set *s, char *word, struct err **e)
{
	const struct unit_dirs *d = s->c->dirs;

	switch (s->k->kind) {
	case K_APPS:
		return add_app(s, word, e);
	case K_ENV:
		return add_env(s, word, e);
	case K_ENVNAMES:
		return add_env_name(s, word, e);
	case K_STATUS:
		return add_status(s, word, e);
	case K_SECRET:
		return add_secret(s, word, e);
	case K_HOSTS:
		return add_checked(s, word,
				   strcmp(s->k->name, "Deny") == 0 ? d->check_deny_rule : d->check_host_rule,
				   e);
	case K_ADDRESSES:
		return add_checked(s, word, d->check_address_rule, e);
	case K_PORTS:
		return add_checked(s, word, d->check_ports, e);
	case K_NO_PROXY:
		return add_checked(s, word, d->check_no_proxy, e);
	case K_LISTEN:
		return add_listen(s, word, e);
	case K_LOOPBACK:
		return add_loopback(s, word, e);
	default:
		return add_need(s, word, e);
	}
}

/* Words before a bad one on the same line stay in: the unit is refused anyway, and every error is reported.
 */
int unit_set_word_list(struct set *s, struct err **e)
{
	CLEANUP_STRV struct strv words = {0};

	if (s->k->kind == K_ENV) {
		if (unit_expand_words(s->c, s->k->name, s->raw, &words, e) < 0)
			return -1;
	} else {
		for (const char *t = s->text; *t;) {
			size_t n = strcspn(t, " \t");

			strv_take(&words, xstrndup(t, n));
			t += n;
			t += strspn(t, " \t");
		}
	}
	for (size_t i = 0; i < words.n; i++)
		if (add_word(s, words.v[i], e) < 0)
			return -1;
	return 0;
}

void unit_list_drop_named(struct unit_list *l, const char *name)
{
	size_t n = strlen(name), kept = 0;

	for (size_t i = 0; i < l->n; i++) {
		if (strncmp(l->v[i].text, name, n) == 0 && l->v[i].text[n] == '=') {
			free(l->v[i].text);
			free(l->v[i].origin);
		} else {
			l->v[kept++] = l->v[i];
		}
	}
	l->n = kept;
}

int unit_set_need_range(struct set *s, struct err **e)
{
	if (unit_check_version_range(s->text, e) < 0)
		return -1;
	unit_list_drop_named(s->field, s->k->name);
	unit_list_add(s->field, xasprintf("%s=%s", s->k->name, s->text), s->origin);
	return 0;
}

/* The command is checked now and split again when it is run. */
int unit_set_hook(struct set *s, struct err **e)
{
	CLEANUP_STRV struct strv words = {0};
	CLEANUP_FREE char *joined = NULL;

	if (unit_expand_words(s->c, s->k->name, s->raw, &words, e) < 0)
		return -1;
	if (!words.n || !words.v[0][0])
		return err_set(e, 0, "no program is named");
	unit_list_drop_named(s->field, s->k->name);
	joined = strv_join(&words, "\n"); /* one line has none */
	unit_list_add(s->field, xasprintf("%s=%s", s->k->name, joined), s->origin);
	return 0;
}
