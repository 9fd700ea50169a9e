"""A random walk over everything that may happen to a supervisor and its apps.

Ten apps of different kinds are started, stopped, edited, broken, frozen and killed; so are the proxy and the supervisor. After each
step what the API says is compared with what the kernel says (lib/kernelview.py), from time to time also with what was asked for,
and when all is stopped the descriptors of the supervisor and the proxy are counted.

  SBXSV_CHAOS_SECONDS   how long the long walk is (30)
  SBXSV_CHAOS_WALKS     how many short walks there are, each with an instance of its own (2; before a release 1000)
  SBXSV_CHAOS_STEPS     how many steps a short one has (8)
  SBXSV_CHAOS_SEED      the seed of another walk, as printed (with SBXSV_CHAOS_WALKS=1 of a short one)
"""
import http.client
import os
import random
import signal
import socket
import time

import pytest

from harness import PYTHON, UnixHttp, WaitTimeout, http_get, kill_pid, proc_start, wait_for
from kernelview import agree, descriptors, kinds_of_descriptors, living, processes
from test_sup import GENEROUS, STUBBORN, refused, unit

SECONDS = float(os.environ.get("SBXSV_CHAOS_SECONDS", "30"))
WALKS = int(os.environ.get("SBXSV_CHAOS_WALKS", "2"))
STEPS = int(os.environ.get("SBXSV_CHAOS_STEPS", "8"))
SEED = int(os.environ.get("SBXSV_CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
QUICK = "[Restart]\nPolicy=always\nSec=5ms\nMaxSec=300ms\nLimitBurst=100000\n"
CRASHING = ("crash", "limit")
SERVERS = ("web", "hosts", "slow", "off", "rest")
LATE = "sleep 0.7\nexec /usr/bin/python3 appserver.py\n"

class Walk:
    def __init__(self, inst, free_port, seed):
        self.inst, self.rng = inst, random.Random(seed)
        self.port = {name: free_port() for name in SERVERS}
        self.wanted = {}   # app -> True: should run, False: should not, None: either, the files and a person raced
        self.gone, self.broken, self.frozen = set(), set(), []
        self.edits = 0
        self.daemon = self.proxy = None
        self.most = None   # descriptors when all is stopped
        self.done = []
        self.open = []

    # --- files ---

    def write(self, name, extra=""):
        i, port = self.inst, self.port.get(name)
        if name in ("web", "hosts"):
            more = "" if name == "web" else f"Egress=hosts\nAllow=example.com\nAllow=n{self.edits}.example.org\nLoopback={self.port['web']}\n"
            i.server_unit(name, port, body=QUICK + "[Stop]\nTimeout=300ms\n", extra_app=extra, network=more)
        elif name == "rest":
            i.server_unit(name, port, body=QUICK + "[Stop]\nTimeout=300ms\n[Session]\nIdleTimeout=1s\n", extra_app=f"Mode=session\n{extra}")
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
            more = f"{extra}\nRequires=web\n" if name == "needs" else extra
            i.write_unit(name, unit(i.app_dir(name), "exec sleep 1000", more, QUICK))

    APPS = ("web", "hosts", "slow", "off", "stub", "crash", "limit", "job", "rest", "needs")

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
            if name == "needs" and verb != "stop" and not self.wanted["web"]:
                self.wanted["web"] = None  # it is started too, unless it is broken or gone
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
        assert not living(self.inst), living(self.inst)  # nothing survives `down`, not for a moment
        self.begin()

    def do_upgrade(self):
        self.note("upgrade")
        self.inst.ok("upgrade")
        self.proxy = None

    def do_kill_daemon(self):
        self.note("kill -9 sbxsvd")
        kill_pid(self.daemon)
        wait_for(lambda: proc_start(self.daemon) is None)
        if self.rng.random() < 0.5:  # without a pid namespace processes may survive until the next start
            wait_for(lambda: not [p for p in living(self.inst) if p.app != "off"], GENEROUS, "the end of all that is jailed")
        self.begin()

    def begin(self):
        self.inst.up()
        self.daemon, self.proxy = self.inst.daemon_pid(), None
        for name in self.APPS:
            if name not in self.gone:
                self.wanted[name] = True

    # --- what must be true ---

    def note(self, text):
        self.done.append(text)

    def check(self):
        def mine(view):
            files = sorted(self.port[n] for n in SERVERS if n != "off" and n not in self.gone)
            view.expect([("apps", sorted(view.apps), sorted(set(self.APPS) - self.gone))])
            if not self.broken:  # a broken unit that was never good has no ports
                view.expect([("ports held", view.ports, files)])
        agree(self.inst, self.daemon, mine, GENEROUS)
        proxy = wait_for(self.inst.proxy_pid, GENEROUS, "a proxy")
        assert self.proxy in (None, proxy), "sbxsv-proxy is not who it was"
        self.proxy = proxy

    def as_wanted(self):
        self.inst.api("POST", "/v1/reload", timeout=GENEROUS)  # what the watch has not seen yet
        for name, want in self.wanted.items():
            if name in self.gone or name in self.broken or want is None or name == "needs":
                continue  # needs: goes and comes with web, in its own time
            if not want:
                self.inst.wait_state(name, "stopped")
            elif name == "limit":
                self.inst.wait_state(name, "failed")
            elif name == "rest":
                self.inst.wait_state(name, "idle", "running")
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
        self.inst.wait_state("needs", "stopped")
        self.as_wanted()
        self.check()
        assert not living(self.inst), living(self.inst)
        if self.most is None:
            time.sleep(1)  # what ended just now is forgotten
            self.most = descriptors(self.inst, self.daemon)
        try:
            wait_for(lambda: all(n <= m for n, m in zip(descriptors(self.inst, self.daemon), self.most)), GENEROUS)
        except WaitTimeout:
            now = descriptors(self.inst, self.daemon)
            raise AssertionError(f"descriptors {self.most}; now {now}: {kinds_of_descriptors(self.inst, self.daemon)}") from None
        assert self.inst.api("POST", "/v1/apps/*/start", {"wait": False}, timeout=GENEROUS)[0] == 200
        for name in self.APPS:
            self.wanted[name] = True

    def close_clients(self):
        for c in self.open:
            c.close()
        self.open = []

    # --- the walk ---

    ACTIONS = ((do_command, 10), (do_storm, 2), (do_all, 1), (do_kill_app, 5), (do_kill_wrapper, 1), (do_freeze, 2), (do_kill_proxy, 2),
               (do_edit, 4), (do_break, 2), (do_remove, 2), (do_restore, 4), (do_reload, 2), (do_clients, 3), (do_inner, 2),
               (do_streams, 1), (do_down_up, 1), (do_kill_daemon, 1), (do_upgrade, 1))

    def step(self):
        for _ in range(self.rng.choice((1, 1, 1, 2, 4))):
            self.rng.choices([a for a, _ in self.ACTIONS], [w for _, w in self.ACTIONS])[0](self)
            time.sleep(self.rng.choice((0, 0, 0.01, 0.1)))
        self.thaw()
        self.check()

    def setup(self):
        for name in self.APPS:
            self.write(name)
        self.begin()
        self.as_wanted()
        self.calm()

    def long(self):
        self.setup()
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

    def short(self):
        self.setup()
        for n in range(STEPS):
            self.note(f"-- step {n + 1}")
            self.step()
        self.note("as wanted?")
        self.as_wanted()
        self.calm()
        return STEPS


def walk(inst, free_port, seed, how):
    w = Walk(inst, free_port, seed)
    print(f"SBXSV_CHAOS_SEED={seed}")
    try:
        n = how(w)
    except BaseException:
        print("the last steps, oldest first:\n  " + "\n  ".join(w.done[-60:]))
        raise
    finally:
        w.thaw()
        w.close_clients()
    print(f"{n} steps")
    for bad in ("Sanitizer", "runtime error", "ssertion"):
        assert bad not in inst.read_text(os.path.join(inst.state, "sbxsvd.log"))


@pytest.mark.timeout(int(SECONDS) * 2 + 300)
def test_a_random_walk(inst, free_port):
    walk(inst, free_port, SEED, Walk.long)


@pytest.mark.parametrize("number", range(WALKS))
def test_short_walks(inst, free_port, number):
    walk(inst, free_port, SEED + number, Walk.short)
