"""[Needs]: looked for with the eyes of the app, before each start, said in one paragraph."""
import os

import pytest

from harness import http_get, wait_for

GENEROUS = 60


def add(inst, name, needs, app="", command="exec sleep 1000", body=""):
    d = inst.app_dir(name)
    inst.write_unit(name, f"[App]\nShell={command}\nWorkingDirectory={d}\n{app}\n[Needs]\n{needs}\n{body}\n")
    return d


def put(inst, path, text):
    inst.user_file(path, text)
    os.chmod(path, 0o755)


def test_programs_variables_and_systems(inst):
    add(inst, "good", "Bin=sh cat /bin/ls\nEnv=HOME PATH KEY\nOs=macos linux\nOptionalBin=sed", app="Environment=KEY=1")
    add(inst, "bad", "Bin=no-such-thing ffprobe-x rg-x\nEnv=API_KEY\nOs=macos windows")
    inst.foreground()
    inst.wait_state("good", "running")
    s = inst.wait_state("bad", "failed")
    assert s["reason"].splitlines() == [
        "the program no-such-thing is not there for the app (bad.app:6 Bin=)",
        "the program ffprobe-x is not there for the app (bad.app:6 Bin=)",
        "the program rg-x is not there for the app (bad.app:6 Bin=)",
        "the variable API_KEY is not set (bad.app:7 Env=): Environment=, EnvironmentFile= or PassEnvironment= sets it",
        "the app runs on macos or windows (bad.app:8 Os=), and this is linux"], s["reason"]
    assert s["hint"] == "when it is there: sbxsv start bad" and s["launches"] == 0
    assert not s.get("not_in_force")
    assert "no-such-thing" in inst.log("bad") and "what to do" in inst.sbxsv("status", "bad").out
    r = inst.sbxsv("start", "bad")
    assert r.code == 1 and "no-such-thing" in r.err


def test_looked_for_again_at_each_start(inst):
    """The app's own eyes: what it does not see is not there, though it is on the disk."""
    hidden = os.path.join(inst.home, "tools")
    os.makedirs(hidden, exist_ok=True)
    d = add(inst, "web", "Bin=frob\nOptionalBin=frub", app=f"Environment=PATH={hidden}:{inst.app_dir('web')}/bin:/usr/bin:/bin")
    put(inst, os.path.join(hidden, "frob"), "#!/bin/sh\n")
    inst.foreground()
    s = inst.wait_state("web", "failed")
    assert "the program frob is not there for the app" in s["reason"]
    os.makedirs(f"{d}/bin", exist_ok=True)
    put(inst, f"{d}/bin/frob", "#!/bin/sh\n")
    assert inst.sbxsv("start", "web").code == 0
    s = inst.peek("web")
    assert s["optional"] == "the program frub is not there for the app (web.app:7 OptionalBin=)"
    assert s["optional"] in inst.sbxsv("status", "web").out
    os.unlink(f"{d}/bin/frob")
    assert inst.peek("web")["state"] == "running"
    assert inst.sbxsv("restart", "web").code == 1
    assert inst.peek("web")["state"] == "failed"


def test_what_to_install(inst):
    """A package where one is known, a directory where it is installed already."""
    add(inst, "a", "Bin=no-such-thing", app="Environment=PATH=/nowhere")
    add(inst, "b", "Bin=git rg\nNode=>=18", app="Environment=PATH=/nowhere")
    inst.foreground()
    s = inst.wait_state("b", "failed")
    assert "Node >=18 is needed, and the app has none (b.app:7 Node=)" in s["reason"], s["reason"]
    hint = s["hint"]
    assert ("apt install" in hint or "Path=" in hint) and hint.endswith("then: sbxsv start b"), hint
    assert "ripgrep" in hint or os.path.exists("/usr/bin/rg")


@pytest.mark.parametrize("range_,fine", [(">=3.2", True), (">=3.10 <4", True), ("^3.2", True), ("3.x", True), (">=99", False),
                                         ("<3.10", False), ("~2.7", False)])
