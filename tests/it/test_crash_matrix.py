"""Each state of an app x each thing that may happen to it, with the outcome that doc/design.md section 5 names.

An app is brought into a state, the thing happens, and what follows is compared with MATRIX; then what the API says is compared with
what the kernel says (lib/kernelview.py), and what was started is counted: never lost, never doubled. test_chaos.py does the same at random.
"""
import os
import signal

import pytest

from harness import PYTHON, WaitTimeout, describe, http_get, kill_pid, proc_start, wait_for
from kernelview import View, agree, living
from test_sup import GENEROUS, lines, post, refused

# What it does is said by files; with an argument it is the step of [Prepare]. Beside the server lives a child in a session of its own that does not obey.
APP = """
import http.server, os, signal, sys, time
step = len(sys.argv) > 1
with open("steps" if step else "starts", "a") as f: f.write(f"{os.getpid()}\\n")
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(100000)
if os.path.exists("stubborn"): signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.path.exists("crash"): sys.exit(3)
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        sick = self.path == "/health" and os.path.exists("sick")
        self.send_response(503 if sick else 200)
        self.send_header("Content-Length", "3")
        self._headers_buffer.append(b"\\r\\nok\\n")  # one write: a check has seen enough with the first bytes
        self.flush_headers()
    def log_message(self, *a): pass
open("up", "w").close()
while os.path.exists("slow"): time.sleep(0.02)
if step: sys.exit(0)
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), H).serve_forever()
"""
UNIT = """[App]
Exec={python} -S -E app.py
WorkingDirectory={dir}
{more}
[Network]
Listen={port}
[Health]
Http=/health
Interval=100ms
Retries=1000
[Ready]
Timeout=10min
[Stop]
Timeout=10min
[Restart]
Sec={sec}
MaxSec=1h
Policy={policy}
{section}
"""
PREPARE = f"[Prepare]\nExec={PYTHON} -S -E app.py step\nRetries=100"

THINGS = ("kill app", "kill init", "kill proxy", "kill sbxsvd", "stop", "start", "restart", "reload", "upgrade", "remove", "break")
# same: that state and that process go on     none: there is nothing to kill
# again: a new process, then that state again  start: a new process that runs     back: that state, of the new supervisor
# stopped, failed, gone: that (nobody may wait for an app that could not be started)
# In `stopping` the app does not obey; once the thing has happened it is killed, so that what was decided can be seen.
MATRIX = {
    #            kill app  kill init  kill proxy  kill sbxsvd  stop     start  restart  reload  upgrade  remove  break
    "stopped":   "none     none       same        start        same     start  start    same    same     gone    same",
    "idle":      "none     none       same        back         stopped  start  start    same    same     gone    failed",
    "waiting":   "none     none       same        back         stopped  same   same     same    same     gone    same",
    "preparing": "again    again      same        again        stopped  same   again    same     same     gone    same",
    "starting":  "again    again      same        again        stopped  same   again    same    same     gone    same",
    "running":   "again    again      same        again        stopped  same   again    same    same     gone    same",
    "unhealthy": "again    again      same        again        stopped  same   again    same    same     gone    same",
    "stopping":  "stopped  stopped    same        start        stopped  start  start    same    same     gone    same",
    "backoff":   "none     none       same        again        stopped  again  again    same    same     gone    same",
    "failed":    "none     none       same        again        stopped  again  again    same    same     gone    same",
}
GATES = {"stopped": "reset", "starting": "hold", "running": "serve", "unhealthy": "serve", "backoff": "hold", "failed": "reset"}
CELLS = [(s, t, o) for s, row in MATRIX.items() for t, o in zip(THINGS, row.split(), strict=True)]


