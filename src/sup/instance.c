#include "sup/instance.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/log.h"
#include "base/parse.h"
#include "ports/ports.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>

#define RECORD     "run.json"
#define RECORD_MAX (256u << 10)
#define LOCK       "sbxsvd.lock"
/* What a child does between its clone and its exec takes milliseconds. */
#define ORPHAN_LOCK_MS 5000
#define ORPHAN_POLL_MS 5

void instance_record_add(struct instance_record *r, const char *app, pid_t pid, uint64_t start, bool jailed)
{
	VEC_GROW(r->v, r->n, r->cap);
	r->v[r->n++] =
		(struct instance_process){.app = xstrdup(app), .pid = pid, .start = start, .jailed = jailed};
}

void instance_record_finish(struct instance_record *r)
{
	for (size_t i = 0; i < r->n; i++)
		free(r->v[i].app);
	free(r->v);
	free(r->group);
	memset(r, 0, sizeof *r);
}

/* The pid that the lock file names; 0: none. */
static pid_t recorded_holder(int fd)
{
	char text[32] = "";
	uint64_t pid = 0;

	(void)!pread(fd, text, sizeof text - 1, 0);
	text[strcspn(text, "\n")] = 0;
	(void)parse_u64(text, INT32_MAX, &pid);
	return (pid_t)pid;
}

static bool is_gone(pid_t pid)
{
	CLEANUP_FD int fd = pid > 0 ? pidfd_open_pid(pid) : -1;

	return pid > 0 && (fd < 0 || pidfd_is_dead(fd));
}

/*
 * A lock is held as long as anybody has its file open, and a child that was just made has it until it executes. Where the
 * holder was killed in that moment it is only that child, which does not stay.
 */
static int take_lock(int fd)
{
	int64_t until = clk_mono_ms() + ORPHAN_LOCK_MS;

	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		int code = errno;

		if (code != EWOULDBLOCK || !is_gone(recorded_holder(fd)) || clk_mono_ms() >= until) {
			errno = code;
			return -1;
		}
		(void)poll(NULL, 0, ORPHAN_POLL_MS);
	}
	return 0;
}

/* -1 with *e; err_code EWOULDBLOCK and *ret_holder (pid, or 0) when another has it. */
static int lock_in(const char *path, pid_t *ret_holder, struct err **e)
{
	CLEANUP_FD int dir = file_private_dir(path, e);
	CLEANUP_FD int fd = -1;
	char text[32] = "";
	int n;

	if (dir < 0)
		return -1;
	fd = file_open_nofollow(dir, LOCK, O_RDWR | O_CREAT, 0600);
	if (fd < 0)
		return err_sys(e, errno, "%s/%s: cannot open the lock", path, LOCK);
	if (take_lock(fd) < 0) {
		int code = errno;
		pid_t pid = recorded_holder(fd);

		*ret_holder = pid;
		(void)snprintf(text, sizeof text, "%d", (int)pid);
		return err_set(e, code, "another sbxsvd (pid %s) already uses %s", pid ? text : "unknown",
			       path);
	}
	n = snprintf(text, sizeof text, "%d\n", (int)getpid());
	if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n)
		log_warning("%s/%s: cannot write our pid: %s", path, LOCK, strerror(errno));
	return TAKE_FD(fd);
}

int instance_lock(const char *runtime_dir, pid_t *ret_holder, struct err **e)
{
	int fd = lock_in(runtime_dir, ret_holder, e);

	if (fd < 0 && err_code(e ? *e : NULL) == EWOULDBLOCK)
		(void)err_set(e, err_code(*e), "%s; one supervisor a runtime directory, see --instance",
			      err_msg(*e));
	return fd;
}

int instance_lock_state(const char *state_dir, int *ret_fd, struct err **e)
{
	CLEANUP_ERR struct err *why = NULL;
	pid_t holder = 0;

	*ret_fd = lock_in(state_dir, &holder, &why);
	if (*ret_fd >= 0 || err_code(why) != EWOULDBLOCK)
		return 0; /* what else is wrong with the directory is found, and said, where it is used */
	return err_set(e, EWOULDBLOCK,
		       "%s, and cannot be reached: its runtime directory was removed. End it (kill %d), then "
		       "start again",
		       err_msg(why), (int)holder);
}

static void boot_id(char *buf, size_t cap)
{
	int n = file_read_proc("/proc/sys/kernel/random/boot_id", buf, cap);

	if (n < 0)
		n = 0;
	buf[n] = 0;
	buf[strcspn(buf, "\n")] = 0;
}

