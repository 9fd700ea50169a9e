/* sbxsv-proxy: the data plane of sbxsvd. All hostile bytes are parsed here, in a process that can do little
 * else. */
#include "config.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/str.h"
#include "proxy/alone.h"
#include "proxy/control.h"
#include "proxy/hang.h"
#include "proxy/harden.h"
#include "policy/local.h"
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define WIRE_FD 3

struct options {
	struct harden harden;
	struct alone alone;
	const char *nameserver, *resolv_conf;
	bool verbose;
};

static const char usage[] =
	"usage: sbxsv-proxy --listen [ADDRESS:]PORT [--allow HOST]... [--deny HOST]... [--allow-address "
	"A:P]...\n"
	"                   [--policy FILE] [--egress hosts|all] [--connect PORTS] [--sni-policy match|off]\n"
	"                   [--ech allow|refuse] [--upstream-proxy URL] [--no-proxy HOST]... [--access-log "
	"FILE|-]\n"
	"                   [--listen-anywhere] [--user NAME] [--check] [--nameserver IP[:PORT]]\n"
	"                   [--resolv-conf FILE] [--verbose]\n"
	"       sbxsv-proxy --parent PID [--uid N --gid N]   (started by sbxsvd, their channel as descriptor "
	"3)\n"
	"See sbxsv-proxy(8).\n";

/* Options that are one line of [Network] each. */
static const struct {
	const char *option, *key;
} rules[] = {
	{"allow", "Allow"},
	{"deny", "Deny"},
	{"allow-address", "AllowAddress"},
	{"egress", "Egress"},
	{"connect", "Connect"},
	{"sni-policy", "SniPolicy"},
	{"ech", "Ech"},
	{"upstream-proxy", "UpstreamProxy"},
	{"no-proxy", "NoProxy"},
};
#define RULE_BASE 256

