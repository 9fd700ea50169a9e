#include "sup/states.h"

/* clang-format off */
#define STOPPED   APP_STOPPED
#define IDLE      APP_IDLE
#define WAITING   APP_WAITING
#define STARTING  APP_STARTING
#define RUNNING   APP_RUNNING
#define UNHEALTHY APP_UNHEALTHY
#define STOPPING  APP_STOPPING
#define BACKOFF   APP_BACKOFF
#define FAILED    APP_FAILED
#define TO(next, action) { true, next, ACT_##action }
#define X                { false, APP_STOPPED, ACT_NONE }

/* The whole life of an app. Rows are the state it is in, columns what happens. */
static const struct state_step table[APP_STATE_MAX][EV_MAX] = {
/*               START                 STOP                   RESTART                REMOVE                 */
/*               HELD                  UP                     READY                  LATE                   */
/*               REFUSED               SHORT                  DOWN                   NOW                    */
/*               AGAIN                 GIVEUP                 DUE                    TIMEOUT                */
/*               SICK                  HUNG                   JOIN                   BLOCKED                */
/*               CLEAR                 IDLE                   WAKE                   UNUSED                 */
/*               RESTED                                                                                     */
[STOPPED]   = {  TO(STARTING, BEGIN),  TO(STOPPED, NONE),     TO(STARTING, BEGIN),   TO(STOPPED, FORGET),
                 X,                    X,                     X,                     X,
                 X,                    X,                     X,                     X,
                 X,                    X,                     X,                     X,
                 X,                    X,                     TO(RUNNING, NONE),     X,
                 X,                    TO(IDLE, HOLD),        X,                     X,
                 X },
[IDLE]      = {  TO(STARTING, WAKE),   TO(STOPPED, CALM),     TO(STARTING, WAKE),    TO(STOPPED, FORGET),
                 TO(IDLE, HELD),       X,                     X,                     X,
                 TO(FAILED, REST),     TO(IDLE, HOLD_LATER),  TO(STOPPED, REST),     X,
                 X,                    X,                     TO(IDLE, HOLD),        X,
                 X,                    X,                     X,                     TO(IDLE, HELD),
                 X,                    TO(IDLE, HOLD),        TO(STARTING, WAKE),    X,
                 X },
[WAITING]   = {  TO(STARTING, BEGIN),  TO(STOPPED, CALM),     TO(STARTING, BEGIN),   TO(STOPPED, FORGET),
                 X,                    X,                     X,                     X,
                 X,                    X,                     X,                     X,
                 X,                    X,                     X,                     X,
                 X,                    X,                     X,                     X,
                 TO(STARTING, LAUNCH), TO(WAITING, NONE),     X,                     X,
                 X },
[STARTING]  = {  TO(STARTING, NONE),   TO(STOPPING, STOP),    TO(STOPPING, AGAIN),   TO(STOPPING, REMOVE),
                 TO(STARTING, LAUNCH), TO(STARTING, ATTACH),  TO(RUNNING, READY),    TO(STOPPING, LATE),
                 TO(FAILED, REST),     TO(BACKOFF, WAIT),     TO(STOPPED, REST),     X,
                 TO(BACKOFF, WAIT),    TO(FAILED, REST),      X,                     X,
                 X,                    X,                     X,                     TO(WAITING, BLOCKED),
                 X,                    TO(STARTING, NONE),    X,                     X,
                 X },
[RUNNING]   = {  TO(RUNNING, NONE),    TO(STOPPING, STOP),    TO(STOPPING, AGAIN),   TO(STOPPING, REMOVE),
                 X,                    X,                     X,                     X,
                 X,                    X,                     TO(STOPPED, REST),     X,
                 TO(BACKOFF, WAIT),    TO(FAILED, REST),      X,                     X,
                 TO(UNHEALTHY, NONE),  TO(STOPPING, HUNG),    X,                     X,
                 X,                    TO(RUNNING, NONE),     X,                     TO(STOPPING, UNUSED),
                 TO(IDLE, RESTED) },
[UNHEALTHY] = {  TO(UNHEALTHY, NONE),  TO(STOPPING, STOP),    TO(STOPPING, AGAIN),   TO(STOPPING, REMOVE),
                 X,                    X,                     TO(RUNNING, READY),    X,
                 X,                    X,                     TO(STOPPED, REST),     X,
                 TO(BACKOFF, WAIT),    TO(FAILED, REST),      X,                     X,
                 TO(UNHEALTHY, NONE),  TO(STOPPING, HUNG),    X,                     X,
                 X,                    TO(UNHEALTHY, NONE),   X,                     TO(STOPPING, UNUSED),
                 TO(IDLE, RESTED) },
[STOPPING]  = {  TO(STOPPING, TO_AGAIN), TO(STOPPING, TO_STAY), TO(STOPPING, TO_AGAIN), TO(STOPPING, TO_FORGET),
                 X,                    X,                     X,                     X,
                 X,                    X,                     TO(STOPPED, REST),     TO(STARTING, BEGIN),
                 TO(BACKOFF, WAIT),    TO(FAILED, REST),      X,                     TO(STOPPING, KILL),
                 X,                    X,                     X,                     X,
                 X,                    TO(STOPPING, TO_IDLE), X,                     X,
                 TO(IDLE, RESTED) },
[BACKOFF]   = {  TO(STARTING, BEGIN),  TO(STOPPED, CALM),     TO(STARTING, BEGIN),   TO(STOPPED, FORGET),
                 X,                    X,                     X,                     X,
                 X,                    X,                     X,                     X,
                 X,                    X,                     TO(STARTING, BEGIN),   X,
                 X,                    X,                     X,                     X,
                 X,                    TO(STARTING, BEGIN),   X,                     X,
                 X },
[FAILED]    = {  TO(STARTING, BEGIN),  TO(STOPPED, CALM),     TO(STARTING, BEGIN),   TO(STOPPED, FORGET),
                 X,                    X,                     X,                     X,
                 X,                    X,                     X,                     X,
                 X,                    X,                     X,                     X,
                 X,                    X,                     TO(RUNNING, NONE),     X,
                 X,                    TO(IDLE, HOLD),        X,                     X,
                 X },
};
/* clang-format on */

