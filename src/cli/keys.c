#include "cli/keys.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <termios.h>
#include <unistd.h>

static struct termios before;
static bool changed;
static volatile sig_atomic_t quit;

static void on_signal(int sig)
{
	(void)sig;
	quit = 1;
}

/* In the background a change of the terminal would stop us (SIGTTOU). */
static bool is_ours(void)
{
	return isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

void keys_begin(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
	struct termios raw;

	for (size_t i = 0; i < ELEMENTS(signals); i++)
		(void)sigaction(signals[i], &sa, NULL);
	if (!is_ours() || tcgetattr(STDIN_FILENO, &before) < 0)
		return;
	raw = before;
	raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
	raw.c_cc[VMIN] = 1;
	raw.c_cc[VTIME] = 0;
	changed = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

void keys_end(void)
{
	if (changed)
		(void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
	changed = false;
}

static bool quit_typed(void)
{
	char buf[64];
	ssize_t n = read(STDIN_FILENO, buf, sizeof buf);

	for (ssize_t i = 0; i < n; i++)
		if (buf[i] == 'q' || buf[i] == 'Q')
			return true;
	return n == 0; /* the terminal is gone */
}

/* A signal between the look at `quit` and the wait must not be slept through. */
static int wait_once(struct pollfd *p, int64_t left)
{
	struct timespec t = {.tv_sec = (time_t)(left / 1000), .tv_nsec = (long)(left % 1000) * 1000000};
	sigset_t all, old;
	int n;

	(void)sigemptyset(&all);
	(void)sigaddset(&all, SIGINT);
	(void)sigaddset(&all, SIGTERM);
	(void)sigaddset(&all, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &all, &old);
	n = quit ? -1 : ppoll(p, 3, left < 0 ? NULL : &t, &old);
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	return n;
}

int keys_wait(int fd, int64_t ms)
{
	int64_t end = ms < 0 ? 0 : clk_mono_ms() + ms;

	while (!quit) {
		struct pollfd p[3] = {{.fd = STDOUT_FILENO}, /* POLLERR alone: no reader */
				      {.fd = changed ? STDIN_FILENO : -1, .events = POLLIN},
				      {.fd = fd, .events = POLLIN}};
		int64_t left = ms < 0 ? -1 : end - clk_mono_ms();
		int n;

		if (ms >= 0 && left <= 0)
			left = 0;
		n = wait_once(p, left);
		if (n == 0)
			return 0;
		if (n < 0)
			continue;
		if (p[0].revents & (POLLERR | POLLHUP | POLLNVAL))
			return KEYS_GONE;
		if (p[1].revents && quit_typed())
			return KEYS_QUIT;
		if (p[2].revents)
			return KEYS_INPUT;
	}
	return KEYS_QUIT;
}
