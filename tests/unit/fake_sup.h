/*
 * A supervisor without apps, for the tests of the control API: the functions of sup.h that src/ctl calls.
 * App names choose what happens: "notes" (all well), "slow" (a command is done after 50 ms), "never" (never
 * done), "bad" (fails). A signal sent to "notes" makes things happen: USR1 logs three lines, USR2 emits an
 * event, HUP takes the log away (as the removal of an app does), URG logs 4 MiB, PIPE emits 4 MiB of events.
 */
#pragma once
#include "sup/sup.h"

struct sup *fake_sup_create(struct loop *l, const char *dir);
void fake_sup_destroy(struct sup *s);
