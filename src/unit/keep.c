/*
 * A unit in force as data, for a supervisor that executes itself anew: the process of an app goes on with what it was
 * started with, whatever the files say by then. Each key that differs from its default, by the key table.
 */
#include "unit/internal.h"
#include <string.h>

static const struct keep_field fields[] = {
	KEEP(unit, TEXT, name),
	KEEP(unit, TEXT, instance),
	KEEP(unit, TEXT, file),
	KEEP(unit, STRV, sources),
	KEEP(unit, STRV, not_in_force),
	KEEP(unit, TEXT, exec_origin),
	KEEP(unit, TEXT, working_directory_origin),
	KEEP(unit, TEXT, app_directory_origin),
	KEEP(unit, TEXT, egress_origin),
	KEEP(unit, TEXT, upstream_proxy_origin),
};

static struct js *list_js(struct keep *k, const struct unit_list *l)
{
	struct js *out = js_arr();

	for (size_t i = 0; i < l->n; i++) {
		struct js *o = js_obj();

		keep_text(k, o, "t", l->v[i].text);
		keep_text(k, o, "o", l->v[i].origin);
		js_push(out, o);
	}
	return out;
}

static void list_from(struct keep *k, const struct js *j, struct unit_list *l)
{
	unit_list_clear(l);
	for (const struct js *o = js_first(j); o; o = js_next(o)) {
		CLEANUP_FREE char *origin = keep_get_text(k, o, "o"), *text = keep_get_text(k, o, "t");

		unit_list_add(l, text ? TAKE_PTR(text) : xstrdup(""), origin ? origin : "");
	}
}

static struct js *listen_js(struct keep *k, const struct unit *u)
{
	struct js *out = js_arr();

	for (size_t i = 0; i < u->n_listen; i++) {
		struct js *o = js_obj();

		js_add_int(o, "host", u->listen[i].host_port);
		js_add_int(o, "app", u->listen[i].app_port);
		keep_text(k, o, "o", u->listen[i].origin);
		js_push(out, o);
	}
	return out;
}

static void listen_from(struct keep *k, const struct js *j, struct unit *u)
{
	u->listen = xcalloc(js_len(j), sizeof *u->listen);
	for (const struct js *o = js_first(j); o; o = js_next(o))
		u->listen[u->n_listen++] =
			(struct unit_listen){.host_port = (uint16_t)js_int_or(o, "host", 0),
					     .app_port = (uint16_t)js_int_or(o, "app", 0),
					     .origin = keep_get_text(k, o, "o")};
}

static struct js *loopback_js(struct keep *k, const struct unit *u)
{
	struct js *o = js_obj(), *ports = js_arr();

	for (size_t i = 0; i < u->n_loopback; i++)
		js_push_int(ports, u->loopback[i]);
	js_add(o, "ports", ports);
	js_add(o, "apps", list_js(k, &u->loopback_app));
	return o;
}

static void loopback_from(struct keep *k, const struct js *j, struct unit *u)
{
	const struct js *ports = js_get(j, "ports");

	u->loopback = xcalloc(js_len(ports), sizeof *u->loopback);
	for (const struct js *v = js_first(ports); v; v = js_next(v)) {
		int64_t n = 0;

		(void)js_value_int(v, &n);
		u->loopback[u->n_loopback++] = (uint16_t)n;
	}
	list_from(k, js_get(j, "apps"), &u->loopback_app);
}

/* The field of one key, as one with a name for keep_save(). False: not of a plain type. */
static bool plain_field(const struct unit_key *key, const char *name, struct keep_field *ret)
{
	static const enum keep_type types[] = {
		[STORE_STR] = KEEP_TEXT, [STORE_INT] = KEEP_INT,   [STORE_BOOL] = KEEP_BOOL,
		[STORE_I64] = KEEP_I64,  [STORE_UINT] = KEEP_UINT, [STORE_U64] = KEEP_U64,
		[STORE_STRV] = KEEP_STRV};
	enum unit_store s = unit_store_of(key);

	if (s >= ELEMENTS(types))
		return false;
	*ret = (struct keep_field){name, types[s], key->offset};
	return true;
}

static void save_key(struct keep *k, struct js *values, const struct unit_key *key, const char *name,
		     const void *base)
{
	const char *field = (const char *)base + key->offset;
	const struct unit *u = base;
	struct keep_field f;

	if (plain_field(key, name, &f)) {
		struct js *o = js_obj();

		keep_save(k, o, &f, 1, base);
		js_add(values, name, o);
		return;
	}
	switch (unit_store_of(key)) {
	case STORE_STATUS:
		keep_bytes(k, values, name, u->success_status, sizeof u->success_status);
		break;
	case STORE_LISTEN:
		js_add(values, name, listen_js(k, u));
		break;
	case STORE_LOOPBACK:
		js_add(values, name, loopback_js(k, u));
		break;
	default:
		js_add(values, name, list_js(k, (const struct unit_list *)(const void *)field));
		break;
	}
}

