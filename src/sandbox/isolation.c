/* What a jail got, for status: the keys of sbxsv-api(7). */
#include "sandbox/backend.h"
#include <string.h>

struct js *isolation_js(const struct isolation *i)
{
	struct js *o = js_obj(), *missing = js_arr();

	js_add_str(o, "backend", i->backend);
	js_add_bool(o, "user_ns", i->user_ns);
	js_add_bool(o, "mount_ns", i->mount_ns);
	js_add_bool(o, "pid_ns", i->pid_ns);
	js_add_bool(o, "net_ns", i->net_ns);
	js_add_bool(o, "seccomp", i->seccomp);
	js_add_int(o, "landlock", i->landlock_abi);
	js_add_bool(o, "no_new_privs", i->no_new_privs);
	js_add_bool(o, "nested_ns_off", i->nested_ns_off);
	js_add_bool(o, "survivors_possible", i->survivors_possible);
	js_add_bool(o, "groups_kept", i->groups_kept);
	js_add_str(o, "violations", audit_name(i->audit));
	if (i->audit_error)
		js_add_str(o, "violations_error", strerror(i->audit_error));
	js_add_bool(o, "unix_sockets", i->unix_sockets);
	if (i->unix_why)
		js_add_str(o, "unix_why", i->unix_why);
	for (size_t k = 0; k < i->missing.n; k++)
		js_push_str(missing, i->missing.v[k]);
	js_add(o, "missing", missing);
	return o;
}
