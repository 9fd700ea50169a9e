/* Shared by plan*.c, toolchain.c, guard.c and environment.c only. */
#pragma once
#include "sandbox/plan.h"

/* What lies at the end of a path, and the symlinks crossed on the way there. */
struct plan_crossed {
	char *path, *target; /* the link, its parents resolved; its text */
	uid_t uid;           /* who made it */
};
struct plan_where {
	char *path;     /* resolved; for an absent path the existing part resolved and the rest as written */
	int error;      /* 0, or why `path` cannot be looked at: ENOENT, ENOTDIR, ELOOP, EACCES... */
	struct stat st; /* of `path` when error is 0 */
	char *stood;    /* when error is not 0: the last directory on the way that was there */
	struct plan_crossed *links;
	size_t n_links, cap_links;
};
void plan_where_finish(struct plan_where *w);
void plan_where_copy(struct plan_where *to, const struct plan_where *from);
#define CLEANUP_WHERE CLEANUP(plan_where_finish)

/* Where an entry comes from decides whether it may narrow another one. */
enum plan_source {
	SOURCE_MADE,   /* what the backend makes itself: lies over whatever the host has there */
	SOURCE_SYSTEM, /* system roots */
	SOURCE_OWN,    /* AppDirectory=, DataDirectory= */
	SOURCE_ASKED,  /* Read=, Write=, UnixSocket=, Secret= */
	/* The next three add what is missing, and never make a writable tree read-only. */
	SOURCE_LIST,    /* the allowlist of sbxsv.conf; single files of the system */
	SOURCE_PATH,    /* a directory of Path= */
	SOURCE_IMPLIED, /* the toolchain */
	SOURCE_LOCK,    /* never writable */
};
struct plan_grant {
	struct plan_path p;
	enum plan_source source;
};

enum plan_place_kind {
	PLACE_SECRET,
	PLACE_SBXSV,   /* configuration, state, runtime... of sbxsv itself */
	PLACE_OTHER,   /* another app's */
	PLACE_HIDE,    /* Hide= */
	PLACE_FILE,    /* the unit's own sources, EnvironmentFile=, log */
	PLACE_MACHINE, /* in `open`: /run and the like, where a grant may lie */
};
struct plan_place { /* a hidden place, resolved */
	char *path, *written;
	enum plan_place_kind kind;
	const char *name; /* of a secret */
	char *reason;
	bool exists, dir;
	char *stood; /* the nearest directory above it that was there when it was looked for */
	bool create; /* absent, and yet it must be hidden */
	bool closed; /* a file whose permissions keep the app out, whoever writes it again */
	bool firm;   /* no directory on the way to it is trusted to stay as it is, root's neither */
	struct plan_crossed *links; /* on the way to it */
	size_t n_links;
	char *again; /* the place that a second mount shows here; NULL */
};

struct plan_ask {
	const char *key, *origin, *written;
	const struct plan_where *where;
	bool write;
	bool own;    /* AppDirectory= or DataDirectory= */
	bool socket; /* UnixSocket= */
	bool system; /* part of every jail: only hidden places matter */
};
struct plan_used {
	char *path, *target;
	const char *key, *origin, *written; /* of the line that goes through it; NULL: toolchain, system */
	char *leads_to;
	bool pinned; /* made anew even where the host's own would be seen: see plan_shut.c */
};

struct plan_known { /* a directory that is no symlink, or something that is not there */
	char *path;
	bool absent;
};

struct plan_ctx {
	const struct unit *u;
	const struct plan_world *w;
	struct unit_problems *problems;
	struct plan *plan;
	struct plan_grant *grants;
	size_t n_grants, cap_grants;
	struct plan_place *places;
	size_t n_places, cap_places;
	struct plan_used *links; /* every symlink a grant goes through */
	size_t n_links, cap_links;
	struct strv own;    /* app and data directories, resolved */
	struct strv homes;  /* of the app's user and of the supervisor's, resolved; "/" is left out */
	struct strv search; /* the app's PATH, as written */
	struct strv login, path_dirs; /* never writable, resolved */
	struct plan_mounts *mounts;
	struct plan_known *known;     /* hash table, see plan_paths.c */
	size_t n_known, cap_known;
	size_t problems_before;
};

/* --- plan.c --- */
/* Adds a problem at "file:line". */
void plan_problem(struct plan_ctx *c, const char *origin, const char *fmt, ...) PRINTF_LIKE(3, 4);

bool plan_failed(const struct plan_ctx *c);

/* --- plan_paths.c: resolving and the list of entries --- */
void plan_resolve(struct plan_ctx *c, const char *path, struct plan_where *ret);
bool plan_exists(struct plan_ctx *c, const char *path, bool *ret_dir);
/* Adds an entry for `path` (resolved). `reason` is copied. */
struct plan_grant *plan_grant_add(struct plan_ctx *c, const char *path, enum plan_access access, bool dir,
				  enum plan_source source, const char *reason);