static void load_key(struct keep *k, const struct js *values, const struct unit_key *key, const char *name,
		     void *base)
{
	char *field = (char *)base + key->offset;
	const struct js *v = js_get(values, name);
	struct unit *u = base;
	struct keep_field f;
	const char *bytes;
	size_t len;

	unit_value_free(key, base);
	if (plain_field(key, name, &f)) {
		keep_load(k, v, &f, 1, base);
		return;
	}
	switch (unit_store_of(key)) {
	case STORE_STATUS:
		bytes = keep_get_bytes(k, values, name, &len);
		if (len == sizeof u->success_status)
			memcpy(u->success_status, bytes, len);
		break;
	case STORE_LISTEN:
		listen_from(k, v, u);
		break;
	case STORE_LOOPBACK:
		loopback_from(k, v, u);
		break;
	default:
		list_from(k, v, (struct unit_list *)(void *)field);
		break;
	}
}

static struct js *save_values(struct keep *k, const struct key_table *t, const void *base,
			      const void *defaults)
{
	struct js *values = js_obj();

	for (size_t i = 0; i < t->n; i++) {
		CLEANUP_FREE char *name = xasprintf("%s.%s", t->v[i].section, t->v[i].name);

		if (!unit_value_equal(&t->v[i], base, defaults))
			save_key(k, values, &t->v[i], name, base);
	}
	return values;
}

/* What this version does not know cannot be what it enforces. */
static void load_values(struct keep *k, const struct key_table *t, const struct js *values, void *base)
{
	for (const struct js *v = js_first(values); v; v = js_next(v)) {
		CLEANUP_FREE char *section = xstrdup(js_key(v));
		char *dot = strchr(section, '.');
		const struct unit_key *key;

		if (dot)
			*dot = 0;
		key = dot ? unit_key_find(t, section, dot + 1) : NULL;
		if (key)
			load_key(k, values, key, js_key(v), base);
		else
			keep_wrong(k, "a unit in force uses %s, which this version does not know", js_key(v));
	}
}

struct js *unit_save(struct keep *k, const struct unit *u)
{
	struct unit *plain = xcalloc(1, sizeof *plain);
	struct js *o = js_obj();

	unit_defaults_set(&unit_table, plain);
	keep_save(k, o, fields, ELEMENTS(fields), u);
	js_add(o, "keys", save_values(k, &unit_table, u, plain));
	unit_free(plain);
	return o;
}

struct unit *unit_restore(struct keep *k, const struct js *o)
{
	struct unit *u;

	if (!o)
		return NULL;
	u = xcalloc(1, sizeof *u);
	unit_defaults_set(&unit_table, u);
	keep_load(k, o, fields, ELEMENTS(fields), u);
	load_values(k, &unit_table, js_get(o, "keys"), u);
	if (!u->name || !u->file)
		keep_wrong(k, "a unit without a name was handed over");
	return u;
}

struct js *conf_save(struct keep *k, const struct conf *c)
{
	struct conf plain = {0};
	struct js *o;

	unit_defaults_set(&unit_conf_table, &plain);
	o = save_values(k, &unit_conf_table, c, &plain);
	conf_finish(&plain);
	return o;
}

void conf_restore(struct keep *k, const struct js *o, struct conf *ret)
{
	unit_defaults_set(&unit_conf_table, ret);
	load_values(k, &unit_conf_table, o, ret);
}

struct js *unit_problems_save(struct keep *k, const struct unit_problems *p)
{
	struct js *out = js_arr();

	for (size_t i = 0; i < p->n; i++) {
		struct js *o = js_obj();

		keep_text(k, o, "file", p->v[i].file);
		js_add_int(o, "line", p->v[i].line);
		keep_text(k, o, "text", p->v[i].text);
		js_push(out, o);
	}
	return out;
}

void unit_problems_restore(struct keep *k, const struct js *list, struct unit_problems *ret)
{
	for (const struct js *o = js_first(list); o; o = js_next(o)) {
		CLEANUP_FREE char *file = keep_get_text(k, o, "file"), *text = keep_get_text(k, o, "text");

		unit_problem_add(ret, file ? file : "", (unsigned)js_int_or(o, "line", 0), "%s",
				 text ? text : "");
	}
}
