/* Which backend builds this unit's jail, and what its errors mean. */
#include "sandbox/jail.h"
#include <errno.h>

const struct backend *backend_for(const struct unit *u, struct err **e)
{
	if (u->enforce == UNIT_ENFORCE_OFF || u->backend == UNIT_BACKEND_NONE)
		return &backend_none;
	if (u->backend == UNIT_BACKEND_AUTO || u->backend == UNIT_BACKEND_LINUX)
		return &backend_linux;
	(void)err_set(e, ENOTSUP,
		      "this Backend= is not there yet: leave the line out for the namespaces of Linux");
	return NULL;
}
