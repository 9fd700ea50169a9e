/*
 * Jail backends. `linux` builds namespaces, `none` is for Enforce=off; landlock, bwrap, docker and seatbelt have
 * their place here. A backend is asked "can you" (probe, by a real trial launch) before "do" (launch).
 *
 * Launch never blocks. The caller gets a struct launch at once; when the jail stands and the program was executed in it, or
 * when any of that failed or took longer than 10 s, on_done is called from the loop, once. The pidfd is valid from the
 * start, so that a launch can be killed in the middle. on_done always comes before a loop watcher of the pidfd. After a
 * failure the child is dead or dying: reap the pidfd.
 *
 * The caller must be dumpable and launch from its main thread, with fds 0, 1 and 2 open: parent death is the death of that
 * thread. The jail's umask is 022, its soft RLIMIT_NOFILE 1024 unless the unit has OpenFiles=.
 */
#pragma once
#include "base/keep.h"
#include "base/loop.h"
#include "sandbox/audit.h"
#include "sandbox/plan.h"

/* What the running process really got. Shown by status; "not in force" beats a wish. */
struct isolation {
	const char *backend; /* "linux", "none" */
	bool user_ns, mount_ns, pid_ns, net_ns, seccomp, nested_ns_off, no_new_privs;
	int landlock_abi;        /* 0: no Landlock layer */
	bool survivors_possible; /* no pid namespace */
	bool groups_kept;        /* supplementary groups that could not be dropped */
	bool unix_sockets;   /* socket(AF_UNIX) works inside; unix_why says why, or why not. From the plan. */
	char *unix_why;      /* NULL without a jail: then nothing is refused */
	enum audit audit;    /* which calls are looked at */
	int audit_error;     /* why none are though they should be: an errno; 0 */
	bool in_group;       /* it is in launch_io.group_fd */
	struct strv missing; /* best-effort: what the unit asked for and the machine could not give */
};
void isolation_finish(struct isolation *i);
struct js *isolation_js(const struct isolation *i); /* as status shows it */

enum { LAUNCH_SOCKETS_MAX = 240, LAUNCH_FACTS_MAX = 1280 };
struct launch_sockets { /* made inside the app's network namespace by the hook, passed out */
	int fds[LAUNCH_SOCKETS_MAX];
	size_t n;
	/* whatever the hook has to say about them, plain data that nobody here looks into */
	_Alignas(8) unsigned char facts[LAUNCH_FACTS_MAX];
};

struct launch;
struct launch_audit {
	int listener_fd;
	int root_fd;  /* O_PATH, of the jail */
	int mntns_fd; /* while it is open, what the jail saw can be looked at */
	int diag_fd;  /* NETLINK_SOCK_DIAG, made inside: one more, for another thread */
};
struct launch_io {                          /* fds stay the caller's; the child gets copies */
	int stdin_fd, stdout_fd, stderr_fd; /* -1: /dev/null */
	int init_fd;                        /* O_PATH fd of sbxsv-init */
	int supervisor_pidfd; /* so that the child can see that its parent died before PDEATHSIG was set; -1: none */
	/* Runs in the child, inside the new network namespace, with its capabilities, before the mounts. It may make
	 * sockets and puts them into `out`; they reach on_done. NULL: nothing. -1 with *e fails the launch. */
	int (*inside_net)(void *data, struct launch_sockets *out, struct err **e);
	void *inside_net_data;
	bool new_session; /* setsid for the app: always, but for `exec` on a terminal */
	/*
	 * Which calls of the app wait for us (audit.h). Then `listening` is called from the loop before on_done: it takes over
	 * what is in `fds` and must see to it that the listener is served at once, also while
	 * the loop is busy, for the app's own start is the first call that waits. sbxsv-init keeps a duplicate. A kernel that cannot
	 * do it never fails a launch: isolation.audit says what is.
	 */
	enum audit audit;
	/* data: of on_done. -1: it cannot be served, and the launch fails with *e. */
	int (*listening)(void *data, const struct launch_audit *fds, struct err **e);
	/* Nothing has to be done when the program runs (so not with an audit), and the launch is left alone until launch_settle(),
	 * when the pidfd is dead, or 10 s are over: two wakeups less. */
	bool quiet;
	/* Write end of a pipe that becomes descriptor 3 of the program; 0: none. */
	int ready_fd;
	/* The directory of the control group that the app is put into, and what it limits (CGROUP_*): limits of the plan that
	 * say so are left to it. 0: none. A group that cannot be entered never fails a launch. */
	int group_fd;
	unsigned group_limits;
	/* A message that came to PLAN_NOTIFY_SOCKET from inside of the jail, from the loop, after on_done. NULL and the errno: one
	 * that was dropped, because its sender is not of the jail (EPERM) or because it is too long (EMSGSIZE). Needed when the
	 * plan says notify. It may not destroy the launch. */
	void (*notified)(void *data, const char *text, size_t len, int error);
};

