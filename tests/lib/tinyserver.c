/*
 * The smallest app that serves: "ok NAME" for each request on $PORT, connections kept. Tests and benches that start
 * hundreds of apps measure sbxsv with it, not the start of an interpreter.
 */
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENTS 256

static struct pollfd fds[CLIENTS + 1]; /* the listener first */

static int listen_on(int port)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons((unsigned short)port)};
	int fd = socket(AF_INET6, SOCK_STREAM, 0), one = 1;

	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, CLIENTS) < 0) {
		perror("tinyserver");
		exit(1);
	}
	return fd;
}

static void take(int fd)
{
	for (int i = 1; i <= CLIENTS; i++)
		if (fds[i].fd < 0) {
			fds[i].fd = fd;
			return;
		}
	(void)close(fd);
}

/* A request is what comes at once: enough for the clients here. */
static void serve(struct pollfd *c)
{
	char in[4096], body[32], out[160];
	ssize_t n = recv(c->fd, in, sizeof in, 0);
	int len;

	if (n <= 0) {
		(void)close(c->fd);
		c->fd = -1;
		return;
	}
	(void)snprintf(body, sizeof body, "ok %s\n", getenv("SBXSV_APP"));
	len = snprintf(out, sizeof out, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
	(void)send(c->fd, out, (size_t)len, MSG_NOSIGNAL);
}

int main(void)
{
	const char *port = getenv("PORT");

	for (int i = 0; i <= CLIENTS; i++)
		fds[i] = (struct pollfd){.fd = -1, .events = POLLIN};
	fds[0].fd = listen_on(port ? atoi(port) : 0);
	while (poll(fds, CLIENTS + 1, -1) > 0) {
		if (fds[0].revents)
			take(accept(fds[0].fd, NULL, NULL));
		for (int i = 1; i <= CLIENTS; i++)
			if (fds[i].fd >= 0 && fds[i].revents)
				serve(&fds[i]);
	}
	return 1;
}
