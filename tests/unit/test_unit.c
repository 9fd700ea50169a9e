/* Units as text: the reader, quoting and expansion, every key, rules between keys, the diff. No disk. */
#include "sandbox/rules.h"
#include "unit/unit.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static char dir_config[] = "/home/u/.config/sbxsv", dir_apps[] = "/home/u/.config/sbxsv/apps.d",
	    dir_state[] = "/home/u/.local/state/sbxsv", dir_run[] = "/run/user/1000/sbxsv",
	    dir_units[] = "/usr/share/sbxsv/units", dir_home[] = "/home/u", user_name[] = "u",
	    state_home[] = "/home/u/.local/state", run_home[] = "/run/user/1000";
static struct unit_dirs dirs = {
	.config = dir_config,
	.apps = dir_apps,
	.state = dir_state,
	.runtime = dir_run,
	.profiles = dir_units,
	.home = dir_home,
	.user = user_name,
	.uid = 1000,
	.state_home = state_home,
	.runtime_home = run_home,
	.min_port = 1024,
};

#define BASE "[App]\nExec=/bin/true\nWorkingDirectory=/srv/x\n"

static struct unit *parse_as(const char *name, const char *text, struct unit_problems *p)
{
	return unit_parse_buffer(&dirs, name, "t.app", text, strlen(text), p);
}

/* The text is a good unit. */
static struct unit *good(const char *text)
{
	struct unit_problems p = {0};
	struct unit *u = parse_as("t", text, &p);

	if (!u) {
		CLEANUP_FREE char *all = unit_problems_text(&p);

		fail_msg("refused: %s\n%s", all, text);
	}
	assert_int_equal(p.n, 0);
	return u;
}

/* The text has exactly one problem, in this line, with this in its text. */
static void bad(const char *text, unsigned line, const char *want)
{
	struct unit_problems p = {0};
	CLEANUP_UNIT struct unit *u = parse_as("t", text, &p);
	CLEANUP_FREE char *all = unit_problems_text(&p);

	if (u || p.n != 1 || p.v[0].line != line || !strstr(p.v[0].text, want))
		fail_msg("wanted line %u \"%s\", got %zu:\n%sfor\n%s", line, want, p.n, all, text);
	unit_problems_clear(&p);
}

/* --- defaults and a unit that uses everything --- */

static void test_defaults(void **state)
{
	CLEANUP_UNIT struct unit *u = good(BASE);

	(void)state;
	assert_string_equal(u->name, "t");
	assert_null(u->instance);
	assert_int_equal(u->mode, UNIT_BACKGROUND);
	assert_int_equal(u->exec.n, 1);
	assert_string_equal(u->exec_origin, "t.app:2");
	assert_string_equal(u->app_directory, "/srv/x");
	assert_string_equal(u->app_directory_origin, "t.app:3");
	assert_true(u->enabled);
	assert_int_equal(u->restart, UNIT_RESTART_ON_FAILURE);
	assert_int_equal(u->restart_ms, 100);
	assert_int_equal(u->restart_max_ms, 30000);
	assert_int_equal(u->limit_burst, 10);
	assert_int_equal(u->limit_interval_ms, 300000);
	assert_int_equal(u->success_status[0], 1);
	assert_int_equal(u->stop_signal, SIGTERM);
	assert_int_equal(u->stop_timeout_ms, 2000);
	assert_int_equal(u->ready, UNIT_READY_EXEC);
	assert_string_equal(u->ready_path, "/");
	assert_int_equal(u->ready_timeout_ms, 30000);
	assert_int_equal(u->idle_timeout_ms, 60000);
	assert_string_equal(u->profile, "strict");
	assert_int_equal(u->enforce, UNIT_ENFORCE_REQUIRED);
	assert_int_equal(u->backend, UNIT_BACKEND_AUTO);
	assert_int_equal(u->read_mode, UNIT_READ_STRICT);
	assert_false(u->nested_sandbox);
	assert_int_equal(u->egress, UNIT_EGRESS_OFF);
	assert_string_equal(u->listen_address, "127.0.0.1");
	assert_true(u->sni_match);
	assert_false(u->ech_refuse);
	assert_int_equal(u->limit_core, 0);
	assert_string_equal(u->log_target, "file");
	assert_int_equal(u->log_max_size, 10 << 20);
	assert_int_equal(u->log_max_files, 5);
	assert_true(u->reclaim);
	assert_string_equal(u->audit_violations, "writes");
	assert_int_equal(u->not_in_force.n, 0);
	assert_null(unit_not_startable(u));
}

