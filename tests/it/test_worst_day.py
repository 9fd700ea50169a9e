"""The worst day of a supervisor: the clock steps, it is stopped itself, the machine is out of everything, its own files are rubbish.

  SBXSV_STALL   seconds for which the supervisor is stopped (4; before a release 60)
"""
import json
import os
import resource
import shutil
import signal
import socket
import stat
import time

import pytest

from harness import PYTHON, http_get, kill_pid, proc_start, program, wait_for
from kernelview import agree, living
from test_sup import GENEROUS, lines, post, unit

STALL = float(os.environ.get("SBXSV_STALL", "4"))
FAKETIME = next((f for f in (f"/usr/lib/{m}-linux-gnu/faketime/libfaketime.so.1" for m in ("x86_64", "aarch64")) if os.path.exists(f)), None)
HEALTH = "[Health]\nHttp=/\nInterval=200ms\nTimeout=1s\nRetries=2\n"
NOTIFY = """
import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect(os.environ["NOTIFY_SOCKET"])
s.send(b"READY=1")
while True:
    s.send(b"WATCHDOG=1")
    time.sleep(0.2)
"""


def notifier(inst, name, body=""):
    d = inst.app_dir(name, {"app.py": NOTIFY})
    inst.write_unit(name, f"[App]\nExec={PYTHON} -S -E app.py\nWorkingDirectory={d}\n[Ready]\nType=notify\n{body}")


def checks(inst, name, n):
    first = inst.peek(name)["health"]["checks"]
    wait_for(lambda: inst.peek(name).get("health", {}).get("checks", 0) >= first + n, GENEROUS, "health checks")


def states(inst, name):
    return [e["state"] for e in inst.events(name, "state")]


# --- the clock ---

