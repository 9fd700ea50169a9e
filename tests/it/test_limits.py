"""[Limits]: what holds on this machine is enforced, what does not is said; limit kills are named; groups come and go.

A machine whose groups have no controllers (cgroup v1 has them, or they are not delegated) runs the other half of these tests: what is
written into the files of the kernel is then tested in tests/unit/test_cgroup.c alone.
"""
import json
import os
import signal
import subprocess

import pytest

import harness

HOG = """
import sys, time
kept = []
try:
    while True:
        kept.append(bytearray(1 << 20))
        if len(kept) > 600: break
    print("took", len(kept), flush=True)
except MemoryError:
    print("refused at", len(kept), flush=True)
time.sleep(1000)
"""


def unit(inst, name, shell, limits="", sandbox="", extra=""):
    d = inst.app_dir(name)
    inst.write_unit(name, f"[App]\nShell={shell}\nWorkingDirectory={d}\n[Restart]\nSec=10s\n{extra}[Limits]\n{limits}[Sandbox]\n{sandbox}")
    return d


def machine(inst):
    return inst.status()["supervisor"]["limits"]


def group_of(pid):
    for line in open(f"/proc/{pid}/cgroup"):
        if line.startswith("0::"):
            return line[3:].rstrip("\n")
    return None


def mount():
    for line in open("/proc/self/mounts"):
        f = line.split()
        if f[2] == "cgroup2":
            return f[1]
    return None


def divisible():
    """A group can be made where we are: so a root's, or in a delegated one."""
    own = (mount() or "/nowhere") + (group_of(os.getpid()) or "")
    return os.access(own, os.W_OK) and not os.path.exists("/run/systemd/system")


needs_groups = pytest.mark.skipif(not divisible(), reason="no cgroup v2 here in which this user may make a group")


def test_what_is_not_enforced_is_said(inst):
    unit(inst, "a", "exec sleep 1000", "Memory=64M\nCPU=50%\nTasks=50\n")
    out = inst.ok("check", "a")
    inst.up()
    inst.wait_state("a", "running")
    m, s = machine(inst), inst.status("a")
    limits = s["limits"]
    assert limits["memory_bytes"] == 64 << 20 and limits["cpu_percent"] == 50 and limits["tasks"] == 50
    assert not s.get("not_in_force")
    keys = {"memory": "Memory=64M", "cpu": "CPU=50%"}
    checks = {c["name"]: c for c in json.loads(inst.sbxsv("doctor", "--refresh", "--json").out)["checks"]}
    for controller, text in keys.items():
        there = controller in m["controllers"]
        assert (controller in limits["by_group"]) == there
        assert any(x.startswith(text) for x in limits["missing"]) == (not there)
        assert (f"note: a: {text}" in out) == (not there) or there
        assert checks[f"limits, {controller}"]["state"] == ("ok" if there else "note")
        if not there:
            assert m[controller] and m[controller] in checks[f"limits, {controller}"]["detail"]
            assert m[controller] in inst.ok("status", "a")
    assert "limits: Memory=64M, CPU=50%, Tasks=50" in inst.ok("status", "a")
    # what nobody limits has nothing to say
    unit(inst, "b", "exec sleep 1000")
    inst.ok("reload")
    inst.wait_state("b", "running")
    assert "limits" not in inst.status("b")


def test_memory(inst):
    """By its group the whole app; without one each process is refused what is above."""
    d = inst.app_dir("a", {"hog.py": HOG})
    inst.write_unit("a", f"[App]\nExec=/usr/bin/python3 hog.py\nWorkingDirectory={d}\n[Restart]\nSec=10s\n[Limits]\nMemory=96M\n")
    inst.up()
    if "memory" in machine(inst)["controllers"]:
        s = inst.wait_state("a", "backoff")
        assert "out of memory, it reached Memory=96M" in s["reason"] and s["last_exit"]["limit"] == "memory"
        assert inst.wait_event("a", "exit", limit="memory")
        assert "Memory=" in s["hint"]
        return
    inst.wait_state("a", "running")
    harness.wait_for(lambda: "refused at" in inst.log("a"), what="a refused allocation")
    n = int(inst.log("a").split("refused at ")[1].split()[0])
    assert 40 < n < 96
    # not the address space: a reservation is no use
    d = inst.app_dir("r", {"r.py": "import mmap\nm = mmap.mmap(-1, 1 << 33, prot=mmap.PROT_READ)\nprint('reserved', flush=True)\nimport time; time.sleep(1000)\n"})
    inst.write_unit("r", f"[App]\nExec=/usr/bin/python3 r.py\nWorkingDirectory={d}\n[Limits]\nMemory=96M\n")
    inst.ok("reload")
    harness.wait_for(lambda: "reserved" in inst.log("r"), what="the reservation")


