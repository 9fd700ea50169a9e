/* A plan as text: one line a fact, in a fixed order, so that two plans can be compared with diff. */
#include "sandbox/plan_internal.h"
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>

static void add_quoted(struct strbuf *b, const char *key, const char *text)
{
	CLEANUP_FREE char *safe = str_escape(text ? text : "", strlen(text ? text : ""));

	strbuf_addf(b, "%s \"%s\"\n", key, safe);
}

static const char *limit_name(int resource)
{
	switch (resource) {
	case RLIMIT_CORE:
		return "core";
	case RLIMIT_NOFILE:
		return "nofile";
	case RLIMIT_DATA:
		return "data";
	case RLIMIT_NPROC:
		return "nproc";
	default:
		return "other";
	}
}

static void add_limit(struct strbuf *b, rlim_t v)
{
	if (v == RLIM_INFINITY)
		strbuf_adds(b, " keep");
	else
		strbuf_addf(b, " %" PRIu64, (uint64_t)v);
}

static void print_path(struct strbuf *b, const struct plan_path *p)
{
	static const char *const access[] = {
		[PLAN_HIDE] = "hide ", [PLAN_READ] = "read ", [PLAN_WRITE] = "write"};
	CLEANUP_FREE char *path = str_escape(p->path, strlen(p->path));

	const char *what = !p->empty ? access[p->access] : p->access == PLAN_HIDE ? "cover" : "empty";

	strbuf_addf(b, "%s %s%s%s%s%s%s%s  # %s\n", what, path, p->dir && path[1] && !p->absent ? "/" : "",
		    p->create ? " create" : "", p->socket ? " socket" : "", p->noexec ? " noexec" : "",
		    p->shut ? " shut" : "", p->absent ? " absent" : "", p->reason);
}

static void print_head(struct strbuf *b, const struct plan *p)
{
	strbuf_addf(b, "app %s\nuser %s %u:%u\nmode %s %s%s%s%s\n", p->app, p->user.name, p->user.uid,
		    p->user.gid, unit_read_mode_name(p->read_mode), unit_enforce_name(p->enforce),
		    p->netns ? " netns" : "", p->dns ? " dns" : "", p->nested_sandbox ? " nested" : "");
	add_quoted(b, "program", p->program);
	for (size_t i = 0; i < p->argv.n; i++)
		add_quoted(b, "arg", p->argv.v[i]);
	add_quoted(b, "workdir", p->workdir);
	if (p->app_directory)
		add_quoted(b, "appdir", p->app_directory);
	strbuf_addf(b, "tmpdir %s %" PRIu64 "\n", p->tmpdir, p->tmp_size);
	for (size_t i = 0; i < p->n_rlimits; i++) {
		strbuf_addf(b, "limit %s", limit_name(p->rlimits[i].resource));
		add_limit(b, p->rlimits[i].limit.rlim_cur);
		add_limit(b, p->rlimits[i].limit.rlim_max);
		strbuf_addc(b, '\n');
	}
	strbuf_addf(b, "nice %d\n", p->nice);
	if (p->notify)
		add_quoted(b, "notify", PLAN_NOTIFY_SOCKET);
	strbuf_addf(b, "unix %s%s  # %s\n", p->unix_sockets ? "yes" : "no", p->fifos_visible ? " fifos" : "",
		    p->unix_why);
	for (size_t i = 0; i < p->missing.n; i++)
		add_quoted(b, "missing", p->missing.v[i]);
}

char *plan_print(const struct plan *p)
{
	struct strbuf b = STRBUF_INIT;

	print_head(&b, p);
	for (size_t i = 0; i < p->env.n; i++)
		add_quoted(&b, "env", p->env.v[i]);
	for (size_t i = 0; i < p->n_paths; i++)
		print_path(&b, &p->paths[i]);
	for (size_t i = 0; i < p->n_links; i++)
		strbuf_addf(&b, "link  %s -> %s\n", p->links[i].path, p->links[i].target);
	for (size_t i = 0; i < p->devices.n; i++)
		strbuf_addf(&b, "dev   %s\n", p->devices.v[i]);
	return strbuf_take(&b);
}
