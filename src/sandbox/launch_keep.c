/*
 * Launches across an exec of the supervisor. Only those that are over: the program runs, or it failed. One on its way takes some
 * milliseconds and is waited for.
 */
#include "base/fd.h"
#include "sandbox/launch_internal.h"
#include <string.h>

static const struct keep_field fields[] = {
	KEEP(launch, TEXT, app),        KEEP(launch, TEXT, program),  KEEP(launch, INT, pid),
	KEEP(launch, FD, pidfd),        KEEP(launch, FD, sock),       KEEP(launch, BOOL, has_jail),
	KEEP(launch, BOOL, has_status), KEEP(launch, BOOL, checking), KEEP(launch, INT, status),
};

static const struct backend *const backends[] = {&backend_linux, &backend_none};

static const struct backend *backend_named(const char *name)
{
	for (size_t i = 0; i < ELEMENTS(backends); i++)
		if (str_eq(backends[i]->name, name))
			return backends[i];
	return NULL;
}

bool launch_is_over(const struct launch *l)
{
	return l->finished;
}

struct js *launch_save(struct keep *k, const struct launch *l)
{
	struct js *o = js_obj();

	js_add_str(o, "backend", l->backend->name);
	keep_save(k, o, fields, ELEMENTS(fields), l);
	js_add_bool(o, "listens", l->watch.events != 0);
	return o;
}

struct launch *launch_restore(struct keep *k, struct loop *loop, const struct js *o,
			      launch_notified_fn *notified, void *data)
{
	struct launch *l = xcalloc(1, sizeof *l);

	l->loop = loop;
	l->backend = backend_named(js_str(o, "backend"));
	l->finished = true;
	l->notified = notified;
	l->data = data;
	l->done.userns_fd = l->done.netns_fd = l->done.diag_fd = -1;
	keep_load(k, o, fields, ELEMENTS(fields), l);
	if (!l->backend || l->pid <= 0 || l->pidfd < 0)
		keep_wrong(k, "a process without a backend, pid or pidfd was handed over");
	else if (l->sock >= 0 && js_bool_or(o, "listens", false))
		loop_io_init(loop, &l->watch, l->sock, LOOP_READ, launch_on_note, l);
	return l;
}

void launch_check_again(struct launch *l, launch_checked_fn *fn, void *data)
{
	l->checked = l->checking ? fn : NULL;
	l->checked_data = data;
}

static const struct keep_field isolation_fields[] = {
	KEEP(isolation, BOOL, user_ns),
	KEEP(isolation, BOOL, mount_ns),
	KEEP(isolation, BOOL, pid_ns),
	KEEP(isolation, BOOL, net_ns),
	KEEP(isolation, BOOL, seccomp),
	KEEP(isolation, BOOL, nested_ns_off),
	KEEP(isolation, BOOL, no_new_privs),
	KEEP(isolation, INT, landlock_abi),
	KEEP(isolation, BOOL, survivors_possible),
	KEEP(isolation, BOOL, groups_kept),
	KEEP(isolation, BOOL, unix_sockets),
	KEEP(isolation, TEXT, unix_why),
	KEEP(isolation, INT, audit_error),
	KEEP(isolation, STRV, missing),
	KEEP(isolation, BOOL, in_group),
};

struct js *isolation_save(struct keep *k, const struct isolation *i)
{
	struct js *o = js_obj();

	js_add_str(o, "backend", i->backend);
	js_add_str(o, "audit", audit_name(i->audit));
	keep_save(k, o, isolation_fields, ELEMENTS(isolation_fields), i);
	return o;
}

void isolation_restore(struct keep *k, const struct js *o, struct isolation *ret)
{
	const struct backend *b = backend_named(js_str(o, "backend"));
	const char *audit = js_str(o, "audit");

	keep_load(k, o, isolation_fields, ELEMENTS(isolation_fields), ret);
	ret->backend = b ? b->name : "unknown";
	ret->audit = audit_from(audit ? audit : "off");
}
