#include "net/proxyctl_in.h"
#include "base/log.h"
#include "base/str.h"
#include "base/wire.h"

static void complain(struct pc_in *in, const char *what)
{
	if (!in->complained)
		log_warning("sbxsv-proxy sent %s; ignored, as more of the kind will be", what);
	in->complained = true;
}

static struct pc_app *app_of(const struct pc_in *in, const struct js *m)
{
	return pc_app_find(*in->apps, js_str(m, "app"));
}

/* An app that is gone may still be spoken of: what was on its way is no mistake. */
static void on_need(struct pc_in *in, const struct js *m)
{
	struct pc_app *a = app_of(in, m);
	int64_t n = js_int_or(m, "n", 0);

	if (!a || !a->launch || js_int_or(m, "launch", -1) != (int64_t)a->launch)
		return;
	if (n < 1 || n > PC_POOL_MAX) {
		complain(in, "a need for an impossible number of sockets");
		return;
	}
	in->need(in->data, a, pc_app_pool_grant(a, (size_t)n));
}

static void on_denied(struct pc_in *in, const struct js *m)
{
	struct pc_app *a = app_of(in, m);
	CLEANUP_JS struct js *event = NULL;
	struct pc_refusal r;

	if (!a)
		return;
	if (pc_refusal_read(m, &r) < 0) {
		complain(in, "a refusal that cannot be read");
		return;
	}
	pc_app_denied(a, &r);
	event = pc_denied_event(a, &r);
	in->event(in->data, event);
}

static void on_counters(struct pc_in *in, const struct js *m)
{
	for (const struct js *j = js_first(js_get(m, "apps")); j; j = js_next(j)) {
		struct pc_app *a = pc_app_find(*in->apps, js_key(j));

		if (a)
			pc_app_counters(a, j);
	}
}

static void on_synced(struct pc_in *in, const struct js *m)
{
	int64_t n = js_int_or(m, "n", 0);

	if (n < 1)
		complain(in, "an answer to nothing");
	else
		in->synced(in->data, (uint64_t)n);
}

/* What crossed a newer order of ours on its way means nothing: the proxy looks again. */
static void on_use(struct pc_in *in, const struct js *m, enum proxy_use use)
{
	struct pc_app *a = app_of(in, m);

	if (!a || js_int_or(m, "n", -1) != (int64_t)a->gate_n || !a->gate_n)
		return;
	if (use == PROXY_UNUSED && a->gate == PROXY_GATE_SERVE && a->idle_ms && a->launch) {
		a->gate = PROXY_GATE_HOLD;
		in->use(in->data, a, use);
	} else if (use == PROXY_WANTED && a->gate == PROXY_GATE_REST) {
		in->use(in->data, a, use);
	} else {
		complain(in, "a word about use that does not fit its gate");
	}
}

static void on_hello(struct pc_in *in, const struct js *m)
{
	int64_t v = js_int_or(m, "v", -1);

	if (v == WIRE_VERSION || in->complained)
		return;
	in->complained = true;
	log_error("sbxsv-proxy speaks version %lld of the protocol, not %d: install one release of both",
		  (long long)v, WIRE_VERSION);
}

void pc_message(struct pc_in *in, const struct js *m)
{
	const char *type = js_str(m, "t");

	if (str_eq(type, "need"))
		on_need(in, m);
	else if (str_eq(type, "denied") || str_eq(type, "unreachable"))
		on_denied(in, m);
	else if (str_eq(type, "counters"))
		on_counters(in, m);
	else if (str_eq(type, "synced"))
		on_synced(in, m);
	else if (str_eq(type, "wanted"))
		on_use(in, m, PROXY_WANTED);
	else if (str_eq(type, "unused"))
		on_use(in, m, PROXY_UNUSED);
	else if (str_eq(type, "hello"))
		on_hello(in, m);
	else
		complain(in, "an unknown message");
}