def test_the_version_of_python(inst, range_, fine):
    """/usr/bin/python3 is asked, in a jail; 3.9 is older than 3.10."""
    add(inst, "web", f"Python={range_}")
    inst.foreground()
    s = inst.wait_state("web", "running", "failed")
    assert (s["state"] == "running") is fine, s
    if not fine:
        assert f"Python {range_} is needed (web.app:6 Python=), and /usr/bin/python3 is version 3." in s["reason"]


@pytest.mark.skipif(not os.path.exists("/usr/bin/node"), reason="no node")
def test_the_version_of_node(inst):
    add(inst, "old", "Node=<1")
    add(inst, "new", "Node=>=1\nPython=>=3")
    inst.foreground()
    assert "and /usr/bin/node is version " in inst.wait_state("old", "failed")["reason"]
    inst.wait_state("new", "running")


def fake(inst, d, text):
    os.makedirs(f"{d}/bin", exist_ok=True)
    put(inst, f"{d}/bin/node", text)


def test_the_program_that_is_asked_is_jailed(inst):
    """It is the app's own, so it may be anything: it has what the app has, no network, and it does not last."""
    victim = os.path.join(inst.home, "victim")
    d = inst.app_dir("evil")
    fake(inst, d, "#!/bin/sh\n"
                  f"echo x > {victim}; echo pid $$ > {d}/seen; env > {d}/env\n"
                  "(sleep 1000 & ) ; setsid sleep 1000 &\n"
                  "echo v20.1.0\n")
    add(inst, "evil", "Node=>=20", app=f"Environment=PATH={d}/bin:/usr/bin:/bin", command="exec sleep 2000")
    inst.foreground()
    inst.wait_state("evil", "running")
    assert not os.path.exists(victim) and os.path.exists(f"{d}/seen")
    left = [p for p in inst.alive() if p not in {q.pid for q in inst.procs}]
    assert left and not [p for p in left if inst.read_text(f"/proc/{p}/cmdline").startswith("sleep\0001000")]


def test_one_that_does_not_answer(inst, free_port):
    """It has 4 s; that is no failure of the app but tried again. Nobody else waits for it."""
    port = free_port()
    d = inst.app_dir("mute")
    fake(inst, d, f"#!/bin/sh\n[ -e {d}/fine ] && {{ echo v20; exit; }}\ntrap '' TERM\nsleep 1000 & sleep 1000\n")
    add(inst, "mute", "Node=>=20", app=f"Environment=PATH={d}/bin:/usr/bin:/bin", body="[Restart]\nSec=100ms\nMaxSec=200ms\n")
    inst.server_unit("web", port)
    inst.foreground()
    inst.wait_state("web", "running")
    assert inst.peek("mute")["state"] == "starting" and http_get(port).status == 200
    s = inst.wait_state("mute", "backoff")
    assert "did not end within 4 s" in s["reason"], s
    inst.user_file(f"{d}/fine")
    inst.wait_state("mute", "running")


def test_one_that_never_stops_talking(inst, free_port):
    """Faster than it is read: it has 4 s like one that is silent, and nobody else waits for it."""
    port = free_port()
    d = inst.app_dir("flood")
    fake(inst, d, f"#!/bin/sh\n[ -e {d}/fine ] && {{ echo v20; exit; }}\nexec cat /dev/zero\n")
    add(inst, "flood", "Node=>=20", app=f"Environment=PATH={d}/bin:/usr/bin:/bin", body="[Restart]\nSec=100ms\nMaxSec=200ms\n")
    inst.server_unit("web", port)
    inst.foreground()
    inst.wait_state("web", "running")
    s = inst.wait_state("flood", "backoff")
    assert "did not end within 4 s" in s["reason"], s
    inst.user_file(f"{d}/fine")
    inst.wait_state("flood", "running")


