/* sbxsv-proxy: the data plane of sbxsvd. All hostile bytes are parsed here, in a process that can do little
 * else. */
#include "config.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/str.h"
#include "proxy/control.h"
#include "proxy/harden.h"
#include "policy/local.h"
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#define WIRE_FD 3

struct options {
	struct harden harden;
	const char *nameserver, *resolv_conf;
	bool verbose;
};

static const char usage[] =
	"usage: sbxsv-proxy [--parent PID] [--uid N --gid N] [--nameserver IP[:PORT]] [--resolv-conf FILE] "
	"[--verbose]\n"
	"Started by sbxsvd, with their channel as file descriptor 3. See sbxsv-proxy(8).\n";

static int number(const char *text, const char *option, uint64_t max, uint64_t *ret)
{
	if (parse_u64(text, max, ret) == 0)
		return 0;
	log_error("%s %s: not a number", option, text);
	return -1;
}

static int read_options(int argc, char **argv, struct options *o)
{
	static const struct option table[] = {
		{"parent", required_argument, NULL, 'p'},
		{"uid", required_argument, NULL, 'u'},
		{"gid", required_argument, NULL, 'g'},
		{"nameserver", required_argument, NULL, 'n'},
		{"resolv-conf", required_argument, NULL, 'r'},
		{"verbose", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{0},
	};
	uint64_t n;
	int c;

	while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
		switch (c) {
		case 'p':
			if (number(optarg, "--parent", INT32_MAX, &n) < 0)
				return 2;
			o->harden.parent = (pid_t)n;
			break;
		case 'u':
			if (number(optarg, "--uid", UINT32_MAX - 1, &n) < 0)
				return 2;
			o->harden.uid = (uid_t)n;
			break;
		case 'g':
			if (number(optarg, "--gid", UINT32_MAX - 1, &n) < 0)
				return 2;
			o->harden.gid = (gid_t)n;
			break;
		case 'n':
			o->nameserver = optarg;
			break;
		case 'r':
			o->resolv_conf = optarg;
			break;
		case 'v':
			o->verbose = true;
			break;
		case 'h':
			(void)fputs(usage, stdout);
			return 0;
		case 'V':
			(void)puts("sbxsv-proxy " PACKAGE_VERSION);
			return 0;
		default:
			(void)fputs(usage, stderr);
			return 2;
		}
	}
	if (optind < argc) {
		(void)fputs(usage, stderr);
		return 2;
	}
	return -1;
}

static void raise_fd_limit(void)
{
	struct rlimit r;

	if (fd_raise_limit() < 0)
		log_warning("the limit of open files cannot be raised: %s", strerror(errno));
	conns_init(getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < 1u << 24 ? r.rlim_cur : 1u << 24);
}

int main(int argc, char **argv)
{
	struct options o = {.harden = {.uid = (uid_t)-1, .gid = (gid_t)-1}};
	struct proxy p = {0};
	CLEANUP_ERR struct err *e = NULL;
	int status;

	log_init("sbxsv-proxy", LOG_LEVEL_INFO);
	status = read_options(argc, argv, &o);
	if (status >= 0)
		return status;
	log_init("sbxsv-proxy", o.verbose ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO);
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR)
		log_warning("SIGPIPE cannot be ignored: %s", strerror(errno));

	/* First of all: from here on we die with the supervisor, as an ordinary user. */
	if (harden_identity(&o.harden, &e) < 0) {
		log_error("%s", err_msg(e));
		return 1;
	}
	/* Before anything is counted against it. */
	raise_fd_limit();
	p.loop = loop_create(0);
	if (!p.loop) {
		log_error("the event loop cannot be made: %s", strerror(errno));
		return 1;
	}
	p.nameserver = o.nameserver;
	p.resolv_conf = o.resolv_conf;
	/* What needs a socket of another kind opens it before the door closes. */
	if (local_open(&e) < 0) {
		log_error("%s", err_msg(e));
		return 1;
	}
	if (harden_confine(&o.harden, o.resolv_conf, &e) < 0) {
		log_error("%s", err_msg(e));
		return 1;
	}
	/* Only now is anything read that somebody else wrote. */
	control_start(&p, WIRE_FD);
	loop_run(p.loop);
	control_finish(&p);
	loop_destroy(p.loop);
	return 0;
}
