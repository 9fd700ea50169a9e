"""edit, remove, enable, disable, and start and stop of several apps at once."""
import os
import time

import harness


def sleeper(inst, name, extra=""):
    d = inst.app_dir(name)
    inst.write_unit(name, f"[App]\nExec=/bin/sleep 600\nWorkingDirectory={d}\n{extra}")
    return d


def editor(inst, name, body):
    return inst.user_file(os.path.join(inst.app_dir("tools"), name), f"#!/bin/sh\n{body}\n", 0o755)


def test_disable_and_enable(inst):
    sleeper(inst, "a")
    sleeper(inst, "b")
    out = inst.ok("disable", "a")  # without a supervisor
    dropin = inst.unit_path("a") + ".d/60-enabled.conf"
    assert dropin in out and "Enabled=no" in inst.read_text(dropin)
    inst.up()
    inst.wait_state("b", "running")
    assert inst.peek("a")["state"] == "stopped"
    inst.ok("enable", "a")
    inst.wait_state("a", "running")
    assert "already enabled" in inst.ok("enable", "a")
    inst.ok("disable", "a", "b")
    for n in "ab":
        inst.wait_state(n, "stopped")
    inst.ok("check", "a")
    inst.down()
    inst.up()
    assert inst.peek("a")["state"] == inst.peek("b")["state"] == "stopped"


def test_enable_says_what_stands_in_the_way(inst):
    sleeper(inst, "a")
    with open(inst.unit_path("a") + ".d/99-mine.conf", "w") as f:
        f.write("[App]\nEnabled=no\n")
    r = inst.sbxsv("enable", "a")
    assert r.code == 1 and "60-enabled.conf says Enabled=no" in r.err
    assert not os.path.exists(inst.unit_path("a") + ".d/60-enabled.conf")
    assert inst.sbxsv("enable", "zzz").code == 4 and inst.sbxsv("disable", "../x").code == 4
    inst.write_unit("broken", "[App]\nExec=\n")
    assert inst.sbxsv("disable", "broken").code == 1
    assert inst.sbxsv("enable").code == 2


def test_remove_and_purge(inst):
    d = sleeper(inst, "a")
    inst.user_file(os.path.join(d, "data.db"), "x")
    sleeper(inst, "ab")
    inst.up()
    pid = inst.wait_state("a", "running")["pid"]
    inst.wait_state("ab", "running")
    logs = os.path.join(inst.state, "logs")
    harness.wait_for(lambda: os.path.exists(os.path.join(logs, "ab.log")) and os.path.exists(os.path.join(logs, "a.log")))
    for n in ("a.log.1", "a.log", "a.logs", "ab.log", "a.log.x"):
        with open(os.path.join(logs, n), "a"):
            pass
    out = inst.ok("remove", "a")
    assert harness.proc_start(pid) is None and inst.peek("a") is None
    assert inst.unit_path("a") in out and not os.path.exists(inst.unit_path("a") + ".d")
    assert os.path.exists(os.path.join(logs, "a.log")) and os.path.exists(os.path.join(d, "data.db"))
    sleeper(inst, "a")
    inst.ok("reload")
    inst.wait_state("a", "running")
    inst.ok("remove", "a", "--purge")
    assert sorted(os.listdir(logs)) == ["a.log.x", "a.logs", "ab.log"]
    assert os.path.exists(os.path.join(d, "data.db")) and inst.wait_state("ab", "running")
    r = inst.sbxsv("remove", "a")
    assert r.code == 4 and "no app" in r.err
    # what is no file of ours in the directory of drop-ins stays, and is named
    os.mkdir(inst.unit_path("ab") + ".d/deep")
    r = inst.sbxsv("remove", "ab")
    assert r.code == 1 and "deep" in r.err and os.path.isdir(inst.unit_path("ab") + ".d/deep")


def test_edit(inst):
    sleeper(inst, "a")
    before = inst.read_text(inst.unit_path("a"))
    good = editor(inst, "good", "sed -i 's/600/601/' \"$2\"; test \"$1\" = -x")
    r = inst.sbxsv("edit", "a", env={"VISUAL": good + " -x", "EDITOR": "/bin/false"})
    assert r.code == 0 and "601" in inst.read_text(inst.unit_path("a")), r
    r = inst.sbxsv("edit", "a", env={"EDITOR": "/bin/true"})
    assert r.code == 0 and "nothing was changed" in r.out
    r = inst.sbxsv("edit", "a", env={"EDITOR": "/bin/false"})
    assert r.code == 1 and "failed" in r.err
    now = inst.read_text(inst.unit_path("a"))
    bad = editor(inst, "bad", "echo Exce=x >>\"$1\"; stat -c %a \"$1\" \"$(dirname \"$1\")\"")
    r = inst.sbxsv("edit", "a", env={"EDITOR": bad})
    assert r.code == 1 and "Exce=" in r.err and inst.read_text(inst.unit_path("a")) == now
    assert r.out.split() == ["600", "700"]
    kept = r.err.strip().split()[-1]
    assert "Exce=x" in inst.read_text(kept)
    os.unlink(kept)
    os.rmdir(os.path.dirname(kept))
    assert before != now


