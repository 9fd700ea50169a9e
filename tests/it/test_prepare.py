"""[Prepare]: a command that makes what the app needs, once for each content of its files, in the jail."""
import json
import os
import signal
import time

import pytest

import harness
import netsup
from harness import PYTHON, http_get, wait_for


def app(inst, name, prepare, more="", files="lock", run="exec sleep 1000", text="v1\n", head=""):
    """A unit with [Prepare]; its command is a script of the app's."""
    d = inst.app_dir(name, {"prepare.sh": prepare + "\n", "lock": text})
    lines = "".join(f"Files={d}/{f}\n" for f in files.split())
    inst.write_unit(name, f"[App]\nShell={run}\nWorkingDirectory={d}\n{head}[Prepare]\nExec=/bin/sh prepare.sh\n{lines}{more}")
    return d


def ran(d):
    """How often it ran to its end."""
    return harness.Instance.read_text(os.path.join(d, "ran")).count("x")


RUN = "echo working; echo x >>ran"


def mark(inst, name):
    return os.path.join(inst.state, "prepared", name)


def change(inst, d, text, name="lock"):
    inst.user_file(os.path.join(d, name), text)


def test_once_for_each_content(inst):
    d = app(inst, "web", RUN)
    inst.up()
    s = inst.wait_state("web", "running")
    assert ran(d) == 1 and s["launches"] == 1 and "preparing" not in s
    log = inst.ok("logs", "web")
    assert "[prepare] working" in log and "[sbxsv] preparing, pid " in log and "[sbxsv] prepared in " in log
    assert log.index("preparing") < log.index("[prepare] working") < log.index("[sbxsv] prepared") < log.index("[sbxsv] started")
    assert os.stat(mark(inst, "web")).st_mode & 0o777 == 0o600
    inst.ok("restart", "web")
    inst.ok("stop", "web")
    inst.ok("start", "web")
    assert ran(d) == 1
    # another supervisor knows it too
    inst.down()
    inst.up()
    inst.wait_state("web", "running")
    assert ran(d) == 1
    # a touch changes nothing, content does
    os.utime(os.path.join(d, "lock"))
    inst.ok("restart", "web")
    assert ran(d) == 1
    change(inst, d, "v2\n")
    inst.ok("restart", "web")
    assert ran(d) == 2
    # by wish
    inst.ok("restart", "web", "--prepare")
    assert ran(d) == 3
    inst.ok("stop", "web")
    inst.ok("start", "web", "--prepare")
    assert ran(d) == 4
    assert [e["message"].split()[0] for e in inst.events("web", "prepare")] == ["preparing,", "prepared"] * 4
    assert inst.api("POST", "/v1/apps/web/stop", {"prepare": True})[0] == 400


def test_the_command_is_part_of_the_fingerprint_and_absent_files_are_seen(inst):
    d = app(inst, "web", RUN)
    with open(inst.unit_path("web")) as f:
        text = f.read()
    inst.write_unit("web", text.replace("Exec=/bin/sh prepare.sh", "Exec=/bin/sh prepare.sh").replace(f"Files={d}/lock", f"Files=-{d}/maybe"))
    inst.up()
    inst.wait_state("web", "running")
    assert ran(d) == 1
    inst.ok("restart", "web")
    assert ran(d) == 1
    change(inst, d, "", "maybe")  # empty is not absent
    inst.ok("restart", "web")
    assert ran(d) == 2
    inst.write_unit("web", text.replace("prepare.sh\n", "prepare.sh again\n"))
    inst.ok("reload")
    assert inst.peek("web")["launches"] == 3  # not for [Prepare] alone
    inst.ok("restart", "web")
    assert ran(d) == 3
    # a file that has to be there, a directory, one that is too large
    for files, said in (("nowhere", "No such file"), ("", ""), ("dir", "no regular file"), ("fifo", "no regular file"), ("big", "16 MiB")):
        if not files:
            continue
        if files == "dir":
            os.mkdir(os.path.join(d, "dir"))
        if files == "fifo":
            os.mkfifo(os.path.join(d, "fifo"))
        if files == "big":
            with open(os.path.join(d, "big"), "wb") as f:
                f.truncate((16 << 20) + 1)
        inst.write_unit("web", text.replace(f"{d}/lock", f"{d}/{files}"))
        inst.ok("reload")
        r = inst.sbxsv("restart", "web")
        assert r.code == 1 and said in r.err and f"{d}/{files}" in r.err + said * 99 + (f"{d}/{files}" if files == "big" else ""), r.err
        assert inst.peek("web")["state"] == "failed"


