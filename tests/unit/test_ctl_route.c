/* The pure part of the control API: request text in, operation out. */
#include "ctl/route.h"
#include "base/file.h"
#include "base/str.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static struct ctl_call good(const char *method, const char *target, const char *body)
{
	CLEANUP_ERR struct err *e = NULL;
	struct ctl_call c;
	int status = 0;

	if (ctl_route(method, target, body, strlen(body), &c, &status, &e))
		fail_msg("%s %s %s: %d %s", method, target, body, status, err_msg(e));
	return c;
}

static void bad(const char *method, const char *target, const char *body, int want, const char *words)
{
	CLEANUP_ERR struct err *e = NULL;
	struct ctl_call c;
	int status = 0;

	if (ctl_route(method, target, body, strlen(body), &c, &status, &e) == 0)
		fail_msg("%s %s %s was accepted", method, target, body);
	if (status != want || !strstr(err_msg(e), words))
		fail_msg("%s %s %s: %d \"%s\", wanted %d \"%s\"", method, target, body, status, err_msg(e),
			 want, words);
}

static void test_plain(void **state)
{
	(void)state;
	assert_int_equal(good("GET", "/v1/version", "").op, CTL_VERSION);
	assert_int_equal(good("GET", "/v1/status", "").op, CTL_STATUS);
	assert_int_equal(good("GET", "/v1/status?", "").op, CTL_STATUS);
	assert_int_equal(good("GET", "/v1/ports", "").op, CTL_PORTS);
	assert_int_equal(good("POST", "/v1/reload", "").op, CTL_RELOAD);
	assert_int_equal(good("POST", "/v1/reload", "{}").op, CTL_RELOAD);
	assert_int_equal(good("POST", "/v1/upgrade", "{\"wait\":false}").op, CTL_UPGRADE);
	assert_int_equal(good("GET", "/v1/apps/notes", "").op, CTL_APP);
	assert_string_equal(good("GET", "/v1/apps/notes", "").app, "notes");
	assert_string_equal(good("GET", "/v1/apps/web@Blue.1", "").app, "web@Blue.1");
	assert_string_equal(good("GET", "/v1/apps/web%40blue", "").app, "web@blue");
}

static void test_commands(void **state)
{
	struct ctl_call c;

	(void)state;
	c = good("POST", "/v1/apps/notes/start", "");
	assert_int_equal(c.op, CTL_START);
	assert_true(c.wait);
	assert_false(good("POST", "/v1/apps/notes/stop", "{\"wait\":false}").wait);
	assert_int_equal(good("POST", "/v1/apps/notes/stop", "").op, CTL_STOP);
	c = good("POST", "/v1/apps/*/restart", "{\"wait\":true}");
	assert_int_equal(c.op, CTL_RESTART);
	assert_string_equal(c.app, "");
	c = good("POST", "/v1/apps/notes/kill", "{\"signal\":\"USR1\"}");
	assert_int_equal(c.op, CTL_KILL);
	assert_int_equal(c.signal, SIGUSR1);
	assert_int_equal(good("POST", "/v1/shutdown", "").grace_ms, -1);
	assert_int_equal(good("POST", "/v1/shutdown", "{\"grace_ms\":10000}").grace_ms, 10000);
}

static void test_streams(void **state)
{
	struct ctl_call c = good("GET", "/v1/apps/notes/logs?lines=7&follow=1", "");

	(void)state;
	assert_int_equal(c.op, CTL_LOGS);
	assert_int_equal(c.lines, 7);
	assert_true(c.follow);
	assert_int_equal(good("GET", "/v1/apps/notes/logs", "").lines, 20);
	c = good("GET", "/v1/apps/notes/logs?since_ms=5&json=1", "");
	assert_int_equal(c.lines, CTL_LINES_ALL);
	assert_int_equal(c.since_ms, 5);
	assert_true(c.json);
	assert_int_equal(good("GET", "/v1/apps/notes/logs?since_ms=5&lines=3", "").lines, 3);
	c = good("GET", "/v1/events?app=notes&lines=0", "");
	assert_int_equal(c.op, CTL_EVENTS);
	assert_string_equal(c.app, "notes");
	assert_int_equal(c.lines, 0);
	assert_false(c.follow);
	assert_string_equal(good("GET", "/v1/events", "").app, "");
}

static void test_refused(void **state)
{
	(void)state;
	bad("GET", "", "", 404, "no such path");
	bad("GET", "/", "", 404, "no such path");
	bad("GET", "/v1/statu", "", 404, "no such path");
	bad("GET", "/v1/status/", "", 404, "no such path");
	bad("GET", "/v2/status", "", 404, "no such path");
	bad("GET", "/v1/apps/", "", 404, "no name of an app");
	bad("GET", "/v1/apps/a/b", "", 404, "no such path");
	bad("GET", "/v1/apps/../status", "", 404, "no such path");
	bad("GET", "/v1/apps/%2e%2e", "", 404, "no name of an app");
	bad("GET", "/v1/apps/a%00b", "", 404, "no name of an app");
	bad("GET", "/v1/apps/a%", "", 404, "no name of an app");
	bad("GET", "/v1/apps/a%4", "", 404, "no name of an app");
	bad("GET", "/v1/apps/*", "", 404, "no name of an app");
	bad("POST", "/v1/apps/*/kill", "{\"signal\":\"TERM\"}", 404, "no name of an app");
	bad("GET", "/v1/apps/\x1b[2J", "", 404, "\\x1b");
	bad("POST", "/v1/status", "", 405, "GET only");
	bad("GET", "/v1/shutdown", "", 405, "POST only");
	bad("DELETE", "/v1/apps/notes", "", 405, "GET only");
	bad("get", "/v1/status", "", 405, "GET only");
}

