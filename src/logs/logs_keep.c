/*
 * A log across an exec of the supervisor: the read ends of its pipes with the lines that have not ended, the last lines in memory,
 * when which of them were written, and what was lost. The file is opened again by its name.
 */
#include "logs/logs_internal.h"
#include <string.h>

static const struct keep_field fields[] = {
	KEEP(logs, U64, sunk_lines), KEEP(logs, U64, sunk_bytes), KEEP(logs, U64, lines),
	KEEP(logs, U64, bytes),      KEEP(logs, TIMER, retry),    KEEP(logs, TIMER, soon),
};

static struct js *pipes_js(struct keep *k, const struct logs *l)
{
	struct js *out = js_arr();

	for (const struct pipe_in *p = l->pipes; p; p = p->next) {
		struct js *o = js_obj();

		keep_fd(k, o, "fd", p->fd);
		keep_text(k, o, "mark", p->mark);
		keep_bytes(k, o, "half", p->half.p, p->half.len);
		js_push(out, o);
	}
	return out;
}

struct js *logs_save(struct keep *k, const struct logs *l)
{
	struct js *o = js_obj();

	keep_save(k, o, fields, ELEMENTS(fields), l);
	js_add(o, "pipes", pipes_js(k, l));
	js_add(o, "file", linefile_save(k, l->file));
	ring_save(k, o, "ring", &l->ring);
	js_add(o, "times", times_save(&l->times));
	keep_bytes(k, o, "out", l->out.p, l->out.len);
	if (l->sink)
		js_add(o, "sink", sink_save(k, l->sink));
	return o;
}

static void restore_pipe(struct keep *k, const struct js *o, struct logs *l, struct pipe_in **at)
{
	struct pipe_in *p = xcalloc(1, sizeof *p);
	size_t len;
	const char *half = keep_get_bytes(k, o, "half", &len);

	p->logs = l;
	p->fd = keep_take_fd(k, o, "fd");
	if (p->fd < 0) {
		keep_wrong(k, "the pipe of a log was not handed over");
		free(p);
		return;
	}
	p->mark = keep_get_text(k, o, "mark");
	if (!p->mark)
		p->mark = xstrdup("");
	if (len && len <= LOGS_LINE_MAX)
		strbuf_add(&p->half, half, len);
	*at = p;
	loop_io_init(l->loop, &p->io, p->fd, LOOP_READ, logs_readable, p);
}

void logs_restore(struct keep *k, const struct js *o, struct logs *l)
{
	struct pipe_in **at = &l->pipes;
	size_t len;
	const char *out = keep_get_bytes(k, o, "out", &len);

	strbuf_add(&l->out, out, len);
	keep_load(k, o, fields, ELEMENTS(fields), l);
	for (const struct js *p = js_first(js_get(o, "pipes")); p; p = js_next(p)) {
		restore_pipe(k, p, l, at);
		if (*at)
			at = &(*at)->next;
	}
	linefile_restore(k, js_get(o, "file"), l->file);
	ring_restore(k, o, "ring", &l->ring);
	times_restore(k, js_get(o, "times"), &l->times);
	if (l->sink && js_get(o, "sink"))
		sink_restore(k, js_get(o, "sink"), l->sink);
}
