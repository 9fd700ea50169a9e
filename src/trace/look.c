/*
 * Was it the jail that refused this call?
 *
 * The host is asked first: what the app's user could not do here either (it is not there, its permissions say no) is no
 * refusal of the jail. That also settles the bulk of it, search paths that lead nowhere, with one look. What is there is
 * judged by its resolved path. The jail's own tree is asked only where its names mean something else than the host's: its
 * private /tmp and /dev, and symlinks that it may not have.
 *
 * Look-ups are O_PATH opens, which wait for nothing but the file system itself, and never cross into the magic links of
 * /proc: /proc/self would be ours.
 */
#include "trace/observer_internal.h"
#include "base/cleanup.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif
enum { FACCESSAT2_NR = 439 /* kernel 5.8 */, OPENAT2_NR = 437, LINKS_MAX = 40 };

static bool is_in(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && (path[n] == 0 || path[n] == '/');
}

/* --- what libraries do by themselves --- */

bool look_is_habit(enum observed op, const char *path)
{
	/* the C library asks for them, and does without */
	static const char *const services[] = {"/run/nscd",
					       "/var/run/nscd",
					       "/run/systemd/userdb",
					       "/run/systemd/resolve",
					       "/run/systemd/machines",
					       "/dev/log",
					       "/run/systemd/journal"};
	/* knobs of the kernel that runtimes look at to tune themselves; never grantable */
	static const char *const knobs[] = {"/proc", "/sys/kernel", "/sys/fs", "/sys/devices/system",
					    "/sys/devices/virtual/dmi"};

	for (size_t i = 0; i < ELEMENTS(services); i++)
		if (is_in(path, services[i]))
			return true;
	for (size_t i = 0; i < ELEMENTS(knobs); i++)
		if (is_in(path, knobs[i]))
			return true;
	/* Python keeps what it compiled beside the source, where it can */
	return op == OBSERVED_WRITE && strstr(path, "/__pycache__") != NULL;
}

/* --- looking up --- */

/* In the jail: what it may look up itself. The host's: host_look_up(). */
static int jail_look_up(const struct observer *o, const char *path, bool follow)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC | (follow ? 0u : (unsigned)O_NOFOLLOW),
			       .resolve = RESOLVE_NO_MAGICLINKS | RESOLVE_IN_ROOT};

	return (int)syscall(OPENAT2_NR, o->c.root, path, &how, sizeof how);
}

/* Where `fd` is, as its own mount namespace has it. */
static bool path_of(int fd, char to[PATH_MAX])
{
	char link[40];
	ssize_t n;

	(void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, to, PATH_MAX - 1);
	if (n <= 0 || to[0] != '/')
		return false;
	to[n] = 0;
	return true;
}

static bool may(int fd, int mode)
{
	return syscall(FACCESSAT2_NR, fd, "", mode, AT_EMPTY_PATH | AT_EACCESS) == 0;
}

/* Splits the last name off `path`, in place; the name, or NULL when there is none that can be made or removed. */
static char *split(char *path)
{
	size_t n = strlen(path);
	char *slash;

	while (n > 1 && path[n - 1] == '/')
		path[--n] = 0;
	slash = strrchr(path, '/');
	if (!slash || !slash[1] || strcmp(slash + 1, ".") == 0 || strcmp(slash + 1, "..") == 0)
		return NULL;
	*slash = 0;
	return slash + 1;
}

/* --- the jail's own /tmp --- */

static bool is_private(const char *path)
{
	return is_in(path, "/tmp") || is_in(path, "/dev/shm");
}

/* Puts `target` in place of the component that begins at `name` and ends at `end`. */
static bool exchange(struct observer *o, char *name, const char *end, const char *target)
{
	char *to = target[0] == '/' ? o->work_path : name;
	size_t n = strlen(target), rest = strlen(end) + 1;

	if ((size_t)(to - o->work_path) + n + rest > sizeof o->work_path)
		return false;
	memmove(to + n, end, rest);
	memcpy(to, target, n);
	return true;
}

/* Follows the first symlink that o->work_path goes through in the jail. False: there is none. */
static bool follow_one(struct observer *o, bool follow)
{
	char target[PATH_MAX], *name = o->work_path + 1, *end;

	for (;; name = end + 1) {
		ssize_t n = -1;
		char keep;
		int fd;

		end = name + strcspn(name, "/");
		keep = *end;
		*end = 0;
		fd = jail_look_up(o, o->work_path, false);
		*end = keep;
		if (fd < 0)
			return false;
		n = readlinkat(fd, "", target, sizeof target - 1);
		(void)close(fd);
		if (n > 0) {
			target[n] = 0;
			return (keep || follow) && exchange(o, name, end, target);
		}
		if (!keep)
			return false;
	}
}

