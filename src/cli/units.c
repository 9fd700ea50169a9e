#include "cli/units.h"
#include "cli/remote.h"
#include "cli/subject.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int units_there(const struct cli *c, const char *name)
{
	if (!unit_name_valid(name))
		return cli_bad_name(name);
	return subject_exists(c, name) ? CLI_OK : subject_complain(c, name);
}

int units_instance(const struct cli *c, const char *name, char **ret_link)
{
	const char *at = strchr(name, '@');
	CLEANUP_FREE char *template = NULL, *link = NULL;

	if (!at)
		return CLI_OK;
	template = xasprintf("%.*s@.app", (int)(at - name), name);
	link = xasprintf("%s/%s.app", c->dirs.apps, name);
	if (symlink(template, link) == 0)
		*ret_link = TAKE_PTR(link);
	else if (errno != EEXIST)
		return cli_fail(CLI_FAILED, "%s: %s", link, strerror(errno));
	return CLI_OK;
}

int units_reload(struct cli *c)
{
	CLEANUP_CTL_CLIENT struct ctl_client *cl = NULL;
	CLEANUP_JS struct js *report = NULL;
	CLEANUP_ERR struct err *e = NULL;
	int code;

	cl = ctl_client_open(&c->dirs, &e);
	if (!cl && remote_open_code(e) == CLI_NO_SUPERVISOR)
		return CLI_OK;
	if (!cl)
		return cli_fail(remote_open_code(e), "the supervisor was not told: %s", err_msg(e));
	code = remote_call(cl, "POST", "/v1/reload", NULL, &report);
	remote_complain(js_get(report, "problems"));
	return code;
}