def test_what_is_too_long_for_a_unit_is_not_lost(inst):
    sleeper(inst, "a")
    before = inst.read_text(inst.unit_path("a"))
    long = editor(inst, "long", "head -c 300000 /dev/zero | tr '\\0' '#' >>\"$1\"; echo \"$1\"")
    r = inst.sbxsv("edit", "a", env={"EDITOR": long})
    kept = r.out.strip()
    assert r.code == 1 and kept in r.err and inst.read_text(inst.unit_path("a")) == before, r
    assert os.path.getsize(kept) > 300000
    os.unlink(kept)
    os.rmdir(os.path.dirname(kept))


def test_a_unit_that_is_a_link(inst):
    """An edit makes it a file of its own, which is said; one that leads nowhere can be removed."""
    there = os.path.join(inst.base, "elsewhere")
    with open(there, "w") as f:
        f.write(f"[App]\nExec=/bin/sleep 600\nWorkingDirectory={inst.app_dir('a')}\n")
    os.symlink(there, inst.unit_path("a"))
    r = inst.sbxsv("edit", "a", env={"EDITOR": "sed -i s/600/601/"})
    assert r.code == 0 and "it was a link" in r.out and not os.path.islink(inst.unit_path("a")), r
    assert "601" in inst.read_text(inst.unit_path("a")) and "600" in inst.read_text(there)
    os.symlink("web@.app", inst.unit_path("web@1"))
    inst.ok("remove", "web@1")
    assert not os.path.lexists(inst.unit_path("web@1"))
    r = inst.sbxsv("remove", "web@1")
    assert r.code == 4 and "there is no app \"web@1\"" in r.err


def test_remove_says_what_is_stopped_with_it(inst):
    sleeper(inst, "db")
    sleeper(inst, "web", "Requires=db\n")
    inst.up()
    inst.wait_state("web", "running")
    assert "web" in inst.ok("remove", "db").split("removed")[0]


def test_edit_does_not_overwrite_another_edit(inst):
    sleeper(inst, "a")
    racing = editor(inst, "racing", f"echo '# mine' >>\"$1\"; echo '# theirs' >>{inst.unit_path('a')}")
    r = inst.sbxsv("edit", "a", env={"EDITOR": racing})
    assert r.code == 1 and "somebody else" in r.err and "theirs" in inst.read_text(inst.unit_path("a"))
    kept = r.err.strip().split()[-1]
    assert "# mine" in inst.read_text(kept)
    os.unlink(kept)
    os.rmdir(os.path.dirname(kept))
    assert inst.sbxsv("edit", "nope").code == 4 and inst.sbxsv("edit").code == 2


def test_an_edit_is_applied(inst):
    sleeper(inst, "a")
    inst.up()
    pid = inst.wait_state("a", "running")["pid"]
    inst.ok("edit", "a", env={"EDITOR": editor(inst, "e", "sed -i 's/600/602/' \"$1\"")})
    harness.wait_for(lambda: inst.peek("a").get("pid") not in (None, pid), what="the new process")


def test_several_at_once(inst):
    names = [f"n{i}" for i in range(20)]
    for n in names:
        sleeper(inst, n, "Enabled=no\n[Stop]\nTimeout=2s\n" if n != "n3" else "Enabled=no\n")
    for n in names[:6]:  # these ignore TERM: one after another they would take 6 x 2 s
        d = inst.app_dir(n)
        inst.write_unit(n, f"[App]\nShell=trap '' TERM; while :; do sleep 1; done\nWorkingDirectory={d}\nEnabled=no\n")
    inst.write_unit("bad", f"[App]\nExec=/bin/false\nWorkingDirectory={inst.app_dir('bad')}\nEnabled=no\n[Restart]\nPolicy=no\n")
    inst.up()
    r = inst.sbxsv("start", *names)
    assert r.code == 0, r
    assert {a["state"] for a in inst.status()["apps"] if a["name"] in names} == {"running"}
    began = time.monotonic()
    inst.ok("stop", *names[:6])
    assert time.monotonic() - began < 9
    r = inst.sbxsv("restart", "n7", "nosuch", "n8")
    assert r.code == 4 and "nosuch" in r.err
    assert inst.peek("n7")["state"] == inst.peek("n8")["state"] == "running"
    assert inst.sbxsv("start", "n7", "*").code == 2