def test_a_failure_is_tried_again_and_named(inst):
    d = app(inst, "web", "echo try >>tries; echo cannot find foo >&2; exit 3", "Retries=2\n", head="[Restart]\nSec=10ms\n")
    inst.up()
    s = inst.wait_state("web", "failed")
    assert harness.Instance.read_text(f"{d}/tries").count("try") == 3
    assert "prepare: /bin/sh prepare.sh exited with status 3 (3 times)" in s["reason"] and "[prepare] cannot find foo" in s["reason"]
    assert s["launches"] == 0 and "sbxsv start web" in s["hint"] and not os.path.exists(mark(inst, "web"))
    r = inst.sbxsv("start", "web")
    assert r.code == 1 and "cannot find foo" in r.err
    change(inst, d, RUN, "prepare.sh")
    inst.ok("start", "web")
    assert ran(d) == 1 and inst.peek("web")["state"] == "running"


def test_a_second_try_that_succeeds(inst):
    d = app(inst, "web", "if [ -e once ]; then echo x >>ran; else touch once; exit 1; fi", "Retries=1\n", head="[Restart]\nSec=10ms\n")
    inst.up()
    inst.wait_state("web", "running")
    assert ran(d) == 1 and "(once more)" in inst.ok("logs", "web")


def test_one_that_takes_too_long_is_killed(inst):
    d = app(inst, "web", "trap '' TERM; sleep 3981 & sleep 3981", "Timeout=1s\n")
    inst.up()
    s = inst.wait_state("web", "failed")
    assert "took longer than 1 s and was killed" in s["reason"]
    assert not os.path.exists(mark(inst, "web")) and s.get("pid") is None
    assert ran(d) == 0


def slow(inst, name, **kw):
    return app(inst, name, "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo x >>ran", **kw)


def begun(inst, name):
    wait_for(lambda: "[prepare] begun" in inst.log(name))


def test_seen_in_status_stopped_and_begun_again(inst, free_port):
    port = free_port()
    d = slow(inst, "web", head=f"[Network]\nListen={port}\n[Ready]\nType=exec\n")
    other = inst.app_dir("other")
    inst.write_unit("other", f"[App]\nShell=exec sleep 1000\nWorkingDirectory={other}\n")
    inst.up()
    inst.wait_state("other", "running")  # nobody waits for others
    begun(inst, "web")
    s = inst.peek("web")
    assert s["state"] == "starting" and s["preparing"]["command"] == "/bin/sh prepare.sh" and s["preparing"]["tries"] == 1
    assert s["isolation"]["pid_ns"] and "preparing: /bin/sh prepare.sh" in inst.ok("status") and "preparing" in inst.ok("status", "web")
    inst.ok("stop", "web")
    s = inst.peek("web")
    assert s["state"] == "stopped" and "preparing" not in s and not s.get("reason")
    assert not os.path.exists(mark(inst, "web"))
    inst.ok("start", "web", "--no-wait")
    wait_for(lambda: inst.log("web").count("[prepare] begun") == 2)
    change(inst, d, "", "go")
    inst.wait_state("web", "running")
    assert ran(d) == 1
    # restart in the middle
    os.unlink(os.path.join(d, "go"))
    inst.ok("restart", "web", "--prepare", "--no-wait")
    wait_for(lambda: inst.log("web").count("[prepare] begun") == 3)
    inst.ok("restart", "web", "--no-wait")
    wait_for(lambda: inst.log("web").count("[prepare] begun") == 4)
    change(inst, d, "", "go")
    inst.wait_state("web", "running")
    assert ran(d) == 2


def test_two_at_once(inst):
    a, b = slow(inst, "a"), slow(inst, "b")
    inst.up()
    begun(inst, "a"), begun(inst, "b")
    change(inst, b, "", "go")
    inst.wait_state("b", "running")
    assert inst.peek("a")["state"] == "starting"
    change(inst, a, "", "go")
    inst.wait_state("a", "running")


def test_the_supervisor_killed_in_the_middle(inst):
    d = slow(inst, "web")
    p = inst.foreground()
    begun(inst, "web")
    inst.peek("web")
    p.kill()
    p.wait()
    wait_for(lambda: not inst.alive(), what="nothing of it is left")
    assert not os.path.exists(mark(inst, "web"))
    change(inst, d, "", "go")
    inst.foreground()
    inst.wait_state("web", "running")
    assert ran(d) == 1 and os.path.exists(mark(inst, "web"))
    # a mark that is damaged says nothing
    for text in (b"", b"\0" * 64, os.urandom(64), b"x" * 100000):
        n = ran(d)
        with open(mark(inst, "web"), "wb") as f:
            f.write(text)
        inst.ok("restart", "web")
        assert ran(d) == n + 1


