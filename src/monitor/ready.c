#include "monitor/ready.h"
#include "base/clock.h"
#include "base/str.h"
#include "monitor/probe.h"
#include <string.h>

#define POLL_MAX_MS 200  /* the longest pause between two questions */
#define HTTP_MS     5000 /* one request */

struct ready {
	struct loop *loop;
	struct ready_config c;
	uint16_t *ports;
	char *path;
	ready_fn *fn;
	void *fn_data;
	int64_t begun, pause;
	char *waiting;
	struct loop_timer timer; /* the next question */
	struct tcp_probe *probe;
};

static void ask(struct loop_timer *t);

static void close_request(struct ready *r)
{
	probe_stop(r->probe);
	r->probe = NULL;
}

void ready_stop(struct ready *r)
{
	if (!r)
		return;
	loop_timer_stop(&r->timer);
	close_request(r);
	free(r->ports);
	free(r->path);
	free(r->waiting);
	free(r);
}

/* 1, 2, 4, 7, 11 ... 200 ms: quick apps are seen quickly, slow ones cost little. */
static void later(struct ready *r, char *why)
{
	close_request(r);
	free(r->waiting);
	r->waiting = why;
	r->pause += r->pause / 2 + 1;
	if (r->pause > POLL_MAX_MS)
		r->pause = POLL_MAX_MS;
	loop_timer_start(&r->timer, r->pause);
}

static void done(struct ready *r, char *what)
{
	CLEANUP_FREE char *text = xasprintf("%s after %lld ms", what, (long long)(clk_mono_ms() - r->begun));

	close_request(r);
	loop_timer_stop(&r->timer);
	free(r->waiting);
	r->waiting = what;
	r->fn(r->fn_data, text); /* may free r */
}

static void on_answer(void *data, enum probe_result result, const char *what)
{
	struct ready *r = data;

	if (result == PROBE_OK)
		done(r, xstrdup(what));
	else
		later(r, xstrdup(what));
}

static void begin_request(struct ready *r)
{
	struct probe_config c = {.port = r->ports[0],
				 .http_path = r->path,
				 .timeout_ms = HTTP_MS,
				 .connect = r->c.connect,
				 .data = r->c.data};

	r->probe = probe_start(r->loop, &c, on_answer, r);
}

static void ask(struct loop_timer *t)
{
	struct ready *r = t->data;

	for (size_t i = 0; r->c.listens && i < r->c.n_ports; i++) {
		int yes = r->c.listens(r->c.data, r->ports[i]);

		if (yes == 1)
			continue;
		later(r, yes == 0 ? xasprintf("nothing listens on %u", r->ports[i])
				  : xasprintf("cannot see whether something listens on %u", r->ports[i]));
		return;
	}
	if (r->path) {
		begin_request(r);
	} else {
		struct strbuf b = STRBUF_INIT;

		strbuf_adds(&b, "listening on");
		for (size_t i = 0; i < r->c.n_ports; i++)
			strbuf_addf(&b, "%s%u", i ? ", " : " ", r->ports[i]);
		done(r, strbuf_take(&b));
	}
}

struct ready *ready_start(struct loop *l, const struct ready_config *c, ready_fn *on_ready,
			  void *on_ready_data)
{
	struct ready *r = xcalloc(1, sizeof *r);

	r->loop = l;
	r->c = *c;
	r->ports = xcalloc(c->n_ports ? c->n_ports : 1, sizeof *r->ports);
	if (c->n_ports)
		memcpy(r->ports, c->ports, c->n_ports * sizeof *r->ports);
	r->path = xstrdup(c->http_path);
	r->waiting = xstrdup("not asked yet");
	r->fn = on_ready;
	r->fn_data = on_ready_data;
	r->begun = c->begun_ms ? c->begun_ms : clk_mono_ms();
	loop_timer_init(l, &r->timer, ask, r);
	loop_timer_start(&r->timer, 0);
	return r;
}

int64_t ready_begun_ms(const struct ready *r)
{
	return r->begun;
}

const char *ready_waiting_for(const struct ready *r)
{
	return r->waiting;
}
