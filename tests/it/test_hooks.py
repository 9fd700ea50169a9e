"""[Hooks]: commands that run when something happens to an app."""
import fcntl
import json
import os
import shutil
import signal

import pytest

import harness
from harness import PYTHON, wait_for

F_SETPIPE_SZ, F_GETPIPE_SZ = 1031, 1032  # linux/fcntl.h; Python 3.10 has them
HOOKS = ("OnStart", "OnReady", "OnExit", "OnFail", "OnViolation")
# keeps what it is told
NOTE = 'name=$SBXSV_HOOK; cat >>"got.$name"; echo "said $name"\n'


def app(inst, name, run="exec sleep 1000", hooks=HOOKS, script=NOTE, more="", head=""):
    d = inst.app_dir(name, {"hook.sh": script})
    lines = "".join(f"{h}=/bin/sh hook.sh '{h} %n'\n" for h in hooks)
    inst.write_unit(name, f"[App]\nShell={run}\nWorkingDirectory={d}\n{head}[Hooks]\n{lines}{more}")
    return d


def cmdline(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read()
    except OSError:
        return b""


def got(d, hook):
    """What the hook was told, an object a call."""
    return [json.loads(x) for x in harness.Instance.read_text(os.path.join(d, "got." + hook)).splitlines()]


def test_start_ready_exit(inst):
    d = app(inst, "web")
    inst.up()
    pid = inst.wait_state("web", "running")["pid"]
    wait_for(lambda: got(d, "OnReady"))
    start, ready = got(d, "OnStart"), got(d, "OnReady")
    assert len(start) == 1 and start[0]["type"] == "start" and start[0]["pid"] == pid and start[0]["hook"] == "OnStart"
    assert len(ready) == 1 and ready[0]["type"] == "ready" and ready[0]["app"] == "web" and ready[0]["launch"] == 1
    assert ready[0]["timestamp"].startswith("20")
    wait_for(lambda: "[hook OnReady] said OnReady" in inst.log("web"))
    assert not got(d, "OnExit") and not got(d, "OnFail")
    inst.ok("stop", "web")
    e = wait_for(lambda: got(d, "OnExit"))[0]
    assert e["type"] == "exit" and e["signal"] == "SIGTERM" and e["expected"] is True
    inst.ok("start", "web")
    inst.sbxsv("kill", "-s", "KILL", "web")
    e = wait_for(lambda: got(d, "OnExit")[1:])[0]
    assert e["signal"] == "SIGKILL" and e["expected"] is False
    inst.wait_state("web", "running")
    assert not inst.events("web", "hook")  # nothing went wrong


def test_one_that_is_being_stopped_does_not_get_ready(inst, free_port):
    """It opens its port as the answer to its stop signal, before it was ready: no event says that it is, and no hook runs."""
    port = free_port()
    d = inst.app_dir("web", {"hook.sh": NOTE, "s.py": """
import os, signal, socket, time
told = []
signal.signal(signal.SIGTERM, lambda *a: told.append(1))
print("here", flush=True)
while not told: time.sleep(0.02)
s = socket.socket()
s.bind(("127.0.0.1", int(os.environ["PORT"])))
s.listen()
time.sleep(2)
"""})
    inst.write_unit("web", f"[App]\nExec={PYTHON} s.py\nWorkingDirectory={d}\n[Network]\nListen={port}\n[Ready]\nTimeout=300s\n"
                           "[Stop]\nTimeout=60s\n[Hooks]\nOnReady=/bin/sh hook.sh\n")
    inst.up()
    wait_for(lambda: "here" in inst.log("web"))
    inst.ok("stop", "web")
    assert inst.peek("web")["last_exit"]["code"] == 0
    assert not inst.events("web", "ready") and not got(d, "OnReady") and "listening" not in inst.log("web")


def test_fail(inst):
    d = app(inst, "web", run="exit 3", head="[Restart]\nPolicy=no\n")
    inst.up()
    inst.wait_state("web", "failed")
    e = wait_for(lambda: got(d, "OnFail"))
    assert len(e) == 1 and e[0]["state"] == "failed" and "exited with status 3" in e[0]["reason"]
    assert len(got(d, "OnExit")) == 1


def test_violation_and_a_flood_of_them(inst):
    secret = os.path.join(inst.home, "secret")
    os.mkdir(secret)
    if harness.ROOT:
        os.chown(secret, inst.user.pw_uid, inst.user.pw_gid)
    run = f"i=0; while [ $i -lt 300 ]; do true >{secret}/$i; i=$((i+1)); done; exec sleep 1000"
    d = app(inst, "web", run=run, hooks=("OnViolation",))
    inst.up()
    inst.wait_state("web", "running")
    v = wait_for(lambda: got(d, "OnViolation"))[0]
    assert v["type"] == "violation" and v["operation"] == "file-write" and v["path"].startswith(secret)
    wait_for(lambda: inst.log("web").count("nonexistent") == 300)
    assert len(got(d, "OnViolation")) < 30


@pytest.mark.parametrize("script, said", [("exit 4", "exited with status 4"), ("kill -9 $$", "was killed by SIGKILL"),
                                          ("trap '' TERM; sleep 3991 & sleep 3991", "took longer than 10 s and was killed")])
def test_a_hook_that_fails_or_hangs_blocks_nobody(inst, script, said):
    app(inst, "web", hooks=("OnStart",), script=script)
    other = app(inst, "other")
    inst.up()
    inst.wait_state("web", "running")
    inst.wait_state("other", "running")
    wait_for(lambda: got(other, "OnReady"))
    e = wait_for(lambda: inst.events("web", "hook"))
    assert e[0]["message"] == f"hook OnStart: {said}" and f"[sbxsv] hook OnStart: {said}" in inst.log("web")
    assert inst.peek("web")["state"] == "running" and inst.peek("web")["launches"] == 1


def test_a_program_that_is_not_there(inst):
    d = inst.app_dir("web")
    inst.write_unit("web", f"[App]\nExec=/bin/sleep 1000\nWorkingDirectory={d}\n[Hooks]\nOnStart=/no/such/hook\n")
    inst.up()
    inst.wait_state("web", "running")
    assert "/no/such/hook" in wait_for(lambda: inst.events("web", "hook"))[0]["message"]
    assert inst.peek("web")["state"] == "running"


def test_down_and_remove_do_not_wait_and_leave_nothing(inst):
    app(inst, "web", hooks=("OnStart", "OnExit"), script="trap '' TERM; echo here; while :; do sleep 3992; done")
    inst.up()
    wait_for(lambda: "here" in inst.log("web"))
    inst.remove_unit("web")
    inst.ok("reload")
    wait_for(lambda: inst.peek("web") is None)
    app(inst, "web", hooks=("OnStart", "OnExit"), script="trap '' TERM; echo here2; while :; do sleep 3992; done")
    inst.ok("reload")
    wait_for(lambda: "here2" in inst.log("web"))
    inst.down()
    assert not inst.alive()


def test_the_supervisor_killed(inst):
    app(inst, "web", hooks=("OnStart",), script="trap '' TERM; echo here; while :; do sleep 3993; done")
    p = inst.foreground()
    wait_for(lambda: "here" in inst.log("web"))
    p.kill()
    p.wait()
    wait_for(lambda: not inst.alive())


def test_in_the_jail(inst):
    ssh = os.path.join(inst.home, ".ssh")
    os.mkdir(ssh)
    inst.user_file(os.path.join(ssh, "id"), "secret")
    script = (f"cat {ssh}/id; ls {inst.state} && echo sees state; echo \"net=$(wc -l </proc/net/route) pid=$$\"; touch ok; "
              f"touch {inst.home}/x; pwd; echo end\n")
    d = app(inst, "web", hooks=("OnReady",), script=script)
    inst.up()
    wait_for(lambda: "[hook OnReady] end" in inst.log("web"))
    log = inst.log("web")
    assert "secret" not in log and "sees state" not in log and f"[hook OnReady] {d}" in log
    assert os.path.exists(f"{d}/ok") and not os.path.exists(f"{inst.home}/x")
    assert int(log.split("pid=")[1].split()[0]) < 100  # a pid namespace of its own


def tool(inst, name, text):
    """A program that no app can write: owned like the supervisor, in directories like that."""
    d = os.path.join(inst.base, "tools")
    os.makedirs(d, 0o755, exist_ok=True)
    path = os.path.join(d, name)
    with open(path, "w") as f:
        f.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)
    return path


