/*
 * Bytes from one socket to the other, both ways.
 *
 * Theory of operation. One 256 KiB buffer serves every connection of the process: a read goes into it and is
 * written to the other side at once. Only what the other side does not take is copied into a private buffer
 * of that direction, and while that is not empty its source is not read. So an idle connection owns no buffer
 * at all, and a slow receiver holds at most one bufferful. When all private buffers together are over
 * RELAY_KEPT, reads become small: thousands of receivers that take nothing cost little more than that.
 * (Measured: splice() through default pipes is slower than this, and costs four more descriptors.)
 *
 * An end of file is passed on as one (shutdown of the other side's write direction) after everything before
 * it was written; the other direction goes on. A reset, or an error, is passed on as a reset. A side that
 * refuses our bytes may still have sent some: those are delivered first.
 *
 * A tap sees the bytes of one direction instead of the other side, until it is taken out; it pushes what may
 * pass.
 */
#pragma once
#include "base/loop.h"
#include <stddef.h>
#include <stdint.h>

#define RELAY_BUFFER (256u << 10)
#define RELAY_KEPT   (32u << 20)
#define RELAY_SMALL  (16u << 10)

struct relay;
/* len 0: end of file. The tap consumes everything and may change it. False: it ended the connection, which
 * may be freed. */
typedef bool relay_tap_fn(struct relay *r, char *data, size_t len);
/* Both directions ended, or one failed: the fds are closed already. Frees what contains the relay. */
typedef void relay_done_fn(struct relay *r);
/* Side i said all it had to say, and that was passed on; the other side may still speak. */
typedef void relay_ended_fn(struct relay *r, int i);

struct relay_half { /* half[i] carries bytes from io[i] to io[1 - i] */
	relay_tap_fn *tap;
	char *buf; /* private buffer, while the receiver is blocked */
	uint32_t off, len;
	bool eof;    /* nothing more will be read or pushed */
	bool shut;   /* and that was passed on */
	bool broken; /* the receiver takes nothing any more */
};
struct relay {
	struct loop_io io[2];
	struct relay_half half[2];
	uint64_t *count[2]; /* where the bytes of each direction are added up */
	relay_done_fn *done;
	relay_ended_fn *ended; /* or NULL */
	bool moved;            /* bytes went since somebody set this to false */
};

/* Owns both fds (non-blocking). The io watchers must be zero, or of the same fds. Reading starts with the next
 * loop iteration. */
void relay_start(struct relay *r, struct loop *l, int fd0, int fd1, relay_done_fn *done);
/* Sends bytes that came from side i. False: that ended the connection. */
bool relay_push(struct relay *r, int i, const void *data, size_t len);
/* No more bytes from side i: passed on when everything pushed is written. False as above. */
bool relay_finish(struct relay *r, int i);
/* Closes both sides now and calls done. */
void relay_close(struct relay *r, bool reset);
/* Same without done. For owners that take a relay down themselves. */
void relay_abort(struct relay *r, bool reset);

void fd_close_reset(int fd); /* close so that the peer gets a RST */