class Clock:
    """The wall clock of whatever runs with its environment; the monotonic one is left alone."""

    def __init__(self, path):
        self.path = path
        self.set("+0")
        self.env = {"LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": path, "FAKETIME_NO_CACHE": "1", "NO_FAKE_STAT": "1",
                    "DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}

    def set(self, text):
        with open(self.path + ".new", "w") as f:
            f.write(text + "\n")
        os.rename(self.path + ".new", self.path)


@pytest.fixture
def clock(inst):
    if not FAKETIME:
        pytest.skip("no libfaketime")
    with open(program("sbxsvd"), "rb") as f:
        if b"__asan_init" in f.read():
            pytest.skip("a sanitizer wants to be the first library")
    c = Clock(os.path.join(inst.base, "clock"))
    inst.env.update(c.env)
    return c


def year_of(event):
    return int(event["timestamp"][:4])


@pytest.mark.parametrize("step", ["+365d", "-365d"])
def test_a_step_of_the_wall_clock_changes_timestamps_and_nothing_else(inst, free_port, clock, step):
    port = free_port()
    inst.server_unit("web", port, body=HEALTH + "[Ready]\nTimeout=5s\n[Log]\nMaxSize=64K\nMaxFiles=20\n")
    notifier(inst, "dog", "[Health]\nWatchdogSec=2s\n")
    rest = free_port()
    inst.server_unit("rest", rest, extra_app="Mode=session", body="[Session]\nIdleTimeout=2s\n")
    inst.write_unit("crash", unit(inst.app_dir("crash"), "echo x >> starts; exit 1", body="[Restart]\nSec=300ms\nMaxSec=300ms\nLimitBurst=1000\n"))
    inst.write_unit("late", unit(inst.app_dir("late"), "echo x >> starts; exit 1", body="[Restart]\nSec=1h\nMaxSec=1h\n"))
    inst.foreground()
    for name in ("web", "dog"):
        inst.wait_state(name, "running")
    inst.wait_state("late", "backoff")
    before = {n: inst.peek(n)["pid"] for n in ("web", "dog")}
    inst.ok("allow", "web", "a.example", "--for", "1h")
    year = year_of(inst.events()[-1])
    with socket.create_connection(("127.0.0.1", rest)):
        inst.wait_state("rest", "running")

    clock.set(step)
    starts = len(lines(f"{inst.home}/apps/crash/starts"))
    checks(inst, "web", 8)
    wait_for(lambda: len(lines(f"{inst.home}/apps/crash/starts")) > starts + 3, GENEROUS, "the next starts")
    time.sleep(2.5)  # longer than WatchdogSec=
    assert abs(year_of(inst.events("crash")[-1]) - year) == 1, "the clock was not stepped"
    assert {n: inst.peek(n)["pid"] for n in ("web", "dog")} == before
    for name in before:
        s = inst.peek(name)
        assert s["state"] == "running" and s["launches"] == 1 and 0 < s["uptime_ms"] < 3600000, s
    assert not inst.events("web", "health")
    inst.wait_state("rest", "idle")
    assert inst.peek("rest")["launches"] == 1 and http_get(rest).text.startswith("ok ")
    assert 3000000 < inst.peek("late")["next_start_ms"] <= 3600000 and inst.peek("late")["launches"] == 1
    assert 3000000 < inst.peek("web")["live_rules"][0]["expires_ms"] <= 3600000
    # new starts, ends and their figures
    assert post(inst, "web", "restart")["code"] == 0
    assert http_get(port).text.startswith("ok ")
    assert 0 <= inst.peek("web")["last_exit"]["after_ms"] < 3600000
    # the log goes on, by time too
    wait_for(lambda: "[sbxsv] started" in inst.ok("logs", "web", "--since", "1h"), GENEROUS)
    assert inst.log("web").count("[sbxsv] started") == 2
    stamps = [e["seq"] for e in inst.events()]
    assert stamps == sorted(stamps)
    # and back
    clock.set("+0")
    checks(inst, "web", 3)
    wait_for(lambda: year_of(inst.events("crash")[-1]) == year, GENEROUS, "the old year in the events")
    assert inst.peek("web")["launches"] == 2
    agree(inst, inst.daemon_pid())
    inst.ok("down")


def test_a_start_with_a_clock_of_another_year(inst, clock):
    """What the last run wrote lies in the future, or in the past: a machine without a battery for its clock."""
    inst.write_unit("job", unit(inst.app_dir("job"), "exec sleep 1000"))
    for i, step in enumerate(("+0", "-365d", "+365d")):
        clock.set(step)
        inst.up()
        inst.wait_state("job", "running")
        assert inst.ok("logs", "job", "--since", "1h").count("[sbxsv] started") >= 1
        assert inst.ok("logs", "job", "-n", "100").count("[sbxsv] started") == i + 1
        inst.ok("doctor")
        inst.down()
    seqs = [e["seq"] for e in inst.events()]
    assert seqs == sorted(set(seqs))


# --- the supervisor is stopped ---

def test_a_stopped_supervisor_blames_nobody(inst, free_port):
    """SIGSTOP and SIGCONT, as a debugger or a suspended machine does it: deadlines that nobody could meet are moved."""
    web, slow = free_port(), free_port()
    inst.server_unit("web", web, body=HEALTH)
    notifier(inst, "dog", "[Health]\nWatchdogSec=1s\n")
    d = inst.server_unit("slow", slow)
    inst.user_file(f"{d}/late.sh", "echo x >> starts\nwhile [ ! -e go ]; do sleep 0.05; done\nexec /usr/bin/python3 appserver.py\n")
    inst.write_unit("slow", f"[App]\nExec=/bin/sh late.sh\nWorkingDirectory={d}\n[Network]\nListen={slow}\n[Ready]\nTimeout=3s\n")
    stub = inst.app_dir("stub")
    inst.write_unit("stub", unit(stub, "trap 'sleep 0.5; echo done > done; exit 0' TERM; echo x > ready; while :; do sleep 0.02; done",
                                 body="[Stop]\nTimeout=3s\n"))
    inst.write_unit("dies", unit(inst.app_dir("dies"), "echo x >> starts; exec sleep 1000", body="[Restart]\nSec=5ms\n"))
    inst.write_unit("crash", unit(inst.app_dir("crash"), "exit 1", body="[Restart]\nSec=1h\nMaxSec=1h\n"))
    p = inst.foreground()
    for name in ("web", "dog", "dies", "stub"):
        inst.wait_state(name, "running")
    inst.wait_state("crash", "backoff")
    wait_for(lambda: lines(f"{stub}/ready") and lines(f"{d}/starts"))
    before = {n: inst.peek(n)["pid"] for n in ("web", "dog", "slow")}
    post(inst, "slow", "restart", wait=False)  # its Timeout begins now
    wait_for(lambda: len(lines(f"{d}/starts")) == 2)
    before["slow"] = inst.peek("slow")["pid"]
    post(inst, "stub", "stop", wait=False)
    victim = inst.peek("dies")["pid"]
    os.kill(p.pid, signal.SIGSTOP)
    kill_pid(victim)
    time.sleep(STALL)
    assert http_get(web).text.startswith("ok ")  # apps are served meanwhile
    os.kill(p.pid, signal.SIGCONT)
    inst.wait_state("stub", "stopped")
    assert lines(f"{stub}/done") == ["done"] and inst.peek("stub")["last_exit"].get("code") == 0
    wait_for(lambda: inst.peek("dies")["launches"] == 2 and inst.peek("dies")["state"] == "running", GENEROUS, "the one that died")
    assert inst.peek("slow")["state"] == "starting"
    inst.user_file(f"{d}/go")
    inst.wait_state("slow", "running")
    checks(inst, "web", 5)
    time.sleep(1.5)
    assert {n: inst.peek(n)["pid"] for n in before} == before
    assert inst.peek("web")["launches"] == 1 and inst.peek("dog")["launches"] == 1
    assert not inst.events("web", "health") and "unhealthy" not in states(inst, "web")
    assert inst.peek("crash")["launches"] == 1 and inst.peek("crash")["next_start_ms"] > 3000000
    agree(inst, p.pid)


# --- the machine is out of something ---

def limited(what, soft, hard=None):
    """For spawn(preexec_fn=...)."""
    return lambda: resource.setrlimit(what, (soft, soft if hard is None else hard))


def up_with(inst, **kw):
    p = inst.spawn([program("sbxsvd"), "--foreground"], stderr=open(os.path.join(inst.base, "foreground.log"), "ab"), **kw)
    wait_for(lambda: inst.answers() or p.poll() is not None, what="the control socket")
    assert p.poll() is None, inst.read_text(os.path.join(inst.base, "foreground.log"))
    return p


def test_with_64_descriptors_what_fits_runs_and_the_rest_says_what_is_lacking(inst, free_port):
    ports = {f"web{i:02}": free_port() for i in range(5)}
    for name, port in ports.items():
        inst.server_unit(name, port, body="[Restart]\nSec=100ms\nMaxSec=300ms\nLimitBurst=2\n")
    p = up_with(inst, preexec_fn=limited(resource.RLIMIT_NOFILE, 64))

    def settled():
        now = {n: inst.peek(n) for n in ports}
        runs = [n for n, s in now.items() if s["state"] == "running"]
        return now if runs and all(s["state"] in ("running", "backoff", "starting") for s in now.values()) and any(
            s["state"] == "backoff" for s in now.values()) and not any(s["state"] == "starting" and s.get("pid") for s in now.values()) else None
    now = wait_for(settled, GENEROUS, "some that run and some that cannot")
    runs = [n for n, s in now.items() if s["state"] == "running"]
    print(len(runs), "of", len(ports), "run with 64 descriptors")
    was = {n: inst.peek(n)["pid"] for n in runs}
    time.sleep(3)  # more attempts than LimitBurst=
    for name, port in ports.items():
        s = inst.peek(name)
        if name in runs:
            assert s["state"] == "running" and s["pid"] == was[name], s
            assert http_get(port).text.startswith("ok ")
        else:
            assert s["state"] in ("backoff", "starting"), s
            # references: those on their way between processes count too, and those of all the user's processes together, unix(7)
            assert "Too many open files" in s["reason"] or "Too many references" in s["reason"], s
            assert "descriptors" in s["hint"] and "tried again" in s["hint"], s
    assert "Too many" in inst.ok("status")
    agree(inst, p.pid)
    # room again, by stopping others
    for name in runs:
        assert post(inst, name, "stop")["code"] == 0
    other = wait_for(lambda: next((n for n in ports if n not in runs and inst.peek(n)["state"] == "running"), None), GENEROUS, "another")
    assert http_get(ports[other]).text.startswith("ok ")
    assert inst.sbxsv("down").code == 0


@pytest.mark.user
def test_a_fork_that_fails_is_a_delay_with_a_reason(inst, free_port):
    """RLIMIT_NPROC: clone(2) says EAGAIN. Not the app's fault: no start limit counts it, and it passes."""
    port = free_port()
    inst.server_unit("web", port)
    inst.write_unit("job", unit(inst.app_dir("job"), "exec sleep 1000", body="[Restart]\nSec=20ms\nMaxSec=50ms\nLimitBurst=2\n"))
    p = inst.foreground()
    for name in ("web", "job"):
        inst.wait_state(name, "running")
    soft, hard = resource.prlimit(p.pid, resource.RLIMIT_NPROC)
    assert post(inst, "job", "stop")["code"] == 0
    resource.prlimit(p.pid, resource.RLIMIT_NPROC, (1, hard))
    post(inst, "job", "start", wait=False)
    wait_for(lambda: states(inst, "job").count("backoff") > 5, GENEROUS, "more attempts than the start limit")
    reasons = [e["reason"] for e in inst.events("job", "state") if e["state"] == "backoff"]
    assert all("Resource temporarily unavailable" in r and "no more processes" in r and "ulimit -u" in r for r in reasons), reasons
    assert inst.peek("job")["launches"] == 1 and inst.peek("web")["state"] == "running"
    # the proxy too
    kill_pid(inst.proxy_pid())
    wait_for(lambda: inst.api("GET", "/v1/status")[1]["supervisor"]["proxy"].get("pid") is None, GENEROUS, "the end of the proxy")
    time.sleep(0.5)
    assert inst.answers() and inst.peek("web")["launches"] == 1
    resource.prlimit(p.pid, resource.RLIMIT_NPROC, (soft, hard))
    inst.wait_state("job", "running")
    assert wait_for(lambda: http_get(port, timeout=GENEROUS)).text.startswith("ok ")
    agree(inst, p.pid)


FULL = """
mkdir -m 700 "$1" && mount -t tmpfs -o size=256k,mode=700 tmpfs "$1" && head -c 1000000 /dev/zero >"$1/ballast" 2>/dev/null
exec "$2" --foreground
"""


@pytest.mark.root
def test_a_disk_that_is_full_from_the_start_costs_logs_and_records_and_nothing_else(inst, free_port):
    """The state directory is a full tmpfs, in a mount namespace of the supervisor's own."""
    port = free_port()
    inst.server_unit("web", port)
    inst.write_unit("crash", unit(inst.app_dir("crash"), "echo some words; exit 1", body="[Restart]\nSec=20ms\nMaxSec=50ms\nLimitBurst=3\n"))
    p = inst.spawn(["unshare", "--mount", "/bin/sh", "-c", FULL, "sh", inst.state, program("sbxsvd")],
                   stderr=open(os.path.join(inst.base, "foreground.log"), "ab"))
    wait_for(inst.answers, GENEROUS, "the control socket")
    inst.wait_state("web", "running")
    assert http_get(port).text.startswith("ok ")
    s = inst.wait_state("crash", "failed")
    assert s["launches"] == 3 and "some words" in s["reason"]  # what it wrote is known though no file has it
    log = inst.peek("web")["log"]
    assert log["dropped_lines"] > 0 and "No space left" in log["error"]
    events = inst.api("GET", "/v1/status")[1]["supervisor"]["events"]
    assert events["dropped"] > 0
    assert "No space left" in inst.read_text(os.path.join(inst.base, "foreground.log"))
    assert "running" in inst.ok("events", "web")  # of this run they are in memory
    agree(inst, p.pid)
    # room again: everything is written from now on, the record of what runs too
    os.unlink(f"/proc/{p.pid}/root{inst.state}/ballast")
    assert post(inst, "web", "restart")["code"] == 0
    wait_for(lambda: json.loads(inst.read_text(f"/proc/{p.pid}/root{inst.state}/run.json") or "{}").get("processes"), GENEROUS, "run.json")
    wait_for(lambda: not inst.peek("web")["log"].get("error") or "serving" in inst.read_text(f"/proc/{p.pid}/root{log['path']}"), GENEROUS)
    assert inst.sbxsv("down").code == 0


@pytest.mark.root
def test_a_full_disk_never_empties_what_a_person_wrote(inst, free_port):
    """The configuration is on a full tmpfs: what cannot be saved is said, and the files there are as before."""
    port, d = free_port(), inst.app_dir("job")
    script = 'mount -t tmpfs -o size=64k,mode=755 tmpfs "$1" && cp -a "$2/." "$1/" && head -c 1000000 /dev/zero >"$1/ballast" 2>/dev/null; exec "$3" --foreground'
    inst.server_unit("web", port)
    inst.write_unit("job", unit(d, "exec sleep 1000"))
    kept = inst.config + ".kept"
    shutil.copytree(inst.config, kept, symlinks=True)
    p = inst.spawn(["unshare", "--mount", "/bin/sh", "-c", script, "sh", inst.config, kept, program("sbxsvd")])
    wait_for(inst.answers, GENEROUS, "the control socket")
    inst.wait_state("web", "running")
    before = inst.peek("web")["pid"]

    def inside(*args):
        return inst.spawn(["nsenter", "-t", str(p.pid), "-m", program("sbxsv"), *args]).wait(GENEROUS)

    def files():
        return {os.path.join(top, f): open(os.path.join(top, f)).read() for top, _, names in os.walk(f"/proc/{p.pid}/root{inst.apps}")
                for f in names}
    was = files()
    for args in (("allow", "web", "x.example", "--save"), ("deny", "web", "y.example", "--save"), ("disable", "job"),
                 ("new", "more", "--", "/bin/sleep", "1")):
        assert inside(*args) != 0, args
        assert files() == was, args
    assert inst.peek("web")["pid"] == before and inst.peek("job")["state"] == "running"
    os.unlink(f"/proc/{p.pid}/root{inst.config}/ballast")
    assert inside("allow", "web", "x.example", "--save") == 0 and files() != was


# --- its own files are rubbish ---

def rubbish(what, path, keep):
    """Puts something wrong in the place of a file."""
    if os.path.lexists(path):
        if what == "half":
            with open(path, "rb") as f:
                keep = f.read()
        os.unlink(path)
    if what == "directory":
        os.mkdir(path, 0o700)
    elif what == "pipe":
        os.mkfifo(path, 0o600)
    elif what == "link":
        os.symlink("/etc/passwd", path)
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(path)
    else:
        with open(path, "wb") as f:
            f.write({"empty": b"", "half": keep[:len(keep) // 2] or b'{"boot": "', "noise": b"\xff\n" + os.urandom(100000), "large": b'{"a": [' * 300000,
                     "zeros": bytes(65536), "other": b'[1, {"boot": [], "processes": 7, "seq": "x"}, null]\n{"seq": -1}\n{"seq": 1e300, "type": 5}\n'}[what])


FILES = ("run.json", "events.jsonl", "logs/job.log", "doctor.json", "sbxsvd.log", "sbxsvd.lock")


@pytest.mark.parametrize("what", ["empty", "half", "noise", "large", "zeros", "other", "directory", "pipe", "link", "socket"])
def test_state_that_is_rubbish_is_said_and_apps_run(inst, what):
    inst.write_unit("job", unit(inst.app_dir("job"), "echo words; exec sleep 1000"))
    inst.up()
    inst.wait_state("job", "running")
    wait_for(lambda: "words" in inst.log("job"))
    inst.sbxsv("doctor")
    inst.down()
    passwd = os.stat("/etc/passwd")
    for name in FILES:
        if name != "sbxsvd.log" or what not in ("directory", "pipe", "link", "socket"):  # those: it cannot say anything, and does not start
            rubbish(what, os.path.join(inst.state, name), b"")
    inst.up()
    s = inst.wait_state("job", "running")
    assert s["launches"] == 1
    said = inst.read_text(os.path.join(inst.state, "sbxsvd.log"))
    assert "run.json" in said  # whatever it is, it is named
    assert inst.sbxsv("status").code == 0 and inst.sbxsv("doctor").code in (0, 1)
    assert "running" in inst.ok("events", "job") and "words" in inst.ok("logs", "job")
    agree(inst, inst.daemon_pid())
    inst.ok("restart", "job")
    inst.down()
    assert os.stat("/etc/passwd").st_mtime == passwd.st_mtime and not living(inst)
    record = os.path.join(inst.state, "run.json")
    if what != "directory":  # replaced by a good one; a directory may hold somebody's files
        assert stat.S_ISREG(os.lstat(record).st_mode) and json.loads(inst.read_text(record)) is not None


def test_a_runtime_directory_that_was_removed_does_not_double_the_apps(inst):
    """As when the last session of a user ends and XDG_RUNTIME_DIR goes with it: the old supervisor lives, and nobody can reach it."""
    d = inst.app_dir("job")
    inst.write_unit("job", unit(d, "echo x >> starts; exec sleep 1000"))
    inst.up()
    inst.wait_state("job", "running")
    old = inst.daemon_pid()
    inst.seen[old] = proc_start(old)
    shutil.rmtree(inst.runtime)
    assert inst.sbxsv("status").code == 5
    r = inst.sbxsv("up")
    assert r.code != 0 and f"pid {old}" in r.err and f"kill {old}" in r.err, r
    assert proc_start(old) is not None and len(lines(f"{d}/starts")) == 1 and len(living(inst)) >= 1
    os.kill(old, signal.SIGTERM)
    wait_for(lambda: proc_start(old) is None, GENEROUS)
    assert not living(inst)
    inst.up()
    inst.wait_state("job", "running")
    assert len(lines(f"{d}/starts")) == 2


def test_the_lock_that_is_rubbish_is_no_hindrance(inst):
    inst.write_unit("job", unit(inst.app_dir("job"), "exec sleep 1000"))
    os.mkdir(inst.runtime, 0o700)
    for text in (b"", b"\0" * 5000, b"99999999999999999999", os.urandom(1000)):
        with open(os.path.join(inst.runtime, "sbxsvd.lock"), "wb") as f:
            f.write(text)
        inst.up()
        inst.wait_state("job", "running")
        daemon = inst.daemon_pid()
        kill_pid(daemon)
        wait_for(lambda: proc_start(daemon) is None)
    inst.up()
    assert inst.wait_state("job", "running")["launches"] == 1
