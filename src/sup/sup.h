/*
 * The supervisor: apps, their state table, start order, stop, reload as a diff, shutdown.
 *
 * Theory of operation. Each app is data (app.h); one table, state x event, says what happens (states.c); one
 * function writes the state. Everything that takes time (launch, readiness, stop, backoff) is a watcher that
 * feeds an event into that table; nothing blocks and nothing recurses: events raised while a step runs are
 * queued.
 */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "base/keep.h"
#include "base/loop.h"
#include "logs/logs.h"
#include "trace/events.h"
#include "unit/unit.h"

struct sup;
enum app_state {
	APP_STOPPED,
	APP_IDLE,
	APP_WAITING,
	APP_STARTING,
	APP_RUNNING,
	APP_UNHEALTHY,
	APP_STOPPING,
	APP_BACKOFF,
	APP_FAILED,
	APP_STATE_MAX
};
const char *app_state_name(enum app_state s);

struct sup_config {
	const struct unit_dirs *dirs;             /* outlives sup */
	const char *init_program, *proxy_program; /* paths */
};
struct sup *sup_create(struct loop *l, const struct sup_config *c, struct err **e);
void sup_destroy(struct sup *s);
/* Reads apps.d, binds ports, starts what is enabled; watches apps.d. Returns at once. */
int sup_start(struct sup *s, struct err **e);

/* Result of a command, called once, maybe before the call returns. code: exit codes of doc/design.md
 * section 7. */
typedef void sup_done_fn(void *data, int code, const char *message);
enum sup_verb { SUP_START, SUP_STOP, SUP_RESTART };
/* app NULL: all. Waits for running/stopped/failed before done is called; `wait` false: done at once. */
void sup_command(struct sup *s, enum sup_verb verb, const char *app, bool wait, sup_done_fn *done,
		 void *data);
/* Forgets that [Prepare] has run: the next start of the app (NULL: of all) runs it. */
void sup_prepare_again(struct sup *s, const char *app);
int sup_kill(struct sup *s, const char *app, int sig,
	     struct err **e); /* code 4 via err_code ENOENT, ESRCH not running */
/* A rule at run time, `sbxsv allow` and `deny`. */
struct sup_rule {
	bool deny;
	const char *host; /* as typed: HOST, HOST:PORT, an address */
	int64_t for_ms;   /* 0: until the supervisor ends */
	bool saved;       /* it was written into a drop-in just now: read it, and wait until it is in force */
};
/* Called once, maybe before sup_rule() returns, when the proxy judges by it. `result` (owned by the callee):
 * {"code","message"} and, where they mean something, "rule", "expires_ms", "dropped", "partly", "already",
 * "restart_needed", "running"; see sbxsv-api(7). */
typedef void sup_rule_done_fn(void *data, struct js *result);
void sup_rule(struct sup *s, const char *app, const struct sup_rule *r, sup_rule_done_fn *done, void *data);
/* Calls done when the proxy has taken all rules there are, maybe before it returns. */
void sup_settle_rules(struct sup *s, void (*done)(void *data), void *data);
/* An instance of an app with Mode=stdio, which a process of `sbxsv run` made (src/sup/stdio.c). */
struct sup_instance;
struct sup_instance_hooks {
	/* Owns the message; fd (-1: none) stays the caller's. */
	void (*tell)(void *data, struct js *message, int fd);
	void *data;
};
/* Owns runner_fd, a pidfd, unless it fails. */
/* The first message of one: its app, a valid name; NULL: no such message, or of another version. Pure. */
const char *sup_instance_hello(const struct js *message, int version);
struct sup_instance *sup_instance_join(struct sup *s, const char *app, pid_t runner, int runner_fd,
				       const struct sup_instance_hooks *hooks, struct err **e);
void sup_instance_says(struct sup_instance *i, const struct js *message);
/* Across an exec of the supervisor: what it is called, and, with a connection that was kept, the same again. NULL: there is none. */
void sup_instance_name(const struct sup_instance *i, const char **ret_app, unsigned *ret_number);
struct sup_instance *sup_instance_again(struct sup *s, const char *app, unsigned number,
					const struct sup_instance_hooks *hooks);
void sup_instance_gone(struct sup_instance *i); /* its connection ended: nothing is told any more */
/* Report: {"added":[..],"removed":[..],"restarted":[..],"live":[..],"unchanged":N,"problems":["file:line:
 * text"]} */
struct js *sup_reload(struct sup *s);
/* Parallel; done when everything of every app is gone and reaped. grace_ms < 0: the configured budget.
 * Idempotent. */
void sup_shutdown(struct sup *s, int64_t grace_ms, void (*done)(void *data), void *data);

/* --- upgrade in place, upgrade.c --- */
/* What the new program says when it is asked (--check-handover FD, an option of main.c) and can take over. */
#define SUP_HANDOVER_OK "can take over"
struct sup_self { /* how this process was started; all of it outlives sup */
	const char *program; /* full path; NULL: not known */
	const char *version;
	char *const *argv; /* without --handover FD */
	/* What others have to keep, into `root`; changes nothing. */
	void (*save)(void *data, struct keep *k, struct js *root);
	/* The exec is next: who waits for an answer gets it now. False: one was asked for something that the loop has to do first. */
	bool (*leave)(void *data);
	void *data;
};
void sup_upgradable(struct sup *s, const struct sup_self *self);
/* `done` (NULL: nobody asks) is called only when nothing came of it; else this program is no more. */
void sup_upgrade(struct sup *s, sup_done_fn *done, void *data);
unsigned sup_upgrades(const struct sup *s); /* how often this process was upgraded */
/* In place of sup_create() and sup_start(): goes on from what was handed over. Nothing happens before sup_go_on(). */
struct sup *sup_restore(struct loop *l, const struct sup_config *c, struct keep *k, struct err **e);
void sup_go_on(struct sup *s, const char *from_version);

bool sup_shutting_down(const struct sup *s);

/* One app in full, or NULL when there is none (keys: see sbxsv-api(7)). */
struct js *sup_app_status(struct sup *s, const char *app);
/* {"supervisor":{...},"apps":[short objects]} */
struct js *sup_status(struct sup *s, bool usage); /* usage: with processes, memory and time of each */
/* {"apps":[{"app","mode","total","lost"}],"violations":[..]}, newest first; app NULL: all; since_ms: wall clock */
struct js *sup_violations(struct sup *s, const char *app, int64_t since_ms);
struct js *sup_ports(struct sup *s); /* [{"app","host","app_port","address","state",...}] */
/* Like the requests by name above, it takes a change of apps.d that was noticed but not read yet: a person
 * who has just written a unit names it at once. */
bool sup_has_app(struct sup *s, const char *app);
char *sup_no_app(const struct sup *s, const char *name); /* that there is none, and which may be meant */
struct logs *sup_app_logs(struct sup *s, const char *app); /* NULL */
struct events *sup_events(struct sup *s);
