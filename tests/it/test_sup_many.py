"""The supervisor as a whole: reload as a diff, one instance, shutdown, kill -9 of every part, restarts under load."""
import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

from harness import (MARK, PYTHON, children, http_get, kill_pid, proc_start, program, wait_for)
from test_sup import GENEROUS, STUBBORN, left, lines, post, refused, unit


def reload(inst):
    code, report = inst.api("POST", "/v1/reload", timeout=GENEROUS)
    assert code == 200, report
    return report


def pids(inst):
    return {a["name"]: a.get("pid") for a in inst.api("GET", "/v1/status")[1]["apps"]}


def sleeper(inst, name, app="", body=""):
    d = inst.app_dir(name)
    inst.write_unit(name, unit(d, "exec sleep 1000", app, body))
    return d


# --- reload ---

def test_unchanged_reloads_change_nothing(inst, free_port):
    for name in ("a", "b"):
        sleeper(inst, name)
    inst.server_unit("web", free_port())
    inst.foreground()
    for name in ("a", "b", "web"):
        inst.wait_state(name, "running")
    before = pids(inst)
    for i in range(100):
        r = reload(inst)
        assert r["unchanged"] == 3 and not any(r[k] for k in ("added", "removed", "restarted", "live", "problems")), r
    assert pids(inst) == before
    with open(inst.unit_path("a")) as f:
        text = f.read()
    inst.write_unit("a", "# a comment\n\n" + text + "\n; and another one\n")
    assert reload(inst)["unchanged"] == 3 and pids(inst) == before


def test_reload_is_a_diff(inst, free_port):
    port = free_port()
    for name in ("still", "gone", "changed"):
        sleeper(inst, name)
    d = inst.server_unit("web", port, network="Allow=example.com")
    inst.foreground()
    for name in ("still", "gone", "changed", "web"):
        inst.wait_state(name, "running")
    before = pids(inst)
    inst.write_unit("new", unit(inst.app_dir("new"), "exec sleep 1000"))
    inst.remove_unit("gone")
    sleeper(inst, "changed", app="Environment=X=2")
    inst.server_unit("web", port, network="Allow=example.org", body="[Restart]\nSec=7s\n")
    r = reload(inst)
    # the watch of apps.d may have been quicker: then the reload finds nothing left to do
    assert not r["problems"], r
    inst.wait_state("new", "running")
    wait_for(lambda: "gone" not in pids(inst))
    wait_for(lambda: pids(inst)["changed"] not in (None, before["changed"]))
    after = pids(inst)
    assert after["still"] == before["still"] and after["web"] == before["web"] and proc_start(before["gone"]) is None
    s = inst.peek("web")
    assert s["allow"] == ["example.org"] and not s["restart_needed"] and s["launches"] == 1
    assert http_get(port).text.startswith("ok ") and d


def test_a_broken_unit_keeps_its_process(inst):
    d = sleeper(inst, "job")
    sleeper(inst, "other")
    inst.foreground()
    inst.wait_state("job", "running")
    inst.wait_state("other", "running")
    before = pids(inst)
    inst.write_unit("job", f"[App]\nShell=exec sleep 2000\nWorkingDirectory={d}\nEnabeld=yes\n")
    wait_for(lambda: inst.peek("job")["problems"])
    s = inst.peek("job")
    assert "job.app:4" in s["problems"][0] and "Enabled" in s["problems"][0] and s["state"] == "running"
    assert not s["restart_needed"] and pids(inst) == before
    for name in "job", "*":  # what cannot start again is not stopped for it
        reply = post(inst, name, "restart")
        assert reply["code"] == 1 and "job.app:4" in reply["message"] and "runs on as it was" in reply["message"]
        assert pids(inst)["job"] == before["job"]
    before = pids(inst)
    assert post(inst, "job", "stop")["code"] == 0
    reply = post(inst, "job", "start")
    assert reply["code"] == 1 and "job.app:4" in reply["message"]
    assert inst.peek("job")["state"] == "failed"
    sleeper(inst, "job")
    inst.wait_state("job", "running")
    assert pids(inst)["other"] == before["other"]


