/*
 * Unit files: what a person wrote, read strictly, with the origin of every value.
 *
 * Theory of operation. A unit is NAME.app in apps.d/, plus the profile it names (units/PROFILE.conf: its keys
 * are defaults), plus the drop-ins NAME.app.d/ *.conf in order. Each file goes through the line reader
 * (reader.c), which finds every malformed line, and then through inih with short lines; each key=value is
 * looked up in the key table (keys.c), parsed by its type and stored. Expansion of ~ %h %n %i %t %S $PORT
 * happens after all files are read. Parsing is pure (buffers in, struct unit out); only scan.c touches the
 * disk.
 *
 * An error names file and line and, for an unknown word, the nearest valid one. All errors of a file are
 * collected.
 */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "base/keep.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* --- values with origins --- */
struct unit_value {
	char *text;   /* expanded */
	char *origin; /* "notes.app:12", "units/strict.conf:3", "notes.app.d/allow.conf:2" */
};
struct unit_list {
	struct unit_value *v;
	size_t n, cap;
};

enum unit_mode { UNIT_BACKGROUND, UNIT_SESSION, UNIT_STDIO };
enum unit_restart { UNIT_RESTART_NO, UNIT_RESTART_ON_FAILURE, UNIT_RESTART_ALWAYS };
enum unit_ready { UNIT_READY_EXEC, UNIT_READY_LISTEN, UNIT_READY_HTTP, UNIT_READY_NOTIFY, UNIT_READY_FD };
enum unit_enforce { UNIT_ENFORCE_REQUIRED, UNIT_ENFORCE_BEST_EFFORT, UNIT_ENFORCE_OFF };
enum unit_read_mode { UNIT_READ_STRICT, UNIT_READ_ALLOWLIST, UNIT_READ_OPEN };
enum unit_egress {
	UNIT_EGRESS_OFF,
	UNIT_EGRESS_HOSTS,
	UNIT_EGRESS_ALL
}; /* same order as enum egress of policy.h */
enum unit_backend {
	UNIT_BACKEND_AUTO,
	UNIT_BACKEND_LINUX,
	UNIT_BACKEND_LANDLOCK,
	UNIT_BACKEND_BWRAP,
	UNIT_BACKEND_DOCKER,
	UNIT_BACKEND_SEATBELT,
	UNIT_BACKEND_NONE
};

struct unit_listen {
	uint16_t host_port, app_port;
	char *origin;
};

struct unit {
	char *name;          /* "notes", "web@blue" */
	char *instance;      /* "blue" or NULL */
	char *file;          /* path of NAME.app */
	struct strv sources; /* every file read, in order, absolute paths */
	struct strv
		not_in_force; /* "notes.app:7 [Health] Http: ..." keys that are read but not acted on yet */