/* `a`: the line of the unit, or NULL. */
void plan_links_add(struct plan_ctx *c, const struct plan_where *w, const struct plan_ask *a);
/* The most specific grant so far that contains `path`, or NULL. */
const struct plan_grant *plan_covering(const struct plan_ctx *c, const char *path);
bool plan_visible(const struct plan_ctx *c, const char *path);
bool plan_writable(const struct plan_ctx *c, const char *path);
/* Turns grants and places into the sorted paths, links and unseen places of the plan. */
void plan_settle(struct plan_ctx *c);

/* --- plan_memo.c: results of plan_resolve() --- */
bool plan_memo_recall(struct plan_memo *m, const char *path, struct plan_where *ret);
void plan_memo_keep(struct plan_memo *m, const char *path, const struct plan_where *w);

/* --- plan_grants.c: what the unit asks for --- */
void plan_system_roots(struct plan_ctx *c);
void plan_own_directories(struct plan_ctx *c);
void plan_asked(struct plan_ctx *c);
void plan_search_path(struct plan_ctx *c);
void plan_work_directory(struct plan_ctx *c);

/* --- guard.c: what is never granted, what is always hidden --- */
void plan_guard_init(struct plan_ctx *c);
/* false: refused, and the problem is added. */
bool plan_guard(struct plan_ctx *c, const struct plan_ask *a);
/* Never grantable, whoever asks; of what plan_guard() refuses the part that depends on the path alone. */
bool plan_never(const char *path, bool write);
/* Symlinks of other people on the way; false with a problem. */
bool plan_guard_links(struct plan_ctx *c, const struct plan_ask *a);
/* When all grants are known: symlinks that the app itself could turn round. */
void plan_guard_own_links(struct plan_ctx *c);
bool plan_guard_own_link(struct plan_ctx *c, const struct plan_ask *a, const char *link,
			 const char *leads_to);
/* A toolchain may be granted as this whole directory. */
bool plan_guard_prefix(const struct plan_ctx *c, const char *dir);
/* Adds the problem; false. */
bool plan_refuse(struct plan_ctx *c, const struct plan_ask *a, const char *why, const char *advice);
const struct plan_place *plan_place_of(const struct plan_ctx *c, const char *path);
/* At or inside a hidden place of this app. */
bool plan_inside_hidden(const struct plan_ctx *c, const char *path);
/* Not granted by Secret=, nor this app's own. */
bool plan_hidden(const struct plan_ctx *c, const struct plan_place *p);
bool plan_secret_granted(const struct unit *u, const char *name);

/* --- plan_shut.c --- */
/* When all grants are known: hides the hidden places, and shuts the directories that show their names. */
void plan_hide_places(struct plan_ctx *c);

/* --- plan_mounts.c: the mount table. Pure. --- */
struct plan_mounts;
struct plan_mounts *plan_mounts_parse(const char *mountinfo); /* NULL: an empty one */
void plan_mounts_free(struct plan_mounts *m);
void plan_mounts_of_types(const struct plan_mounts *m, const char *const types[2], struct strv *ret);
/* The other paths by which what is at `path` (resolved; it may be absent) can be reached, or a part of it. */
void plan_mounts_other_names(const struct plan_mounts *m, const char *path, struct strv *ret);

/* --- plan_locks.c: what is never writable --- */
/* At, above or below a place from which the login of the person with this home runs things. */
bool plan_is_login(const char *home, const char *path);
bool plan_guard_locked(struct plan_ctx *c, const struct plan_ask *a);
/* Read-only entries inside writable trees. */
void plan_guard_locks(struct plan_ctx *c);

/* --- toolchain.c, plan_search.c --- */
void plan_toolchain(struct plan_ctx *c);
bool plan_is_program(struct plan_ctx *c, const char *path);
/* The first program of that name along the app's PATH, as written; NULL. Owned by caller. */
char *plan_lookup(struct plan_ctx *c, const char *name);
/* A directory outside PATH that has it, or NULL. Owned by caller. */
char *plan_lookup_elsewhere(struct plan_ctx *c, const char *name);
/* The install prefix of a file by its place in a known layout, or NULL. Owned by caller. */
char *plan_known_prefix(const struct plan_ctx *c, const char *path);

/* --- environment.c --- */
void plan_environment(struct plan_ctx *c);
const char *plan_env_get(char *const *env, const char *name); /* value in a K=V array, or NULL */

/* --- plan_sockets.c --- */
void plan_sockets(struct plan_ctx *c);
