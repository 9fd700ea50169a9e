#include "trace/events.h"
#include "trace/fold.h"
#include "trace/memory.h"
#include "base/clock.h"
#include "base/linefile.h"
#include "base/str.h"
#include <string.h>

#define EARLIER_BYTES (64u << 10) /* of the file of an earlier run, read at start */
#define RETRY_MS      2000

struct events_sub {
	struct events_sub *next;
	struct events *ev;
	events_fn *fn; /* NULL: ended while events are handed out */
	void *data;
};

struct events {
	struct loop *loop;
	struct linefile *file;
	struct event_memory *memory;
	struct fold *fold;
	uint64_t seq, dropped;
	struct events_sub *subs;
	unsigned handing_out;
	struct loop_timer fold_timer, retry;
};

static char *loss_mark(void *data, uint64_t lines, uint64_t bytes, const char *error)
{
	CLEANUP_JS struct js *j = js_obj();
	CLEANUP_FREE char *line = NULL;
	char stamp[CLK_STAMP_LEN];

	(void)data;
	(void)bytes;
	js_add_str(j, "timestamp", clk_stamp(clk_wall_ms(), stamp, sizeof stamp));
	js_add_str(j, "type", "supervisor");
	js_add_int(j, "dropped", (int64_t)lines);
	js_add_str(j, "message", "events are missing here");
	js_add_str(j, "error", error);
	line = js_print(j);
	return xasprintf("%s\n", line);
}

/* --- one line out --- */

static void sweep_subs(struct events *ev)
{
	struct events_sub **at = &ev->subs, *s;

	while ((s = *at)) {
		if (s->fn) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		free(s);
	}
}

static void hand_out(struct events *ev, const char *json, size_t len, const char *app)
{
	ev->handing_out++;
	for (struct events_sub *s = ev->subs; s; s = s->next)
		if (s->fn)
			s->fn(s->data, json, len, app);
	if (--ev->handing_out == 0)
		sweep_subs(ev);
}

/* Owns event. */
static void put(void *data, struct js *event)
{
	struct events *ev = data;
	CLEANUP_JS struct js *own = event;
	CLEANUP_FREE char *rest = js_print(own);
	CLEANUP_STRBUF struct strbuf line = STRBUF_INIT;
	const char *app = js_str(own, "app");
	char stamp[CLK_STAMP_LEN];

	if (strlen(rest) > EVENTS_LINE_MAX || !js_str(own, "type")) {
		ev->dropped++;
		return;
	}
	ev->seq++;
	strbuf_addf(&line, "{\"seq\":%llu,\"timestamp\":\"%s\",%s\n", (unsigned long long)ev->seq,
		    clk_stamp(clk_wall_ms(), stamp, sizeof stamp), rest + 1);
	if (linefile_write(ev->file, line.p, line.len) < 0 && !loop_timer_active(&ev->retry))
		loop_timer_start(&ev->retry, RETRY_MS);
	line.p[--line.len] = 0;
	event_memory_add(ev->memory, app ? app : "", ev->seq, line.p, line.len);
	hand_out(ev, line.p, line.len, app);
}

static void expire(struct loop_timer *w)
{
	struct events *ev = w->data;
	int64_t now = clk_mono_ms(), next = fold_expire(ev->fold, now, put, ev);

	if (next >= 0)
		loop_timer_start(w, next - now);
}

static void retry_cb(struct loop_timer *w)
{
	struct events *ev = w->data;

	if (!linefile_retry(ev->file))
		loop_timer_start(w, RETRY_MS);
}

void events_emit(struct events *ev, struct js *event)
{
	const char *type = js_str(event, "type");

	if (type && strcmp(type, "violation") == 0) {
		enum fold_verdict v = fold_add(ev->fold, event, clk_mono_ms());

		if (!loop_timer_active(&ev->fold_timer))
			loop_timer_start(&ev->fold_timer, 1000);
		if (v == FOLD_DROPPED)
			ev->dropped += fold_weight(event);
		if (v != FOLD_WRITE) {
			js_free(event);
			return;
		}
	}
	put(ev, event);
}

void events_note(struct events *ev, const char *type, const char *app, const char *fmt, ...)
{
	CLEANUP_FREE char *text = NULL;
	struct js *j = js_obj();
	va_list ap;

	va_start(ap, fmt);
	text = xvasprintf(fmt, ap);
	va_end(ap);
	if (app)
		js_add_str(j, "app", app);
	js_add_str(j, "type", type);
	js_add_str(j, "message", text);
	events_emit(ev, j);
}