def outside(inst, command, more=""):
    d = inst.app_dir("web")
    inst.write_unit("web", f"[App]\nExec=/bin/sleep 1000\nWorkingDirectory={d}\nEnvironment=MINE=yes\n{more}[Hooks]\nUnsafe=yes\nOnReady={command}\n")
    return d


def test_outside_only_by_name(inst):
    # below the supervisor's own directories all parents belong to it; /var/tmp is sticky
    t = tool(inst, "note", "read x; echo \"uid=$(id -u) pwd=$(pwd) mine=$MINE hook=$SBXSV_HOOK home=$(ls -d $HOME) leak=${LEAK:-none}\"; echo \"$x\"\n")
    d = outside(inst, t)
    inst.env["LEAK"] = "of the supervisor"
    inst.up()
    wait_for(lambda: '"type":"ready"' in inst.log("web"))
    log = inst.log("web")
    assert f"[hook OnReady] uid={inst.user.pw_uid} pwd=/ mine=yes hook=OnReady" in log and "leak=none" in log, log
    assert not inst.events("web", "hook")


def test_outside_nothing_of_an_app(inst):
    d = outside(inst, "/bin/true")
    other = inst.app_dir("other", {"x.sh": "#!/bin/sh\necho owned\n"})
    os.chmod(f"{other}/x.sh", 0o755)
    app(inst, "other")
    loose = tool(inst, "loose", "echo owned\n")
    os.chmod(loose, 0o777)
    link = os.path.join(inst.base, "tools", "link")
    os.symlink(f"{other}/x.sh", link)
    inst.up()
    inst.wait_state("other", "running")
    for n, (command, said) in enumerate(((f"{other}/x.sh", "lies where an app can write"), (link, "lies where an app can write"),
                                         (f"/bin/sh {other}/x.sh", "lies where an app can write"), (loose, "can be changed by others"))):
        outside(inst, command)
        inst.ok("reload")
        inst.ok("restart", "web")
        wait_for(lambda: len(inst.events("web", "hook")) > n)
        assert said in inst.events("web", "hook")[-1]["message"], inst.events("web", "hook")
    assert "owned" not in inst.log("web")


