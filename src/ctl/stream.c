/*
 * Lines: an app's log and the events, the old ones and then, with follow, those to come.
 *
 * A stream has a buffer of its own. A line is appended when it happens; MHD takes from the buffer when the
 * client reads. While the buffer is empty the connection is suspended. A client that is more than 1 MiB
 * behind is cut: the supervisor neither waits for it nor keeps what it does not read.
 */
#include "ctl/internal.h"
#include "base/clock.h"
#include "base/log.h"
#include <string.h>

#define BLOCK ((size_t)16 << 10) /* what MHD asks for at once */

struct stream {
	struct ctl *ctl;
	struct request *r; /* NULL: the request is gone; which of the two goes first is MHD's business */
	struct strbuf buf;
	size_t taken;      /* bytes of buf that the client has */
	size_t behind_max; /* the old lines come on top of CTL_BEHIND_MAX */
	bool follow, counted, sse, json, cut;
	struct logs_back *back; /* old lines, read as the client takes them; they come before those of buf */
	struct strbuf old;
	size_t old_taken;
	struct logs *log; /* there as long as `logs` is */
	struct logs_follow *logs;
	char app[sizeof((struct ctl_call *)0)->app];
	struct events_sub *events;
};

static void unsubscribe(struct stream *s)
{
	if (s->logs)
		logs_follow_stop(TAKE_PTR(s->logs));
	if (s->events)
		events_unsubscribe(TAKE_PTR(s->events));
}

static void cut(struct stream *s)
{
	s->cut = true;
	s->ctl->cut++;
	unsubscribe(s);
	log_warning("control socket: a client that follows lines was cut: it does not read (%llu cut so far)",
		    (unsigned long long)s->ctl->cut);
	req_cut(s->r);
}

void stream_detach(struct stream *s)
{
	if (!s)
		return;
	unsubscribe(s);
	s->r = NULL;
}

static void put_line(struct stream *s, const char *line, size_t len)
{
	if (s->sse)
		strbuf_adds(&s->buf, "data: ");
	strbuf_add(&s->buf, line, len);
	strbuf_adds(&s->buf, s->sse ? "\n\n" : "\n");
}

/* {"app","time","line"}: bytes that JSON cannot carry are written as \xNN, and "escaped" says so. */
static void put_json(struct stream *s, const struct back_line *l, struct strbuf *to)
{
	CLEANUP_FREE char *safe = str_escape(l->text, l->len), *text = NULL;
	CLEANUP_JS struct js *j = js_obj();
	char stamp[CLK_STAMP_LEN];

	js_add_str(j, "app", s->app);
	if (l->ms)
		js_add_str(j, "time", clk_stamp(l->ms, stamp, sizeof stamp));
	js_add_str(j, "line", safe);
	if (strlen(safe) != l->len || memcmp(safe, l->text, l->len) != 0)
		js_add_bool(j, "escaped", true);
	text = js_print(j);
	strbuf_adds(to, text);
	strbuf_addc(to, '\n');
}

static void put_old(struct stream *s, const struct back_line *l)
{
	if (s->json) {
		put_json(s, l, &s->old);
		return;
	}
	strbuf_add(&s->old, l->stamp, (size_t)(l->text - l->stamp) + l->len);
	strbuf_addc(&s->old, '\n');
}

/* A block of old lines; none when all are through. */
static void fill_old(struct stream *s)
{
	struct back_line l;

	strbuf_reset(&s->old);
	s->old_taken = 0;
	while (s->back && s->old.len < BLOCK) {
		if (logs_back_next(s->back, &l)) {
			put_old(s, &l);
		} else {
			logs_back_close(s->back);
			s->back = NULL;
		}
	}
}

/* A line that happens now. */
static void push(struct stream *s, const char *line, size_t len)
{
	if (s->cut)
		return;
	if (s->taken && s->taken >= s->buf.len / 2) {
		/* what is left moves to the front; it is at most half, so this costs no more than the copying
		 * in */
		memmove(s->buf.p, s->buf.p + s->taken, s->buf.len - s->taken);
		s->buf.len -= s->taken;
		s->taken = 0;
	}
	if (s->buf.len - s->taken + len > s->behind_max) {
		cut(s);
		return;
	}
	put_line(s, line, len);
	req_resume(s->r);
}

static void on_log_line(void *data, const char *line, size_t len)
{
	struct stream *s = data;

	if (line && s->json) {
		CLEANUP_STRBUF struct strbuf text = STRBUF_INIT;
		struct back_line l = {.text = line, .len = len, .ms = clk_wall_ms()};

		logs_split_stamp(s->log, &l);
		put_json(s, &l, &text);
		push(s, text.p, text.len - 1);
		return;
	}
	if (line) {
		push(s, line, len);
		return;
	}
	/* The app was removed: what is in the buffer is still delivered, then the answer ends. */
	s->logs = NULL;
	s->follow = false;
	req_resume(s->r);
}

