/* Shared by observer.c, threads.c, ear.c and look.c. */
#pragma once
#include "trace/call.h"
#include "trace/observer.h"
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

enum { OBSERVER_NOTICE_MAX = 256 /* the same in src/sandbox/audit.c */ };
enum {
	BATCH_BYTES = 64 << 10,
	FOUND_MAX = 64,
	FOUND_BYTES = 32 << 10,
	NAP_MS = 2,         /* the judge lets calls gather for so long */
	QUIET_MS = 100,     /* without any it sleeps until it is woken */
	IDLE_MS = 3000,     /* and then it ends */
	BELL_MS = 100,      /* the loop is woken at most every so often */
	ROOM_MS = 1000,     /* the ear waits for room for so long */
	EAR_IDLE_MS = 3000, /* without a call it ends, and the loop waits for the next one */
	EAR_RETRY_MS = 50,  /* ... or when no thread is to be had */
	JUDGES_MAX = 128, /* in all observers of the process, those included that a dead file system holds */
	COMM_MAX = 16,    /* TASK_COMM_LEN, include/linux/sched.h */
	CONNECTED_MAX = 64, /* the last that connected are remembered */
	KNOWN_TASKS = 64,   /* whose command is remembered, */
	KNOWN_MS = 1000,    /* for so long */
};

/* One path of one call, in a buffer: the header, the base directory (empty when the path is absolute), the path; both
 * NUL-terminated. */
struct record {
	uint32_t size; /* of all of it, a multiple of 8 */
	uint16_t base_len, path_len;
	uint8_t kind; /* enum call_kind */
	bool follow, creates;
	bool stream; /* CONNECT: a TCP socket */
	pid_t pid;
	char comm[COMM_MAX];
	struct sockaddr_in6 to; /* CONNECT to the internet; v4 mapped; else family 0 */
};
static inline const char *record_base(const struct record *r)
{
	return (const char *)(r + 1);
}
static inline const char *record_path(const struct record *r)
{
	return (const char *)(r + 1) + r->base_len + 1;
}
/* Large enough for any record. */
union scratch {
	struct record r;
	char bytes[sizeof(struct record) + 2 * PATH_MAX + 8];
};

struct known_task {
	pid_t tid, pid;
	int64_t until_ms;
	char comm[COMM_MAX];
};
struct connected {
	struct in6_addr to; /* v4 mapped */
	uint16_t port;
	pid_t pid; /* 0: free */
	char comm[COMM_MAX];
};
struct found {
	enum observed op;
	pid_t pid;
	char comm[COMM_MAX];
	uint32_t path, asked; /* in `text`; asked 0: the same */
	uint16_t port;
	bool exists, dir;
	uint64_t count;
};
struct table {
	struct found v[FOUND_MAX];
	size_t n, used;
	uint64_t lost;
	char text[FOUND_BYTES];
};

struct thread {
	pthread_t id;
	void *stack; /* mapped for it alone */
	bool there;
};

/* In memory of its own (mmap), of which only what is used is there. */
struct observer {
	struct observer *next_leaving; /* destroyed, and a thread of it has not ended yet */
	struct observer_config c;
	struct loop *loop;
	struct loop_io bell_io;
	struct loop_timer drain_timer, ear_timer;
	void (*drained)(void *data);
	char *app, *program;
	int bell, stop;           /* eventfds: to the loop, to the ear */
	struct thread ear, judge; /* the loop's own, as are: */
	bool dead, unheard;       /* unheard: the loop waits for a call (threads.c) */
	bool ear_again;           /* its ear was told to end, and it goes on without (observer_keep.c) */

	int host_diag;                 /* the ear's, while it is there; -1: not asked for yet */
	_Atomic bool listening_to_one; /* between RECV and the record in the buffer */

	pthread_mutex_t lock; /* of all below */
	pthread_cond_t work, room;
	bool stopping, draining, ear_ended, judge_ended;
	bool ear_idle; /* it ended because nothing came */
	bool asleep, busy, deaf, judge_wanted, rung;
	int fill; /* the buffer the ear fills; the judge has the other */
	size_t used[2];
	uint64_t lost;
	struct table *news, *told;
	size_t n_connected; /* ever */

	struct connected connected[CONNECTED_MAX]; /* circular; with the lock */
	/* the ear's; from here on all goes back while there is none, so that an idle app has a page or two */
	struct known_task tasks[KNOWN_TASKS];
	union scratch heard[CALL_PATHS_MAX];
	/* the judge's */
	char real[PATH_MAX], asked[2 * PATH_MAX + 2], work_path[2 * PATH_MAX + 2];
	struct {
		bool valid, refused;
		int64_t until_ms;
		union scratch record;
		struct found found;
		char path[PATH_MAX + 2], asked[2 * PATH_MAX + 2];
	} last;

	struct table tables[2];
	_Alignas(8) char buffer[2][BATCH_BYTES];
};

int64_t observer_now_ms(void);
void observer_ring(struct observer *o); /* the loop */
/* observer.c, for observer_keep.c */
void observer_start_judge(struct observer *o);
void observer_take_news(struct observer *o);

/* --- threads.c --- */
int ear_start(struct observer *o); /* 0, or an errno */
bool judge_start(struct observer *o);
/* False: it did not end within so long. It must have been told to. */
bool ear_join(struct observer *o, unsigned wait_ms);
bool judge_join(struct observer *o, unsigned wait_ms);
/* The loop starts an ear when the next call comes. */
void ear_wait(struct observer *o);
void ear_wait_end(struct observer *o); /* before the listener is closed; fine when it does not wait */

void *ear_main(void *observer);
void *judge_main(void *observer);

/* --- who.c --- */
void who_connects(struct observer *o, const struct known_task *t, const struct sockaddr_in6 *to); /* the ear */
/* True: refused; `f`, o->real and o->asked are filled. In the judge's thread. */
bool look_at(struct observer *o, const struct record *r, struct found *f, bool *ret_asked);
/* O_PATH of a path of the host, absolute and no longer than 2 * PATH_MAX; -1: it is not there, or where looking it up would tell
 * somebody. */
int host_look_up(const char *path, bool follow);
/* v4 mapped; also the address that stands for it, 0.0.0.0 and ::. */
bool look_is_loopback(const struct in6_addr *a);
/* Paths that libraries try by themselves and do without. Pure. */
bool look_is_habit(enum observed op, const char *path);
