"""After= and Requires=: who waits for whom, who starts and stops with whom, and what is said of it."""
import os
import random
import signal
import socket
import threading

import pytest

from harness import http_get, kill_pid, wait_for

GENEROUS = 60  # guards against hanging, not a limit of the product

# ready when a file says so; what it is told to end by is written down
GATED = ("trap 'echo end >> said; while [ -e hold ]; do sleep 0.02; done; exit 0' TERM; "
         "while [ ! -e go ]; do sleep 0.02; done; echo >&3; while :; do sleep 0.02; done")
BODY = "[Ready]\nType=fd\n[Stop]\nTimeout=20s\n[Restart]\nSec=20ms\nMaxSec=50ms\nLimitBurst=3\n"


class Apps:
    def __init__(self, inst):
        self.inst, self.dirs = inst, {}

    def add(self, name, order="", go=True, command=GATED, body=BODY):
        d = self.dirs.get(name) or self.inst.app_dir(name.replace("@", "-"))
        self.dirs[name] = d
        if go:
            self.go(name)
        self.inst.write_unit(name, f"[App]\nShell={command}\nWorkingDirectory={d}\n{order}\n{body}")

    def go(self, name, file="go"):
        self.inst.user_file(os.path.join(self.dirs[name], file))

    def unset(self, name, file="go"):
        os.unlink(os.path.join(self.dirs[name], file))

    def told_to_end(self, name):
        return os.path.exists(os.path.join(self.dirs[name], "said"))

    def order(self, *states):
        """Names in the order in which they got into these states."""
        return [e["app"] for e in self.inst.events(type="state") if e["state"] in states]


@pytest.fixture
def apps(inst):
    return Apps(inst)


def states(inst):
    return {a["name"]: a["state"] for a in inst.status()["apps"]}


class Command(threading.Thread):
    """A command that is waiting while the test goes on."""

    def __init__(self, inst, *args):
        super().__init__(daemon=True)
        self.inst, self.args, self.result = inst, args, None
        self.start()

    def run(self):
        self.result = self.inst.sbxsv(*self.args, timeout=GENEROUS)

    def end(self):
        self.join(GENEROUS)
        assert self.result, f"{self.args} does not end"
        return self.result


# --- start ---

def test_a_required_app_is_ready_first(inst, apps):
    """The names are against the order in which a directory is read."""
    apps.add("a", "Requires=b\nAfter=b")  # is named once all the same
    apps.add("b", "Requires=c", go=False)
    apps.add("c", go=False)
    inst.foreground()
    inst.wait_state("c", "starting")
    a = inst.wait_state("a", "waiting")
    b = inst.wait_state("b", "waiting")
    assert b["reason"] == "waiting for c (starting)" and a["reason"] == "waiting for b (waiting)"
    assert b["waits_for"] == [{"app": "c", "state": "starting"}] and a["waits_for"] == [{"app": "b", "state": "waiting"}]
    assert "pid" not in a and not a["launches"] and not a.get("not_in_force")
    assert "waiting for b (waiting)" in inst.ok("status")
    apps.go("c")
    inst.wait_state("b", "starting")
    wait_for(lambda: inst.peek("a")["reason"] == "waiting for b (starting)")
    apps.go("b")
    a = inst.wait_state("a", "running")
    assert "reason" not in a and "waits_for" not in a
    assert apps.order("running") == ["c", "b", "a"]
    assert [e["state"] for e in inst.events("a", "state")] == ["starting", "waiting", "starting", "running"]