@pytest.mark.parametrize("verb,state", [("stop", "stopped"), ("restart", "starting"), ("remove", None), ("down", None)])
def test_in_the_middle_of_the_question(inst, verb, state):
    d = inst.app_dir("mute")
    fake(inst, d, f"#!/bin/sh\ntrap '' TERM\necho x >> {d}/asked\nsleep 1000 & sleep 1000\n")
    add(inst, "mute", "Node=>=20", app=f"Environment=PATH={d}/bin:/usr/bin:/bin")
    inst.foreground()
    wait_for(lambda: os.path.exists(f"{d}/asked"))
    if verb == "down":
        inst.down()
    elif verb == "remove":
        inst.remove_unit("mute")
        wait_for(lambda: not inst.status()["apps"])
    else:
        assert inst.sbxsv(verb, "mute", *(["--no-wait"] if verb == "restart" else [])).code == 0
        assert inst.wait_state("mute", state)
    if verb == "restart":
        wait_for(lambda: len(open(f"{d}/asked").readlines()) == 2)
    else:
        assert not [p for p in inst.alive() if p not in {q.pid for q in inst.procs}]


def test_words_that_are_no_version(inst):
    d = inst.app_dir("odd")
    fake(inst, d, "#!/bin/sh\ni=0; while [ $i -lt 3000 ]; do echo 'no version, but many words, of which none is a number'; i=$((i+1)); done\n")
    add(inst, "odd", "Node=>=20", app=f"Environment=PATH={d}/bin:/usr/bin:/bin")
    inst.foreground()
    s = inst.wait_state("odd", "failed")
    assert f"{d}/bin/node does not say its version: it answers --version with nothing that looks like one" in s["reason"]


def test_a_dependant_is_told_what_its_need_lacks(inst):
    add(inst, "db", "Bin=no-such-thing")
    add(inst, "web", "", app="Requires=db")
    inst.foreground()
    s = inst.wait_state("web", "waiting")
    wait_for(lambda: "the program no-such-thing is not there" in inst.peek("web")["reason"])
    assert s["launches"] == 0


def test_check_says_it_too_and_runs_nothing(inst):
    d = inst.app_dir("web")
    fake(inst, d, f"#!/bin/sh\necho x > {d}/ran\necho v20.1.0\n")
    add(inst, "web", "Bin=no-such-thing\nOptionalBin=nor-this\nEnv=API_KEY\nOs=macos\nNode=>=18\nPython=<2",
        app=f"Environment=PATH={d}/bin:/usr/bin:/bin")
    r = inst.sbxsv("check", "web")
    assert r.code == 0  # the unit is right, it is the machine that lacks something
    for line in ("note: web.app:6: [Needs] the program no-such-thing is not there", "note: web.app:8: [Needs] the variable API_KEY is not set",
                 "note: web.app:9: [Needs] the app runs on macos"):
        assert any(x.startswith(line) for x in r.out.splitlines()), (line, r.out)
    assert "note: the program nor-this is not there" in r.out
    assert f"note: web.app:10: Node=>=18: {d}/bin/node is asked for its version when the app is started" in r.out
    assert not os.path.exists(f"{d}/ran")
    os.makedirs(f"{d}/v16.1.0/bin")
    os.rename(f"{d}/bin/node", f"{d}/v16.1.0/bin/node")
    add(inst, "web", "Node=>=18", app=f"Environment=PATH={d}/v16.1.0/bin:/usr/bin:/bin")
    r = inst.sbxsv("check", "web")
    assert r.code == 0 and f"{d}/v16.1.0/bin/node is version 16.1.0" in r.out, r.out


