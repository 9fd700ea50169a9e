#include "main_notify.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* The address is a path, or abstract with '@' for its first byte. The variable stays: we are executed anew for an upgrade;
 * no app gets our environment. */
static void say(const char *text)
{
	const char *where = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	size_t n = where ? strlen(where) : 0;
	CLEANUP_FD int fd = -1;

	if (!n || n >= sizeof to.sun_path || (where[0] != '/' && where[0] != '@'))
		return;
	memcpy(to.sun_path, where, n);
	if (where[0] == '@')
		to.sun_path[0] = 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&to,
			     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
		log_warning("$NOTIFY_SOCKET %s: %s", where, strerror(errno));
}

void main_notify_ready(void)
{
	char text[64];

	(void)snprintf(text, sizeof text, "READY=1\nMAINPID=%d\n", (int)getpid());
	say(text);
}

void main_notify_reloading(void)
{
	char text[96];

	/* the time is what Type=notify-reload wants */
	(void)snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%" PRId64 "\n", clk_mono_us());
	say(text);
}

void main_notify_stopping(void)
{
	say("STOPPING=1\n");
}
