#include "trace/call.h"
#include "base/cleanup.h"
#include <asm/unistd.h>
#include <fcntl.h>

#ifndef __NR_fchmodat2
#define __NR_fchmodat2 452
#endif
#ifndef __NR_openat2
#define __NR_openat2 437
#endif

enum flags_as { NONE, NOFOLLOW_BIT, FOLLOW_BIT, NEVER_FOLLOW, REPLACES /* and never follows */ };
/* One path of a call. Arguments by number; dir -1: the current directory. */
struct row {
	unsigned nr;
	enum call_kind kind;
	int path, dir, flags;
	enum flags_as as; /* how `flags` (an argument) or the call says whether a last symlink is followed */
};
static const struct row rows[] = {
#ifdef __NR_creat
	{__NR_creat, CALL_WRITE, 0, -1, 0, NONE},
#endif
#ifdef __NR_unlink
	{__NR_unlink, CALL_REMOVE, 0, -1, 0, NEVER_FOLLOW},
#endif
#ifdef __NR_rename
	{__NR_rename, CALL_REMOVE, 0, -1, 0, NEVER_FOLLOW},
	{__NR_rename, CALL_MAKE, 1, -1, 0, REPLACES},
#endif
#ifdef __NR_renameat
	{__NR_renameat, CALL_REMOVE, 1, 0, 0, NEVER_FOLLOW},
	{__NR_renameat, CALL_MAKE, 3, 2, 0, REPLACES},
#endif
#ifdef __NR_mkdir
	{__NR_mkdir, CALL_MAKE, 0, -1, 0, NEVER_FOLLOW},
#endif
#ifdef __NR_rmdir
	{__NR_rmdir, CALL_REMOVE, 0, -1, 0, NEVER_FOLLOW},
#endif
#ifdef __NR_link
	{__NR_link, CALL_READ, 0, -1, 0, NEVER_FOLLOW},
	{__NR_link, CALL_MAKE, 1, -1, 0, NEVER_FOLLOW},
#endif
#ifdef __NR_symlink
	{__NR_symlink, CALL_MAKE, 1, -1, 0, NEVER_FOLLOW},
#endif
#ifdef __NR_chmod
	{__NR_chmod, CALL_WRITE, 0, -1, 0, NONE},
#endif
#ifdef __NR_chown
	{__NR_chown, CALL_WRITE, 0, -1, 0, NONE},
#endif
#ifdef __NR_lchown
	{__NR_lchown, CALL_WRITE, 0, -1, 0, NEVER_FOLLOW},
#endif
#ifdef __NR_mknod
	{__NR_mknod, CALL_MAKE, 0, -1, 0, NEVER_FOLLOW},
#endif
	{__NR_unlinkat, CALL_REMOVE, 1, 0, 0, NEVER_FOLLOW},
	{__NR_renameat2, CALL_REMOVE, 1, 0, 0, NEVER_FOLLOW},
	{__NR_renameat2, CALL_MAKE, 3, 2, 0, REPLACES},
	{__NR_mkdirat, CALL_MAKE, 1, 0, 0, NEVER_FOLLOW},
	{__NR_linkat, CALL_READ, 1, 0, 4, FOLLOW_BIT},
	{__NR_linkat, CALL_MAKE, 3, 2, 0, NEVER_FOLLOW},
	{__NR_symlinkat, CALL_MAKE, 2, 1, 0, NEVER_FOLLOW},
	{__NR_fchmodat, CALL_WRITE, 1, 0, 0, NONE},
	{__NR_fchmodat2, CALL_WRITE, 1, 0, 3, NOFOLLOW_BIT},
	{__NR_fchownat, CALL_WRITE, 1, 0, 4, NOFOLLOW_BIT},
	{__NR_truncate, CALL_WRITE, 0, -1, 0, NONE},
	{__NR_mknodat, CALL_MAKE, 1, 0, 0, NEVER_FOLLOW},
	{__NR_execve, CALL_EXEC, 0, -1, 0, NONE},
	{__NR_execveat, CALL_EXEC, 1, 0, 4, NOFOLLOW_BIT},
};

static bool follows(const struct row *r, const struct seccomp_data *d)
{
	switch (r->as) {
	case NONE:
		break;
	case NOFOLLOW_BIT:
		return !(d->args[r->flags] & AT_SYMLINK_NOFOLLOW);
	case FOLLOW_BIT:
		return d->args[r->flags] & AT_SYMLINK_FOLLOW;
	case NEVER_FOLLOW:
	case REPLACES:
		return false;
	}
	return true;
}

int call_decode_open(uint64_t flags, int dirfd, uint64_t path, struct call *out)
{
	bool tmpfile = (flags & O_TMPFILE) == O_TMPFILE;
	bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);

	if (flags & O_PATH)
		return 0;
	*out = (struct call){.kind = writes ? CALL_WRITE : CALL_READ,
			     .follow = !(flags & O_NOFOLLOW),
			     .creates = (flags & O_CREAT) && !tmpfile,
			     .dirfd = dirfd,
			     .path = path};
	if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) {
		out->kind = CALL_MAKE;
		out->follow = false;
	}
	return 1;
}

bool call_is_openat2(const struct seccomp_data *d)
{
	return d->nr == __NR_openat2;
}

int call_decode(const struct seccomp_data *d, struct call out[CALL_PATHS_MAX])
{
	int n = 0;

#ifdef __NR_open
	if (d->nr == __NR_open)
		return call_decode_open(d->args[1], AT_FDCWD, d->args[0], out);
#endif
	if (d->nr == __NR_openat)
		return call_decode_open(d->args[2], (int)d->args[0], d->args[1], out);
	if (d->nr == __NR_connect) {
		out[0] = (struct call){.kind = CALL_CONNECT,
				       .dirfd = (int)d->args[0],
				       .path = d->args[1],
				       .len = d->args[2],
				       .follow = true};
		return 1;
	}
	for (size_t i = 0; i < ELEMENTS(rows) && n < CALL_PATHS_MAX; i++) {
		const struct row *r = &rows[i];

		if ((int)r->nr != d->nr)
			continue;
		out[n] = (struct call){.kind = r->kind,
				       .follow = follows(r, d),
				       .dirfd = r->dir < 0 ? AT_FDCWD : (int)d->args[r->dir],
				       .path = d->args[r->path]};
		out[n].creates = r->as == REPLACES;
#ifdef __NR_creat
		out[n].creates |= r->nr == __NR_creat;
#endif
		n++;
	}
	return n;
}