def test_after_orders_only_those_that_start(inst, apps):
    apps.add("a", "After=z gone off sick")
    apps.add("off", "Enabled=no", go=False)
    apps.add("sick", command="exit 3", body="[Restart]\nPolicy=no\n")
    apps.add("z", go=False)
    inst.foreground()
    a = inst.wait_state("a", "waiting")
    assert "z (starting)" in a["reason"] and "off" not in a["reason"] and "gone" not in a["reason"]
    apps.go("z")
    inst.wait_state("a", "running")
    assert states(inst)["off"] == "stopped" and [n for n in apps.order("running") if n != "sick"] == ["z", "a"]
    # afterwards they have nothing to do with each other
    assert inst.ok("stop", "z") == ""
    assert states(inst)["a"] == "running"
    assert inst.sbxsv("restart", "a").code == 0 and states(inst) == {"a": "running", "off": "stopped", "sick": "failed",
                                                                     "z": "stopped"}


def test_a_start_starts_what_is_required(inst, apps):
    for name, order in (("a", "Requires=b c"), ("b", "Requires=d"), ("c", "Requires=d"), ("d", "")):
        apps.add(name, f"{order}\nEnabled=no")
    inst.foreground()
    wait_for(lambda: set(states(inst).values()) == {"stopped"} and len(states(inst)) == 4)
    out = inst.ok("start", "a")
    assert out.strip() == "a: started first, because it requires the apps: d, b, c", out
    assert set(states(inst).values()) == {"running"}
    order = apps.order("running")
    assert order[0] == "d" and order[-1] == "a"
    assert inst.ok("start", "a") == ""


def test_many_at_once(inst, apps):
    """start A B C: each is its own request, and all of them end well in whichever order they come."""
    apps.add("a", "Requires=b\nEnabled=no")
    apps.add("b", "Requires=c\nEnabled=no")
    apps.add("c", "Enabled=no")
    inst.foreground()
    for _ in range(3):
        assert inst.sbxsv("start", "a", "b", "c").code == 0
        assert set(states(inst).values()) == {"running"}
        assert inst.sbxsv("stop", "c", "b", "a").code == 0
        assert set(states(inst).values()) == {"stopped"}


def test_no_wait_says_what_it_waits_for(inst, apps):
    apps.add("a", "Requires=b\nEnabled=no")
    apps.add("b", "Enabled=no", go=False)
    inst.foreground()
    out = inst.ok("start", "a", "--no-wait")
    assert "a: waiting for b (starting)" in out and "a: started first, because it requires the app: b" in out
    apps.go("b")
    inst.wait_state("a", "running")


def test_connections_wait_for_an_app_that_waits(inst, apps, free_port):
    port = free_port()
    apps.add("db", go=False)
    inst.server_unit("web", port, extra_app="Requires=db")
    inst.foreground()
    inst.wait_state("web", "waiting")
    assert inst.peek("web")["gate"] == "hold"
    got = []
    t = threading.Thread(target=lambda: got.append(http_get(port, timeout=GENEROUS).text), daemon=True)
    t.start()
    apps.go("db")
    t.join(GENEROUS)
    assert got and got[0].startswith("ok ")


def test_connections_do_not_wait_for_ever(inst, apps, free_port):
    """Nobody knows when what it waits for comes: they wait as long as for an app in backoff."""
    port = free_port()
    inst.server_unit("web", port, extra_app="Requires=missing")
    inst.foreground()
    inst.wait_state("web", "waiting")
    with socket.create_connection(("127.0.0.1", port), GENEROUS) as s, pytest.raises(ConnectionResetError):
        s.recv(1)
    assert inst.peek("web")["gate"] == "reset" and inst.peek("web")["state"] == "waiting"
    apps.add("missing", go=False)  # now it is on its way
    wait_for(lambda: inst.peek("web")["gate"] == "hold")
    apps.go("missing")
    inst.wait_state("web", "running")


# --- failures ---

