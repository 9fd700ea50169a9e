/*
 * Host sockets and FIFOs: which of them could the app reach, and what is done about it.
 *
 * The kernel's side. connect() to a socket file asks for write permission on the inode and nothing else: a
 * read-only mount does not stop it, a network namespace does not either (only abstract names are per
 * namespace), and Landlock has no access right for it in any released ABI this was written for (up to 7). The
 * same uid is inside and outside, so the permission bits do not help. seccomp sees no path, and whatever a
 * user notification reads behind the pointer can change; it can refuse a socket family altogether, though.
 * Opening a FIFO for writing is not stopped by a read-only mount either, but Landlock's WRITE_FILE right
 * covers it.
 *
 * What does not hold. Looking for socket files at launch and covering them: the next one appears a second
 * later, and a tree can be too big to search. A read-only overlay has inodes of its own, on which no host
 * socket is bound, but it shows stale names when the host changes a file below it, and cannot be writable.
 *
 * The rule, therefore. AF_UNIX sockets exist in a jail only where no foreign socket can come into view:
 *  - ReadMode=open shows the whole disk, and a directory granted with Read=, Write= or the allowlist is
 * somebody else's place where any program of the user may bind a socket at any time: AF_UNIX is refused
 * (socket() fails with EPERM; stream pairs remain, which is all that Python's and Node's own processes need).
 *  - Otherwise the jail shows system roots (only root can bind there, but for what was installed in /opt),
 * program trees, and the app's own directories. What lies in the app's own directories is the app's; but a
 * developer's server may run in the same folder, so they and /opt are searched (bounded: it is the top of the
 * folder where such sockets lie) for sockets that some process has bound right now, and what /proc/net/unix
 * names counts wherever it lies. A dead socket file is a leftover of the app itself. One that is alive:
 * AF_UNIX is refused, and the reason names it.
 *  - UnixSocket= grants one, and with it the family; `UnixSocket=-/tmp/x.sock` (absent) asks for the family
 * alone. Then what else can be found in the granted trees is covered, and where not everything could be
 * searched, or in `open`, the unit is refused; Enforce=best-effort takes it and says so.
 */
#include "sandbox/plan_internal.h"
#include "base/file.h"
#include <string.h>

/* Search bounds. Own directories: their top. Granted trees: all of it, or the unit is refused. */
enum { OWN_DEPTH = 4, OWN_DIRS = 256, TREE_DEPTH = 32, TREE_DIRS = 4096 };

struct hunt {
	struct plan_ctx *c;
	size_t dirs_left;
	bool all_specials; /* FIFOs and dead sockets too */
	bool complete;
	struct strv *found;
};

/* Bulk directories of other people's code: packages and build results, never a running server. */
static bool is_bulk(const char *name)
{
	static const char *const bulk[] = {"node_modules", ".venv",   "venv",   "site-packages",
					   "__pycache__",  "objects", "target", ".cache"};

	for (size_t i = 0; i < ELEMENTS(bulk); i++)
		if (strcmp(name, bulk[i]) == 0)
			return true;
	return false;
}

/* A hidden place begins here: what lies below is not shown. */
static bool is_place(const struct plan_ctx *c, const char *path)
{
	for (size_t i = 0; i < c->n_places; i++)
		if (strcmp(c->places[i].path, path) == 0)
			return true;
	return false;
}

static void hunt_tree(struct hunt *h, const char *dir, int depth)
{
	const struct plan_fs *fs = &h->c->w->fs;
	CLEANUP_STRV struct strv dirs = {0}, specials = {0};

	if (depth == 0 || h->dirs_left == 0) {
		h->complete = false;
		return;
	}
	h->dirs_left--;
	if (fs->scan(fs->data, dir, &dirs, &specials) < 0) {
		h->complete = false;
		return;
	}
	for (size_t i = 0; i < specials.n; i++) {
		CLEANUP_FREE char *path = path_join(dir, specials.v[i]);
		const struct plan_grant *g = plan_covering(h->c, path);
		struct stat st;

		if ((g && g->p.socket) || fs->lstat(fs->data, path, &st) < 0)
			continue;
		if (h->all_specials || (S_ISSOCK(st.st_mode) && fs->socket_live(fs->data, path)))
			strv_add(h->found, path);
	}
	for (size_t i = 0; i < dirs.n; i++) {
		CLEANUP_FREE char *path = path_join(dir, dirs.v[i]);

		if ((h->all_specials || !is_bulk(dirs.v[i])) && !is_place(h->c, path))
			hunt_tree(h, path, depth - 1);
	}
}

/* Live sockets in the app's own directories, those of Path=, and /opt. */
static void hunt_own(struct plan_ctx *c, struct strv *found)
{
	struct hunt h = {.c = c, .dirs_left = OWN_DIRS, .found = found};
	struct hunt opt = h;

	for (size_t i = 0; i < c->n_grants; i++) {
		const struct plan_grant *g = &c->grants[i];

		if ((g->source == SOURCE_OWN || g->source == SOURCE_PATH) && g->p.dir &&
		    plan_exists(c, g->p.path, NULL))
			hunt_tree(&h, g->p.path, OWN_DEPTH);
		else if (g->source == SOURCE_SYSTEM && strcmp(g->p.path, "/opt") == 0)
			hunt_tree(&opt, g->p.path, OWN_DEPTH);
	}
}

static bool is_below_source(const struct plan_ctx *c, const char *path, enum plan_source source)
{
	for (size_t i = 0; i < c->n_grants; i++) {
		const struct plan_grant *g = &c->grants[i];

		if (g->source == source && g->p.access != PLAN_HIDE && path_is_below(path, g->p.path))
			return true;
	}
	return false;
}