static const struct option table[] = {
	{"parent", required_argument, NULL, 'p'},
	{"uid", required_argument, NULL, 'u'},
	{"gid", required_argument, NULL, 'g'},
	{"nameserver", required_argument, NULL, 'n'},
	{"resolv-conf", required_argument, NULL, 'r'},
	{"verbose", no_argument, NULL, 'v'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{"listen", required_argument, NULL, 'l'},
	{"listen-anywhere", no_argument, NULL, 'L'},
	{"policy", required_argument, NULL, 'P'},
	{"access-log", required_argument, NULL, 'a'},
	{"user", required_argument, NULL, 'U'},
	{"check", no_argument, NULL, 'c'},
	{"allow", required_argument, NULL, RULE_BASE},
	{"deny", required_argument, NULL, RULE_BASE + 1},
	{"allow-address", required_argument, NULL, RULE_BASE + 2},
	{"egress", required_argument, NULL, RULE_BASE + 3},
	{"connect", required_argument, NULL, RULE_BASE + 4},
	{"sni-policy", required_argument, NULL, RULE_BASE + 5},
	{"ech", required_argument, NULL, RULE_BASE + 6},
	{"upstream-proxy", required_argument, NULL, RULE_BASE + 7},
	{"no-proxy", required_argument, NULL, RULE_BASE + 8},
	{0},
};

static int number(const char *text, const char *option, uint64_t max, uint64_t *ret)
{
	if (parse_u64(text, max, ret) == 0)
		return 0;
	log_error("%s %s: not a number", option, text);
	return -1;
}

static int wrong_usage(void)
{
	(void)fputs(usage, stderr);
	return 2;
}

/* What only the supervisor gives, and the worker of a stand-alone proxy gets. -1: go on; else an exit status. */
static int worker_option(int c, struct options *o)
{
	uint64_t n;

	switch (c) {
	case 'p':
		if (number(optarg, "--parent", INT32_MAX, &n) < 0)
			return 2;
		o->harden.parent = (pid_t)n;
		return -1;
	case 'u':
		if (number(optarg, "--uid", UINT32_MAX - 1, &n) < 0)
			return 2;
		o->harden.uid = (uid_t)n;
		return -1;
	case 'g':
		if (number(optarg, "--gid", UINT32_MAX - 1, &n) < 0)
			return 2;
		o->harden.gid = (gid_t)n;
		return -1;
	case 'n':
		o->nameserver = optarg;
		strv_addf(&o->alone.worker, "--nameserver=%s", optarg);
		return -1;
	case 'r':
		o->resolv_conf = optarg;
		strv_addf(&o->alone.worker, "--resolv-conf=%s", optarg);
		return -1;
	case 'v':
		o->verbose = true;
		strv_add(&o->alone.worker, "--verbose");
		return -1;
	default:
		return wrong_usage();
	}
}

/* ps(1) shows the command line to everybody. */
static int rule_option(size_t i, struct alone *a)
{
	if (str_eq(rules[i].key, "UpstreamProxy") && policy_upstream_has_password(optarg)) {
		log_error("--upstream-proxy: a password on the command line is shown to everybody on this "
			  "machine: "
			  "write UpstreamProxy=http://USER:PASSWORD@HOST:PORT into a file for --policy");
		return 2;
	}
	strv_addf(&a->rules, "%s=%s", rules[i].key, optarg);
	return -1;
}

static int one_option(int c, struct options *o)
{
	struct alone *a = &o->alone;

	if (c >= RULE_BASE && c < RULE_BASE + (int)ELEMENTS(rules))
		return rule_option((size_t)(c - RULE_BASE), a);
	switch (c) {
	case 'l':
		if (a->listen) {
			log_error("--listen is given twice: one proxy has one port");
			return 2;
		}
		a->listen = optarg;
		return -1;
	case 'L':
		a->anywhere = true;
		return -1;
	case 'P':
		a->policy = optarg;
		return -1;
	case 'a':
		a->access_log = optarg;
		return -1;
	case 'U':
		a->user = optarg;
		return -1;
	case 'c':
		a->check = true;
		return -1;
	case 'h':
		(void)fputs(usage, stdout);
		return 0;
	case 'V':
		(void)puts("sbxsv-proxy " PACKAGE_VERSION);
		return 0;
	default:
		return worker_option(c, o);
	}
}

static int read_options(int argc, char **argv, struct options *o)
{
	int c, status;

	while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
		status = one_option(c, o);
		if (status >= 0)
			return status;
	}
	if (optind < argc) {
		CLEANUP_FREE char *word = str_escape(argv[optind], strlen(argv[optind]));

		log_error("\"%s\" is no option; rules are options, such as --allow HOST", word);
		return wrong_usage();
	}
	if (o->alone.listen && (o->harden.parent || o->harden.uid != (uid_t)-1)) {
		log_error(
			"--listen and --parent, --uid exclude each other; under root, --user NAME is meant");
		return 2;
	}
	if (!o->alone.listen && !o->alone.check &&
	    (o->alone.rules.n || o->alone.policy || o->alone.access_log || !o->harden.parent)) {
		log_error("--listen [ADDRESS:]PORT is missing");
		return wrong_usage();
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

static int worker_run(const struct options *o)
{
	struct proxy p = {0};
	CLEANUP_ERR struct err *e = NULL;

	(void)prctl(PR_SET_NAME, "sbxsv-proxy"); /* executed as /proc/self/exe, it would be "exe" */
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR)
		log_warning("SIGPIPE cannot be ignored: %s", strerror(errno));

	/* First of all: from here on we die with the supervisor, as an ordinary user. */
	if (harden_identity(&o->harden, &e) < 0) {
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
	p.nameserver = o->nameserver;
	p.resolv_conf = o->resolv_conf;
	/* What needs a socket of another kind opens it before the door closes. */
	if (local_open(&e) < 0) {
		log_error("%s", err_msg(e));
		return 1;
	}
	hang_watch(p.loop);
	if (harden_confine(&o->harden, o->resolv_conf, &e) < 0) {
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

int main(int argc, char **argv)
{
	struct options o = {.harden = {.uid = (uid_t)-1, .gid = (gid_t)-1}};
	int status;

	log_init("sbxsv-proxy", LOG_LEVEL_INFO);
	status = read_options(argc, argv, &o);
	if (status < 0)
		log_init("sbxsv-proxy", o.verbose ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO);
	if (status < 0 && (o.alone.listen || o.alone.check))
		status = alone_run(&o.alone);
	if (status < 0)
		status = worker_run(&o);
	strv_clear(&o.alone.rules);
	strv_clear(&o.alone.worker);
	return status;
}