def test_a_failed_app_is_waited_for_by_name(inst, apps):
    apps.add("db", command="if [ -e fine ]; then echo >&3; sleep 1000; fi; echo broken; exit 3")
    apps.add("web", "Requires=db")
    inst.foreground()
    inst.wait_state("db", "failed")
    web = inst.wait_state("web", "waiting")
    assert web["reason"].startswith("waiting for db (failed: exited with status 3"), web["reason"]
    assert "\n" not in web["reason"] and "sbxsv status db" in web["hint"]
    assert inst.sbxsv("status", "web").code == 0
    r = inst.sbxsv("start", "web")  # tries db again, and answers though it goes on waiting
    assert r.code == 1 and "waiting for db (" in r.err, r
    launches = inst.wait_state("db", "failed")["launches"]
    assert launches > 3
    apps.go("db", "fine")
    assert inst.sbxsv("start", "db").code == 0
    inst.wait_state("web", "running")


def test_a_crash_of_a_required_app_changes_nothing(inst, apps):
    """Only who starts meanwhile waits."""
    apps.add("db")
    apps.add("web", "Requires=db")
    inst.foreground()
    web = inst.wait_state("web", "running")
    db = inst.wait_state("db", "running")
    apps.unset("db")
    kill_pid(db["pid"])
    wait_for(lambda: inst.peek("db")["launches"] == 2)
    assert inst.peek("web")["pid"] == web["pid"]
    kill_pid(web["pid"])
    assert inst.wait_state("web", "waiting")["reason"] == "waiting for db (starting)"
    apps.go("db")
    assert inst.wait_state("web", "running")["pid"] != web["pid"]


def test_a_unit_that_is_not_there_yet(inst, apps):
    apps.add("dx")
    apps.add("web", "Requires=db")
    inst.foreground()
    web = inst.wait_state("web", "waiting")
    assert web["reason"] == "waiting for db (there is no such app)", web
    assert web["waits_for"] == [{"app": "db"}]
    assert web["hint"].startswith("web.app:4 names it; did you mean dx?"), web
    r = inst.sbxsv("start", "web")
    assert r.code == 1 and "there is no such app" in r.err and "did you mean dx" in r.err
    apps.add("db", "Enabled=no")  # somebody waits for it: it is started all the same
    inst.wait_state("web", "running")
    assert apps.order("running")[-2:] == ["db", "web"]


def test_what_breaks_while_it_waits_is_not_started(inst, apps):
    apps.add("db", go=False)
    apps.add("web", "Requires=db")
    inst.foreground()
    inst.wait_state("web", "waiting")
    apps.add("web", "Requires=db\nNonsense=yes")
    wait_for(lambda: inst.peek("web")["problems"])
    apps.go("db")
    s = inst.wait_state("web", "failed", "running")
    assert s["state"] == "failed" and "Nonsense" in s["reason"] and not s["launches"], s
    apps.add("web", "Requires=db")
    inst.wait_state("web", "running")


def test_a_required_unit_is_removed_and_comes_back(inst, apps):
    apps.add("db")
    apps.add("web", "Requires=db")
    inst.foreground()
    web = inst.wait_state("web", "running")
    inst.remove_unit("db")
    s = inst.wait_state("web", "waiting")
    wait_for(lambda: inst.peek("web")["reason"] == "waiting for db (there is no such app)")
    assert apps.told_to_end("web") and "pid" not in s
    wait_for(lambda: "db" not in states(inst))
    apps.add("db")
    assert inst.wait_state("web", "running")["pid"] != web["pid"]


def test_what_comes_back_disabled_stays_away(inst, apps):
    """Its file is there again before its last process is gone."""
    apps.add("a", "Enabled=no")
    inst.foreground()
    inst.ok("start", "a")
    apps.go("a", "hold")
    inst.remove_unit("a")
    inst.ok("reload")
    wait_for(lambda: apps.told_to_end("a"))
    apps.add("a", "Enabled=no")
    inst.ok("reload")
    apps.unset("a", "hold")
    inst.wait_state("a", "stopped")
    assert inst.peek("a")["launches"] == 1 and apps.order("starting") == ["a"]
    assert inst.sbxsv("start", "a").code == 0