def test_files_are_noticed(inst):
    inst.foreground()
    sleeper(inst, "job")
    first = inst.wait_state("job", "running")["pid"]
    drop = inst.unit_path("job") + ".d"
    with open(f"{drop}/10-more.conf", "w") as f:
        f.write("[App]\nEnvironment=Y=1\n")
    wait_for(lambda: inst.peek("job").get("pid", first) != first and inst.peek("job")["state"] == "running")
    with open(f"{drop}/10-more.conf", "w") as f:
        f.write("[App]\nEnabled=no\n")
    inst.wait_state("job", "stopped")
    os.unlink(f"{drop}/10-more.conf")
    inst.wait_state("job", "running")
    for name in (".job.app.swp", "job.app~", "x.app.tmp", "readme"):
        with open(os.path.join(inst.apps, name), "w") as f:
            f.write("nonsense")
    os.link(inst.unit_path("job"), os.path.join(inst.apps, ".linked.app.tmp"))
    os.rename(os.path.join(inst.apps, ".linked.app.tmp"), inst.unit_path("same"))
    shutil.copy(inst.unit_path("job"), os.path.join(inst.apps, ".copy.app.tmp"))
    os.link(os.path.join(inst.apps, ".copy.app.tmp"), inst.unit_path("linked"))
    os.unlink(os.path.join(inst.apps, ".copy.app.tmp"))
    os.symlink(inst.unit_path("job"), inst.unit_path("symlinked"))
    for name in ("linked", "same"):
        inst.wait_state(name, "running")
        os.unlink(inst.unit_path(name))
    os.unlink(inst.unit_path("symlinked"))
    inst.remove_unit("job")
    wait_for(lambda: pids(inst) == {})
    assert not left(inst)


def test_the_directory_may_go_and_come_back(inst):
    sleeper(inst, "job")
    inst.foreground()
    pid = inst.wait_state("job", "running")["pid"]
    kept = inst.apps + ".kept"
    os.rename(inst.apps, kept)
    wait_for(lambda: inst.api("GET", "/v1/status")[1]["supervisor"]["problems"])
    assert inst.peek("job")["pid"] == pid and inst.peek("job")["state"] == "running"
    os.mkdir(inst.apps, 0o755)
    for name in os.listdir(kept):
        (shutil.copytree if os.path.isdir(f"{kept}/{name}") else shutil.copy)(f"{kept}/{name}", f"{inst.apps}/{name}")
    sleeper(inst, "second")
    inst.wait_state("second", "running")
    assert not inst.api("GET", "/v1/status")[1]["supervisor"]["problems"]
    assert post(inst, "job", "stop")["code"] == 0 and inst.peek("job")["state"] == "stopped"


def test_a_renamed_unit_and_two_that_swap_ports(inst, free_port):
    one, two = free_port(), free_port()
    inst.server_unit("a", one)
    inst.server_unit("b", two)
    inst.foreground()
    inst.wait_state("a", "running")
    inst.wait_state("b", "running")
    inst.server_unit("a", two)
    inst.server_unit("b", one)
    reload(inst)
    wait_for(lambda: all(inst.peek(n)["state"] == "running" and inst.peek(n)["ports"][0]["host"] == p
                         for n, p in (("a", two), ("b", one))))
    assert http_get(one).status == 200 and http_get(two).status == 200
    inst.server_unit("c", two)
    inst.remove_unit("a")
    reload(inst)
    inst.wait_state("c", "running")
    assert http_get(two).status == 200


# --- one instance; start and end of the supervisor ---

def test_only_one(inst):
    sleeper(inst, "job")
    p = inst.foreground()
    pid = inst.wait_state("job", "running")["pid"]
    r = subprocess.run([program("sbxsvd"), "--foreground"], env=inst.env, capture_output=True, text=True, timeout=GENEROUS)
    assert r.returncode == 1 and str(p.pid) in r.stderr and "another sbxsvd" in r.stderr
    assert inst.peek("job")["pid"] == pid and p.poll() is None


def test_as_a_daemon(inst):
    sleeper(inst, "job")
    r = subprocess.run([program("sbxsvd")], env=inst.env, capture_output=True, text=True, timeout=GENEROUS,
                       stdin=subprocess.DEVNULL)
    assert r.returncode == 0 and not r.stderr
    daemon = inst.daemon_pid()  # it answers already
    inst.wait_state("job", "running")
    assert os.readlink(f"/proc/{daemon}/cwd") == "/" and os.getsid(daemon) == daemon
    fds = {os.readlink(f"/proc/{daemon}/fd/{n}") for n in "012"}
    assert fds == {"/dev/null", os.path.join(inst.state, "sbxsvd.log")}
    again = subprocess.run([program("sbxsvd")], env=inst.env, capture_output=True, text=True, timeout=GENEROUS)
    assert again.returncode == 1 and str(daemon) in again.stderr
    os.kill(daemon, signal.SIGTERM)
    wait_for(lambda: proc_start(daemon) is None)
    assert not inst.alive() and not os.path.exists(inst.control)


