/*
 * The filter by which a jail tells which calls it makes. It refuses nothing: each of these calls waits until whoever
 * holds the listener has looked at it, and then goes on. What the jail is, is never decided here.
 */
#pragma once
#include <stdbool.h>

enum audit {
	AUDIT_OFF,
	AUDIT_WRITES, /* calls that would change a name or a file, exec, connect */
	AUDIT_ALL,    /* and every open */
};
const char *audit_name(enum audit a);
enum audit audit_from(const char *name); /* of Violations=; AUDIT_OFF for a word it does not know */
/* In the child of a launch, after no_new_privs: plain calls only. The listener, or -1 with errno (EBUSY: there is one
 * above us already, and the kernel has only one for all). */
int audit_install(enum audit a);
