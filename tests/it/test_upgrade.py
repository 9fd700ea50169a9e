"""Upgrade in place: the supervisor executes its program anew, and nobody notices."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

import harness
from harness import PYTHON, ROOT, build_dir, http_get, kill_pid, proc_start, wait_for
from test_ports import hold, needs_init  # noqa: F401: a fixture
from test_sup import unit

QUICK = "[Restart]\nSec=50ms\nMaxSec=200ms\nLimitBurst=1000\n"
CLIENTS = 50


def version(inst):
    return inst.api("GET", "/v1/version")[1]


def upgrades(inst):
    """None: it was replaced while it answered."""
    try:
        return version(inst)["upgrades"]
    except (OSError, http.client.HTTPException):
        return None


def upgrade(inst):
    before = version(inst)
    out = inst.ok("upgrade")
    after = version(inst)
    assert after["pid"] == before["pid"] and after["started"] == before["started"]
    assert after["upgrades"] == before["upgrades"] + 1
    return out


def fds(pid):
    return sorted(int(f) for f in os.listdir(f"/proc/{pid}/fd"))


def settled_fds(pid):
    """Descriptors of connections that are just being closed are no news."""
    last = []

    def same():
        last.append(len(fds(pid)))
        return len(last) > 3 and len(set(last[-4:])) == 1
    wait_for(same, 20, "descriptors to settle", step=0.05)
    return last[-1]


class Clients:
    """So many at once that ask again and again, half of them over connections that stay."""

    def __init__(self, port, n=CLIENTS):
        self.port, self.stop, self.failed, self.served, self.pids = port, False, [], 0, set()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(i % 2 == 0,)) for i in range(n)]
        for t in self.threads:
            t.start()

    def ask(self, c):
        c.request("GET", "/")
        r = c.getresponse()
        text = r.read().decode()
        assert r.status == 200 and text.startswith("ok "), (r.status, text)
        return text

    def run(self, stays):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while not self.stop:
            try:
                text = self.ask(c)
            except Exception as e:  # noqa: BLE001: whatever it is, it is a failed request
                with self.lock:
                    self.failed.append(repr(e))
                c.close()
                continue
            with self.lock:
                self.served += 1
                self.pids.add(text)
            if not stays:
                c.close()
            time.sleep(0.01)
        c.close()

    def end(self):
        self.stop = True
        for t in self.threads:
            t.join()


def test_under_load(inst, free_port):
    """50 clients, 20 upgrades in a row: no request fails, pids and counters stay, descriptors do not grow."""
    port = free_port()
    inst.server_unit("web", port)
    for n in range(3):
        inst.write_unit(f"job{n}", unit(inst.app_dir(f"job{n}"), "while :; do echo line; sleep 0.05; done"))
    inst.up()
    before = inst.wait_state("web", "running")
    jobs = {n: inst.wait_state(f"job{n}", "running") for n in range(3)}
    proxy, daemon = inst.proxy_pid(), inst.daemon_pid()
    clients = Clients(port)
    try:
        wait_for(lambda: clients.served > CLIENTS, what="clients that are served")
        upgrade(inst)
        some = settled_fds(daemon)
        for _ in range(19):
            served = clients.served
            assert upgrade(inst) == f"upgraded {version(inst)['version']} -> {version(inst)['version']}, pid {daemon}, 4 apps kept\n"
            wait_for(lambda: clients.served > served, what="more requests")
        assert settled_fds(daemon) <= some + 2
    finally:
        clients.end()
    assert clients.failed == []
    assert len(clients.pids) == 1
    assert inst.proxy_pid() == proxy and inst.daemon_pid() == daemon
    after = inst.peek("web")
    assert (after["pid"], after["launches"]) == (before["pid"], 1)
    wait_for(lambda: inst.peek("web")["counters"]["in_total"] >= clients.served // 2, what="the counters")
    for n, job in jobs.items():
        now = inst.peek(f"job{n}")
        assert (now["pid"], now["launches"]) == (job["pid"], 1)
    lines = inst.log("job0").splitlines()
    assert set(lines[1:]) <= {"line"} | {li for li in lines if li.startswith("[sbxsv]")}
    assert inst.peek("job0")["log"]["lines"] == len(lines)
    assert inst.api("GET", "/v1/status")[1]["supervisor"]["upgrades"] == 20
    assert not [f for f in fds(daemon) if f > 2 and not closes_on_exec(daemon, f)]


def closes_on_exec(pid, fd):
    try:
        with open(f"/proc/{pid}/fdinfo/{fd}") as f:
            flags = next(line for line in f if line.startswith("flags:"))
    except OSError:
        return True
    return int(flags.split()[1], 8) & os.O_CLOEXEC


# --- states ---

KEPT = ("state", "pid", "launches", "reason", "hint", "last_exit", "problems", "ports", "isolation", "restart_needed", "live_rules", "gate",
        "violations", "notify", "session", "file", "transparent", "loopback_apps", "user", "allow", "enabled", "mode")


def seen(inst, names):
    """What must be the same afterwards; what counts by itself is taken out."""
    out = {}
    for n in names:
        s = inst.peek(n)
        kept = {k: s.get(k) for k in KEPT}
        for rule in kept["live_rules"] or []:
            rule.pop("expires_ms", None)
        for key in ("idle_ms", "rests_in_ms"):
            (kept["session"] or {}).pop(key, None)
        out[n] = kept
    return out


STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("stubborn", flush=True)
time.sleep(1000)
"""
SICK = """
import http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503); self.send_header("Content-Length", "0"); self.end_headers()
    def log_message(self, *a): pass
http.server.HTTPServer(("127.0.0.1", PORT), H).serve_forever()
"""