static const char everything[] =
	"# a comment\n"
	"; another = comment ]\n"
	"[App]\n"
	"Description = Notes; with a semicolon # and a hash\n"
	"Exec=/usr/bin/node server.js --port $PORT \"two words\" 'single $HOME' a\\ b %n\n"
	"Path=~/tools/bin\n"
	"Path=/opt/node/bin\n"
	"WorkingDirectory=~/apps/My Notes\n"
	"AppDirectory=~/apps\n"
	"DataDirectory=%S/notes\n"
	"Environment=A=1 \"B=two words\" C=~/c D=$PORT\n"
	"EnvironmentFile=-~/notes.env\n"
	"PassEnvironment=LANG TZ\n"
	"[Restart]\n"
	"Policy=always\n"
	"Sec=0.5\n"
	"MaxSec=1min 30s\n"
	"SuccessExitStatus=3 143\n"
	"[Stop]\n"
	"Signal=SIGINT\n"
	"Timeout=0\n"
	"[Ready]\n"
	"Type=http\n"
	"Path=/healthz?x=1\n"
	"[Sandbox]\n"
	"ReadMode=open\n"
	"Read=-~/music\n"
	"Read=/srv/share//x/./y\n"
	"Write=~/out\n"
	"Hide=~/out/private\n"
	"UnixSocket=-%t/pipewire-0\n"
	"Device=-/dev/dri\n"
	"Secret=aws npmrc\n"
	"NestedSandbox=yes\n"
	"[Network]\n"
	"Listen=4810:3000\n"
	"Listen=4811\n"
	"ListenAddress=0.0.0.0\n"
	"Allow=api.example.com *.example.org:443\n"
	"Deny=bad.example.org\n"
	"AllowAddress=192.168.1.100:5432\n"
	"Loopback=5432 6379\n"
	"Loopback=5432\n"
	"SniPolicy=off\n"
	"Ech=refuse\n"
	"[Limits]\n"
	"Tasks=100\n"
	"OpenFiles=1024\n"
	"Core=1M\n"
	"Nice=5\n"
	"TmpSize=64M\n"
	"[Log]\n"
	"File=~/log/notes.log\n"
	"MaxSize=1M\n"
	"MaxFiles=2\n"
	"Timestamps=yes\n"
	"[Port]\n"
	"Reclaim=no\n";

static void check_everything_app(const struct unit *u)
{
	static const char *const argv[] = {"/usr/bin/node", "server.js",    "--port", "3000",
					   "two words",     "single $HOME", "a b",    "t"};

	assert_string_equal(u->description, "Notes; with a semicolon # and a hash");
	assert_int_equal(u->exec.n, ELEMENTS(argv));
	for (size_t i = 0; i < ELEMENTS(argv); i++)
		assert_string_equal(u->exec.v[i], argv[i]);
	assert_string_equal(u->path.v[0].text, "/home/u/tools/bin");
	assert_string_equal(u->path.v[1].text, "/opt/node/bin");
	assert_string_equal(u->path.v[1].origin, "t.app:7");
	assert_string_equal(u->working_directory, "/home/u/apps/My Notes");
	assert_string_equal(u->app_directory, "/home/u/apps");
	assert_string_equal(u->data_directory.v[0].text, "/home/u/.local/state/notes");
	assert_int_equal(u->environment.n, 4);
	assert_string_equal(u->environment.v[1].text, "B=two words");
	assert_string_equal(u->environment.v[2].text, "C=/home/u/c");
	assert_string_equal(u->environment.v[3].text, "D=3000");
	assert_string_equal(u->environment_file.v[0].text, "-/home/u/notes.env");
	assert_int_equal(u->pass_environment.n, 2);
}

static void check_everything_rest(const struct unit *u)
{
	assert_int_equal(u->restart, UNIT_RESTART_ALWAYS);
	assert_int_equal(u->restart_ms, 500);
	assert_int_equal(u->restart_max_ms, 90000);
	assert_int_equal(u->success_status[0], 1 | 8);
	assert_int_equal(u->success_status[143 / 8], 1 << (143 % 8));
	assert_int_equal(u->stop_signal, SIGINT);
	assert_int_equal(u->stop_timeout_ms, 0);
	assert_int_equal(u->ready, UNIT_READY_HTTP);
	assert_string_equal(u->ready_path, "/healthz?x=1");
	assert_int_equal(u->read_mode, UNIT_READ_OPEN);
	assert_string_equal(u->read.v[0].text, "-/home/u/music");
	assert_string_equal(u->read.v[1].text, "/srv/share/x/y");
	assert_string_equal(u->unix_socket.v[0].text, "-/run/user/1000/pipewire-0");
	assert_string_equal(u->device.v[0].text, "-/dev/dri");
	assert_int_equal(u->secret.n, 2);
	assert_true(u->nested_sandbox);
	assert_int_equal(u->n_listen, 2);
	assert_int_equal(u->listen[0].host_port, 4810);
	assert_int_equal(u->listen[0].app_port, 3000);
	assert_int_equal(u->listen[1].app_port, 4811);
	assert_string_equal(u->listen[1].origin, "t.app:37");
	assert_int_equal(u->egress, UNIT_EGRESS_HOSTS);
	assert_int_equal(u->allow.n, 2);
	assert_string_equal(u->allow.v[1].text, "*.example.org:443");
	assert_int_equal(u->n_loopback, 2);
	assert_false(u->sni_match);
	assert_true(u->ech_refuse);
	assert_int_equal(u->limit_core, 1 << 20);
	assert_int_equal(u->nice, 5);
	assert_int_equal(u->tmp_size, 64 << 20);
	assert_string_equal(u->log_file, "/home/u/log/notes.log");
	assert_false(u->reclaim);
	assert_int_equal(u->not_in_force.n, 0);
}

static void test_everything(void **state)
{
	CLEANUP_UNIT struct unit *u = good(everything);

	(void)state;
	check_everything_app(u);
	check_everything_rest(u);
}

/* --- every key of the table --- */