def test_options(inst):
    def run(*args):
        return subprocess.run([program("sbxsvd"), *args], env=inst.env, capture_output=True, text=True, timeout=GENEROUS)
    assert run("--version").stdout.startswith("sbxsvd (sbxsv) ")
    assert "--watch-pid" in run("--help").stdout
    for bad in (["--nonsense"], ["extra"], ["--watch-pid", "x"], ["--config", ""]):
        r = run(*bad)
        assert r.returncode == 2 and r.stderr, bad


def test_inherited_descriptors_and_notify(inst):
    r, w = os.pipe()
    stray = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(stray, True)
    sleeper(inst, "job")
    p = inst.spawn([program("sbxsvd"), "--foreground", "--notify-fd", str(w)], pass_fds=(w, stray))
    os.close(w)
    with os.fdopen(r) as f:
        assert f.read() == "ready\n"
    assert inst.answers()
    assert "/dev/null" not in [os.readlink(f"/proc/{p.pid}/fd/{n}") for n in os.listdir(f"/proc/{p.pid}/fd") if int(n) > 2]
    os.close(stray)
    p.terminate()
    assert p.wait(GENEROUS) == 0
    for taken in (False, True):  # as a daemon both hear of it, the caller and its parent
        if taken:
            inst.foreground()
        r, w = os.pipe()
        started = subprocess.run([program("sbxsvd"), "--notify-fd", str(w)], env=inst.env, pass_fds=(w,), capture_output=True,
                                 text=True, timeout=GENEROUS, stdin=subprocess.DEVNULL)
        os.close(w)
        with os.fdopen(r) as f:
            said = f.read()
        assert started.returncode == taken
        assert "another sbxsvd" in said + started.stderr if taken else said == "ready\n" and not started.stderr
        if not taken:
            daemon = inst.daemon_pid()
            os.kill(daemon, signal.SIGTERM)
            wait_for(lambda: proc_start(daemon) is None)


def test_watch_pid(inst):
    watched = inst.spawn(["/bin/sleep", "1000"])
    sleeper(inst, "job")
    p = inst.foreground("--watch-pid", str(watched.pid))
    inst.wait_state("job", "running")
    watched.kill()
    watched.wait()
    assert p.wait(GENEROUS) == 0
    assert not inst.alive()
    r = subprocess.run([program("sbxsvd"), "--foreground", "--watch-pid", str(watched.pid)], env=inst.env,
                       capture_output=True, text=True, timeout=GENEROUS)
    assert r.returncode == 1 and "--watch-pid" in r.stderr


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it(inst, sig, free_port):
    port = free_port()
    inst.server_unit("web", port)
    p = inst.foreground()
    inst.wait_state("web", "running")
    p.send_signal(sig)
    assert p.wait(GENEROUS) == 0
    assert not inst.alive() and not os.path.exists(inst.control) and refused(port) == "refused"


def test_api_shutdown_with_grace_and_second_signal(inst):
    d = inst.app_dir("slow")
    inst.write_unit("slow", unit(d, "trap 'sleep 1; echo done > done; exit 0' TERM; echo x > ready; while :; do sleep 0.05; done"))
    p = inst.foreground()
    wait_for(lambda: lines(f"{d}/ready"))
    assert inst.api("POST", "/v1/shutdown", {"grace_ms": 30000})[0] == 200
    assert p.wait(GENEROUS) == 0
    assert lines(f"{d}/done") == ["done"] and not inst.alive()
    os.unlink(f"{d}/ready")
    inst.write_unit("slow", unit(d, "trap '' TERM; echo x > ready; sleep 1000 & wait; wait; sleep 1000"))
    p = inst.foreground()
    wait_for(lambda: lines(f"{d}/ready"))
    assert inst.api("POST", "/v1/shutdown", {"grace_ms": 3600000})[0] == 200
    p.send_signal(signal.SIGTERM)  # the second request: at once
    assert p.wait(GENEROUS) == 0
    assert not inst.alive()


