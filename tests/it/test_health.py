"""[Health]: an app that stops answering is unhealthy, and is replaced after Retries= failures."""
import json
import os
import signal
import time

import pytest

from harness import PYTHON, http_get, wait_for

GENEROUS = 60  # guards against hanging, not a limit of the product

# Answers /health with what the file `answer` says; `hang` in it: not at all. Counts what it is asked.
SERVER = """
import http.server, os, socketserver, time
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        try: word = open("answer").read().strip()
        except FileNotFoundError: word = "200"
        with open("asked", "a") as f: f.write(self.path + "\\n")
        if word == "hang": time.sleep(1000)
        self.send_response(int(word) if self.path == "/health" else 200)
        self.send_header("Content-Length", "3"); self.end_headers(); self.wfile.write(b"ok\\n")
    def log_message(self, *a): pass
class S(socketserver.ThreadingMixIn, http.server.HTTPServer): daemon_threads = True
open("starts", "a").write("x\\n")
if os.path.exists("ipv6"):
    import socket
    S.address_family = socket.AF_INET6
S(("::1" if os.path.exists("ipv6") else "127.0.0.1", int(os.environ["PORT"])), H).serve_forever()
"""
HEALTH = "[Health]\nHttp=/health\nInterval=200ms\nTimeout=2s\nRetries=3\n"


def serve(inst, name, port, health=HEALTH, more="", app=SERVER):
    d = inst.app_dir(name, {"app.py": app})
    inst.write_unit(name, f"[App]\nExec={PYTHON} app.py\nWorkingDirectory={d}\n{health}{more}[Network]\nListen={port}\n")
    return d


def say(inst, d, word):
    """Replaces the file in one step: a check never finds half a word."""
    inst.user_file(os.path.join(d, "answer.new"), word)
    os.rename(os.path.join(d, "answer.new"), os.path.join(d, "answer"))


def lines(d, name):
    try:
        with open(os.path.join(d, name)) as f:
            return f.read().splitlines()
    except FileNotFoundError:
        return []


def checks(inst, name, n):
    """Waits for n more checks."""
    first = inst.peek(name)["health"]["checks"]
    wait_for(lambda: inst.peek(name).get("health", {}).get("checks", 0) >= first + n, GENEROUS)
    return inst.peek(name)


def test_a_healthy_app_is_asked_and_left_alone(inst, free_port):
    port = free_port()
    d = serve(inst, "web", port)
    inst.foreground()
    inst.wait_state("web", "running")
    s = checks(inst, "web", 5)
    assert s["state"] == "running" and s["launches"] == 1
    assert s["health"]["healthy"] and s["health"]["failures"] == 0
    assert s["health"]["last"].startswith("GET /health on ") and s["health"]["last"].endswith(" answered 200")
    assert set(lines(d, "asked")) == {"/health"}
    assert "answered 200 (" in inst.sbxsv("status", "web")[1]
    assert not inst.events("web", "health")
    # a check is no use: nothing came through the port that is held on the host
    assert s["counters"]["in_total"] == 0 and s["counters"]["in_open"] == 0


SLOW_BODY = """
import os, socket, time
s = socket.create_server(("127.0.0.1", int(os.environ["PORT"])))
while True:
    c = s.accept()[0]
    try:
        c.recv(65536)
        c.sendall(b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n\\r\\n")
        for _ in range(4):
            time.sleep(0.005)
            c.sendall(b"x" * 20000)
        c.shutdown(socket.SHUT_WR)
        end = c.recv(1)
        word = "whole" if end == b"" else "more"
    except OSError as e:
        word = type(e).__name__
    with open("ends", "a") as f: f.write(word + "\\n")
    c.close()
"""


def test_a_check_reads_the_whole_answer(inst, free_port):
    """A server that is cut off in the middle of an answer has a traceback in its log for each check."""
    d = serve(inst, "web", free_port(), app=SLOW_BODY)
    inst.foreground()
    inst.wait_state("web", "running")
    assert checks(inst, "web", 5)["health"]["healthy"]
    wait_for(lambda: len(lines(d, "ends")) >= 5, what="the ends of five answers")  # the app writes after it has answered
    assert "whole" in lines(d, "ends"), lines(d, "ends")  # not each: 250 ms may be little for a busy machine


