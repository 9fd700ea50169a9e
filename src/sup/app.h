/*
 * Inside of the supervisor: what is known of one app and of all, shared by the files of src/sup/ only.
 *
 *   states.c    the table
 *   restart.c   backoff and start limit (pure)
 *   app.c       data, the event queue, the one function that writes a state
 *   action.c    what the table's actions do
 *   run.c       from a definition to a process, and its end
 *   listener.c  ports of the host
 *   network.c   policy, gate, jail sockets: the proxy's view of an app
 *   liverules.c rules given at run time (pure)
 *   loopback.c  Loopback= ports of a jail, and the apps behind them
 *   live.c      such rules given, taken, ended
 *   reclaim.c   a port taken by an orphan
 *   command.c   requests that wait for a result
 *   order.c     After= and Requires=; wait.c: who waits, and for whom
 *   needs.c     [Needs], before a launch
 *   reload.c    apps.d as a diff
 *   watch.c     inotify
 *   shutdown.c  all at once, inside a budget
 *   instance.c  one supervisor, and what the last one left
 *   status.c    what is shown
 *   shortage.c  what the machine is short of
 *   strays.c    Enforce=off: processes that got away
 *   health.c    [Health] checks
 *   hooks.c     [Hooks]: commands that run when something happens
 *   outside.c   [Hooks] Unsafe=yes: what may run outside of the jail
 *   prepare.c   [Prepare]: a command that runs before the app, once for each content of its files
 *   stdio.c     instances of Mode=stdio that clients started
 *   stdio_says.c what they say (pure)
 *   limits.c    control groups
 *   notify.c    what an app says of itself: sd_notify, Type=fd, the watchdog
 *   violations.c what apps are refused
 *   session.c   Mode=session: started by the first client, stopped when nobody uses it
 *   upgrade.c   another program in the place of this one
 *   handover.c  what it is told
 */
#pragma once
#include "base/fd.h"
#include "net/net.h"
#include "net/proxyctl.h"
#include "base/parse.h"
#include "ports/ports.h"
#include "monitor/ready.h"
#include "sandbox/backend.h"
#include "sup/instance.h"
#include "sup/liverules.h"
#include "sup/restart.h"
#include "sup/states.h"
#include "sup/sup.h"
#include <string.h>

#define APP_LISTEN_BACKLOG  256   /* connections that wait while an app starts, see doc/design.md section 5 */
#define APP_BACKOFF_HOLD_MS 10000 /* in backoff they wait for so long, then they are reset */

struct cgroup_tree;
struct health;
struct hook_run;
struct hooks;
struct judge;
struct notices;
struct app_needs;
struct observer;
struct order_world;
struct reclaim;
struct prepare;
struct refused;
struct usage;
struct watch;

/* What follows when the last process of an app that is being stopped is gone. */
enum app_after { AFTER_STAY, AFTER_AGAIN, AFTER_RETRY, AFTER_FORGET, AFTER_IDLE };

struct listener { /* a Listen= port on the host */
	uint16_t host_port, app_port;
	char *address;
	int fd;       /* -1: not held */
	char *holder; /* who has it, when it is taken */
	bool by_app;  /* Enforce=off: the app binds it itself */
};

struct loopback { /* a Loopback= port of a jail */
	uint16_t inside, host;
	bool held; /* the supervisor holds the host's port for that app, or nobody is reached there */
	char *app; /* app:NAME; NULL: a number */
};

enum limit_kind { LIMIT_NONE, LIMIT_MEMORY, LIMIT_MACHINE_MEMORY, LIMIT_CPU_TIME, LIMIT_FILE_SIZE };

struct last_exit {
	bool known;
	int status; /* as waitpid(2) gives it */
	enum limit_kind limit; /* what killed it, when that was a limit */
	uint64_t limit_bytes;
	int64_t at_wall_ms, after_ms;
};

struct app {
	struct app *next;
	struct sup *sup;
	char *name;

	/* Definitions. `unit` is in force: of the running process, or of the next one. */
	struct unit *unit;             /* NULL: there never was a good one */
	struct unit *newest;           /* differs from `unit` in a way that needs a new process; NULL: no */
	struct unit_problems problems; /* of the newest definition on disk */
	bool broken;                   /* it has some, so it is not started (but what runs goes on) */
	bool removed;                  /* its file is gone: forgotten as soon as nothing runs */
	bool dead;                     /* forgotten: freed when the queue is empty */

