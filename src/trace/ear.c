/* The thread that takes calls and lets them go. See observer.h. */
#include "trace/observer_internal.h"
#include "base/cleanup.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

/* include/uapi/linux/seccomp.h, kernel 6.6: the two sides take turns on one processor */
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
enum { FD_SYNC_WAKE_UP = 1 };
enum { PAGE = 4096, FIRST_READ = 256 };

/* --- the memory of the program --- */

static ssize_t read_memory(pid_t tid, uint64_t address, void *to, size_t n)
{
	struct iovec here = {to, n}, there = {(void *)(uintptr_t)address, n};

	return process_vm_readv(tid, &here, 1, &there, 1, 0);
}

/* A string of at most PATH_MAX - 1 bytes. Its length, or -1: there is none, or a longer one, which is no path. Pieces end at
 * page borders: the next page may not be there. */
static ssize_t read_string(pid_t tid, uint64_t address, char *to)
{
	size_t got = 0;

	while (got < PATH_MAX) {
		uint64_t at = address + got;
		size_t n = PAGE - (at & (PAGE - 1));
		const char *end;
		ssize_t r;

		if (got == 0 && n > FIRST_READ)
			n = FIRST_READ;
		if (n > PATH_MAX - got)
			n = PATH_MAX - got;
		r = read_memory(tid, at, to + got, n);
		if (r <= 0)
			return -1;
		end = memchr(to + got, 0, (size_t)r);
		if (end)
			return end - to;
		got += (size_t)r;
	}
	return -1;
}

/* --- /proc: text about a task; no file system but this one is touched --- */

static char *put(char *p, const char *text)
{
	size_t n = strlen(text);

	memcpy(p, text, n + 1);
	return p + n;
}

static char *put_number(char *p, unsigned n)
{
	char digits[12];
	int i = 0;

	do
		digits[i++] = (char)('0' + n % 10);
	while (n /= 10);
	while (i)
		*p++ = digits[--i];
	*p = 0;
	return p;
}

static void proc_path(char buf[64], pid_t tid, const char *rest, int fd)
{
	char *p = put(put_number(put(buf, "/proc/"), (unsigned)tid), rest);

	if (fd >= 0)
		(void)put_number(p, (unsigned)fd);
}

/* Where a relative path begins. */
static ssize_t read_base(pid_t tid, int dirfd, char *to)
{
	char path[64];
	ssize_t n;

	if (dirfd != AT_FDCWD && dirfd < 0)
		return -1;
	proc_path(path, tid, dirfd == AT_FDCWD ? "/cwd" : "/fd/", dirfd == AT_FDCWD ? -1 : dirfd);
	n = readlink(path, to, PATH_MAX - 1);
	if (n <= 0 || to[0] != '/') /* a pipe, a socket */
		return -1;
	to[n] = 0;
	return n;
}

static ssize_t read_proc(pid_t tid, const char *rest, char *buf, size_t cap)
{
	char path[64];
	int fd;
	ssize_t n;

	proc_path(path, tid, rest, -1);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, buf, cap - 1);
	(void)close(fd);
	if (n < 0)
		return -1;
	buf[n] = 0;
	return n;
}

/* Most are the first thread of a process, and only of such one can have a descriptor (pidfd_open(2)): that is asked for a
 * tenth of what the text costs. */
static pid_t process_of(pid_t tid)
{
	int pidfd = (int)syscall(SYS_pidfd_open, tid, 0);
	char buf[256];
	const char *p;
	unsigned n = 0;

	if (pidfd >= 0) {
		(void)close(pidfd);
		return tid;
	}
	if (read_proc(tid, "/status", buf, sizeof buf) < 0)
		return tid;
	p = strstr(buf, "\nTgid:\t"); /* a name has its newlines escaped there */
	for (p = p ? p + 7 : ""; *p >= '0' && *p <= '9'; p++)
		n = n * 10 + (unsigned)(*p - '0');
	return n ? (pid_t)n : tid;
}

static const struct known_task *task_of(struct observer *o, pid_t tid)
{
	struct known_task *t = &o->tasks[(unsigned)tid % KNOWN_TASKS];
	int64_t now = observer_now_ms();
	ssize_t n;

	if (t->tid == tid && now < t->until_ms)
		return t;
	*t = (struct known_task){.tid = tid, .pid = process_of(tid), .until_ms = now + KNOWN_MS};
	n = read_proc(t->pid, "/comm", t->comm, sizeof t->comm);
	if (n > 0 && t->comm[n - 1] == '\n')
		t->comm[n - 1] = 0;
	return t;
}

/* --- records --- */

static void finish_record(struct record *r, struct observer *o, pid_t tid)
{
	const struct known_task *t = task_of(o, tid);
	size_t n = sizeof *r + r->base_len + 1u + r->path_len + 1u;

	r->pid = t->pid;
	memcpy(r->comm, t->comm, sizeof r->comm);
	r->size = (uint32_t)((n + 7) & ~(size_t)7);
	memset((char *)r + n, 0, r->size - n); /* records are compared */
}