def test_before_the_app_is_prepared(inst):
    """Its program is not there until [Prepare] has made it: what it needs is looked for all the same, and first."""
    d = inst.app_dir("web")
    inst.user_file(f"{d}/tool", "#!/bin/sh\nexec sleep 1000\n")
    os.chmod(f"{d}/tool", 0o755)
    text = (f"[App]\nExec={d}/made\nWorkingDirectory={d}\n[Needs]\nBin=cp PROGRAM\nPython=>=3.2\n"
            "[Prepare]\nExec=/bin/cp -p tool made\n")
    inst.write_unit("web", text.replace("PROGRAM", "no-such-thing"))
    inst.foreground()
    assert "no-such-thing" in inst.wait_state("web", "failed")["reason"]
    assert not os.path.exists(f"{d}/made")
    inst.write_unit("web", text.replace("PROGRAM", "sh"))
    inst.wait_state("web", "running")
    assert os.path.exists(f"{d}/made") and inst.sbxsv("restart", "web").code == 0


def test_a_unit_that_changes_during_the_question(inst, free_port):
    """Its new rules and ports are in force from the start, though nothing of it runs yet that they could be given to."""
    port, other = free_port(), free_port()
    d = inst.app_dir("web")
    fake(inst, d, f"#!/bin/sh\necho x >> {d}/asked\nwhile [ ! -e {d}/go ]; do sleep 0.02; done\necho v20.1.0\n")
    app = f"Environment=PATH={d}/bin:/usr/bin:/bin\n"
    needs = "[Needs]\nNode=>=18\n"
    inst.server_unit("web", port, body=needs, extra_app=app, network="Egress=hosts\nAllow=a.example.com\n")
    inst.foreground()
    wait_for(lambda: os.path.exists(f"{d}/asked"))
    inst.server_unit("web", other, body=needs, extra_app=app, network="Egress=hosts\nAllow=b.example.com\n")
    text = inst.read_text(inst.unit_path("web"))
    inst.write_unit("web", text.replace(f"Listen={other}", f"Listen={other}:{port}"))
    wait_for(lambda: "b.example.com" in str(inst.peek("web")["allow"]))
    assert [(p["host"], p["state"]) for p in inst.peek("web")["ports"]] == [(other, "held")]
    inst.user_file(f"{d}/go")
    s = inst.wait_state("web", "running")
    assert http_get(other).text.startswith("ok ") and s["launches"] == 1


def test_a_unit_that_is_enabled_before_it_is_prepared_again(inst, free_port):
    """Between two tries nothing of it runs; what a new process needs is taken all the same, its ports too."""
    port, other = free_port(), free_port()
    slow = "[Restart]\nSec=1h\nMaxSec=1h\n"
    d = inst.server_unit("web", port, body=f"[Prepare]\nExec=/bin/false\nRetries=9\n{slow}", extra_app="Enabled=no\n")
    inst.foreground()
    inst.ok("start", "web", "--no-wait")
    wait_for(lambda: "it is tried again" in (inst.peek("web").get("reason") or ""))
    inst.server_unit("web", other, body=f"[Prepare]\nExec=/bin/true\nRetries=9\n{slow}", extra_app="Environment=X=1\n")
    inst.wait_state("web", "running")
    assert http_get(other).text.startswith("ok ") and os.path.isdir(d)


def test_a_program_that_is_only_named_after_one(inst):
    """nodemon is no Node: its version says nothing of it."""
    d = inst.app_dir("web")
    fake(inst, d, "#!/bin/sh\necho v20.1.0\n")
    put(inst, f"{d}/bin/nodemon", "#!/bin/sh\n[ \"$1\" = --version ] && echo 3.0.0 && exit\nexec sleep 1000\n")
    text = f"[App]\nExec={d}/bin/nodemon\nWorkingDirectory={d}\nEnvironment=PATH={d}/bin:/usr/bin:/bin\n[Needs]\nNode=RANGE\n"
    inst.write_unit("web", text.replace("RANGE", ">=18"))
    inst.write_unit("old", text.replace("RANGE", "<18"))
    inst.foreground()
    inst.wait_state("web", "running")
    assert f"and {d}/bin/node is version 20.1.0" in inst.wait_state("old", "failed")["reason"]
