#include "proxy/dns.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "proxy/control.h"
#include "proxy/dns_internal.h"
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#define BATCH     32
#define WINDOW_MS 100 /* the rate is kept over this time */

struct udp {
	struct udp *next;
	struct dns *dns;
	struct loop_io io;
};

/* Datagrams of one batch. One set for the whole process: nothing of it is needed when a batch is done. */
static struct {
	uint8_t in[BATCH][DNS_QUERY_MAX + 1], out[BATCH][DNS_ANSWER_MAX];
	/* room for either family's; the one that came goes back with the answer */
	union {
		struct cmsghdr align;
		uint8_t bytes[CMSG_SPACE(sizeof(struct in6_pktinfo))];
	} control[BATCH];
	struct sockaddr_storage peer[BATCH];
	struct iovec iov_in[BATCH], iov_out[BATCH];
	struct mmsghdr msg_in[BATCH], msg_out[BATCH];
} batch;

static void watch_all(struct dns *d, bool on)
{
	for (struct udp *u = d->udp; u; u = u->next)
		loop_io_set(&u->io, on ? LOOP_READ : 0);
	dns_tcp_run(d, on);
}

static void on_window(struct loop_timer *t)
{
	struct dns *d = t->data;
	bool waited = d->spent >= d->budget;

	d->spent = 0;
	if (waited)
		watch_all(d, true);
}

bool dns_spend(struct dns *d, size_t n)
{
	if (!loop_timer_active(&d->window))
		loop_timer_start(&d->window, WINDOW_MS);
	d->spent += n;
	if (d->spent < d->budget)
		return true;
	watch_all(d, false);
	return false;
}

size_t dns_reply(struct dns *d, const uint8_t *msg, size_t len, bool udp, uint8_t *out)
{
	struct app *a = d->app;
	const struct dns_view view = {.app = a->name, .policy = a->policy, .names = d->names};
	struct dns_denial denial;
	size_t n;

	if (a->closed)
		return dnsmsg_refuse_unread(msg, len, out);
	crash_page_enter(a);
	n = dns_answer(&view, msg, len, udp, out, &denial);
	crash_page_leave();
	if (denial.denied)
		dns_report(d, &denial);
	return n;
}

/* --- UDP --- */

/* The address that was asked, as the source of the answer; the interface is left to the route. */
static void pktinfo_back(struct msghdr *m)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(m);

	if (c && c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
		struct in_pktinfo *i = (void *)CMSG_DATA(c);

		i->ipi_spec_dst = i->ipi_addr;
		i->ipi_ifindex = 0;
	} else if (c && c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
		((struct in6_pktinfo *)(void *)CMSG_DATA(c))->ipi6_ifindex = 0;
	} else {
		m->msg_control = NULL;
		m->msg_controllen = 0;
	}
}

static void batch_reset(void)
{
	for (int i = 0; i < BATCH; i++) {
		batch.iov_in[i] = (struct iovec){batch.in[i], sizeof batch.in[i]};
		batch.msg_in[i].msg_hdr = (struct msghdr){
			.msg_name = &batch.peer[i],
			.msg_namelen = sizeof batch.peer[i],
			.msg_iov = &batch.iov_in[i],
			.msg_iovlen = 1,
			.msg_control = &batch.control[i],
			.msg_controllen = sizeof batch.control[i],
		};
	}
}

static void on_datagrams(struct loop_io *io, unsigned events)
{
	struct udp *u = io->data;
	unsigned out = 0;
	int n;

	(void)events;
	batch_reset();
	n = recvmmsg(io->fd, batch.msg_in, BATCH, MSG_DONTWAIT, NULL);
	for (int i = 0; i < n; i++) {
		struct msghdr *m = &batch.msg_in[i].msg_hdr;
		size_t len = dns_reply(u->dns, batch.in[i], batch.msg_in[i].msg_len, true, batch.out[out]);

		if (!len)
			continue;
		pktinfo_back(m);
		batch.iov_out[out] = (struct iovec){batch.out[out], len};
		m->msg_iov = &batch.iov_out[out];
		m->msg_flags = 0;
		batch.msg_out[out++].msg_hdr = *m;
	}
	/* One that cannot be sent (the asker is gone, its buffer is full) is lost, as datagrams are. */
	for (unsigned sent = 0; sent < out;) {
		int r = sendmmsg(io->fd, batch.msg_out + sent, out - sent, MSG_DONTWAIT | MSG_NOSIGNAL);

		sent += r > 0 ? (unsigned)r : 1;
	}
	if (n > 0)
		(void)dns_spend(u->dns, (size_t)n);
}

void dns_udp(struct dns *d, int fd)
{
	struct udp *u = xcalloc(1, sizeof *u);

	(void)fd_set_nonblock(fd, true);
	u->dns = d;
	u->next = d->udp;
	d->udp = u;
	loop_io_init(d->app->proxy->loop, &u->io, fd, LOOP_READ, on_datagrams, u);
}

/* --- life --- */

struct dns *dns_create(struct app *a, int names_fd)
{
	CLEANUP_ERR struct err *e = NULL;
	struct dns *d = xcalloc(1, sizeof *d);

	d->app = a;
	d->budget = DNS_RATE * WINDOW_MS / 1000;
	d->names = names_open(names_fd, &e);
	if (!d->names) {
		log_warning("%s: %s; its names end with this proxy", a->name, err_msg(e));
		d->names = names_open(-1, NULL);
	}
	loop_timer_init(a->proxy->loop, &d->window, on_window, d);
	return d;
}

void dns_destroy(struct dns *d)
{
	if (!d)
		return;
	loop_timer_stop(&d->window);
	while (d->udp) {
		struct udp *u = d->udp;

		d->udp = u->next;
		loop_io_stop(&u->io);
		(void)close(u->io.fd);
		free(u);
	}
	dns_tcp_destroy(d);
	names_close(d->names);
	free(d);
}

struct names *dns_names(struct dns *d)
{
	return d ? d->names : NULL;
}
