/* What sbxsv-proxy may say to sbxsvd, if somebody has taken it over: messages separated by newlines. Whatever
 * comes, the supervisor's picture of the apps stays bounded and printable, and only sockets of a jail that
 * exists are made. */
#include "net/proxyctl_in.h"
#include "base/log.h"
#include "base/str.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LAUNCH 3

static struct pc_app *apps;

static void on_event(void *data, const struct js *event)
{
	CLEANUP_FREE char *text = js_print(event);
	const char *app = js_str(event, "app"), *type = js_str(event, "type");

	(void)data;
	assert(pc_app_find(apps, app) && (str_eq(type, "violation") || str_eq(type, "unreachable")) && text);
}

static void on_synced(void *data, uint64_t n)
{
	(void)data;
	if (!n)
		abort();
}

static void on_need(void *data, struct pc_app *a, size_t n)
{
	size_t *made = data;

	assert(a->launch == LAUNCH && n <= PC_POOL_MAX);
	*made += n;
}

static void on_use(void *data, struct pc_app *a, enum proxy_use use)
{
	(void)data;
	assert(use == PROXY_WANTED ? a->gate == PROXY_GATE_REST : a->gate == PROXY_GATE_HOLD);
}

static void check(const struct pc_app *a)
{
	CLEANUP_JS struct js *list = pc_app_denied_list(a, false);
	CLEANUP_FREE char *text = js_print(list);
	struct proxyctl_app_counters all;

	assert(js_len(list) <= PC_DENIED_MAX && strlen(text) <= (size_t)PC_DENIED_MAX * 8192);
	for (size_t i = 0; i < a->n_denied; i++) {
		assert(strlen(a->denied[i].host) < 256 && strlen(a->denied[i].hint) < 384);
		for (const char *s = a->denied[i].host; *s; s++)
			assert((unsigned char)*s >= 0x20 && *s != 0x7f);
	}
	pc_app_totals(a, &all);
	assert(all.in_open <= 1ull << 53 && all.out_open <= 1ull << 53);
}

static void at_gate(const char *app, enum proxy_gate gate, uint64_t n)
{
	struct pc_app *a = pc_app_get(&apps, app);

	a->gate = gate;
	a->gate_n = n;
	a->idle_ms = 1000;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t made = 0;
	struct pc_in in = {.apps = &apps,
			   .event = on_event,
			   .need = on_need,
			   .synced = on_synced,
			   .use = on_use,
			   .data = &made};
	const char *at = (const char *)data, *end = at + size;

	log_init("fuzz", LOG_LEVEL_ERROR);
	pc_app_get(&apps, "notes")->launch = LAUNCH;
	at_gate("notes", PROXY_GATE_SERVE, 7);
	at_gate("web@1", PROXY_GATE_REST, 8);
	while (at < end) {
		const char *nl = memchr(at, '\n', (size_t)(end - at)), *stop = nl ? nl : end;
		CLEANUP_JS struct js *m = js_parse(at, (size_t)(stop - at), NULL);

		if (m && js_is_obj(m)) /* as base/wire.c does */
			pc_message(&in, m);
		at = stop + 1;
	}
	assert(made <= PC_POOL_RATE * 2u); /* a second may end in between */
	for (struct pc_app *a = apps; a; a = a->next) {
		pc_app_proxy_died(a);
		check(a);
	}
	while (apps)
		pc_app_free(&apps, apps);
	return 0;
}
