#include "main_args.h"
#include "base/file.h"
#include "base/parse.h"
#include "config.h"
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

static const char usage[] =
	"usage: sbxsvd [options]\n"
	"The supervisor of sbxsv. Usually started by: sbxsv up\n"
	"\n"
	"  --config DIR     where sbxsv.conf is (SBXSV_CONFIG_DIR)\n"
	"  --apps DIR       the unit files (SBXSV_APPS_DIR; CONFIG/apps.d)\n"
	"  --state DIR      logs, events and records (SBXSV_STATE_DIR)\n"
	"  --runtime DIR    the control socket and the lock (SBXSV_RUNTIME_DIR)\n"
	"  --instance NAME  a second supervisor of the same user, with directories of its own\n"
	"  --foreground     stay in the foreground and log to stderr; otherwise it becomes a daemon, and "
	"the\n"
	"                   command returns when the control socket answers\n"
	"  --watch-pid PID  shut down when that process ends\n"
	"  --notify-fd N    write \"ready\" to this descriptor when the control socket answers, or the "
	"error\n"
	"  --debug          log every step of every app\n"
	"  --version, --help\n"
	"\n"
	"SIGTERM and SIGINT shut down (a second one kills at once), SIGHUP reads apps.d again,\n"
	"SIGUSR2 replaces the program of this process by what is in its place now, as sbxsv upgrade does.\n";

enum {
	OPT_CONFIG = 256,
	OPT_APPS,
	OPT_STATE,
	OPT_RUNTIME,
	OPT_INSTANCE,
	OPT_FOREGROUND,
	OPT_WATCH,
	OPT_NOTIFY,
	OPT_HANDOVER,
	OPT_CHECK_HANDOVER,
	OPT_DEBUG,
	OPT_VERSION,
	OPT_HELP
};

static const struct option options[] = {
	{"config", required_argument, NULL, OPT_CONFIG},
	{"apps", required_argument, NULL, OPT_APPS},
	{"state", required_argument, NULL, OPT_STATE},
	{"runtime", required_argument, NULL, OPT_RUNTIME},
	{"instance", required_argument, NULL, OPT_INSTANCE},
	{"foreground", no_argument, NULL, OPT_FOREGROUND},
	{"watch-pid", required_argument, NULL, OPT_WATCH},
	{"notify-fd", required_argument, NULL, OPT_NOTIFY},
	{"handover", required_argument, NULL, OPT_HANDOVER},
	{"check-handover", required_argument, NULL, OPT_CHECK_HANDOVER},
	{"debug", no_argument, NULL, OPT_DEBUG},
	{"version", no_argument, NULL, OPT_VERSION},
	{"help", no_argument, NULL, OPT_HELP},
	{0},
};

static int wrong(const char *what, const char *value)
{
	(void)fprintf(stderr, "sbxsvd: %s: \"%s\"; see sbxsvd --help\n", what, value);
	return 2;
}

static int number(const char *text, uint64_t max, const char *what, int *ret)
{
	uint64_t v;

	if (parse_u64(text, max, &v) < 0)
		return wrong(what, text);
	*ret = (int)v;
	return -1;
}

static int one_option(int opt, struct main_args *a)
{
	switch (opt) {
	case OPT_CONFIG:
		a->config = optarg;
		return -1;
	case OPT_APPS:
		a->apps = optarg;
		return -1;
	case OPT_STATE:
		a->state = optarg;
		return -1;
	case OPT_RUNTIME:
		a->runtime = optarg;
		return -1;
	case OPT_INSTANCE:
		a->instance = optarg;
		return -1;
	case OPT_FOREGROUND:
		a->foreground = true;
		return -1;
	case OPT_DEBUG:
		a->debug = true;
		return -1;
	case OPT_WATCH:
		return number(optarg, INT32_MAX, "--watch-pid wants a process id", &a->watch_pid);
	case OPT_NOTIFY:
		return number(optarg, 1 << 20, "--notify-fd wants a descriptor", &a->notify_fd);
	case OPT_HANDOVER:
	case OPT_CHECK_HANDOVER:
		a->rehearsal = opt == OPT_CHECK_HANDOVER;
		return number(optarg, 1 << 20, "--handover wants a descriptor", &a->handover_fd);
	case OPT_VERSION:
		(void)puts("sbxsvd (sbxsv) " PACKAGE_VERSION);
		return 0;
	case OPT_HELP:
		(void)fputs(usage, stdout);
		return 0;
	default:
		(void)fputs("see sbxsvd --help\n", stderr);
		return 2;
	}
}

/* Into the environment, absolute: unit_dirs_init() reads it there, so that --config moves apps.d along with
 * it. */
static int set_dir(const char *given, const char *variable)
{
	CLEANUP_FREE char *cwd = NULL, *full = NULL;

	if (!given)
		return -1;
	if (!*given)
		return wrong("a directory option has an empty value for", variable);
	if (given[0] != '/') {
		cwd = getcwd(NULL, 0);
		if (!cwd)
			return wrong("the working directory is gone; give a full path for", variable);
	}
	full = path_join(cwd ? cwd : "/", given);
	return setenv(variable, full, 1) == 0 ? -1 : 1;
}

int main_args_parse(int argc, char **argv, struct main_args *ret)
{
	struct main_args a = {.notify_fd = -1, .handover_fd = -1};
	int opt, code;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		code = one_option(opt, &a);
		if (code >= 0)
			return code;
	}
	if (optind < argc)
		return wrong("unexpected argument", argv[optind]);
	if (a.handover_fd >= 0) { /* they are in the environment, absolute, and what is relative means another place by now */
		*ret = a;
		return -1;
	}
	if ((code = set_dir(a.config, "SBXSV_CONFIG_DIR")) >= 0 ||
	    (code = set_dir(a.apps, "SBXSV_APPS_DIR")) >= 0 ||
	    (code = set_dir(a.state, "SBXSV_STATE_DIR")) >= 0 ||
	    (code = set_dir(a.runtime, "SBXSV_RUNTIME_DIR")) >= 0)
		return code;
	*ret = a;
	return -1;
}