def test_down_in_the_middle(inst):
    d = app(inst, "web", "trap '' TERM; echo begun; while :; do sleep 100; done")
    inst.up()
    begun(inst, "web")
    inst.down()
    assert not os.path.exists(mark(inst, "web")) and ran(d) == 0


def test_an_upgrade_in_the_middle(inst):
    d = slow(inst, "web", more="Retries=1\n")
    inst.up()
    begun(inst, "web")
    daemon, before = inst.daemon_pid(), inst.peek("web")
    inst.ok("upgrade")
    assert inst.daemon_pid() == daemon
    after = inst.peek("web")
    assert after["state"] == "starting" and after["preparing"]["tries"] == 1 and after["pid"] == before["pid"]
    inst.user_file(os.path.join(d, "go"))
    inst.wait_state("web", "running")
    assert ran(d) == 1 and os.path.exists(mark(inst, "web")) and inst.log("web").count("[sbxsv] preparing") == 1
    inst.ok("restart", "web")
    assert ran(d) == 1


def test_unit_changed_and_removed_in_the_middle(inst):
    d = slow(inst, "web")
    inst.up()
    begun(inst, "web")
    with open(inst.unit_path("web")) as f:
        text = f.read()
    inst.write_unit("web", text + "Timeout=9min\n")  # live
    inst.ok("reload")
    assert inst.peek("web")["state"] == "starting"
    inst.write_unit("web", text.replace("sleep 1000", "sleep 1001"))
    inst.ok("reload")
    wait_for(lambda: inst.log("web").count("[prepare] begun") == 2)
    inst.remove_unit("web")
    inst.ok("reload")
    wait_for(lambda: inst.peek("web") is None)
    assert ran(d) == 0


def test_a_command_that_changes_its_own_files(inst):
    """As npm install does: it runs once more at the next start, and never twice for one."""
    d = app(inst, "web", "echo more >>lock; " + RUN)
    inst.up()
    inst.wait_state("web", "running")
    assert ran(d) == 1
    inst.ok("restart", "web")
    assert ran(d) == 2


def test_purge_forgets_it(inst):
    d = app(inst, "web", RUN)
    inst.up()
    inst.wait_state("web", "running")
    with open(inst.unit_path("web")) as f:
        text = f.read()
    inst.ok("remove", "web", "--purge")
    assert not os.path.exists(mark(inst, "web"))
    inst.write_unit("web", text)
    inst.ok("reload")
    inst.wait_state("web", "running")
    assert ran(d) == 2


def test_in_the_jail_and_not_ready_before(inst, free_port):
    """What it may: write in AppDirectory. What it may not: the rest, and the marks."""
    port = free_port()
    ssh = os.path.join(inst.home, ".ssh")
    os.mkdir(ssh)
    inst.user_file(os.path.join(ssh, "id"), "secret")
    script = f"cat {ssh}/id; ls {inst.state}; touch {inst.home}/x; echo x >>ran; echo \"port=${{PORT:-none}}\""
    d = app(inst, "web", script, head=f"[Network]\nListen={port}\n", run=f"exec {PYTHON} -m http.server $PORT --bind 127.0.0.1")
    inst.up()
    inst.wait_state("web", "running")
    log = inst.log("web")
    assert "secret" not in log and "prepared" not in log.split("[sbxsv] prepared in")[0].replace("preparing", "")
    assert ran(d) == 1 and not os.path.exists(f"{inst.home}/x") and "[prepare] port=none" in log
    assert http_get(port, "/lock").text == "v1\n"


def test_not_for_stdio(inst):
    d = inst.app_dir("x")
    inst.write_unit("x", f"[App]\nMode=stdio\nExec=/bin/cat\nWorkingDirectory={d}\n[Prepare]\nExec=/bin/true\n")
    r = inst.sbxsv("check", "x")
    assert r.code == 1 and "Mode=stdio" in r.out + r.err


SITES = {"a.test": ["11.2.0.10"], "b.test": ["11.2.0.11"]}
FETCH = """
import os, socket, urllib.parse
for site in ("a.test", "b.test"):
    try:
        p = urllib.parse.urlsplit(os.environ["https_proxy"])
        s = socket.create_connection((p.hostname, p.port))
        s.sendall(f"CONNECT {site}:443 HTTP/1.1\\r\\nHost: {site}\\r\\n\\r\\n".encode())
        print(WHO, site, s.recv(100).split()[1].decode(), flush=True)
    except (OSError, KeyError) as e:
        print(WHO, site, "nothing", flush=True)
"""


