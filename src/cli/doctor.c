/*
 * What can this machine enforce? Measured, not guessed from version numbers: a jail is really built, in each
 * read mode, with the network set-up apps get, and torn down again. The answer is kept for 20 s in the state
 * directory, because tools ask more often than machines change.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/program.h"
#include "cli/cli.h"
#include "cli/limits_view.h"
#include "cli/run_net.h"
#include "net/net.h"
#include "sandbox/backend.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define CACHE_FILE  "doctor.json"
#define CACHE_MS    20000
#define CACHE_BYTES (64 << 10)

enum { DOCTOR_REFRESH = CLI_LONG };

struct report {
	struct js *checks;
	bool jail_works;
};

/* state: "ok" is there, "no" is missing and needed, "note" is missing and only wanted */
static void check(struct report *r, const char *name, const char *state, const char *fmt, ...)
	PRINTF_LIKE(4, 5);
static void check(struct report *r, const char *name, const char *state, const char *fmt, ...)
{
	CLEANUP_FREE char *text = NULL;
	struct js *o = js_obj();
	va_list ap;

	va_start(ap, fmt);
	text = xvasprintf(fmt, ap);
	va_end(ap);
	js_add_str(o, "name", name);
	js_add_str(o, "state", state);
	js_add_str(o, "detail", text);
	js_push(r->checks, o);
}

static void yes_no(struct report *r, const char *name, bool there, const char *what)
{
	check(r, name, there ? "ok" : "no", "%s", what);
}

/* --- trial launches --- */

static void network_checks(struct report *r, const struct launch_sockets *s)
{
	CLEANUP_FREE char *text = NULL;
	struct net_inside_result made;

	net_inside_unpack(s->facts, &made);
	text = net_capture_text(&made);
	if (made.capture == NET_CAPTURE_RULES)
		check(r, "transparent", "ok", "%s: every TCP connection of every program is judged", text);
	else
		check(r, "transparent", "note",
		      "%s: programs that ignore the proxy variables reach allowed hosts only on the ports "
		      "that "
		      "the rules list (kernel options NF_TABLES and NFT_TPROXY)",
		      text);
	if (made.v6)
		check(r, "IPv6", "ok", "inside jails");
	else
		check(r, "IPv6", "note", "off in this kernel: jails have IPv4 only");
}

static void layer_checks(struct report *r, const struct isolation *i)
{
	yes_no(r, "user namespace", i->user_ns, "own ids, no capabilities on the machine");
	yes_no(r, "mount namespace", i->mount_ns, "own view of the disk, same paths");
	yes_no(r, "pid namespace", i->pid_ns, "nothing of an app survives its stop");
	yes_no(r, "network namespace", i->net_ns, "no service of this machine is reachable");
	yes_no(r, "no_new_privs", i->no_new_privs, "set-user-ID programs gain nothing");
	if (i->seccomp)
		check(r, "seccomp", "ok", "system call filter in force");
	else
		check(r, "seccomp", "no", "no system call filters in this kernel (CONFIG_SECCOMP_FILTER)");
	if (i->landlock_abi)
		check(r, "Landlock", "ok", "ABI %d, second layer on files%s", i->landlock_abi,
		      i->landlock_abi >= 6 ? ", abstract sockets and signals" : "");
	else
		check(r, "Landlock", "note",
		      "not there (boot parameter lsm=, Linux 5.19 or later): jails have one layer on files, "
		      "and apps that "
		      "would see FIFOs of others are refused");
	if (i->groups_kept)
		check(r, "groups", "note",
		      "an ordinary user cannot drop supplementary groups: apps keep the ones of this user");
	for (size_t k = 0; k < i->missing.n; k++)
		check(r, "missing", "no", "%s", i->missing.v[k]);
}

static void trial(struct report *r, const char *init, enum unit_read_mode mode)
{
	static const uint16_t loopback[] = {5432};
	const char *name = mode == UNIT_READ_OPEN ? "jail, ReadMode=open" : "jail, ReadMode=strict";
	struct net_plan net = {
		.egress = true, .ports_only = net_ports_only(), .loopback = loopback, .n_loopback = 1};
	struct probe p = {
		.init_program = init, .read_mode = mode, .inside_net = run_net_inside, .inside_net_data = &net};
	CLEANUP_ERR struct err *e = NULL;

	if (backend_linux.probe(&p, &e) < 0) {
		check(r, name, "no", "%s", err_msg(e));
		r->jail_works = false;
	} else {
		check(r, name, "ok", "built, run and gone in %" PRId64 ".%" PRId64 " ms", p.took_us / 1000,
		      p.took_us % 1000 / 100);
	}
	if (mode == UNIT_READ_STRICT && !e) {
		layer_checks(r, &p.isolation);
		network_checks(r, &p.sockets);
	}
	isolation_finish(&p.isolation);
	fd_close_many(p.sockets.fds, p.sockets.n);
}

