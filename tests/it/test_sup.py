"""The life of an app: start, ready, restart, backoff, start limit, stop, and what is shown of it."""
import json
import os
import signal
import socket
import subprocess
import time

import pytest

from harness import (PYTHON, ROOT, children, free_port as a_free_port, http_get, kill_pid, proc_start, program, wait_for)

GENEROUS = 60  # guards against hanging, not a limit of the product


def unit(d, command, app="", body=""):
    return f"[App]\nShell={command}\nWorkingDirectory={d}\n{app}\n{body}\n"


def post(inst, app, verb, wait=True, timeout=GENEROUS):
    code, reply = inst.api("POST", f"/v1/apps/{app}/{verb}", {"wait": wait}, timeout=timeout)
    assert code == 200, (code, reply)
    return reply


def lines(path):
    try:
        with open(path) as f:
            return f.read().splitlines()
    except FileNotFoundError:
        return []


def left(inst):
    """Processes of the instance's apps."""
    return [p for p in inst.alive() if p not in {q.pid for q in inst.procs}]


def refused(port):
    """How a connect to the port ends: "refused" (nobody listens), "reset", or "open"."""
    s = socket.socket()
    s.settimeout(10)
    try:
        s.connect(("127.0.0.1", port))
        return "reset" if s.recv(1) == b"" else "open"
    except ConnectionRefusedError:
        return "refused"
    except ConnectionResetError:
        return "reset"
    except socket.timeout:
        return "open"
    finally:
        s.close()


# --- start, ready, stop ---

def test_start_serve_stop_start(inst, free_port):
    port = free_port()
    inst.server_unit("web", port)
    inst.foreground()
    s = inst.wait_state("web", "running")
    assert http_get(port).text.startswith("ok ")
    assert s["pid"] and s["launches"] == 1 and s["isolation"]["backend"] == "linux"
    assert s["isolation"]["pid_ns"] and s["isolation"]["net_ns"] and not s["isolation"]["missing"]
    assert s["ports"] == [{"host": port, "app": port, "address": "127.0.0.1", "state": "held"}]
    assert s["user"] == inst.user.pw_name and s["gate"] == "serve"

    assert post(inst, "web", "stop")["code"] == 0
    s = inst.peek("web")
    assert s["state"] == "stopped" and "pid" not in s and "uptime_ms" not in s
    assert not left(inst)
    assert refused(port) == "reset"  # held for the app, and closed at once
    assert s["last_exit"]["text"]

    assert post(inst, "web", "start")["code"] == 0
    assert http_get(port).text.startswith("ok ")
    s = inst.peek("web")
    assert s["launches"] == 2 and "reason" not in s
    states = [e["state"] for e in inst.events("web", "state")]
    assert states == ["starting", "running", "stopping", "stopped", "starting", "running"]


def test_status_says_whether_unix_sockets_work(inst):
    """The plan refuses AF_UNIX where a foreign socket could come into view: the person must be able to see that."""
    probe = ("import socket, time\n"
             "try: socket.socket(socket.AF_UNIX); print('unix yes', flush=True)\n"
             "except OSError as e: print('unix no', flush=True)\n"
             "time.sleep(1000)\n")
    for name, more in (("own", ""), ("open", "[Sandbox]\nReadMode=open\n")):
        d = inst.app_dir(name, {"probe.py": probe})
        inst.write_unit(name, f"[App]\nExec={PYTHON} probe.py\nWorkingDirectory={d}\n{more}")
    inst.foreground()
    for name, works in (("own", True), ("open", False)):
        i = inst.wait_state(name, "running")["isolation"]
        assert i["unix_sockets"] is works, i
        assert i["unix_why"].startswith("allowed: " if works else "refused: "), i
        wait_for(lambda: f"unix {'yes' if works else 'no'}" in inst.log(name), GENEROUS)
        assert i["unix_why"] in inst.sbxsv("status", name)[1]


@pytest.mark.parametrize("verb", ["start", "restart", "stop"])
def test_a_command_does_not_keep_an_app_whose_unit_was_removed(inst, verb):
    """The file is gone, its last process is still being stopped, and a person types a command: nothing brings it back."""
    d = inst.app_dir("gone")
    inst.write_unit("gone", unit(d, "trap '' TERM; while :; do sleep 1; done", body="[Stop]\nTimeout=1s\n"))
    inst.foreground()
    inst.wait_state("gone", "running")
    inst.remove_unit("gone")
    code, out, err = inst.sbxsv(verb, "gone")
    assert code == 4 and "removed" in out + err, (code, out, err)
    wait_for(lambda: not inst.status()["apps"], GENEROUS)
    assert not left(inst)
    assert inst.sbxsv(verb, "gone")[0] == 4