/* --- life --- */

/* seq goes on, and `sbxsv events` shows what was before this start. */
static void remember_earlier(struct events *ev)
{
	size_t len = 0;
	CLEANUP_FREE char *text = linefile_earlier(ev->file, EARLIER_BYTES, &len);
	const char *p = text, *nl;

	for (; p && (nl = memchr(p, '\n', len - (size_t)(p - text))); p = nl + 1) {
		CLEANUP_JS struct js *j = js_parse(p, (size_t)(nl - p), NULL);
		const char *app = js_str(j, "app");
		int64_t seq;

		if (!js_is_obj(j) || js_int(j, "seq", &seq) < 0 || seq < 1)
			continue;
		if ((uint64_t)seq > ev->seq)
			ev->seq = (uint64_t)seq;
		event_memory_add(ev->memory, app ? app : "", (uint64_t)seq, p, (size_t)(nl - p));
	}
}

static struct events *create(struct loop *l, const char *dir)
{
	struct events *ev = xcalloc(1, sizeof *ev);
	struct linefile_config c = {.dir = dir,
				    .file = EVENTS_FILE,
				    .max_size = EVENTS_FILE_SIZE,
				    .max_files = EVENTS_FILE_COUNT};
	struct linefile_hooks h = {.mark = loss_mark};

	ev->loop = l;
	ev->file = linefile_create(&c, &h);
	ev->memory = event_memory_create();
	ev->fold = fold_create();
	loop_timer_init(l, &ev->fold_timer, expire, ev);
	loop_timer_init(l, &ev->retry, retry_cb, ev);
	return ev;
}

struct events *events_create(struct loop *l, const char *dir, struct err **e)
{
	struct events *ev = create(l, dir);

	(void)e;
	remember_earlier(ev);
	return ev;
}

/* --- across an exec --- */

static const struct keep_field fields[] = {
	KEEP(events, U64, seq),
	KEEP(events, U64, dropped),
	KEEP(events, TIMER, retry),
};

void events_settle(struct events *ev)
{
	(void)fold_expire(ev->fold, INT64_MAX, put, ev);
	loop_timer_stop(&ev->fold_timer);
}

struct js *events_save(struct keep *k, const struct events *ev)
{
	struct js *o = js_obj();

	keep_save(k, o, fields, ELEMENTS(fields), ev);
	js_add(o, "file", linefile_save(k, ev->file));
	js_add(o, "memory", event_memory_save(k, ev->memory));
	return o;
}

struct events *events_restore(struct keep *k, const struct js *o, struct loop *l, const char *dir)
{
	struct events *ev = create(l, dir);

	keep_load(k, o, fields, ELEMENTS(fields), ev);
	linefile_restore(k, js_get(o, "file"), ev->file);
	event_memory_restore(k, js_get(o, "memory"), ev->memory);
	return ev;
}

void events_destroy(struct events *ev)
{
	if (!ev)
		return;
	loop_timer_stop(&ev->fold_timer);
	loop_timer_stop(&ev->retry);
	(void)fold_expire(ev->fold, INT64_MAX, put, ev);
	(void)linefile_retry(ev->file);
	while (ev->subs) {
		struct events_sub *s = ev->subs;

		ev->subs = s->next;
		free(s);
	}
	fold_destroy(ev->fold);
	event_memory_destroy(ev->memory);
	linefile_destroy(ev->file);
	free(ev);
}

struct events_sub *events_subscribe(struct events *ev, events_fn *fn, void *data)
{
	struct events_sub *s = xcalloc(1, sizeof *s), **at = &ev->subs;

	while (*at)
		at = &(*at)->next;
	*at = s;
	s->ev = ev;
	s->fn = fn;
	s->data = data;
	return s;
}

void events_unsubscribe(struct events_sub *s)
{
	s->fn = NULL;
	if (!s->ev->handing_out)
		sweep_subs(s->ev);
}

struct js *events_last(const struct events *ev, const char *app, size_t n)
{
	return event_memory_last(ev->memory, app, n);
}

uint64_t events_dropped(const struct events *ev)
{
	return ev->dropped + linefile_dropped_lines(ev->file);
}

const char *events_path(const struct events *ev)
{
	return linefile_path(ev->file);
}

const char *events_error(const struct events *ev)
{
	return linefile_error(ev->file);
}
