/* Loopback= ports of a jail that runs: which listeners stay, which are made, which go. */
#include "base/fd.h"
#include "net/proxyctl_app.h"
#include <errno.h>
#include <string.h>

static const struct proxyctl_loopback *wanted(const struct proxyctl_loopback *v, size_t n, uint16_t inside)
{
	for (size_t i = 0; i < n; i++)
		if (v[i].inside == inside)
			return &v[i];
	return NULL;
}

static bool is_there(const struct proxyctl_jail *j, uint16_t inside)
{
	for (size_t i = 0; i < j->n_loopback; i++)
		if (j->loopback[i].port == inside)
			return true;
	return false;
}

/* Each port of the first n once: its listeners stay with what they are outside now; all others are closed. */
static void keep(struct proxyctl_jail *j, const struct proxyctl_loopback *v, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < j->n_loopback; i++) {
		struct proxyctl_socket *s = &j->loopback[i];
		const struct proxyctl_loopback *w = wanted(v, n, s->port);

		if (w) {
			s->to = w->host;
			s->held = w->held;
			j->loopback[kept++] = *s;
		} else {
			fd_close_many(&s->fd, 1);
		}
	}
	j->n_loopback = kept;
}

int pc_app_loopback(struct pc_app *a, const struct proxyctl_loopback *v, size_t n, struct err **e)
{
	struct proxyctl_jail *j = &a->jail;
	uint16_t fresh[NET_LOOPBACK_MAX], of[2 * NET_LOOPBACK_MAX];
	int fds[2 * NET_LOOPBACK_MAX];
	size_t n_fresh = 0, made = 0;

	if (n > NET_LOOPBACK_MAX)
		return err_set(e, E2BIG, "too many Loopback= ports (at most %d)", NET_LOOPBACK_MAX);
	for (size_t i = 0; i < n; i++)
		if (!is_there(j, v[i].inside))
			fresh[n_fresh++] = v[i].inside;
	if (net_make_listeners(j->userns_fd, j->netns_fd, fresh, n_fresh, fds, of, &made, e) < 0)
		return err_wrap(e, "Loopback=");
	keep(j, v, n);
	for (size_t i = 0; i < made; i++)
		j->loopback[j->n_loopback++] = (struct proxyctl_socket){.fd = fds[i],
									.port = of[i],
									.to = wanted(v, n, of[i])->host,
									.held = wanted(v, n, of[i])->held};
	return 0;
}
