/*
 * Seeing what a jail refuses: the calls of one jail that its listener passes on (sandbox/audit.h), looked at and let go.
 * Nothing is refused, changed or delayed on purpose here; it is an observer, never a security boundary: a program may change
 * the path in its memory after it was read, and gets no more by that than by asking for the other path at once.
 *
 * Theory of operation. At most two threads a jail, so that the loop never waits for an app, an app never for the loop, and no app for
 * another.
 *
 *   ear     takes a call, copies what is in the memory of the program (path, sockaddr) and where relative paths begin, lets
 *           the call go on, and puts a record into a buffer. It looks at no file system, so it cannot hang. (ear.c)
 *   judge   takes what has come in, a batch at a time, and finds out whether the jail refused it: is it there on the host,
 *           could the app's user have it there, and what does the plan say of it? All of these yes, yes, no: a refusal. A
 *           path that is not on the host either is noise, and so is one that the host's permissions refuse. Looking up a path
 *           may take for ever (a dead network file system): then this app's refusals are lost and counted, and that is all.
 *           (look.c)
 *
 * Both go when there was nothing for some seconds. Then the loop waits for the next call, and an ear comes; when that has
 * something to judge, a judge comes. An idle app has no thread, and no more than a page or two. (One ear for all jails would not
 * do: reading the memory of a program may take for ever too, when it maps a file of a dead file system.) A judge that never
 * comes back stays until the process ends; when there are JUDGES_MAX, refusals are lost and counted as above.
 * Neither allocates memory nor logs: a launch copies this process in the middle of whatever they do. What the judge found lies in a small table, each kind once with its count, and an eventfd wakes
 * the loop, at most ten times a second, to take the table. When everything is full the ear waits for the judge (and so the app
 * for both: a flood is slowed, not lost); when that takes a second, it goes on and counts.
 *
 * If the supervisor is killed, the jail is (its init has a parent-death signal); until then init's duplicate of the listener
 * keeps calls waiting. If it is stopped, calls wait until it goes on.
 */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "base/keep.h"
#include "base/loop.h"
#include <stdint.h>
#include <sys/types.h>

enum observed {
	OBSERVED_READ,
	OBSERVED_WRITE,
	OBSERVED_EXEC,
	OBSERVED_UNIX,
	OBSERVED_CONNECT,
	OBSERVED_RESOLVE,
	OBSERVED_LOCAL /* a connect to loopback, where nobody of the jail listens, and somebody of the host does */
};
#define OBSERVED_RULE_EGRESS "Egress=off"
#define OBSERVED_RULE_LOCAL  "no Loopback= names it"
const char *observed_name(enum observed o); /* "file-read", as in events */
/* Two events of the same refusal, to be counted as one: whoever did it, and however often. */
bool observed_same(const struct js *a, const struct js *b);

/* What the plan of the jail says of a path. */
enum {
	OBSERVER_SEES = 1,
	OBSERVER_WRITES = 2,
	OBSERVER_WAY = 4 /* a directory that is there, and shows nothing */
};
struct observer_config {
	int listener, root;  /* taken over; root: O_PATH, of the jail */
	int mntns;           /* taken over: keeps the mounts until all is judged */
	int diag;            /* taken over: of the jail's network, for `listens` */
	const char *app;     /* its name in events and hints; copied */
	bool command;        /* not an app but a command of `sbxsv exec`: hints are options of that */
	const char *program; /* its own start, which is no news; copied */
	uid_t uid;           /* of the app, when it is not ours; else (uid_t)-1 */
	gid_t gid;
	bool network_off; /* Egress=off: nobody else sees what it connects to */
	/* `judge` is the observer's until `gone` is called. decide: from the judge's thread; no allocation, no system call.
	 * words: rule and hint of a refusal, owned by the observer; op counts like sandbox/judge.h. */
	void *judge;
	unsigned (*decide)(const void *judge, const char *path);
	void (*words)(const void *judge, const char *app, unsigned op, const char *path, bool exists,
		      bool dir, char **ret_rule, char **ret_hint);
	void (*gone)(void *judge);
	/* From the ear's thread, while the program waits: does somebody listen on this port of loopback, where the socket was made?
	 * host_diag: one made on the host, the observer's; -1. */
	bool (*listens)(int diag, uint16_t port);
	int (*host_diag)(struct err **e);
	/* From the loop. event: one of the format of doc/design.md, without seq and timestamp; the hook's. */
	void (*event)(void *data, struct js *event);
	/* A port of the host's loopback was refused. What would allow it, owned by caller; NULL: it is the app's own, of which nothing
	 * is said. */
	char *(*local)(void *data, uint16_t port);
	void (*lost)(void *data, uint64_t n); /* so many calls were not judged */
	void *data;
};
struct observer;
struct observer *observer_create(struct loop *l, const struct observer_config *c, struct err **e);
/* Every process of the jail is dead. True: everything was told. False: `drained` is called from the loop when it was, or after
 * 100 ms. */
bool observer_drain(struct observer *o, void (*drained)(void *data));
/* Stays the observer's. */
int observer_listener(const struct observer *o);
/* Who of the jail connected last to host:port (port 0: asked for a name), as far as a name can be told from the address it
 * went to: the last that went to this address, or to this port, or anywhere. -1: nobody. */
int observer_who(struct observer *o, const char *host, uint16_t port, pid_t *ret_pid, char *command,
		 size_t cap);
/* No hook but `gone` is called afterwards: now, when its threads end within `wait_ms`, or else from the loop when they do. One
 * that hangs for ever is left behind. */
void observer_destroy(struct observer *o, unsigned wait_ms);
/* Before the loop is destroyed: the threads of all that were destroyed end, and `gone` is called, within `wait_ms` together; one
 * that hangs is left to the end of the process. */
void observer_finish(unsigned wait_ms);

/*
 * Across an exec of the supervisor (base/keep.h) calls wait in the listener, which stays. Threads do not survive an exec, and
 * a call that one of them has taken and not let go would wait for ever: so all is frozen first, each call let go and what came
 * judged and told. False: a thread does not come to its end within `wait_ms`. thaw: goes on, also after that.
 */
bool observer_freeze(struct observer *o, unsigned wait_ms);
void observer_thaw(struct observer *o);
const void *observer_judge(const struct observer *o);
struct js *observer_save(struct keep *k, const struct observer *o);
/* Fills listener, root, mntns, diag and network_off. */
void observer_config_restore(struct keep *k, const struct js *j, struct observer_config *ret);
