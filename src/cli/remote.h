/* Commands that ask the supervisor: connect, call, and turn its answers into messages and exit codes. */
#pragma once
#include "cli/cli.h"
#include "ctl/client.h"

/* CLI_OK with *ret, or an exit code after a message. */
int remote_open(struct cli *c, struct ctl_client **ret);
/* The exit code for a failed ctl_client_open(); says nothing. */
int remote_open_code(const struct err *e);
/* CLI_OK with *ret_reply, or an exit code after a message: also when the supervisor answered with an error.
 */
int remote_call(struct ctl_client *cl, const char *method, const char *path, const struct js *body,
		struct js **ret_reply);
/* "/v1/apps/NAME" and a suffix such as "/start". Owned by caller; NULL after a message when the name is none.
 */
char *remote_app_path(const char *app, const char *suffix);
/* JSON text with DEL and the C1 controls written as \u00NN: JSON lets them stand, a terminal obeys them.
 * Owned by caller. */
char *remote_json_safe(const char *text, size_t len);
/* The reply as JSON on stdout. */
/* "problems" of the supervisor, each a complaint. */
void remote_complain(const struct js *problems);
void remote_print_json(const struct js *j);
/* Text of several lines, each escaped, each after `indent`, on stdout. */
void remote_print_lines(const char *indent, const char *text);