def fifty(inst, n=50, code="exec sleep 1000"):
    for i in range(n):
        d = inst.app_dir(f"app{i:02}", {"stub.py": STUBBORN})
        inst.write_unit(f"app{i:02}", unit(d, code))


def test_shutdown_of_fifty_stubborn_apps_is_complete(inst):
    fifty(inst, 50, "exec /usr/bin/python3 -S -E stub.py")
    p = inst.foreground()
    for i in range(50):
        wait_for(lambda: lines(f"{inst.home}/apps/app{i:02}/ready"), 120)
    wait_for(lambda: len(left(inst)) >= 300, 120, "all processes")
    began = time.monotonic()
    p.send_signal(signal.SIGTERM)
    assert p.wait(GENEROUS) == 0
    took = time.monotonic() - began
    assert not inst.alive()
    print(f"50 apps with 5 stubborn children each were gone after {took * 1000:.0f} ms")


def test_sigterm_at_any_moment_of_the_start(inst):
    fifty(inst, 50)
    rng = random.Random(1)
    for delay in [0] + [rng.uniform(0, 0.5) for _ in range(15)]:
        p = inst.foreground(wait=False)
        time.sleep(delay)
        p.send_signal(signal.SIGTERM)
        # -SIGTERM: it came before main()
        assert p.wait(GENEROUS) in (0, -signal.SIGTERM), f"after {delay:.3f} s"
        assert not inst.alive(), f"after {delay:.3f} s"
    with open(os.path.join(inst.base, "foreground.log")) as f:
        assert "error" not in f.read()


# --- kill -9 ---

def test_kill_nine_of_the_supervisor(inst, free_port):
    port = free_port()
    inst.server_unit("web", port)
    d = inst.app_dir("stub", {"stub.py": STUBBORN})
    inst.write_unit("stub", f"[App]\nExec={PYTHON} stub.py\nWorkingDirectory={d}\n")
    rng = random.Random(2)
    for i in range(100):
        p = inst.foreground(wait=False)
        time.sleep(rng.uniform(0, 0.3))
        p.kill()
        p.wait()
        wait_for(lambda: not inst.alive(), GENEROUS, "the end of everything")
    p = inst.foreground()
    inst.wait_state("web", "running")
    inst.wait_state("stub", "running")
    assert http_get(port).text.startswith("ok ")
    # exactly once
    mine = [pid for pid in left(inst) if b"appserver.py" in open(f"/proc/{pid}/cmdline", "rb").read()]
    assert len([m for m in mine if b"sbxsv-init" not in open(f"/proc/{m}/cmdline", "rb").read()]) == 1


def test_restart_right_after_kill_nine(inst, free_port):
    """Without any wait: the new one waits for the remains of the old one and finds every port free."""
    port = free_port()
    inst.server_unit("web", port)
    for i in range(8):
        p = inst.foreground()
        inst.wait_state("web", "running")
        assert inst.peek("web")["launches"] == 1
        p.kill()
        p.wait()
    inst.foreground()
    inst.wait_state("web", "running")
    assert http_get(port).text.startswith("ok ")
    assert not inst.events("web", "port")


def test_a_recorded_pid_that_is_another_process_now(inst):
    stranger = inst.spawn(["/bin/sleep", "1000"], env={"PATH": "/usr/bin:/bin"})
    ours = inst.spawn(["/bin/sleep", "1000"], env={"PATH": "/usr/bin:/bin"})
    os.mkdir(inst.state, 0o700)
    with open("/proc/sys/kernel/random/boot_id") as f:
        boot = f.read().strip()
    record = {"boot": boot, "processes": [{"app": "job", "pid": stranger.pid, "start": proc_start(stranger.pid) - 1, "jailed": True},
                                          {"app": "job", "pid": ours.pid, "start": proc_start(ours.pid), "jailed": True}]}
    with open(os.path.join(inst.state, "run.json"), "w") as f:
        json.dump(record, f)
    p = inst.foreground()
    assert ours.wait(GENEROUS) == -signal.SIGKILL and stranger.poll() is None
    p.terminate()
    p.wait()
    record = {"boot": "another-boot", "processes": [{"app": "job", "pid": stranger.pid, "start": proc_start(stranger.pid), "jailed": True}]}
    for text in (json.dumps(record), "{\"boot\": ", "\0\xff", ""):
        with open(os.path.join(inst.state, "run.json"), "w") as f:
            f.write(text)
        p = inst.foreground()
        p.terminate()
        assert p.wait(GENEROUS) == 0 and stranger.poll() is None