def test_circles_are_refused_and_nobody_else(inst, apps):
    apps.add("a", "Requires=b")
    apps.add("b", "After=c")
    apps.add("c", "Requires=a")
    apps.add("free")
    apps.add("web", "Requires=a free")
    inst.foreground()
    for name, line in (("a", "a.app:4: [App] Requires=b"), ("b", "b.app:4: [App] After=c"), ("c", "c.app:4: [App] Requires=a")):
        s = inst.wait_state(name, "failed")
        assert f"{line} goes in a circle: " in s["reason"] and "remove one of these lines" in s["reason"]
    inst.wait_state("free", "running")
    assert inst.wait_state("web", "waiting")["reason"].startswith("waiting for a (failed: the unit is broken)")
    apps.add("b")
    inst.wait_state("web", "running")
    assert set(states(inst).values()) == {"running"}


def test_a_circle_made_while_all_runs(inst, apps):
    """What runs goes on with what it was started by, and can be stopped."""
    apps.add("a", "Requires=b")
    apps.add("b")
    inst.foreground()
    inst.wait_state("a", "running")
    pids = {n: inst.peek(n)["pid"] for n in "ab"}
    apps.add("b", "Requires=a")
    wait_for(lambda: inst.peek("a")["problems"] and inst.peek("b")["problems"])
    assert {n: inst.peek(n)["pid"] for n in "ab"} == pids
    r = inst.sbxsv("stop", "b")
    assert r.code == 0 and set(states(inst).values()) == {"stopped"}
    r = inst.sbxsv("start", "a")
    assert r.code == 1 and "goes in a circle" in r.err


# --- stop, restart ---

def test_a_stop_goes_in_reverse_and_says_so(inst, apps):
    apps.add("a", "Requires=b")
    apps.add("b", "Requires=c")
    apps.add("c")
    apps.add("idle", "Requires=nobody c")
    apps.add("other", "After=c")
    inst.foreground()
    inst.wait_state("a", "running")
    inst.wait_state("idle", "waiting")
    for name in "ab":
        apps.go(name, "hold")
    stop = Command(inst, "stop", "c")
    wait_for(lambda: apps.told_to_end("a"))
    assert states(inst) == {"a": "stopping", "b": "running", "c": "running", "idle": "stopped", "other": "running"}
    assert inst.peek("c")["reason"] == "it stops when nothing that requires it runs any more"
    apps.unset("a", "hold")
    wait_for(lambda: apps.told_to_end("b"))
    assert states(inst)["a"] == "stopped" and states(inst)["c"] == "running" and not apps.told_to_end("c")
    apps.unset("b", "hold")
    r = stop.end()
    assert r.code == 0
    assert r.out.strip() in [f"c: stopped too, because the apps require it: {x}" for x in
                             ("b, a, idle", "idle, b, a", "b, idle, a", "a, b, idle", "a, idle, b", "idle, a, b")], r.out
    assert apps.order("stopped")[-3:] == ["a", "b", "c"]
    for name, by in (("a", "c"), ("b", "c"), ("idle", "c")):
        s = inst.peek(name)
        assert s["state"] == "stopped" and s["reason"] == f"stopped with {by}, which it requires"
        assert s["hint"] == f"sbxsv start {name} starts both"
    assert "reason" not in inst.peek("c") and states(inst)["other"] == "running"
    # one of them is enough to have all of them back
    assert inst.sbxsv("start", "a").code == 0
    assert "reason" not in inst.peek("a") and states(inst)["c"] == "running"


def test_a_start_in_the_middle_of_a_stop(inst, apps):
    apps.add("db")
    apps.add("web", "Requires=db")
    inst.foreground()
    db = inst.wait_state("web", "running") and inst.peek("db")
    apps.go("web", "hold")
    stop = Command(inst, "stop", "db")
    wait_for(lambda: apps.told_to_end("web"))
    start = Command(inst, "start", "web")
    r = stop.end()
    assert r.code == 1 and "another request came before" in r.err, r
    apps.unset("web", "hold")
    assert start.end().code == 0
    assert inst.peek("db")["pid"] == db["pid"] and "reason" not in inst.peek("db")
    assert states(inst) == {"db": "running", "web": "running"}


