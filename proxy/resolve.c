#include "proxy/resolve.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "proxy/control.h"
#include "proxy/hosts.h"
#include <ares.h>
#include <string.h>
#include <sys/stat.h>

#define QUERY_MS    2000
#define TRIES       2
#define TTL_MAX_S   60
#define NEGATIVE_MS 2000
#define FAILED_MS   1000 /* RFC 9520 3.2: a failure is remembered for a second at least */
#define RESOLV_CONF "/etc/resolv.conf"
#define LOOKUPS     "b" /* DNS only; hosts.c has read /etc/hosts */

struct entry {
	struct entry *prev, *next; /* most recently used first */
	struct entry *done_next;
	struct resolver *r;
	char *host;
	struct addr *v;
	size_t n;
	enum resolve_result result;
	const char *why;
	int64_t expires_ms;
	bool asking; /* c-ares will call back */
	struct resolve_waiter *waiters;
	struct loop_timer limit;
};

struct watch { /* one socket of c-ares */
	struct watch *next;
	struct resolver *r;
	struct loop_io io;
};

struct resolver {
	struct app *app;
	ares_channel channel;
	bool have_channel;
	struct stat conf; /* of resolv.conf when the channel was made */
	struct entry *head, *tail;
	size_t n, asking;
	struct entry *done; /* answered inside c-ares; waiters are called when it has returned */
	struct watch *watches;
	struct loop_timer timer;
};

/* --- entries --- */

static void entry_unlink(struct entry *e)
{
	struct resolver *r = e->r;

	if (e->prev)
		e->prev->next = e->next;
	else
		r->head = e->next;
	if (e->next)
		e->next->prev = e->prev;
	else
		r->tail = e->prev;
	r->n--;
}

static void entry_front(struct entry *e)
{
	struct resolver *r = e->r;

	e->prev = NULL;
	e->next = r->head;
	if (r->head)
		r->head->prev = e;
	else
		r->tail = e;
	r->head = e;
	r->n++;
}

static void entry_free(struct entry *e)
{
	entry_unlink(e);
	loop_timer_stop(&e->limit);
	free(e->host);
	free(e->v);
	free(e);
}

static void entry_notify(struct entry *e, enum resolve_result result, const char *why)
{
	while (e->waiters) {
		struct resolve_waiter *w = e->waiters;

		resolve_stop(w);
		w->fn(w->data, result, e->v, result == RESOLVE_OK ? e->n : 0, why);
	}
}

static void on_limit(struct loop_timer *t)
{
	/* c-ares still has it: the entry stays until it calls back */
	entry_notify(t->data, RESOLVE_TIMEOUT, "no name server answered in time");
}

static struct entry *entry_find(struct resolver *r, const char *host)
{
	for (struct entry *e = r->head; e; e = e->next)
		if (str_eq(e->host, host))
			return e;
	return NULL;
}

/* Makes room by forgetting the least recently used. NULL: all of them are lookups under way. */
static struct entry *entry_new(struct resolver *r, const char *host)
{
	struct entry *e;

	for (e = r->tail; r->n >= RESOLVE_ENTRIES && e;) {
		struct entry *prev = e->prev;

		if (!e->asking && !e->waiters)
			entry_free(e);
		e = prev;
	}
	if (r->n >= RESOLVE_ENTRIES)
		return NULL;
	e = xcalloc(1, sizeof *e);
	e->r = r;
	e->host = xstrdup(host);
	loop_timer_init(r->app->proxy->loop, &e->limit, on_limit, e);
	entry_front(e);
	return e;
}

/* --- answers --- */

static void entry_take(struct entry *e, const struct ares_addrinfo *ai)
{
	int ttl = TTL_MAX_S;
	size_t n = 0;

	for (const struct ares_addrinfo_node *p = ai->nodes; p; p = p->ai_next)
		n++;
	if (!n || n > RESOLVE_ADDRS) {
		e->result = RESOLVE_FAILED;
		e->why = n ? "the answer has too many addresses" : "the name has no address";
		return;
	}
	free(e->v);
	e->v = xcalloc(n, sizeof *e->v);
	e->n = 0;
	for (const struct ares_addrinfo_node *p = ai->nodes; p; p = p->ai_next) {
		struct sockaddr_storage sa = {0};

		memcpy(&sa, p->ai_addr, p->ai_addrlen < sizeof sa ? p->ai_addrlen : sizeof sa);
		addr_from_sockaddr(&e->v[e->n++], &sa);
		if (p->ai_ttl < ttl)
			ttl = p->ai_ttl;
	}
	e->result = RESOLVE_OK;
	e->why = "";
	e->expires_ms = clk_mono_ms() + (ttl > 0 ? ttl : 0) * 1000;
}