struct sample {
	const char *section, *key, *valid, *invalid;
	const char *context; /* lines of other keys this one needs, NULL */
};
#define LISTEN "[Network]\nListen=4810\n"
static const struct sample samples[] = {
	{"App", "Description", "x y", NULL, NULL},
	{"App", "Mode", "session", "sesion", LISTEN},
	{"App", "Exec", "/bin/true 'x'", "/bin/true 'x", NULL},
	{"App", "Shell", "exec a | b %h", "date +%Y", NULL},
	{"App", "Path", "~/bin", "/a:/b", NULL},
	{"App", "WorkingDirectory", "~/x", "x", NULL},
	{"App", "AppDirectory", "~/x", "~", NULL},
	{"App", "DataDirectory", "~/data", "-~/data", NULL},
	{"App", "User", NULL, "u", NULL},
	{"App", "Group", NULL, "u", NULL},
	{"App", "Environment", "A=1", "1A=1", NULL},
	{"App", "EnvironmentFile", "-~/x", "x", NULL},
	{"App", "PassEnvironment", "LANG TZ", "A-B", NULL},
	{"App", "After", "db cache", "Db", NULL},
	{"App", "Requires", "db", "t", NULL},
	{"App", "Enabled", "no", "never", NULL},
	{"Restart", "Policy", "no", "sometimes", NULL},
	{"Restart", "Sec", "1s", "1 parsec", NULL},
	{"Restart", "MaxSec", "1min", "-1", NULL},
	{"Restart", "LimitBurst", "3", "0", NULL},
	{"Restart", "LimitInterval", "0", "soon", NULL},
	{"Restart", "SuccessExitStatus", "1 2", "256", NULL},
	{"Stop", "Signal", "INT", "SIGSTOP", NULL},
	{"Stop", "Timeout", "10s", "2h", NULL},
	{"Ready", "Type", "exec", "http", NULL},
	{"Ready", "Path", "/x", "x", LISTEN "[Ready]\nType=http\n"},
	{"Ready", "Timeout", "1min", "0", NULL},
	{"Session", "IdleTimeout", "1s", "999ms", LISTEN "[App]\nMode=session\n"},
	{"Session", "IdleBy", "traffic", "time", LISTEN "[App]\nMode=session\n"},
	{"Sandbox", "Profile", "open", "Open", NULL},
	{"Sandbox", "Enforce", "off", "of", NULL},
	{"Sandbox", "Backend", "linux", "chroot", NULL},
	{"Sandbox", "ReadMode", "allowlist", "all", NULL},
	{"Sandbox", "Read", "-/x", "/x/../y", NULL},
	{"Sandbox", "Write", "/x", "x", NULL},
	{"Sandbox", "Hide", "~/x", "$HOME/x", NULL},
	{"Sandbox", "UnixSocket", "%t/x", "x", NULL},
	{"Sandbox", "Device", "/dev/kvm", "/etc", NULL},
	{"Sandbox", "Secret", "ssh", "sssh", NULL},
	{"Sandbox", "NestedSandbox", "true", "maybe", NULL},
	{"Sandbox", "BindPolicy", "declared", "none", NULL},
	{"Network", "Egress", "all", "some", NULL},
	{"Network", "Connect", "443,8000-8100", "99999", "[Network]\nEgress=all\n"},
	{"Network", "Allow", "x.com:443", "localhost", NULL},
	{"Network", "Deny", "x.com com", "http://x.com/", NULL},
	{"Network", "AllowAddress", "10.0.0.1:5432", "127.0.0.1:80", NULL},
	{"Network", "Listen", "8080:80", "80", NULL},
	{"Network", "ListenAddress", "::1", "localhost", LISTEN},
	{"Network", "Loopback", "5432", "0", NULL},
	{"Network", "SniPolicy", "off", "on", NULL},
	{"Network", "Ech", "refuse", "no", NULL},
	{"Network", "Ask", "yes", "2", NULL},
	{"Network", "UpstreamProxy", "http://u:p%40@p:3128", "p:3128", NULL},
	{"Network", "NoProxy", "x.com *.corp.test 10.0.0.0/8", "10.0.0.0/99", "[Network]\nUpstreamProxy=http://p:1\n"},
	{"Limits", "Memory", "512M", "512", NULL},
	{"Limits", "CPU", "150%", "150", NULL},
	{"Limits", "Tasks", "64", "0", NULL},
	{"Limits", "OpenFiles", "1024", "1", NULL},
	{"Limits", "Core", "0", "none", NULL},
	{"Limits", "Nice", "19", "-1", NULL},
	{"Limits", "TmpSize", "1G", "1", NULL},
	{"Health", "Http", "/h", "h", LISTEN},
	{"Health", "Tcp", "yes", "tcp", LISTEN},
	{"Health", "Exec", "curl x", "a && b", NULL},
	{"Health", "Interval", "1s", "1ms", NULL},
	{"Health", "Timeout", "1s", "1ms", NULL},
	{"Health", "Retries", "1", "0", NULL},
	{"Health", "WatchdogSec", "30s", "x", NULL},
	{"Log", "Target", "journal", "stdout", NULL},
	{"Log", "File", "/var/log/x.log", "/srv/x/x.log", NULL},
	{"Log", "MaxSize", "1M", "1K", NULL},
	{"Log", "MaxFiles", "3", "0", NULL},
	{"Log", "Timestamps", "on", "rfc3339", NULL},
	{"Needs", "Bin", "ffmpeg git", "/a/../b", NULL},
	{"Needs", "OptionalBin", "jq", "a/b", NULL},
	{"Needs", "Env", "API_KEY", "API-KEY", NULL},
	{"Needs", "Os", "linux macos", "beos", NULL},
	{"Needs", "Node", ">=18 <23", "newest", NULL},
	{"Needs", "Python", "^3.10", "3.", NULL},
	{"Prepare", "Exec", "npm ci", "", NULL},
	{"Prepare", "Files", "~/x/package-lock.json", "package-lock.json", "[Prepare]\nExec=npm ci\n"},
	{"Prepare", "Allow", "packages.example.com", "10.0.0.1", "[Prepare]\nExec=npm ci\n"},
	{"Prepare", "Timeout", "5min", "1ms", "[Prepare]\nExec=npm ci\n"},
	{"Prepare", "Retries", "2", "101", "[Prepare]\nExec=npm ci\n"},
	{"Port", "Reclaim", "no", "nope", NULL},
	{"Hooks", "OnStart", "/bin/echo x", "\"", NULL},
	{"Hooks", "OnReady", "/bin/echo x", "> x", NULL},
	{"Hooks", "OnExit", "/bin/echo x", "echo `x`", NULL},
	{"Hooks", "OnFail", "/bin/echo x", "echo $(x)", NULL},
	{"Hooks", "OnViolation", "/bin/echo x", "echo $APP", NULL},
	{"Hooks", "Unsafe", "yes", "very", NULL},
	{"Audit", "Violations", "all", "reads", NULL},
	{"Audit", "Trace", "yes", "full", NULL},
};

