/*
 * Lines to the machine's own log: syslog(3)'s socket, or the journal's. Datagrams, never waited for.
 *
 * Theory of operation. Lines go into a bounded queue, and from there to the socket as fast as it takes them:
 * when it is full the loop says when there is room, when nobody listens it is tried again every second. What
 * does not fit into the queue is lost in whole lines and counted, and a line that says so follows at that
 * place in the order.
 *
 * syslog: "<PRI>Mmm dd hh:mm:ss sbxsv/APP: text", the form of RFC 3164 that syslog(3) writes and every daemon
 * on /dev/log reads; RFC 5424 is not, by several of them. Control bytes are escaped, and a line longer than
 * SINK_PIECE becomes several messages, because daemons cut them there or soon after. The app's name never
 * stands alone: a unit named sshd must not write lines that look like those of sshd.
 *
 * journal: the native protocol (systemd's docs/JOURNAL_NATIVE_PROTOCOL.md), bytes as they are; a message too
 * large for a datagram goes as a sealed memfd.
 */
#pragma once
#include "base/linefile.h"
#include "base/loop.h"

#define SINK_QUEUE (512u << 10)
#define SINK_PIECE 4096u /* rsyslog takes 8 KiB a message unless told otherwise ($MaxMessageSize) */

enum sink_kind { SINK_SYSLOG, SINK_JOURNAL };
struct sink;
/* path NULL: the machine's socket. Hooks as those of a linefile. */
struct sink *sink_create(struct loop *l, enum sink_kind kind, const char *app, const char *path,
			 const struct linefile_hooks *h);
void sink_destroy(struct sink *s); /* sends what goes without waiting; NULL is fine */
void sink_close(struct sink *s);   /* the same, and what did not go is counted: for its last numbers */
/* `text` is whole lines. -1: some were dropped (and counted). */
int sink_write(struct sink *s, const char *text, size_t len);
bool sink_losing(const struct sink *s); /* nobody listens, or lines were lost just now */
uint64_t sink_dropped_lines(const struct sink *s);
uint64_t sink_dropped_bytes(const struct sink *s);
const char *sink_error(const struct sink *s); /* "/dev/log: No such file or directory"; NULL */
/* Across an exec of the supervisor, base/keep.h. */
struct js *sink_save(struct keep *k, const struct sink *s);
void sink_restore(struct keep *k, const struct js *o, struct sink *s);
