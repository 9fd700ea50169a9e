"""Taken ports: an orphan of the app is replaced, anybody else is left alone and named."""
import json
import os
import shutil
import subprocess
import sys
import time

import harness
import pytest

# Run as: python3 -c HOLDER PORT PIDFILE HOW; HOW is orphan, child or terminal.
HOLDER = r"""
import os, pty, signal, socket, sys, time
port, pidfile, how = int(sys.argv[1]), sys.argv[2], sys.argv[3]
signal.alarm(300)
if how == "orphan":
    if os.fork(): os._exit(0)
    os.setsid()
    if os.fork(): os._exit(0)
elif how == "terminal":
    pid, fd = pty.fork()
    if pid:
        while True: time.sleep(100)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", port))
s.listen(64)
with open(pidfile + ".tmp", "w") as f: f.write(str(os.getpid()))
os.rename(pidfile + ".tmp", pidfile)
while True:
    c, _ = s.accept()
    c.recv(65536)
    c.sendall(b"HTTP/1.0 200 OK\r\n\r\nI am the stranger\n")
    c.close()
"""


@pytest.fixture
def hold(inst):
    """hold(port, cwd, how) -> pid of a process with that port that is none of ours."""
    pids = []

    def start(port, cwd, how="orphan", wrap=()):
        d = os.path.join(inst.base, "hold")
        if not os.path.isdir(d):
            inst._own_dir(d)
        pidfile = os.path.join(d, f"pid{len(pids)}")
        env = {k: v for k, v in inst.env.items() if k != harness.MARK}  # its end is not the instance's business
        p = inst.as_app_user([*wrap, harness.PYTHON, "-c", HOLDER, str(port), pidfile, how], cwd=cwd, env=env,
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
        harness.wait_for(lambda: os.path.exists(pidfile) or p.poll() not in (None, 0), 20, what="the port's holder")
        if not os.path.exists(pidfile):
            pytest.skip(f"the holder does not start here: exit {p.returncode}")
        with open(pidfile) as f:
            pid = int(f.read())
        pids.append((pid, harness.proc_start(pid)))
        if how == "orphan":
            harness.wait_for(lambda: parent(pid) != p.pid and p.poll() is not None, 10, what="the orphan's new parent")
        return pid
    yield start
    for pid, start_time in pids:
        if harness.proc_start(pid) == start_time:
            harness.kill_pid(pid)


def parent(pid):
    with open(f"/proc/{pid}/stat", "rb") as f:
        return int(f.read().rpartition(b")")[2].split()[1])


def needs_init(pid):
    """Where orphans go to something that is not init, they cannot be told from anybody's children."""
    if parent(pid) != 1:
        pytest.skip(f"orphans go to pid {harness.describe(parent(pid))} on this machine, not to init")


def unit(inst, port, body=""):
    return inst.server_unit("web", port, body)


def assert_left_alone(inst, pid, port, cwd, state="failed"):
    s = inst.wait_state("web", state)
    assert harness.proc_start(pid) is not None, "a stranger was ended"
    assert "stranger" in harness.http_get(port).text
    for part in (str(pid), "python3", str(cwd)):
        assert part in s["reason"], s["reason"]
    ports = json.loads(inst.ok("ports", "--json"))
    mine = [p for p in ports if p["app"] == "web"]
    assert mine and mine[0]["state"] == "taken", ports
    return s


def test_an_orphan_of_the_app_is_replaced(inst, hold, free_port):
    port = free_port()
    d = unit(inst, port)
    pid = hold(port, d)
    needs_init(pid)
    inst.up()
    inst.wait_state("web", "running")
    assert harness.http_get(port).text.startswith("ok ")
    harness.wait_for(lambda: harness.proc_start(pid) is None, 10, what="the orphan's end")
    assert str(pid) in json.dumps(inst.events("web")), "the reclaim is not in the events"


def test_an_orphan_deep_in_the_app_directory_is_replaced(inst, hold, free_port):
    port = free_port()
    d = unit(inst, port)
    deep = inst._own_dir(os.path.join(d, "deep"))
    pid = hold(port, deep)
    needs_init(pid)
    inst.up()
    inst.wait_state("web", "running")
    assert harness.http_get(port).text.startswith("ok ")


def test_a_process_with_another_directory_is_left_alone(inst, hold, free_port):
    port = free_port()
    d = unit(inst, port)
    other = inst._own_dir(d + "-dev")  # the app's directory is a prefix of its name
    pid = hold(port, other)
    inst.up()
    assert_left_alone(inst, pid, port, other)
    # when it has gone, a start by a person works
    harness.kill_pid(pid)
    harness.wait_for(lambda: harness.proc_start(pid) is None, 10, what="its end")
    assert inst.sbxsv("start", "web").code == 0
    assert harness.http_get(port).text.startswith("ok ")


def test_a_server_started_by_hand_in_the_apps_folder_is_left_alone(inst, hold, free_port):
    port = free_port()
    d = unit(inst, port)
    pid = hold(port, d, "child")
    inst.up()
    assert_left_alone(inst, pid, port, d)


def test_a_server_on_a_terminal_is_left_alone(inst, hold, free_port):
    port = free_port()
    d = unit(inst, port)
    pid = hold(port, d, "terminal")
    inst.up()
    assert_left_alone(inst, pid, port, d)


def test_reclaim_can_be_switched_off(inst, hold, free_port):
    port = free_port()
    d = unit(inst, port, "[Port]\nReclaim=no")
    pid = hold(port, d)
    inst.up()
    assert_left_alone(inst, pid, port, d)


def test_a_spoofed_directory_of_another_mount_namespace_does_not_fool(inst, hold, free_port):
    """Its /proc/PID/cwd reads like the app's directory; it is another one, bind-mounted there in a namespace of its own."""
    port = free_port()
    d = unit(inst, port)
    other = inst._own_dir(os.path.join(inst.base, "elsewhere"))
    unshare = shutil.which("unshare")
    script = f'mount --bind "{other}" "{d}" && cd "{d}" && shift && exec "$@"'
    pid = hold(port, other, "orphan", wrap=[unshare, "--user", "--map-root-user", "--mount", "/bin/sh", "-c", script, "sh", "-"])
    assert os.readlink(f"/proc/{pid}/cwd") == d
    inst.up()
    inst.wait_state("web", "failed")
    assert harness.proc_start(pid) is not None, "a stranger was ended"
    assert "stranger" in harness.http_get(port).text


def test_other_apps_do_not_mind(inst, hold, free_port):
    taken, port = free_port(), free_port()
    unit(inst, taken)
    inst.server_unit("other", port)
    pid = hold(taken, inst.base)
    inst.up()
    inst.wait_state("other", "running")
    assert_left_alone(inst, pid, taken, inst.base)
    assert harness.http_get(port).status == 200


def test_the_host_port_is_held_while_the_app_is_down(inst, free_port):
    port = free_port()
    unit(inst, port)
    inst.up()
    inst.wait_state("web", "running")
    ports = json.loads(inst.ok("ports", "--json"))
    assert [(p["app"], p["host"], p["state"]) for p in ports] == [("web", port, "held")]
    inst.ok("stop", "web")
    with pytest.raises(OSError):  # reset, not answered by anybody
        harness.http_get(port, timeout=5)
    p = subprocess.run([harness.PYTHON, "-c", f"import socket; socket.socket().bind(('127.0.0.1', {port}))"],
                       capture_output=True, text=True, check=False)
    assert p.returncode != 0 and "in use" in p.stderr


def test_an_app_without_a_jail_runs_once_after_kill_9_of_the_supervisor(inst, free_port):
    port = free_port()
    inst.server_unit("web", port, "[Sandbox]\nEnforce=off")
    p = inst.foreground()
    inst.wait_state("web", "running")
    first = int(harness.http_get(port).text.split()[1])
    p.kill()
    p.wait()
    time.sleep(0.2)
    inst.foreground()
    inst.wait_state("web", "running")
    assert int(harness.http_get(port).text.split()[1]) != first
    servers = [q for q in harness.pids_with_mark(inst.mark) if "appserver.py" in harness.describe(q) and "sbxsv-init" not in harness.describe(q)]
    assert len(servers) == 1, [harness.describe(q) for q in servers]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