@pytest.mark.parametrize("what,shell,name,word", [
    ("cpu-time", "ulimit -S -t 1; while :; do :; done", "SIGXCPU", "its processor time is used up (RLIMIT_CPU)"),
    ("file-size", "ulimit -f 1; exec dd if=/dev/zero of=big bs=64k count=1", "SIGXFSZ", "a file became too large (RLIMIT_FSIZE)"),
])
def test_limit_kills_are_named(inst, what, shell, name, word):
    unit(inst, "a", shell)
    inst.up()
    s = inst.wait_state("a", "backoff")
    assert f"was killed by {name}: {word}" in s["reason"] and s["last_exit"]["limit"] == what
    assert inst.wait_event("a", "exit", limit=what)["message"].startswith(f"was killed by {name}: {word}")
    assert word in inst.sbxsv("status", "a").out and word in inst.log("a")
    assert inst.wait_event("a", "state", state="backoff")["reason"].startswith("was killed by")


STRAY = "trap '' TERM; (trap '' TERM; setsid sleep 1000 & setsid sh -c 'sleep 1001 & sleep 1002') & exec sleep 1003"


@needs_groups
def test_group_of_an_app_without_a_jail(inst):
    unit(inst, "a", STRAY, sandbox="Enforce=off\n")
    inst.up()
    s = inst.wait_state("a", "running")
    base = machine(inst)["group"]
    path = f"{base}/app.a.1"
    harness.wait_for(lambda: len(open(f"{path}/cgroup.procs").read().split()) >= 5, what="all of its processes")
    pids = [int(x) for x in open(f"{path}/cgroup.procs").read().split()]
    assert s["pid"] in pids and group_of(inst.daemon_pid()) != group_of(s["pid"])
    s = inst.status("a")
    assert s["processes"] == len(pids) and s["memory_bytes"] > 0 and "cpu_ms" in s
    inst.ok("kill", "-s", "KILL", "a")  # its first process alone: the rest goes with the group
    inst.wait_state("a", "backoff")
    assert not [harness.describe(p) for p in pids if harness.lives(p)]
    harness.wait_for(lambda: not os.path.exists(path), what="the group to go")
    inst.ok("start", "a")
    assert os.path.exists(f"{base}/app.a.2")
    inst.down()
    assert not os.path.exists(base)


@needs_groups
def test_nothing_of_the_last_launch_meets_the_next(inst):
    """All of an app without a jail is gone before it may be started again, however many processes it has."""
    unit(inst, "a", "for i in $(seq 60); do setsid sleep 1000 & done; wait", sandbox="Enforce=off\n")
    inst.up()
    for launch in range(1, 9):
        procs = f"{machine(inst)['group']}/app.a.{launch}/cgroup.procs"
        harness.wait_for(lambda p=procs: len(inst.read_text(p).split()) >= 62, what="all of its processes")
        pids = [int(x) for x in inst.read_text(procs).split()]
        inst.ok("kill", "-s", "KILL", "a")
        inst.wait_state("a", "backoff")
        assert not [harness.describe(p) for p in pids if harness.lives(p)]
        inst.ok("start", "a")


@needs_groups
def test_stop_kills_the_group_at_once(inst):
    unit(inst, "a", STRAY, sandbox="Enforce=off\n", extra="[Stop]\nTimeout=100ms\n")
    inst.up()
    inst.wait_state("a", "running")
    path = machine(inst)["group"] + "/app.a.1"
    harness.wait_for(lambda: len(open(f"{path}/cgroup.procs").read().split()) >= 5, what="all of its processes")
    pids = [int(x) for x in open(f"{path}/cgroup.procs").read().split()]
    inst.ok("stop", "a")
    assert inst.status("a")["state"] == "stopped"
    harness.wait_for(lambda: not os.path.exists(path), what="the group to go")
    assert not [harness.describe(p) for p in pids if harness.lives(p)]