def test_a_check_of_a_stream_does_not_wait_for_its_end(inst, free_port):
    d = serve(inst, "web", free_port(), app=SLOW_BODY.replace("range(4)", "range(10**9)"))
    inst.foreground()
    inst.wait_state("web", "running")
    s = checks(inst, "web", 3)
    assert s["health"]["healthy"] and s["launches"] == 1
    assert set(lines(d, "ends")) <= {"BrokenPipeError", "ConnectionResetError"}


def test_unhealthy_then_well_again(inst, free_port):
    port = free_port()
    d = serve(inst, "web", port, HEALTH.replace("Retries=3", "Retries=1000"))
    inst.foreground()
    first = inst.wait_state("web", "running")["pid"]
    say(inst, d, "503")
    s = inst.wait_state("web", "unhealthy")
    assert "answered 503" in s["reason"] and not s["health"]["healthy"]
    assert http_get(port).text == "ok\n"  # it is still served
    row = [r for r in inst.sbxsv("status")[1].splitlines() if r.startswith("web")][0]
    assert "unhealthy" in row
    checks(inst, "web", 2)
    say(inst, d, "404")  # any answer below 500 is a sign of life
    s = inst.wait_state("web", "running")
    assert s["pid"] == first and s["launches"] == 1 and "reason" not in s
    states = [e["state"] for e in inst.events("web", "state")]
    assert states == ["starting", "running", "unhealthy", "running"]
    assert [(e["healthy"], e["launch"]) for e in inst.events("web", "health")] == [(False, 1), (True, 1)]


def test_replaced_after_so_many_failures(inst, free_port):
    port = free_port()
    d = serve(inst, "web", port)
    inst.foreground()
    first = inst.wait_state("web", "running")["pid"]
    say(inst, d, "500")
    wait_for(lambda: len(lines(d, "starts")) == 2, GENEROUS)
    say(inst, d, "200")
    wait_for(lambda: inst.peek("web")["state"] == "running" and inst.peek("web")["launches"] == 2, GENEROUS)
    assert inst.peek("web")["pid"] != first
    stop = [e for e in inst.events("web", "state") if e["state"] == "stopping"][0]
    assert stop["from"] == "unhealthy" and stop["reason"].startswith("3 health checks in a row failed: GET /health on ")
    failures = [e["failures"] for e in inst.events("web", "health")]
    assert failures[:2] == [1, 3], failures
    assert http_get(port).text == "ok\n"
    s = checks(inst, "web", 3)
    assert s["health"]["healthy"] and s["launches"] == 2


