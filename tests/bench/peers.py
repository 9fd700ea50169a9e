"""sbxsv beside the supervisors that apt and npm give: s6, runit, supervisor, pm2.

In one run and interleaved: the same 50 commands are started, measured and ended by each in turn. Only sbxsv can put them into
jails, so it has two columns: `sbxsv` with jails, `no jail` (Enforce=off), which is what the others do.

  up        the supervisor's start included, until the last of 50 processes has said that it runs
  restart   kill -9 of one of them until its successor has said so; no delay where that can be had
  memory    private memory of everything that is not the apps themselves; "beside" it says how many processes that is
  anonymous of that what is in no file: the rest is code of libraries, private only as long as no other program has them loaded
  wakeups   context switches a second of those processes while nothing happens
  down      50 that ignore TERM, with a child in a session of its own each: until the supervisor is gone, and how many processes outlive it

Each command adds a line to a file when it runs. supervisor cannot wait less than a second before SIGKILL, and ends one program after the
other; s6 starts a service at most once a second. pm2 is found by
SBXSV_PM2 (its program), in PATH, or in node_modules/.bin of the working directory; `npm install --prefix DIR pm2` gives it.
"""
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

import harness

COUNT = 50
READY = "echo $$ >>"  # each start adds a line to a file of its own
GRACE = 300           # ms from the request to SIGKILL, where a supervisor can be told


class Peer:
    """One supervisor with n apps in a directory of its own. Paths are ready/NAME; marks find all processes."""

    def __init__(self, base, n, stubborn):
        self.base, self.n, self.stubborn = base, n, stubborn
        self.ready = os.path.join(base, "ready")
        os.makedirs(self.ready)
        os.chmod(self.ready, 0o777)
        self.mark = f"SBXSV_TEST_MARK=peers-{os.getpid()}-{os.path.basename(base)}"
        key, value = self.mark.split("=")
        self.env = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": base, "LC_ALL": "C", key: value}
        self.proc = None

    def command(self, name):
        """A line for /bin/sh."""
        said = f"{READY} {self.ready}/{name}"
        if self.stubborn:
            return f"trap '' TERM; setsid sleep 100000 & {said}; while :; do sleep 100000; done"
        return f"{said}; exec sleep 100000"

    def names(self):
        return [f"a{k:02}" for k in range(self.n)]

    def starts(self, name):
        try:
            with open(os.path.join(self.ready, name)) as f:
                return f.read().split()
        except OSError:
            return []

    def app_pid(self, name):
        return int(self.starts(name)[-1])

    def all_ready(self):
        return all(self.starts(x) for x in self.names())

    def pids(self):
        out = []
        for p in harness.all_pids():
            try:
                with open(f"/proc/{p}/environ", "rb") as f:
                    if self.mark.encode() in f.read().split(b"\0"):
                        out.append(p)
            except OSError:
                pass
        return [p for p in out if p != os.getpid()]

    def command_pids(self):
        """What is an app: the shells and sleeps."""
        out = []
        for p in self.pids():
            try:
                name = os.path.basename(os.readlink(f"/proc/{p}/exe"))
            except OSError:
                continue
            if name in ("sleep", "dash", "bash", "sh"):
                out.append(p)
        return out

    def own_pids(self):
        apps = set(self.command_pids())
        return [p for p in self.pids() if p not in apps]

    def kill_rest(self):
        for p in self.pids():
            harness.kill_pid(p)
        if self.proc:
            self.proc.wait()

    def spawn(self, argv, **kw):
        return subprocess.Popen(argv, env=self.env, cwd=self.base, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, start_new_session=True, **kw)

    def write(self, path, text, mode=0o644):
        path = os.path.join(self.base, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, mode)

    def stop(self):
        self.proc.send_signal(signal.SIGTERM)

    def stopped(self):
        self.proc.wait(timeout=300)


class S6(Peer):
    programs = ["s6-svscan"]

    def make(self):
        for x in self.names():
            self.write(f"scan/{x}/run", f"#!/bin/sh\n{self.command(x)}\n", 0o755)
            self.write(f"scan/{x}/timeout-kill", f"{GRACE}\n")

    def start(self):
        self.proc = self.spawn(["s6-svscan", os.path.join(self.base, "scan")])

    def stop(self):  # -t: TERM to all services, and end (s6-svscanctl)
        subprocess.run(["s6-svscanctl", "-t", os.path.join(self.base, "scan")], env=self.env, check=False)


class Runit(Peer):
    programs = ["runsvdir"]

    def make(self):
        for x in self.names():
            self.write(f"scan/{x}/run", f"#!/bin/sh\n{self.command(x)}\n", 0o755)

    def start(self):
        self.proc = self.spawn(["runsvdir", "-P", os.path.join(self.base, "scan")])

    def stop(self):  # HUP: TERM to each runsv, then it ends (runsvdir(8))
        self.proc.send_signal(signal.SIGHUP)

    def stopped(self):
        """runsvdir leaves; its runsv wait for their services for ever, so ours is the patience of shutdown."""
        self.proc.wait(timeout=60)
        end = time.monotonic() + 1
        while self.own_pids() and time.monotonic() < end:
            time.sleep(0.01)