/* The host does not have the symlinks of the jail's private directories: o->work_path becomes where they lead. */
static void leave_private(struct observer *o, bool follow)
{
	for (int i = 0; i < LINKS_MAX && is_private(o->work_path); i++)
		if (!follow_one(o, follow))
			return;
}

/* --- verdicts --- */

static unsigned decide(const struct observer *o, const char *path)
{
	return o->c.decide(o->c.judge, path);
}

static enum observed op_of(const struct record *r)
{
	switch ((enum call_kind)r->kind) {
	case CALL_READ:
		return OBSERVED_READ;
	case CALL_EXEC:
		return OBSERVED_EXEC;
	case CALL_CONNECT:
		return OBSERVED_UNIX;
	case CALL_WRITE:
	case CALL_REMOVE:
	case CALL_MAKE:
		break;
	}
	return OBSERVED_WRITE;
}

/* The jail has it under the name that was asked for, and it is not the cover of a hidden place, which nobody may open. */
static bool jail_has(const struct observer *o, bool follow)
{
	struct stat st;
	int fd = jail_look_up(o, o->work_path, follow);
	bool has = fd >= 0 && fstat(fd, &st) == 0 && (S_ISLNK(st.st_mode) || (st.st_mode & 07777));

	if (fd >= 0)
		(void)close(fd);
	return has;
}

static bool refused_read(struct observer *o, const struct record *r, int fd, const struct stat *st)
{
	unsigned a;
	bool seen;
	int mode = r->kind == CALL_EXEC ? X_OK : r->kind == CALL_CONNECT ? W_OK : R_OK;

	if (r->kind == CALL_CONNECT && !S_ISSOCK(st->st_mode))
		return false;
	a = decide(o, o->real);
	if ((a & OBSERVER_WAY) && S_ISDIR(st->st_mode))
		return false;
	seen = a & OBSERVER_SEES;
	if (is_in(o->real, "/dev") || is_private(o->real))
		seen = jail_has(o, r->follow); /* it has its own there, and the host's names say nothing */
	else if (seen && strcmp(o->real, o->work_path) != 0)
		seen = jail_has(o, r->follow); /* granted, but perhaps not by the name that was asked for */
	/* what the jail has of its own at that path, such as a resolv.conf, is no refusal either */
	return !seen && may(fd, mode) && !jail_has(o, r->follow);
}

/* `real` is a name in a directory that the jail may change. */
static bool parent_writable(struct observer *o, bool *ret_host)
{
	char *name = strrchr(o->real, '/');
	unsigned a;
	int fd;

	if (!name || !name[1])
		return true;
	*name = 0;
	a = decide(o, o->real[0] ? o->real : "/");
	fd = host_look_up(o->real[0] ? o->real : "/", false);
	*ret_host = fd >= 0 && may(fd, W_OK | X_OK);
	if (fd >= 0)
		(void)close(fd);
	*name = '/';
	return a & OBSERVER_WRITES;
}

/* What is to be changed is there. */
static bool refused_write(struct observer *o, const struct record *r, int fd, const struct stat *st)
{
	unsigned a;
	bool host = false;

	if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode) && !S_ISLNK(st->st_mode))
		return false; /* devices and the like are not held by mounts */
	a = decide(o, o->real);
	if (r->kind == CALL_MAKE && !r->creates) /* EEXIST, if the jail shows it */
		return !(a & (OBSERVER_SEES | OBSERVER_WAY)) && !parent_writable(o, &host) && host;
	if (r->kind == CALL_REMOVE || r->kind == CALL_MAKE)
		return !parent_writable(o, &host) && host;
	if (a & OBSERVER_WRITES)
		return false;
	return may(fd, W_OK) || st->st_uid == o->c.uid;
}

/* What is to be made is not there: may it be made in that directory? o->real becomes the name in it. */
static bool refused_make(struct observer *o)
{
	char *name = split(o->work_path);
	unsigned a;
	size_t n;
	int fd;
	bool host;

	if (!name)
		return false;
	fd = host_look_up(o->work_path[0] ? o->work_path : "/", true);
	if (fd < 0)
		return false;
	host = path_of(fd, o->real) && may(fd, W_OK | X_OK);
	(void)close(fd);
	if (!host || is_private(o->real))
		return false;
	a = decide(o, o->real);
	n = strlen(o->real);
	if ((a & OBSERVER_WRITES) || n + 1 + strlen(name) >= sizeof o->real)
		return false;
	if (n > 1)
		o->real[n++] = '/';
	memcpy(o->real + n, name, strlen(name) + 1);
	return true;
}

/* What the jail has under the name that was asked for: this very file. No other is ever opened for an app. */
static bool is_the_jails(const struct observer *o, const struct record *r, const struct stat *st)
{
	struct stat own;
	int fd = jail_look_up(o, o->work_path, r->follow);
	bool same = fd >= 0 && fstat(fd, &own) == 0 && own.st_dev == st->st_dev && own.st_ino == st->st_ino;

	if (fd >= 0)
		(void)close(fd);
	return same;
}