	/* Written by app_step() alone. */
	const enum app_state state;
	const int64_t since_ms;

	bool launch_later;/* its process is not started before the hand-over */
	unsigned attempt; /* number of the current attempt to run it */
	enum app_after after;
	struct restart restart;
	struct loop_timer timer; /* starting: Ready Timeout; stopping: Stop Timeout; backoff: the delay */
	struct loop_timer gate_timer; /* end of the hold in backoff */
	enum proxy_gate gate;
	bool network_told;     /* the proxy knows the rules and listeners of `unit` */
	bool gate_told;        /* and `gate` */
	int64_t next_start_ms; /* monotonic; in backoff */

	/* The launch. */
	struct launch *launch; /* not NULL: a process of ours may be alive */
	struct loop_io exit_io;
	bool launch_done, reaped, up;
	int short_of; /* errno: it failed because the machine is short of something */
	char *launch_error;
	struct isolation isolation;
	bool isolation_known, no_jail;
	char *run_user;
	struct strv hidden;  /* places of other apps when it was launched; only where it might see more of them */
	bool sees_newcomer;  /* it may see those of an app that came later */
	uint64_t launches;
	int64_t up_ms, ready_ms; /* monotonic; 0: not yet */
	pid_t pid;
	uint64_t pid_start;
	int diag_fd;             /* sock_diag inside */
	int userns_fd, netns_fd; /* kept for checks of readiness and health only */
	struct ready *ready;
	struct health *health;   /* checks of this process; NULL: none */
	struct notices *notices; /* what this process says of itself; NULL: nothing is listened to */
	struct loop_timer empty_timer; /* its process has ended, others in its control group have not yet */
	int64_t reaped_ms;             /* monotonic */
	char *group;                /* its control group; NULL: none. Survives an upgrade, as the next two */
	unsigned group_limits;      /* CGROUP_*: what that enforces */
	char *group_error;          /* what of it could not be had; NULL */
	bool judged;                /* what it was refused is known */
	bool audit_harder;          /* the attempt before this one failed soon */
	struct observer *observer;  /* of its calls; NULL: none */
	struct judge *judge;        /* between plan and launch */
	char *program;              /* likewise */
	uid_t judge_uid;
	gid_t judge_gid;
	/* Without nf_tables: the ports caught in its jail; NULL: all, or none. */
	struct net_ports {
		uint16_t v[NET_PORTS_MAX];
		size_t n;
	} *caught;
	char *capture; /* how its connections are caught, net_capture_text(); NULL: not known, or no jail */
	bool reaches_out; /* its jail was made with a way to the network */
	struct loopback *loopback; /* Loopback= ports of its jail */
	size_t n_loopback;
	struct liverules live;
	struct loop_timer live_timer; /* the next of them ends */

	struct hooks *hooks;     /* that wait, or run; NULL: none ever did */
	struct prepare *prepare; /* [Prepare] runs, or is tried again; NULL: no */
	bool prepared;           /* it has just succeeded */

	struct sup_instance *instances; /* of Mode=stdio */
	unsigned instance_number;       /* of the last one */

	struct listener *listeners;
	size_t n_listeners;
	struct reclaim *reclaim;
	struct app_needs *needs; /* NULL: it never had any */
	struct logs *logs;

	/* order.c; these survive an upgrade */
	const enum app_event *held_back; /* EV_STOP or EV_RESTART, until nothing runs that requires it; NULL: none */
	bool stuck;			 /* waiting: for something that does not come by itself */
	char *because;			 /* it is stopped by a request for another app */
	uint32_t node;			 /* in the graph of now */

	char *reason, *hint;
	struct last_exit last_exit;
	struct waiter *waiters;
	const enum app_event *todo; /* what a reload decided, see reload.c */
	bool seen;
};

struct queued {
	struct app *app;
	enum app_event event;
	unsigned attempt;
};

struct sup {
	struct loop *loop;
	const struct unit_dirs *dirs;
	struct conf conf;
	struct unit_problems problems; /* of apps.d itself and of sbxsv.conf */
	struct app *apps;              /* sorted by name */
	size_t n_apps;
	struct events *events;
	struct refused *refused;
	struct proxyctl *proxy;
	uint64_t proxy_restarts;
	int init_fd, self_pidfd, host_diag_fd;
	int64_t started_ms, started_wall_ms;
	char **environ;