/* A directory of somebody else that this jail shows: Read=, Write=, the allowlist. */
static bool is_foreign(const struct plan_ctx *c, const struct plan_grant *g)
{
	if (!g->p.dir || g->p.access == PLAN_HIDE || (g->source != SOURCE_ASKED && g->source != SOURCE_LIST))
		return false;
	if (is_below_source(c, g->p.path, SOURCE_OWN))
		return false;
	return g->p.access == PLAN_WRITE || !is_below_source(c, g->p.path, SOURCE_SYSTEM);
}

static const struct plan_grant *first_foreign(const struct plan_ctx *c)
{
	for (size_t i = 0; i < c->n_grants; i++)
		if (is_foreign(c, &c->grants[i]))
			return &c->grants[i];
	return NULL;
}

/* Sockets of the host in what every jail shows: a server installed below /opt that keeps its socket there, or
 * one in a part of the app's own directories that was not searched. */
static void hunt_bound(struct plan_ctx *c, struct strv *found)
{
	const struct plan_fs *fs = &c->w->fs;
	CLEANUP_STRV struct strv bound = {0};

	if (fs->bound(fs->data, &bound) < 0)
		return; /* no /proc, no list; what it adds to the search is missing then */
	for (size_t i = 0; i < bound.n; i++) {
		CLEANUP_WHERE struct plan_where w = {0};
		const struct plan_grant *g;

		plan_resolve(c, bound.v[i], &w);
		g = w.error || plan_inside_hidden(c, w.path) ? NULL : plan_covering(c, w.path);
		if (g && g->p.access != PLAN_HIDE && !g->p.socket && !strv_has(found, w.path))
			strv_add(found, w.path);
	}
}

static void off(struct plan_ctx *c, char *why)
{
	c->plan->unix_sockets = false;
	free(c->plan->unix_why);
	c->plan->unix_why = why;
}

/* What the person asked for cannot be held: an error, or with best-effort a note. */
static void cannot_hold(struct plan_ctx *c, const char *text)
{
	if (c->u->enforce == UNIT_ENFORCE_REQUIRED)
		plan_problem(c, c->u->unix_socket.v[0].origin,
			     "UnixSocket=: %s; Enforce=best-effort takes the risk", text);
	else
		strv_add(&c->plan->missing, text);
}

static void cover(struct plan_ctx *c, const struct strv *found)
{
	for (size_t i = 0; i < found->n; i++)
		plan_grant_add(c, found->v[i], PLAN_HIDE, false, SOURCE_SYSTEM,
			       "socket or FIFO of another program");
}

static void with_unix_socket(struct plan_ctx *c)
{
	CLEANUP_STRV struct strv found = {0};
	struct hunt h = {
		.c = c, .dirs_left = TREE_DIRS, .all_specials = true, .complete = true, .found = &found};
	size_t n = c->n_grants;

	c->plan->unix_sockets = true;
	c->plan->unix_why = xasprintf("UnixSocket= (%s)", c->u->unix_socket.v[0].text);
	if (c->plan->read_mode == UNIT_READ_OPEN) {
		cannot_hold(c, "in ReadMode=open every socket on the disk could be connected to: use strict "
			       "or allowlist");
		return;
	}
	hunt_own(c, &found);
	hunt_bound(c, &found);
	for (size_t i = 0; i < n; i++) {
		if (!is_foreign(c, &c->grants[i]))
			continue;
		hunt_tree(&h, c->grants[i].p.path, TREE_DEPTH);
		if (!h.complete) {
			CLEANUP_FREE char *text = xasprintf("%s is too big or not readable, so other sockets "
							    "in it cannot be ruled out: grant less of it",
							    c->grants[i].p.path);

			cannot_hold(c, text);
			break;
		}
	}
	cover(c, &found);
}

static void decide(struct plan_ctx *c)
{
	const struct plan_grant *foreign = first_foreign(c);
	CLEANUP_STRV struct strv found = {0};

	c->plan->fifos_visible = foreign || c->plan->read_mode == UNIT_READ_OPEN;
	if (c->u->unix_socket.n) {
		with_unix_socket(c);
		return;
	}
	if (c->plan->read_mode == UNIT_READ_OPEN) {
		off(c, xstrdup("refused: ReadMode=open shows every socket file of this machine"));
		return;
	}
	if (foreign) {
		off(c, xasprintf("refused: other programs may keep sockets in %s (%s); UnixSocket= names the "
				 "one that is meant",
				 foreign->p.path, foreign->p.reason));
		return;
	}
	hunt_own(c, &found);
	hunt_bound(c, &found);
	if (found.n)
		off(c, xasprintf("refused: %s belongs to a running program; stop that program, Hide= the "
				 "directory, or name the socket with UnixSocket=",
				 found.v[0]));
	else
		c->plan->unix_sockets = true;
	if (!c->plan->unix_why)
		c->plan->unix_why = xstrdup("allowed: no socket of another program is in sight");
}

/* sd_notify(3) sends over such a socket. Not even best-effort goes without: the app would never get ready. */
void plan_sockets(struct plan_ctx *c)
{
	decide(c);
	if (c->plan->notify && !c->plan->unix_sockets)
		plan_problem(
			c, NULL, "%s needs Unix sockets inside the jail, and these are %s",
			c->u->ready == UNIT_READY_NOTIFY ? "Type=notify" : "WatchdogSec=", c->plan->unix_why);
}