static void on_answer(void *data, int status, int timeouts, struct ares_addrinfo *ai)
{
	struct entry *e = data;

	(void)timeouts;
	e->asking = false;
	e->r->asking--;
	e->expires_ms = 0;
	if (status == ARES_SUCCESS && ai) {
		entry_take(e, ai);
	} else if (status == ARES_ENOTFOUND || status == ARES_ENODATA) {
		e->result = RESOLVE_NO_SUCH_NAME;
		e->why = status == ARES_ENODATA ? "the name has no address" : "no such name";
		e->expires_ms = clk_mono_ms() + NEGATIVE_MS;
	} else {
		e->result = status == ARES_ETIMEOUT ? RESOLVE_TIMEOUT : RESOLVE_FAILED;
		e->why = ares_strerror(status); /* static text */
		e->expires_ms = clk_mono_ms() + FAILED_MS;
	}
	if (ai)
		ares_freeaddrinfo(ai);
	e->done_next = e->r->done;
	e->r->done = e;
}

/* Outside of c-ares: a waiter may start another lookup or end its connection. */
static void call_waiters(struct resolver *r)
{
	while (r->done) {
		struct entry *e = r->done;

		r->done = e->done_next;
		loop_timer_stop(&e->limit);
		e->asking = true; /* keeps it while its waiters run */
		entry_notify(e, e->result, e->why);
		e->asking = false;
		if (e->expires_ms <= clk_mono_ms() && !e->waiters)
			entry_free(e);
	}
}

/* --- c-ares in the loop --- */

static void arm(struct resolver *r)
{
	struct timeval tv, *left;

	loop_timer_stop(&r->timer);
	if (!r->asking)
		return;
	left = ares_timeout(r->channel, NULL, &tv);
	if (left)
		loop_timer_start(&r->timer, left->tv_sec * 1000 + left->tv_usec / 1000 + 1);
}

static void process(struct resolver *r, int readable, int writable)
{
	crash_page_enter(r->app);
	ares_process_fd(r->channel, readable, writable);
	crash_page_leave();
	call_waiters(r);
	arm(r);
}

