/*
 * Files as a supervisor must treat them: what it writes is 0600 in 0700 directories and never through a
 * symlink (openat2 with RESOLVE_NO_SYMLINKS below a directory fd); what it reads is bounded.
 */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <sys/stat.h>

/* Reads a whole regular file of at most `max` bytes (more: EFBIG). The text is NUL-terminated; owned by
 * caller. */
int file_read(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len, struct err **e);
/* Reads a small pseudo file (/proc, /sys) whose size stat does not know. */
int file_read_proc(const char *path, char *buf, size_t cap); /* NUL-terminated; -1 with errno */
/* Write to a temporary name in the same directory, fsync, rename. A failure leaves the old file whole. */
int file_write_atomic(int dirfd, const char *name, const void *data, size_t len, mode_t mode, struct err **e);
/* Makes a directory and its missing parents 0700; an existing last component must be a directory, not a
 * symlink, owned by us. Returns an O_PATH-free directory fd. */
int file_private_dir(const char *path, struct err **e);
/* open below dirfd, no symlink anywhere in `path`, CLOEXEC added. -1 with errno. */
int file_open_nofollow(int dirfd, const char *path, int flags, mode_t mode);
bool file_same(const struct stat *a, const struct stat *b); /* device and inode */
/* "a/b/c" is `path` below `dir`, or equal: textual, both absolute and normalised. */
bool path_is_below(const char *path, const char *dir);
/* Joins and normalises: removes "//", "." and ".." textually. Owned by caller. An absolute `rel` replaces
 * `base`. */
char *path_join(const char *base, const char *rel);
char *path_dirname(const char *path); /* owned by caller */
const char *path_basename(const char *path);
