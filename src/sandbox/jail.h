/*
 * Inside of the jail backends: what the two sides of a launch share.
 *
 * Theory of operation. launch.c is the supervisor's side: it clones, writes the id maps when it is root, and
 * then only watches one SOCK_SEQPACKET socket and one deadline. The child's side (linux.c, none.c) is a copy
 * of the whole supervisor, with all its memory and fds, that has to become sbxsv-init: it makes plain system
 * calls, uses its stack and the plan it was given, allocates nothing, and either executes sbxsv-init or says
 * in one message which step failed, with errno and path, and exits. sbxsv-init then reports on the same
 * socket (see src/init/init.c).
 */
#pragma once
#include "sandbox/backend.h"
#include "sandbox/landlock.h"
#include "sandbox/seccomp.h"
#include <limits.h>

/* The same in src/init/init.c. */
enum { NOTE_EXEC_FAILED = 0x5801, NOTE_STARTED, NOTE_EXITED, NOTE_NOTIFY, NOTE_CHECKED };
enum { ORDER_CHECK = 0x5901, ORDER_KILL };
struct init_note {
	int32_t type, value;
};

enum { SETUP_FAILED = 0x5501, SETUP_JAIL };
enum { GOT_SECCOMP = 1, GOT_NESTED_OFF = 2, GOT_NO_NEW_PRIVS = 4, GOT_AUDIT = 8, GOT_GROUP = 16 };
enum { SETUP_NOTES_MAX = 8 };
struct setup_note {
	char step[16];
	int32_t error;
	char text[1024];
};
struct setup_message { /* sent up to the last note used */
	int32_t type;
	uint32_t got;
	int32_t landlock_abi;
	int32_t audit_error;
	uint32_t n_notes; /* SETUP_FAILED: the last one is the failure; else what best-effort went without */
	unsigned char facts[LAUNCH_FACTS_MAX]; /* of the hook inside_net */
	struct setup_note notes[SETUP_NOTES_MAX];
};

enum { CHILD_FDS_MAX = LAUNCH_SOCKETS_MAX + 7 };
struct child {
	const struct plan *plan;
	const struct launch_io *io;
	const struct sock_fprog *filter; /* NULL: none */
	char *const *init_argv;
	int sock, abi;
	uint64_t unshare;
	bool as_root; /* the supervisor is root, the app is not */
	bool helped;  /* the parent writes the maps, then says so */
	bool join;    /* it is not in its control group yet */
	struct setup_message msg;
	int fds[CHILD_FDS_MAX]; /* user ns, net ns, sock_diag, what the hook made; with GOT_AUDIT
				 * sock_diag again, mount ns, root and listener */
	size_t n_fds;
	int listener, mntns, diag; /* -1: no audit */
	int notify;                /* -1: no $NOTIFY_SOCKET */
	struct landlock landlock;
	/* linux_mounts.c */
	int root, blank;
	int seal[1024];
	size_t n_seal, n_shut;
};
/* `error`: an errno; 0 or less: the text says it all already, and -error is the errno. */
_Noreturn void child_fail(struct child *c, const char *step, int error, const char *what, const char *path);
/* Under Enforce=required the end; under best-effort a note, and the launch goes on without. */
void child_miss(struct child *c, const char *step, int error, const char *what, const char *path);

/* linux_ids.c */
int ids_write_maps(pid_t pid, uid_t uid, gid_t gid, struct err **e); /* the parent, as root */
void ids_own_maps(struct child *c);
void ids_become_user(struct child *c);
void ids_drop_capabilities(struct child *c);
/* linux_mounts.c */
void mounts_build(struct child *c);
/* linux_shut.c: fills `to`, a directory of ours, with the entries of `from`, which is path `i` of the plan */
void mounts_shut(struct child *c, size_t i, int from, int to, unsigned attributes);
/* linux_resolv.c: the content, on the file system of the covers; then its place, when the rest stands */
void resolv_write(int blank);
void mounts_resolv(struct child *c);
/* child.c: steps every backend takes */
void child_group(struct child *c); /* the first step: what it uses from here on is the app's */
void child_namespaces(struct child *c);
void child_signals(struct child *c);
void child_stdio(struct child *c);
void child_core(struct child *c); /* before child_filter() */
void child_limits(struct child *c);
void child_check_parent(struct child *c);
void child_privileges(struct child *c);
void child_audit_prepare(struct child *c); /* while the host's /proc is there */
void child_audit(struct child *c);         /* in the jail */
void child_filter(struct child *c);
void child_report(struct child *c);
_Noreturn void child_exec_init(struct child *c);

/* explain.c: what this machine's settings say about a failure; apart from reading them, pure */
struct machine {
	int apparmor_restrict; /* kernel.apparmor_restrict_unprivileged_userns; -1: no such setting (in all)
				*/
	int userns_clone;      /* kernel.unprivileged_userns_clone, Debian's */
	int64_t max_userns;    /* user.max_user_namespaces */
	bool root;
};
char *explain_failure(const struct machine *m, int error, const char *step);
char *linux_explain(int error, const char *step);
int linux_probe(struct probe *p, struct err **e); /* probe.c */

/* launch.c */
bool launch_identity_ok(const struct plan *p, struct err **e);
struct launch_how {
	const struct backend *backend;
	uint64_t clone_flags;   /* namespaces: user and pid */
	uint64_t unshare_flags; /* the child's first step: the kernel needs most of a launch for a network
				   namespace */
	unsigned filter_variant;
	bool filter_required;
	const char *init_flags; /* letters of sbxsv-init */
	bool landlock;
	void (*child)(struct child *c); /* does not return */
};
struct launch *launch_start(struct loop *loop, const struct plan *plan, const struct launch_io *io,
			    const struct launch_how *how, launch_done_fn *on_done, void *data,
			    struct err **e);
