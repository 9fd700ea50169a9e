#include "cli/exec_unit.h"
#include "base/file.h"
#include "base/parse.h"
#include "sandbox/identity.h"
#include "sandbox/rules.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The name in messages, in SBXSV_APP and for the proxy. No unit in apps.d can be meant: this one has no file.
 */
#define NAME "exec"

struct making {
	struct unit *u;
	struct unit_problems *p;
	const char *cwd;
	bool cwd_empty, usage;
};

static void add(struct unit_list *l, char *text, const char *origin)
{
	VEC_GROW(l->v, l->n, l->cap);
	l->v[l->n++] = (struct unit_value){.text = text, .origin = xstrdup(origin)};
}

static void problem(struct making *m, const char *option, const char *value, const char *why)
{
	m->usage = true;
	unit_problem_add(m->p, option, 0, "%s: %s", value, why);
}

static void add_path(struct making *m, struct unit_list *l, const char *path, const char *option)
{
	if (!*path)
		problem(m, option, "(empty)", "a path is needed");
	else
		add(l, path_join(m->cwd, path), option);
}

static void add_hosts(struct making *m, const char *hosts, const char *option)
{
	CLEANUP_FREE char *copy = xstrdup(hosts);
	char *at = copy, *host;

	while ((host = strsep(&at, ",")) != NULL) {
		host = str_trim(host);
		if (*host)
			add(&m->u->allow, xstrdup(host), option);
	}
}

static void add_loopback(struct making *m, const char *value)
{
	uint16_t port;

	if (parse_port(value, &port) < 0) {
		problem(m, "--loopback", value, "not a port");
		return;
	}
	m->u->loopback = xrealloc(m->u->loopback, (m->u->n_loopback + 1) * sizeof port);
	m->u->loopback[m->u->n_loopback++] = port;
}

static void set_egress(struct making *m, const char *value)
{
	if (str_eq(value, "off"))
		m->u->egress = UNIT_EGRESS_OFF;
	else if (str_eq(value, "hosts"))
		m->u->egress = UNIT_EGRESS_HOSTS;
	else if (str_eq(value, "all"))
		m->u->egress = UNIT_EGRESS_ALL;
	else
		problem(m, "--egress", value, "one of: off hosts all");
}

static void set_read_mode(struct making *m, const char *value)
{
	if (str_eq(value, "strict"))
		m->u->read_mode = UNIT_READ_STRICT;
	else if (str_eq(value, "allowlist"))
		m->u->read_mode = UNIT_READ_ALLOWLIST;
	else if (str_eq(value, "open"))
		m->u->read_mode = UNIT_READ_OPEN;
	else
		problem(m, "--read-mode", value, "one of: strict allowlist open");
}

static void add_env(struct making *m, const char *value)
{
	if (!strchr(value, '=') || value[0] == '=')
		problem(m, "--env", value, "not NAME=VALUE");
	else
		add(&m->u->environment, xstrdup(value), "--env");
}

static void apply(struct making *m, int id, const char *value)
{
	struct unit *u = m->u;

	if (id == EXEC_READ || id == EXEC_ALLOW_READ)
		add_path(m, &u->read, value, "--read");
	else if (id == EXEC_WRITE || id == EXEC_ALLOW_WRITE)
		add_path(m, &u->write, value, "--write");
	else if (id == EXEC_HIDE)
		add_path(m, &u->hide, value, "--hide");
	else if (id == EXEC_UNIX_SOCKET)
		add_path(m, &u->unix_socket, value, "--unix-socket");
	else if (id == EXEC_ALLOW || id == EXEC_ALLOWLIST)
		add_hosts(m, value, "--allow");
	else if (id == EXEC_DENY)
		add(&u->deny, xstrdup(value), "--deny");
	else if (id == EXEC_LOOPBACK)
		add_loopback(m, value);
	else if (id == EXEC_EGRESS)
		set_egress(m, value);
	else if (id == EXEC_READ_MODE)
		set_read_mode(m, value);
	else if (id == EXEC_ENV)
		add_env(m, value);
	else if (id == EXEC_PASS_ENV)
		add(&u->pass_environment, xstrdup(value), "--pass-env");
}

