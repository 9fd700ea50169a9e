/* One unit as the supervisor would see it: its plan and its rules, without a supervisor. */
#pragma once
#include "cli/cli.h"
#include "sandbox/plan.h"

/* Loads the app, or complains and returns NULL with *ret_code. */
struct unit *subject_load(const struct cli *c, const char *app, int *ret_code);
bool subject_exists(const struct cli *c, const char *app); /* it, or the template it is an instance of */
char *subject_none(const struct cli *c, const char *app); /* that there is none, and which may be meant */
int subject_complain(const struct cli *c, const char *app);  /* the same, said; returns CLI_NO_APP */
/* The plan of its jail. `scan`: all units, when the caller has read them already, or NULL. NULL with the
 * problems added. */
struct plan *subject_plan(const struct cli *c, const struct unit *u, const struct unit_scan *scan,
			  struct unit_problems *p);
/* reaches_out: rules given at run time open a network that the unit leaves shut. */
struct plan *subject_plan_with(const struct cli *c, const struct unit *u, const struct unit_scan *scan,
			       bool reaches_out, struct unit_problems *p);
