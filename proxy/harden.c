#include "proxy/harden.h"
#include "base/log.h"
#include "base/str.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Sanitizers read /proc, map executable memory, trace themselves at exit and run a symbolizer. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* linux/landlock.h of later kernels: ABI 3 (6.2), 5 (6.10). */
#define FS_TRUNCATE  (1ULL << 14)
#define FS_IOCTL_DEV (1ULL << 15)
/* ABI 6 (6.12): struct landlock_ruleset_attr gained `scoped`. */
#define SCOPE_ABSTRACT_UNIX (1ULL << 0)
#define SCOPE_SIGNAL        (1ULL << 1)

struct ruleset_attr {
	uint64_t fs, net, scoped;
};

static int drop_user(const struct harden *h, struct err **e)
{
	if (h->gid != (gid_t)-1) {
		if (geteuid() == 0 && setgroups(0, NULL) < 0)
			return err_sys(e, errno, "the supplementary groups cannot be dropped");
		if (setresgid(h->gid, h->gid, h->gid) < 0)
			return err_sys(e, errno, "the group cannot be changed to %u", h->gid);
	}
	if (h->uid != (uid_t)-1) {
		if (setresuid(h->uid, h->uid, h->uid) < 0)
			return err_sys(e, errno, "the user cannot be changed to %u", h->uid);
		if (h->uid != 0 && setuid(0) == 0)
			return err_set(e, EPERM, "the user was changed to %u, but root could be taken back",
				       h->uid);
	}
	return 0;
}

/* Whoever started us may have had some: root of a user namespace, ambient ones. None is needed. */
static int drop_capabilities(struct err **e)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		log_debug("PR_CAP_AMBIENT_CLEAR_ALL: %s",
			  strerror(errno)); /* before Linux 4.3 there are none */
	if (syscall(SYS_capset, &header, none) < 0)
		return err_sys(e, errno, "the capabilities cannot be dropped");
	return 0;
}

int harden_identity(const struct harden *h, struct err **e)
{
	const struct rlimit none = {0, 0};

	if (drop_user(h, e) < 0 || drop_capabilities(e) < 0)
		return -1;
	/* After the change of user, which clears it: prctl(2), PR_SET_PDEATHSIG. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return err_sys(e, errno, "PR_SET_PDEATHSIG");
	if (h->parent && getppid() != h->parent)
		return err_set(e, 0, "the supervisor (pid %d) is gone already", (int)h->parent);
	(void)umask(077);
	if (setsid() < 0 && errno != EPERM) /* EPERM: a leader already */
		log_warning("no session of its own: %s", strerror(errno));
	if (chdir("/") < 0)
		log_warning("chdir /: %s", strerror(errno));
	if (setrlimit(RLIMIT_CORE, &none) < 0)
		log_warning("core dumps cannot be turned off: %s", strerror(errno));
	if (!SANITIZED && setrlimit(RLIMIT_NPROC, &none) < 0)
		log_warning("the limit of processes cannot be set: %s", strerror(errno));
	if (!SANITIZED && prctl(PR_SET_DUMPABLE, 0) < 0)
		log_warning("PR_SET_DUMPABLE: %s", strerror(errno));
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(e, errno, "PR_SET_NO_NEW_PRIVS");
	return 0;
}

static void allow_read(int ruleset, const char *path)
{
	CLEANUP_FD int fd = open(path, O_PATH | O_CLOEXEC);
	struct landlock_path_beneath_attr rule = {.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE,
						  .parent_fd = fd};

	if (fd >= 0 && syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
		log_warning("landlock: %s: %s", path, strerror(errno));
}

/*
 * /etc/resolv.conf and /etc/hosts are often links to elsewhere, and are replaced while we run: the directory
 * they lie in stays readable if it is one of /run (systemd-resolved, resolvconf, NetworkManager), else the
 * file itself.
 */
static void allow_target(int ruleset, const char *path)
{
	CLEANUP_FREE char *real = realpath(path, NULL);
	char *slash;

	if (!real || str_starts(real, "/etc/"))
		return;
	slash = strrchr(real, '/');
	if (str_starts(real, "/run/") && slash > real + strlen("/run"))
		*slash = 0;
	allow_read(ruleset, real);
}

static void confine_files(const char *resolv_conf)
{
	struct ruleset_attr attr = {.fs = LANDLOCK_ACCESS_FS_REFER * 2 - 1};
	int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	CLEANUP_FD int ruleset = -1;
	size_t size = sizeof attr.fs;

	if (abi < 1) {
		log_info("this kernel has no Landlock: only seccomp confines the proxy");
		return;
	}
	if (abi < 2)
		attr.fs &= ~LANDLOCK_ACCESS_FS_REFER;
	if (abi >= 3)
		attr.fs |= FS_TRUNCATE;
	if (abi >= 5)
		attr.fs |= FS_IOCTL_DEV;
	if (abi >= 6) {
		attr.scoped = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL;
		size = sizeof attr;
	}
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
	if (ruleset < 0) {
		log_warning("landlock: %s: only seccomp confines the proxy", strerror(errno));
		return;
	}
	allow_read(ruleset, "/etc");
	allow_read(ruleset, "/dev/urandom"); /* c-ares seeds itself there */
	allow_target(ruleset, "/etc/resolv.conf");
	allow_target(ruleset, "/etc/hosts");
	allow_target(ruleset, "/etc/nsswitch.conf");
	if (resolv_conf)
		allow_target(ruleset, resolv_conf);
	if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
		log_warning("landlock: %s: only seccomp confines the proxy", strerror(errno));
}

int harden_confine(const struct harden *h, const char *resolv_conf, struct err **e)
{
	(void)h;
	if (SANITIZED) {
		log_info("built with sanitizers: not confined");
		return 0;
	}
	confine_files(resolv_conf);
	return harden_seccomp(e);
}
