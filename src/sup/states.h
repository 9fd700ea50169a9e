/*
 * The life of an app as a table: state x event -> next state and action. Pure: no I/O, no clock, no app.
 *
 * What may happen in each state:
 *   stopped    nothing runs and nothing is planned; ports are held and reset
 *   idle       (session apps) ports are held, nothing runs, the first connection starts the app
 *   waiting    ports are held, and it starts when the apps it comes after are ready: After=, Requires=
 *   starting   ports are being taken, the jail is being built, or the program runs and is not ready yet
 *   running    the program is ready
 *   unhealthy  as running, but health checks fail; so many in a row, and it is replaced
 *   stopping   the program was told to end, or it is being killed because it did not get ready; what comes
 *              after was noted when the stop began, and an exit here never restarts by the restart policy
 *   backoff    nothing runs, the next start is planned
 *   failed     nothing runs, and only a person or a changed unit starts it again
 */
#pragma once
#include "sup/sup.h"

enum app_event {
	EV_START,   /* a person, the boot or a changed unit wants it to run */
	EV_STOP,    /* a person or the shutdown wants it to end */
	EV_RESTART, /* a person or a changed unit wants a new process */
	EV_REMOVE,  /* the unit file is gone */
	EV_HELD,    /* its ports are ours */
	EV_UP,      /* the jail stands and the program is executed */
	EV_READY,   /* and does its work */
	EV_LATE,    /* not ready within Ready Timeout= */
	EV_REFUSED, /* cannot be started as written */
	EV_SHORT,   /* cannot be started now: the machine is short of something */
	EV_DOWN,    /* nothing of it runs any more, and that is how it stays */
	EV_NOW,     /* ... start it again at once */
	EV_AGAIN,   /* ... start it again after a delay */
	EV_GIVEUP,  /* ... it failed for good */
	EV_DUE,     /* the delay is over */
	EV_TIMEOUT, /* Stop Timeout= is over */
	EV_SICK,    /* it runs, but a health check failed */
	EV_HUNG,    /* it runs, but it has to be replaced: the watchdog, or too many failed checks */
	EV_JOIN,    /* a client has started the first instance of a stdio app; DOWN when the last one ended */
	EV_BLOCKED, /* its ports are ours, but an app that it comes after is not ready */
	EV_CLEAR,   /* now it is */
	EV_IDLE,    /* a request: a session app is to be there for its first client */
	EV_WAKE,    /* a client waits at a port of an idle app */
	EV_UNUSED,  /* a session app has had no client for IdleTimeout=, and new ones wait */
	EV_RESTED,  /* nothing of it runs any more, and the next client starts it */
	EV_MAX
};

enum app_action {
	ACT_NONE,   /* nothing; a command that waited for this state is answered */
	ACT_BEGIN,  /* take the newest definition, take the ports: HELD, REFUSED or SHORT follows */
	ACT_LAUNCH, /* build the jail: UP, REFUSED or SHORT follows */
	ACT_ATTACH, /* network and readiness: READY or LATE follows */
	ACT_READY,  /* open the gate */
	ACT_STOP,   /* tell it to end, stay down: DOWN follows, at once when nothing runs yet */
	ACT_AGAIN,  /* tell it to end, then start it again: NOW follows */
	ACT_LATE,   /* tell it to end, then retry as the restart policy says: AGAIN or GIVEUP follows */
	ACT_HUNG,   /* likewise, of one that was ready */
	ACT_REMOVE, /* tell it to end, then forget it: DOWN follows */
	ACT_TO_STAY,
	ACT_TO_AGAIN,
	ACT_TO_FORGET, /* it is ending already: only what comes after changes */
	ACT_KILL,      /* SIGKILL */
	ACT_WAIT,      /* plan the next start: DUE follows */
	ACT_REST,      /* tidy up after the last process */
	ACT_BLOCKED,   /* other apps come first: CLEAR follows */
	ACT_CALM,      /* nothing runs, by a person's wish: the reason of the failure is forgotten */
	ACT_FORGET,    /* nothing runs: forget it now */
	ACT_HOLD,       /* session apps: newest definition, ports, no process: HELD, REFUSED or SHORT follows */
	ACT_HELD,       /* they are ours: clients may come */
	ACT_HOLD_LATER, /* they could not be had for now: DUE follows */
	ACT_WAKE,       /* from idle to a start: as BEGIN */
	ACT_UNUSED,     /* tell it to end, then wait for the next client: RESTED follows */
	ACT_TO_IDLE,
	ACT_RESTED, /* tidy up after the last process, and look at what its unit has become */
	ACT_MAX
};

struct state_step {
	bool valid; /* false: the event means nothing here and is dropped (logged at debug) */
	enum app_state next;
	enum app_action action;
};
struct state_step state_step(enum app_state s, enum app_event e);
const char *app_event_name(enum app_event e);
const char *app_action_name(enum app_action a);
/* Events of persons and files; all others belong to one attempt to run the app and are void in a later one.
 */
static inline bool app_event_is_request(enum app_event e)
{
	return e <= EV_REMOVE || e == EV_IDLE;
}
