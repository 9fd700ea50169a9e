#include "cli/remote.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

int remote_open_code(const struct err *e)
{
	switch (err_code(e)) {
	case ENOENT:
	case ECONNREFUSED:
		return CLI_NO_SUPERVISOR;
	case EPERM:
	case EACCES:
		return CLI_REFUSED;
	default:
		return CLI_FAILED;
	}
}

int remote_open(struct cli *c, struct ctl_client **ret)
{
	CLEANUP_ERR struct err *e = NULL;
	struct ctl_client *cl = ctl_client_open(&c->dirs, &e);

	if (!cl)
		return cli_fail(remote_open_code(e), "%s", err_msg(e));
	*ret = cl;
	return CLI_OK;
}

int remote_call(struct ctl_client *cl, const char *method, const char *path, const struct js *body,
		struct js **ret_reply)
{
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_JS struct js *reply = NULL;
	long status = 0;
	int64_t code;
	const char *text;

	reply = ctl_client_call(cl, method, path, body, &status, &e);
	if (!reply)
		return cli_fail(remote_open_code(e), "%s", err_msg(e));
	if (status == 200) {
		*ret_reply = TAKE_PTR(reply);
		return CLI_OK;
	}
	text = js_str(reply, "error");
	code = js_int_or(reply, "code", CLI_FAILED);
	return cli_fail(code > CLI_OK && code <= CLI_REFUSED ? (int)code : CLI_FAILED, "%s",
			text ? text : "the supervisor refused the request");
}

char *remote_app_path(const char *app, const char *suffix)
{
	if (!unit_name_valid(app)) {
		(void)cli_bad_name(app);
		return NULL;
	}
	return xasprintf("/v1/apps/%s%s", app, suffix);
}

char *remote_json_safe(const char *text, size_t len)
{
	struct strbuf b = STRBUF_INIT;

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i], next = i + 1 < len ? (unsigned char)text[i + 1] : 0;

		if (c == 0x7f)
			strbuf_adds(&b, "\\u007f");
		else if (c == 0xc2 && next >= 0x80 && next < 0xa0) { /* U+0080 to U+009F in UTF-8 */
			strbuf_addf(&b, "\\u%04x", next);
			i++;
		} else
			strbuf_addc(&b, text[i]);
	}
	return strbuf_take(&b);
}

void remote_complain(const struct js *problems)
{
	for (const struct js *p = js_first(problems); p; p = js_next(p))
		if (js_value_str(p))
			(void)cli_fail(CLI_FAILED, "%s", js_value_str(p));
}

void remote_print_json(const struct js *j)
{
	CLEANUP_FREE char *text = js_print_pretty(j), *safe = remote_json_safe(text, strlen(text));

	puts(safe);
}

void remote_print_lines(const char *indent, const char *text)
{
	while (*text) {
		size_t len = strcspn(text, "\n");
		CLEANUP_FREE char *safe = str_escape(text, len);

		printf("%s%s\n", indent, safe);
		text += len + (text[len] == '\n');
	}
}
