/*
 * Taking a Listen= port back from an orphan of the app (doc/design.md section 5). src/ports decides whose
 * process it is; here is only the order of things: every holder must be a verified orphan, then SIGTERM to
 * all, SIGKILL after a second, and when all are gone the port is tried again. One attempt per run of the
 * supervisor and port, those that were broken off apart: whatever takes the port a second time is left alone.
 */
#include "sup/app.h"
#include "base/log.h"
#include "ports/ports.h"
#include "sandbox/identity.h"
#include <errno.h>
#include <signal.h>
#include <string.h>

#define RECLAIM_TERM_MS 1000
#define RECLAIM_KILL_MS 2000
#define RECLAIM_MAX     16

struct reclaim {
	struct app *app;
	uint16_t port;
	int pidfds[RECLAIM_MAX];
	struct loop_io gone[RECLAIM_MAX];
	size_t n, left;
	bool killed;
	struct loop_timer timer;
};

static char *describe(const struct port_holder *h)
{
	if (!h->pid)
		return xasprintf("a process of another user (uid %u)", h->uid);
	return xasprintf("pid %d (%s) in %s", (int)h->pid, h->command ? h->command : "?",
			 h->cwd ? h->cwd : "?");
}

char *reclaim_describe(uint16_t port)
{
	struct port_holders holders = {0};
	char *text = NULL;

	if (ports_find(port, PORTS_AUTO, &holders, NULL) == 0 && holders.n)
		text = describe(&holders.v[0]);
	port_holders_finish(&holders);
	return text;
}

static int first_attempt(struct sup *s, uint16_t port, struct err **e)
{
	for (size_t i = 0; i < s->n_reclaimed; i++)
		if (s->reclaimed[i] == port)
			return err_set(e, EALREADY,
				       "this port was taken back once already, and was taken again");
	VEC_GROW(s->reclaimed, s->n_reclaimed, s->cap_reclaimed);
	s->reclaimed[s->n_reclaimed++] = port;
	return 0;
}

static void forget_attempt(struct sup *s, uint16_t port)
{
	size_t left = 0;

	for (size_t i = 0; i < s->n_reclaimed; i++)
		if (s->reclaimed[i] != port)
			s->reclaimed[left++] = s->reclaimed[i];
	s->n_reclaimed = left;
}

static void finish(struct reclaim *r)
{
	r->app->reclaim = NULL;
	loop_timer_stop(&r->timer);
	for (size_t i = 0; i < r->n; i++)
		loop_io_stop(&r->gone[i]);
	fd_close_many(r->pidfds, r->n);
	free(r);
}

/* Broken off: whatever has the port is still the same, and this was no attempt. */
void reclaim_stop(struct app *a)
{
	if (!a->reclaim)
		return;
	forget_attempt(a->sup, a->reclaim->port);
	finish(a->reclaim);
}

static void signal_all(struct reclaim *r, int sig)
{
	for (size_t i = 0; i < r->n; i++)
		(void)pidfd_signal(r->pidfds[i], sig);
}

static void over(struct reclaim *r)
{
	struct app *a = r->app;

	finish(r);
	run_ports_again(a);
}

static void on_gone(struct loop_io *w, unsigned events)
{
	struct reclaim *r = w->data;

	(void)events;
	loop_io_stop(w);
	if (--r->left == 0)
		over(r);
}

static void on_timer(struct loop_timer *w)
{
	struct reclaim *r = w->data;

	if (r->killed) {
		over(r);
		return;
	}
	r->killed = true;
	signal_all(r, SIGKILL);
	loop_timer_start(w, RECLAIM_KILL_MS);
}

/* Every holder must be an orphan of this app: ending one of two would not free the port. */
static int open_all(struct reclaim *r, struct reclaim_request *rq, const struct port_holders *h,
		    struct err **e)
{
	if (!h->n)
		return err_set(e, ENOENT, "its holder cannot be found");
	if (h->n > RECLAIM_MAX)
		return err_set(e, E2BIG, "%zu processes hold it", h->n);
	for (size_t i = 0; i < h->n; i++) {
		const struct instance_record *rec = &r->app->sup->remains;

		rq->recorded_pid = 0;
		rq->recorded_start = 0;
		for (size_t k = 0; k < rec->n; k++)
			if (rec->v[k].app && str_eq(rec->v[k].app, r->app->name) &&
			    rec->v[k].pid == h->v[i].pid) {
				rq->recorded_pid = rec->v[k].pid;
				rq->recorded_start = rec->v[k].start;
			}
		r->pidfds[r->n] = ports_orphan_pidfd(rq, &h->v[i], e);
		if (r->pidfds[r->n] < 0)
			return -1;
		r->n++;
	}
	return 0;
}

static void begin(struct reclaim *r, const struct port_holders *h)
{
	struct app *a = r->app;
	struct loop *l = a->sup->loop;

	for (size_t i = 0; i < h->n; i++) {
		CLEANUP_FREE char *text = describe(&h->v[i]);

		log_info("%s: port %u is held by an orphan of the app, %s: ending it", a->name, r->port,
			 text);
		events_note(a->sup->events, "port", a->name,
			    "port %u taken back from an orphan of the app: %s", r->port, text);
	}
	r->left = r->n;
	for (size_t i = 0; i < r->n; i++)
		loop_io_init(l, &r->gone[i], r->pidfds[i], LOOP_READ, on_gone, r);
	loop_timer_init(l, &r->timer, on_timer, r);
	loop_timer_start(&r->timer, RECLAIM_TERM_MS);
	signal_all(r, SIGTERM);
}

int reclaim_start(struct app *a, uint16_t port, struct err **e)
{
	struct reclaim_request rq = {.port = port, .app_directory = a->unit->app_directory};
	struct port_holders holders = {0};
	struct plan_user user = {0};
	struct reclaim *r;
	int result = -1;

	if (!a->unit->reclaim)
		return err_set(e, 0, "[Port] Reclaim=no");
	if (identity_find(a->unit, a->sup->dirs, &a->sup->conf, &user, e) < 0)
		return -1;
	rq.app_uid = user.uid;
	identity_finish(&user);
	r = xcalloc(1, sizeof *r);
	r->app = a;
	r->port = port;
	if (ports_find(port, PORTS_AUTO, &holders, e) == 0 && open_all(r, &rq, &holders, e) == 0 &&
	    first_attempt(a->sup, port, e) == 0)
		result = 0;
	if (result < 0) {
		fd_close_many(r->pidfds, r->n);
		free(r);
	} else {
		a->reclaim = r;
		begin(r, &holders);
	}
	port_holders_finish(&holders);
	return result;
}
