#include "base/err.h"
#include "base/str.h"
#include <errno.h>
#include <stdarg.h>
#include <string.h>

struct err {
	int code;
	char *text;
};

static void put(struct err **e, int code, char *text)
{
	struct err *n;

	if (!e) {
		free(text);
		return;
	}
	n = xcalloc(1, sizeof *n);
	n->code = code;
	n->text = text;
	err_free(*e);
	*e = n;
}

int err_set(struct err **e, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	put(e, code, xvasprintf(fmt, ap));
	va_end(ap);
	return -1;
}

int err_sys(struct err **e, int errnum, const char *fmt, ...)
{
	CLEANUP_FREE char *what = NULL;
	va_list ap;

	va_start(ap, fmt);
	what = xvasprintf(fmt, ap);
	va_end(ap);
	put(e, errnum, xasprintf("%s: %s", what, strerror(errnum)));
	return -1;
}

int err_wrap(struct err **e, const char *fmt, ...)
{
	CLEANUP_FREE char *what = NULL;
	va_list ap;

	if (!e)
		return -1;
	va_start(ap, fmt);
	what = xvasprintf(fmt, ap);
	va_end(ap);
	put(e, err_code(*e), xasprintf("%s: %s", what, err_msg(*e)));
	return -1;
}

const char *err_msg(const struct err *e)
{
	return e ? e->text : "no error";
}

int err_code(const struct err *e)
{
	return e ? e->code : 0;
}

void err_free(struct err *e)
{
	if (!e)
		return;
	free(e->text);
	free(e);
}