static void test_strict_words(void **state)
{
	(void)state;
	bad("POST", "/v1/apps/notes/start", "{\"wiat\":false}", 400, "did you mean \"wait\"");
	bad("POST", "/v1/apps/notes/start", "{\"wait\":1}", 400, "true or false");
	bad("POST", "/v1/apps/notes/start", "{\"wait\":true,\"wait\":false}", 400, "twice");
	bad("POST", "/v1/apps/notes/start", "[]", 400, "object");
	bad("POST", "/v1/apps/notes/start", "{\"wait\":true", 400, "body");
	bad("POST", "/v1/apps/notes/start", "{} x", 400, "body");
	bad("POST", "/v1/apps/notes/start?wait=0", "", 400, "unknown query argument");
	bad("POST", "/v1/apps/notes/kill", "", 400, "needs {\"signal\"");
	bad("POST", "/v1/apps/notes/kill", "{\"signal\":\"TREM\"}", 400, "signal");
	bad("POST", "/v1/apps/notes/kill", "{\"signal\":15}", 400, "signal");
	bad("POST", "/v1/apps/notes/kill", "{\"signal\":\"0\"}", 400, "signal");
	bad("POST", "/v1/shutdown", "{\"grace_ms\":-1}", 400, "grace_ms");
	bad("POST", "/v1/shutdown", "{\"grace_ms\":1e300}", 400, "grace_ms");
	bad("POST", "/v1/shutdown", "{\"grace_ms\":\"5\"}", 400, "grace_ms");
	bad("POST", "/v1/shutdown", "{\"grace_ms\":3600001}", 400, "grace_ms");
	bad("POST", "/v1/reload", "{\"now\":true}", 400, "unknown key");
	bad("GET", "/v1/events?line=5", "", 400, "did you mean \"lines\"");
	bad("GET", "/v1/events?lines=5&lines=6", "", 400, "twice");
	bad("GET", "/v1/events?lines=-5", "", 400, "lines");
	bad("GET", "/v1/events?lines=", "", 400, "lines");
	bad("GET", "/v1/events?lines=100001", "", 400, "lines");
	bad("GET", "/v1/events?follow=maybe", "", 400, "follow");
	bad("GET", "/v1/events?app=..", "", 404, "no name of an app");
	bad("GET", "/v1/events?%zz=1", "", 400, "malformed");
	bad("GET", "/v1/events?&", "", 400, "unknown query argument");
	bad("GET", "/v1/version?x", "", 400, "unknown query argument");
}

static void test_bounds(void **state)
{
	CLEANUP_ERR struct err *e = NULL;
	CLEANUP_FREE char *target = xmalloc(CTL_TARGET_MAX + 2), *body = xcalloc(1, CTL_BODY_MAX + 1);
	struct ctl_call c;
	int status = 0;

	(void)state;
	memset(target, 'a', CTL_TARGET_MAX + 1);
	target[CTL_TARGET_MAX + 1] = 0;
	assert_int_equal(ctl_route("GET", target, "", 0, &c, &status, &e), -1);
	assert_int_equal(status, 413);
	status = 0;
	assert_int_equal(ctl_route("POST", "/v1/reload", body, CTL_BODY_MAX + 1, &c, &status, &e), -1);
	assert_int_equal(status, 413);
	/* the longest name fits, one byte more does not */
	memset(target, 'a', 63);
	target[63] = 0;
	{
		CLEANUP_FREE char *ok = xasprintf("/v1/apps/%s/stop", target);
		CLEANUP_FREE char *no = xasprintf("/v1/apps/%sa/stop", target);

		assert_string_equal(good("POST", ok, "").app, target);
		bad("POST", no, "", 404, "no name of an app");
	}
}

/* sbxsv-api(7) lists each route, and no other. */
static void test_man_page(void **state)
{
	const char *srcdir = getenv("srcdir"), *method, *path;
	CLEANUP_FREE char *name = xasprintf("%s/doc/sbxsv-api.7", srcdir ? srcdir : ".");
	CLEANUP_FREE char *text = NULL;
	size_t routes = 0, items = 0;

	(void)state;
	if (file_read(AT_FDCWD, name, 1 << 20, &text, NULL, NULL))
		fail_msg("%s cannot be read", name);
	for (; ctl_route_row(routes, &method, &path); routes++) {
		CLEANUP_FREE char *item = xasprintf("\n.It Cm %s %s\n", method, path);

		if (!strstr(text, item))
			fail_msg("sbxsv-api(7) lacks %s %s", method, path);
	}
	for (const char *at = text; (at = strstr(at, "\n.It Cm ")); at++)
		items += strstr(at, " /v1/") && strstr(at, " /v1/") < strchr(at + 1, '\n');
	assert_int_equal(items, routes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain),        cmocka_unit_test(test_commands),
		cmocka_unit_test(test_streams),      cmocka_unit_test(test_refused),
		cmocka_unit_test(test_strict_words), cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_man_page),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