def test_kill_nine_of_the_init(inst, free_port):
    port = free_port()
    inst.server_unit("web", port, body="[Restart]\nSec=1ms\nMaxSec=5ms\nLimitBurst=100000\n")
    inst.foreground()
    s = inst.wait_state("web", "running")
    rng = random.Random(3)
    for i in range(100):
        pid = wait_for(lambda: inst.peek("web").get("pid"))
        family = children(pid)
        time.sleep(rng.uniform(0, 0.2))
        kill_pid(pid)
        wait_for(lambda: proc_start(pid) is None and not [p for p in family if proc_start(p) is not None and p in children(pid)])
    inst.wait_state("web", "running")
    wait_for(lambda: http_get(port).text.startswith("ok "))
    assert len(left(inst)) <= 2 and inst.peek("web")["launches"] > s["launches"]


def test_kill_nine_of_the_proxy(inst, free_port):
    ports = [free_port() for _ in range(3)]
    for i, port in enumerate(ports):
        inst.server_unit(f"web{i}", port)
    p = inst.foreground()
    for i in range(3):
        inst.wait_state(f"web{i}", "running")
    apps = pids(inst)
    rng = random.Random(4)
    for i in range(100):
        proxy = wait_for(inst.proxy_pid)
        time.sleep(rng.uniform(0, 0.15))
        kill_pid(proxy)
        for port in ports:  # never refused: the listeners are the supervisor's
            with socket.create_connection(("127.0.0.1", port), GENEROUS):
                pass
    for port in ports:
        wait_for(lambda: http_get(port).text.startswith("ok "))
    assert pids(inst) == apps and p.poll() is None
    assert inst.api("GET", "/v1/status")[1]["supervisor"]["proxy"]["restarts"] >= 10


# --- under load ---

def test_a_hundred_restarts_refuse_nobody(inst, free_port):
    port = free_port()
    inst.server_unit("web", port, body="[Stop]\nTimeout=1s\n")
    inst.foreground()
    inst.wait_state("web", "running")
    refusals, served, over = [], [0], threading.Event()

    def load():
        while not over.is_set():
            try:
                served[0] += http_get(port, timeout=GENEROUS).status == 200
            except ConnectionRefusedError as e:
                refusals.append(e)
            except OSError:
                pass  # a request in flight at the kill may be reset
            except Exception:  # noqa: BLE001 (half an answer: the same)
                pass
    threads = [threading.Thread(target=load) for _ in range(4)]
    for t in threads:
        t.start()
    try:
        for _ in range(100):
            assert post(inst, "web", "restart")["code"] == 0
            time.sleep(0.02)
    finally:
        over.set()
        for t in threads:
            t.join(GENEROUS)
    assert not refusals and served[0] > 50
    assert inst.peek("web")["launches"] == 101


def test_flapping_apps_and_restart_all(inst):
    for i in range(20):
        d = inst.app_dir(f"flap{i:02}")
        inst.write_unit(f"flap{i:02}", unit(d, "sleep 0.0$(( $$ % 5 )); exit 1", body="[Restart]\nSec=1ms\nMaxSec=9ms\nLimitBurst=100000\n"))
    p = inst.foreground()
    for _ in range(30):
        code, reply = inst.api("POST", "/v1/apps/*/restart", {"wait": False}, timeout=GENEROUS)
        assert code == 200, reply
        assert inst.answers()
    code, reply = inst.api("POST", "/v1/apps/*/stop", {"wait": True}, timeout=GENEROUS)
    assert code == 200 and reply["code"] == 0
    assert {a["state"] for a in inst.api("GET", "/v1/status")[1]["apps"]} == {"stopped"}
    assert not left(inst) and p.poll() is None
    kids = [c for c in children(p.pid) if c != inst.proxy_pid()]
    assert not kids  # no zombie either


def test_idle_means_idle(inst, free_port):
    inst.server_unit("web", free_port())
    for i in range(5):
        sleeper(inst, f"a{i}")
    p = inst.foreground()
    inst.wait_state("web", "running")
    time.sleep(1)

    def switches():
        with open(f"/proc/{p.pid}/status") as f:
            return sum(int(line.split()[1]) for line in f if "ctxt_switches" in line)
    quiet = []
    for _ in range(10):
        before = switches()
        time.sleep(1)
        quiet.append(switches() - before)
    assert min(quiet) == 0, quiet