	struct cgroup_tree *groups;
	struct strv graves; /* groups that are to be removed when they are empty */
	struct loop_timer grave_timer;
	int64_t grave_ms;
	struct plan_memo *memo; /* while several apps are started in one go, see batch_begin() */
	struct queued *queue;
	size_t queue_n, queue_cap, queue_at;
	bool stepping;
	unsigned walks; /* over apps that are going on: nothing is freed meanwhile */
	struct order_world *order;

	struct sup_self self;
	struct upgrade *upgrade; /* under way; NULL: none */
	bool hand_over;		 /* any moment now: nothing is launched */
	unsigned upgrades;	 /* of this process */

	struct watch *watch;
	struct hook_run *hook_runs;
	struct loop_defer hooks_defer; /* some wait */
	struct loop_defer record_defer;
	struct instance_record remains; /* what an earlier run left behind */
	uint16_t *reclaimed;            /* ports where reclaim was tried in this run */
	size_t n_reclaimed, cap_reclaimed;
	struct loop_signal child_signal;
	bool record_failed;
	bool any_unjailed; /* an app without a pid namespace was started, or we are pid 1: there may be strays to reap */

	/* shutdown */
	bool down, killed, lost;
	struct loop_timer kill_timer;
	void (*down_done)(void *data);
	void *down_data;
};

/* newcomers.c */
void newcomers_launched(struct app *a, const struct strv *others); /* a plan was made with these hidden */
void newcomers_check(struct sup *s);                               /* the definitions changed */
/* app.c */
struct app *app_create(struct sup *s, const char *name); /* linked into s->apps, sorted */
struct app *app_find(const struct sup *s, const char *name);
void app_free(struct app *a); /* unlinked; nothing of it runs */
void app_event(struct app *a, enum app_event e);
void app_restore_state(struct app *a, enum app_state state, int64_t since_ms); /* as it was before an exec */
void app_forget(struct app *a); /* once the queue is empty */
void app_bury(struct sup *s);   /* frees those, if nobody walks over the apps */
void app_say(struct app *a, const char *hint, const char *fmt, ...)
	PRINTF_LIKE(3, 4); /* sets reason and hint */
void app_say_nothing(struct app *a);
bool app_alive(const struct app *a); /* a process of it may be alive */
const struct unit *app_newest(const struct app *a);
bool app_jailed(const struct unit *u); /* has a network of its own */

/* action.c */
void action_init(struct app *a);
void action_finish(struct app *a);
void action_left_state(struct app *a);
enum app_event action_verdict(struct app *a); /* nothing of it runs any more: what follows? */
void app_act(struct app *a, enum app_action act);
void app_kill(struct app *a, bool again);
void action_nothing_runs(struct app *a); /* it is stopping, and is down at once */
void app_text_of_exit(const struct last_exit *x, char *buf, size_t cap);
bool app_exit_is_success(const struct unit *u, int status);

/* explain.c */
#define LOG_STARTED   "[sbxsv] started" /* how each start begins in its log */
#define LOG_PREPARING "[sbxsv] preparing"
void explain_unprepared(struct app *a, const char *cause); /* [Prepare] failed */
void explain_giveup(struct app *a, const char *cause, const char *hint, bool limit);
char *explain_backoff(const struct app *a); /* its reason, and the last lines it wrote; owned by caller */
char *explain_repair(const struct app *a); /* what to do when the jail cannot be as written; owned by caller */
void explain_late(struct app *a); /* sets the reason why it is not ready */

/* run.c */
void run_begin(struct app *a);       /* definition and ports */
void run_ports_again(struct app *a); /* an orphan that had one is gone */
void run_start(struct app *a);       /* the process */
void run_attach(struct app *a);
struct plan *run_plan_of_hook(struct app *a, const struct unit *u, struct err **e);
struct plan *run_plan(struct app *a, const struct unit *u, struct err **e); /* by this view of its unit; NULL with *e */
void run_ready(struct app *a, const char *what); /* it does its work, and this shows it */
/* Across an exec: the process that is there; ready_begun_ms: since when it is asked whether it is ready, 0: it is not. */
void run_watch(struct app *a, int64_t ready_begun_ms);
void run_go_on(struct sup *s); /* starts what was held back, hooks too */
void run_release(struct app *a); /* everything that belongs to the process that is gone */

/* Around starts that follow each other without the loop in between: their plans share what they see of the disk. */
void batch_begin(struct sup *s);
void batch_end(struct sup *s);