def test_connections_wait_while_an_app_starts(inst, free_port):
    port = free_port()
    d = inst.server_unit("slow", port, extra_app="Environment=X=1")
    inst.user_file(os.path.join(d, "late.sh"), "sleep 1\nexec /usr/bin/python3 appserver.py\n")
    inst.write_unit("slow", f"[App]\nExec=/bin/sh late.sh\nWorkingDirectory={d}\n[Network]\nListen={port}\n")
    inst.foreground()
    inst.wait_state("slow", "starting")
    assert http_get(port, timeout=GENEROUS).text.startswith("ok ")  # sent long before anybody listened inside


def test_restart_gives_a_new_process_and_the_same_port(inst, free_port):
    port = free_port()
    inst.server_unit("web", port)
    inst.foreground()
    first = inst.wait_state("web", "running")["pid"]
    assert post(inst, "web", "restart")["code"] == 0
    second = inst.peek("web")
    assert second["state"] == "running" and second["pid"] != first and proc_start(first) is None
    assert http_get(port).text.startswith("ok ")


def test_an_app_sees_clean_signals_and_descriptors(inst):
    d = inst.app_dir("clean")
    inst.write_unit("clean", unit(d, "grep ^Sig /proc/self/status > sig; ls /proc/self/fd > fds; ulimit -Sn > nofile; exec sleep 1000"))
    inst.foreground()
    inst.wait_state("clean", "running")
    wait_for(lambda: lines(f"{d}/nofile"))
    sig = dict(line.split(":\t") for line in lines(f"{d}/sig"))
    assert int(sig["SigIgn"], 16) == 0 and int(sig["SigBlk"], 16) == 0
    assert lines(f"{d}/fds") == ["0", "1", "2", "3"]  # 3 is the directory that ls reads
    assert lines(f"{d}/nofile") == ["1024"]  # not what the supervisor raised for itself


def test_ready_by_http(inst, free_port):
    port = free_port()
    d = inst.app_dir("web", {"srv.py": """
import http.server, os, time
start = time.monotonic()
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(204 if os.path.exists("go") and self.path == "/health" else 503)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), H).serve_forever()
"""})
    inst.write_unit("web", f"[App]\nExec={PYTHON} srv.py\nWorkingDirectory={d}\n[Network]\nListen={port}\n"
                           "[Ready]\nType=http\nPath=/health\n")
    inst.foreground()
    wait_for(lambda: "503" in inst.log("web"), GENEROUS, "a probe that was refused")
    assert inst.peek("web")["state"] == "starting"
    inst.user_file(os.path.join(d, "go"))
    inst.wait_state("web", "running")


def test_not_ready_in_time_is_a_failed_start(inst, free_port):
    port = free_port()
    d = inst.app_dir("mute")
    inst.write_unit("mute", unit(d, "echo x >> starts; exec sleep 1000", body=(
        f"[Network]\nListen={port}\n[Ready]\nTimeout=200ms\n[Restart]\nSec=10ms\nLimitBurst=2\n")))
    inst.foreground()
    s = inst.wait_state("mute", "failed")
    assert "not ready within 200 ms" in s["reason"] and f"port {port}" in s["reason"]
    assert len(lines(f"{d}/starts")) == 2 and s["launches"] == 2
    assert not left(inst) and refused(port) == "reset"


def test_the_wrong_port_is_named(inst, free_port):
    """What it listens on instead is known, and so is the line that makes it right."""
    port, other = free_port(), free_port()
    d = inst.app_dir("web")
    inst.write_unit("web", f"[App]\nExec=/usr/bin/python3 -m http.server {other}\nWorkingDirectory={d}\n"
                           f"[Network]\nListen={port}\n[Ready]\nTimeout=2s\n[Restart]\nPolicy=no\n")
    inst.foreground()
    s = inst.wait_state("web", "failed")
    assert f"it does not listen on port {port}, but on port {other}" in s["reason"], s["reason"]
    assert f"Listen={port}:{other}" in s["hint"] and "sbxsv start web" in s["hint"]
    assert "not ready within" in inst.log("web")
    inst.write_unit("web", f"[App]\nExec=/usr/bin/python3 -m http.server {other}\nWorkingDirectory={d}\n"
                           f"[Network]\nListen={port}:{other}\n")
    inst.wait_state("web", "running")
    assert http_get(port).status == 200


