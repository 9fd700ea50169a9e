/* The supervisor as a whole: made, started, ended; what does not belong to one app. */
#include "sup/app.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "config.h"
#include "sandbox/cgroup.h"
#include "sandbox/identity.h"
#include "trace/refused.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>

extern char **environ;

static void on_record(struct loop_defer *w)
{
	struct sup *s = w->data;
	struct instance_record r = {0};
	CLEANUP_ERR struct err *e = NULL;
	pid_t proxy = proxyctl_pid(s->proxy);

	if (proxy > 0)
		instance_record_add(&r, NULL, proxy, ports_start_time(proxy), false);
	for (const struct app *a = s->apps; a; a = a->next)
		if (a->launch && !a->reaped)
			instance_record_add(&r, a->name, a->pid, a->pid_start, !a->no_jail);
	r.group = xstrdup(cgroup_base(s->groups));
	/* A record that cannot be written costs the next start its wait, nothing else: say it once in a row.
	 */
	if (instance_write(s->dirs->state, &r, &e) == 0)
		s->record_failed = false;
	else if (!s->record_failed) {
		s->record_failed = true;
		log_warning("%s", err_msg(e));
	}
	instance_record_finish(&r);
}

void sup_record(struct sup *s)
{
	loop_defer_start(&s->record_defer);
}

/* --- the proxy --- */

static void on_proxy_event(void *data, const struct js *event)
{
	struct sup *s = data;

	violations_from_proxy(s, event);
}

static void on_proxy_restarted(void *data, const char *why)
{
	struct sup *s = data;

	s->proxy_restarts++;
	events_note(s->events, "supervisor", NULL, "%s; it is started again", why);
	sup_record(s);
}

static void on_proxy_use(void *data, const char *app, enum proxy_use use)
{
	session_proxy_says(data, app, use);
}

static int start_proxy(struct sup *s, const char *program, struct keep *k, const struct js *kept, struct err **e)
{
	struct proxyctl_hooks hooks = {.event = on_proxy_event,
				       .restarted = on_proxy_restarted,
				       .use = on_proxy_use,
				       .data = s};
	uid_t uid;
	gid_t gid;

	if (identity_of_proxy(&s->conf, &uid, &gid, e) < 0)
		return -1;
	s->proxy = kept ? proxyctl_restore(k, kept, s->loop, program, uid, gid, &hooks, e)
			: proxyctl_create(s->loop, program, uid, gid, &hooks, e);
	return s->proxy ? 0 : -1;
}

/* --- logs of an app --- */

static void on_log_trouble(void *data, const char *what)
{
	struct app *a = data;

	log_warning("%s: %s", a->name, what);
	events_note(a->sup->events, "log", a->name, "%s", what);
}

/* Called for a new app and whenever its definition in force changes. */
void sup_configure_logs(struct app *a)
{
	const struct unit *u = a->unit;
	CLEANUP_FREE char *dir = path_join(a->sup->dirs->state, "logs"), *file = xasprintf("%s.log", a->name),
			  *own_dir = NULL;
	struct logs_config c = {
		.dir = dir, .file = file, .max_size = 10u << 20, .max_files = 5, .app = a->name};
	CLEANUP_ERR struct err *e = NULL;

	if (u) {
		c.max_size = u->log_max_size;
		c.max_files = u->log_max_files;
		c.timestamps = u->log_timestamps;
		(void)logs_target_find(u->log_target, &c.target);
		if (u->log_file && u->log_file[0]) {
			CLEANUP_FREE char *path = path_join(dir, u->log_file);

			own_dir = path_dirname(path);
			c.dir = own_dir;
			c.file = path_basename(u->log_file);
		}
	}
	if (a->logs) {
		logs_configure(a->logs, &c);
		return;
	}
	a->logs = logs_create(a->sup->loop, &c, &e);
	if (!a->logs) {
		log_error("%s: %s", a->name, err_msg(e));
		return;
	}
	logs_set_trouble(a->logs, on_log_trouble, a);
}

/* --- made and ended --- */

static int open_programs(struct sup *s, const struct sup_config *c, struct err **e)
{
	s->init_fd = open(c->init_program, O_PATH | O_CLOEXEC);
	if (s->init_fd < 0)
		return err_sys(
			e, errno,
			"%s: the first process of each jail is missing; is sbxsv installed completely?",
			c->init_program);
	s->self_pidfd = pidfd_open_pid(getpid());
	if (s->self_pidfd < 0)
		return err_sys(e, errno, "pidfd_open: Linux 5.4 or newer is needed");
	s->host_diag_fd = net_open_diag(NULL); /* Enforce=off alone needs it: its absence is found there */
	return 0;
}