/* --- cgroups --- */

/* Of the supervisor that runs, which may be in another group than we are; else of one that would be started here. */
static void cgroup_check(struct report *r, const struct cli *c)
{
	struct limits_view v;

	limits_view_get(c, &v);
	for (unsigned i = 0; i < ELEMENTS(v.why); i++) {
		CLEANUP_FREE char *name = xasprintf("limits, %s", cgroup_controller_name(1u << i));

		if (v.why[i])
			check(r, name, "note", "%s of [Limits] %s: %s", limits_key(i),
			      i == 0   ? "holds for each process by itself"
			      : i == 1 ? "is not enforced"
				       : "is exact for jails alone",
			      v.why[i]);
		else
			check(r, name, "ok", "%s of [Limits] holds for the app as a whole (cgroup v2)",
			      limits_key(i));
	}
	limits_view_finish(&v);
}

/* --- the report --- */

static struct js *measure(const struct cli *c)
{
	CLEANUP_FREE char *init = program_find("sbxsv-init", SBXSV_LIBEXECDIR);
	struct report r = {.checks = js_arr(), .jail_works = true};
	struct js *all = js_obj();

	trial(&r, init, UNIT_READ_STRICT);
	trial(&r, init, UNIT_READ_OPEN);
	cgroup_check(&r, c);
	js_add_str(all, "as", geteuid() == 0 ? "root" : "user");
	js_add_bool(all, "jails", r.jail_works);
	js_add_int(all, "measured_ms", clk_wall_ms());
	js_add(all, "checks", r.checks);
	return all;
}

static struct js *cached(const struct cli *c)
{
	CLEANUP_FREE char *path = path_join(c->dirs.state, CACHE_FILE), *text = NULL;
	CLEANUP_JS struct js *j = NULL;
	size_t len = 0;
	struct stat st;
	int64_t age;

	if (lstat(path, &st) < 0 || st.st_uid != geteuid())
		return NULL;
	if (file_read(AT_FDCWD, path, CACHE_BYTES, &text, &len, NULL) < 0)
		return NULL;
	j = js_parse(text, len, NULL);
	age = j ? clk_wall_ms() - js_int_or(j, "measured_ms", 0) : -1;
	if (age < 0 || age > CACHE_MS || !js_is_arr(js_get(j, "checks")))
		return NULL;
	return TAKE_PTR(j);
}

/* Only beside a state directory that exists already: asking must not make one. */
static void keep(const struct cli *c, const struct js *all)
{
	CLEANUP_FD int dir = open(c->dirs.state, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	CLEANUP_FREE char *text = js_print(all);

	if (dir >= 0)
		(void)file_write_atomic(dir, CACHE_FILE, text, strlen(text), 0600, NULL);
}

static void print(const struct cli *c, const struct js *all)
{
	CLEANUP_FREE char *text = NULL;

	if (c->json) {
		text = js_print_pretty(all);
		puts(text);
		return;
	}
	for (const struct js *k = js_first(js_get(all, "checks")); k; k = js_next(k)) {
		CLEANUP_FREE char *detail = cli_safe(js_str(k, "detail"));

		printf("%-5s %-22s %s\n", js_str(k, "state"), js_str(k, "name"), detail);
	}
	printf("\nAs %s, this machine can%s build the jails that sbxsv promises.\n", js_str(all, "as"),
	       js_bool_or(all, "jails", false) ? "" : "not");
}

static int run(struct cli *c, const struct cli_args *a)
{
	CLEANUP_JS struct js *all = NULL;

	if (a->n_rest)
		return cli_usage(&cmd_doctor, "doctor takes no arguments");
	if (!cli_has(a, DOCTOR_REFRESH))
		all = cached(c);
	if (!all) {
		all = measure(c);
		keep(c, all);
	}
	print(c, all);
	return js_bool_or(all, "jails", false) ? CLI_OK : CLI_REFUSED;
}

static const struct cli_option options[] = {
	{DOCTOR_REFRESH, "refresh", NULL, "measure again, even when the last answer is younger than 20 s"},
	{0, NULL, NULL, NULL},
};

const struct command cmd_doctor = {
	.name = "doctor",
	.usage = "doctor [--refresh] [--json]",
	.help = "what this machine can enforce, by building a jail, and how to get what it cannot",
	.flags = CLI_JSON,
	.options = options,
	.fn = run,
};