def test_a_failure_says_what_was_written_and_refused(inst):
    """Only the output of the last start, the hosts that were refused, and the questions to ask."""
    d = inst.app_dir("asks")
    inst.user_file(f"{d}/ask.py", "import sys, urllib.request\nprint('last words', flush=True)\n"
                                  "urllib.request.urlopen('http://refused.example/', timeout=20)\n")
    inst.write_unit("asks", f"[App]\nExec=/usr/bin/python3 ask.py\nWorkingDirectory={d}\n"
                            "[Network]\nAllow=allowed.example\n[Restart]\nLimitBurst=2\nSec=0\n")
    inst.foreground()
    s = inst.wait_state("asks", "failed")
    lines = s["reason"].split("\n")
    assert "is not started again" in lines[0] and "\nlast output:\n" in s["reason"]
    assert any(x.startswith("refused: connect refused.example:80 (") for x in lines), lines
    assert "sbxsv allow asks refused.example" in s["hint"] and "sbxsv check --allow asks" in s["hint"]
    for name in "one", "two":
        inst.write_unit(name, f"[App]\nExec=/bin/true\nWorkingDirectory={d}-{name}\n")
    r = inst.sbxsv("start", "--all")
    heads = [x for x in r.err.splitlines() if not x.startswith("  ")]
    assert r.code == 1 and sorted(x.split(" ")[1] for x in heads) == ["one:", "two:"], r.err
    assert all("WorkingDirectory=" in x for x in heads), r.err


# --- restart policy ---

@pytest.mark.parametrize("policy,code,state", [
    ("no", 0, "stopped"), ("no", 3, "failed"), ("on-failure", 0, "stopped"), ("on-failure", 3, "failed"),
    ("on-failure", 7, "stopped"), ("always", 0, "failed"), ("always", 3, "failed")])
def test_policies(inst, policy, code, state):
    d = inst.app_dir("job")
    inst.write_unit("job", unit(d, f"echo x >> starts; exit {code}", body=(
        f"[Restart]\nPolicy={policy}\nSec=1ms\nMaxSec=2ms\nLimitBurst=4\nSuccessExitStatus=7\n")))
    inst.foreground()
    wait_for(lambda: inst.events("job", "exit"))
    again = policy == "always" or (policy == "on-failure" and code == 3)
    s = inst.wait_state("job", state)
    assert len(lines(f"{d}/starts")) == s["launches"] == (4 if again else 1)
    assert s["last_exit"]["code"] == code and f"status {code}" in s["reason"]


@pytest.mark.parametrize("burst", [1, 2, 5])
def test_start_limit_is_exact(inst, burst):
    d = inst.app_dir("job")
    inst.write_unit("job", unit(d, "echo x >> starts; echo some trouble; exit 3", body=(
        f"[Restart]\nSec=1ms\nMaxSec=2ms\nLimitBurst={burst}\nLimitInterval=1h\n")))
    inst.foreground()
    s = inst.wait_state("job", "failed")
    assert len(lines(f"{d}/starts")) == burst == s["launches"]
    assert "some trouble" in s["reason"] and f"LimitBurst={burst}" in s["reason"] and "sbxsv start job" in s["hint"]
    # a person's start forgets what was
    reply = post(inst, "job", "start")
    assert reply["code"] in (0, 1)
    wait_for(lambda: inst.peek("job")["state"] == "failed" and inst.peek("job")["launches"] == 2 * burst)
    assert len(lines(f"{d}/starts")) == 2 * burst


def test_backoff_doubles(inst):
    d = inst.app_dir("job")
    inst.write_unit("job", unit(d, "exit 1", body="[Restart]\nSec=40ms\nMaxSec=200ms\nLimitBurst=6\n"))
    inst.foreground()
    inst.wait_state("job", "failed")
    delays = [e["next_start_ms"] for e in inst.events("job", "state") if e["state"] == "backoff"]
    assert delays == [40, 80, 160, 200, 200]