static int state_dir(const char *path, struct err **e)
{
	CLEANUP_FD int fd = file_private_dir(path, e);
	CLEANUP_FD int probe = -1;

	if (fd < 0)
		return -1;
	(void)unlinkat(fd, ".probe", 0);
	probe = openat(fd, ".probe", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (probe < 0 && (errno == ENOSPC || errno == EDQUOT)) {
		log_warning("%s: %s; the apps run, but logs, events and records are lost until there is room",
			    path, strerror(errno));
		return 0;
	}
	if (probe < 0)
		return err_sys(e, errno,
			       "%s is not writable: sbxsv keeps logs and its own records there (--state DIR "
			       "chooses another)",
			       path);
	(void)unlinkat(fd, ".probe", 0);
	return 0;
}

static struct sup *sup_new(struct loop *l, const struct sup_config *c)
{
	struct sup *s = xcalloc(1, sizeof *s);

	s->loop = l;
	s->dirs = c->dirs;
	s->environ = environ;
	s->init_fd = s->self_pidfd = s->host_diag_fd = -1;
	s->started_ms = clk_mono_ms();
	s->started_wall_ms = clk_wall_ms();
	loop_defer_init(l, &s->record_defer, on_record, s);
	hooks_init(s);
	return s;
}

struct sup *sup_create(struct loop *l, const struct sup_config *c, struct err **e)
{
	struct sup *s = sup_new(l, c);
	struct unit_problems problems = {0};

	/* A broken sbxsv.conf is read again and reported by the first scan; here only the default user
	 * matters. */
	(void)conf_load(s->dirs, &s->conf, &problems);
	unit_problems_clear(&problems);
	if (state_dir(s->dirs->state, e) < 0 || open_programs(s, c, e) < 0)
		goto failed;
	instance_read(s->dirs->state, &s->remains);
	(void)instance_await(&s->remains, INSTANCE_WAIT_MS);
	limits_init(s);
	s->refused = refused_create();
	s->events = events_create(l, s->dirs->state, e);
	if (!s->events || start_proxy(s, c->proxy_program, NULL, NULL, e) < 0)
		goto failed;
	strays_init(s);
	return s;
failed:
	sup_destroy(s);
	return NULL;
}

static void on_apps_changed(void *data)
{
	struct sup *s = data;
	struct js *report;

	if (s->down)
		return;
	report = sup_reload(s);
	js_free(report);
}

struct sup *sup_restore(struct loop *l, const struct sup_config *c, struct keep *k, struct err **e)
{
	struct sup *s = sup_new(l, c);
	CLEANUP_JS struct js *o = keep_get_js(k, keep_root(k), "sup"), *proxy = keep_get_js(k, o, "proxy");

	if (!proxy) {
		keep_wrong(k, "nothing of apps was handed over");
		(void)keep_error(k, e);
		goto failed;
	}
	handover_conf(k, o, s);
	if (open_programs(s, c, e) < 0)
		goto failed;
	limits_restore(k, js_get(o, "groups"), s);
	s->refused = refused_create();
	s->events = events_restore(k, js_get(o, "events"), l, s->dirs->state);
	if (start_proxy(s, c->proxy_program, k, proxy, e) < 0)
		goto failed;
	handover_load(k, o, s);
	s->watch = watch_restore(k, js_get(o, "watch"), l, s->dirs->apps, on_apps_changed, s);
	strays_init(s);
	if (!keep_error(k, e))
		return s;
failed:
	if (keep_is_rehearsal(k)) /* that process ends now, and touches nothing */
		return NULL;
	sup_destroy(s);
	return NULL;
}

/* What another version wrote for another proxy may mean something else to this one: policies are made anew first. */
static void replace_proxy(struct sup *s)
{
	for (struct app *a = s->apps; a; a = a->next) {
		CLEANUP_ERR struct err *e = NULL;

		if (a->network_told && network_rules_again(a, &e) < 0)
			log_error("%s: %s", a->name, err_msg(e));
	}
	proxyctl_replace(s->proxy);
}

void sup_go_on(struct sup *s, const char *from_version)
{
	size_t n = 0;

	s->upgrades++;
	for (const struct app *a = s->apps; a; a = a->next)
		n += app_alive(a);
	events_note(s->events, "supervisor", NULL, "upgraded in place from %s to %s, pid %d, %zu running apps kept",
		    from_version, PACKAGE_VERSION, (int)getpid(), n);
	log_info("upgraded in place from %s to %s, %zu running apps kept", from_version, PACKAGE_VERSION, n);
	if (proxyctl_outdated(s->proxy))
		replace_proxy(s);
	sup_record(s);
	strays_look(s);
	for (struct app *a = s->apps, *next; a; a = next) {
		next = a->next;
		stdio_go_on(a);
	}
	run_go_on(s);
}

unsigned sup_upgrades(const struct sup *s)
{
	return s->upgrades;
}

int sup_start(struct sup *s, struct err **e)
{
	(void)e;
	events_note(s->events, "supervisor", NULL, "started, pid %d", (int)getpid());
	s->watch = watch_create(s->loop, s->dirs->apps, on_apps_changed, s);
	js_free(sup_reload(s));
	sup_record(s);
	return 0;
}

void sup_destroy(struct sup *s)
{
	if (!s)
		return;
	s->down = true;
	upgrade_abandon(s);
	watch_destroy(s->watch);
	proxyctl_destroy(TAKE_PTR(s->proxy)); /* first: it would complain about the listeners that go now */
	while (s->apps)
		app_free(s->apps);
	hooks_finish(s);
	violations_finish();
	loop_defer_stop(&s->record_defer);
	loop_timer_stop(&s->kill_timer);
	loop_signal_stop(&s->child_signal);
	if (s->groups)
		limits_finish(s);
	events_destroy(s->events);
	refused_destroy(s->refused);
	conf_finish(&s->conf);
	unit_problems_clear(&s->problems);
	instance_record_finish(&s->remains);
	fd_close_many(&s->init_fd, 1);
	fd_close_many(&s->self_pidfd, 1);
	fd_close_many(&s->host_diag_fd, 1);
	order_release(s);
	free(s->reclaimed);
	free(s->queue);
	free(s);
}

bool sup_has_app(struct sup *s, const char *name)
{
	if (app_find(s, name))
		return true;
	watch_flush(s->watch);
	return app_find(s, name) != NULL;
}

struct logs *sup_app_logs(struct sup *s, const char *name)
{
	struct app *a = app_find(s, name);

	return a ? a->logs : NULL;
}

struct events *sup_events(struct sup *s)
{
	return s->events;
}
