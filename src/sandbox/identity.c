#include "sandbox/identity.h"
#include "base/log.h"
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <unistd.h>

enum { ENTRY_MAX = 65536 }; /* bytes of one passwd or group entry */
/* Not from the heap: freeing so much makes malloc go through all of it, which after a fork copies every page.
 */
static char entry[ENTRY_MAX];

static int no_such_user(const char *name, const char *why, struct err **e)
{
	return err_set(e, ENOENT,
		       "%sthe user \"%s\" does not exist on this machine; make it with: " UNIT_USER_COMMAND
		       "%s",
		       why, name, name);
}

static int user_by_name(const char *name, const char *why, struct plan_user *ret, struct err **e)
{
	struct passwd pw, *found = NULL;
	int r = getpwnam_r(name, &pw, entry, sizeof entry, &found);

	if (r)
		return err_sys(e, r, "cannot look up the user \"%s\"", name);
	if (!found)
		return no_such_user(name, why, e);
	ret->uid = pw.pw_uid;
	ret->gid = pw.pw_gid;
	ret->name = xstrdup(pw.pw_name);
	ret->home = xstrdup(pw.pw_dir);
	ret->shell = xstrdup(pw.pw_shell && pw.pw_shell[0] ? pw.pw_shell : "/bin/sh");
	return 0;
}

static int group_by_name(const char *name, gid_t *ret, struct err **e)
{
	struct group gr, *found = NULL;
	int r = getgrnam_r(name, &gr, entry, sizeof entry, &found);

	if (r)
		return err_sys(e, r, "cannot look up the group \"%s\"", name);
	if (!found)
		return err_set(e, ENOENT, "Group=%s: no such group on this machine", name);
	*ret = gr.gr_gid;
	return 0;
}

static void ourselves(const struct unit_dirs *d, struct plan_user *ret)
{
	ret->uid = geteuid();
	ret->gid = getegid();
	ret->name = xstrdup(d->user);
	ret->home = xstrdup(d->home);
	ret->shell = xstrdup(d->shell ? d->shell : "/bin/sh");
}

int identity_find(const struct unit *u, const struct unit_dirs *d, const struct conf *c,
		  struct plan_user *ret, struct err **e)
{
	struct plan_user found = {0};
	const char *name = u->user ? u->user : c->default_user ? c->default_user : "sbxsv";

	if (geteuid() != 0) {
		if (u->user && !str_eq(u->user, d->user))
			return err_set(e, EPERM,
				       "User=%s: only a supervisor that runs as root can start an app as "
				       "another user (this "
				       "one runs as %s)",
				       u->user, d->user);
		ourselves(d, ret);
		return 0;
	}
	if (user_by_name(name,
			 u->user ? "User=: " : "an app without User= runs as the system user of sbxsv, and ",
			 &found, e) < 0)
		return -1;
	if (u->group && group_by_name(u->group, &found.gid, e) < 0) {
		identity_finish(&found);
		return -1;
	}
	if (found.uid == 0) {
		identity_finish(&found);
		return err_set(e, EPERM, "User=%s has uid 0: no app runs as root; name another user", name);
	}
	*ret = found;
	return 0;
}

void identity_finish(struct plan_user *u)
{
	free(u->name);
	free(u->home);
	free(u->shell);
	memset(u, 0, sizeof *u);
}

int identity_of_proxy(const struct conf *c, uid_t *ret_uid, gid_t *ret_gid, struct err **e)
{
	CLEANUP_ERR struct err *missing = NULL;
	struct plan_user u = {0};

	if (geteuid() != 0) {
		*ret_uid = (uid_t)-1;
		*ret_gid = (gid_t)-1;
		return 0;
	}
	if (user_by_name(c->default_user ? c->default_user : "sbxsv",
			 "sbxsv-proxy does not run as root, and ", &u, &missing) < 0) {
		if (user_by_name("nobody", "", &u, e) < 0)
			return -1;
		log_warning("%s; until then it runs as nobody", err_msg(missing));
	}
	if (u.uid == 0) {
		identity_finish(&u);
		return err_set(
			e, EPERM,
			"DefaultUser= of sbxsv.conf has uid 0: neither sbxsv-proxy nor an app runs as root");
	}
	*ret_uid = u.uid;
	*ret_gid = u.gid;
	identity_finish(&u);
	return 0;
}
