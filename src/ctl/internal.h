/* Shared by the files of src/ctl only. */
#pragma once
#include "base/json.h"
#include "base/loop.h"
#include "base/str.h"
#include "ctl/ctl.h"
#include "ctl/route.h"
#include <microhttpd.h>
#include <sys/stat.h>
#include <sys/types.h>

#define CTL_CONNECTIONS_MAX 64
/* Streams may not take every connection: `sbxsv down` has to get through. */
#define CTL_STREAMS_MAX 48
#define CTL_BEHIND_MAX  (1u << 20)
#define CTL_IDLE_S      30u

struct ctl {
	struct loop *loop;
	struct sup *sup;
	void (*on_shutdown)(void *data, int64_t grace_ms);
	void *data;

	char *path;
	dev_t dev; /* of the bound socket, so that only our own is removed at the end */
	ino_t ino;
	int listen_fd;
	struct loop_io accept_io;
	struct loop_timer accept_retry; /* out of file descriptors: the socket is left alone for a moment */

	struct join *join;

	struct MHD_Daemon *mhd;
	struct loop_io mhd_io;
	struct loop_timer mhd_timer;
	struct loop_defer mhd_run;
	bool in_run;
	struct loop_defer shutdown; /* asked for by a request whose reply is out */
	int64_t grace_ms;

	struct request *requests; /* all that exist */
	unsigned connections, streams;
	uint64_t refused, cut, serial;
	int64_t accept_logged_ms, refused_logged_ms; /* monotonic; 0: never */
	char started[32];
};

/* One request on its way, from the request line to the end of the reply. Lives as long as MHD's view of it.
 */
struct op;
struct stream;
struct request {
	struct ctl *ctl;
	struct request *next, *prev;
	struct MHD_Connection *conn;
	char *target;
	struct strbuf body;
	enum { REQ_NEW, REQ_BODY, REQ_WAITING, REQ_ANSWERED } phase;
	bool too_large, suspended;
	struct ctl_call call;
	struct stream *stream;
	struct op *op;      /* a command that is not done yet */
	struct js *result;  /* of a command that was waited for */
	struct loop_io hup; /* while suspended: does the client go away? */
	bool client_gone;
	bool shutdown; /* when the reply is out */
};

/* Suspends the connection and watches for the client going away meanwhile. Inside an MHD callback only. */
void req_suspend(struct request *r);
/* The opposite; harmless when it is not suspended. */
void req_resume(struct request *r);
/* Ends the connection whatever state it is in. */
void req_cut(struct request *r);
/* Owns `body`. */
enum MHD_Result req_reply(struct request *r, unsigned status, struct js *body);
enum MHD_Result req_error(struct request *r, unsigned status, int code, const char *text);
/* Runs MHD soon: after a resume or a cut that did not come from one of its callbacks. */
void ctl_kick(struct ctl *c);

/* answer.c: the request is complete and valid */
enum MHD_Result answer(struct request *r);
enum MHD_Result answer_waited(struct request *r); /* after req_resume() */
void answer_detach(struct request *r);            /* the request goes away before its command is done */

/* join.c: instances of stdio apps */
struct join;
struct join *join_create(struct loop *l, struct sup *s, const char *runtime, struct err **e);
void join_destroy(struct join *j);
struct js *join_save(struct keep *k, const struct join *j);
struct join *join_restore(struct loop *l, struct sup *s, struct keep *k, const struct js *o);

/* stream.c */
enum MHD_Result stream_logs(struct request *r);
enum MHD_Result stream_events(struct request *r);
void stream_detach(struct stream *s); /* its request goes away; NULL is fine */