/* The path at `address`, behind the base it needs. */
static bool hear_path(pid_t tid, const struct call *c, struct record *r)
{
	char *text = (char *)(r + 1);
	/* the path is read first, a byte behind where it goes when there is no base */
	ssize_t n = read_string(tid, c->path, text + 1), base = 0;

	if (n <= 0)
		return false;
	if (text[1] != '/') {
		memmove(text + PATH_MAX, text + 1, (size_t)n + 1);
		base = read_base(tid, c->dirfd, text);
		if (base < 0)
			return false;
		memmove(text + base + 1, text + PATH_MAX, (size_t)n + 1);
	}
	text[base] = 0;
	r->base_len = (uint16_t)base;
	r->path_len = (uint16_t)n;
	return true;
}

static bool is_stream(pid_t pid, int fd)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), copy, type = 0;
	socklen_t len = sizeof type;

	if (pidfd < 0)
		return false;
	copy = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	(void)close(pidfd);
	if (copy < 0)
		return false;
	if (getsockopt(copy, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
		type = 0;
	(void)close(copy);
	return type == SOCK_STREAM;
}

/* Nobody inside listens on this port of loopback, and somebody outside does: asked while the program waits, for a moment later
 * either may be gone. */
static bool is_kept_from(struct observer *o, uint16_t port)
{
	if (o->c.listens(o->c.diag, port))
		return false;
	if (o->host_diag < 0)
		o->host_diag = o->c.host_diag(NULL);
	return o->host_diag >= 0 && o->c.listens(o->host_diag, port);
}

static bool hear_internet(struct observer *o, pid_t tid, const struct call *c,
			  const struct sockaddr_storage *ss, size_t len, struct record *r)
{
	const struct sockaddr_in *v4 = (const void *)ss;
	const struct sockaddr_in6 *v6 = (const void *)ss;
	bool local;

	if (ss->ss_family == AF_INET && len >= sizeof *v4) {
		r->to = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = v4->sin_port};
		r->to.sin6_addr.s6_addr[10] = r->to.sin6_addr.s6_addr[11] = 0xff;
		memcpy(&r->to.sin6_addr.s6_addr[12], &v4->sin_addr, 4);
	} else if (ss->ss_family == AF_INET6 && len >= sizeof *v6 - sizeof v6->sin6_scope_id) {
		r->to = *v6;
	} else {
		return false;
	}
	local = look_is_loopback(&r->to.sin6_addr);
	if (!o->c.network_off)
		who_connects(o, task_of(o, tid), &r->to);
	if (local ? !is_kept_from(o, ntohs(r->to.sin6_port)) : !o->c.network_off)
		return false;
	r->stream = is_stream(task_of(o, tid)->pid, c->dirfd);
	if (local && !o->c.network_off && !r->stream)
		return false;
	((char *)(r + 1))[0] = ((char *)(r + 1))[1] = 0;
	r->base_len = r->path_len = 0;
	return true;
}

/* A name in the abstract namespace is the jail's own affair. */
static bool hear_connect(struct observer *o, pid_t tid, const struct call *c, struct record *r)
{
	struct sockaddr_storage ss = {0};
	const struct sockaddr_un *un = (const void *)&ss;
	size_t len = c->len < sizeof ss ? (size_t)c->len : sizeof ss, n;
	char *text = (char *)(r + 1);
	ssize_t base = 0;

	if (len < sizeof(sa_family_t) || read_memory(tid, c->path, &ss, len) < (ssize_t)len)
		return false;
	if (ss.ss_family != AF_UNIX)
		return hear_internet(o, tid, c, &ss, len, r);
	n = len > offsetof(struct sockaddr_un, sun_path) ? len - offsetof(struct sockaddr_un, sun_path) : 0;
	n = strnlen(un->sun_path, n < sizeof un->sun_path ? n : sizeof un->sun_path);
	if (n == 0)
		return false;
	if (un->sun_path[0] != '/') {
		base = read_base(tid, AT_FDCWD, text);
		if (base < 0)
			return false;
	}
	text[base] = 0;
	memcpy(text + base + 1, un->sun_path, n);
	text[base + 1 + (ssize_t)n] = 0;
	r->base_len = (uint16_t)base;
	r->path_len = (uint16_t)n;
	return true;
}

static void forget_task(struct observer *o, pid_t tid)
{
	struct known_task *t = &o->tasks[(unsigned)tid % KNOWN_TASKS];

	if (t->tid == tid)
		t->tid = 0;
}

