"""Attacks on the supervisor itself: apps and their surroundings that try to keep it from its work."""
import os
import resource
import signal
import time

import harness


def fds(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def limited(inst, files):
    """sbxsvd --foreground that may have only so many open files."""
    with open(os.path.join(inst.base, "foreground.log"), "ab") as log:
        return inst.spawn([harness.program("sbxsvd"), "--foreground"], stderr=log, stdout=log,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)))


def test_few_open_files(inst, free_port):
    """Wherever a launch runs out of them, it is tried again: no app is given up for that."""
    names = [f"a{k}" for k in range(5)]
    for name in names:
        inst.server_unit(name, free_port())
    for files in (30, 36, 44):
        p = limited(inst, files)
        harness.wait_for(lambda: os.path.exists(inst.control), what="the control socket")
        harness.wait_for(lambda: len([e for e in inst.events(type="state") if e["state"] == "backoff"]) >= 5,
                         what="starts that failed")
        gone = [e for e in inst.events(type="state") if e["state"] == "failed"]
        assert not gone, gone
        p.terminate()
        assert p.wait(20) == 0
        for f in os.listdir(inst.state):
            if f.startswith("events.jsonl"):
                os.unlink(os.path.join(inst.state, f))


def test_a_flood_of_output_delays_nothing(inst, write_unit):
    d = inst.app_dir("x")
    for k in range(4):
        write_unit(f"flood{k}", f"[App]\nShell=exec yes {'b' * 60}\nWorkingDirectory={d}\n[Log]\nMaxSize=1M\nMaxFiles=2\n")
    write_unit("quiet", f"[App]\nShell=echo hello; exec sleep 1000\nWorkingDirectory={d}\n")
    inst.up()
    inst.wait_state("quiet", "running")
    for k in range(4):
        harness.wait_for(lambda: inst.peek(f"flood{k}")["log"]["bytes"] > 1 << 20, what="a flood")
    assert "hello" in inst.ok("logs", "quiet")
    logs = os.path.join(inst.state, "logs")
    assert sum(os.path.getsize(os.path.join(logs, f)) for f in os.listdir(logs)) < 4 * 2 * (1 << 20) + (1 << 20)
    inst.down()


def test_a_stopped_init_is_ended_all_the_same(inst, write_unit):
    d = inst.app_dir("x")
    write_unit("deaf", f"[App]\nShell=trap '' TERM; while :; do sleep 1; done\nWorkingDirectory={d}\n[Stop]\nTimeout=300ms\n")
    inst.up()
    pid = inst.wait_state("deaf", "running")["pid"]
    inside = harness.children(pid)
    os.kill(pid, signal.SIGSTOP)
    for p in inside:
        os.kill(p, signal.SIGSTOP)
    inst.ok("stop", "deaf")
    assert not any(harness.proc_start(p) for p in [pid] + inside)


def test_a_storm_of_unit_files_costs_no_descriptor(inst, write_unit):
    d = inst.app_dir("x")
    write_unit("good", f"[App]\nShell=exec sleep 1000\nWorkingDirectory={d}\n")
    p = inst.foreground()
    pid = inst.wait_state("good", "running")["pid"]
    before = fds(p.pid)
    end = time.monotonic() + 1.5
    n = 0
    while time.monotonic() < end:
        n += 1
        inst.write_unit("storm", f"[App]\nShell=exec sleep 1000\nWorkingDirectory={d}\nEnabled=no\nDescription=x{n}\n", mark=False)
    inst.write_unit("storm", f"[App]\nShell=exec sleep 1000\nWorkingDirectory={d}\nEnabled=no\nDescription=last\n", mark=False)
    harness.wait_for(lambda: "last" in inst.sbxsv("cat", "storm").out and (inst.peek("storm") or {}).get("description", "last") == "last",
                     what="the last version")
    assert inst.peek("good")["pid"] == pid
    harness.wait_for(lambda: fds(p.pid) <= before + 2, what="the end of its connections")


def test_output_that_outlives_its_process(inst, write_unit):
    """Without a jail a daemon may keep the log pipe; each restart must not cost a descriptor for ever."""
    d = inst.app_dir("x")
    write_unit("leaky", f"[App]\nShell=exec sleep 1000\nWorkingDirectory={d}\n[Sandbox]\nEnforce=off\n[Stop]\nTimeout=100ms\n")
    p = inst.foreground()
    inst.wait_state("leaky", "running")
    keep = []
    try:
        for _ in range(80):
            pid = inst.wait_state("leaky", "running")["pid"]
            app = harness.wait_for(lambda: harness.children(pid), what="the app below its init")[0]
            keep.append(os.open(f"/proc/{app}/fd/1", os.O_WRONLY | os.O_NONBLOCK))  # as a process that was handed it
            inst.ok("restart", "leaky")
        assert fds(p.pid) < 64 + 60
    finally:
        for fd in keep:
            os.close(fd)
