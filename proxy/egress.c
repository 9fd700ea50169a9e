#include "proxy/egress.h"
#include "base/str.h"
#include "proxy/relay.h"

struct egress_listener {
	struct app *app;
	struct acceptor acc;
};

/* Until the request parser is here nothing is let out. */
static bool on_client(struct acceptor *acc, int fd, const struct sockaddr_storage *peer)
{
	(void)acc;
	(void)peer;
	fd_close_reset(fd);
	return true;
}

struct egress_listener *egress_create(struct app *a, int fd)
{
	struct egress_listener *e = xcalloc(1, sizeof *e);

	e->app = a;
	acceptor_init(&e->acc, a->proxy->loop, fd, on_client, e);
	acceptor_run(&e->acc, true);
	return e;
}

void egress_destroy(struct egress_listener *e)
{
	if (!e)
		return;
	acceptor_finish(&e->acc);
	free(e);
}