/* A person types a command for the PATH they have; an app gets a fixed one, which is good enough too. */
static char *resolve(struct making *m, const char *word, const char *home)
{
	const char *path = getenv("PATH"), *cwd = m->cwd;
	CLEANUP_FREE char *dirs =
		path ? xasprintf("%s:" PLAN_PROGRAM_DIRS, path) : xstrdup(PLAN_PROGRAM_DIRS);
	CLEANUP_FREE char *elsewhere = NULL;
	const struct plan_fs fs = plan_fs_real();
	char *at = dirs, *dir;

	if (strchr(word, '/'))
		return path_join(cwd, word);
	while (*word && (dir = strsep(&at, ":")) != NULL) {
		CLEANUP_FREE char *full = path_join(cwd, *dir ? dir : "."), *file = path_join(full, word);
		struct stat st;

		if (stat(file, &st) == 0 && S_ISREG(st.st_mode) && access(file, X_OK) == 0)
			return TAKE_PTR(file);
	}
	elsewhere = *word ? plan_program_elsewhere(m->u, home, &fs, word) : NULL;
	if (elsewhere)
		unit_problem_add(m->p, "command", 0,
				 "\"%s\" is not in your PATH, but it is in %s: give its full path", word,
				 elsewhere);
	else
		unit_problem_add(m->p, "command", 0,
				 "\"%s\" is not in your PATH: install it, or give its full path", word);
	return xstrdup(word);
}

/* A rule that cannot be read is wrong usage, and no jail is built for it. */
static void check_rules(struct making *m)
{
	CLEANUP_ERR struct err *e = NULL;
	struct policy *policy = rules_of_unit(m->u, &e);

	if (!policy) {
		m->usage = true;
		unit_problem_add(m->p, NAME, 0, "%s", err_msg(e));
	}
	policy_destroy(policy);
}

static struct unit *base_unit(const struct cli *c, const struct cli_args *a, struct unit_problems *p)
{
	const char *profile = cli_value(a, EXEC_PROFILE);
	CLEANUP_FREE char *text = NULL;

	text = xasprintf("[App]\nExec=/bin/true\nWorkingDirectory=/nonexistent\n[Sandbox]\nProfile=%s\n",
			 profile ? profile : "strict");
	return unit_load_text(&c->dirs, NAME, "command line", text, strlen(text), p);
}

/* The working directory is kept, and may be read. Home itself is never granted: there only the directory is,
 * empty. */
static void keep_cwd(struct making *m, const struct cli *c)
{
	struct unit *u = m->u;
	CLEANUP_FREE char *home = realpath(c->dirs.home, NULL);

	free(u->working_directory);
	free(u->working_directory_origin);
	free(u->app_directory);
	free(u->app_directory_origin);
	u->working_directory = xstrdup(m->cwd);
	u->working_directory_origin = xstrdup("working directory");
	u->app_directory = u->app_directory_origin = NULL;
	if (str_eq(m->cwd, "/") || (home && path_is_below(home, m->cwd))) {
		m->cwd_empty = home && u->read_mode == UNIT_READ_STRICT && str_eq(home, m->cwd);
		return;
	}
	if (str_eq(m->cwd, "/tmp")) { /* every jail has one of its own */
		m->cwd_empty = true;
		return;
	}
	for (size_t i = 0; i < u->write.n; i++)
		if (path_is_below(m->cwd, u->write.v[i].text))
			return;
	if (!path_is_below(m->cwd, "/tmp") &&
	    (path_is_below(m->cwd, "/usr") || path_is_below(m->cwd, "/etc")))
		return; /* part of every jail */
	add(&u->read, xstrdup(m->cwd), "working directory");
}