@needs_groups
def test_remains_of_a_killed_supervisor(inst):
    """Processes of an app without a jail outlive kill -9 of the supervisor; the next one finds their group."""
    unit(inst, "a", STRAY, sandbox="Enforce=off\n")
    p = inst.foreground()
    inst.wait_state("a", "running")
    base = machine(inst)["group"]
    harness.wait_for(lambda: len(open(f"{base}/app.a.1/cgroup.procs").read().split()) >= 5, what="all of its processes")
    pids = [int(x) for x in open(f"{base}/app.a.1/cgroup.procs").read().split()]
    p.kill()
    p.wait(timeout=30)
    inst.ok("disable", "a")
    inst.up()
    assert inst.status("a")["state"] == "stopped" and not os.path.exists(f"{base}/app.a.1")
    harness.wait_for(lambda: not [x for x in pids if harness.lives(x)], what="their end")
    inst.down()
    assert not os.path.exists(base)


@pytest.mark.root
@needs_groups
def test_delegated_to_a_user(inst, make_instance):
    """A user in a group that is his: the supervisor makes its groups below, and leaves nothing."""
    me = inst.user
    group = f"{mount()}/sbxsv-test-{os.getpid()}"
    os.mkdir(group)
    try:
        for f in [group] + [os.path.join(group, x) for x in ("cgroup.procs", "cgroup.subtree_control", "cgroup.threads")]:
            os.chown(f, me.pw_uid, me.pw_gid)
        base = os.path.join(inst.base, "as-user")
        work = os.path.join(base, "work")
        config, apps, home = (os.path.join(base, x) for x in ("c", "c/apps.d", "home"))
        for d in (base, home, work, config, apps, os.path.join(base, "run")):
            os.mkdir(d, 0o700)
            os.chown(d, me.pw_uid, me.pw_gid)
        path = os.path.join(apps, "a.app")
        with open(path, "w") as f:
            f.write(f"[App]\nShell={STRAY}\nWorkingDirectory={work}\n[Sandbox]\nEnforce=off\n")
        os.chown(path, me.pw_uid, me.pw_gid)
        env = {k: v for k, v in inst.env.items() if not k.startswith(("SBXSV_", "XDG_"))}
        env.update(HOME=home, USER=me.pw_name, SBXSV_CONFIG_DIR=config, SBXSV_APPS_DIR=apps,
                   SBXSV_STATE_DIR=base + "/state", SBXSV_RUNTIME_DIR=base + "/run")
        env.update({k: v for k, v in inst.env.items() if k in ("SBXSV_UNITS_DIR", "SBXSV_LIBEXEC", "SBXSV_TEST_MARK")})
        os.chmod(inst.base, 0o755)

        def enter():
            with open(f"{group}/cgroup.procs", "w") as f:
                f.write("0")
            os.setgroups([])
            os.setgid(me.pw_gid)
            os.setuid(me.pw_uid)
        p = inst.spawn([harness.program("sbxsvd"), "--foreground"], env=env, cwd="/", preexec_fn=enter)

        def status():
            r = subprocess.run([harness.program("sbxsv"), "status", "--json"], env=env, capture_output=True,
                               user=me.pw_uid, group=me.pw_gid, extra_groups=[], cwd="/")
            return json.loads(r.stdout) if r.returncode == 0 else None
        s = harness.wait_for(lambda: (lambda x: x and x["apps"][0]["state"] == "running" and x)(status()), what="the app")
        made = s["supervisor"]["limits"]["group"]
        assert made.startswith(group + "/sbxsv-")
        pids = [int(x) for x in open(f"{made}/app.a.1/cgroup.procs").read().split()]
        assert s["apps"][0]["pid"] in pids
        p.send_signal(signal.SIGTERM)
        assert p.wait(timeout=30) == 0
        assert [x for x in os.listdir(group) if x.startswith("sbxsv-")] == []
        assert not [x for x in pids if harness.lives(x)]
    finally:
        for x in open(f"{group}/cgroup.procs").read().split():
            harness.kill_pid(int(x))
        harness.wait_for(lambda: not open(f"{group}/cgroup.procs").read(), what="the group to be empty")
        os.rmdir(group)