static void on_timer(struct loop_timer *t)
{
	process(t->data, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
}

static void on_socket(struct loop_io *io, unsigned events)
{
	struct watch *w = io->data;
	int fd = io->fd;

	/* w may be gone after the first of these */
	process(w->r, events & LOOP_READ ? fd : ARES_SOCKET_BAD, events & LOOP_WRITE ? fd : ARES_SOCKET_BAD);
}

static void on_socket_state(void *data, ares_socket_t fd, int readable, int writable)
{
	struct resolver *r = data;
	struct watch **at = &r->watches, *w;
	unsigned events = (readable ? LOOP_READ : 0u) | (writable ? LOOP_WRITE : 0u);

	while (*at && (*at)->io.fd != fd)
		at = &(*at)->next;
	w = *at;
	if (!events) {
		if (!w)
			return;
		*at = w->next;
		loop_io_stop(&w->io);
		free(w);
		return;
	}
	if (w) {
		loop_io_set(&w->io, events);
		return;
	}
	w = xcalloc(1, sizeof *w);
	w->r = r;
	w->next = r->watches;
	r->watches = w;
	loop_io_init(r->app->proxy->loop, &w->io, fd, events, on_socket, w);
}

static void channel_close(struct resolver *r)
{
	if (r->have_channel)
		ares_destroy(r->channel);
	r->have_channel = false;
}

static int channel_open(struct resolver *r)
{
	struct proxy *p = r->app->proxy;
	struct ares_options o = {0};
	/* No search domains, no $HOSTALIASES: the name that was judged is the name that is asked for. */
	int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB |
		   ARES_OPT_LOOKUPS;
	CLEANUP_FREE char *conf = xstrdup(p->resolv_conf), *lookups = xstrdup(LOOKUPS);

	o.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES;
	o.timeout = QUERY_MS;
	o.tries = TRIES;
	o.sock_state_cb = on_socket_state;
	o.sock_state_cb_data = r;
	o.lookups = lookups;
#ifdef ARES_OPT_QUERY_CACHE /* c-ares 1.31: has one of its own, on unless told otherwise; ours is the one that counts */
	o.qcache_max_ttl = 0;
	mask |= ARES_OPT_QUERY_CACHE;
#endif
	if (conf) {
		o.resolvconf_path = conf;
		mask |= ARES_OPT_RESOLVCONF;
	}
	if (ares_init_options(&r->channel, &o, mask) != ARES_SUCCESS)
		return -1;
	r->have_channel = true;
	if (p->nameserver && ares_set_servers_ports_csv(r->channel, p->nameserver) != ARES_SUCCESS)
		log_warning("--nameserver %s: not an address", p->nameserver);
	return 0;
}

static void query(struct resolver *r, struct entry *e);

/* Lookups under way go on in the new channel: the name servers that have them may be gone. */
static int channel_renew(struct resolver *r)
{
	struct entry *e, *next;

	if (r->have_channel)
		ares_cancel(r->channel);
	e = TAKE_PTR(r->done);
	channel_close(r);
	if (channel_open(r) < 0) {
		r->done = e; /* they fail with the one that made us look */
		return -1;
	}
	for (; e; e = next) {
		next = e->done_next;
		if (e->waiters)
			query(r, e);
		else
			entry_free(e);
	}
	return 0;
}

/* A channel for the resolv.conf of now. */
static int channel_ready(struct resolver *r)
{
	const char *path = r->app->proxy->resolv_conf ? r->app->proxy->resolv_conf : RESOLV_CONF;
	struct stat now;

	if (stat(path, &now) < 0)
		memset(&now, 0, sizeof now);
	if (r->have_channel && now.st_ino == r->conf.st_ino && now.st_dev == r->conf.st_dev &&
	    now.st_mtim.tv_sec == r->conf.st_mtim.tv_sec && now.st_mtim.tv_nsec == r->conf.st_mtim.tv_nsec)
		return 0;
	r->conf = now;
	return channel_renew(r);
}

/* --- interface --- */

struct resolver *resolver_create(struct app *a)
{
	struct resolver *r = xcalloc(1, sizeof *r);

	r->app = a;
	loop_timer_init(a->proxy->loop, &r->timer, on_timer, r);
	return r;
}

void resolver_destroy(struct resolver *r)
{
	if (!r)
		return;
	loop_timer_stop(&r->timer);
	for (struct entry *e = r->head; e; e = e->next)
		while (e->waiters)
			resolve_stop(e->waiters);
	channel_close(r); /* calls on_answer() for each lookup under way */
	while (r->head)
		entry_free(r->head);
	free(r);
}

void resolve_stop(struct resolve_waiter *w)
{
	struct entry *e = w->entry;

	if (!e)
		return;
	if (w->prev)
		w->prev->next = w->next;
	else
		e->waiters = w->next;
	if (w->next)
		w->next->prev = w->prev;
	w->entry = NULL;
}

/* on_answer() may be called before it returns. */
static void query(struct resolver *r, struct entry *e)
{
	const struct ares_addrinfo_hints hints = {
		.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = ARES_AI_NOSORT};

	e->asking = true;
	r->asking++;
	crash_page_enter(r->app);
	ares_getaddrinfo(r->channel, e->host, NULL, &hints, on_answer, e);
	crash_page_leave();
}

static void ask(struct resolver *r, struct entry *e)
{
	loop_timer_start(&e->limit, RESOLVE_LIMIT_MS);
	query(r, e);
}

static bool answer_from_hosts(const char *host, resolve_fn *fn, void *data)
{
	struct addr v[RESOLVE_ADDRS];
	size_t n = hosts_find(HOSTS_PATH, host, v, RESOLVE_ADDRS);

	if (n > RESOLVE_ADDRS)
		fn(data, RESOLVE_FAILED, NULL, 0, HOSTS_PATH " has too many addresses for the name");
	else if (n)
		fn(data, RESOLVE_OK, v, n, "");
	return n > 0;
}

void resolve_start(struct resolver *r, struct resolve_waiter *w, const char *host, resolve_fn *fn, void *data)
{
	struct entry *e;
	int ready;

	*w = (struct resolve_waiter){.fn = fn, .data = data};
	if (answer_from_hosts(host, fn, data))
		return;
	e = entry_find(r, host);
	if (e && !e->asking && e->expires_ms > clk_mono_ms()) {
		entry_unlink(e);
		entry_front(e);
		fn(data, e->result, e->v, e->result == RESOLVE_OK ? e->n : 0, e->why);
		return;
	}
	ready = channel_ready(r);
	call_waiters(r); /* of those that a new channel answered at once; forgets entries */
	e = entry_find(r, host);
	if (!e)
		e = entry_new(r, host);
	if (!e) {
		fn(data, RESOLVE_FAILED, NULL, 0, "too many lookups are under way");
		return;
	}
	w->entry = e;
	w->next = e->waiters;
	if (w->next)
		w->next->prev = w;
	e->waiters = w;
	if (ready < 0)
		entry_notify(e, RESOLVE_FAILED, "the resolver cannot be started");
	else if (!e->asking)
		ask(r, e);
	else if (!loop_timer_active(&e->limit))
		loop_timer_start(&e->limit, RESOLVE_LIMIT_MS);
	call_waiters(r);
	arm(r);
}