	/* [App] */
	char *description;
	enum unit_mode mode;
	struct strv exec; /* argv, expanded; empty when shell is set */
	char *shell;
	char *exec_origin; /* of Exec= or Shell= */
	struct unit_list path;
	char *working_directory, *working_directory_origin;
	char *app_directory, *app_directory_origin; /* default: working_directory */
	struct unit_list data_directory;
	char *user, *group;
	struct unit_list environment;      /* K=V */
	struct unit_list environment_file; /* may have a '-' prefix */
	struct unit_list pass_environment;
	struct unit_list after, requires;  /* names of apps */
	bool enabled;
	/* [Restart]; times in ms */
	enum unit_restart restart;
	int64_t restart_ms, restart_max_ms, limit_interval_ms;
	unsigned limit_burst;
	uint8_t success_status[32]; /* bit n: exit status n counts as success; 0 always does */
	/* [Stop] */
	int stop_signal;
	int64_t stop_timeout_ms;
	/* [Ready] */
	enum unit_ready ready;
	char *ready_path;
	int64_t ready_timeout_ms;
	/* [Session] */
	int64_t idle_timeout_ms;
	bool idle_by_traffic;
	/* [Sandbox] */
	char *profile;
	enum unit_enforce enforce;
	enum unit_backend backend;
	enum unit_read_mode read_mode;
	struct unit_list read, write, hide, unix_socket, device,
		secret; /* absolute paths; read/write may have '-' */
	bool nested_sandbox, bind_declared;
	/* [Network] */
	enum unit_egress egress;
	char *egress_origin; /* of Egress= in the unit or a drop-in; NULL: default, profile, or implied */
	struct unit_list connect, allow, deny, allow_address;
	struct unit_listen *listen;
	size_t n_listen;
	char *listen_address;
	uint16_t *loopback;
	size_t n_loopback;
	struct unit_list loopback_app; /* Loopback=app:NAME, the names */
	bool sni_match, ech_refuse, ask;
	char *upstream_proxy, *upstream_proxy_origin; /* may hold a password: never shown */
	struct unit_list no_proxy;
	/* [Limits]; 0 = not set */
	uint64_t limit_memory, limit_tasks, limit_open_files, limit_core, tmp_size;
	unsigned limit_cpu_percent;
	int nice;
	/* [Health] */
	char *health_http;
	bool health_tcp;
	struct strv health_exec;
	int64_t health_interval_ms, health_timeout_ms, watchdog_ms;
	unsigned health_retries;
	/* [Log] */
	char *log_target, *log_file; /* target: "file" "journal" "syslog" */
	uint64_t log_max_size;
	unsigned log_max_files;
	bool log_timestamps;
	/* [Needs] [Prepare] [Hooks]: parsed and validated, kept as text */
	struct unit_list needs; /* "Bin=ffmpeg" */
	struct strv prepare_exec, prepare_files;
	struct unit_list prepare_allow;
	int64_t prepare_timeout_ms;
	unsigned prepare_retries;
	struct unit_list hooks; /* "OnStart=WORD\nWORD" */
	bool hooks_unsafe;
	/* [Port] [Audit] */
	bool reclaim;
	char *audit_violations; /* "writes" "all" "off" */
	bool audit_trace;
};
void unit_free(struct unit *u);
static inline void cleanup_unit_(struct unit **u)
{
	unit_free(*u);
}
#define CLEANUP_UNIT CLEANUP(cleanup_unit_)
const char *unit_mode_name(enum unit_mode m);
const char *unit_enforce_name(enum unit_enforce m);
const char *unit_read_mode_name(enum unit_read_mode m);

/* --- problems: every error of every file --- */
struct unit_problem {
	char *file;    /* as shown to people */
	unsigned line; /* 0: the file as a whole */
	char *text;
};
struct unit_problems {
	struct unit_problem *v;
	size_t n, cap;
};
void unit_problem_add(struct unit_problems *p, const char *file, unsigned line, const char *fmt, ...)
	PRINTF_LIKE(4, 5);
void unit_problems_clear(struct unit_problems *p);
char *unit_problems_text(const struct unit_problems *p); /* "file:line: text\n" each; owned by caller */

/* The command that makes the user of root mode's apps, as every message shows it; followed by the name. Its
 * home must not be a directory of sbxsv itself: those are hidden from apps. */
#define UNIT_USER_COMMAND "useradd --system --create-home --shell /usr/sbin/nologin "

/* --- reading --- */
struct unit_dirs {                                        /* where everything is; all absolute, see dirs.h */
	char *config, *apps, *state, *runtime, *profiles; /* profiles: the shipped units/ */
	char *home, *user, *shell; /* of the user who runs sbxsv; an app with User= gets its own when launched */
	uid_t uid;
	bool root_mode;                  /* euid 0: stricter ownership rules, apps run as User= or "sbxsv" */
	char *state_home, *runtime_home; /* what %S and %t mean, as in systemd: $XDG_STATE_HOME or /var/lib,
					    $XDG_RUNTIME_DIR or /run */
	uint16_t min_port;               /* lowest host port this user may bind; 0: not checked */
	/* Syntax checks of values that other modules own; NULL: not checked. 0, or -1 with the reason. */
	int (*check_host_rule)(const char *text, struct err **e); /* Allow= */
	int (*check_deny_rule)(const char *text, struct err **e); /* Deny=, which may name more than Allow= */
	int (*check_address_rule)(const char *text, struct err **e);
	int (*check_ports)(const char *text, struct err **e);
	int (*check_upstream)(const char *text, struct err **e); /* UpstreamProxy=; its messages quote nothing */
	int (*check_no_proxy)(const char *text, struct err **e);
};
/* Fills from the environment (SBXSV_*_DIR, XDG_*), euid and `instance` (NULL or --instance NAME). */
int unit_dirs_init(struct unit_dirs *d, const char *instance, struct err **e);
void unit_dirs_finish(struct unit_dirs *d);