static char *sample_text(const struct sample *s, const char *value)
{
	bool exec = strcmp(s->section, "App") == 0 &&
		    (strcmp(s->key, "Exec") == 0 || strcmp(s->key, "Shell") == 0);
	bool wd = strcmp(s->key, "WorkingDirectory") == 0;

	return xasprintf("[App]\n%s%s%s[%s]\n%s=%s\n", exec ? "" : "Exec=/bin/true\n",
			 wd ? "" : "WorkingDirectory=/srv/x\n", s->context ? s->context : "", s->section,
			 s->key, value);
}

static const struct sample *sample_of(const struct unit_key *k)
{
	for (size_t i = 0; i < ELEMENTS(samples); i++)
		if (strcmp(samples[i].section, k->section) == 0 && strcmp(samples[i].key, k->name) == 0)
			return &samples[i];
	return NULL;
}

/* Every key of the table takes a valid value and refuses an invalid one in its own line. */
static void test_every_key(void **state)
{
	size_t n;
	const struct unit_key *k = unit_keys(&n);

	(void)state;
	assert_int_equal(n, ELEMENTS(samples));
	for (size_t i = 0; i < n; i++) {
		const struct sample *s = sample_of(&k[i]);

		if (!s)
			fail_msg("no sample for [%s] %s=", k[i].section, k[i].name);
		if (s->valid) {
			CLEANUP_FREE char *text = sample_text(s, s->valid);

			unit_free(good(text));
		}
		if (s->invalid) {
			CLEANUP_FREE char *text = sample_text(s, s->invalid);
			unsigned line = 0;

			for (const char *c = text; *c; c++)
				line += *c == '\n';
			bad(text, line, "");
		}
		assert_true(k[i].help[0] && k[i].type[0]);
	}
}

/* What a later version brings is named with its line; what would weaken the jail stops the start. */
static void test_not_in_force(void **state)
{
	CLEANUP_UNIT struct unit *u =
		good(BASE LISTEN "Ask=yes\n#\n[Audit]\nTrace=yes\n");
	CLEANUP_UNIT struct unit *session =
		good(BASE LISTEN "[App]\nMode=session\n[Session]\nIdleTimeout=5s\nIdleBy=traffic\n");
	CLEANUP_UNIT struct unit *backend = good(BASE "[Sandbox]\nBackend=bwrap\n");
	CLEANUP_UNIT struct unit *bind = good(BASE "[Sandbox]\nBindPolicy=declared\n");
	CLEANUP_UNIT struct unit *bind_lax =
		good(BASE "[Sandbox]\nBindPolicy=declared\nEnforce=best-effort\n");
	CLEANUP_UNIT struct unit *proxy = good(BASE "[Network]\nUpstreamProxy=http://p:3128\n");
	CLEANUP_UNIT struct unit *plain =
		good(BASE "[Network]\nAsk=no\n[Audit]\nViolations=writes\n[Health]\nRetries=3\n");
	CLEANUP_FREE char *why = unit_not_startable(session), *why_bind = unit_not_startable(bind);
	CLEANUP_FREE char *why_backend = unit_not_startable(backend), *why_proxy = unit_not_startable(proxy);

	(void)state;
	assert_int_equal(u->not_in_force.n, 2);
	assert_string_equal(u->not_in_force.v[0], "t.app:6 [Network] Ask= is read but not in force yet");
	assert_string_equal(u->not_in_force.v[1], "t.app:9 [Audit] Trace= is read but not in force yet");
	assert_null(unit_not_startable(u));
	assert_null(why);
	assert_int_equal(session->not_in_force.n, 0);
	assert_non_null(why_bind);
	assert_non_null(why_backend);
	assert_null(why_proxy);
	assert_int_equal(proxy->not_in_force.n, 0);
	assert_int_equal(bind_lax->not_in_force.n, 1);
	assert_null(unit_not_startable(bind_lax));
	assert_int_equal(plain->not_in_force.n, 0);
}

/* --- quoting and expansion --- */

static void exec_is(const char *value, size_t n, const char *const *want)
{
	CLEANUP_FREE char *text =
		xasprintf("[App]\nWorkingDirectory=/srv/x\nExec=%s\n[Network]\nListen=4810:80\n", value);
	CLEANUP_UNIT struct unit *u = good(text);

	assert_int_equal(u->exec.n, n);
	for (size_t i = 0; i < n; i++)
		assert_string_equal(u->exec.v[i], want[i]);
}
#define EXEC(value, ...)                                                                                     \
	exec_is(value, ELEMENTS(((const char *const[]){__VA_ARGS__})), (const char *const[]){__VA_ARGS__})

static void bad_exec(const char *value, const char *want)
{
	CLEANUP_FREE char *text = xasprintf("[App]\nWorkingDirectory=/srv/x\nExec=%s\n", value);

	bad(text, 3, want);
}