def test_start_and_stop_in_backoff(inst):
    d = inst.app_dir("job")
    inst.write_unit("job", unit(d, "echo x >> starts; echo last words; exit 1", body="[Restart]\nSec=1h\nMaxSec=1h\n"))
    inst.foreground()
    s = inst.wait_state("job", "backoff")
    shown = inst.sbxsv("status", "job")
    assert shown.code == 3 and "last output:" in shown.out and "  last words\n" in shown.out, shown
    assert "sbxsv logs job" in shown.out and "last words" not in inst.ok("status")
    assert s["next_start_ms"] > 3000000 and "pid" not in s
    assert post(inst, "job", "stop")["code"] == 0
    assert inst.peek("job")["state"] == "stopped"
    reply = post(inst, "job", "start")
    inst.wait_state("job", "backoff")
    assert reply["code"] == 0 or "exited with status 1" in reply["message"]
    post(inst, "job", "start")
    wait_for(lambda: len(lines(f"{d}/starts")) == 3)
    inst.wait_state("job", "backoff")


# --- stop ---

STUBBORN = """
import os, signal, sys, time
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(s, signal.SIG_IGN)
for i in range(5):
    if os.fork() == 0:
        if i % 2:
            os.setsid()
        if os.fork():
            os._exit(0)
        time.sleep(10000)
open("ready", "w").write("x")
time.sleep(10000)
"""


def test_stop_ends_stubborn_setsid_children(inst):
    d = inst.app_dir("stub", {"stub.py": STUBBORN})
    inst.write_unit("stub", f"[App]\nExec={PYTHON} stub.py\nWorkingDirectory={d}\n[Stop]\nTimeout=100ms\n")
    inst.foreground()
    pid = inst.wait_state("stub", "running")["pid"]
    wait_for(lambda: lines(f"{d}/ready"))
    family = wait_for(lambda: children(pid) if len(children(pid)) >= 6 else None)
    assert post(inst, "stub", "stop")["code"] == 0
    assert [p for p in family + [pid] if proc_start(p) is not None] == []
    assert inst.peek("stub")["state"] == "stopped"


def test_children_of_a_leader_that_obeys(inst):
    d = inst.app_dir("chain")
    inst.write_unit("chain", unit(d, "(trap '' TERM; setsid sleep 1000 & sleep 1000 & wait) & trap 'exit 0' TERM; echo x > ready; wait"))
    inst.foreground()
    pid = inst.wait_state("chain", "running")["pid"]
    family = wait_for(lambda: children(pid) if len(children(pid)) >= 4 else None)
    assert post(inst, "chain", "stop")["code"] == 0
    assert [p for p in family + [pid] if proc_start(p) is not None] == []


def test_a_crash_while_stopping_does_not_restart(inst):
    d = inst.app_dir("job")
    inst.write_unit("job", unit(d, "trap 'exit 3' TERM; echo x >> starts; while :; do sleep 0.05; done", body=(
        "[Restart]\nPolicy=always\nSec=1ms\n")))
    inst.foreground()
    inst.wait_state("job", "running")
    wait_for(lambda: lines(f"{d}/starts"))
    assert post(inst, "job", "stop")["code"] == 0
    time.sleep(0.2)
    assert inst.peek("job")["state"] == "stopped" and len(lines(f"{d}/starts")) == 1


def test_stop_signal(inst):
    d = inst.app_dir("job")
    inst.write_unit("job", unit(d, "trap 'echo int > got; exit 0' INT; trap '' TERM; echo x > ready; while :; do sleep 0.05; done",
                                body="[Stop]\nSignal=INT\n"))
    inst.foreground()
    wait_for(lambda: lines(f"{d}/ready"))
    assert post(inst, "job", "stop")["code"] == 0
    assert lines(f"{d}/got") == ["int"]