def test_an_upgrade_waits_for_a_hook(inst):
    d = app(inst, "web", hooks=("OnReady",), script="echo here; sleep 2; echo x >>done\n")
    inst.up()
    wait_for(lambda: "here" in inst.log("web"))
    inst.ok("upgrade")
    assert harness.Instance.read_text(f"{d}/done") == "x\n"


def test_not_for_stdio(inst):
    d = inst.app_dir("x")
    inst.write_unit("x", f"[App]\nMode=stdio\nExec=/bin/cat\nWorkingDirectory={d}\n[Hooks]\nOnStart=/bin/true\n")
    r = inst.sbxsv("check", "x")
    assert r.code == 1 and "Mode=stdio" in r.out + r.err


def test_outside_no_link_that_an_app_can_turn(inst):
    """Where a link leads now says nothing about where it leads in a moment."""
    other = inst.app_dir("other")
    app(inst, "other")
    good = tool(inst, "good", "echo ran\n")
    tools = os.path.dirname(good)
    os.symlink(good, f"{other}/link")
    os.symlink(tools, f"{other}/dir")
    os.symlink(f"{other}/link", f"{tools}/chain")
    os.mkdir(f"{tools}/loose")
    os.chmod(f"{tools}/loose", 0o777)
    os.symlink(good, f"{tools}/loose/link")
    os.symlink("good", f"{tools}/fine")
    outside(inst, "/bin/true")
    inst.up()
    inst.wait_state("other", "running")
    for n, command in enumerate((f"{other}/link", f"{other}/dir/good", f"{tools}/chain", f"{tools}/loose/link",
                                 f"/bin/sh {other}/link", f"/bin/sh {other}/dir/good", f"/bin/sh {tools}/chain")):
        outside(inst, command)
        inst.ok("reload")
        inst.ok("restart", "web")
        wait_for(lambda: len(inst.events("web", "hook")) > n or "ran" in inst.log("web"))
        assert "ran" not in inst.log("web"), command
        said = inst.events("web", "hook")[-1]["message"]
        assert "lies where an app can write" in said or "can be changed by others" in said, said
    # nor by a directory of PATH
    own = inst.app_dir("web", {"mine": "#!/bin/sh\necho ran >&2\n"})
    os.chmod(f"{own}/mine", 0o755)
    outside(inst, tool(inst, "calls", "mine; echo called\n"), f"Path={own}\n")
    inst.ok("reload")
    inst.ok("restart", "web")
    wait_for(lambda: "called" in inst.log("web"))
    assert "ran" not in inst.log("web")
    outside(inst, f"{tools}/fine")
    inst.ok("reload")
    inst.ok("restart", "web")
    wait_for(lambda: "ran" in inst.log("web"))


def test_outside_nothing_of_one_that_hangs_is_left(inst):
    outside(inst, tool(inst, "hang", "(trap '' TERM; sleep 3994; true) &\nsetsid sh -c 'sleep 3994; true' &\nsleep 3994; true\n"))
    inst.up()
    wait_for(lambda: "took longer than 10 s" in inst.log("web"))
    s = inst.wait_state("web", "running")
    wait_for(lambda: not [p for p in inst.alive() if b"3994" in cmdline(p)])
    assert inst.wait_state("web", "running")["pid"] == s["pid"]


@pytest.mark.skipif(harness.ROOT, reason="the kernel's limit on pipe buffers is for ordinary users")
def test_an_event_larger_than_a_pipe_of_a_user_who_has_many(inst):
    """pipe(7), pipe-user-pages-soft: beyond it a new pipe holds 8 KiB."""
    size = int(harness.Instance.read_text("/proc/sys/fs/pipe-max-size"))
    d = app(inst, "web", run="for i in 1 2 3 4 5; do head -c 299 /dev/zero | tr '\\0' '\\001'; echo; done; read x <fifo; exit 3",
            hooks=("OnFail",), head="[Restart]\nPolicy=no\n")
    os.mkfifo(f"{d}/fifo")
    pipes = []
    inst.up()
    try:
        while not pipes or fcntl.fcntl(pipes[-1], F_GETPIPE_SZ) > 8192:
            pipes += os.pipe()
            try:
                if size:
                    fcntl.fcntl(pipes[-1], F_SETPIPE_SZ, size)
            except PermissionError:  # nearly there
                size = 0
        with open(f"{d}/fifo", "w") as f:
            f.write("go\n")
        inst.wait_state("web", "failed")
        e = wait_for(lambda: got(d, "OnFail"))
    finally:
        for fd in pipes:
            os.close(fd)
    assert len(json.dumps(e[0])) > 8192