struct launch_done {
	struct isolation isolation;    /* take it by copying and zeroing */
	struct launch_sockets sockets; /* likewise: set n to 0 after taking */
	int userns_fd, netns_fd; /* to make sockets inside later; take by setting to -1; -1 without a netns */
	int diag_fd;             /* NETLINK_SOCK_DIAG socket made inside; -1 without a netns */
};
/* error: NULL on success. The launch stays the caller's. */
typedef void launch_done_fn(void *data, struct launch *l, struct launch_done *done, const struct err *error);

struct probe {
	const char *init_program; /* path of sbxsv-init */
	enum unit_read_mode read_mode;
	int (*inside_net)(void *data, struct launch_sockets *out,
			  struct err **e); /* as in struct launch_io */
	void *inside_net_data;
	/* answers, the caller's afterwards */
	struct isolation isolation;
	struct launch_sockets sockets;
	int64_t took_us; /* from the call to the reaped process */
};
struct backend {
	const char *name;
	/* A trial launch of /bin/sh with a hard limit of 4 s. 0: works; -1 with the reason and the fix. Blocks: doctor only. */
	int (*probe)(struct probe *p, struct err **e);
	struct launch *(*launch)(struct loop *loop, const struct plan *plan, const struct launch_io *io,
				 launch_done_fn *on_done, void *data, struct err **e);
	/* Why an errno of a failed launch happened and what to change; owned by caller. */
	char *(*explain)(int error, const char *step);
};
const struct backend *backend_for(const struct unit *u, struct err **e);
extern const struct backend backend_linux, backend_none;

/* The pid-namespace init (or, for none, the app); dead when nothing of the app is left. Owned by the launch. */
int launch_pidfd(const struct launch *l);
pid_t launch_pid(const struct launch *l);
/* A quiet launch: on_done now, unless it was called already. The pidfd is dead. */
void launch_settle(struct launch *l);
/* Once the pidfd is dead: the app's own wait status as waitpid(2) gives it, reported by sbxsv-init. -1: unknown, the
 * init was killed itself (then the status of the pidfd is all there is). */
int launch_exit_status(struct launch *l, int *ret_wstatus);
/* Runs a command beside the app of a launch that succeeded: a child of sbxsv-init, with all that confines the app and nothing
 * more. `fn` is called from the loop, once, with its wait status (127: no such program), or with -errno when there was no process
 * for it; it may not destroy the launch. One at a time: -1 with EBUSY, also while a stopped one has not ended. E2BIG: above
 * LAUNCH_CHECK_MAX bytes or LAUNCH_CHECK_WORDS words. */
enum { LAUNCH_CHECK_MAX = 4096, LAUNCH_CHECK_WORDS = 64 };
typedef void launch_checked_fn(void *data, int wstatus);
int launch_check(struct launch *l, const struct strv *argv, launch_checked_fn *fn, void *data);
void launch_check_stop(struct launch *l); /* kills its process group; fn is not called any more */
/* Frees. Does not kill: the owner has reaped the pidfd. */
void launch_destroy(struct launch *l);

/* --- across an exec of the supervisor, base/keep.h --- */
typedef void launch_notified_fn(void *data, const char *text, size_t len, int error);
bool launch_is_over(const struct launch *l); /* on_done was called: only then it can be saved */
struct js *launch_save(struct keep *k, const struct launch *l);
/* Never NULL. notified: NULL unless messages are expected, as in struct launch_io. */
struct launch *launch_restore(struct keep *k, struct loop *loop, const struct js *o,
			      launch_notified_fn *notified, void *data);
/* A command beside the app that was on its way: its end is told to `fn`. */
void launch_check_again(struct launch *l, launch_checked_fn *fn, void *data);
struct js *isolation_save(struct keep *k, const struct isolation *i);
void isolation_restore(struct keep *k, const struct js *o, struct isolation *ret);