static void test_words(void **state)
{
	(void)state;
	EXEC("a  b\tc", "a", "b", "c");
	EXEC("a '' \"\"", "a", "", "");
	EXEC("a 'b c'd\"e f\"", "a", "b cde f");
	EXEC("a \\' \\\" \\\\ \\n", "a", "'", "\"", "\\", "n");
	EXEC("a \"\\\"\\\\\\$x\\`\\n\"", "a", "\"\\$x`\\n");
	EXEC("a '\\' 'it'\\''s'", "a", "\\", "it's");
	EXEC("~/bin/a ~ a~ '~' \"~/x\" x=~/y", "/home/u/bin/a", "/home/u", "a~", "~", "~/x", "x=/home/u/y");
	EXEC("a %h %n %t %S %% x%ny", "a", "/home/u", "t", "/run/user/1000", "/home/u/.local/state", "%",
	     "xty");
	EXEC("a $PORT ${PORT} :$PORT/ '$PORT' \\$PORT", "a", "80", "80", ":80/", "$PORT", "$PORT");
	EXEC("a '%n' \"%n $PORT\"", "a", "t", "t 80");
	EXEC("a '#' #x x;y a&b $ 5$ $1 ^foo$ 'a && b' '|'", "a", "#", "#x", "x;y", "a&b", "$", "5$", "$1",
	     "^foo$", "a && b", "|");
}

static void test_words_refused(void **state)
{
	(void)state;
	bad_exec("a 'b", "single quote is not closed");
	bad_exec("a \"b", "double quote is not closed");
	bad_exec("a b\\", "ends with a backslash");
	bad_exec("a $HOME/x", "knows only $PORT; $HOME is not expanded");
	bad_exec("a ${HOME}", "${HOME}");
	bad_exec("a $PORTX", "$PORTX");
	bad_exec("a $PORT", "there is none");
	bad_exec("a && b", "runs no shell, so && has no meaning");
	bad_exec("a | b", "use Shell=");
	bad_exec("a > b", "Shell=");
	bad_exec("a $(b)", "runs no shell");
	bad_exec("a `b`", "runs no shell");
	bad_exec("a # what a does", "a comment needs its own line; quote the #");
	bad_exec("a %z", "%z is not known");
	bad_exec("a %", "'%' at the end");
	bad_exec("a %i", "not NAME@INSTANCE");
	bad_exec("''", "no program");
	bad_exec("", "value is empty");
}

static void test_shell_line(void **state)
{
	CLEANUP_UNIT struct unit *u = good("[App]\nWorkingDirectory=/srv/x\nShell=cd %h && exec \"$X\" ~/y "
					   "$PORT | tee `z` # c %% ; '\n");

	(void)state;
	assert_string_equal(u->shell, "cd /home/u && exec \"$X\" ~/y $PORT | tee `z` # c % ; '");
	assert_int_equal(u->exec.n, 0);
	assert_string_equal(u->exec_origin, "t.app:3");
}

static void test_instance(void **state)
{
	struct unit_problems p = {0};
	CLEANUP_UNIT struct unit *u =
		parse_as("web@8123",
			 "[App]\nExec=/bin/x %i %n\nWorkingDirectory=~/sites/%i\n[Network]\nListen=%i\n", &p);

	(void)state;
	assert_non_null(u);
	assert_string_equal(u->instance, "8123");
	assert_string_equal(u->exec.v[1], "8123");
	assert_string_equal(u->exec.v[2], "web@8123");
	assert_string_equal(u->working_directory, "/home/u/sites/8123");
	assert_int_equal(u->listen[0].host_port, 8123);
}

/* --- lists, duplicates, rules between keys --- */

static void test_lists(void **state)
{
	CLEANUP_UNIT struct unit *u =
		good(BASE "[Network]\nAllow=a.com\nAllow=\nAllow=b.com\nAllow=c.com\nListen=4810\nListen=\n"
			  "Loopback=1 2\nLoopback=\n[Needs]\nBin=a\nEnv=E\nBin=\nBin=b\n");

	(void)state;
	assert_int_equal(u->allow.n, 2);
	assert_string_equal(u->allow.v[0].text, "b.com");
	assert_string_equal(u->allow.v[0].origin, "t.app:7");
	assert_int_equal(u->n_listen, 0);
	assert_int_equal(u->ready, UNIT_READY_EXEC);
	assert_int_equal(u->n_loopback, 0);
	assert_int_equal(u->needs.n, 2);
	assert_string_equal(u->needs.v[0].text, "Env=E");
	assert_string_equal(u->needs.v[1].text, "Bin=b");
}