def test_kill_sends_a_signal_and_the_policy_decides(inst):
    d = inst.app_dir("job")
    inst.write_unit("job", unit(d, "trap 'echo usr1 >> got' USR1; echo x >> ready; while :; do sleep 0.05; done", body="[Restart]\nSec=1ms\n"))
    inst.foreground()
    wait_for(lambda: lines(f"{d}/ready"))
    pid = inst.peek("job")["pid"]
    assert inst.api("POST", "/v1/apps/job/kill", {"signal": "USR1"})[0] == 200
    wait_for(lambda: lines(f"{d}/got") == ["usr1"])
    assert inst.peek("job")["pid"] == pid
    assert inst.api("POST", "/v1/apps/job/kill", {"signal": "KILL"})[0] == 200
    wait_for(lambda: inst.peek("job").get("pid", pid) != pid and inst.peek("job")["state"] == "running")
    assert inst.peek("job")["last_exit"]["signal"] == "SIGKILL"


# --- what is not started ---

def test_broken_and_not_yet_possible_units_are_failed(inst):
    d = inst.app_dir("x")
    inst.write_unit("typo", f"[App]\nExce=/bin/true\nWorkingDirectory={d}\n", mark=False)
    inst.write_unit("off", unit(d, "sleep 1000", app="Enabled=no"))
    inst.write_unit("nowhere", "[App]\nExec=/usr/bin/no-such-program-here\nWorkingDirectory=%s\n" % d)
    inst.write_unit("good", unit(inst.app_dir("good"), "exec sleep 1000"))
    inst.foreground()
    inst.wait_state("good", "running")
    s = inst.wait_state("typo", "failed")
    assert "typo.app:2" in s["reason"] and "Exec=" in s["reason"] and s["problems"]
    assert "no-such-program-here" in inst.wait_state("nowhere", "failed")["reason"]
    assert inst.peek("off")["state"] == "stopped" and inst.peek("off")["launches"] == 0
    assert post(inst, "off", "start")["code"] == 0
    assert inst.peek("off")["state"] == "running"
    reply = post(inst, "typo", "start")
    assert reply["code"] == 1 and "typo.app:2" in reply["message"]


def test_unknown_app(inst):
    inst.foreground()
    code, reply = inst.api("POST", "/v1/apps/nobody/start", {"wait": True})
    assert reply["code"] == 4 and "nobody" in json.dumps(reply)


# --- without a jail ---

def test_without_a_jail(inst, free_port):
    port = free_port()
    d = inst.server_unit("free", port, body="[Sandbox]\nEnforce=off\n[Stop]\nTimeout=200ms\n")
    inst.user_file(os.path.join(d, "go.sh"), "(setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1000' &)\nexec /usr/bin/python3 appserver.py\n")
    inst.write_unit("free", f"[App]\nExec=/bin/sh go.sh\nWorkingDirectory={d}\n[Network]\nListen={port}\n"
                            "[Sandbox]\nEnforce=off\n[Stop]\nTimeout=200ms\n")
    inst.write_unit("odd", f"[App]\nExec=/bin/sh go.sh\nWorkingDirectory={d}\n[Network]\nListen={free_port()}:80\n"
                           "[Sandbox]\nEnforce=off\n")
    inst.foreground()
    s = inst.wait_state("free", "running")
    assert http_get(port).text.startswith("ok ")
    assert s["isolation"]["survivors_possible"] and s["isolation"]["backend"] == "none"
    assert s["ports"][0]["state"] == "app"
    family = wait_for(lambda: children(s["pid"]) if len(children(s["pid"])) >= 3 else None)
    assert post(inst, "free", "restart")["code"] == 0
    assert http_get(port).text.startswith("ok ")
    assert [p for p in family if proc_start(p) is not None] == []
    assert post(inst, "free", "stop")["code"] == 0
    wait_for(lambda: not left(inst))
    assert refused(port) == "refused"
    assert "Enforce=off" in inst.wait_state("odd", "failed")["reason"]


# --- ports ---

def listener_code(port):
    return (f"import socket,time\ns=socket.socket()\ns.setsockopt(socket.SOL_SOCKET,socket.SO_REUSEADDR,1)\n"
            f"s.bind(('127.0.0.1',{port}))\ns.listen()\nopen('up','w').write('x')\ntime.sleep(1000)\n")


def test_a_stranger_keeps_its_port(inst, free_port):
    port = free_port()
    d = inst.server_unit("web", port)
    elsewhere = inst.app_dir("elsewhere")
    p = inst.as_app_user([PYTHON, "-c", listener_code(port)], cwd=elsewhere)
    wait_for(lambda: os.path.exists(f"{elsewhere}/up"))
    inst.foreground()
    s = inst.wait_state("web", "failed")
    assert f"port {port} is taken by pid {p.pid}" in s["reason"] and elsewhere in s["reason"] and "python3" in s["reason"]
    assert s["ports"][0]["state"] == "taken" and str(p.pid) in s["ports"][0]["holder"]
    assert p.poll() is None
    p.kill()
    p.wait()
    assert post(inst, "web", "start")["code"] == 0
    assert http_get(port).text.startswith("ok ") and d