/* shortage.c */
bool shortage_is(int code);
char *shortage_hint(int code); /* which limit, for a person; owned by caller */
int shortage_of_room(const struct app *a, struct err **e); /* -1: other launches need the descriptors that are left */

/* listener.c */
enum hold { HOLD_DONE, HOLD_PENDING, HOLD_FAILED, HOLD_GONE /* inside listener.c */ };
enum hold listener_hold(struct app *a, struct err **e); /* PENDING: run_ports_again() follows */
/* Of a running jail: the unit names other ports of the host. All of them at once, or none: -1, nothing changed. */
int listener_move(struct app *a, struct err **e);
void listener_release(struct app *a);

/* reclaim.c: takes a port back; run_ports_again() follows */
int reclaim_start(struct app *a, uint16_t port, struct err **e);
void reclaim_stop(struct app *a);
char *
reclaim_describe(uint16_t port); /* "pid 41 (python3 -m http.server) in /home/ann/notes"; owned by caller */

/* network.c */
int network_apply(struct app *a, struct err **e); /* rules and listeners to the proxy, when they changed */
int network_rules_again(struct app *a, struct err **e); /* rules alone: others count from now on */
void network_gate(struct app *a);                 /* what the state says */
enum egress network_egress(const struct app *a);  /* of the unit in force and the rules given at run time */
struct policy *network_policy(const struct unit *u, const struct liverules *live, struct err **e);
/* Can a whole policy of them be handed to the proxy? */
int network_policy_fits(const struct unit *u, const struct liverules *live, struct err **e);
/* Other run-time rules in place of a->live, whose content moves out to `rules`. On failure nothing changes. */
int network_swap_rules(struct app *a, struct liverules *rules, struct err **e);
bool network_restart_needed(const struct app *a); /* it runs without the way out that its rules now open */
void network_attach(struct app *a, struct launch_done *done);
void network_detach(struct app *a);
int network_connect(void *data, uint16_t port); /* for checks of readiness and health; -1 with errno */
/* What the launching child reads; the unit must be there until then. */
struct network_plan {
	struct net_plan net;
	uint16_t ports[NET_PORTS_MAX], own[NET_PORTS_MAX], loopback[NET_LOOPBACK_MAX];
};
int network_plan(struct app *a, struct network_plan *ret, struct err **e);
int network_inside(void *net_plan, struct launch_sockets *out, struct err **e);

/* loopback.c */
int loopback_plan(struct app *a, struct err **e);  /* for a new jail */
int loopback_renew(struct app *a, struct err **e); /* for the one that is there: Loopback=, or a peer's port, changed */
void loopback_follow(struct app *peer);            /* its ports may have changed: those who name it are told */
const struct loopback *loopback_at(const struct app *a, uint16_t inside); /* NULL: no such port */
void loopback_forget(struct app *a);

/* live.c */
void live_init(struct app *a);
void live_finish(struct app *a);
struct js *live_rules(const struct app *a); /* for status */

/* violations.c */
#define VIOLATIONS_IN_STATUS 10
#define VIOLATIONS_MAX       1000
enum audit violations_mode(const struct app *a, const struct plan *p);
void violations_plan(struct app *a, const struct plan *p); /* its next launch is made by this plan */
int violations_listening(void *app, const struct launch_audit *fds, struct err **e);
/* All of the jail is dead. True: all it was refused is known; else `drained` is called. */
bool violations_drain(struct app *a, void (*drained)(void *app));
void violations_release(struct app *a);
void violations_finish(void); /* after the last app is gone, before the loop is */
void violations_ended(struct app *a, bool failed);
void violations_from_proxy(struct sup *s, const struct js *event);
struct js *violations_status(const struct app *a);
struct js *violations_since(const struct app *a, int64_t wall_ms, size_t max);
struct js *violations_save(struct keep *k, const struct app *a);
void violations_restore(struct keep *k, const struct js *o, struct app *a);
bool violations_freeze(struct sup *s, char **ret_who); /* false: not possible, for this app's sake; owned by caller */
void violations_thaw(struct sup *s);
char *violations_command(const struct app *a, const struct js *event);

/* command.c */
void command_settle(struct app *a, const enum app_event *handled); /* answers who waited for this state */
void command_abandon(struct app *a, bool ends, const char *why); /* ends: who waits for its end has it */
void command_overtaken(struct app *a, enum app_event e); /* a request that is not carried out any more */