def every_state(inst, free_port):
    """An app in each state, none of which ends soon by itself. Returns their names."""
    ports = {n: free_port() for n in ("late", "sick", "resting", "open", "off", "held")}
    d = inst.app_dir("late")
    inst.write_unit("late", f"[App]\nShell=while test ! -e go; do sleep 0.1; done; exec {PYTHON} -m http.server $PORT\nWorkingDirectory={d}\n"
                            f"[Network]\nListen={ports['late']}\n[Ready]\nTimeout=300s\n")
    inst.write_unit("after", unit(inst.app_dir("after"), "exec sleep 1000", app="After=late"))
    inst.write_unit("backoff", unit(inst.app_dir("backoff"), "echo last words; exit 3", body="[Restart]\nSec=1h\nMaxSec=1h\n"))
    inst.write_unit("failed", unit(inst.app_dir("failed"), "exit 4", body="[Restart]\nSec=1ms\nMaxSec=1ms\nLimitBurst=2\n"))
    d = inst.app_dir("stopping", {"s.py": STUBBORN})
    inst.write_unit("stopping", f"[App]\nExec={PYTHON} s.py\nWorkingDirectory={d}\n[Stop]\nTimeout=10min\n")
    inst.write_unit("stopped", unit(inst.app_dir("stopped"), "exec sleep 1000"))
    d = inst.app_dir("sick", {"s.py": SICK.replace("PORT", str(ports["sick"]))})
    inst.write_unit("sick", f"[App]\nExec={PYTHON} s.py\nWorkingDirectory={d}\n[Network]\nListen={ports['sick']}\n"
                            "[Health]\nHttp=/\nInterval=100ms\nRetries=1000\n")
    inst.server_unit("resting", ports["resting"], extra_app="Mode=session", body="[Session]\nIdleTimeout=1s\n")
    inst.server_unit("open", ports["open"], network="Egress=hosts\nAllow=example.com\n")
    inst.server_unit("off", ports["off"], body="[Sandbox]\nEnforce=off\n")
    inst.server_unit("held", ports["held"])
    inst.write_unit("broken", "[App]\nnonsense\n")
    inst.write_unit("disabled", unit(inst.app_dir("disabled"), "exec sleep 1000", app="Enabled=no"))
    inst.write_unit("changed", unit(inst.app_dir("changed"), "exec sleep 1000"))
    inst.up()
    for n, state in (("late", "starting"), ("after", "waiting"), ("backoff", "backoff"), ("failed", "failed"), ("stopping", "running"), ("stopped", "running"),
                     ("sick", "unhealthy"), ("resting", "idle"), ("open", "running"), ("off", "running"), ("held", "running"),
                     ("broken", "failed"), ("disabled", "stopped"), ("changed", "running")):
        inst.wait_state(n, state)
    wait_for(lambda: "stubborn" in inst.log("stopping"))
    inst.ok("stop", "--no-wait", "stopping")
    inst.ok("stop", "stopped")
    inst.ok("allow", "open", "example.org", "--for", "1h")
    inst.ok("deny", "open", "example.net")
    other = inst.user_file(os.path.join(inst.home, "others"), "x")
    assert http_get(ports["open"], f"/write?p={other}").status == 500
    wait_for(lambda: inst.peek("open")["violations"]["total"], what="a refusal")
    inst.write_unit("changed", "[App]\nbroken now\n")  # it runs on
    wait_for(lambda: inst.peek("changed")["problems"])
    inst.wait_state("stopping", "stopping")
    return ports


def test_every_state_survives(inst, free_port):
    ports = every_state(inst, free_port)
    names = [a["name"] for a in inst.status()["apps"]]
    before = seen(inst, names)
    assert {s["state"] for s in before.values()} == {"starting", "waiting", "backoff", "failed", "stopping", "stopped", "unhealthy", "idle", "running"}
    since = {n: inst.peek(n)["since_ms"] for n in names}
    next_start = inst.peek("backoff")["next_start_ms"]
    checks = inst.peek("sick")["health"]["checks"]
    for _ in range(3):
        upgrade(inst)
        after = seen(inst, names)
        for n in names:
            if n == "sick":  # it counts its failures
                after[n]["reason"] = before[n]["reason"] = None
            if n == "backoff":  # who connects is held for 10 s only
                after[n]["gate"] = before[n]["gate"] = None
            assert after[n] == before[n], n
    for n in names:
        assert inst.peek(n)["since_ms"] >= since[n], n
    assert inst.peek("backoff")["next_start_ms"] < next_start
    wait_for(lambda: inst.peek("sick")["health"]["checks"] > checks, what="checks that go on")
    assert inst.peek("open")["live_rules"][0]["expires_ms"] < 3600 * 1000
    # and each goes on from there
    inst.user_file(os.path.join(inst.home, "apps", "late", "go"))
    assert inst.wait_state("late", "running")["launches"] == 1
    inst.wait_state("after", "running")
    assert http_get(ports["resting"]).text.startswith("ok ")
    assert http_get(ports["off"]).text.startswith("ok ")
    for n, state in (("backoff", "backoff"), ("failed", "failed")):
        inst.sbxsv("start", n)
        inst.wait_state(n, state)
    inst.ok("start", "stopped")
    inst.ok("kill", "-s", "KILL", "stopping")
    inst.wait_state("stopping", "stopped")
    inst.ok("restart", "open")
    rules = {r["text"] for r in inst.peek("open")["live_rules"]}
    assert any("example.org" in r for r in rules) and any("example.net" in r for r in rules)


def test_time_limits_go_on(inst, free_port):
    """Each was begun before the upgrade and ends after it."""
    d = inst.app_dir("slow", {"s.py": STUBBORN})
    inst.write_unit("slow", f"[App]\nExec={PYTHON} s.py\nWorkingDirectory={d}\n[Stop]\nTimeout=1500ms\n")
    port = free_port()
    inst.write_unit("never", unit(inst.app_dir("never"), "exec sleep 1000", body=f"[Network]\nListen={port}\n[Ready]\nTimeout=3s\n"
                                                                                  "[Restart]\nPolicy=no\n"))
    inst.write_unit("again", unit(inst.app_dir("again"), "exit 3", body="[Restart]\nSec=2s\nMaxSec=2s\n"))
    inst.write_unit("dog", f"[App]\nExec=/bin/sleep 1000\nWorkingDirectory={inst.app_dir('dog')}\n[Health]\nWatchdogSec=2s\n"
                           "[Restart]\nPolicy=no\n")
    inst.up()
    inst.wait_state("never", "starting")
    inst.wait_state("again", "backoff")
    wait_for(lambda: "stubborn" in inst.log("slow"))
    inst.ok("stop", "--no-wait", "slow")
    launches = inst.peek("again")["launches"]
    upgrade(inst)
    inst.wait_state("slow", "stopped")
    assert "within" in inst.wait_state("never", "failed")["reason"]
    wait_for(lambda: inst.peek("again")["launches"] > launches, what="the next start")
    assert "WATCHDOG=1" in inst.wait_state("dog", "failed")["reason"]