struct state_step state_step(enum app_state s, enum app_event e)
{
	if ((unsigned)s >= APP_STATE_MAX || (unsigned)e >= EV_MAX)
		return (struct state_step)X;
	return table[s][e];
}

static const char *const state_names[] = {"stopped",   "idle",     "waiting", "starting", "running",
					  "unhealthy", "stopping", "backoff", "failed"};
_Static_assert(ELEMENTS(state_names) == APP_STATE_MAX, "a name for each state");

static const char *const event_names[] = {"start", "stop",   "restart", "remove", "held", "up",
					  "ready", "late",   "refused", "short",  "down", "now",
					  "again", "giveup", "due",     "timeout", "sick",    "hung",   "join",
					  "blocked", "clear",
					  "idle",  "wake",   "unused",  "rested"};
_Static_assert(ELEMENTS(event_names) == EV_MAX, "a name for each event");

static const char *const action_names[] = {"none",  "begin", "launch", "attach",  "ready",    "stop",
					   "again", "late",  "hung",   "remove", "to-stay", "to-again", "to-forget",
					   "kill",  "wait",  "rest",   "blocked", "calm",    "forget",
					   "hold",  "held",  "hold-later", "wake", "unused", "to-idle", "rested"};
_Static_assert(ELEMENTS(action_names) == ACT_MAX, "a name for each action");

const char *app_state_name(enum app_state s)
{
	return (unsigned)s < APP_STATE_MAX ? state_names[s] : "?";
}

const char *app_event_name(enum app_event e)
{
	return (unsigned)e < EV_MAX ? event_names[e] : "?";
}

const char *app_action_name(enum app_action a)
{
	return (unsigned)a < ACT_MAX ? action_names[a] : "?";
}