/* order.c */
void order_changed(struct sup *s); /* definitions did, or the list of apps */
void order_forget(struct app *a);  /* about to be freed */
void order_release(struct sup *s);
size_t order_all(struct sup *s, struct app ***ret); /* what others come after is first; *ret is the caller's */
/* A request, and what follows from it for other apps, whose names go to `with` (NULL: nobody asks). `person`: what
 * failed is tried again. */
void order_request(struct app *a, enum app_event e, bool person, struct strv *with);
void order_need(struct app *a);    /* starts what it requires and is stopped */
bool order_blocked(struct app *a); /* it must wait before it is launched; its reason says for what */
struct js *order_awaited(const struct app *a); /* "waits_for" of one that is waiting; owned by caller */
void order_hold_gate(struct app *a); /* it is waiting: its clients are, but not for ever */
const char *order_save(const struct app *a); /* what is held back; NULL: nothing */
void order_restore(struct app *a, const char *held_back);
void order_moved(struct app *a);   /* its state changed */
void order_review(struct sup *s);  /* all that wait ask again */

/* reload.c, watch.c */
struct watch *watch_create(struct loop *l, const char *apps_dir, void (*changed)(void *data), void *data);
void watch_renew(struct watch *w); /* before a scan: the directories may be others */
void watch_flush(struct watch *w); /* a change that waits for silence is told now */
void watch_destroy(struct watch *w);
struct js *watch_save(struct keep *k, const struct watch *w); /* NULL: none */
struct watch *watch_restore(struct keep *k, const struct js *o, struct loop *l, const char *apps_dir,
			    void (*changed)(void *data), void *data);

/* shutdown.c */
void shutdown_step(struct sup *s); /* after each burst of events: is everything gone? */

/* needs.c */
enum needs_verdict {
	NEEDS_MET,
	NEEDS_PENDING, /* EV_HELD follows */
	NEEDS_LACKS,   /* reason and hint say what */
	NEEDS_ERROR
};
enum needs_verdict needs_check(struct app *a, struct err **e);
bool needs_asking(const struct app *a); /* something of it runs */
bool needs_stop(struct app *a);		/* false: nothing runs; else the end of the stop follows */
const char *needs_optional(const struct app *a); /* programs that would be useful; NULL: none */
void needs_restore(struct app *a, char *optional); /* owns it */
void needs_release(struct app *a);

/* health.c */
void health_begin(struct app *a);  /* it is ready */
void health_follow(struct app *a); /* its unit may say something else now */
void health_release(struct app *a);
struct js *health_status(const struct app *a); /* NULL: nothing to say */
struct js *health_save(struct keep *k, const struct app *a);
void health_restore(struct keep *k, const struct js *o, struct app *a);

/* notify.c */
int notices_prepare(struct app *a, struct launch_io *io, struct err **e); /* io->ready_fd is the caller's to close */
void notices_attach(struct app *a); /* its word makes it ready, by Type=notify or fd */
void notices_ready(struct app *a);
void notices_release(struct app *a);
const char *notices_waiting_for(const struct app *a); /* NULL: nothing */
struct js *notices_status(const struct app *a);       /* NULL: nothing to say */
struct js *notices_save(struct keep *k, const struct app *a);
/* What launch_restore() is to call. */
launch_notified_fn *notices_restore(struct keep *k, const struct js *o, struct app *a);

/* session.c */
bool session_is(const struct app *a); /* by the definition in force */
void session_hold(struct app *a);
void session_held(struct app *a);
void session_hold_later(struct app *a);
void session_wake(struct app *a);
void session_rested(struct app *a);
void session_say_unused(struct app *a);
/* It ended by itself, with success: RESTED follows, or, when that is no way to go on, *ret_failed. */
enum app_event session_verdict(struct app *a, bool *ret_failed);
void session_proxy_says(struct sup *s, const char *app, enum proxy_use use);
struct js *session_status(const struct app *a); /* NULL: it is no session app */