@needs_groups
def test_groups_stay_over_an_upgrade(inst):
    unit(inst, "a", STRAY, sandbox="Enforce=off\n", extra="[Stop]\nTimeout=100ms\n")
    inst.up()
    pid = inst.wait_state("a", "running")["pid"]
    base = machine(inst)["group"]
    harness.wait_for(lambda: len(open(f"{base}/app.a.1/cgroup.procs").read().split()) >= 5, what="all of its processes")
    pids = open(f"{base}/app.a.1/cgroup.procs").read()
    inst.ok("upgrade")
    s = inst.status("a")
    assert s["pid"] == pid and machine(inst)["group"] == base and s["processes"] == len(pids.split())
    assert open(f"{base}/app.a.1/cgroup.procs").read() == pids
    inst.ok("stop", "a")
    harness.wait_for(lambda: not os.path.exists(f"{base}/app.a.1"), what="the group to go")
    inst.ok("start", "a")
    assert os.path.exists(f"{base}/app.a.2")
    inst.down()
    assert not os.path.exists(base)


# PTRACE_SEIZE with PTRACE_O_TRACEEXIT (ptrace(2)): SIGKILL brings such a process to its end, where it stops until its tracer is gone.
TRACER = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
print(os.strerror(ctypes.get_errno()) if libc.ptrace(0x4206, int(sys.argv[1]), 0, 0x40) < 0 else "ok", flush=True)
time.sleep(100000)
"""


@pytest.fixture
def undying():
    """undying(pid): from now on no signal ends it. The end of the test does."""
    tracers = []

    def trace(pid):
        p = subprocess.Popen([harness.PYTHON, "-c", TRACER, str(pid)], stdout=subprocess.PIPE, text=True)
        tracers.append((p, pid))
        said = p.stdout.readline().strip()
        if said != "ok":
            pytest.skip(f"no process can be traced here: {said}")
    yield trace
    for p, pid in tracers:
        p.kill()
        p.wait()
        p.stdout.close()
        harness.wait_for(lambda pid=pid: not harness.lives(pid), what="its end")


@needs_groups
@pytest.mark.parametrize("how", ["restart", "upgrade", "kill -9"])
def test_what_cannot_be_killed_stays_behind_in_its_group(inst, undying, how):
    """The end of an app waits for it, though not for ever; the next launch has a group of its own and nothing to do with it."""
    unit(inst, "a", "setsid sleep 1000 & exec sleep 1001", sandbox="Enforce=off\n")
    daemon = inst.foreground()
    pid = inst.wait_state("a", "running")["pid"]
    base = machine(inst)["group"]

    def sleeper():
        return [int(p) for p in inst.read_text(f"{base}/app.a.1/cgroup.procs").split()
                if inst.read_text(f"/proc/{p}/cmdline") == "sleep\0001000\0"]
    victim = harness.wait_for(sleeper, what="its child")[0]
    undying(victim)
    if how == "restart":
        assert inst.sbxsv("restart", "a").code == 0
    elif how == "upgrade":
        inst.ok("kill", "-s", "KILL", "a")
        inst.ok("upgrade")
        assert inst.wait_state("a", "backoff")["launches"] == 1
        inst.ok("start", "a")
    else:
        daemon.kill()
        daemon.wait()
        daemon = inst.foreground()
        inst.wait_state("a", "running")
    assert harness.lives(victim) and not harness.lives(pid)
    assert group_of(inst.peek("a")["pid"]) == f"{group_of(victim).rpartition('.')[0]}.2"
    assert ("do not end, though SIGKILL was sent" in inst.read_text(f"{inst.base}/foreground.log")) == (how != "kill -9")
    inst.down()
    assert harness.lives(victim) and not os.path.exists(f"{base}/app.a.2")