/* A script that may be executed fails all the same when its interpreter is not there, and says ENOENT: o->work_path becomes the
 * interpreter. Only a regular file is opened, and only its first line is read. */
static bool interpreter_of(struct observer *o, int fd, const struct stat *st)
{
	char line[256], link[40], *path, *end;
	ssize_t n;
	int file;

	if (!S_ISREG(st->st_mode))
		return false;
	(void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	file = open(link, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (file < 0)
		return false;
	n = read(file, line, sizeof line - 1); /* as much as the kernel looks at: BINPRM_BUF_SIZE */
	(void)close(file);
	if (n < 4 || line[0] != '#' || line[1] != '!')
		return false;
	line[n] = 0;
	path = line + 2 + strspn(line + 2, " \t");
	end = path + strcspn(path, " \t\n");
	if (path[0] != '/' || !*end)
		return false;
	*end = 0;
	(void)strcpy(o->work_path, path);
	return true;
}

static bool is_lookup(const struct record *r)
{
	return r->kind == CALL_READ || r->kind == CALL_EXEC || r->kind == CALL_CONNECT;
}

/* *ret_script: not refused, but its interpreter, which o->work_path is now, may be. */
static bool look_once(struct observer *o, const struct record *r, struct found *f, bool *ret_script)
{
	struct stat st;
	bool refused = false;
	int fd;

	*ret_script = false;
	if (is_in(o->work_path, "/proc"))
		return false;
	if (is_private(o->work_path))
		leave_private(o, r->follow);
	fd = host_look_up(o->work_path, r->follow);
	if (fd < 0)
		return (r->creates || r->kind == CALL_MAKE) && refused_make(o);
	if (fstat(fd, &st) == 0 && path_of(fd, o->real)) {
		f->exists = true;
		f->dir = S_ISDIR(st.st_mode);
		refused = is_lookup(r) ? refused_read(o, r, fd, &st) : refused_write(o, r, fd, &st);
		*ret_script = !refused && r->kind == CALL_EXEC && is_the_jails(o, r, &st) &&
			      interpreter_of(o, fd, &st);
	}
	(void)close(fd);
	return refused;
}

static bool look_at_path(struct observer *o, const struct record *r, struct found *f)
{
	bool script, again, refused = look_once(o, r, f, &script);

	/* once: the kernel takes scripts as interpreters of scripts, but nobody has them */
	return script ? look_once(o, r, f, &again) : refused;
}

bool look_is_loopback(const struct in6_addr *a)
{
	static const struct in6_addr any = IN6ADDR_ANY_INIT, one = IN6ADDR_LOOPBACK_INIT;

	if (IN6_IS_ADDR_V4MAPPED(a))
		return a->s6_addr[12] == 127 || a->s6_addr[12] == 0;
	return memcmp(a, &any, sizeof any) == 0 || memcmp(a, &one, sizeof one) == 0;
}

/* Without egress nothing answers, and nobody else hears of it. Of loopback the ear has found out. */
static bool look_at_address(struct observer *o, const struct record *r, struct found *f)
{
	uint16_t port = ntohs(r->to.sin6_port);
	bool v4 = IN6_IS_ADDR_V4MAPPED(&r->to.sin6_addr);
	bool local = r->stream && look_is_loopback(&r->to.sin6_addr);

	f->op = local ? OBSERVED_LOCAL : r->stream ? OBSERVED_CONNECT : OBSERVED_RESOLVE;
	if (!r->stream && port != 53)
		return false;
	f->port = r->stream ? port : 0;
	if (local)
		(void)strcpy(o->real, "localhost");
	else if (f->op == OBSERVED_RESOLVE)
		(void)strcpy(o->real, "(a name)");
	else if (!inet_ntop(v4 ? AF_INET : AF_INET6, &r->to.sin6_addr.s6_addr[v4 ? 12 : 0], o->real,
			    sizeof o->real))
		return false;
	return true;
}

bool look_at(struct observer *o, const struct record *r, struct found *f, bool *ret_asked)
{
	*f = (struct found){.op = op_of(r), .pid = r->pid, .count = 1};
	memcpy(f->comm, r->comm, sizeof f->comm);
	*ret_asked = false;
	if (r->to.sin6_family)
		return look_at_address(o, r, f);
	(void)snprintf(o->work_path, sizeof o->work_path, "%s%s%s", record_base(r), r->base_len ? "/" : "",
		       record_path(r));
	(void)strcpy(o->asked, o->work_path);
	if (!look_at_path(o, r, f) || look_is_habit(f->op, o->real))
		return false;
	*ret_asked = strcmp(o->asked, o->real) != 0;
	return true;
}
