"""[Health] Http= and Tcp=: an app that stops answering is unhealthy, and is replaced after Retries= failures."""
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


def test_exec_is_still_said_to_be_without_effect(inst, free_port):
    serve(inst, "web", free_port(), "[Health]\nExec=/bin/true\n")
    out = inst.ok("check", "web")
    assert "[Health] Exec=" in out and "not in force yet" in out
