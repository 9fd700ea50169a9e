/*
 * A plan says everything about one jail before anything is done: which paths, which environment, which
 * program, which identity, which kernel layers. It is made by pure code from a unit and a view of the file
 * system, so it can be golden-tested, shown (`sbxsv check --path`), and compared with what a backend then
 * really did.
 *
 * Order of rules: grants first (system roots, toolchain, app and data directories, Read=, Write=), the most
 * specific path wins; hidden places come after all grants and win over them; a grant below a hidden place
 * leaves the ancestors traversable but empty. Every entry carries its reason and origin.
 */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "unit/unit.h"
#include <sys/resource.h>
#include <sys/stat.h>

/* The file system as plan code may ask it; the real one is plan_fs_real(), tests use a table. */
struct plan_fs {
	/* lstat; 0 or -1 with errno */
	int (*lstat)(void *data, const char *path, struct stat *st);
	/* target text of a symlink, owned by caller, or NULL with errno */
	char *(*readlink)(void *data, const char *path);
	/* first `max` bytes of a regular file, owned by caller, or NULL with errno */
	char *(*head)(void *data, const char *path, size_t max);
	/* names in a directory (without . and ..); 0 or -1 with errno */
	int (*list)(void *data, const char *path, struct strv *ret);
	/* names in a directory that are directories, and those that are sockets or FIFOs; 0 or -1 with errno
	 */
	int (*scan)(void *data, const char *path, struct strv *ret_dirs, struct strv *ret_specials);
	/* some process has this socket file bound now, in whichever namespace; what cannot be told counts as
	 * true */
	bool (*socket_live)(void *data, const char *path);
	/* absolute paths of the sockets bound in the supervisor's own network namespace, as their owners
	 * wrote them; 0 or -1 with errno */
	int (*bound)(void *data, struct strv *ret);
	/* proc_pid_mountinfo(5), owned by caller; NULL: it cannot be read */
	char *(*mountinfo)(void *data);
	void *data;
};
struct plan_fs plan_fs_real(void);
/* The same, each question asked once: for plans that are made in one go (plan_memo.c says how long that may
 * be). */
struct plan_memo;
struct plan_memo *plan_memo_create(struct plan_fs below);
struct plan_fs plan_memo_fs(struct plan_memo *m);
void plan_memo_destroy(struct plan_memo *m);

enum plan_access { PLAN_HIDE, PLAN_READ, PLAN_WRITE };
struct plan_path {
	/* Absolute, no symlink in it when it was looked at. A backend opens it with RESOLVE_NO_SYMLINKS, so
	 * that a link put there since then fails the launch. */
	char *path;
	enum plan_access access;
	bool dir; /* else a single file, socket or device */
	/* A directory that must exist only so that something below it can be reached; it is traversable
	 * (0755, read-only) and holds nothing but the way to the grants below. With PLAN_READ it is made
	 * where nothing is shown; with PLAN_HIDE it covers a hidden place in a tree that is shown. */
	bool empty;
	/* A DataDirectory: made 0700 as the app's user before the mounts. With PLAN_HIDE: another app's, of
	 * the same user; when it cannot be made there is nothing to hide. */
	bool create;
	bool socket; /* a UnixSocket= grant */
	/* A directory shown read-only in which hidden places lie or would lie: it is rebuilt of a clone of
	 * each entry it has at launch. Names that come or are exchanged later (~/.netrc is rewritten by
	 * rename, the first `aws configure` makes ~/.aws) do not show; a mere cover goes away with the file
	 * it covers. "/" of ReadMode=open always is. See plan_shut.c. */
	bool shut;
	/* With PLAN_HIDE: nothing was there when the plan was made, and what has come since is not shown. */
	bool absent;
	bool noexec;
	char *reason; /* "system", "toolchain of /usr/bin/node", "app directory", "secret place", "notes.app:9
			 Read=" */
};
/* A symlink of the host that the jail needs to have too, e.g. /bin -> usr/bin. Only those that do not come
 * with a granted directory; in `open` only below hidden places. Its parent directories are `empty` entries.
 * Where its directory is shut the link is made as the plan has it, for a hidden place was found through it.
 */
struct plan_link {
	char *path, *target;
};

/* Where an app's program is looked for after Path=, and the end of its PATH. Not the PATH of whoever started
 * the supervisor: that one is full of directories that other programs write. */
#define PLAN_PROGRAM_DIRS "/usr/local/bin:/usr/bin:/bin"

/* Where the app of a unit with Type=notify or WatchdogSec= sends to, and what one with Type=fd writes to. */
#define PLAN_NOTIFY_SOCKET "/dev/sbxsv-notify"
#define PLAN_READY_FD      "3"

/* Who the app runs as and what is known of that user. */
struct plan_user {
	uid_t uid;
	gid_t gid;
	char *name, *home, *shell;
};

