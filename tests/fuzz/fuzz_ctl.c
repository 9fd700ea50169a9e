/*
 * Requests of the control API. Input: "METHOD TARGET\nBODY". What is accepted must be within the bounds that the
 * server relies on.
 */
#include "base/err.h"
#include "base/str.h"
#include "ctl/route.h"
#include "unit/unit.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct ctl_call *c)
{
	if (c->op >= CTL_OP_MAX || strnlen(c->app, sizeof c->app) == sizeof c->app)
		abort();
	if (c->app[0] && !unit_name_valid(c->app))
		abort();
	if (!c->app[0] && (c->op == CTL_APP || c->op == CTL_LOGS || c->op == CTL_KILL))
		abort();
	if (c->lines > CTL_LINES_MAX || c->grace_ms < -1 || c->grace_ms > 3600 * 1000)
		abort();
	if (c->op == CTL_KILL ? c->signal <= 0 || c->signal > 64 : c->signal != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data, *nl = memchr(text, '\n', size), *body = nl ? nl + 1 : text + size;
	CLEANUP_FREE char *line = xstrndup(text, nl ? (size_t)(nl - text) : size);
	CLEANUP_ERR struct err *e = NULL;
	struct ctl_call c;
	int status = 0;
	char *target = strchr(line, ' ');

	if (!target)
		return 0;
	*target++ = 0;
	if (ctl_route(line, target, body, size - (size_t)(body - text), &c, &status, &e) == 0)
		check(&c);
	else if (status < 400 || status > 499 || !e)
		abort();
	return 0;
}