class Supervisor(Peer):
    programs = ["supervisord"]

    def make(self):
        text = f"[supervisord]\nnodaemon=true\nlogfile=/dev/null\nlogfile_maxbytes=0\npidfile={self.base}/pid\n"
        for x in self.names():
            self.write(f"run/{x}", f"#!/bin/sh\n{self.command(x)}\n", 0o755)
            text += (f"[program:{x}]\ncommand={self.base}/run/{x}\nautorestart=true\nstartsecs=0\nstopwaitsecs=1\nkillasgroup=true\n"
                     "stopasgroup=true\nstdout_logfile=NONE\nstderr_logfile=NONE\n")
        self.write("supervisord.conf", text)

    def start(self):
        self.proc = self.spawn(["supervisord", "-c", os.path.join(self.base, "supervisord.conf")])


def pm2_program():
    for p in (os.environ.get("SBXSV_PM2"), shutil.which("pm2"), os.path.abspath("node_modules/.bin/pm2")):
        if p and os.access(p, os.X_OK):
            return p
    return None


class Pm2(Peer):
    programs = []

    def make(self):
        import json
        self.env["PM2_HOME"] = os.path.join(self.base, "pm2")
        apps = []
        for x in self.names():
            self.write(f"run/{x}", f"#!/bin/sh\n{self.command(x)}\n", 0o755)
            apps.append({"name": x, "script": f"{self.base}/run/{x}", "interpreter": "none", "kill_timeout": GRACE, "restart_delay": 0,
                         "out_file": "/dev/null", "error_file": "/dev/null", "max_restarts": 100000})
        self.write("eco.json", json.dumps({"apps": apps}))

    def start(self):
        self.proc = self.spawn([pm2_program(), "start", os.path.join(self.base, "eco.json")])

    def stop(self):
        self.proc.wait()
        self.proc = self.spawn([pm2_program(), "kill"])


class Sbxsv(Peer):
    programs = []
    sandbox = ""

    def make(self):
        me = harness.app_user()
        for d in ("c", "c/apps.d", "s", "r", "work"):
            os.makedirs(os.path.join(self.base, d), exist_ok=True)
            os.chmod(os.path.join(self.base, d), 0o755 if d[0] in "cw" else 0o700)
        os.chown(os.path.join(self.base, "work"), me.pw_uid, me.pw_gid)
        os.chown(self.ready, me.pw_uid, me.pw_gid)
        user = f"User={me.pw_name}\n" if harness.ROOT else ""
        for x in self.names():
            shell = self.command(x).replace("%", "%%")
            self.write(f"c/apps.d/{x}.app", f"[App]\nShell={shell}\nWorkingDirectory={self.base}/work\n{user}PassEnvironment=SBXSV_TEST_MARK\n"
                       f"[Restart]\nPolicy=always\nSec=0\nLimitBurst=1000\n[Sandbox]\nWrite={self.ready}\n{self.sandbox}")
        self.env.update(SBXSV_CONFIG_DIR=self.base + "/c", SBXSV_APPS_DIR=self.base + "/c/apps.d", SBXSV_STATE_DIR=self.base + "/s",
                        SBXSV_RUNTIME_DIR=self.base + "/r", SBXSV_UNITS_DIR=os.environ["SBXSV_UNITS_DIR"])

    def start(self):
        self.proc = self.spawn([harness.program("sbxsvd"), "--foreground"])

    def own_pids(self):
        """The proxy has no environment to be found by."""
        if self.proc.poll() is not None:
            return []
        apps = set(self.command_pids())
        return [self.proc.pid] + [p for p in harness.children(self.proc.pid) if p not in apps]

    def app_pid(self, name):
        """The number that the shell has said is that of its own pid namespace."""
        for p in self.command_pids():
            try:
                with open(f"/proc/{p}/environ", "rb") as f:
                    if f"SBXSV_APP={name}".encode() in f.read().split(b"\0"):
                        return p
            except OSError:
                continue
        raise RuntimeError(f"{name}: not found")


class NoJail(Sbxsv):
    sandbox = "Enforce=off\n"


KINDS = [("sbxsv", Sbxsv), ("no jail", NoJail), ("s6", S6), ("runit", Runit), ("supervisor", Supervisor), ("pm2", Pm2)]


