"""Instances of templates: NAME@.app and NAME@ARG.app."""
import os

import harness
from harness import PYTHON, http_get, wait_for


def template(inst, name="web", more="", network="[Network]\nListen=%i\n"):
    d = inst.app_dir(name)
    inst.write_unit(name + "@.app", f"[App]\nDescription=port %i of %n\nExec={PYTHON} -m http.server $PORT --bind 127.0.0.1 --directory %i\n"
                    f"WorkingDirectory={d}\nEnvironment={harness.MARK}={inst.mark} WHO=%n/%i\n{more}{network}", mark=False)
    return d


def folder(inst, d, name, text):
    os.mkdir(os.path.join(d, name))
    if harness.ROOT:
        os.chown(os.path.join(d, name), inst.user.pw_uid, inst.user.pw_gid)
    inst.user_file(os.path.join(d, name, "index.html"), text)


def environ(inst, app):
    for pid in harness.children(inst.peek(app)["pid"]):
        with open(f"/proc/{pid}/environ") as f:
            return dict(v.split("=", 1) for v in f.read().split("\0") if v)


def test_two_instances_at_once(inst, free_port):
    a, b = free_port(), free_port()
    d = template(inst)
    folder(inst, d, str(a), "first"), folder(inst, d, str(b), "second")
    inst.up()
    assert inst.status()["apps"] == []  # a template is no app
    r = inst.sbxsv("start", f"web@{a}")
    assert r.code == 4 and f"sbxsv enable web@{a}" in r.err and "web@.app" in r.err
    out = inst.ok("enable", f"web@{a}", f"web@{b}")
    assert "an instance of its template: " + inst.unit_path(f"web@{a}.app") in out
    assert os.readlink(inst.unit_path(f"web@{a}.app")) == "web@.app"
    for port, text in ((a, "first"), (b, "second")):
        s = inst.wait_state(f"web@{port}", "running")
        assert s["description"] == f"port {port} of web@{port}"
        assert http_get(port).text == text
        assert environ(inst, f"web@{port}")["WHO"] == f"web@{port}/{port}"
        assert environ(inst, f"web@{port}")["SBXSV_APP"] == f"web@{port}"
    # each by itself
    inst.ok("stop", f"web@{a}")
    assert inst.peek(f"web@{a}")["state"] == "stopped" and inst.peek(f"web@{b}")["state"] == "running"
    inst.ok("start", f"web@{a}")
    assert http_get(a).text == "first"
    assert f"web@{a}" in inst.ok("status") and inst.ok("logs", f"web@{a}")
    # and over a restart of the supervisor
    inst.down()
    inst.up()
    for port in a, b:
        inst.wait_state(f"web@{port}", "running")


def test_a_change_of_the_template_reaches_all_a_drop_in_one(inst, free_port):
    a, b = free_port(), free_port()
    d = template(inst)
    folder(inst, d, str(a), "first"), folder(inst, d, str(b), "second")
    inst.up()
    inst.ok("enable", f"web@{a}", f"web@{b}")
    before = [inst.wait_state(f"web@{p}", "running")["pid"] for p in (a, b)]
    os.makedirs(inst.unit_path(f"web@{a}.app") + ".d", exist_ok=True)
    with open(inst.unit_path(f"web@{a}.app") + ".d/10-x.conf", "w") as f:
        f.write("[App]\nEnvironment=ONE=1\n")
    inst.ok("reload")
    inst.wait_state(f"web@{a}", "running")
    assert inst.peek(f"web@{b}")["pid"] == before[1] and inst.peek(f"web@{a}")["pid"] != before[0]
    assert environ(inst, f"web@{a}")["ONE"] == "1" and "ONE" not in environ(inst, f"web@{b}")
    template(inst, more="PassEnvironment=PATH\n")
    inst.ok("reload")
    for p in a, b:
        inst.wait_state(f"web@{p}", "running")
    assert inst.peek(f"web@{b}")["pid"] != before[1]
    out = inst.ok("cat", f"web@{a}", "--effective")
    assert "Listen=%i" in out and "ONE=1" in out
    inst.ok("check", f"web@{a}")
    inst.ok("check")


def test_disable_edit_remove(inst, free_port):
    a, b = free_port(), free_port()
    d = template(inst)
    folder(inst, d, str(a), "first"), folder(inst, d, str(b), "second")
    inst.up()
    inst.ok("enable", f"web@{a}", f"web@{b}")
    inst.wait_state(f"web@{b}", "running")
    inst.ok("disable", f"web@{a}")
    inst.wait_state(f"web@{a}", "stopped")
    inst.ok("enable", f"web@{a}")
    inst.wait_state(f"web@{a}", "running")
    r = inst.sbxsv("edit", f"web@{a}", env={"EDITOR": "true", "VISUAL": "true"})
    assert r.code == 0, r.err
    inst.ok("remove", f"web@{a}", "--purge")
    wait_for(lambda: inst.peek(f"web@{a}") is None)
    assert os.path.exists(inst.unit_path("web@.app")) and not os.path.lexists(inst.unit_path(f"web@{a}.app"))
    assert http_get(b).text == "second"
    r = inst.sbxsv("remove", f"web@{a}")
    assert r.code == 1 and "template" in r.err
    # the template itself is no app
    for verb in "start", "enable", "remove":
        assert inst.sbxsv(verb, "web@").code == 4


def test_bad_instances(inst):
    template(inst)
    inst.up()
    assert inst.sbxsv("enable", "nope@1").code == 4
    for name in ("web@a/b", "web@..", "web@" + "x" * 64, "web@a b"):
        r = inst.sbxsv("enable", name)
        assert r.code == 4 or name == "web@..", r
    # an argument that makes a bad unit is said with the template's line
    r = inst.sbxsv("enable", "web@notaport")
    assert r.code == 1 and "web@notaport.app:7" in r.err and "Listen" in r.err
    assert not os.path.lexists(inst.unit_path("web@notaport.app"))  # nothing was changed
    assert not os.path.exists(os.path.join(inst.base, "c", ".app"))
    # an instance with a file of its own
    d = inst.app_dir("web")
    inst.write_unit("web@own.app", f"[App]\nExec=/bin/sleep 600\nWorkingDirectory={d}\nEnvironment={harness.MARK}={inst.mark}\n")
    inst.ok("reload")
    assert inst.wait_state("web@own", "running")["mode"] == "background"


def test_a_stdio_instance_and_a_prepared_one(inst):
    d = inst.app_dir("t", {"lock": "1"})
    inst.write_unit("mcp@.app", f"[App]\nMode=stdio\nShell=echo %i; exec cat\nWorkingDirectory={d}\nEnvironment={harness.MARK}={inst.mark}\n", mark=False)
    inst.write_unit("job@.app", f"[App]\nExec=/bin/sleep 600\nWorkingDirectory={d}\nEnvironment={harness.MARK}={inst.mark}\n"
                    f"[Prepare]\nExec=/usr/bin/touch made-%i\nFiles={d}/lock\n", mark=False)
    inst.up()
    inst.ok("enable", "mcp@one", "job@x", "job@y")
    assert inst.sbxsv("run", "mcp@one", input="hello\n").out == "one\nhello\n"
    for i in "xy":
        inst.wait_state(f"job@{i}", "running")
        assert os.path.exists(f"{d}/made-{i}") and os.path.exists(f"{inst.state}/prepared/job@{i}")
