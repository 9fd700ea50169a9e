"""A random walk over everything that may happen to a supervisor and its apps.

Eight apps of different kinds are started, stopped, edited, broken, frozen and killed; so are the proxy and the supervisor. After each
step what the API says is compared with what the kernel says, from time to time also with what was asked for, and when all
is stopped the descriptors of the supervisor and the proxy are counted.

  SBXSV_CHAOS_SECONDS   how long it walks (40)
  SBXSV_CHAOS_SEED      the seed of another walk, as printed
"""
import collections
import http.client
import os
import random
import signal
import socket
import time

import pytest

from harness import MARK, PYTHON, ROOT, UnixHttp, all_pids, describe, http_get, kill_pid, proc_start, wait_for
from test_sup import GENEROUS, STUBBORN, refused, unit

SECONDS = float(os.environ.get("SBXSV_CHAOS_SECONDS", "40"))
SEED = int(os.environ.get("SBXSV_CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
QUICK = "[Restart]\nPolicy=always\nSec=5ms\nMaxSec=300ms\nLimitBurst=100000\n"
CRASHING = ("crash", "limit")
SERVERS = ("web", "hosts", "slow", "off")
LATE = "sleep 0.7\nexec /usr/bin/python3 appserver.py\n"

Process = collections.namedtuple("Process", "pid parent state start app")


def processes(mark):
    """Every process, and of those of the instance's apps which app they say they are."""
    want, out = f"{MARK}={mark}".encode(), {}
    for pid in all_pids():
        try:
            with open(f"/proc/{pid}/stat", "rb") as f:
                fields = f.read().rpartition(b")")[2].split()
        except OSError:
            continue
        app = None
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                env = f.read().split(b"\0")
            if want in env:
                app = next((e[10:].decode() for e in env if e.startswith(b"SBXSV_APP=")), None)
        except OSError:
            pass
        out[pid] = Process(pid, int(fields[1]), fields[0].decode(), int(fields[19]), app)
    return out


def listeners(pid):
    """Ports on which sockets of this process listen."""
    inodes, ports = set(), []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            pass
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}") as f:
            for line in f.readlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                    ports.append(int(fields[1].rpartition(":")[2], 16))
    return sorted(ports)


class Walk:
    def __init__(self, inst, free_port):
        self.inst, self.rng = inst, random.Random(SEED)
        self.port = {name: free_port() for name in SERVERS}
        self.wanted = {}   # app -> True: should run, False: should not, None: either, the files and a person raced
        self.gone, self.broken, self.frozen = set(), set(), []
        self.edits = 0
        self.daemon = self.proxy = None
        self.most = None   # descriptors when all is stopped
        self.done = []
        self.open = []
        self.disagree = ""

    # --- files ---

    def write(self, name, extra=""):
        i, port = self.inst, self.port.get(name)
        if name in ("web", "hosts"):
            more = "" if name == "web" else f"Egress=hosts\nAllow=example.com\nAllow=n{self.edits}.example.org\nLoopback={self.port['web']}\n"
            i.server_unit(name, port, body=QUICK + "[Stop]\nTimeout=300ms\n", extra_app=extra, network=more)
        elif name == "off":
            i.server_unit(name, port, body=QUICK + "[Stop]\nTimeout=300ms\n[Sandbox]\nEnforce=off\n", extra_app=extra)
        elif name == "slow":
            d = i.server_unit(name, port)
            i.user_file(f"{d}/late.sh", LATE)
            i.write_unit(name, f"[App]\nExec=/bin/sh late.sh\nWorkingDirectory={d}\n{extra}\n[Network]\nListen={port}\n{QUICK}")
        elif name == "stub":
            d = i.app_dir(name, {"stub.py": STUBBORN})
            i.write_unit(name, f"[App]\nExec={PYTHON} -S -E stub.py\nWorkingDirectory={d}\n{extra}\n[Stop]\nTimeout=60ms\n{QUICK}")
        elif name == "crash":
            i.write_unit(name, unit(i.app_dir(name), "sleep 0.05; exit 1", extra, QUICK.replace("300ms", "2s")))
        elif name == "limit":
            i.write_unit(name, unit(i.app_dir(name), "exit 3", extra, "[Restart]\nSec=1ms\nMaxSec=20ms\nLimitBurst=4\n"))
        else:
            i.write_unit(name, unit(i.app_dir(name), "exec sleep 1000", extra, QUICK))

    APPS = ("web", "hosts", "slow", "off", "stub", "crash", "limit", "job")

    def restore(self, name):
        """The file as it should be."""
        if name in self.gone:  # a new app, unless its end was not noticed yet
            self.wanted[name] = True if self.inst.peek(name) is None else None
        elif name in self.broken and self.wanted[name] is False:
            self.wanted[name] = None  # if no good version was ever known this is the first
        self.gone.discard(name)
        self.broken.discard(name)
        self.write(name)

    # --- what may happen ---

    def command(self, name, verb, wait):
        code, reply = self.inst.api("POST", f"/v1/apps/{name}/{verb}", {"wait": wait}, timeout=GENEROUS)
        assert code == 200 or name in self.gone, (name, verb, code, reply)
        if name not in self.gone:
            self.wanted[name] = verb != "stop"
            if verb == "stop" and wait:
                assert reply["code"] == 0, reply

    def some(self):
        return self.rng.choice(self.APPS)

    def do_command(self):
        name, verb = self.some(), self.rng.choice(("start", "stop", "restart", "restart"))
        wait = self.rng.random() < 0.3 and not self.frozen
        self.note(f"{verb} {name}{' and wait' if wait else ''}")
        self.command(name, verb, wait)

    def do_storm(self):
        name = self.some()
        verbs = [self.rng.choice(("start", "stop", "restart")) for _ in range(5)]
        self.note(f"{' '.join(verbs)} {name}")
        for v in verbs:
            self.command(name, v, False)

    def do_all(self):
        verb = self.rng.choice(("restart", "start"))
        self.note(f"{verb} all")
        assert self.inst.api("POST", f"/v1/apps/*/{verb}", {"wait": False}, timeout=GENEROUS)[0] == 200
        for name in self.wanted:
            self.wanted[name] = True

    def family(self, name):
        """(init, the processes below it), as far as there are any."""
        s = self.inst.peek(name) or {}
        pid, all_ = s.get("pid"), processes(self.inst.mark)
        mine = [p for p in all_.values() if p.app == name and p.pid != pid]
        return pid, [p.pid for p in mine]

    def do_kill_app(self):
        name = self.some()
        pid, mine = self.family(name)
        which = self.rng.choice(("init", "one", "all"))
        self.note(f"kill -9 {which} of {name}")
        victims = ([pid] if pid and which == "init" else mine[:1] if which == "one" else mine) or []
        for p in victims:
            kill_pid(p)

    def do_kill_wrapper(self):
        """The init of the app without a jail: its own parent."""
        pid = (self.inst.peek("off") or {}).get("pid")
        p = processes(self.inst.mark).get(pid)
        self.note("kill -9 the init of off")
        if p and p.parent != 1 and p.parent != self.daemon:
            kill_pid(p.parent)

    def do_freeze(self):
        name = self.some()
        _, mine = self.family(name)
        self.note(f"SIGSTOP {name}")
        for p in mine:
            kill_pid(p, signal.SIGSTOP)
            self.frozen.append((p, proc_start(p)))

    def thaw(self):
        for p, start in self.frozen:
            if start is not None and proc_start(p) == start:
                kill_pid(p, signal.SIGCONT)
        self.frozen = []

    def do_kill_proxy(self):
        self.note("kill -9 sbxsv-proxy")
        if self.proxy and (p := self.inst.proxy_pid()):
            kill_pid(p)
        self.proxy = None

    def do_edit(self):
        name = self.some()
        if name in self.gone or name in self.broken:
            return self.do_restore()
        self.edits += 1
        live = name == "hosts" and self.rng.random() < 0.5
        self.note(f"edit {name}{' (live)' if live else ''}")
        self.write(name, "" if live else f"Environment=X={self.edits}")

    def do_break(self):
        name = self.some()
        if name in self.gone or name in self.broken:
            return self.do_restore()
        self.note(f"break {name}")
        self.broken.add(name)
        with open(self.inst.unit_path(name)) as f:
            text = f.read()
        self.inst.write_unit(name, text + "\nnonsense\n")

    def do_remove(self):
        name = self.some()
        if name in self.gone:
            return self.do_restore()
        self.note(f"remove {name}")
        self.broken.discard(name)
        self.gone.add(name)
        self.inst.remove_unit(name)

    def do_restore(self):
        for name in sorted(self.gone | self.broken):
            if self.rng.random() < 0.7:
                self.note(f"restore {name}")
                self.restore(name)

    def do_reload(self):
        self.note("reload")
        code, r = self.inst.api("POST", "/v1/reload", timeout=GENEROUS)
        assert code == 200 and bool(r["problems"]) == bool(self.broken), r

    def do_clients(self):
        self.note("clients")
        for _ in range(self.rng.randrange(1, 30)):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(("127.0.0.1", self.port[self.rng.choice(SERVERS)]))
            self.open.append(s)
        for s in self.open:
            try:
                s.send(self.rng.choice((b"GET /", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 1000)))
            except OSError:
                pass
        self.rng.shuffle(self.open)
        while len(self.open) > 40:
            self.open.pop().close()

    def do_inner(self):
        """What an app asks of the proxy: a refused site, and another app by Loopback=."""
        if self.frozen or not self.wanted["hosts"] or "hosts" in self.gone:
            return
        self.note("the app hosts connects")
        for path in ("/fetch?u=http://refused.example/", f"/connect?h=127.0.0.1&p={self.port['web']}"):
            try:
                http_get(self.port["hosts"], path, timeout=10)
            except (OSError, http.client.HTTPException):
                pass

    def do_streams(self):
        self.note("streams of the API")
        for path in ("/v1/events?follow=1", "/v1/apps/crash/logs?follow=1"):
            c = UnixHttp(self.inst.control)
            c.request("GET", path)
            self.open.append(c)

    def do_down_up(self):
        self.note("down, up")
        self.inst.down()
        assert not self.living(), self.living()  # nothing survives `down`, not for a moment
        self.begin()

    def do_kill_daemon(self):
        self.note("kill -9 sbxsvd")
        kill_pid(self.daemon)
        wait_for(lambda: proc_start(self.daemon) is None)
        if self.rng.random() < 0.5:  # without a pid namespace processes may survive until the next start
            wait_for(lambda: not [p for p in self.living() if p.app != "off"], GENEROUS, "the end of all that is jailed")
        self.begin()

    def living(self):
        return [p for p in processes(self.inst.mark).values() if p.app and p.state not in "ZX"]

    def begin(self):
        self.inst.up()
        self.daemon, self.proxy = self.inst.daemon_pid(), None
        for name in self.APPS:
            if name not in self.gone:
                self.wanted[name] = True

    # --- what must be true ---

    def note(self, text):
        self.done.append(text)

    def compare(self):
        """One look at both; true when they agree. Between two looks things happen: only lasting disagreement counts."""
        code, before = self.inst.api("GET", "/v1/status")
        seen = processes(self.inst.mark)
        ports = listeners(self.daemon)
        after = self.inst.api("GET", "/v1/status")[1]

        def pids(s):
            return {a["name"]: (a["state"], a.get("pid")) for a in s["apps"]}, s["supervisor"]["proxy"].get("pid")
        if code != 200 or pids(before) != pids(after):
            self.disagree = "always changing"
            return False
        return self.judge(before, seen, ports)

    def judge(self, status, seen, ports):
        api = {a["name"]: a for a in status["apps"]}
        proxy = status["supervisor"]["proxy"].get("pid")
        tops = {}

        def top(pid):
            while pid in seen and seen[pid].parent != self.daemon:
                pid = seen[pid].parent
            return pid
        for name, a in api.items():
            if a.get("pid"):
                tops[top(a["pid"])] = name
        kids = {p.pid for p in seen.values() if p.parent == self.daemon}
        known = set(tops) | ({proxy} if proxy else set())
        strays = [p for p in seen.values() if p.app and tops.get(top(p.pid)) != p.app]
        held = sorted(p["host"] for a in api.values() if a["name"] != "off" for p in a["ports"])
        files = sorted(self.port[n] for n in SERVERS if n != "off" and n not in self.gone)
        problems = [
            ("apps", sorted(api), sorted(set(self.APPS) - self.gone)),
            ("children of sbxsvd", sorted(kids), sorted(known)),
            ("zombies", [p for p in kids if seen[p].state == "Z"], []),
            ("processes that no app has", [describe(p.pid) for p in strays], []),
            ("processes of what does not run", [n for n, a in api.items() if a.get("pid") and a["state"] in ("stopped", "failed", "backoff")], []),
            ("ports in status", held, files),
            ("ports that sbxsvd listens on", ports, files),
        ]
        # a broken unit that was never good has no ports
        if self.broken:
            problems = problems[:-2] + [("ports that sbxsvd listens on", ports, held)]
        self.disagree = "; ".join(f"{what}: {got}, not {want}" for what, got, want in problems if got != want)
        return not self.disagree

    def check(self):
        assert proc_start(self.daemon) is not None and self.inst.daemon_pid() == self.daemon, "sbxsvd is not who it was"
        end = time.monotonic() + GENEROUS
        while not self.compare():
            assert time.monotonic() < end, self.disagree
            time.sleep(0.03)
        proxy = wait_for(self.inst.proxy_pid, GENEROUS, "a proxy")
        assert self.proxy in (None, proxy), "sbxsv-proxy is not who it was"
        self.proxy = proxy

    def as_wanted(self):
        self.inst.api("POST", "/v1/reload", timeout=GENEROUS)  # what the watch has not seen yet
        for name, want in self.wanted.items():
            if name in self.gone or name in self.broken or want is None:
                continue
            if not want:
                self.inst.wait_state(name, "stopped")
            elif name == "limit":
                self.inst.wait_state(name, "failed")
            elif name == "crash":
                self.inst.wait_state(name, "running", "starting", "backoff")
            else:
                s = self.inst.wait_state(name, "running", "failed")
                assert s["state"] == "running", f"{name}: {s}"
            if name in SERVERS:
                self.serves(name, want)

    def serves(self, name, want):
        port = self.port[name]
        if want:
            assert wait_for(lambda: http_get(port, timeout=GENEROUS), GENEROUS).text.startswith("ok ")
        else:
            how = refused(port)
            assert how == ("refused" if name == "off" else "reset"), f"{name} is stopped: {how}"

    def calm(self):
        """All is stopped: nothing of it is left, and the descriptors are what they were."""
        self.note("stop all, all files restored")
        self.close_clients()
        for name in sorted(self.gone | self.broken):
            self.restore(name)
        self.inst.api("POST", "/v1/reload", timeout=GENEROUS)
        code, reply = self.inst.api("POST", "/v1/apps/*/stop", {"wait": True}, timeout=GENEROUS)
        assert code == 200 and reply["code"] == 0, reply
        for name in self.APPS:
            self.wanted[name] = False
        self.as_wanted()
        self.check()
        assert not self.living(), self.living()
        if self.most is None:
            time.sleep(1)  # what ended just now is forgotten
            self.most = self.descriptors()
        wait_for(lambda: all(n <= m for n, m in zip(self.descriptors(), self.most)), GENEROUS,
                 f"descriptors {self.most}; it has {self.descriptors()}: {self.listing()}")
        assert self.inst.api("POST", "/v1/apps/*/start", {"wait": False}, timeout=GENEROUS)[0] == 200
        for name in self.APPS:
            self.wanted[name] = True

    def descriptors(self):
        # the proxy is not dumpable: closed to its own user
        return [len(os.listdir(f"/proc/{p}/fd")) for p in ((self.daemon, self.inst.proxy_pid()) if ROOT else (self.daemon,))]

    def listing(self):
        out = []
        for p in (self.daemon, self.inst.proxy_pid()) if ROOT else (self.daemon,):
            for fd in os.listdir(f"/proc/{p}/fd"):
                try:
                    out.append(os.readlink(f"/proc/{p}/fd/{fd}"))
                except OSError:
                    pass
        return collections.Counter(n.partition(":")[0] for n in out)

    def close_clients(self):
        for c in self.open:
            c.close()
        self.open = []

    # --- the walk ---

    ACTIONS = ((do_command, 10), (do_storm, 2), (do_all, 1), (do_kill_app, 5), (do_kill_wrapper, 1), (do_freeze, 2), (do_kill_proxy, 2),
               (do_edit, 4), (do_break, 2), (do_remove, 2), (do_restore, 4), (do_reload, 2), (do_clients, 3), (do_inner, 2),
               (do_streams, 1), (do_down_up, 1), (do_kill_daemon, 1))

    def step(self):
        for _ in range(self.rng.choice((1, 1, 1, 2, 4))):
            self.rng.choices([a for a, _ in self.ACTIONS], [w for _, w in self.ACTIONS])[0](self)
            time.sleep(self.rng.choice((0, 0, 0.01, 0.1)))
        self.thaw()
        self.check()

    def run(self):
        for name in self.APPS:
            self.write(name)
        self.begin()
        self.as_wanted()
        self.calm()
        end, n = time.monotonic() + SECONDS, 0
        while time.monotonic() < end:
            n += 1
            self.note(f"-- step {n}")
            self.step()
            if n % 8 == 0:
                self.note("as wanted?")
                self.as_wanted()
            if n % 24 == 0:
                self.calm()
        self.calm()
        return n


@pytest.mark.timeout(int(SECONDS) * 2 + 300)
def test_a_random_walk(inst, free_port):
    walk = Walk(inst, free_port)
    print(f"SBXSV_CHAOS_SEED={SEED}")
    try:
        n = walk.run()
    except BaseException:
        print("the last steps, oldest first:\n  " + "\n  ".join(walk.done[-60:]))
        raise
    finally:
        walk.thaw()
        walk.close_clients()
    print(f"{n} steps")
    for bad in ("Sanitizer", "runtime error", "ssertion"):
        assert bad not in inst.read_text(os.path.join(inst.state, "sbxsvd.log"))