bool unit_name_valid(
	const char *name); /* [a-z0-9][a-z0-9_-]{0,62}, or that @ARG with ARG [A-Za-z0-9_.-]{1,63} */
/* Reads one unit with its profile and drop-ins. NULL when it has any problem (all of them are added). */
struct unit *unit_load(const struct unit_dirs *d, const char *name, struct unit_problems *p);
/* A unit file outside apps.d (sbxsv check FILE). */
struct unit *unit_load_file(const struct unit_dirs *d, const char *path, struct unit_problems *p);

struct unit_scan_entry {
	char *name;
	struct unit *unit; /* NULL: broken, see problems */
	struct unit *circular; /* right by itself, but its After= and Requires= go in a circle: `unit` is NULL then */
	struct unit_problems problems;
};
struct unit_scan {
	struct unit_scan_entry *v; /* sorted by name; templates without instance are checked but not listed */
	size_t n, cap;
	struct unit_problems problems; /* of the directory itself, and of templates */
};
/* Why an app that is written correctly may not be started by this version ("notes.app:3 Mode=session is not
 * in force yet: the app is not started"): whatever would silently give less than the unit says fails closed.
 * NULL: it may. Owned by caller. */
char *unit_not_startable(const struct unit *u);
int unit_scan_dir(const struct unit_dirs *d, struct unit_scan *ret, struct err **e);
void unit_scan_finish(struct unit_scan *s);

/* Can one process not listen on a port of address `a` while another listens on the same port of `b`? */
bool unit_address_clash(const char *a, const char *b);
/* A problem for each Listen= of u that an app among the first n entries has too: only the first of them that
 * is started gets the port. Apps with Enabled=no are alternatives, and u itself does not count. */
void unit_clash_check(const struct unit *u, const struct unit_scan *scan, size_t n, struct unit_problems *p);

/* A problem for each Loopback=app:NAME of u that names no app of the scan, or one that cannot be reached like
 * that. What is broken over there is its own problem. */
void unit_peers_check(const struct unit *u, const struct unit_scan *scan, struct unit_problems *p);

/* --- pieces for other modules --- */
/* One text as a unit, without profile, drop-ins or disk: fuzzers, `new`, `import`. `shown` is its name in
 * problems. */
struct unit *unit_parse_buffer(const struct unit_dirs *d, const char *name, const char *shown,
			       const char *text, size_t len, struct unit_problems *p);
/* One text as a unit with the profile it names, from the disk, but without drop-ins: `sbxsv exec`. */
struct unit *unit_load_text(const struct unit_dirs *d, const char *name, const char *shown, const char *text,
			    size_t len, struct unit_problems *p);
/* Reads a regular file of at most `max` bytes that only the user or root can change (in root mode: only
 * root), every directory and symlink on the way included. For EnvironmentFile= and the like. */
int unit_trusted_read(const struct unit_dirs *d, const char *path, size_t max, char **ret, size_t *ret_len,
		      struct err **e);
/* Text of an EnvironmentFile: K=V lines, # and ; comments, quotes around a value; appends "K=V" to ret. */
int unit_env_file_parse(const char *text, size_t len, const char *shown, struct strv *ret,
			struct unit_problems *p);
/* Is a version ("v18.20.4", "3.11") in a range of [Needs] (">=18 <23", "^3.10", "18.x")? 1, 0, or -1: that depends on
 * what the version does not say. */
int unit_version_in(const char *version, const char *range);
/* The secret places Secret= can grant by name; `path` is relative to the home directory. A name may have
 * several rows. */
