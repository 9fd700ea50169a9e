/*
 * Words of other supervisors. People write the key they know (systemd.service(5), systemd.exec(5),
 * supervisord's [program:x], pm2's ecosystem file); "no such key" says less than the name it has here. Only
 * messages come from this table: no foreign word is ever accepted.
 */
#include "unit/internal.h"
#include <string.h>
#include <strings.h>

struct foreign {
	const char *word; /* compared without case */
	const char *here;
};

#define ALWAYS "is not needed: every jail is so"

static const struct foreign keys[] = {
	{"ExecStart", "is Exec= in [App]"},
	{"Command", "is Exec= in [App]"},
	{"Cmd", "is Exec= in [App]"},
	{"Script", "is Exec= in [App], with the interpreter before it"},
	{"Interpreter", "is the first word of Exec= in [App]"},
	{"Args", "is the rest of Exec= in [App]"},
	{"ExecStartPre", "has no counterpart; Shell= in [App] can run two commands"},
	{"ExecStop", "has no counterpart; Signal= in [Stop] is what is sent"},
	{"ExecReload", "has no counterpart: sbxsv kill -s HUP APP"},
	{"Directory", "is WorkingDirectory= in [App]"},
	{"WorkDir", "is WorkingDirectory= in [App]"},
	{"WorkingDir", "is WorkingDirectory= in [App]"},
	{"Cwd", "is WorkingDirectory= in [App]"},
	{"Env", "is Environment= in [App]"},
	{"EnvFile", "is EnvironmentFile= in [App]"},
	{"StateDirectory", "is DataDirectory= in [App], with the full path"},
	{"DataDir", "is DataDirectory= in [App]"},
	{"AutoStart", "is Enabled= in [App]"},
	{"Wants", "is After= in [App]"},
	{"Name", "is the name of the file: NAME.app"},
	{"Restart", "is Policy= in [Restart]"},
	{"AutoRestart", "is Policy= in [Restart]"},
	{"RestartSec", "is Sec= in [Restart]"},
	{"StartLimitBurst", "is LimitBurst= in [Restart]"},
	{"StartLimitInterval", "is LimitInterval= in [Restart]"},
	{"StartLimitIntervalSec", "is LimitInterval= in [Restart]"},
	{"StartRetries", "is LimitBurst= in [Restart]"},
	{"KillSignal", "is Signal= in [Stop]"},
	{"StopSignal", "is Signal= in [Stop]"},
	{"TimeoutStopSec", "is Timeout= in [Stop]"},
	{"StopWaitSecs", "is Timeout= in [Stop]"},
	{"TimeoutStartSec", "is Timeout= in [Ready]"},
	{"StartSecs", "is Timeout= in [Ready]"},
	{"Port", "is Listen= in [Network]"},
	{"Ports", "is Listen= in [Network]"},
	{"ListenStream", "is Listen= in [Network]"},
	{"Bind", "is Listen= in [Network], with ListenAddress="},
	{"AllowHost", "is Allow= in [Network]"},
	{"AllowedHosts", "is Allow= in [Network]"},
	{"AllowedDomains", "is Allow= in [Network]"},
	{"IPAddressAllow", "is AllowAddress= in [Network]"},
	{"IPAddressDeny", "is Deny= in [Network]"},
	{"PrivateNetwork", "is Egress=off in [Network], the default"},
	{"ReadOnlyPaths", "is Read= in [Sandbox]"},
	{"BindReadOnlyPaths", "is Read= in [Sandbox]: every path keeps its place"},
	{"AllowRead", "is Read= in [Sandbox]"},
	{"ReadOnly", "is Read= in [Sandbox]"},
	{"ReadWritePaths", "is Write= in [Sandbox]"},
	{"BindPaths", "is Write= in [Sandbox]: every path keeps its place"},
	{"AllowWrite", "is Write= in [Sandbox]"},
	{"ReadWrite", "is Write= in [Sandbox]"},
	{"Writable", "is Write= in [Sandbox]"},
	{"InaccessiblePaths", "is Hide= in [Sandbox]"},
	{"DeviceAllow", "is Device= in [Sandbox]"},
	{"PrivateTmp", ALWAYS},
	{"PrivateDevices", ALWAYS},
	{"PrivateUsers", ALWAYS},
	{"ProtectHome", ALWAYS},
	{"ProtectSystem", ALWAYS},
	{"ProtectKernelTunables", ALWAYS},
	{"ProtectProc", ALWAYS},
	{"NoNewPrivileges", ALWAYS},
	{"RestrictNamespaces", ALWAYS},
	{"SystemCallFilter", ALWAYS},
	{"CapabilityBoundingSet", ALWAYS},
	{"MemoryMax", "is Memory= in [Limits]"},
	{"MemoryHigh", "is Memory= in [Limits]"},
	{"MemoryLimit", "is Memory= in [Limits]"},
	{"CPUQuota", "is CPU= in [Limits]"},
	{"TasksMax", "is Tasks= in [Limits]"},
	{"LimitNOFILE", "is OpenFiles= in [Limits]"},
	{"LimitNPROC", "is Tasks= in [Limits]"},
	{"LimitCORE", "is Core= in [Limits]"},
	{"StandardOutput", "is not needed: output goes to the log, sbxsv logs NAME"},
	{"StandardError", "is not needed: output goes to the log, sbxsv logs NAME"},
	{NULL, NULL},
};

static const struct foreign sections[] = {
	{"Unit", "is systemd's: Description= and After= go to [App]"},
	{"Service", "is systemd's: ExecStart= is Exec= in [App], Restart= is Policy= in [Restart]"},
	{"Install", "is systemd's: Enabled= in [App] says whether the app starts with the supervisor"},
	{"Socket", "is systemd's: ListenStream= is Listen= in [Network]"},
	{"Program", "is [App] here, and the name of the file is the name of the app"},
	{"Process", "is [App] here"},
	{"Environment", "is Environment=NAME=value in [App] here"},
	{"Logging", "is [Log] here"},
	{"Security", "is [Sandbox] here"},
	{"Permissions", "is [Sandbox] here"},
	{NULL, NULL},
};

static const char *find(const struct foreign *t, const char *word)
{
	for (; t->word; t++)
		if (strcasecmp(t->word, word) == 0)
			return t->here;
	return NULL;
}

const char *unit_foreign_key(const char *name)
{
	return find(keys, name);
}

const char *unit_foreign_section(const char *name)
{
	return find(sections, name);
}