int instance_write(const char *state_dir, const struct instance_record *r, struct err **e)
{
	CLEANUP_FD int dir = open(state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC), fd = -1;
	CLEANUP_JS struct js *j = js_obj();
	CLEANUP_FREE char *text = NULL;
	struct js *list = js_arr();
	char boot[64];

	boot_id(boot, sizeof boot);
	js_add_str(j, "boot", boot);
	for (size_t i = 0; i < r->n; i++) {
		struct js *p = js_obj();

		if (r->v[i].app)
			js_add_str(p, "app", r->v[i].app);
		js_add_int(p, "pid", r->v[i].pid);
		js_add_int(p, "start", (int64_t)r->v[i].start);
		js_add_bool(p, "jailed", r->v[i].jailed);
		js_push(list, p);
	}
	js_add(j, "processes", list);
	if (r->group)
		js_add_str(j, "group", r->group);
	text = js_print(j);
	if (dir < 0)
		return err_sys(e, errno, "%s", state_dir);
	(void)unlinkat(dir, "." RECORD ".tmp", 0);
	fd = openat(dir, "." RECORD ".tmp", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || fd_write_all(fd, text, strlen(text)) < 0 ||
	    renameat(dir, "." RECORD ".tmp", dir, RECORD) < 0)
		return err_sys(e, errno, "%s/%s: cannot write", state_dir, RECORD);
	return 0;
}

/* NULL without a word: there is none. The machine may have lost power, or somebody may have edited it. */
static struct js *read_record(const char *state_dir)
{
	CLEANUP_FREE char *path = path_join(state_dir, RECORD), *text = NULL;
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_JS struct js *j = NULL;
	size_t len;

	if (file_read(AT_FDCWD, path, RECORD_MAX, &text, &len, &e) < 0) {
		if (err_code(e) != ENOENT)
			log_warning("%s; processes of an earlier sbxsvd are not looked for", err_msg(e));
		return NULL;
	}
	j = js_parse(text, len, NULL);
	if (js_str(j, "boot") && js_is_arr(js_get(j, "processes")))
		return TAKE_PTR(j);
	log_warning("%s: not a record of processes, so those of an earlier sbxsvd are not looked for; it is "
		    "written anew",
		    path);
	return NULL;
}

void instance_read(const char *state_dir, struct instance_record *ret)
{
	CLEANUP_JS struct js *j = read_record(state_dir);
	char boot[64];

	memset(ret, 0, sizeof *ret);
	boot_id(boot, sizeof boot);
	if (!j || !boot[0] || !str_eq(js_str(j, "boot"), boot))
		return;
	ret->group = xstrdup(js_str(j, "group"));
	for (const struct js *p = js_first(js_get(j, "processes")); p; p = js_next(p)) {
		int64_t pid = js_int_or(p, "pid", 0), start = js_int_or(p, "start", 0);

		if (pid > 1 && pid <= INT32_MAX && start > 0)
			instance_record_add(ret, js_str(p, "app"), (pid_t)pid, (uint64_t)start,
					    js_bool_or(p, "jailed", false));
	}
}

/* A pidfd of the recorded process; -1 when it is gone. The start time is compared after the pidfd is open. */
static int open_remain(const struct instance_process *p)
{
	CLEANUP_FD int fd = pidfd_open_pid(p->pid);

	if (fd < 0 || ports_start_time(p->pid) != p->start || pidfd_is_dead(fd))
		return -1;
	return TAKE_FD(fd);
}

size_t instance_await(const struct instance_record *r, int wait_ms)
{
	CLEANUP_FREE struct pollfd *v = xcalloc(r->n + 1, sizeof *v);
	int64_t end = clk_mono_ms() + wait_ms;
	size_t n = 1, left;
	sigset_t stop;

	(void)sigemptyset(&stop);
	(void)sigaddset(&stop, SIGTERM);
	(void)sigaddset(&stop, SIGINT);
	/* Only polled, never read: a stop stays pending for the loop, but ends this wait. */
	v[0] = (struct pollfd){.fd = signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK), .events = POLLIN};
	for (size_t i = 0; i < r->n; i++) {
		int fd = open_remain(&r->v[i]);

		if (fd < 0)
			continue;
		log_info("pid %d of an earlier sbxsvd (%s) still runs: ending it", (int)r->v[i].pid,
			 r->v[i].app ? r->v[i].app : "sbxsv-proxy");
		(void)pidfd_signal(fd, SIGKILL);
		v[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
	}
	for (left = n - 1; left && clk_mono_ms() < end && !(v[0].revents & POLLIN);) {
		(void)poll(v, (nfds_t)n, (int)(end - clk_mono_ms()));
		for (size_t i = 1; i < n; i++)
			if (v[i].fd >= 0 && (v[i].revents & (POLLIN | POLLERR))) {
				(void)close(v[i].fd);
				v[i].fd = -1;
				left--;
			}
	}
	for (size_t i = 0; i < n; i++)
		if (v[i].fd >= 0)
			(void)close(v[i].fd);
	return left;
}