def test_one_that_hangs_is_replaced(inst, free_port):
    """No answer at all, and TERM is ignored too: Timeout= of the check, then SIGKILL after Stop Timeout=."""
    port = free_port()
    d = serve(inst, "web", port, "[Health]\nHttp=/health\nInterval=100ms\nTimeout=300ms\nRetries=2\n[Stop]\nTimeout=200ms\n",
              app="import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVER)
    inst.foreground()
    inst.wait_state("web", "running")
    say(inst, d, "hang")
    wait_for(lambda: len(lines(d, "starts")) >= 2, GENEROUS)
    say(inst, d, "200")
    wait_for(lambda: inst.peek("web")["state"] == "running" and inst.peek("web")["health"]["healthy"], GENEROUS)
    stop = [e for e in inst.events("web", "state") if e["state"] == "stopping"][0]
    assert "no answer for 300 ms" in stop["reason"]


def test_without_a_restart_policy_it_stays(inst, free_port):
    port = free_port()
    d = serve(inst, "web", port, more="[Restart]\nPolicy=no\n")
    inst.foreground()
    first = inst.wait_state("web", "running")["pid"]
    say(inst, d, "500")
    wait_for(lambda: inst.peek("web").get("health", {}).get("failures", 0) > 6, GENEROUS)
    s = inst.peek("web")
    assert s["state"] == "unhealthy" and s["pid"] == first and "Policy= is no" in s["hint"]
    assert [e["failures"] for e in inst.events("web", "health")] == [1, 3]  # counted, not repeated


def test_the_start_limit_ends_it(inst, free_port):
    port = free_port()
    d = serve(inst, "web", port, "[Health]\nHttp=/health\nInterval=100ms\nRetries=1\n", "[Restart]\nSec=10ms\nLimitBurst=3\n")
    inst.user_file(os.path.join(d, "answer"), "500")
    inst.foreground()
    s = inst.wait_state("web", "failed")
    assert s["launches"] == 3 and "1 health check in a row failed" in s["reason"] and "LimitBurst=3" in s["reason"]


TCP = """
import os, socket, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(os.environ["PORT"]))); s.listen()
first = not os.path.exists("again")
open("again", "w").close()
open("up", "w").close()
while first and not os.path.exists("close"): time.sleep(0.02)
if first: s.close()
time.sleep(1000)
"""


@pytest.mark.parametrize("enforce", ["required", "off"])
def test_tcp(inst, free_port, enforce):
    port = free_port()
    d = serve(inst, "web", port, "[Health]\nTcp=yes\nInterval=100ms\nRetries=2\n", f"[Sandbox]\nEnforce={enforce}\n", app=TCP)
    inst.foreground()
    inst.wait_state("web", "running")
    s = checks(inst, "web", 3)
    assert s["state"] == "running" and s["health"]["last"] == f"port {port} accepts"
    inst.user_file(os.path.join(d, "close"), "")
    wait_for(lambda: inst.peek("web")["launches"] == 2 and inst.peek("web")["state"] == "running", GENEROUS)
    stop = [e for e in inst.events("web", "state") if e["state"] == "stopping"][0]
    assert "nothing answers on" in stop["reason"] or "does not accept" in stop["reason"], stop["reason"]
    checks(inst, "web", 2)
    assert inst.peek("web")["launches"] == 2


def test_an_app_on_ipv6_alone(inst, free_port):
    port = free_port()
    d = serve(inst, "web", port)
    inst.user_file(os.path.join(d, "ipv6"), "")
    inst.foreground()
    inst.wait_state("web", "running")
    s = checks(inst, "web", 3)
    assert s["state"] == "running" and s["health"]["healthy"], s["health"]


def test_a_stopped_supervisor_fails_no_check(inst, free_port):
    """SIGSTOP for much longer than Timeout= and Interval=, with a check in the middle of its way."""
    port = free_port()
    serve(inst, "web", port, "[Health]\nHttp=/health\nInterval=100ms\nTimeout=1s\nRetries=1\n")
    inst.foreground()
    first = inst.wait_state("web", "running")["pid"]
    sup = inst.procs[-1]
    for pause in (3, 4):
        checks(inst, "web", 1)
        os.kill(sup.pid, signal.SIGSTOP)
        time.sleep(pause)
        os.kill(sup.pid, signal.SIGCONT)
    s = checks(inst, "web", 3)
    assert s["pid"] == first and s["state"] == "running" and s["launches"] == 1
    assert not inst.events("web", "health")


def test_the_checks_follow_a_reload_and_the_process_stays(inst, free_port):
    port = free_port()
    d = serve(inst, "web", port, health="")
    inst.foreground()
    first = inst.wait_state("web", "running")["pid"]
    assert "health" not in inst.peek("web")
    serve(inst, "web", port)
    inst.ok("reload")
    s = checks(inst, "web", 2)
    assert s["pid"] == first and s["health"]["healthy"] and s["state"] == "running"
    say(inst, d, "500")
    serve(inst, "web", port, HEALTH.replace("Retries=3", "Retries=1000"))
    inst.ok("reload")
    inst.wait_state("web", "unhealthy")
    serve(inst, "web", port, health="")
    inst.ok("reload")
    s = inst.wait_state("web", "running")  # nothing is asked any more, so nothing is wrong that we know of
    assert s["pid"] == first and "health" not in s and s["launches"] == 1


def test_stop_and_restart_while_unhealthy(inst, free_port):
    port = free_port()
    d = serve(inst, "web", port, HEALTH.replace("Retries=3", "Retries=1000"))
    inst.foreground()
    inst.wait_state("web", "running")
    say(inst, d, "500")
    inst.wait_state("web", "unhealthy")
    inst.ok("restart", "web")
    wait_for(lambda: inst.peek("web")["launches"] == 2, GENEROUS)
    inst.wait_state("web", "unhealthy")
    inst.ok("stop", "web")
    s = inst.peek("web")
    assert s["state"] == "stopped" and "health" not in s and "reason" not in s
    time.sleep(0.5)
    assert inst.peek("web")["state"] == "stopped"
    inst.ok("start", "web")
    say(inst, d, "200")
    inst.wait_state("web", "running")


# --- Exec= ---

IDLE = "import os, time\nopen('starts', 'a').write('x\\n')\ntime.sleep(1000)\n"
EXEC = "[Health]\nExec=/bin/sh check.sh\nInterval=200ms\nTimeout=5s\nRetries=3\n"


def idle(inst, name, script, health=EXEC, more="", app=IDLE):
    d = inst.app_dir(name, {"app.py": app, "check.sh": script})
    inst.write_unit(name, f"[App]\nExec={PYTHON} app.py\nWorkingDirectory={d}\n{health}{more}")
    return d


def test_an_order_is_seen_among_signals_of_the_app(inst):
    """init is told of an order by SIGIO, and of that there is never more than one pending: one that the app sent may be it."""
    d = idle(inst, "svc", "echo checked >> asked\n", health="[Health]\nExec=/bin/sh check.sh\nInterval=200ms\nTimeout=1s\nRetries=100\n",
             app="import signal\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\n" + IDLE)
    inst.foreground()
    pid = inst.wait_state("svc", "running")["pid"]
    checks(inst, "svc", 2)
    os.kill(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGIO)
    wait_for(lambda: inst.peek("svc")["health"]["failures"], GENEROUS)  # it was asked for, and did not come
    seen = len(lines(d, "asked"))
    os.kill(pid, signal.SIGCONT)
    wait_for(lambda: len(lines(d, "asked")) > seen + 2, GENEROUS)
    inst.wait_state("svc", "running")
    assert inst.peek("svc")["launches"] == 1


@pytest.mark.parametrize("enforce", ["required", "off"])
def test_exec_well_sick_and_replaced(inst, enforce):
    d = idle(inst, "svc", "echo checked >> asked\nexec test ! -e sick\n", more=f"[Sandbox]\nEnforce={enforce}\n")
    inst.foreground()
    first = inst.wait_state("svc", "running")["pid"]
    s = checks(inst, "svc", 3)
    assert s["state"] == "running" and s["health"]["last"] == "/bin/sh exited with status 0"
    assert len(lines(d, "asked")) >= 3
    inst.user_file(os.path.join(d, "sick"), "")
    wait_for(lambda: len(lines(d, "starts")) == 2, GENEROUS)
    os.unlink(os.path.join(d, "sick"))
    wait_for(lambda: inst.peek("svc")["state"] == "running" and inst.peek("svc")["launches"] == 2, GENEROUS)
    assert inst.peek("svc")["pid"] != first
    stop = [e for e in inst.events("svc", "state") if e["state"] == "stopping"][0]
    assert stop["reason"] == "3 health checks in a row failed: /bin/sh exited with status 1"
    assert checks(inst, "svc", 2)["health"]["healthy"]


def test_exec_has_what_the_app_has_and_nothing_more(inst, tmp_path):
    """Every mark of confinement that the kernel shows is compared between the app and the check, and a few are tried."""
    facts = """
import json, os, resource, socket, sys
out = {}
for l in open("/proc/self/status"):
    k, v = l.rstrip("\\n").split(":", 1)
    if k in ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "SigBlk"):
        out[k] = v.split()
for n in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
    out[n] = os.readlink("/proc/self/ns/" + n)
for n in dir(resource):
    if n.startswith("RLIMIT_"): out[n] = resource.getrlimit(getattr(resource, n))
out["env"] = sorted(os.environ)
out["cwd"] = os.getcwd()
def tried(fn):
    try: fn(); return "done"
    except OSError as e: return e.errno
out["write"] = tried(lambda: open(os.path.expanduser("~/new"), "w"))
out["etc"] = tried(lambda: open("/etc/new", "w"))
out["ssh"] = tried(lambda: os.listdir(os.path.expanduser("~/.ssh")))
out["packet"] = tried(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
out["mount"] = tried(lambda: os.chroot("/tmp"))
out["host"] = os.path.exists(sys.argv[2])
json.dump(out, open(sys.argv[1] + ".new", "w"), sort_keys=True)
os.rename(sys.argv[1] + ".new", sys.argv[1])
"""
    mark = tmp_path / "of-the-host"
    mark.write_text("x")
    d = inst.app_dir("svc", {"facts.py": facts, "app.py": f"import os, time\nos.system('{PYTHON} facts.py app {mark}')\ntime.sleep(1000)\n"})
    inst.write_unit("svc", f"[App]\nExec={PYTHON} app.py\nWorkingDirectory={d}\n[Limits]\nOpenFiles=77\nTasks=50\n"
                           f"[Health]\nExec={PYTHON} facts.py check {mark}\nInterval=200ms\nTimeout=20s\n")
    inst.foreground()
    inst.wait_state("svc", "running")
    wait_for(lambda: os.path.exists(f"{d}/app") and os.path.exists(f"{d}/check"), GENEROUS)
    app, check = json.load(open(f"{d}/app")), json.load(open(f"{d}/check"))
    for e in (app, check):
        e["env"] = [k for k in e["env"] if k not in ("OLDPWD", "PWD", "SHLVL", "_")]  # of the shell of os.system()
    assert app == check
    assert check["CapEff"] == ["0000000000000000"] and check["NoNewPrivs"] == ["1"] and check["Seccomp"] == ["2"]
    assert check["write"] != "done" and check["etc"] != "done" and check["packet"] != "done" and check["mount"] != "done"
    assert not check["host"] and check["RLIMIT_NOFILE"] == [77, 77]


def test_exec_that_hangs_is_killed_with_all_of_its_group(inst):
    d = idle(inst, "svc", "sleep 1000 & sleep 1000\n", "[Health]\nExec=/bin/sh check.sh\nInterval=100ms\nTimeout=400ms\nRetries=1000\n")
    inst.foreground()
    inst.wait_state("svc", "unhealthy")
    s = checks(inst, "svc", 3)
    assert "took longer than 400 ms and was killed" in s["health"]["last"] and s["launches"] == 1
    assert s["processes"] <= 5, s["processes"]  # the init, the app, and those of one check
    inst.ok("stop", "svc")
    assert not [p for p in inst.alive() if p not in {q.pid for q in inst.procs}]
    assert len(lines(d, "starts")) == 1


def test_exec_by_name_and_one_that_is_not_there(inst):
    d = inst.app_dir("named", {"app.py": IDLE})
    inst.write_unit("named", f"[App]\nExec={PYTHON} app.py\nWorkingDirectory={d}\n[Health]\nExec=true\nInterval=100ms\n")
    d = inst.app_dir("absent", {"app.py": IDLE})
    inst.write_unit("absent", f"[App]\nExec={PYTHON} app.py\nWorkingDirectory={d}\n"
                              "[Health]\nExec=no-such-program-here\nInterval=100ms\nRetries=1000\n")
    inst.foreground()
    inst.wait_state("named", "running")
    assert checks(inst, "named", 3)["health"]["last"] == "true exited with status 0"
    s = inst.wait_state("absent", "unhealthy")
    assert "exited with status 127 (no such program" in s["reason"]
    assert inst.peek("named")["state"] == "running"


def test_exec_output_is_in_the_log_and_an_app_that_ends_ends_its_check(inst):
    d = idle(inst, "svc", "echo the check speaks\nsleep 1000\n", "[Health]\nExec=/bin/sh check.sh\nInterval=100ms\nTimeout=60s\n",
             app="import os, time\nopen('starts', 'a').write('x\\n')\nwhile not os.path.exists('die'): time.sleep(0.05)\nos._exit(3)\n")
    inst.foreground()
    inst.wait_state("svc", "running")
    wait_for(lambda: "the check speaks" in inst.log("svc"), GENEROUS)
    inst.user_file(os.path.join(d, "die"), "")
    wait_for(lambda: len(lines(d, "starts")) >= 2, GENEROUS)
    e = inst.events("svc", "exit")[0]
    assert e["code"] == 3 and not inst.events("svc", "health")


def test_exec_comes_with_a_reload(inst):
    d = idle(inst, "svc", "exit 0\n", health="")
    inst.foreground()
    first = inst.wait_state("svc", "running")["pid"]
    idle(inst, "svc", "exit 0\n")
    inst.ok("reload")
    s = checks(inst, "svc", 2)
    assert s["pid"] == first and s["health"]["healthy"]
    idle(inst, "svc", "exit 0\n", health="")
    inst.ok("reload")
    assert inst.peek("svc")["pid"] == first and "health" not in inst.peek("svc")
    assert len(lines(d, "starts")) == 1


def test_exec_together_with_notify_and_a_stopped_supervisor(inst):
    idle(inst, "svc", "exec systemd-notify --status=checked\n",
         health="[Ready]\nType=notify\n" + EXEC.replace("Timeout=5s\nRetries=3", "Timeout=2s\nRetries=1"),
         app="import os, socket, time\nsocket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'READY=1', os.environ['NOTIFY_SOCKET'])\ntime.sleep(1000)\n")
    inst.foreground()
    first = inst.wait_state("svc", "running")["pid"]
    checks(inst, "svc", 2)
    os.kill(inst.procs[-1].pid, signal.SIGSTOP)
    time.sleep(5)
    os.kill(inst.procs[-1].pid, signal.SIGCONT)
    s = checks(inst, "svc", 2)
    assert s["pid"] == first and s["state"] == "running" and s["notify"]["status"] == "checked"
    assert s["notify"]["ignored"] == 0