static void test_between_keys(void **state)
{
	(void)state;
	bad("", 0, "needs WorkingDirectory= and Exec=");
	bad("[App]\nWorkingDirectory=/x\n", 0, "needs Exec=");
	bad("[App]\nExec=/x\n", 0, "needs WorkingDirectory=");
	bad(BASE "Shell=x\n", 4, "exclude each other");
	bad("[App]\nExec=/x\nWorkingDirectory=/home/u\n", 3, "home directory or above");
	bad("[App]\nExec=/x\nWorkingDirectory=/\n", 3, "home directory or above");
	bad(BASE "AppDirectory=/home\n", 4, "home directory or above");
	bad(BASE "[Network]\nEgress=off\nAllow=x.com\n", 6, "beside Egress=off (t.app:5)");
	bad(BASE "[Network]\nEgress=off\nAllowAddress=10.0.0.1:80\n", 6,
	    "AllowAddress= beside Egress=off (t.app:5)");
	bad(BASE "[Network]\nConnect=443\n", 5, "needs Egress=all");
	bad(BASE "[Network]\nListen=4810\nListen=4810:80\n", 6, "named twice");
	bad(BASE "[Network]\nListen=80\n", 5, "Listen=8080:80");
	bad(BASE "[Network]\nListen=127.0.0.1:4810\n", 5, "an address goes to ListenAddress=");
	bad(BASE "[Network]\nListen=4810 # web\n", 5, "(a comment needs its own line)");
	bad(BASE "[Network]\nLoopback=localhost:5432\n", 5, "write the port alone");
	bad(BASE "[Network]\nAllow=https://x.com:8443/v1\n", 5, "without \"https://\": x.com:8443");
	bad(BASE "[Network]\nAllow=x.com, y.com\n", 5, "separate hosts by spaces");
	bad(BASE "[Network]\nListen=4810:5432\nLoopback=5432\n", 6, "the app's own port");
	bad(BASE "[Network]\nListenAddress=0.0.0.0\n", 5, "needs a Listen=");
	bad(BASE "[Ready]\nType=listen\n", 5, "needs a Listen=");
	bad(BASE "[Ready]\nPath=/x\n", 5, "needs Type=http");
	bad(BASE "Mode=session\n", 4, "needs a Listen=");
	bad(BASE "Mode=session\n" LISTEN "[Sandbox]\nEnforce=off\n", 4, "needs a jail");
	bad(BASE "Mode=stdio\n" LISTEN, 4, "exclude each other");
	bad(BASE "[Session]\nIdleTimeout=5s\n", 5, "needs Mode=session");
	bad(BASE "[Restart]\nSec=1min\n", 5, "longer than MaxSec");
	bad(BASE "[Sandbox]\nBackend=none\n", 5, "needs Enforce=off");
	bad(BASE "User=www\n", 4, "runs as root");
	bad(BASE "Requires=t\n", 4, "the app itself");
	bad(BASE LISTEN "[Health]\nHttp=/\nExec=/x\n", 8, "exclude each other");
	bad(BASE "[Log]\nTarget=syslog\nFile=/var/log/x\n", 6, "needs Target=file");
	bad(BASE "DataDirectory=/srv/y\n[Log]\nFile=/srv/y/z/log\n", 6, "where the app can write");
	bad(BASE "[Prepare]\nTimeout=5s\n", 5, "needs Exec=");
}

/* A rule of either kind opens the network by itself. */
static void test_egress_implied(void **state)
{
	CLEANUP_UNIT struct unit *host = good(BASE "[Network]\nAllow=x.com\n"),
				 *address = good(BASE "[Network]\nAllowAddress=10.0.0.1:80\n"),
				 *all = good(BASE "[Network]\nEgress=all\nAllowAddress=10.0.0.1:80\n"),
				 *deny = good(BASE "[Network]\nDeny=x.com\n");

	(void)state;
	assert_int_equal(host->egress, UNIT_EGRESS_HOSTS);
	assert_int_equal(address->egress, UNIT_EGRESS_HOSTS);
	assert_int_equal(all->egress, UNIT_EGRESS_ALL);
	assert_int_equal(deny->egress, UNIT_EGRESS_OFF);
}

/* The words of other supervisors: their name here, and never accepted. */
static void test_foreign_words(void **state)
{
	(void)state;
	bad(BASE "ExecStart=/x\n", 4, "ExecStart= is not a key of [App]: it is Exec= in [App]");
	bad(BASE "[Restart]\nRestart=always\n", 5, "it is Policy= in [Restart]");
	bad(BASE "directory=/x\n", 4, "it is WorkingDirectory= in [App]");
	bad(BASE "[Sandbox]\nPrivateTmp=yes\n", 5, "it is not needed: every jail is so");
	bad(BASE "[Service]\nType=simple\n", 4, "[Service] is systemd's");
	bad(BASE "[program:x]\ncommand=y\n", 4, "[program:x] is supervisord's");
	/* what has this name elsewhere, and no foreign meaning, is still sent there */
	bad(BASE "Http=/\n", 4, "it belongs in [Health]");
}

/* --- among units --- */

static void test_address_clash(void **state)
{
	static const struct {
		const char *a, *b;
		bool clash;
	} rows[] = {
		{"127.0.0.1", "127.0.0.1", true}, {"127.0.0.1", "127.0.0.2", false},
		{"127.0.0.1", "0.0.0.0", true},   {"::1", "::", true},
		{"::1", "0:0::1", true},          {"::1", "127.0.0.1", false},
		{"::", "0.0.0.0", false},         {"::1", "fd00::1", false},
	};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(rows); i++) {
		assert_int_equal(unit_address_clash(rows[i].a, rows[i].b), rows[i].clash);
		assert_int_equal(unit_address_clash(rows[i].b, rows[i].a), rows[i].clash);
	}
}

static size_t clashes(struct unit *with, const char *text, char **ret_first)
{
	struct unit_scan_entry entry = {.unit = with};
	const struct unit_scan scan = {.v = &entry, .n = 1};
	struct unit_problems p = {0};
	CLEANUP_UNIT struct unit *u = parse_as("new", text, &p);
	size_t n;

	assert_non_null(u);
	unit_clash_check(u, &scan, 1, &p);
	n = p.n;
	*ret_first = n ? xasprintf("%s:%u: %s", p.v[0].file, p.v[0].line, p.v[0].text) : NULL;
	unit_problems_clear(&p);
	return n;
}

static void test_ports_of_two_units(void **state)
{
	CLEANUP_UNIT struct unit *t = good(BASE LISTEN), *off = good(BASE "Enabled=no\n" LISTEN);
	CLEANUP_FREE char *first = NULL, *none = NULL;

	(void)state;
	assert_int_equal(clashes(t, BASE "[Network]\nListen=4999 4810:80\n", &first), 1);
	assert_string_equal(first, "t.app:5: port 4810 is already Listen= of app t (t.app:5): choose another "
				   "host port, such as Listen=4811:80");
	assert_int_equal(clashes(t, BASE "[Network]\nListen=4811:4810\n", &none), 0);
	assert_int_equal(clashes(t, BASE "[Network]\nListen=4810\nListenAddress=127.0.0.2\n", &none), 0);
	assert_int_equal(clashes(t, BASE "Enabled=no\n" LISTEN, &none), 0);
	assert_int_equal(clashes(off, BASE LISTEN, &none), 0);
}