def test_a_stop_in_the_middle_of_waiting(inst, apps):
    apps.add("db", go=False)
    apps.add("web", "Requires=db")
    inst.foreground()
    inst.wait_state("web", "waiting")
    start = Command(inst, "start", "web")
    wait_for(lambda: [e["state"] for e in inst.events("web", "state")].count("waiting") == 2)
    assert inst.sbxsv("stop", "web").code == 0
    r = start.end()
    assert r.code == 1 and "stopped" in r.err
    assert states(inst)["web"] == "stopped" and "reason" not in inst.peek("web")
    apps.go("db")
    inst.wait_state("db", "running")
    assert states(inst)["web"] == "stopped"
    # of the one that is waited for
    apps.unset("db")
    assert inst.sbxsv("restart", "db", "--no-wait").code == 0
    assert inst.sbxsv("start", "web", "--no-wait").code == 0
    inst.wait_state("web", "waiting")
    r = inst.sbxsv("stop", "db")
    assert r.code == 0 and "stopped too, because the app requires it: web" in r.out
    assert set(states(inst).values()) == {"stopped"}


def test_a_restart_takes_those_along_that_require_it(inst, apps):
    apps.add("a", "Requires=b")
    apps.add("b", "Requires=c")
    apps.add("c")
    inst.foreground()
    inst.wait_state("a", "running")
    before = {n: inst.peek(n)["pid"] for n in "abc"}
    apps.go("b", "hold")
    restart = Command(inst, "restart", "c")
    wait_for(lambda: apps.told_to_end("b"))
    assert inst.wait_state("a", "waiting") and not apps.told_to_end("c")
    apps.unset("b", "hold")
    r = restart.end()
    assert r.code == 0 and r.out.strip() == "c: restarted too, because the apps require it: a, b", r
    for n in "abc":
        assert inst.wait_state(n, "running")["pid"] != before[n]
    assert apps.order("running")[-3:] == ["c", "b", "a"]
    before = {n: inst.peek(n)["pid"] for n in "abc"}
    assert inst.sbxsv("restart", "--all").code == 0
    assert apps.order("running")[-3:] == ["c", "b", "a"]
    assert all(inst.peek(n)["pid"] != before[n] and inst.peek(n)["launches"] == 3 for n in "abc")
    inst.ok("stop", "--all")
    assert apps.order("stopped")[-3:] == ["a", "b", "c"]
    inst.ok("start", "--all")
    assert apps.order("running")[-3:] == ["c", "b", "a"]


def test_a_stop_overtakes_a_restart(inst, apps):
    """b is to be restarted when nothing that requires it runs; meanwhile c, which it requires, is stopped."""
    apps.add("a", "Requires=b")
    apps.add("b", "Requires=c")
    apps.add("c")
    inst.foreground()
    inst.wait_state("a", "running")
    apps.go("a", "hold")
    restart = Command(inst, "restart", "b")
    wait_for(lambda: apps.told_to_end("a"))
    stop = Command(inst, "stop", "c")
    r = restart.end()
    assert r.code == 1 and "another request came before" in r.err, r
    apps.unset("a", "hold")
    r = stop.end()
    assert r.code == 0 and r.out.strip() in ("c: stopped too, because the apps require it: a, b",
                                             "c: stopped too, because the apps require it: b, a"), r
    assert states(inst) == {"a": "stopped", "b": "stopped", "c": "stopped"}
    assert inst.peek("b")["reason"] == "stopped with c, which it requires" and inst.peek("b")["launches"] == 1