def there(kind):
    if kind is Pm2:
        return pm2_program() is not None
    return all(shutil.which(p, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin") for p in kind.programs)


def rollup_kb(pid, *keys):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return sum(int(row.split()[1]) for row in f if row.startswith(keys))


def switches(pid):
    with open(f"/proc/{pid}/status") as f:
        return sum(int(row.split()[1]) for row in f if "ctxt_switches" in row)


def wait(fn, what):
    harness.wait_for(fn, 120, what=what, step=0.002)


def quiet_round(p, restarts, seconds):
    """up, restart, memory, wakeups of one supervisor."""
    out = {}
    begun = time.perf_counter()
    p.start()
    wait(p.all_ready, "all to run")
    out["up"] = (time.perf_counter() - begun) * 1000
    time.sleep(1.5)  # runit and supervisor count a start as one after a second
    took = []
    for k in range(restarts):
        name = p.names()[k % p.n]
        before, pid = len(p.starts(name)), p.app_pid(name)
        begun = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        wait(lambda: len(p.starts(name)) > before, "a restart")
        took.append((time.perf_counter() - begun) * 1000)
        time.sleep(0.02)
    out["restart"] = statistics.median(took)
    time.sleep(6)
    own = p.own_pids()
    out["memory"] = sum(rollup_kb(x, "Private_Clean:", "Private_Dirty:") for x in own) / 1024
    out["anonymous"] = sum(rollup_kb(x, "Anonymous:") for x in own) / 1024
    out["processes"] = len(own)
    before = {x: switches(x) for x in own}
    time.sleep(seconds)
    out["wakeups"] = sum(switches(x) - before[x] for x in own if os.path.exists(f"/proc/{x}")) / seconds
    return out


def down_round(p):
    p.start()
    wait(p.all_ready, "all to run")
    wait(lambda: len(p.command_pids()) >= 3 * p.n, "their children")
    begun = time.perf_counter()
    p.stop()
    p.stopped()
    took = (time.perf_counter() - begun) * 1000
    time.sleep(0.2)
    return {"down": took, "survivors": len(p.command_pids())}


def one_round(kind, base, n, restarts, seconds):
    out = {}
    for stubborn in (False, True):
        p = kind(f"{base}-{'down' if stubborn else 'up'}", n, stubborn)
        try:
            p.make()
            out.update(down_round(p) if stubborn else quiet_round(p, restarts, seconds))
        finally:
            p.kill_rest()
            shutil.rmtree(p.base, ignore_errors=True)
    return out


def run(o, failed, results):
    import tempfile
    n, rounds, restarts, seconds = (5, 1, 3, 1) if o.quick else (COUNT, o.rounds, 10, 3)
    base = tempfile.mkdtemp(prefix="peers-", dir=None if o.work else "/var/tmp")
    os.chmod(base, 0o755)
    names = [k for k, kind in KINDS if there(kind)]
    got = {k: [] for k in names}
    for r in range(rounds):
        for k, kind in KINDS:
            if k not in got:
                continue
            try:
                got[k].append(one_round(kind, os.path.join(base, f"{k.replace(' ', '-')}-{r}"), n, restarts, seconds))
            except (RuntimeError, AssertionError, OSError, subprocess.SubprocessError) as e:
                failed.append(f"peers: {k}: {type(e).__name__}: {e}")
                continue
            print(f"round {r + 1}, {k}: " + ", ".join(f"{a} {b:.1f}" for a, b in got[k][-1].items()), file=sys.stderr, flush=True)
    shutil.rmtree(base, ignore_errors=True)
    show(got, n, rounds, results)


ROWS = [("up", "apps up, supervisor's start included", "ms"), ("restart", "kill -9 to the next one running", "ms"),
        ("memory", "private memory beside the apps", "MB"), ("anonymous", "of it in no file", "MB"),
        ("processes", "processes beside the apps", ""), ("wakeups", "context switches a second, idle", "1/s"),
        ("down", "TERM-ignoring apps down", "ms"),
        ("survivors", "processes that outlive it", "")]


def show(got, n, rounds, results):
    """Medians, and in parentheses how many times sbxsv's without a jail, for that is the same work."""
    print(f"peers     {n} apps, medians of {rounds} interleaved rounds; (x): that by ours without a jail")
    print(f"peers     {'':40}" + "".join(f"{k:>18}" for k, _ in KINDS))
    for key, what, unit in ROWS:
        cells, ref = [], None
        medians = {k: statistics.median(x[key] for x in v) for k, v in got.items() if v}
        ref = medians.get("no jail")
        for k, _ in KINDS:
            if k not in medians:
                cells.append("not installed" if k not in got else "failed")
            elif ref and key not in ("survivors", "processes"):
                cells.append(f"{medians[k]:.1f} ({medians[k] / ref:.2f})")
            else:
                cells.append(f"{medians[k]:.1f}")
        print(f"peers     {what + (', ' + unit if unit else ''):40}" + "".join(f"{c:>18}" for c in cells), flush=True)
        results.append({"part": "peers", "what": what, "unit": unit, "medians": medians})