/* Everything around the unit. */
struct plan_world {
	const struct unit_dirs *dirs;
	const struct conf *conf;
	struct plan_user user;
	/* what plan_unit_places() gives for the other units: hidden from this one unless they are its own too
	 */
	const struct strv *others;
	/* what plan_unit_data() gives for those of them that run as the same user: made when absent, because
	 * what is not there cannot be hidden; may be NULL */
	const struct strv *others_data;
	char *const *environ; /* of the supervisor: PassEnvironment= and LANG, TZ, TERM are taken from it */
	struct plan_fs fs;
	struct plan_memo *memo;   /* the one behind `fs`; NULL: none */
	bool reaches_out;         /* rules given at run time open a network that the unit leaves shut */
	const char *program_dirs; /* instead of PLAN_PROGRAM_DIRS; may be NULL */
};

enum { PLAN_RLIMITS_MAX = 8 };
struct plan {
	char *app;        /* name */
	struct strv argv; /* what sbxsv-init executes; argv[0] as given */
	char *program;    /* resolved path as the jail sees it */
	struct strv env;  /* complete, K=V */
	char *workdir, *app_directory;
	struct plan_user user;
	enum unit_read_mode read_mode;
	enum unit_enforce enforce;
	bool nested_sandbox;
	struct plan_path *paths; /* sorted: a directory, then everything below it */
	size_t n_paths, cap_paths;
	struct plan_link *links; /* strict and allowlist only */
	size_t n_links, cap_links;
	/* Hidden places that nothing shows anyway. For explanations only: backends skip them. */
	struct plan_path *unseen;
	size_t n_unseen, cap_unseen;
	/*
	 * AF_UNIX sockets. A read-only mount stops neither connect() to a socket file nor a write to a FIFO,
	 * so:
	 * - unix_sockets false: the backend refuses socket(AF_UNIX, any type) and socketpair(AF_UNIX,
	 * SOCK_DGRAM or SOCK_RAW, which is the same; such a socket may be sent anywhere). Stream and
	 * seqpacket pairs stay.
	 * - fifos_visible: FIFOs of others may be in read-only trees; only a Landlock file layer without
	 * WRITE_FILE there holds them. A backend without that layer does not give what the unit asked for.
	 * unix_why says why, for status; see plan_sockets.c for the rule.
	 */
	bool unix_sockets, fifos_visible;
	char *unix_why;
	struct strv missing; /* Enforce=best-effort: what the unit asked for and no plan can give; for
				isolation.missing */
	struct strv devices; /* Device= grants, absolute, character devices */
	char *tmpdir;        /* TMPDIR inside: /tmp, private; grants below it are mounted into it */
	uint64_t tmp_size;   /* bytes, 0 = kernel default */
	bool netns;          /* false only for Enforce=off */
	bool dns;            /* names are answered by sbxsv: /etc/resolv.conf says so */
	bool notify;         /* PLAN_NOTIFY_SOCKET is there, and $NOTIFY_SOCKET says so */
	struct {
		int resource;
		struct rlimit limit; /* rlim_max RLIM_INFINITY: the inherited hard limit stays, rlim_cur is
					capped to it */
		unsigned unless;     /* CGROUP_*: a control group that limits this makes it needless */
	} rlimits[PLAN_RLIMITS_MAX];
	size_t n_rlimits;
	int nice;
};
/* NULL with every problem added (guard list, missing program with the Path= line that fixes it, ...). */
struct plan *plan_make(const struct unit *u, const struct plan_world *w, struct unit_problems *p);
void plan_free(struct plan *p);
static inline void cleanup_plan_(struct plan **p)
{
	plan_free(*p);
}
#define CLEANUP_PLAN CLEANUP(cleanup_plan_)
char *plan_print(const struct plan *p); /* stable text, for golden tests and --debug; owned by caller */
/* What the jail allows on a path, and by which entry (owned by the plan; NULL: nothing grants it). Follows
 * the links of the plan, not those of the disk: the caller resolves first what it means the target of. */
enum plan_access plan_decide(const struct plan *p, const char *path, const struct plan_path **ret_by);

/* The same for a path as a person writes it: symlinks of the disk are followed, and one that the jail does
 * not show leads nowhere. */
enum plan_access plan_decide_on_disk(const struct plan *p, const struct plan_fs *fs, const char *path,
				     const struct plan_path **ret_by);

/* The program at this path, resolved, if the jail shows it; NULL. Owned by caller. */
char *plan_program_at(const struct plan *p, const struct plan_fs *fs, const char *path);
/* A directory of a usual place outside the app's PATH that has a program of this name; NULL. Owned by caller. */
char *plan_program_elsewhere(const struct unit *u, const char *home, const struct plan_fs *fs, const char *name);

/* The names Secret= takes, NULL-terminated. */
const char *const *plan_secret_names(void);
/* Appends the places of this unit that no other app may see (app and data directories, EnvironmentFile=, log
 * file): what plan_world.others of every other unit is made of. */
void plan_unit_places(const struct unit *u, struct strv *ret);
void plan_unit_data(const struct unit *u, struct strv *ret); /* the data directories alone */

/* Why PATH, HOME and so on are what they are: see environment.c. Same address as NET_PROXY_* of net/net.h. */
#define PLAN_PROXY_URL "http://198.18.0.1:3128"