static void test_root_mode(void **state)
{
	CLEANUP_UNIT struct unit *u = NULL;

	(void)state;
	dirs.root_mode = true;
	bad(BASE "User=root\n", 4, "never runs as root");
	bad(BASE "Group=www\n", 4, "needs User=");
	u = good(BASE "User=www-data\nGroup=www-data\n[Limits]\nNice=-5\n");
	assert_string_equal(u->user, "www-data");
	assert_int_equal(u->nice, -5);
	dirs.root_mode = false;
}

/* --- all errors of a file, in order, one each --- */

static void test_all_errors(void **state)
{
	struct unit_problems p = {0};
	CLEANUP_FREE char *all = NULL;

	(void)state;
	assert_null(parse_as(
		"t",
		"Key=before\n[App\nExec=skipped\n[Aap]\nExec=skipped\n[App]\nExek=x\nMode=sesion\n cont\n"
		"Exec: x\nnothing\nRead=/x\n=x\n[Log] # c\nMaxSize=1\n[Log]\nMaxSize=1K\nMaxSize=2K\n",
		&p));
	all = unit_problems_text(&p);
	assert_string_equal(all, "t.app:1: Key= is outside any section: it needs a [Section] line above\n"
				 "t.app:2: a section header without ']': [App\n"
				 "t.app:4: [Aap] is not a section: did you mean [App]?\n"
				 "t.app:7: Exek= is not a key of [App]: did you mean Exec=?\n"
				 "t.app:8: [App] Mode: sesion is not one of background, session, stdio (did "
				 "you mean session?)\n"
				 "t.app:9: the line begins with a space (lines cannot be continued): cont\n"
				 "t.app:10: ':' does not separate key and value, write KEY=VALUE: Exec: x\n"
				 "t.app:11: neither [Section] nor KEY=VALUE: nothing\n"
				 "t.app:12: Read= is not a key of [App]: it belongs in [Sandbox]\n"
				 "t.app:13: no key before '='\n"
				 "t.app:14: text after ']': # c (a comment needs its own line)\n"
				 "t.app:17: [Log] MaxSize: 1K is too small: at least 4096 bytes\n"
				 "t.app:18: [Log] MaxSize= is set twice in this file (first in line 17)\n");
	unit_problems_clear(&p);
}

static void test_hostile_bytes(void **state)
{
	static const char nul[] =
		"[App]\nExec=/bin/true\nWorkingDirectory=/srv/x\0\nWorkingDirectory=/srv/x\n";
	struct unit_problems p = {0};
	struct strbuf b = STRBUF_INIT;

	(void)state;
	assert_null(unit_parse_buffer(&dirs, "t", "t.app", nul, sizeof nul - 1, &p));
	assert_int_equal(p.n, 1);
	assert_int_equal(p.v[0].line, 3);
	unit_problems_clear(&p);
	bad(BASE "Description=\x1b[2J\n", 4, "control character");
	bad(BASE "Description=\xff\n", 4, "broken UTF-8 at column 13");
	bad(BASE "Description=a\xe2\x80\xae"
		 "b\n",
	    4, "control character");
	bad("\xef\xbb\xbf" BASE, 1, "byte order mark");
	bad("[App]\r\nExec=/bin/true\r\nWorkingDirectory=/x\r\n", 1, "CR LF");
	bad("\xff\xfe[\0A\0", 1, "UTF-16");
	/* a line at the limit is fine, one byte more is not; inih never sees either */
	strbuf_adds(&b, BASE "Description=");
	for (size_t i = strlen("Description="); i < 8192; i++)
		strbuf_addc(&b, 'x');
	unit_free(good(b.p));
	strbuf_addc(&b, 'x');
	bad(b.p, 4, "8193 bytes");
	strbuf_reset(&b);
	/* thousands of bad lines: bounded */
	for (int i = 0; i < 5000; i++)
		strbuf_adds(&b, "x\n");
	assert_null(parse_as("t", b.p, &p));
	assert_in_range(p.n, 50, 52);
	assert_non_null(strstr(p.v[p.n - 1].text, "too many errors"));
	unit_problems_clear(&p);
	strbuf_finish(&b);
}

/* --- what a reload sees --- */

static unsigned change(const char *a, const char *b)
{
	CLEANUP_FREE char *ta = xasprintf("%s%s", BASE, a), *tb = xasprintf("%s%s", BASE, b);
	CLEANUP_UNIT struct unit *ua = good(ta), *ub = good(tb);

	assert_int_equal(unit_diff(ua, ub), unit_diff(ub, ua));
	return unit_diff(ua, ub);
}