static void on_event(void *data, const char *json, size_t len, const char *app)
{
	struct stream *s = data;

	if (!s->r->call.app[0] || str_eq(s->r->call.app, app))
		push(s, json, len);
}

/* MHD wants bytes. */
static ssize_t on_read(void *data, uint64_t pos, char *out, size_t max)
{
	struct stream *s = data;
	size_t left;

	(void)pos;
	if (s->cut || !s->r || s->r->client_gone)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	if (s->old_taken == s->old.len)
		fill_old(s);
	if (s->old.len) {
		left = s->old.len - s->old_taken < max ? s->old.len - s->old_taken : max;
		memcpy(out, s->old.p + s->old_taken, left);
		s->old_taken += left;
		return (ssize_t)left;
	}
	left = s->buf.len - s->taken;
	if (!left && !s->follow)
		return MHD_CONTENT_READER_END_OF_STREAM;
	if (!left) {
		req_suspend(s->r);
		return 0;
	}
	if (left > max)
		left = max;
	memcpy(out, s->buf.p + s->taken, left);
	s->taken += left;
	return (ssize_t)left;
}

static void on_free(void *data)
{
	struct stream *s = data;

	unsubscribe(s);
	if (s->r)
		s->r->stream = NULL;
	s->ctl->streams -= s->counted;
	strbuf_finish(&s->buf);
	strbuf_finish(&s->old);
	logs_back_close(s->back);
	free(s);
}

static enum MHD_Result begin(struct request *r, struct stream *s, const char *type)
{
	struct MHD_Response *resp =
		MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, on_read, s, on_free);
	enum MHD_Result ok;

	if (!resp) {
		on_free(s);
		return MHD_NO;
	}
	(void)MHD_add_response_header(resp, "Content-Type", type);
	(void)MHD_add_response_header(resp, "Cache-Control", "no-store");
	if (s->follow)
		(void)MHD_set_connection_option(r->conn, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
	s->behind_max = s->buf.len + CTL_BEHIND_MAX;
	r->phase = REQ_ANSWERED;
	ok = MHD_queue_response(r->conn, 200, resp);
	MHD_destroy_response(resp);
	return ok;
}

/* NULL when there are too many; the reply is queued then. */
static struct stream *stream_new(struct request *r, enum MHD_Result *ret)
{
	struct stream *s;

	if (r->call.follow && r->ctl->streams >= CTL_STREAMS_MAX) {
		*ret = req_error(r, 503, 1, "too many clients follow logs and events (48)");
		return NULL;
	}
	s = xcalloc(1, sizeof *s);
	s->ctl = r->ctl;
	s->r = r;
	r->stream = s;
	s->follow = r->call.follow;
	s->counted = s->follow;
	r->ctl->streams += s->counted;
	return s;
}

enum MHD_Result stream_logs(struct request *r)
{
	struct logs *l =
		sup_has_app(r->ctl->sup, r->call.app) ? sup_app_logs(r->ctl->sup, r->call.app) : NULL;
	CLEANUP_FREE char *text = NULL;
	enum MHD_Result ret;
	struct stream *s;

	if (!l) {
		text = sup_no_app(r->ctl->sup, r->call.app);
		return req_error(r, 404, 4, text);
	}
	s = stream_new(r, &ret);
	if (!s)
		return ret;
	s->log = l;
	s->json = r->call.json;
	(void)snprintf(s->app, sizeof s->app, "%s", r->call.app);
	s->back = logs_back_start(l, r->call.lines, r->call.since_ms);
	if (s->follow)
		s->logs = logs_follow_start(l, on_log_line, s);
	return begin(r, s, s->json ? "application/x-ndjson" : "text/plain; charset=utf-8");
}

static bool wants_sse(struct request *r)
{
	const char *accept = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);

	return accept && strcasestr(accept, "text/event-stream");
}

enum MHD_Result stream_events(struct request *r)
{
	const char *app = r->call.app[0] ? r->call.app : NULL;
	struct events *ev = sup_events(r->ctl->sup);
	CLEANUP_JS struct js *old = events_last(ev, app, r->call.lines);
	CLEANUP_FREE char *text = NULL;
	enum MHD_Result ret;
	struct stream *s;

	/* an app that was removed still has its events */
	if (app && !js_len(old) && !sup_has_app(r->ctl->sup, app)) {
		text = xasprintf("there is no app \"%s\", and no event of one", app);
		return req_error(r, 404, 4, text);
	}
	s = stream_new(r, &ret);
	if (!s)
		return ret;
	s->sse = wants_sse(r);
	for (const struct js *e = js_first(old); e; e = js_next(e)) {
		CLEANUP_FREE char *line = js_print(e);

		put_line(s, line, strlen(line));
	}
	if (s->follow)
		s->events = events_subscribe(ev, on_event, s);
	return begin(r, s, s->sse ? "text/event-stream" : "application/x-ndjson");
}