def test_a_dev_server_in_the_apps_folder_is_a_stranger(inst, free_port):
    port = free_port()
    d = inst.server_unit("web", port)
    p = inst.as_app_user([PYTHON, "-c", listener_code(port)], cwd=d)  # its parent, this test, lives
    wait_for(lambda: os.path.exists(f"{d}/up"))
    inst.foreground()
    s = inst.wait_state("web", "failed")
    assert str(p.pid) in s["reason"] and p.poll() is None


def orphan(inst, port):
    """The unit web, and a process of its folder that has its port and that nobody is in charge of."""
    d = inst.server_unit("web", port)
    inst.user_file(f"{d}/orphan.py", "import os,signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + listener_code(port))
    inst.as_app_user(["/usr/bin/setsid", "-f", PYTHON, "orphan.py"], cwd=d).wait()
    wait_for(lambda: os.path.exists(f"{d}/up"))


def test_an_orphan_of_the_app_is_replaced(inst, free_port):
    port = free_port()
    orphan(inst, port)
    inst.foreground()
    inst.wait_state("web", "running")
    assert http_get(port).text.startswith("ok ")
    assert inst.events("web", "port")


def test_a_restart_while_an_orphan_is_replaced(inst, free_port):
    """What was broken off goes on; it was not the one attempt."""
    port = free_port()
    orphan(inst, port)
    inst.foreground()
    wait_for(lambda: inst.events("web", "port"))
    assert inst.sbxsv("restart", "web").code == 0
    assert http_get(port).text.startswith("ok ") and inst.peek("web")["launches"] >= 1


def test_two_apps_one_port(inst, free_port):
    port = free_port()
    inst.server_unit("one", port)
    inst.server_unit("two", port)
    inst.server_unit("wide", port, network="ListenAddress=0.0.0.0")
    inst.foreground()
    inst.wait_state("one", "running")
    for name in "two", "wide":
        assert inst.wait_state(name, "failed")["reason"] == f"port {port} is already Listen= of app one"


def test_a_unit_is_known_as_soon_as_it_is_written(inst, free_port):
    """A command that names it reads it, without waiting for the silence after a burst of changes."""
    inst.foreground()
    for i in range(5):
        inst.ok("new", f"now{i}", "--", "/bin/sleep", "1000", cwd=inst.app_dir(f"now{i}"))
        assert inst.status(f"now{i}")["name"] == f"now{i}"
        inst.ok("new", f"then{i}", "--", "/bin/sleep", "1000", cwd=inst.app_dir(f"then{i}"))
        inst.ok("start", f"then{i}")
    port = free_port()
    inst.server_unit("web", port)
    inst.ok("start", "web")
    other = free_port()
    inst.server_unit("web", other)
    inst.ok("restart", "web")
    assert http_get(other).text.startswith("ok ")


def test_listen_addresses(inst, free_port):
    port = free_port()
    inst.server_unit("six", port, network="ListenAddress=::1")
    inst.foreground()
    inst.wait_state("six", "running")
    assert http_get(port, host="::1").text.startswith("ok ")
    assert refused(port) == "refused"


# --- trouble of the machine ---

def test_out_of_descriptors_is_a_delay_with_a_reason(inst):
    d = inst.app_dir("job")
    inst.write_unit("job", unit(d, "exec sleep 1000", body="[Restart]\nSec=50ms\nMaxSec=100ms\nLimitBurst=3\n"))
    p = inst.foreground()
    inst.wait_state("job", "running")
    import resource
    soft, hard = resource.prlimit(p.pid, resource.RLIMIT_NOFILE)
    n = len(os.listdir(f"/proc/{p.pid}/fd"))
    assert post(inst, "job", "stop")["code"] == 0
    resource.prlimit(p.pid, resource.RLIMIT_NOFILE, (n - 3, hard))
    post(inst, "job", "start", wait=False)
    # more attempts than the start limit allows launches: being short of something is not the app's fault
    wait_for(lambda: len([e for e in inst.events("job", "state") if e["state"] == "backoff"]) > 4, GENEROUS)
    assert "Too many open files" in json.dumps([e for e in inst.events("job", "state") if e["state"] == "backoff"])
    resource.prlimit(p.pid, resource.RLIMIT_NOFILE, (soft, hard))
    inst.wait_state("job", "running")


def test_a_stall_of_the_supervisor_fails_nobody(inst, free_port):
    port = free_port()
    d = inst.server_unit("web", port)
    inst.user_file(f"{d}/late.sh", "sleep 0.5\necho x >> starts\nexec /usr/bin/python3 appserver.py\n")
    inst.write_unit("web", f"[App]\nExec=/bin/sh late.sh\nWorkingDirectory={d}\n[Network]\nListen={port}\n[Ready]\nTimeout=3s\n")
    p = inst.foreground()
    inst.wait_state("web", "starting")
    os.kill(p.pid, signal.SIGSTOP)
    time.sleep(5)
    os.kill(p.pid, signal.SIGCONT)
    inst.wait_state("web", "running")
    assert len(lines(f"{d}/starts")) == 1


def test_state_directory_that_cannot_be_written(inst):
    if ROOT:
        with open(inst.state, "w"):
            pass
    else:
        os.mkdir(inst.state, 0o500)
    r = subprocess.run([program("sbxsvd"), "--foreground"], env=inst.env, capture_output=True, text=True, timeout=GENEROUS)
    assert r.returncode == 1 and inst.state in r.stderr and len(r.stderr.splitlines()) == 1, r.stderr
    os.chmod(inst.state, 0o700)


@pytest.mark.root
def test_root_never_runs_an_app_as_root(inst):
    d = inst.app_dir("x")
    with open(os.path.join(inst.config, "sbxsv.conf"), "w") as f:
        f.write("[Supervisor]\nUser=sbxsv-no-such-user\n")
    inst.write_unit("default", unit(d, "exec sleep 1000"))
    inst.write_unit("rooty", unit(d, "exec sleep 1000", app="User=root"))
    inst.write_unit("fine", unit(d, "exec sleep 1000", app=f"User={inst.user.pw_name}"))
    inst.foreground()
    assert "useradd" in inst.wait_state("default", "failed")["reason"]
    s = inst.wait_state("rooty", "failed")
    assert "root" in s["reason"]
    pid = inst.wait_state("fine", "running")["pid"]
    for p in children(pid) + [pid]:
        assert os.stat(f"/proc/{p}").st_uid in (inst.user.pw_uid, 0)  # 0: not dumpable
        with open(f"/proc/{p}/status") as f:
            uids = [line for line in f if line.startswith("Uid:")][0].split()[1:]
        assert set(uids) == {str(inst.user.pw_uid)}


# --- the figures that must stay flat ---

def test_restarts_leave_nothing_behind(inst, free_port):
    port = free_port()
    inst.server_unit("web", port, network="Loopback=5432\nAllow=example.com", body="[Stop]\nTimeout=50ms\n")
    inst.write_unit("job", unit(inst.app_dir("job"), "exec sleep 1000"))
    p = inst.foreground()

    def figures():
        kids = [c for c in children(p.pid)]
        with open(f"/proc/{p.pid}/status") as f:
            rss = int([line for line in f if line.startswith("VmRSS")][0].split()[1])
        proxy = len(os.listdir(f"/proc/{inst.proxy_pid()}/fd")) if ROOT else 0  # not dumpable: closed to its user
        return len(os.listdir(f"/proc/{p.pid}/fd")), proxy, len(kids), rss

    def one_round(n):
        for _ in range(n):
            assert post(inst, "job", "restart")["code"] == 0
            assert post(inst, "web", "restart")["code"] == 0
    inst.wait_state("web", "running")
    inst.wait_state("job", "running")
    one_round(20)
    before = figures()
    one_round(100)
    after = wait_for(lambda: (lambda f: f if f[:3] == before[:3] else None)(figures()), what=f"{before} again, not {figures()}")
    with open(program("sbxsvd"), "rb") as f:
        sanitized = b"__asan_init" in f.read()  # it keeps freed memory; clang links it statically
    assert sanitized or after[3] < before[3] + 1024, f"memory grew from {before[3]} to {after[3]} kB over 200 restarts"