int exec_unit_init(struct exec_unit *x, const struct cli *c, const struct cli_args *a,
		   struct unit_problems *p)
{
	CLEANUP_FREE char *cwd = getcwd(NULL, 0);
	struct making m = {.p = p, .cwd = cwd};
	size_t before = p->n;

	if (!cwd) {
		unit_problem_add(p, "working directory", 0, "%s", strerror(errno));
		return -1;
	}
	if (conf_load(&c->dirs, &x->conf, p) < 0)
		return -1;
	if (cli_value(a, EXEC_PROFILE) && !unit_name_valid(cli_value(a, EXEC_PROFILE)))
		problem(&m, "--profile", cli_value(a, EXEC_PROFILE), "not the name of a profile");
	else
		x->unit = m.u = base_unit(c, a, p);
	x->usage = m.usage;
	if (!m.u)
		return -1;
	for (size_t i = 0; i < a->n_opts; i++)
		apply(&m, a->opts[i].id, a->opts[i].value);
	if (m.u->allow.n && m.u->egress == UNIT_EGRESS_OFF) {
		if (cli_has(a, EXEC_EGRESS))
			problem(&m, "--egress", "off", "contradicts --allow");
		m.u->egress = UNIT_EGRESS_HOSTS;
	}
	if (cli_value(a, EXEC_USER)) {
		free(m.u->user);
		m.u->user = xstrdup(cli_value(a, EXEC_USER));
	}
	check_rules(&m);
	keep_cwd(&m, c);
	x->cwd_empty = m.cwd_empty;
	strv_clear(&m.u->exec);
	strv_take(&m.u->exec, resolve(&m, a->rest[0], c->dirs.home));
	for (int i = 1; i < a->n_rest; i++)
		strv_add(&m.u->exec, a->rest[i]);
	free(m.u->exec_origin);
	m.u->exec_origin = xstrdup("command");
	x->usage = m.usage;
	return p->n == before ? 0 : -1;
}

static bool overlaps(const struct unit_list *l, const char *place)
{
	for (size_t i = 0; i < l->n; i++)
		if (path_is_below(place, l->v[i].text) || path_is_below(l->v[i].text, place))
			return true;
	return false;
}

/* Apps' places are hidden, but not what the person named or stands in: that is what the command is for. */
static void others_of(const struct exec_unit *x, const struct cli *c, struct strv *ret)
{
	struct unit_scan scan = {0};
	CLEANUP_STRV struct strv all = {0};

	if (unit_scan_dir(&c->dirs, &scan, NULL) < 0)
		return;
	for (size_t i = 0; i < scan.n; i++)
		if (scan.v[i].unit)
			plan_unit_places(scan.v[i].unit, &all);
	unit_scan_finish(&scan);
	for (size_t i = 0; i < all.n; i++)
		if (!overlaps(&x->unit->read, all.v[i]) && !overlaps(&x->unit->write, all.v[i]))
			strv_add(ret, all.v[i]);
}

struct plan *exec_unit_plan(const struct exec_unit *x, const struct cli *c, struct unit_problems *p)
{
	extern char **environ;
	CLEANUP_STRV struct strv others = {0};
	CLEANUP_ERR struct err *e = NULL;
	struct plan_world w = {.dirs = &c->dirs,
			       .conf = &x->conf,
			       .others = &others,
			       .environ = environ,
			       .fs = plan_fs_real()};
	struct plan *plan;

	if (identity_find(x->unit, &c->dirs, &x->conf, &w.user, &e) < 0) {
		unit_problem_add(p, "user", 0, "%s", err_msg(e));
		return NULL;
	}
	others_of(x, c, &others);
	plan = plan_make(x->unit, &w, p);
	identity_finish(&w.user);
	return plan;
}

void exec_unit_finish(struct exec_unit *x)
{
	unit_free(x->unit);
	conf_finish(&x->conf);
}
