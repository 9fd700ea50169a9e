/* The proxy's own answers. They hold nothing of the request but the canonical host, so nothing unparsed is
 * reflected. */
#include "base/str.h"
#include "base/wire.h"
#include "proxy/outgoing.h"
#include <string.h>

/* A rule is text of a unit file; a header is no place for its control bytes. */
static char *header_safe(const char *text)
{
	char *s = xstrdup(text);

	for (char *p = s; *p; p++)
		if (*p < 0x20 || *p > 0x7e)
			*p = '?';
	return s;
}

static const char *phrase(int status)
{
	switch (status) {
	case 400:
		return "Bad Request";
	case 403:
		return "Forbidden";
	case 405:
		return "Method Not Allowed";
	case 408:
		return "Request Timeout";
	case 414:
		return "URI Too Long";
	case 417:
		return "Expectation Failed";
	case 431:
		return "Request Header Fields Too Large";
	case 501:
		return "Not Implemented";
	case 502:
		return "Bad Gateway";
	case 503:
		return "Service Unavailable";
	case 504:
		return "Gateway Timeout";
	case 505:
		return "HTTP Version Not Supported";
	default:
		return "Error";
	}
}

static char *reply(int status, const char *header, const char *value, const char *body)
{
	CLEANUP_FREE char *safe = header_safe(value);

	return xasprintf("HTTP/1.1 %d %s\r\n%s: %s\r\nContent-Type: text/plain; charset=utf-8\r\n"
			 "Content-Length: %zu\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n%s",
			 status, phrase(status), header, safe, strlen(body), body);
}

/* "web@blue" is an instance of web@.app. */
static char *unit_file(const struct app *a)
{
	const char *at = strchr(a->name, '@');

	return xasprintf("%.*s.app", at ? (int)(at - a->name) + 1 : (int)strlen(a->name), a->name);
}

/* What a rule is called where it is an option of a command. NULL: that command cannot grant it. */
static char *option_of(const char *where, const char *hint)
{
	static const struct {
		const char *where, *key, *option;
	} known[] = {
		{WHERE_EXEC, "Allow=", "--allow"},
		{WHERE_EXEC, "Loopback=", "--loopback"},
		{WHERE_ALONE, "Allow=", "--allow"}, /* a service of this machine it never reaches */
		{WHERE_ALONE, "AllowAddress=", "--allow-address"},
		{WHERE_ALONE, "Connect=", "--connect"},
	};

	for (size_t i = 0; i < ELEMENTS(known); i++)
		if (str_eq(where, known[i].where) && str_starts(hint, known[i].key))
			return xasprintf("%s %s", known[i].option, hint + strlen(known[i].key));
	return NULL;
}

static void add_advice(struct strbuf *b, const struct app *a, const char *hint)
{
	bool options = str_eq(a->where, WHERE_EXEC) || str_eq(a->where, WHERE_ALONE);
	CLEANUP_FREE char *unit = unit_file(a), *option = options ? option_of(a->where, hint) : NULL;

	if (option)
		strbuf_addf(b, "To allow it, start  %s  with  %s\n", a->where, option);
	else if (*hint && a->where && !options && !str_starts(hint, "Loopback="))
		strbuf_addf(b, "To allow it, add  %s  to %s\n", hint, a->where);
	else if (*hint && !a->where)
		strbuf_addf(b, "To allow it, add  %s  to [Network] of %s\n", hint, unit);
	else if (a->where)
		strbuf_addf(b, "No rule of %s can allow it.\n", options ? a->where : "this proxy");
	else
		strbuf_adds(b, "No line of a unit file can allow it.\n");
}

char *reply_refused(const struct app *a, const struct target *t, const struct verdict *v)
{
	CLEANUP_STRBUF struct strbuf b = STRBUF_INIT;

	strbuf_addf(&b, "sbxsv: %s may not connect to %s port %u.\nRule: %s%s%s%s\n", a->name, t->host,
		    t->port, v->rule, *v->reason ? " (" : "", v->reason, *v->reason ? ")" : "");
	add_advice(&b, a, v->hint);
	return reply(403, "X-Sbxsv-Denied", v->rule, b.p);
}

char *reply_closed(const struct app *a, const char *why)
{
	CLEANUP_FREE char *body = xasprintf("sbxsv: %s may not connect to anything: %s\n", a->name, why);

	return reply(403, "X-Sbxsv-Denied", "egress closed", body);
}

char *reply_error(int status, const char *reason)
{
	CLEANUP_FREE char *body = xasprintf("sbxsv: %s\n", reason);

	return reply(status, "X-Sbxsv-Error", reason, body);
}