def test_a_start_limit_counts_over_upgrades(inst):
    inst.write_unit("crash", unit(inst.app_dir("crash"), "sleep 0.05; exit 1", body="[Restart]\nSec=100ms\nMaxSec=100ms\nLimitBurst=12\n"))
    inst.up()
    while (inst.peek("crash") or {}).get("state") != "failed":
        upgrade(inst)
    assert inst.peek("crash")["launches"] == 12
    assert len([e for e in inst.events("crash", "exit")]) == 12


def test_launches_are_held_back_and_never_lost(inst):
    """Apps that crash all the time, so that some launch is always on its way."""
    for n in range(6):
        inst.write_unit(f"crash{n}", unit(inst.app_dir(f"crash{n}"), "exit 1", body="[Restart]\nSec=1ms\nMaxSec=1ms\nLimitBurst=100000\n"))
    inst.up()
    for _ in range(3):
        upgrade(inst)
        before = [inst.peek(f"crash{n}")["launches"] for n in range(6)]
        wait_for(lambda: all(inst.peek(f"crash{n}")["launches"] > before[n] for n in range(6)), what="launches to go on")


def test_definitions_are_those_in_force(inst, free_port):
    """A process goes on with what it was started with, though the files are gone; and what was dropped into apps.d in that moment is read."""
    port = free_port()
    inst.server_unit("web", port, extra_app="Environment=COLOUR=red")
    inst.up()
    pid = inst.wait_state("web", "running")["pid"]
    upgrade(inst)
    assert inst.ok("reload").splitlines()[-1] == "unchanged: 1"
    for n in range(5):
        asked = subprocess.Popen([harness.program("sbxsv"), "upgrade"], env=inst.env, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        inst.write_unit(f"new{n}", unit(inst.app_dir(f"new{n}"), "exec sleep 1000"))
        assert asked.wait(60) == 0
        inst.wait_state(f"new{n}", "running")
    assert inst.peek("web")["pid"] == pid
    os.unlink(inst.unit_path("web"))
    inst.ok("upgrade")
    wait_for(lambda: inst.peek("web") is None, what="the app whose unit is gone")


def test_audited_calls_go_on(inst):
    """Calls that are looked at wait for the hand-over, and no longer; what was refused before is still known."""
    other = inst.user_file(os.path.join(inst.home, "others"), "x")
    d = inst.app_dir("busy", {"b.py": """
import os, time
worst, last, n = 0, time.monotonic(), 0
while True:
    try: os.open("OTHER", os.O_WRONLY)
    except OSError: pass
    now = time.monotonic()
    worst, last, n = max(worst, now - last), now, n + 1
    if n % 200 == 0:
        with open("worst", "w") as f: f.write(f"{worst} {n} end")
        last = time.monotonic()
""".replace("OTHER", other)})
    inst.write_unit("busy", f"[App]\nExec={PYTHON} b.py\nWorkingDirectory={d}\n[Audit]\nViolations=all\n")
    inst.up()
    wait_for(lambda: inst.peek("busy")["violations"]["total"], what="refusals")

    def worst():
        return wait_for(lambda: re.fullmatch(r"(\S+) (\d+) end", inst.read_text(f"{d}/worst")), what="what it wrote")
    for _ in range(10):
        before, calls = inst.peek("busy")["violations"], int(worst()[2])
        upgrade(inst)
        assert inst.peek("busy")["violations"]["total"] >= before["total"] > 0
        wait_for(lambda: int(worst()[2]) > calls, what="calls that go on")
    assert float(worst()[1]) < 10  # a hang guard: one that was lost would wait for ever
    assert inst.peek("busy")["launches"] == 1


def test_logs(inst):
    """Half lines, the lines in memory, who follows."""
    inst.write_unit("talk", unit(inst.app_dir("talk"), "n=0; while :; do n=$((n+1)); printf 'line %%s' $n; sleep 0.02; printf ' end\\n'; done"))
    inst.up()
    wait_for(lambda: "line 20 end" in inst.log("talk"))
    follow = inst.spawn([harness.program("sbxsv"), "logs", "-f", "-n", "0", "talk"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    events = inst.spawn([harness.program("sbxsv"), "events", "-f", "-n", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    first = follow.stdout.readline()
    assert first.startswith(b"line ")
    for _ in range(5):
        upgrade(inst)
    n = len(inst.log("talk").splitlines())
    wait_for(lambda: len(inst.log("talk").splitlines()) > n + 20)
    lines = [li for li in inst.log("talk").splitlines() if not li.startswith("[sbxsv]")]
    assert lines == [f"line {i + 1} end" for i in range(len(lines))]
    tail = inst.ok("logs", "-n", "1000", "talk").splitlines()
    assert len(tail) == len(set(tail))
    inst.ok("stop", "talk")
    for p in (follow, events):
        p.terminate()
        out, err = p.communicate(timeout=30)
        assert b"was upgraded" in err
        assert out
    assert b"talk" in out


def test_a_stdio_app_and_its_client(inst):
    d = inst.app_dir("echo")
    inst.write_unit("echo", f"[App]\nMode=stdio\nExec=/bin/cat\nWorkingDirectory={d}\n")
    inst.up()
    p = inst.spawn([harness.program("sbxsv"), "run", "echo"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    p.stdin.write(b"one\n")
    p.stdin.flush()
    assert p.stdout.readline() == b"one\n"
    wait_for(lambda: (inst.peek("echo").get("instances") or [{}])[0].get("pid"))
    before = inst.peek("echo")["instances"]
    for _ in range(3):
        upgrade(inst)
        now = inst.peek("echo")["instances"]
        assert [(i["number"], i["pid"]) for i in now] == [(i["number"], i["pid"]) for i in before]
    p.stdin.write(b"two\n")
    p.stdin.close()
    assert p.stdout.read() == b"two\n" and p.wait(30) == 0
    inst.wait_state("echo", "stopped")


# --- how it is asked for, and by whom ---

def test_by_signal_in_the_foreground(inst, free_port):
    port = free_port()
    inst.server_unit("web", port)
    d = inst.foreground()
    pid = inst.wait_state("web", "running")["pid"]
    for n in range(3):
        d.send_signal(signal.SIGUSR2)
        wait_for(lambda: upgrades(inst) == n + 1)
    assert inst.peek("web")["pid"] == pid and http_get(port).status == 200
    d.send_signal(signal.SIGTERM)
    assert d.wait(30) == 0
    assert proc_start(pid) is None


def test_watch_pid(inst):
    inst.write_unit("job", unit(inst.app_dir("job"), "exec sleep 1000"))
    desktop = inst.spawn(["sleep", "1000"])
    inst.up("--watch-pid", str(desktop.pid))
    daemon = inst.daemon_pid()
    inst.wait_state("job", "running")
    upgrade(inst)
    upgrade(inst)
    desktop.kill()
    desktop.wait()
    wait_for(lambda: proc_start(daemon) is None, what="the end of the supervisor")


def test_relative_directories(inst):
    """Options that are relative to where it was started mean the same afterwards."""
    inst.write_unit("job", unit(inst.app_dir("job"), "exec sleep 1000"))
    env = {k: v for k, v in inst.env.items() if k not in ("SBXSV_CONFIG_DIR", "SBXSV_APPS_DIR", "SBXSV_STATE_DIR", "SBXSV_RUNTIME_DIR")}
    os.mkdir(inst.state, 0o700)
    os.mkdir(inst.runtime, 0o700)
    d = inst.spawn([harness.program("sbxsvd"), "--foreground", "--config", "c", "--apps", "c/apps.d", "--state", "s", "--runtime", "r"], env=env)
    wait_for(inst.answers)
    pid = inst.wait_state("job", "running")["pid"]
    upgrade(inst)
    assert inst.peek("job")["pid"] == pid and d.poll() is None


def test_a_request_that_waits_is_answered(inst, free_port):
    """`sbxsv start` of an app that takes long says what happened, and the app starts."""
    inst.write_unit("late", unit(inst.app_dir("late"), "sleep 3; exec python3 -m http.server $PORT", app="Enabled=no",
                                 body=f"[Network]\nListen={free_port()}\n"))
    inst.up()
    p = inst.spawn([harness.program("sbxsv"), "start", "late"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    inst.wait_state("late", "starting")
    upgrade(inst)
    out, _ = p.communicate(timeout=60)
    assert p.returncode == 1 and "is being upgraded" in out, out
    inst.wait_state("late", "running")


# --- programs that cannot take over ---

OTHER_VERSION = """#!/usr/bin/python3
# What was handed over as a program would write it whose data mean something else.
import os, sys
data = os.pread(3, 1 << 26, 0).replace(b"sbxsv-handover 1 ", b"sbxsv-handover 2 ", 1)
fd = os.memfd_create("x", 0)
os.write(fd, data)
os.lseek(fd, 0, 0)
os.dup2(fd, 3)
os.execv("REAL", ["sbxsvd", "--check-handover", "3"])
"""
UNKNOWN_KEY = OTHER_VERSION.replace('replace(b"sbxsv-handover 1 ", b"sbxsv-handover 2 ", 1)', 'replace(b"App.Description", b"App.Descriptiom")')
BAD = {
    "false": (lambda real: open("/bin/false", "rb").read(), "it gave no reason"),
    "true": (lambda real: open("/bin/true", "rb").read(), "does not know how to take over"),
    "half": (lambda real: open(real, "rb").read()[:50000], ""),
    "empty": (lambda real: b"", "cannot be executed"),
    "text": (lambda real: b"hello\n", "cannot be executed"),
    "gone": (lambda real: None, "No such file"),
    "old": (lambda real: b"#!/bin/sh\necho \"sbxsvd: unrecognized option '$1'\" >&2\nexit 2\n", "unrecognized option"),
    "newer": (lambda real: OTHER_VERSION.replace("REAL", real).encode(), "is of version 2, and this sbxsvd understands 1 only"),
    "key": (lambda real: UNKNOWN_KEY.replace("REAL", real).encode(), "uses App.Descriptiom, which this version does not know"),
    "crash": (lambda real: b"#!/bin/sh\nkill -SEGV $$\n", "SIGSEGV"),
    "hang": (lambda real: b"#!/bin/sh\nyes\n", "within 10 s"),  # and talks all the time
    # says yes, and is gone when it is executed
    "vanishes": (lambda real: f"#!/bin/sh\nrm -f \"$0\"\nexec {real} \"$@\"\n".encode(), "all goes on as it was"),
}


class Installed:
    """The programs in a directory of the test, so that another sbxsvd can be put in place."""

    def __init__(self, inst):
        self.dir = os.path.join(inst.base, "bin")
        os.mkdir(self.dir, 0o755)
        for name in ("sbxsvd", "sbxsv-init", "sbxsv-proxy"):
            shutil.copy2(os.path.join(build_dir(), name), self.dir)
        self.path = os.path.join(self.dir, "sbxsvd")
        self.real = os.path.join(self.dir, "real")
        shutil.copy2(self.path, self.real)
        inst.env["SBXSV_SBXSVD"] = self.path

    def put(self, data):
        """As a package manager does it: another file under the name."""
        if data is None:
            os.unlink(self.path)
            return
        tmp = self.path + ".new"
        with open(tmp, "wb") as f:
            f.write(data)
        os.chmod(tmp, 0o755)
        os.rename(tmp, self.path)

    def restore(self):
        with open(self.real, "rb") as f:
            self.put(f.read())


@pytest.fixture
def installed(inst):
    return Installed(inst)


@pytest.mark.parametrize("what", BAD)
def test_a_program_that_cannot_take_over(inst, installed, free_port, what):
    data, words = BAD[what]
    port = free_port()
    inst.server_unit("web", port, extra_app="Description=caf\u00e9")
    inst.up()
    before = inst.wait_state("web", "running")
    at_first = version(inst)
    n = settled_fds(at_first["pid"])
    installed.put(data(installed.real))
    r = inst.sbxsv("upgrade", timeout=60)
    assert r.code == 1 and words in r.err and "not upgraded, and nothing has changed" in r.err, r
    assert len(r.err.splitlines()) == 1 and len(r.err) < 1000
    assert version(inst) == at_first
    after = inst.peek("web")
    assert (after["pid"], after["launches"], after["state"]) == (before["pid"], 1, "running")
    assert http_get(port).status == 200
    assert settled_fds(at_first["pid"]) <= n + 1  # an app that is idle by now is waited for with one more
    if what == "hang":
        return
    inst.ok("restart", "web")
    installed.restore()
    upgrade(inst)
    assert http_get(port).status == 200


@pytest.mark.parametrize("was, now, words", [('"key":1', '"key":9', "a rule given at run time that this version does not know"),
                                             ('"limit":4', '"limit":9', "was ended by a limit that this version does not know")])
def test_numbers_of_another_version_are_refused(inst, installed, was, now, words):
    """Of a newer one that is replaced by an older one: what it has more of is not taken for something else."""
    inst.write_unit("job", unit(inst.app_dir("job"), "kill -XFSZ $$", body="[Restart]\nPolicy=no\n"))
    inst.up()
    inst.wait_state("job", "failed")
    inst.ok("deny", "job", "example.org")
    edit = f'replace(b\'{was}\', b\'{now}\')'
    installed.put(OTHER_VERSION.replace('replace(b"sbxsv-handover 1 ", b"sbxsv-handover 2 ", 1)', edit).replace("REAL", installed.real).encode())
    r = inst.sbxsv("upgrade")
    assert r.code == 1 and words in r.err and "nothing has changed" in r.err, r
    installed.restore()
    upgrade(inst)
    assert "file became too large" in inst.peek("job")["last_exit"]["text"] and inst.peek("job")["live_rules"][0]["key"] == "Deny"


def test_another_version(inst, installed, free_port):
    """The name it was started by, a link to another directory by then."""
    link, one, two = (os.path.join(inst.base, n) for n in ("current", "one", "two"))
    os.rename(installed.dir, one)
    shutil.copytree(one, two)
    os.symlink(one, link)
    inst.env["SBXSV_SBXSVD"] = os.path.join(link, "sbxsvd")
    port = free_port()
    inst.server_unit("web", port)
    inst.up()
    inst.wait_state("web", "running")
    daemon = inst.daemon_pid()
    assert os.path.realpath(f"/proc/{daemon}/exe") == os.path.join(one, "sbxsvd")
    os.unlink(link)
    os.symlink(two, link)
    upgrade(inst)
    assert os.path.realpath(f"/proc/{daemon}/exe") == os.path.join(two, "sbxsvd")
    inst.ok("restart", "web")
    assert http_get(port).status == 200


def test_one_that_dies_when_it_is_too_late(inst, installed, free_port):
    """Documented: that is the death of the supervisor. Nothing is left, and the next start works."""
    port = free_port()
    inst.server_unit("web", port)
    inst.up()
    pid = inst.wait_state("web", "running")["pid"]
    proxy = inst.proxy_pid()
    installed.put(f"#!/bin/sh\n[ \"$1\" = --handover ] && exit 1\nexec {installed.real} \"$@\"\n".encode())
    r = inst.sbxsv("upgrade")
    assert r.code == 1 and "ended during the upgrade" in r.err, r
    wait_for(lambda: proc_start(pid) is None and proc_start(proxy) is None, what="the end of everything")
    installed.restore()
    inst.up()
    inst.wait_state("web", "running")
    assert http_get(port).status == 200


def test_killed_in_the_middle(inst, free_port):
    """kill -9 at any moment of it: nothing is left, and the next start works."""
    port = free_port()
    inst.server_unit("web", port)
    for n in range(5):
        inst.up()
        inst.wait_state("web", "running")
        pid, proxy, daemon = inst.peek("web")["pid"], inst.proxy_pid(), inst.daemon_pid()
        p = inst.spawn([harness.program("sbxsv"), "upgrade"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        time.sleep(0.012 * n)
        kill_pid(daemon)
        out, _ = p.communicate(timeout=60)
        assert p.returncode in (0, 1, 5, 6), out
        wait_for(lambda: proc_start(pid) is None and proc_start(proxy) is None and proc_start(daemon) is None, what="the end of everything")


def test_stopped_in_the_middle(inst, installed):
    """A shutdown during the rehearsal is a shutdown."""
    inst.write_unit("job", unit(inst.app_dir("job"), "exec sleep 1000"))
    inst.up()
    inst.wait_state("job", "running")
    installed.put(b"#!/bin/sh\nexec sleep 1000\n")
    p = inst.spawn([harness.program("sbxsv"), "upgrade"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: any("sleep" in harness.describe(c) and "1000" in harness.describe(c) and "check-handover" not in harness.describe(c)
                         for c in harness.children(inst.daemon_pid())))
    daemon = inst.daemon_pid()
    inst.down()
    assert p.wait(30) == 1
    assert proc_start(daemon) is None


# --- what comes in the very moment, and what must not be lost ---

WAITS = "#!/bin/sh\nwhile ! test -e %s; do sleep 0.02; done\nexec %s \"$@\"\n"


class Moment:
    """The hand-over, stopped before it: the daemon gets the end of the rehearsal and whatever was sent in one turn of its loop."""

    def __init__(self, inst, installed):
        self.inst, self.installed, self.pid = inst, installed, inst.daemon_pid()
        self.go = os.path.join(inst.base, "go")
        installed.put((WAITS % (self.go, installed.real)).encode())
        # made before: the daemon knows it, so what comes over it is read when answers are flushed
        self.conn = harness.UnixHttp(inst.control)
        self.ask("GET", "/v1/version")
        self.answer()
        self.upgrade = inst.spawn([harness.program("sbxsv"), "upgrade"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.child = wait_for(lambda: next((c for c in harness.children(self.pid) if self.rehearses(c)), None), what="the rehearsal")

    def rehearses(self, pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                return b"--check-handover" in f.read()
        except OSError:
            return False

    def ask(self, method, path, body=None):
        self.conn.request(method, path, body=None if body is None else json.dumps(body), headers={"Content-Type": "application/json"})

    def answer(self):
        r = self.conn.getresponse()
        return r.status, json.loads(r.read())

    def send(self, method, path, body=None):
        os.kill(self.pid, signal.SIGSTOP)
        wait_for(lambda: proc_state(self.pid) == "T", what="a stopped supervisor")
        self.ask(method, path, body)
        self.installed.restore()
        self.inst.user_file(self.go)
        wait_for(lambda: proc_state(self.child) == "Z", what="the end of the rehearsal")
        os.kill(self.pid, signal.SIGCONT)

    def end(self):
        out, _ = self.upgrade.communicate(timeout=60)
        return self.upgrade.returncode, out


def proc_state(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


def test_a_shutdown_that_was_answered_is_done(inst, installed):
    inst.write_unit("job", unit(inst.app_dir("job"), "exec sleep 1000"))
    inst.up()
    inst.wait_state("job", "running")
    m = Moment(inst, installed)
    m.send("POST", "/v1/shutdown", {})
    assert m.answer() == (200, {"code": 0})
    wait_for(lambda: proc_start(m.pid) is None, what="the end of the supervisor")
    assert m.end()[0] == 1


def test_a_signal_at_any_moment_is_heeded(inst):
    """It comes while all is written down, which is made to take long: whoever ends the supervisor ends the new program."""
    inst.write_unit("job", unit(inst.app_dir("job"), "exec sleep 1000"))
    inst.up()
    inst.wait_state("job", "running")
    pid, trace = inst.daemon_pid(), os.path.join(inst.base, "trace")
    if not shutil.which("strace"):
        pytest.skip("no strace")
    # the first one is that of the rehearsal
    strace = inst.spawn(["strace", "-o", trace, "-p", str(pid), "-e", "trace=memfd_create", "-e", "inject=memfd_create:delay_enter=1500000:when=2"],
                        stderr=subprocess.PIPE, text=True)
    line = strace.stderr.readline()
    if "attached" not in line:
        pytest.skip(line.strip())
    p = inst.spawn([harness.program("sbxsv"), "upgrade"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: said_yes(inst), what="the end of the rehearsal")
    time.sleep(0.3)  # in the middle, mostly; and if not, the same is true
    os.kill(pid, signal.SIGTERM)
    p.communicate(timeout=60)
    wait_for(lambda: proc_start(pid) is None, what="the end of the supervisor")


def test_a_start_in_that_moment_takes_its_port_back(inst, installed, free_port, hold):
    """What the request began is over before the hand-over: nobody waits for ever."""
    port = free_port()
    d = inst.server_unit("web", port, extra_app="Enabled=no")
    orphan = hold(port, d)
    needs_init(orphan)
    inst.up()
    m = Moment(inst, installed)
    m.send("POST", "/v1/apps/web/start", {"wait": False})
    assert m.end()[0] == 0
    inst.wait_state("web", "running")
    assert http_get(port).text.startswith("ok ") and inst.peek("web")["launches"] == 1
    assert proc_start(orphan) is None


def test_a_stop_that_waits_is_not_answered_as_done(inst):
    d = inst.app_dir("slow", {"s.py": STUBBORN})
    inst.write_unit("slow", f"[App]\nExec={PYTHON} s.py\nWorkingDirectory={d}\n[Stop]\nTimeout=10min\n")
    inst.up()
    wait_for(lambda: "stubborn" in inst.log("slow"))
    p = inst.spawn([harness.program("sbxsv"), "stop", "slow"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    inst.wait_state("slow", "stopping")
    upgrade(inst)
    out, _ = p.communicate(timeout=60)
    assert p.returncode == 1 and "is being upgraded" in out, out
    assert inst.peek("slow")["state"] == "stopping"
    inst.ok("kill", "-s", "KILL", "slow")
    inst.wait_state("slow", "stopped")


def said_yes(inst):
    return "can take over" in inst.read_text(os.path.join(inst.state, "sbxsvd.log"))


def test_rules_are_answered_when_they_are_in_force(inst, free_port):
    """`sbxsv allow` is answered by what the proxy says: that is waited for."""
    inst.server_unit("web", free_port(), network="Egress=hosts\nAllow=example.com\n")
    inst.up()
    inst.wait_state("web", "running")
    proxy = inst.proxy_pid()
    os.kill(proxy, signal.SIGSTOP)
    allow = inst.spawn([harness.program("sbxsv"), "allow", "web", "example.org"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: inst.peek("web")["live_rules"])
    p = inst.spawn([harness.program("sbxsv"), "upgrade"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: said_yes(inst), what="the end of the rehearsal")
    os.kill(proxy, signal.SIGCONT)
    for one in (allow, p):
        out, _ = one.communicate(timeout=60)
        assert one.returncode == 0, out
    assert inst.proxy_pid() == proxy and inst.peek("web")["live_rules"]


def test_hooks_that_wait_go_along(inst):
    """An app that is refused something all the time, with a hook that takes longer than they are apart: some always wait."""
    secret = os.path.join(inst.home, "secret")
    os.mkdir(secret)
    if harness.ROOT:
        os.chown(secret, inst.user.pw_uid, inst.user.pw_gid)
    d = inst.app_dir("web", {"hook.sh": "cat >>got; sleep 1.5; echo >>got\n"})
    inst.write_unit("web", f"[App]\nShell=while :; do true >{secret}/x; sleep 0.1; done\nWorkingDirectory={d}\n[Hooks]\nOnViolation=/bin/sh hook.sh\n")
    inst.up()

    def told():
        return [json.loads(x) for x in inst.read_text(f"{d}/got").split("\n") if x]
    wait_for(lambda: len(told()) >= 2, what="hooks")
    before = told()
    upgrade(inst)
    wait_for(lambda: len(told()) > len(before) + 1, what="hooks that go on")
    stamps = [e["timestamp"] for e in told()]
    assert stamps == sorted(set(stamps))  # in the order of the events, each once
    assert not inst.events("web", "hook")  # none failed, none was left out
    assert inst.peek("web")["launches"] == 1


@pytest.mark.parametrize("answers", [True, False])
def test_a_version_that_is_asked_for(inst, answers):
    """[Needs]: the question is waited for, and the app starts afterwards, or is tried again."""
    d = inst.app_dir("web")
    os.mkdir(f"{d}/bin", 0o755)
    inst.user_file(f"{d}/bin/node", f"#!/bin/sh\necho x >> {d}/asked\nwhile ! test -e {d}/fine; do sleep 0.02; done\necho v20.1.0\n")
    os.chmod(f"{d}/bin/node", 0o755)
    inst.write_unit("web", f"[App]\nShell=exec sleep 1000\nWorkingDirectory={d}\nEnvironment=PATH={d}/bin:/usr/bin:/bin\n[Needs]\nNode=>=20\n"
                           "OptionalBin=no-such-thing\n[Restart]\nSec=100ms\nMaxSec=100ms\n")
    inst.up()
    wait_for(lambda: os.path.exists(f"{d}/asked"))
    assert inst.peek("web")["state"] == "starting"
    p = inst.spawn([harness.program("sbxsv"), "upgrade"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: said_yes(inst), what="the end of the rehearsal")
    if answers:
        inst.user_file(f"{d}/fine")
    out, _ = p.communicate(timeout=60)
    assert p.returncode == 0, out
    if not answers:
        assert inst.peek("web")["launches"] == 0
        inst.user_file(f"{d}/fine")
    s = inst.wait_state("web", "running")
    assert s["launches"] == 1 and not inst.events("web", "exit")
    wait_for(lambda: inst.peek("web").get("optional"))
    s = inst.peek("web")
    upgrade(inst)
    assert inst.peek("web")["optional"] == s["optional"] and inst.peek("web")["pid"] == s["pid"]


def test_who_waits_for_whom(inst, free_port):
    """Requires= of what was stopped by hand, of what is not there, and a stop that is held back until others have ended."""
    inst.write_unit("db", unit(inst.app_dir("db"), "exec sleep 1000", app="Enabled=no"))
    port = free_port()
    inst.server_unit("web", port, extra_app="Requires=db")
    inst.write_unit("lost", unit(inst.app_dir("lost"), "exec sleep 1000", app="Requires=nosuch"))
    d = inst.app_dir("slow", {"s.py": STUBBORN})
    inst.write_unit("slow", f"[App]\nExec={PYTHON} s.py\nWorkingDirectory={d}\nRequires=base\n[Stop]\nTimeout=10min\n")
    inst.write_unit("base", unit(inst.app_dir("base"), "exec sleep 1000"))
    inst.up()
    inst.wait_state("web", "running")  # which started db
    wait_for(lambda: "stubborn" in inst.log("slow"))
    inst.ok("stop", "db")
    inst.ok("start", "--no-wait", "web")
    inst.wait_state("web", "running")
    inst.ok("stop", "db")
    inst.wait_state("web", "stopped")
    inst.ok("stop", "--no-wait", "base")
    inst.wait_state("slow", "stopping")
    names = ("db", "web", "lost", "slow", "base")
    before = seen(inst, names)
    assert [before[n]["state"] for n in names] == ["stopped", "stopped", "waiting", "stopping", "running"]
    assert "stops when nothing that requires it runs" in before["base"]["reason"] and "there is no such app" in before["lost"]["reason"]
    for _ in range(2):
        upgrade(inst)
        assert seen(inst, names) == before
    inst.ok("kill", "-s", "KILL", "slow")
    inst.wait_state("base", "stopped")
    assert "stopped with base" in inst.wait_state("slow", "stopped")["reason"]
    inst.ok("start", "web")
    assert inst.peek("db")["state"] == "running" and http_get(port).text.startswith("ok ")
    inst.write_unit("nosuch", unit(inst.app_dir("nosuch"), "exec sleep 1000"))
    assert inst.wait_state("lost", "running")["launches"] == 1


# --- sbxsv-proxy ---

# The old program said that it speaks another version of the protocol with its proxy.
OTHER_PROTOCOL = """#!/usr/bin/python3
import os, re, sys
at = int(sys.argv[2])
size = os.fstat(at).st_size
data = os.pread(at, size, 0)
now = re.sub(rb'"protocol":\\d', b'"protocol":0', data)
assert len(now) == len(data) and now != data
fd = os.memfd_create("x", 0)
while now:
    now = now[os.write(fd, now):]
os.lseek(fd, 0, 0)
os.dup2(fd, at)
os.close(fd)
os.execv("REAL", sys.argv)
"""


def test_a_proxy_that_speaks_another_version_is_replaced(inst, installed, free_port):
    """As after a crash: its connections end, who waits in the queue of a port is served, apps and counters stay; rules are in force."""
    port, held = free_port(), free_port()
    inst.server_unit("web", port, network="Egress=hosts\nAllow=example.com\nLoopback=app:late\n")
    d = inst.app_dir("late")
    inst.write_unit("late", f"[App]\nShell=while test ! -e go; do sleep 0.1; done; exec {PYTHON} -m http.server $PORT\nWorkingDirectory={d}\n"
                            f"[Network]\nListen={held}\n[Ready]\nTimeout=300s\n")
    rest = free_port()
    inst.server_unit("rest", rest, extra_app="Mode=session", body="[Session]\nIdleTimeout=1s\n")
    inst.up()
    before = inst.wait_state("web", "running")
    inst.wait_state("late", "starting")
    inst.wait_state("rest", "idle")
    inst.ok("allow", "web", "example.org")
    proxy = inst.proxy_pid()
    stays = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    stays.request("GET", "/")
    assert stays.getresponse().read().startswith(b"ok ")
    wait_for(lambda: inst.peek("web")["counters"]["in_total"] == 1)
    waits = http.client.HTTPConnection("127.0.0.1", held, timeout=60)
    waits.request("GET", "/")
    installed.put(OTHER_PROTOCOL.replace("REAL", installed.real).encode())
    upgrade(inst)
    now = wait_for(inst.proxy_pid, what="another proxy")
    assert now != proxy and proc_start(proxy) is None
    with pytest.raises((http.client.HTTPException, OSError)):
        stays.request("GET", "/")
        stays.getresponse()
    assert http_get(port).text.startswith("ok ") and http_get(rest).text.startswith("ok ")
    inst.user_file(f"{d}/go")
    assert waits.getresponse().status == 200
    after = inst.peek("web")
    assert (after["pid"], after["launches"], after["state"]) == (before["pid"], 1, "running")
    wait_for(lambda: inst.peek("web")["counters"]["in_total"] == 2, what="the counters of both proxies")
    assert [r["text"] for r in after["live_rules"]] == ["example.org"] and after["allow"] == ["example.com"]
    # what it may reach is judged as before, inside too
    assert http_get(port, f"/connect?h=127.0.0.1&p={held}").text == "connected"
    http_get(port, "/fetch?u=http://denied.example/")
    wait_for(lambda: [x for x in inst.peek("web")["denied"] if x["host"] == "denied.example"], what="a refusal")
    supervisor = inst.api("GET", "/v1/status")[1]["supervisor"]
    assert supervisor["proxy"]["restarts"] == 1
    assert any("sbxsv-proxy" in e["message"] and "version" in e["message"] for e in inst.events(type="supervisor"))
    assert inst.ok("deny", "web", "example.net")


def test_an_installation_without_its_proxy_is_refused(inst, installed, free_port):
    """The proxy that runs could not be started again."""
    port = free_port()
    inst.server_unit("web", port)
    inst.up()
    inst.wait_state("web", "running")
    proxy = os.path.join(installed.dir, "sbxsv-proxy")
    os.rename(proxy, proxy + ".gone")
    r = inst.sbxsv("upgrade")
    assert r.code == 1 and "sbxsv-proxy" in r.err and "nothing has changed" in r.err, r
    assert http_get(port).status == 200
    os.rename(proxy + ".gone", proxy)
    upgrade(inst)


# --- reload ---

def test_a_hundred_reloads_change_nothing(inst, free_port):
    port = free_port()
    inst.server_unit("web", port, network="Egress=hosts\nAllow=example.com\n")
    inst.write_unit("job", unit(inst.app_dir("job"), "exec sleep 1000"))
    inst.up()
    before = {n: inst.wait_state(n, "running") for n in ("web", "job")}
    daemon, proxy = inst.daemon_pid(), inst.proxy_pid()
    n_fds = settled_fds(daemon)
    for _ in range(100):
        code, report = inst.api("POST", "/v1/reload")
        assert code == 200 and report == {"added": [], "removed": [], "restarted": [], "live": [], "unchanged": 2, "problems": []}
    for n, s in before.items():
        now = inst.peek(n)
        assert (now["pid"], now["launches"]) == (s["pid"], 1)
    assert (inst.daemon_pid(), inst.proxy_pid()) == (daemon, proxy)
    assert settled_fds(daemon) <= n_fds + 2  # an app that is idle by now is waited for with one more


def test_a_reload_is_all_or_nothing_per_unit(inst, free_port):
    """One bad line, and nothing of that unit changes; the others do."""
    port, other = free_port(), free_port()
    inst.server_unit("web", port, network="Egress=hosts\nAllow=example.com\n", extra_app="Description=before")
    inst.server_unit("good", other, network="Egress=hosts\nAllow=example.com\n")
    inst.up()
    before = inst.wait_state("web", "running")
    inst.wait_state("good", "running")
    inst.server_unit("web", port, network="Egress=hosts\nAllow=example.org\nAllow=bad..host\n", extra_app="Description=after")
    inst.server_unit("good", other, network="Egress=hosts\nAllow=example.org\n")
    code, report = inst.api("POST", "/v1/reload")
    assert code == 200 and len(report["problems"]) <= 1
    wait_for(lambda: inst.peek("good")["allow"] == ["example.org"], what="the good one")
    now = inst.peek("web")
    assert now["problems"] and now["pid"] == before["pid"]
    assert (now["allow"], now["description"]) == (["example.com"], "before")
    upgrade(inst)
    now = inst.peek("web")
    assert now["problems"] and (now["allow"], now["description"], now["pid"]) == (["example.com"], "before", before["pid"])


@pytest.mark.root
def test_as_pid_1_of_a_container(inst):
    from test_pid1 import Container
    c = Container(inst)
    d = inst.app_dir("job")
    inst.write_unit("job", "[App]\nExec=/bin/sleep 1000\nWorkingDirectory=/srv\n[Sandbox]\nEnforce=off\n", mark=False)
    assert d
    c.start()

    def status():
        return json.loads(c.inside("/build/sbxsv", "status", "--json").stdout)
    wait_for(lambda: [a for a in status()["apps"] if a["state"] == "running"], what="the app")
    pid = status()["apps"][0]["pid"]
    for _ in range(3):
        r = c.inside("/build/sbxsv", "upgrade")
        assert r.returncode == 0 and "pid 1, 1 app kept" in r.stdout, (r.stdout, r.stderr)
    assert status()["apps"][0]["pid"] == pid
    os.kill(c.pid, signal.SIGTERM)
    assert c.outer.wait(30) == 0