def test_a_changed_unit_restarts_alone(inst, apps):
    apps.add("db")
    apps.add("web", "Requires=db")
    inst.foreground()
    web = inst.wait_state("web", "running")["pid"]
    apps.add("db", "Environment=X=1")
    wait_for(lambda: inst.peek("db")["launches"] == 2 and inst.peek("db")["state"] == "running")
    assert inst.peek("web")["pid"] == web
    # a line of another order is no reason for a new process
    apps.add("web", "After=db\nRequires=db")
    inst.ok("reload")
    assert inst.peek("web")["pid"] == web
    # no longer enabled: a person's wish, so what requires it goes first
    inst.ok("disable", "db")
    wait_for(lambda: states(inst) == {"db": "stopped", "web": "stopped"})
    assert apps.order("stopped") == ["web", "db"]


def test_lines_that_come_and_go_while_it_waits(inst, apps):
    apps.add("one", go=False)
    apps.add("two", "Enabled=no", go=False)
    apps.add("web", "Requires=one")
    inst.foreground()
    assert inst.wait_state("web", "waiting")["reason"] == "waiting for one (starting)"
    apps.add("web", "Requires=one two")
    wait_for(lambda: inst.peek("web").get("reason") == "waiting for one (starting), two (starting)")
    apps.add("web", "Requires=two")
    wait_for(lambda: inst.peek("web").get("reason") == "waiting for two (starting)")
    apps.add("web", "")
    inst.wait_state("web", "running")
    assert inst.peek("web")["launches"] == 1


def test_the_end_of_everything_waits_for_nobody(inst, apps):
    """All are told at once, whoever requires whom, and whoever waits is gone too."""
    chain = [f"n{i:02d}" for i in range(20)]
    for name, below in zip(chain, [None] + chain):
        apps.add(name, f"Requires={below}" if below else "")
    apps.add("late", "Requires=never")
    inst.foreground()
    inst.wait_state(chain[-1], "running")
    for name in chain:
        apps.go(name, "hold")
    inst.down()
    assert all(apps.told_to_end(name) for name in chain)
    assert not [p for p in inst.alive() if p not in {q.pid for q in inst.procs}]


@pytest.mark.parametrize("n", [120])
def test_a_long_chain(inst, apps, n):
    """Each requires the one before; started by the last, stopped by the first."""
    names = [f"c{i:03d}" for i in range(n)]
    for name, below in zip(names, [None] + names):
        d = inst.app_dir(name)
        inst.write_unit(name, f"[App]\nExec=/bin/sleep 1000\nWorkingDirectory={d}\nEnabled=no\n"
                              + (f"Requires={below}\n" if below else ""))
    inst.foreground()
    wait_for(lambda: len(states(inst)) == n, GENEROUS)
    assert inst.sbxsv("start", names[-1], timeout=GENEROUS).code == 0
    assert [e for e in apps.order("running")] == names
    r = inst.sbxsv("stop", names[0], timeout=GENEROUS)
    assert r.code == 0 and apps.order("stopped") == names[::-1]


def test_templates_wait_for_their_own(inst, apps):
    apps.add("db@", go=False, command=GATED.replace("go ]", "go-%i ]"))
    apps.add("web@", "Requires=db@%i")
    for name in "db@1", "db@2", "web@1", "web@2":
        os.symlink(f"{name[:-1]}.app", inst.unit_path(name))
    inst.foreground()
    assert inst.wait_state("web@1", "waiting")["reason"] == "waiting for db@1 (starting)"
    inst.user_file(os.path.join(apps.dirs["db@"], "go-2"))
    inst.wait_state("web@2", "running")
    assert states(inst)["web@1"] == "waiting"
    inst.user_file(os.path.join(apps.dirs["db@"], "go-1"))
    inst.wait_state("web@1", "running")
    assert inst.sbxsv("stop", "db@1").code == 0
    assert states(inst) == {"db@1": "stopped", "web@1": "stopped", "db@2": "running", "web@2": "running"}