static void test_diff(void **state)
{
	(void)state;
	assert_int_equal(change("", ""), 0);
	assert_int_equal(change("", "# comment\n[Restart]\nSec=0.1\n"), 0);
	assert_int_equal(change("", "AppDirectory=/srv/x\n"), 0);
	assert_int_equal(change("[Network]\nAllow=a.com\nAllow=b.com\n", "[Network]\n\nAllow=a.com b.com\n"),
			 0);
	assert_int_equal(change("[Network]\nAllow=a.com\n", "[Network]\nAllow=b.com\n"), UNIT_CHANGE_LIVE);
	assert_int_equal(change("[Network]\nAllow=a.com\n", "[Network]\nEgress=all\n"), UNIT_CHANGE_LIVE);
	assert_int_equal(change("", "[Network]\nAllow=a.com\n"), UNIT_CHANGE_LIVE | UNIT_CHANGE_RESTART);
	assert_int_equal(change("", "[Restart]\nSec=1s\n"), UNIT_CHANGE_LIVE);
	assert_int_equal(change("", "[Log]\nMaxSize=1M\n"), UNIT_CHANGE_LIVE);
	assert_int_equal(change("", "[Sandbox]\nRead=/x\n"), UNIT_CHANGE_RESTART);
	/* how an app is listened to is told to it at its start */
	assert_int_equal(change("", "[Ready]\nType=notify\n"), UNIT_CHANGE_RESTART);
	assert_int_equal(change("[Ready]\nType=fd\n", ""), UNIT_CHANGE_RESTART);
	assert_int_equal(change("", "[Health]\nWatchdogSec=5s\n"), UNIT_CHANGE_RESTART);
	assert_int_equal(change("", "[Health]\nExec=/bin/true\n"), UNIT_CHANGE_LIVE);
	assert_int_equal(change("", "Environment=A=1\n"), UNIT_CHANGE_RESTART);
	assert_int_equal(change("[Network]\nListen=4810\n", "[Network]\nListen=4811\n"),
			 UNIT_CHANGE_RESTART | UNIT_CHANGE_PORTS);
	/* the host's side alone */
	assert_int_equal(
		change("[Network]\nListen=4810\n", "[Network]\nListen=4810\nListenAddress=0.0.0.0\n"),
		UNIT_CHANGE_RESTART | UNIT_CHANGE_PORTS);
	assert_int_equal(change("[Network]\nListen=4810\n", "[Network]\nListen=4810\nListenAddress=127.0.0.2\n"),
			 UNIT_CHANGE_LIVE | UNIT_CHANGE_PORTS);
	assert_int_equal(change("[Network]\nListen=4810\n", "[Network]\nListen=4811:4810 4812:4810\n"),
			 UNIT_CHANGE_LIVE | UNIT_CHANGE_PORTS);
	assert_int_equal(change("[Network]\nListen=4810 4811\n", "[Network]\nListen=4811 4810\n"),
			 UNIT_CHANGE_RESTART | UNIT_CHANGE_PORTS); /* another $PORT */
	assert_int_equal(change("[Sandbox]\nEnforce=off\n[Network]\nListen=4810\n",
				"[Sandbox]\nEnforce=off\n[Network]\nListen=4810\nListenAddress=0.0.0.0\n"),
			 UNIT_CHANGE_RESTART | UNIT_CHANGE_PORTS);
	assert_int_equal(change("[Network]\nLoopback=1\n", "[Network]\nLoopback=1 app:notes\n"), UNIT_CHANGE_LIVE);
}

static void test_names(void **state)
{
	static const char *const ok[] = {
		"a",        "0",           "a-b_c9",
		"web@blue", "web@1.2_X-y", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
	static const char *const no[] = {
		"",        "A",   "-a",
		"_a",      "a.b", "a/b",
		"web@",    "@x",  "web@a/b",
		"web@a@b", "a b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(ok); i++)
		assert_true(unit_name_valid(ok[i]));
	for (size_t i = 0; i < ELEMENTS(no); i++)
		assert_false(unit_name_valid(no[i]));
}

static void test_env_file(void **state)
{
	static const char text[] =
		"# c\n\nA=1\nexport B=two words\nC=\"a \\\"q\\\" $X\"\nD='$x \\n'\n E = x \nF=\n";
	static const char *const want[] = {"A=1", "B=two words", "C=a \"q\" $X", "D=$x \\n", "F="};
	static const char broken[] = "sk-secret\nX='y\nY='a'b\n";
	CLEANUP_STRV struct strv got = {0};
	struct unit_problems p = {0};
	CLEANUP_FREE char *all = NULL;

	(void)state;
	assert_int_equal(unit_env_file_parse(text, sizeof text - 1, "x.env", &got, &p), -1);
	assert_int_equal(p.n, 1);
	assert_int_equal(p.v[0].line, 7);
	assert_int_equal(got.n, ELEMENTS(want));
	for (size_t i = 0; i < ELEMENTS(want); i++)
		assert_string_equal(got.v[i], want[i]);
	unit_problems_clear(&p);
	/* the value of a bad line may be a secret: it is not repeated */
	assert_int_equal(unit_env_file_parse(broken, strlen(broken), "x.env", &got, &p), -1);
	all = unit_problems_text(&p);
	assert_int_equal(p.n, 3);
	assert_null(strstr(all, "secret"));
	unit_problems_clear(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),       cmocka_unit_test(test_everything),
		cmocka_unit_test(test_every_key),      cmocka_unit_test(test_not_in_force),
		cmocka_unit_test(test_words),          cmocka_unit_test(test_words_refused),
		cmocka_unit_test(test_shell_line),     cmocka_unit_test(test_instance),
		cmocka_unit_test(test_lists),          cmocka_unit_test(test_between_keys),
		cmocka_unit_test(test_egress_implied), cmocka_unit_test(test_foreign_words),
		cmocka_unit_test(test_address_clash),  cmocka_unit_test(test_ports_of_two_units),
		cmocka_unit_test(test_root_mode),      cmocka_unit_test(test_all_errors),
		cmocka_unit_test(test_hostile_bytes),  cmocka_unit_test(test_diff),
		cmocka_unit_test(test_names),          cmocka_unit_test(test_env_file),
	};

	rules_wire_checks(&dirs);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
