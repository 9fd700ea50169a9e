/*
 * What an app needs of the machine beside its jail: [Needs]. It is looked for with the app's own eyes: along its PATH,
 * behind its mounts, in its environment. Only the plan and the file system are asked; what takes a process, the version
 * of an interpreter, is named for the caller to find out (version.h).
 */
#pragma once
#include "sandbox/plan.h"

enum { NEEDS_ASK_MAX = 2 };
struct needs_ask {
	const struct unit_value *need; /* "Node=>=18"; of the unit */
	const char *range;             /* in it */
	const char *what;              /* "Node" */
	char *program;                 /* whose version it is, as the jail sees it */
};
struct needs {
	struct strv missing, missing_at; /* sentences, and the line that asks ("notes.app:9") */
	struct strv optional;            /* likewise, of OptionalBin= */
	struct strv packages;            /* what Debian and Ubuntu call it */
	struct strv paths;               /* directories that have it, for Path= */
	struct needs_ask ask[NEEDS_ASK_MAX];
	size_t n_ask;
};
void needs_look(const struct unit *u, const struct plan *p, const struct plan_fs *fs, struct needs *ret);
void needs_finish(struct needs *n);
/* An answer; one that is out of range becomes `missing`. `version` NULL: there is none, because of `why`. */
void needs_answer(struct needs *n, const struct needs_ask *a, const char *version, const char *why);
/* What the path of a program says about its version (".../versions/node/v18.20.4/bin/node", "/usr/bin/python3.11"); NULL. */
char *needs_version_by_path(const char *program);
/* What can be told without running anything, for `sbxsv check`: notes, since it is the machine that lacks it, not the unit. */
void needs_report(const struct unit *u, const struct plan *plan, struct strv *notes);
char *needs_reason(const struct needs *n); /* all that is missing, one paragraph; owned by caller */
char *needs_hint(const struct needs *n,
		 const char *then); /* what to do; `then`: a command for afterwards, NULL */
