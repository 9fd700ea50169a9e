/*
 * The baseline system call filter: what no app needs and kernel bugs like to live in, and what would undo the
 * other layers. A deny-list: programs nobody has tested must run.
 */
#pragma once
#include "base/err.h"
#include <linux/filter.h>

enum {
	FILTER_NESTED = 1, /* NestedSandbox=yes: mounts and namespaces are allowed */
	FILTER_UNIX = 2,   /* the app may make AF_UNIX sockets of its own (see seccomp.c) */
	FILTER_CORE = 4,   /* core dumps are wanted (Core=) */
	FILTER_VARIANTS = 8
};
/* Belongs to the module. The caller installs it with filter_install(). NULL: only where it has to be built
 * first. */
const struct sock_fprog *filter_get(unsigned variant, struct err **e);
/* seccomp_rules.c, by libseccomp; ret->filter is the caller's to free. */
int filter_build(unsigned variant, struct sock_fprog *ret, struct err **e);
int filter_install(const struct sock_fprog *f); /* needs no_new_privs; one plain call; -1 with errno */
