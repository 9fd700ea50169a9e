/*
 * A text as a unit (and as an environment file). Beyond memory errors: a refused text has a problem that says
 * why, an accepted one has what an app needs, means the same when it is read again, and says nothing a
 * terminal would act on.
 */
#include "sandbox/rules.h"
#include "unit/unit.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
	if (!truth)
		abort();
}

static void check_problems(const struct unit_problems *p)
{
	CLEANUP_FREE char *all = unit_problems_text(p);

	for (const char *s = all; *s; s++)
		require(*s == '\n' || *s == '\t' || (unsigned char)*s >= 0x20);
}

static void check_unit(const struct unit_dirs *d, const struct unit *u, const char *text, size_t size)
{
	struct unit_problems p = {0};
	struct unit *again = unit_parse_buffer(d, u->name, "t.app", text, size, &p);
	CLEANUP_FREE char *why = unit_not_startable(u);

	require(!why || u->not_in_force.n > 0);
	require(again && p.n == 0 && unit_diff(u, again) == 0);
	require(u->working_directory && u->working_directory[0] == '/' && u->app_directory);
	require((u->exec.n > 0) != (u->shell != NULL));
	require(u->egress == UNIT_EGRESS_OFF || u->allow.n || u->allow_address.n ||
		u->egress == UNIT_EGRESS_ALL || u->not_in_force.n || strstr(text, "Egress"));
	unit_free(again);
}

static void check_env(const char *text, size_t size)
{
	struct strv env = {0};
	struct unit_problems p = {0};

	if (unit_env_file_parse(text, size, "t.env", &env, &p) == 0)
		require(p.n == 0);
	for (size_t i = 0; i < env.n; i++)
		require(strchr(env.v[i], '=') > env.v[i]);
	check_problems(&p);
	unit_problems_clear(&p);
	strv_clear(&env);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char home[] = "/home/some body", dir[] = "/x/sbxsv", user[] = "u";
	struct unit_dirs d = {
		.config = dir,
		.apps = dir,
		.state = dir,
		.runtime = dir,
		.profiles = dir,
		.home = home,
		.user = user,
		.uid = 1000,
		.min_port = 1024,
	};
	CLEANUP_FREE char *text = xmalloc(size + 1);
	struct unit_problems p = {0};
	struct unit *u;

	rules_wire_checks(&d);
	memcpy(text, data, size);
	text[size] = 0;
	d.root_mode = size && data[size - 1] == '#';
	u = unit_parse_buffer(&d, size % 2 ? "web@8080" : "notes", "t.app", text, size, &p);
	require((u != NULL) == (p.n == 0));
	check_problems(&p);
	if (u)
		check_unit(&d, u, text, size);
	unit_free(u);
	unit_problems_clear(&p);
	check_env(text, size);
	return 0;
}