class Cell:
    def __init__(self, inst, port, state):
        self.inst, self.port, self.prepares = inst, port, state == "preparing"
        self.state = "starting" if self.prepares else state
        self.dir = inst.app_dir("app", {"app.py": APP})
        for flag in {"starting": ["slow"], "preparing": ["slow"], "stopping": ["stubborn"], "backoff": ["crash"], "failed": ["crash"]}.get(state, []):
            inst.user_file(f"{self.dir}/{flag}")
        more = {"idle": "Mode=session", "waiting": "Requires=base"}.get(state, "")
        inst.write_unit("app", UNIT.format(python=PYTHON, dir=self.dir, port=port, more=more, sec="1h" if state == "backoff" else "5ms",
                                           policy="no" if state == "failed" else "on-failure", section=PREPARE if self.prepares else ""))
        if state == "waiting":
            inst.write_unit("base", f"[App]\nExec=/bin/sleep 1000\nWorkingDirectory={inst.app_dir('base')}\n[Ready]\nType=fd\nTimeout=10min\n")
        self.daemon = inst.foreground()
        self.bring()
        self.was = inst.peek("app")

    def bring(self):
        """Into the state, with all of its processes."""
        i = self.inst
        if self.state in ("stopped", "running", "unhealthy", "stopping"):
            i.wait_state("app", "running")
        if self.state == "unhealthy":
            i.user_file(f"{self.dir}/sick")
        if self.state in ("stopped", "stopping"):
            post(i, "app", "stop", wait=self.state == "stopped")
        i.wait_state("app", self.state)
        if self.state == "starting":
            wait_for(lambda: os.path.exists(f"{self.dir}/up") and i.peek("app")["isolation"].get("pid_ns"), GENEROUS, "its program")

    def living(self):
        return [p for p in living(self.inst) if p.app == "app"]

    # --- what happens ---

    def kill_app(self):
        """The server; not its child, which is in a session of its own, and not the init."""
        init = self.inst.peek("app").get("pid")
        for p in self.living():
            if p.parent == init:
                kill_pid(p.pid)

    def kill_init(self):
        pid = self.inst.peek("app").get("pid")
        if pid:
            kill_pid(pid)

    def kill_proxy(self):
        old = wait_for(self.inst.proxy_pid, GENEROUS)
        kill_pid(old)
        wait_for(lambda: self.inst.proxy_pid() not in (None, old), GENEROUS, "a new proxy")

    def kill_sbxsvd(self):
        self.daemon.kill()
        self.daemon.wait()
        wait_for(lambda: not living(self.inst), GENEROUS, "the end of all that it started")
        self.daemon = self.inst.foreground()

    def command(self, verb):
        post(self.inst, "app", verb, wait=verb == "stop" and self.state != "stopping")

    def reload(self):
        code, r = self.inst.api("POST", "/v1/reload", timeout=GENEROUS)
        assert code == 200 and r["unchanged"] == 1 + (self.state == "waiting") and not r["problems"], r

    def remove(self):
        self.inst.remove_unit("app")
        assert self.inst.api("POST", "/v1/reload", timeout=GENEROUS)[0] == 200

    def break_it(self):
        with open(self.inst.unit_path("app")) as f:
            self.inst.write_unit("app", f.read() + "Nonsense=yes\n")
        assert self.inst.api("POST", "/v1/reload", timeout=GENEROUS)[0] == 200

    def upgrade(self):
        before = self.inst.daemon_pid()
        self.inst.ok("upgrade")
        assert self.inst.daemon_pid() == before and self.inst.api("GET", "/v1/version")[1]["upgrades"] == 1

    def happen(self, thing):
        if thing in ("stop", "start", "restart"):
            self.command(thing)
        else:
            {"kill app": self.kill_app, "kill init": self.kill_init, "kill proxy": self.kill_proxy, "kill sbxsvd": self.kill_sbxsvd,
             "reload": self.reload, "upgrade": self.upgrade, "remove": self.remove, "break": self.break_it}[thing]()

    # --- what follows ---

    def steps(self):
        """How often [Prepare] began."""
        return len(lines(f"{self.dir}/steps"))

    def launches(self):
        return (self.inst.peek("app") or {}).get("launches")

    def same(self):
        s = self.inst.peek("app")
        assert (s["state"], s.get("pid"), s["launches"]) == (self.state, self.was.get("pid"), self.was["launches"]), s
        if "next_start_ms" in self.was:
            assert s["next_start_ms"] <= self.was["next_start_ms"]

    def none(self):
        assert not self.living()
        self.same()

    def again(self, state=None, more=1):
        old = self.was.get("pid")
        more = 0 if self.prepares else more
        wait_for(lambda: self.launches() == more and self.steps() == 2 * self.prepares and self.inst.peek("app")["state"] == (state or self.state), GENEROUS,
                 f"{self.state} again; it is {self.inst.peek('app')}")
        assert old is None or proc_start(old) is None or self.inst.peek("app").get("pid") != old

    def back(self):
        self.inst.wait_state("app", self.state)
        assert self.launches() == 0 and not self.living()

    def stopped(self):
        self.inst.wait_state("app", "stopped")
        assert self.launches() == self.was["launches"] and not self.living()
        assert refused(self.port) == "reset"

    def failed(self):
        assert self.inst.wait_state("app", "failed")["launches"] == self.was["launches"]
        assert refused(self.port) == "reset"

    def gone(self):
        wait_for(lambda: self.inst.peek("app") is None, GENEROUS, "the app forgotten")
        assert not self.living()
        assert refused(self.port) == "refused"

    def follow(self, thing, outcome):
        launched = 1 if thing == "kill sbxsvd" else self.was["launches"] + 1
        if self.state == "stopping" and thing not in ("kill app", "kill init", "kill sbxsvd"):
            if outcome == "same":
                self.same()
            else:
                assert self.inst.peek("app")["state"] == "stopping"
            self.kill_app()
            if outcome == "same":
                outcome = "stopped"
        {"same": self.same, "none": self.none, "back": self.back, "stopped": self.stopped, "failed": self.failed, "gone": self.gone, "again": lambda: self.again(None, launched),
         "start": lambda: self.again("running", launched)}[outcome]()

    def count(self, thing, outcome):
        """As many starts as launches, and of what runs each process once."""
        s = self.inst.peek("app")
        assert self.steps() == self.prepares * (2 if outcome == "again" else 1)
        starts = len(lines(f"{self.dir}/starts"))
        known = (s or self.was)["launches"] + (self.was["launches"] if thing == "kill sbxsvd" else 0)
        assert starts == known, f"started {starts} times, known of {known}"
        assert bool((s or {}).get("preparing")) == (self.prepares and s is not None and s["state"] == "starting")
        runs = s is not None and s["state"] in ("starting", "running", "unhealthy", "stopping")
        mine = [p for p in self.living() if not runs or p.pid != s.get("pid")]  # its init is closed to its own user
        assert len(mine) == (2 if runs else 0), [describe(p.pid) for p in mine]

    def reachable(self):
        s = self.inst.peek("app")
        if s and s["state"] == "idle" and not s["problems"]:
            assert http_get(self.port, timeout=GENEROUS).text == "ok\n"  # by starting it
            assert self.inst.wait_state("app", "running")["launches"] == self.was["launches"] + 1
        if s is None or s["state"] not in GATES:
            return
        assert s["gate"] == GATES[s["state"]], s
        if s["gate"] == "serve":
            assert http_get(self.port, timeout=GENEROUS).text == "ok\n"
        elif s["gate"] == "reset":
            assert refused(self.port) == "reset"


