#include "cli/refusals.h"
#include "base/fd.h"
#include "cli/cli.h"
#include "cli/violation.h"
#include "net/net.h"
#include "sandbox/judge.h"
#include "trace/observer.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { KINDS_MAX = 1000, LINES_MAX = 20 };

void refusals_init(struct refusals *r)
{
	*r = (struct refusals){.list = js_arr()};
}

void refusals_finish(struct refusals *r)
{
	observer_destroy(r->observer, 0);
	r->observer = NULL;
	observer_finish(100); /* no loop comes after this */
	js_free(r->list);
	r->list = NULL;
}

/* Owns the event. */
static void add(struct refusals *r, struct js *event)
{
	int64_t n = js_int_or(event, "count", 1);
	struct js *e = NULL;

	for (const struct js *i = js_first(r->list); i && !e; i = js_next(i))
		if (observed_same(i, event))
			e = (struct js *)i; /* of our own list */
	if (e) {
		n += js_int_or(e, "count", 1);
		js_remove(e, "count");
		js_add_int(e, "count", n);
	} else if (js_len(r->list) < KINDS_MAX) {
		js_push(r->list, event);
		return;
	} else {
		r->lost += (uint64_t)n;
	}
	js_free(event);
}

static void on_event(void *data, struct js *event)
{
	struct refusals *r = data;

	if (r->on_event)
		r->on_event(r->event_data, event);
	add(r, event);
}

static char *on_local(void *data, uint16_t port)
{
	(void)data;
	return xasprintf("Loopback=%u", port);
}

static void on_lost(void *data, uint64_t n)
{
	struct refusals *r = data;

	r->lost += n;
}

int refusals_listen(struct refusals *r, struct loop *l, const struct plan *p, const struct unit *u,
		    const struct launch_audit *fds, struct err **e)
{
	struct observer_config c = {.listener = fds->listener_fd,
				    .root = fds->root_fd,
				    .mntns = fds->mntns_fd,
				    .diag = fds->diag_fd,
				    .app = p->app,
				    .command = !r->app,
				    .program = p->program,
				    .uid = geteuid() == 0 ? p->user.uid : (uid_t)-1,
				    .gid = p->user.gid,
				    .network_off = u->egress == UNIT_EGRESS_OFF,
				    .judge = judge_create(p),
				    .decide = judge_bits,
				    .words = judge_words,
				    .gone = judge_gone,
				    .event = on_event,
				    .listens = net_loopback_listens,
				    .host_diag = net_open_diag,
				    .local = on_local,
				    .lost = on_lost,
				    .data = r};

	r->observer = observer_create(l, &c, e);
	return r->observer ? 0 : -1;
}

static void on_drained(void *data)
{
	struct refusals *r = data;

	r->over(r->data);
}

bool refusals_drain(struct refusals *r, void (*over)(void *data), void *data)
{
	r->over = over;
	r->data = data;
	return !r->observer || observer_drain(r->observer, on_drained);
}

void refusals_add_hosts(struct refusals *r, const char *app, const struct js *denied)
{
	static const char *const texts[] = {"host", "rule", "hint"};

	for (const struct js *d = denied ? js_first(denied) : NULL; d; d = js_next(d)) {
		struct js *e = js_obj();

		js_add_str(e, "app", app);
		js_add_str(e, "type", "violation");
		js_add_str(e, "operation", js_int_or(d, "port", 0) ? "connect" : "resolve");
		for (size_t i = 0; i < ELEMENTS(texts); i++)
			if (js_str(d, texts[i]))
				js_add_str(e, texts[i], js_str(d, texts[i]));
		if (js_int_or(d, "port", 0))
			js_add_int(e, "port", js_int_or(d, "port", 0));
		js_add_str(e, "action", "denied");
		if (js_int_or(d, "count", 1) > 1)
			js_add_int(e, "count", js_int_or(d, "count", 1));
		js_push(r->list, e);
	}
}

static void print_one(const struct js *e, bool app)
{
	CLEANUP_FREE char *text = violation_text(e),
			  *advice = violation_advice(e, app ? js_str(e, "app") : NULL);
	bool option = advice && str_starts(advice, "--");

	(void)fprintf(stderr, "sbxsv: refused: %s%s%s\n", text,
		      !advice  ? ""
		      : option ? "; to allow it: "
			       : "; ",
		      advice ? advice : "");
}

void refusals_print(const struct refusals *r)
{
	size_t n = 0;

	for (const struct js *e = js_first(r->list); e && n < LINES_MAX; e = js_next(e), n++)
		print_one(e, r->app);
	if (js_len(r->list) > n)
		(void)fprintf(stderr, "sbxsv: refused: %zu more%s\n", js_len(r->list) - n,
			      r->app ? "" : " (--report FILE has all)"); /* an option of exec */
	if (r->lost)
		(void)fprintf(stderr,
			      "sbxsv: %" PRIu64 " refusals or calls more were not recorded one by one\n",
			      r->lost);
}

int refusals_report(const struct refusals *r, int fd, int exit_code)
{
	CLEANUP_JS struct js *o = js_obj();
	CLEANUP_FREE char *text = NULL, *line = NULL;

	js_add_int(o, "exit", exit_code);
	js_add(o, "refusals", js_copy(r->list));
	js_add_int(o, "lost", (int64_t)r->lost);
	text = js_print_pretty(o);
	line = xasprintf("%s\n", text);
	return fd_write_all(fd, line, strlen(line));
}