static bool hear(struct observer *o, pid_t tid, const struct call *c, struct record *r)
{
	bool heard;

	memset(r, 0, sizeof *r);
	r->kind = (uint8_t)c->kind;
	r->follow = c->follow;
	r->creates = c->creates;
	heard = c->kind == CALL_CONNECT ? hear_connect(o, tid, c, r) : hear_path(tid, c, r);
	if (heard && c->kind == CALL_EXEC && o->program && strcmp(record_path(r), o->program) == 0)
		heard = false;
	if (heard)
		finish_record(r, o, tid);
	if (c->kind == CALL_EXEC)
		forget_task(o, tid); /* it has another name afterwards */
	return heard;
}

static int decode(const struct seccomp_notif *q, struct call calls[CALL_PATHS_MAX])
{
	uint64_t how[3]; /* struct open_how: flags, mode, resolve */

	if (!call_is_openat2(&q->data))
		return call_decode(&q->data, calls);
	if (read_memory((pid_t)q->pid, q->data.args[2], how, sizeof how) != (ssize_t)sizeof how)
		return 0;
	if (how[2] & 0x10) /* RESOLVE_IN_ROOT: "/" is not the root */
		return 0;
	return call_decode_open(how[0], (int)q->data.args[0], q->data.args[1], calls);
}

/* --- into the buffer --- */

static bool has_room(const struct observer *o, size_t size)
{
	return o->used[o->fill] + size <= BATCH_BYTES;
}

static void wait_for_room(struct observer *o, size_t size)
{
	struct timespec until;

	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ROOM_MS / 1000;
	while (!has_room(o, size) && !o->stopping && !o->deaf) {
		(void)pthread_cond_signal(&o->work);
		if (pthread_cond_timedwait(&o->room, &o->lock, &until) == ETIMEDOUT)
			o->deaf = true; /* until the judge comes back */
	}
}

static void hand_over(struct observer *o, const struct record *r)
{
	bool wake = false;

	(void)pthread_mutex_lock(&o->lock);
	if (!has_room(o, r->size))
		wait_for_room(o, r->size);
	if (has_room(o, r->size)) {
		memcpy(o->buffer[o->fill] + o->used[o->fill], r, r->size);
		o->used[o->fill] += r->size;
	} else {
		o->lost++;
	}
	if (o->asleep || o->used[o->fill] > BATCH_BYTES / 2)
		(void)pthread_cond_signal(&o->work);
	if (o->judge_ended && !o->judge_wanted)
		wake = o->judge_wanted = true;
	(void)pthread_mutex_unlock(&o->lock);
	if (wake)
		observer_ring(o);
}

/* --- life --- */

/* Of a later kernel they may be larger: then it fills more of the first, and reads more of the second, which must be zero.
 * src/sandbox/audit.c has asked that they are not larger than this. */
union notice {
	struct seccomp_notif q;
	struct seccomp_notif_resp a;
	char room[OBSERVER_NOTICE_MAX];
};

static void take_one(struct observer *o)
{
	union notice in, out;
	const struct seccomp_notif *q = &in.q;
	struct call calls[CALL_PATHS_MAX];
	int n, heard = 0;

	memset(&in, 0, sizeof in); /* the kernel wants it so */
	if (ioctl(o->c.listener, SECCOMP_IOCTL_NOTIF_RECV, &in) < 0) {
		if (errno != ENOENT && errno != EINTR) /* killed, or interrupted */
			(void)poll(NULL, 0, 10);       /* cannot happen; if it does, not as fast as we can */
		return;
	}
	atomic_store(&o->listening_to_one, true);
	n = decode(q, calls);
	for (int i = 0; i < n; i++)
		if (hear(o, (pid_t)q->pid, &calls[i], &o->heard[heard].r))
			heard++;
	memset(&out, 0, sizeof out);
	out.a.id = q->id;
	out.a.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	/* an answer that is taken says that it was this process all the time, and not a later one with its number */
	if (ioctl(o->c.listener, SECCOMP_IOCTL_NOTIF_SEND, &out) == 0)
		for (int i = 0; i < heard; i++)
			hand_over(o, &o->heard[i].r);
	atomic_store(&o->listening_to_one, false);
}

void *ear_main(void *observer)
{
	struct observer *o = observer;
	struct pollfd p[2] = {{.fd = o->c.listener, .events = POLLIN}, {.fd = o->stop, .events = POLLIN}};
	bool idle = false;

	o->host_diag = -1;
	(void)ioctl(o->c.listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, (uint64_t)FD_SYNC_WAKE_UP);
	while (!idle) {
		int n = poll(p, 2, EAR_IDLE_MS);

		if (n < 0)
			continue;
		idle = n == 0;
		if (p[1].revents)
			break;
		if (p[0].revents & POLLIN)
			take_one(o);
		else if (p[0].revents)
			break; /* POLLHUP: nobody of the jail is left */
	}
	if (o->host_diag >= 0)
		(void)close(o->host_diag);
	(void)pthread_mutex_lock(&o->lock);
	o->ear_ended = true;
	o->ear_idle = idle;
	(void)pthread_mutex_unlock(&o->lock);
	observer_ring(o);
	return NULL;
}