@pytest.mark.parametrize("state,thing,outcome", CELLS, ids=[f"{s}-{t}".replace(" ", "_") for s, t, _ in CELLS])
def test_cell(inst, free_port, state, thing, outcome):
    cell = Cell(inst, free_port(), state)
    cell.happen(thing)
    cell.follow(thing, outcome)
    try:  # a program writes its line when it begins: it may not have begun
        wait_for(lambda: not raises(cell.count, thing, outcome), GENEROUS)
    except WaitTimeout:
        cell.count(thing, outcome)
    cell.reachable()
    agree(inst, cell.daemon.pid)
    if thing == "break":
        broken(cell)


def raises(fn, *args):
    try:
        fn(*args)
        return False
    except AssertionError:
        return True


def broken(cell):
    """What is broken is shown, and is not started any more; corrected, it is as if nothing had been."""
    i = cell.inst
    s = i.peek("app")
    assert s["problems"] and "Nonsense" in s["problems"][0]
    if not s.get("pid"):
        reply = post(i, "app", "start")
        assert reply["code"] == 1 and "Nonsense" in reply["message"], reply
        assert i.peek("app")["state"] == "failed" and i.peek("app")["launches"] == cell.was["launches"]
    else:
        pid = s["pid"]
        kill_pid(pid, signal.SIGKILL)
        s = i.wait_state("app", "failed")
        assert "Nonsense" in s["reason"] and not living(i)


def test_the_checker_sees_what_should_not_be(inst, free_port):
    cell = Cell(inst, free_port(), "running")
    assert View(inst, cell.daemon.pid).agreed
    stray = inst.spawn(["/bin/sleep", "1000"], env=dict(inst.env, SBXSV_APP="app"))
    wait_for(lambda: stray.pid in [p.pid for p in living(inst)])
    view = View(inst, cell.daemon.pid)
    assert not view.agreed and f"processes that no app has: ['{stray.pid} (" in view.text
    assert "jails with a namespace in common" in view.text
    stray.kill()
    stray.wait()
    agree(inst, cell.daemon.pid)