/* hooks.c */
void hooks_init(struct sup *s);
/* name: "OnReady" and the like, a text that stays. Returns at once; nothing runs before the loop does. */
void hooks_happened(struct app *a, const char *name, const struct js *event);
void hooks_release(struct app *a); /* the app is forgotten; one that runs goes on */
size_t hooks_running(const struct sup *s);
const char *hooks_busy(const struct sup *s); /* whose hook runs; NULL: nobody's */
void hooks_go_on(struct sup *s);             /* those that were held back */
struct js *hooks_save(struct keep *k, const struct app *a); /* NULL: nothing */
void hooks_restore(struct keep *k, const struct js *o, struct app *a);
bool hooks_knows(const struct sup *s, pid_t pid);
void hooks_kill(struct sup *s);
void hooks_finish(struct sup *s);
/* outside.c: nothing of the command is in the hands of an app. 0, or -1 with *e. */
int outside_check(const struct app *a, const struct plan *p, struct err **e);

/* prepare.c */
enum prepare_next { PREPARE_DONE, PREPARE_RUN, PREPARE_FAILED };
/* The app is about to be launched. DONE: the app itself is next; RUN: a launch by prepare_unit() is. */
enum prepare_next prepare_next(struct app *a, struct err **e);
/* What a launch is made by: the unit in force, or, while it is prepared, its [Prepare]. Valid until the next call. */
const struct unit *prepare_unit(const struct app *a);
void prepare_launched(struct app *a);
void prepare_ended(struct app *a); /* nothing of that launch is left */
void prepare_stop(struct app *a);  /* nothing runs and nothing will */
void prepare_release(struct app *a);
struct js *prepare_status(const struct app *a); /* NULL: nothing to say */
struct js *prepare_save(struct keep *k, const struct app *a); /* NULL: nothing */
void prepare_restore(struct keep *k, const struct js *o, struct app *a);

/* stdio.c */
bool stdio_mode(const struct app *a); /* by its newest definition */
void stdio_stop(struct app *a);
void stdio_kill(struct app *a);
void stdio_release(struct app *a); /* the supervisor ends */
void stdio_rules(struct app *a);               /* rules given at run time changed */
void stdio_unit(struct app *a, bool outdated); /* the unit changed */
bool stdio_outdated(const struct app *a);
struct js *stdio_save(struct keep *k, const struct app *a);
void stdio_restore(struct keep *k, const struct js *list, struct app *a);
void stdio_go_on(struct app *a); /* those whose connection was not kept are gone */
void stdio_status(const struct app *a, struct js *o);             /* adds to it */
bool stdio_usage(const struct app *a, struct usage *ret); /* of all; false: no jail yet */

/* limits.c */
void limits_init(struct sup *s); /* before the first child: it may have to move, and they with it */
void limits_restore(struct keep *k, const struct js *o, struct sup *s);
void limits_finish(struct sup *s);
void limits_prepare(struct app *a, bool jailed, struct launch_io *io); /* io->group_fd is the caller's to close */
void limits_attach(struct app *a);
bool limits_kill(struct app *a);  /* all of it at once; false: it has no group */
bool limits_drain(struct app *a); /* after its end: kills what is left; false: something is dying in its group, ask again */
void limits_ended(struct app *a); /* was it a limit? */
void limits_release(struct app *a);
char *limits_text(const struct last_exit *x);       /* owned by caller; NULL: it was none */
const char *limits_word(const struct last_exit *x); /* for events; NULL */
const char *limits_hint(const struct last_exit *x); /* "" */
bool limits_usage(const struct app *a, struct usage *ret);
struct js *limits_status(const struct app *a); /* NULL: it has none */
struct js *limits_machine(const struct sup *s);

/* status.c */
void status_emit_state(struct app *a, enum app_state from);
void status_hook_start(struct app *a);
void status_emit_ready(struct app *a, const char *what);
void status_emit_exit(struct app *a);

int64_t sup_count_fds(void); /* -1: not known */

/* strays.c */
void strays_init(struct sup *s);
void strays_look(struct sup *s); /* those that ended while nobody looked */
void strays_kill_below(pid_t init); /* every descendant, not init itself */
void strays_kill_all(struct sup *s);

/* upgrade.c, handover.c */
void upgrade_abandon(struct sup *s); /* a shutdown */
struct js *handover_save(struct keep *k, const struct sup *s);
void handover_conf(struct keep *k, const struct js *o, struct sup *s); /* first */
void handover_load(struct keep *k, const struct js *o, struct sup *s); /* all else */

void sup_record(struct sup *s); /* STATE/run.json, soon */
void sup_configure_logs(struct app *a);

static inline char *chomp(char *text)
{
	size_t n = strlen(text);

	while (n && text[n - 1] == '\n')
		text[--n] = 0;
	return text;
}
