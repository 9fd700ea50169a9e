/* A system call as what it wants of which path. Pure. */
#pragma once
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdint.h>

enum call_kind {
	CALL_READ,    /* open it for reading, or list it */
	CALL_EXEC,    /* execute it */
	CALL_WRITE,   /* change what is there */
	CALL_REMOVE,  /* take its name away */
	CALL_MAKE,    /* make a name that must not be there */
	CALL_CONNECT, /* `path` is the address of a sockaddr, `len` its length */
};
struct call {
	enum call_kind kind;
	bool follow;  /* a symlink as the last name is followed */
	bool creates; /* READ, WRITE: made when absent; MAKE: replaces what is there */
	int dirfd;    /* AT_FDCWD; CONNECT: the socket */
	uint64_t path, len;
};
enum { CALL_PATHS_MAX = 2 };
/* openat2(2) has its flags in memory: the caller reads them and calls this for openat(2). 0: nothing to look at. */
int call_decode(const struct seccomp_data *d, struct call out[CALL_PATHS_MAX]);
bool call_is_openat2(const struct seccomp_data *d);
/* As openat() with these flags. */
int call_decode_open(uint64_t flags, int dirfd, uint64_t path, struct call *out);