struct unit_secret {
	const char *name, *path;
};
const struct unit_secret *unit_secrets(size_t *ret_n);

/* What a reload must do: 0 nothing changed in meaning. */
enum {
	UNIT_CHANGE_LIVE =
		1, /* network rules, restart policy, limits of logs...: applied to the running app */
	UNIT_CHANGE_RESTART = 2, /* needs a new process */
	UNIT_CHANGE_PORTS = 4    /* Listen= or ListenAddress= differ: with LIVE when only the host's side does */
};
unsigned unit_diff(const struct unit *before, const struct unit *after);
/* The merged unit with the origin of each line, for `sbxsv cat --effective`. Owned by caller. */
char *unit_effective(const struct unit_dirs *d, const char *name, struct unit_problems *p);

/* --- changing a unit: what `allow --save` writes (dropin.c) --- */
#define UNIT_ALLOW_DROPIN "50-allow.conf"
struct unit_edit { /* of one word of a list key of [Network], or of a path of one of [Sandbox]; all of one call alike */
	const char *key, *text;
	bool remove, path;
};
/* The text of a drop-in with the edits made: a word that is there already is not added, a line left without a word
 * goes, all other lines stay. Pure; owned by caller. */
char *unit_edit_text(const char *text, const struct unit_edit *v, size_t n);
/* May the unit be like that? -1 with the reason. */
typedef int unit_accept_fn(void *data, const struct unit *u, struct err **e);
struct unit_dropin {
	char *path;   /* owned by caller */
	bool changed; /* false: it said so already */
};
/* Makes the edits in NAME.app.d/50-allow.conf, or leaves everything as it is: -1 with *e, and with the problems of
 * the whole unit when it would have some. */
int unit_dropin_edit(const struct unit_dirs *d, const char *name, const struct unit_edit *v, size_t n,
		     unit_accept_fn *accept, void *data, struct unit_dropin *ret, struct unit_problems *p,
		     struct err **e);

/* Writes NAME.app.d/60-enabled.conf: Enabled=yes or no, of the whole unit. -1 as above; also when a later drop-in
 * says otherwise. */
#define UNIT_ENABLED_DROPIN "60-enabled.conf"
int unit_dropin_enable(const struct unit_dirs *d, const char *name, bool enabled, struct unit_dropin *ret,
		       struct unit_problems *p, struct err **e);
/* The unit with `text` in place of its own file: `sbxsv edit`. */
struct unit *unit_load_edited(const struct unit_dirs *d, const char *name, const char *text, struct unit_problems *p);

/* --- sbxsv.conf --- */
struct conf {
	int64_t shutdown_budget_ms; /* ShutdownBudget=300ms: everything gone, supervisor included */
	struct unit_list allowlist; /* [Sandbox] Read= of ReadMode=allowlist */
	char *default_user;         /* root mode: "sbxsv" */
};
/* An absent file means defaults. -1: there were problems; *ret is filled either way (defaults for what is
 * wrong) and needs conf_finish(). */
int conf_load(const struct unit_dirs *d, struct conf *ret, struct unit_problems *p);
void conf_finish(struct conf *c);

/* --- across an exec of the supervisor (base/keep.h): what is in force, not what the files say --- */
struct js *unit_save(struct keep *k, const struct unit *u);
struct unit *unit_restore(struct keep *k, const struct js *o); /* o NULL: NULL */
struct js *conf_save(struct keep *k, const struct conf *c);
void conf_restore(struct keep *k, const struct js *o, struct conf *ret);
struct js *unit_problems_save(struct keep *k, const struct unit_problems *p);
void unit_problems_restore(struct keep *k, const struct js *list, struct unit_problems *ret);

/* --- the key table, for check, completions, man page tests --- */
struct unit_key {
	const char *section, *name, *type, *default_text, *help;
	bool list, live, in_force; /* live: a reload applies it without a restart */
	/* for src/unit only */
	uint8_t kind, flags;
	uint16_t offset;
	const char *const *words; /* of an enum; a leading '!' marks a word that is not in force yet */
	int64_t min, max;
};
const struct unit_key *unit_keys(size_t *ret_n);
