"""The command and the control API against a real supervisor."""
import fcntl
import json
import os
import pty
import signal
import socket
import subprocess
import threading
import time

import harness
import pytest

ESC_APP = r"""[App]
Shell=printf '\033[2Jclear \302\233 and \377\n'; echo plain; sleep 1000
WorkingDirectory=%s
"""


def sleeper(inst, name="a", body=""):
    inst.write_unit(name, f"[App]\nExec=/bin/sleep 1000\nWorkingDirectory={inst.app_dir(name)}\n{body}")


def test_up_and_down_are_idempotent(inst):
    sleeper(inst)
    assert "started" in inst.up()
    pid = inst.daemon_pid()
    assert f"is running already, pid {pid}" in inst.up()
    assert json.loads(inst.ok("up", "--json"))["pid"] == pid
    inst.wait_state("a", "running")
    assert "have ended" in inst.down()
    assert harness.proc_start(pid) is None and not os.path.exists(inst.control)
    assert "not running" in inst.down()


def test_many_ups_at_once_make_one_supervisor(inst):
    sleeper(inst)
    results = []
    threads = [threading.Thread(target=lambda: results.append(inst.sbxsv("up"))) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [r.code for r in results] == [0] * 6, results
    pids = {r.out.split("pid ")[1].strip() for r in results}
    assert pids == {str(inst.daemon_pid())}


def test_up_while_one_is_shutting_down_starts_a_new_one(inst):
    inst.write_unit("a", f"[App]\nShell=trap '' TERM; while :; do sleep 1; done\nWorkingDirectory={inst.app_dir('a')}\n")
    inst.up()
    inst.wait_state("a", "running")
    old = inst.daemon_pid()
    down = inst.spawn([harness.program("sbxsv"), "down", "--grace", "2s"], stdout=subprocess.DEVNULL)
    harness.wait_for(lambda: inst.api("GET", "/v1/version")[1]["shutting_down"], what="the shutdown")
    inst.up()
    assert down.wait(60) == 0
    assert inst.daemon_pid() != old
    inst.wait_state("a", "running")


@pytest.mark.parametrize("ends", (True, False))
def test_up_after_a_connection_that_was_closed_without_a_word(inst, ends):
    """A supervisor that was killed leaves its listening socket to a child it just made, for a moment: not a refusal."""
    os.makedirs(inst.runtime, mode=0o700, exist_ok=True)
    old = socket.socket(socket.AF_UNIX)
    old.bind(inst.control)
    old.listen()

    def close_them():
        try:
            while True:
                c = old.accept()[0]
                if ends:
                    old.close()
                c.close()
        except OSError:
            pass
    thread = threading.Thread(target=close_them)
    thread.start()
    r = inst.sbxsv("up")
    if not ends:
        old.shutdown(socket.SHUT_RDWR)
    thread.join()
    if ends:
        assert r.code == 0 and "started" in r.out, r
    else:
        assert r.code == 6 and "refuses this process" in r.err, r


def test_up_while_a_child_of_a_killed_supervisor_still_has_its_lock(inst):
    """As the listening socket: a child has the lock file until it executes. It does not stay, so that is waited for."""
    os.makedirs(inst.runtime, mode=0o700, exist_ok=True)
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    with open(os.path.join(inst.runtime, "sbxsvd.lock"), "w") as f:
        os.chmod(f.name, 0o600)
        fcntl.flock(f, fcntl.LOCK_EX)
        f.write(f"{gone.pid}\n")
        f.flush()
        up = inst.spawn([harness.program("sbxsv"), "up"], stdout=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            up.wait(0.5)
    out = up.communicate(timeout=60)[0]
    assert up.returncode == 0 and b"started" in out, out


def test_up_shows_why_it_failed(inst):
    with open(inst.state, "w") as f:
        f.write("in the way")
    r = inst.sbxsv("up")
    assert r.code == 1 and inst.state in r.err
    os.unlink(inst.state)
    inst.up()


def test_watch_pid(inst):
    sleeper(inst)
    caller = inst.spawn(["/bin/sleep", "1000"])
    inst.up("--watch-pid", caller.pid)
    pid = inst.daemon_pid()
    r = inst.sbxsv("up", "--watch-pid", os.getpid())
    assert r.code == 0 and "no effect" in r.err
    caller.kill()
    caller.wait()
    harness.wait_for(lambda: harness.proc_start(pid) is None, what="the end of the supervisor")


def test_up_foreground(inst):
    p = inst.spawn([harness.program("sbxsv"), "up", "--foreground"], stderr=subprocess.DEVNULL)
    harness.wait_for(inst.answers, what="the control socket")
    assert inst.daemon_pid() == p.pid
    inst.down()
    assert p.wait(60) == 0


def test_start_stop_restart_kill(inst):
    sleeper(inst, "a")
    sleeper(inst, "b")
    inst.write_unit("bad", f"[App]\nExec=/bin/false\nWorkingDirectory={inst.app_dir('bad')}\n[Restart]\nPolicy=no\n"
                           f"[Network]\nListen={harness.free_port()}\n")
    inst.up()
    for name in "a", "b":
        inst.wait_state(name, "running")
    inst.wait_state("bad", "failed")
    first = inst.status("a")["pid"]
    inst.ok("restart", "a")
    assert inst.status("a")["pid"] != first and inst.status("a")["launches"] == 2
    inst.ok("stop", "a", "b")
    assert inst.status("a")["state"] == inst.status("b")["state"] == "stopped"
    assert inst.sbxsv("status", "a").code == 3
    assert inst.sbxsv("kill", "a").code == 3
    inst.ok("start", "--all", "--no-wait")
    inst.wait_state("a", "running")
    assert inst.sbxsv("status", "a").code == 0
    inst.ok("kill", "-s", "KILL", "a")
    harness.wait_for(lambda: inst.status("a")["launches"] >= 4, what="a restart")
    r = inst.sbxsv("start", "bad")
    assert r.code == 1 and "bad" in r.err
    # several apps: the worst answer wins, and the others are done all the same
    r = inst.sbxsv("stop", "b", "nothing", "..")
    assert r.code == 4 and "nothing" in r.err
    assert inst.status("b")["state"] == "stopped"
    assert inst.sbxsv("start", "*").code == 2
    assert inst.sbxsv("status", "nothing").code == 4


def test_status_table(inst):
    port = harness.free_port()
    inst.server_unit("web", port)
    inst.write_unit("broken", "[App]\nExecc=/bin/true\n", mark=False)
    inst.up()
    inst.wait_state("web", "running")
    lines = inst.ok("status").splitlines()
    assert lines[0].split() == ["NAME", "STATE", "PID", "UPTIME", "LAUNCHES", "PORTS", "ISOLATION", "NOTE"]
    rows = {x.split()[0]: x for x in lines[1:]}
    assert str(port) in rows["web"] and "running" in rows["web"] and str(inst.status("web")["pid"]) in rows["web"]
    assert " linux " in rows["web"]
    assert "failed" in rows["broken"] and "Execc" in rows["broken"]
    assert str(port) in inst.ok("ports") and json.loads(inst.ok("ports", "--json"))[0]["app"] == "web"
    full = inst.ok("status", "web")
    for word in ("isolation: linux", "seccomp", f"127.0.0.1:{port}", "egress: off", "enforce: required"):
        assert word in full, full


def test_reload_reports_the_difference(inst):
    sleeper(inst, "a")
    sleeper(inst, "b")
    inst.up()
    inst.wait_state("a", "running")
    out = inst.ok("reload")
    assert "unchanged: 2" in out
    inst.write_unit("bad", "[App]\nExecc=/bin/true\n", mark=False)
    r = inst.sbxsv("reload")
    assert r.code == 1 and "bad.app:2" in r.err
    assert any("bad.app:2" in p for p in json.loads(inst.sbxsv("reload", "--json").out)["problems"])


# --- logs and events ---

def test_logs_are_escaped(inst):
    inst.write_unit("a", ESC_APP % inst.app_dir("a"))
    inst.up()
    harness.wait_for(lambda: "plain" in inst.ok("logs", "a"), what="the log")
    out = inst.ok("logs", "a")
    assert "\\x1b[2Jclear \\xc2\\x9b and \\xff\n" in out
    assert len(inst.ok("logs", "a", "-n", "1").splitlines()) == 1
    raw = subprocess.run([harness.program("sbxsv"), "logs", "--raw", "a"], env=inst.env, capture_output=True, timeout=60)
    assert b"\x1b[2Jclear \xc2\x9b and \xff\n" in raw.stdout
    # a terminal never gets the raw bytes
    master, slave = pty.openpty()
    p = subprocess.run([harness.program("sbxsv"), "logs", "--raw", "a"], env=inst.env, stdout=slave, stderr=slave, timeout=60)
    os.close(slave)
    shown = os.read(master, 65536)
    os.close(master)
    assert p.returncode == 2 and b"\x1b" not in shown


def test_status_shows_no_control_bytes(inst):
    inst.write_unit("a", "[App]\nShell=printf '\\033[2J\\n'; exit 1\nWorkingDirectory=%s\n[Restart]\nPolicy=no\n" % inst.app_dir("a"))
    inst.up()
    inst.wait_state("a", "failed")
    for args in (["status", "a"], ["status"], ["status", "--json"], ["status", "--json", "a"], ["events"], ["events", "--json"],
                 ["start", "a"]):
        r = inst.sbxsv(*args)
        assert "\x1b" not in r.out + r.err, args


def follow(inst, *args):
    """A following command and the list that its lines go to."""
    p = inst.spawn([harness.program("sbxsv"), *args], stdout=subprocess.PIPE, text=True)
    lines = []
    threading.Thread(target=lambda: [lines.append(x) for x in p.stdout], daemon=True).start()
    return p, lines


def test_logs_follow(inst):
    d = inst.app_dir("a")
    inst.write_unit("a", f"[App]\nShell=while :; do if [ -e go ]; then echo went; rm go; fi; sleep 0.05; done\nWorkingDirectory={d}\n")
    inst.up()
    inst.wait_state("a", "running")
    p, lines = follow(inst, "logs", "-f", "-n", "0", "a")
    harness.wait_for(lambda: inst.api("GET", "/v1/status")[1]["control"]["streams"] == 1, what="the stream")
    inst.user_file(d + "/go")
    harness.wait_for(lambda: "went\n" in lines, what="the line")
    # the stream ends when the app is removed
    inst.remove_unit("a")
    inst.ok("reload")
    assert p.wait(60) == 0


def test_events_follow(inst):
    sleeper(inst)
    inst.up()
    inst.wait_state("a", "running")
    p, lines = follow(inst, "events", "-f", "--json", "a")
    q, text = follow(inst, "events", "-f")
    harness.wait_for(lambda: inst.api("GET", "/v1/status")[1]["control"]["streams"] == 2, what="the streams")
    inst.ok("stop", "a")
    harness.wait_for(lambda: any(json.loads(x).get("state") == "stopped" for x in lines), what="the event")
    assert all(json.loads(x)["app"] == "a" for x in lines)
    harness.wait_for(lambda: any(' a state: ' in x and '-> stopped' in x for x in text), what="the event as text")
    seqs = [json.loads(x)["seq"] for x in lines]
    assert seqs == sorted(seqs)
    inst.down()
    # the supervisor went away: that is no success
    assert p.wait(60) in (0, 1) and q.wait(60) in (0, 1)


def test_follow_ends_when_the_reader_goes(inst):
    sleeper(inst)
    inst.up()
    inst.wait_state("a", "running")
    p = inst.spawn([harness.program("sbxsv"), "events", "-f"], stdout=subprocess.PIPE)
    assert p.stdout.readline()
    p.send_signal(signal.SIGINT)
    assert p.wait(60) == -signal.SIGINT
    harness.wait_for(lambda: inst.api("GET", "/v1/status")[1]["control"]["streams"] == 0, what="the end of the stream")


# --- who may ask ---

def test_a_peer_in_another_user_namespace_is_refused(inst):
    inst.up()
    if subprocess.run(["unshare", "--user", "true"], capture_output=True).returncode:
        pytest.skip("this user may not make user namespaces")
    r = subprocess.run(["unshare", "--user", harness.program("sbxsv"), "status"], env=inst.env, capture_output=True, text=True,
                       timeout=60)
    assert r.returncode == 6 and "jail" in r.stderr, r
    assert inst.api("GET", "/v1/status")[1]["control"]["refused"] >= 1


def test_a_supervisor_that_does_not_answer(inst):
    """Stopped, not gone: the command says so and does not hang."""
    inst.up()
    pid = inst.daemon_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        start = time.monotonic()
        r = inst.sbxsv("status", timeout=120)
        assert r.code == 1 and "does not answer" in r.err, r
        assert time.monotonic() - start < 100
    finally:
        os.kill(pid, signal.SIGCONT)
    assert inst.sbxsv("status").code == 0