@netsup.lab
def test_its_own_sites(lab, sup):
    """What [Prepare] Allow= names is reached by the command alone, and what the app's Allow= names by the app alone."""
    lab.dns(SITES)
    lab.tls_site("a.test", "11.2.0.10")
    lab.tls_site("b.test", "11.2.0.11")
    d = sup.app_dir("web", {"p.py": "WHO='prepare'" + FETCH, "a.py": "WHO='app'" + FETCH + "import time\ntime.sleep(1000)\n"})
    unit = (f"[App]\nExec={PYTHON} a.py\nWorkingDirectory={d}\n[Network]\nAllow=b.test\n"
            f"[Prepare]\nExec={PYTHON} p.py\nFiles={d}/p.py\nAllow=a.test\n")
    sup.write_unit("web", unit)
    sup.up_all()
    wait_for(lambda: "app b.test" in sup.log("web"))
    log = sup.log("web")
    assert "prepare a.test 200" in log and "prepare b.test 403" in log and "app a.test 403" in log and "app b.test 200" in log
    # a rule of the moment that denies counts for both, one that allows for the app alone
    sup.ok("deny", "web", "a.test")
    sup.ok("restart", "web", "--prepare")
    wait_for(lambda: sup.log("web").count("app b.test") == 2)
    assert "prepare a.test 403" in sup.log("web")
    # without Allow= there is no network at all
    sup.write_unit("web", unit.replace("Allow=a.test", ""))
    sup.ok("reload")
    sup.ok("restart", "web", "--prepare")
    wait_for(lambda: sup.log("web").count("app b.test") == 3)
    assert "prepare b.test nothing" in sup.log("web") and "app b.test 200" in sup.log("web").rsplit("prepare b.test nothing")[1]


def test_a_unit_that_changes_between_two_tries(inst, free_port):
    """Nothing runs then, but the app is on its way: it goes on by the new definition, with its ports."""
    old, new = free_port(), free_port()
    d = app(inst, "web", "echo try >>tries; exit 3", "Retries=9\n", run=f"exec {PYTHON} -m http.server {old} --bind 127.0.0.1",
            head=f"[Network]\nListen={old}\n[Restart]\nSec=1h\nMaxSec=1h\n")
    inst.up()
    wait_for(lambda: (inst.peek("web").get("preparing") or {}).get("tries") == 1 and "it is tried again" in inst.peek("web").get("reason", ""))
    change(inst, d, RUN, "prepare.sh")
    app(inst, "web", RUN, run=f"exec {PYTHON} -m http.server {new} --bind 127.0.0.1", head=f"[Network]\nListen={new}\n")
    inst.ok("reload")
    s = inst.wait_state("web", "running")
    assert [p["host"] for p in s["ports"]] == [new] and ran(d) == 1
    assert http_get(new).status == 200


def test_an_app_that_becomes_its_clients_between_two_tries(inst):
    d = app(inst, "web", "exit 3", "Retries=9\n", head="[Restart]\nSec=50ms\nMaxSec=50ms\n")
    inst.up()
    wait_for(lambda: "it is tried again" in inst.peek("web").get("reason", ""))
    inst.write_unit("web", f"[App]\nMode=stdio\nExec=/bin/cat\nWorkingDirectory={d}\n")
    inst.ok("reload")
    assert inst.wait_state("web", "stopped")["launches"] == 0


def test_a_file_that_somebody_has_a_lease_on(inst, free_port):
    """Opening it would wait for the one who has the lease: the app does, and nobody else."""
    holder = """
import fcntl, signal, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
f = open("lock")
fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)
open("held", "w").close()
time.sleep(1000)
"""
    d = app(inst, "web", RUN, head="Enabled=no\n", more="[Restart]\nSec=100ms\nMaxSec=200ms\n")
    inst.user_file(f"{d}/hold.py", holder)
    inst.write_unit("holder", f"[App]\nExec={PYTHON} hold.py\nWorkingDirectory={d}\n")
    inst.up()
    wait_for(lambda: os.path.exists(f"{d}/held"))
    inst.spawn([harness.program("sbxsv"), "start", "web"])
    s = inst.wait_state("web", "backoff")
    assert "has a lease on it" in s["reason"], s
    inst.ok("stop", "holder")
    inst.wait_state("web", "running")
    assert ran(d) == 1