def test_kill_9_of_a_supervisor_that_waits(inst, apps):
    apps.add("db", go=False)
    apps.add("web", "Requires=db")
    p = inst.foreground()
    inst.wait_state("web", "waiting")
    wait_for(lambda: "uptime_ms" in inst.peek("db"))
    p.send_signal(signal.SIGKILL)
    p.wait(GENEROUS)
    apps.go("db")
    inst.foreground()
    inst.wait_state("web", "running")
    assert inst.peek("db")["launches"] == inst.peek("web")["launches"] == 1


# --- session apps ---

def test_an_idle_session_app_is_there(inst, apps, free_port):
    """Who requires it starts while it is idle; its own client wakes what it requires itself."""
    ports = free_port(), free_port()
    apps.add("base", "Enabled=no")
    inst.server_unit("lazy", ports[0], extra_app="Mode=session\nRequires=base")
    inst.server_unit("web", ports[1], extra_app="Requires=lazy")
    inst.foreground()
    inst.wait_state("web", "running")
    assert states(inst) == {"base": "stopped", "lazy": "idle", "web": "running"}
    assert http_get(ports[0], timeout=GENEROUS).text.startswith("ok ")
    assert states(inst) == {"base": "running", "lazy": "running", "web": "running"}
    assert apps.order("running") == ["web", "base", "lazy"]
    r = inst.sbxsv("stop", "base")
    assert r.code == 0 and set(states(inst).values()) == {"stopped"}
    assert inst.sbxsv("start", "web").code == 0  # idle is enough for who requires it
    assert states(inst) == {"base": "stopped", "lazy": "idle", "web": "running"}


@pytest.mark.parametrize("seed", range(int(os.environ.get("SBXSV_ORDER_WALKS", "2"))))
def test_any_history_can_be_ended_and_begun(inst, apps, seed):
    """Random requests, crashes and edits, none waited for; then all of it can be stopped and started, in order."""
    rng = random.Random(seed)
    lines = {"a": "Requires=b c", "b": "Requires=d", "c": "Requires=d\nAfter=b", "d": "Requires=e", "e": "", "f": "After=a e"}
    more = {"a": "Requires=b", "b": "Requires=d e", "c": "Requires=e", "d": "", "e": "After=d", "f": "Requires=a"}
    quick = "echo >&3; while :; do sleep 0.05; done"
    for name, order in lines.items():
        apps.add(name, order, command=quick)
    inst.foreground()
    for _ in range(60):
        name = rng.choice("abcdef")
        what = rng.choice(("start", "stop", "restart", "kill", "edit", "all", "remove"))
        if what in ("start", "stop", "restart"):
            inst.sbxsv(what, name, "--no-wait")
        elif what == "kill" and (pid := (inst.peek(name) or {}).get("pid")):
            kill_pid(pid)
        elif what == "edit":
            apps.add(name, rng.choice((lines, more))[name], command=quick)
            inst.sbxsv("reload")  # which may find a circle
        elif what == "all":
            inst.sbxsv(rng.choice(("start", "stop", "restart")), "--all", "--no-wait")
        elif what == "remove" and os.path.exists(inst.unit_path(name)):
            inst.remove_unit(name)
    for name, order in lines.items():
        apps.add(name, order, command=quick)
    inst.ok("reload")
    assert inst.sbxsv("stop", "--all", timeout=GENEROUS).code == 0
    wait_for(lambda: set(states(inst).values()) == {"stopped"} and len(states(inst)) == len(lines), GENEROUS)
    assert not [p for p in inst.alive() if p not in {q.pid for q in inst.procs}]
    r = inst.sbxsv("start", "--all", timeout=GENEROUS)
    assert r.code == 0, r
    assert set(states(inst).values()) == {"running"}
    order = apps.order("running")[-6:]
    for first, then in ("db", "dc", "ba", "ca", "bc", "ed", "af"):
        assert order.index(first) < order.index(then), order
