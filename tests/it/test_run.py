"""Mode=stdio and `sbxsv run`: servers that an MCP client starts by its configuration, each in the jail of its unit."""
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest

import harness
import mcpclient
import netsup
from harness import NODE, PYTHON, wait_for

UNIT = "[App]\nMode=stdio\nExec={exe}\nWorkingDirectory={d}\n{more}"


def server(inst, name, more="", text=mcpclient.PYTHON_SERVER, exe=f"{PYTHON} server", mark=True):
    d = inst.app_dir(name, {"server": text})
    inst.write_unit(name, UNIT.format(exe=exe, d=d, more=more), mark=mark)
    return d


def config(inst, *names, args=(), env=None):
    """The file of an MCP client. The command is a name: it is found by the client's PATH."""
    path = os.path.join(inst.base, "mcp.json")
    entry = {n: {"command": "sbxsv", "args": ["run", n, *args], "env": env or {}} for n in names}
    with open(path, "w") as f:
        json.dump({"mcpServers": entry}, f)
    return path


class Clients:
    def __init__(self, inst):
        self.inst = inst
        self.all = []

    def __call__(self, name, args=(), env=None, **kw):
        e = dict(self.inst.env, PATH=harness.build_dir() + ":" + self.inst.env["PATH"])
        c = mcpclient.Client(config(self.inst, name, args=args, env=env), name, e, **kw)
        self.all.append(c)
        return c


@pytest.fixture
def client(inst):
    made = Clients(inst)
    yield made
    for c in made.all:
        if c.p.poll() is None:
            c.p.kill()
            c.p.wait()


def shell(inst, name, line, more=""):
    """An app whose behaviour is one line of shell."""
    d = inst.app_dir(name)
    inst.write_unit(name, f"[App]\nMode=stdio\nShell={line}\nWorkingDirectory={d}\n{more}")
    return d


def start(inst, name, *args, **kw):
    kw.setdefault("stdin", subprocess.PIPE)
    return inst.spawn([harness.program("sbxsv"), "run", name, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)


def bindable(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def instances(inst, name):
    return inst.peek(name)["instances"]


# --- the protocol ---

@pytest.mark.parametrize("kind", ["python", "node"])
def test_an_mcp_client_starts_its_server(inst, client, kind):
    if kind == "python":
        server(inst, "tools")
    else:
        server(inst, "tools", text=mcpclient.NODE_SERVER, exe=f"{NODE} server")
    c = client("tools")
    assert c.start()["protocolVersion"] == "2025-06-18"
    assert {"echo", "read", "pid"} <= {t["name"] for t in c.call("tools/list")["tools"]}
    assert c.tool("echo", text="h\u00e9llo \u0000 \U0001f600") == "h\u00e9llo \u0000 \U0001f600"
    big = "x" * (1 << 20)
    for _ in range(3):
        assert c.tool("echo", text=big) == big
    assert int(c.tool("pid")) < 10  # of a pid namespace of its own
    assert c.close() == 0
    assert c.err() == ""


def test_a_large_request_meets_a_large_answer(inst, client):
    """Ten answers of a megabyte wait while ten requests of a megabyte are being written."""
    server(inst, "tools")
    c = client("tools")
    c.start()
    big = "y" * (1 << 20)
    import threading
    writer = threading.Thread(target=lambda: [c.send({"id": 100 + n, "method": "tools/call",
                                                      "params": {"name": "echo", "arguments": {"text": big}}}) for n in range(10)])
    writer.start()
    got = [json.loads(c.p.stdout.readline()) for _ in range(10)]
    writer.join()
    assert [g["id"] for g in got] == list(range(100, 110))
    assert all(g["result"]["content"][0]["text"] == big for g in got)
    assert c.close() == 0


def test_every_byte_passes(inst):
    shell(inst, "cat", "exec cat")
    data = bytes(range(256)) * 4096 + os.urandom(100000)
    r = inst.sbxsv("run", "cat", input=data)
    assert r.code == 0 and r.out == data and r.err == b""


def test_exit_status_arguments_and_environment(inst, client):
    server(inst, "tools", "PassEnvironment=TOKEN\n")
    c = client("tools", args=("--root", "a b"), env={"TOKEN": "t0", "OTHER": "o"})
    c.start()
    assert c.tool("args") == "--root a b"
    assert c.tool("env", name="TOKEN") == "t0" and c.tool("env", name="OTHER") == "(not set)"
    with pytest.raises(EOFError):
        c.tool("crash")
    assert c.p.wait(30) == 7
    shell(inst, "sh", 'echo "$0 $1 $2"; kill -USR1 $$')
    r = inst.sbxsv("run", "sh", "one", "--two")
    assert r.code == 128 + signal.SIGUSR1 and r.out == "sh one --two\n"


def test_a_socket_for_standard_streams(inst):
    """Node's child_process gives sockets."""
    shell(inst, "cat", "exec cat")
    a, b = socket.socketpair()
    p = inst.spawn([harness.program("sbxsv"), "run", "cat"], stdin=b, stdout=b)
    b.close()
    a.sendall(b"hello")
    assert a.recv(100) == b"hello"
    a.shutdown(socket.SHUT_WR)
    assert a.recv(100) == b""
    assert p.wait(30) == 0


# --- its end ---

def gone(inst, name):
    """No process of the app is left: found by the marker of its environment."""
    return not [p for p in inst.alive() if f"sleep {name}".encode() in cmdline(p)]


def cmdline(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().replace(b"\0", b" ")
    except OSError:
        return b""


def test_a_server_that_ignores_the_end_of_its_input_is_ended(inst):
    shell(inst, "deaf", "trap '' TERM; echo up; sleep 3971 & sleep 3971; sleep 3971", "[Stop]\nTimeout=300ms\n")
    p = start(inst, "deaf")
    assert p.stdout.readline() == b"up\n"
    p.stdin.close()
    assert p.wait(30) == 128 + signal.SIGKILL
    assert gone(inst, "3971")


def test_an_answer_that_takes_longer_than_the_patience(inst):
    shell(inst, "slow", "read x; for i in 1 2 3 4 5 6; do sleep 0.4; echo $i; done", "[Stop]\nTimeout=2s\n")
    r = inst.sbxsv("run", "slow", input="go\n")
    assert r.code == 0 and r.out.split() == list("123456")


@pytest.mark.parametrize("supervised", [True, False])
def test_a_client_that_is_killed_leaves_nothing(inst, supervised):
    shell(inst, "srv", "trap '' TERM HUP; sleep 3972 & echo up; cat >/dev/null; exec sleep 3972", "[Stop]\nTimeout=100ms\n")
    if supervised:
        inst.up()
    program = textwrap.dedent(f"""
        import subprocess, sys, time
        p = subprocess.Popen([{harness.program('sbxsv')!r}, "run", "srv"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        sys.stdout.write(p.stdout.readline().decode()); sys.stdout.flush()
        time.sleep(1000)
        """)
    c = inst.spawn([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert c.stdout.readline() == b"up\n"
    if supervised:
        assert len(instances(inst, "srv")) == 1
    c.kill()
    c.wait()
    wait_for(lambda: gone(inst, "3972"))
    if supervised:
        inst.wait_state("srv", "stopped")


def test_run_itself_killed(inst):
    shell(inst, "srv", "setsid sleep 3973 & echo up; exec sleep 3973")
    p = start(inst, "srv")
    assert p.stdout.readline() == b"up\n"
    p.kill()
    wait_for(lambda: gone(inst, "3973"))


def test_signals_are_passed_on(inst):
    shell(inst, "sig", "trap 'echo int' INT; trap 'echo usr; exit 3' USR1; echo up; while :; do sleep 0.05; done")
    p = start(inst, "sig")
    assert p.stdout.readline() == b"up\n"
    p.send_signal(signal.SIGINT)
    assert p.stdout.readline() == b"int\n"
    p.send_signal(signal.SIGUSR1)
    assert p.wait(30) == 3


def test_an_app_that_closes_its_input_still_ends_with_its_client(inst):
    shell(inst, "shut", "exec <&-; echo up; exec sleep 3974", "[Stop]\nTimeout=100ms\n")
    p = start(inst, "shut")
    assert p.stdout.readline() == b"up\n"
    p.stdin.write(b"x" * 100000)  # more than its pipe takes: the rest is not read by anybody
    p.stdin.close()
    assert p.wait(30) == 128 + signal.SIGTERM


# --- with a supervisor ---

def test_shown_logged_and_stopped(inst, client):
    server(inst, "tools")
    inst.up()
    s = inst.peek("tools")
    assert s["state"] == "stopped" and s["instances"] == [] and s["launches"] == 0
    assert "its clients start it" in inst.ok("status")
    a = client("tools")
    a.start()
    wait_for(lambda: len(instances(inst, "tools")) == 1)
    b = client("tools")
    b.start()
    wait_for(lambda: len(instances(inst, "tools")) == 2)
    s = inst.wait_state("tools", "running")
    assert s["launches"] == 2
    for i in s["instances"]:
        assert i["isolation"]["pid_ns"] and i["isolation"]["seccomp"] and harness.proc_start(i["pid"])
        assert i["client"].startswith("python") or i["client"].startswith("pytest")
    assert "2 instances" in inst.ok("status") and "linux" in inst.ok("status")
    assert s["processes"] == 4 and s["memory_bytes"] > 0
    a.tool("complain", text="from the first")
    b.tool("complain", text="from the second")
    wait_for(lambda: "from the second" in inst.ok("logs", "tools"))
    log = inst.ok("logs", "tools")
    assert "from the first" in log and "instance 1 started" in log and "tools/call" not in log
    wait_for(lambda: b"from the first\n" in a.errors)
    assert a.close() == 0
    wait_for(lambda: len(instances(inst, "tools")) == 1)
    assert inst.peek("tools")["state"] == "running"
    assert "1 exited with status 0" in inst.wait_event("tools", "exit")["message"]
    inst.ok("stop", "tools")
    assert inst.peek("tools")["state"] == "stopped"
    assert b.p.wait(30) == 128 + signal.SIGTERM
    assert instances(inst, "tools") == []


def test_what_is_the_clients_is_not_started_by_commands(inst):
    server(inst, "tools")
    shell(inst, "cat", "exec cat")
    d = inst.app_dir("job")
    inst.write_unit("job", f"[App]\nExec=/bin/sleep 600\nWorkingDirectory={d}\n")
    inst.up()
    inst.wait_state("job", "running")
    for verb in ("start", "restart"):
        r = inst.sbxsv(verb, "tools")
        assert r.code == 1 and "sbxsv run tools" in r.err
    inst.ok("start", "--all")
    inst.ok("restart", "--all")
    inst.ok("reload")
    assert inst.peek("tools")["state"] == "stopped" and inst.peek("tools")["launches"] == 0
    r = inst.sbxsv("run", "job", input="")
    assert r.code == 1 and "sbxsv start job" in r.err
    assert inst.sbxsv("run", "no-such", input="").code == 4
    assert inst.sbxsv("run", input="").code == 2
    inst.write_unit("bad", "[App]\nMode=stdio\nExce=x\n", mark=False)
    r = inst.sbxsv("run", "bad", input="")
    assert r.code == 125 and "bad.app:3" in r.err
    server(inst, "nowhere", exe="/no/such/program")
    r = inst.sbxsv("run", "nowhere", input="")
    assert r.code == 125 and "/no/such/program" in r.err


def test_the_supervisor_comes_and_goes(inst, client):
    server(inst, "tools")
    c = client("tools")
    c.start()
    d = inst.foreground()
    wait_for(lambda: (inst.peek("tools") or {}).get("instances"), what="it joins a supervisor that came later")
    assert inst.peek("tools")["launches"] == 0  # of this supervisor
    d.kill()
    d.wait()
    assert c.tool("echo", text="alive") == "alive"
    inst.foreground()
    wait_for(lambda: (inst.peek("tools") or {}).get("instances"))
    c.tool("complain", text="to the new one")
    wait_for(lambda: "to the new one" in inst.ok("logs", "tools"))
    inst.down()
    assert c.p.wait(30) == 128 + signal.SIGTERM


def test_down_is_not_held_up(inst):
    shell(inst, "deaf", "trap '' TERM; echo up; while :; do sleep 1000; done", "[Stop]\nTimeout=1h\n")
    inst.up()
    p = start(inst, "deaf")
    assert p.stdout.readline() == b"up\n"
    wait_for(lambda: instances(inst, "deaf") and instances(inst, "deaf")[0].get("pid"))
    pid = instances(inst, "deaf")[0]["pid"]
    inst.down()
    assert p.wait(30) == -signal.SIGKILL
    wait_for(lambda: harness.proc_start(pid) is None)


def test_run_that_hangs_does_not_hold_up_a_stop(inst):
    shell(inst, "cat", "echo up; exec cat", "[Stop]\nTimeout=100ms\n")
    inst.up()
    p = start(inst, "cat")
    assert p.stdout.readline() == b"up\n"
    wait_for(lambda: instances(inst, "cat"))
    p.send_signal(signal.SIGSTOP)
    inst.ok("stop", "cat")
    assert p.wait(30) == -signal.SIGKILL
    assert inst.peek("cat")["state"] == "stopped"


def test_remove_edit_and_mode_change(inst, free_port):
    d = shell(inst, "cat", "echo up; exec cat")
    inst.up()
    p = start(inst, "cat")
    assert p.stdout.readline() == b"up\n"
    wait_for(lambda: instances(inst, "cat"))
    # a change that needs a new process: the client's goes on, and it is said
    inst.write_unit("cat", f"[App]\nMode=stdio\nShell=echo up; exec cat\nWorkingDirectory={d}\nEnvironment=A=1\n")
    inst.ok("reload")
    s = inst.peek("cat")
    assert s["restart_needed"] and s["instances"][0]["restart_needed"] and s["state"] == "running"
    q = start(inst, "cat")
    assert q.stdout.readline() == b"up\n"
    wait_for(lambda: len(instances(inst, "cat")) == 2)
    assert sorted(i["restart_needed"] for i in instances(inst, "cat")) == [False, True]
    # now the supervisor runs it
    port = free_port()
    inst.write_unit("cat", f"[App]\nExec=/bin/sleep 600\nWorkingDirectory={d}\n[Ready]\nType=exec\n[Network]\nListen={port}\n")
    inst.ok("reload")
    assert p.wait(30) == 128 + signal.SIGTERM and q.wait(30) == 128 + signal.SIGTERM
    assert inst.wait_state("cat", "running")["pid"]
    # and back
    inst.write_unit("cat", f"[App]\nMode=stdio\nShell=echo up; exec cat\nWorkingDirectory={d}\n")
    inst.ok("reload")
    assert inst.wait_state("cat", "stopped")["instances"] == []
    wait_for(lambda: bindable(port))
    p = start(inst, "cat")
    assert p.stdout.readline() == b"up\n"
    wait_for(lambda: instances(inst, "cat"))
    inst.remove_unit("cat")
    inst.ok("reload")
    assert p.wait(30) == 128 + signal.SIGTERM
    wait_for(lambda: inst.peek("cat") is None)


# --- confined ---

def test_confined(inst, client):
    d = server(inst, "tools")
    other = server(inst, "other")
    ssh = os.path.join(inst.home, ".ssh")
    os.mkdir(ssh, 0o700)
    inst.user_file(os.path.join(ssh, "id_rsa"), "secret", 0o600)
    if harness.ROOT:
        os.chown(ssh, inst.user.pw_uid, inst.user.pw_gid)
    inst.up()
    c = client("tools")
    c.start()
    assert "sys.stdin" in c.tool("read", path=os.path.join(d, "server"))
    for path in (os.path.join(ssh, "id_rsa"), os.path.join(other, "server"), inst.unit_path("tools"), inst.control,
                 os.path.join(inst.runtime, "run.sock"), f"/proc/{c.p.pid}/status"):
        with pytest.raises(mcpclient.RpcError):
            c.tool("read", path=path)
    with pytest.raises(mcpclient.RpcError):
        c.tool("connect", target="example.test:443")
    assert c.close() == 0


def test_a_jailed_program_cannot_join(inst):
    """It has the uid of the supervisor, but is in a jail: it may not pass for an instance, whatever it can reach."""
    d = inst.app_dir("box", {"a.py": textwrap.dedent("""
        import socket, time
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            s.connect("run.sock")
            s.send(b'{"t":"run","v":1,"app":"tools"}')
            print("got", s.recv(1000), flush=True)
        except OSError as e:
            print("refused", e, flush=True)
        time.sleep(1000)
        """)})
    server(inst, "tools")
    inst.write_unit("box", f"[App]\nExec={PYTHON} a.py\nWorkingDirectory={d}\nEnabled=no\n[Sandbox]\nUnixSocket={inst.runtime}/run.sock\n")
    inst.up()
    inst.sbxsv("start", "box")
    s = inst.peek("box")
    # the guard does not give it away; if it did, the peer would be refused
    assert s["state"] == "failed" or "refused" in inst.log("box")
    assert instances(inst, "tools") == []


def test_nonsense_on_the_run_socket(inst):
    server(inst, "tools")
    inst.up()
    for text in (b"", b"{", b"[]", b'{"t":"run"}', b'{"t":"run","v":1,"app":"../x"}', b'{"t":"run","v":1,"app":"none"}',
                 b'{"t":"started","pid":1}', b'{"t":"run","v":1,"app":"tools"}'):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.settimeout(20)
        s.connect(os.path.join(inst.runtime, "run.sock"))
        if text:
            s.send(text)
            if text.endswith(b'"tools"}'):
                assert b'"rules"' in s.recv(1 << 16)
                for t in (b'{"t":"started","pid":-1}', b'{"t":"started","pid":"x"}', b'{"t":"exited"}', b'{"t":"event","event":7}',
                          b'{"t":"event","event":{"type":"violation","app":"other","operation":1}}', b'{"t":"lost","n":-1}'):
                    s.send(t)
        s.close()
    inst.wait_state("tools", "stopped")
    assert inst.answers() and not inst.events("other")


# --- network ---

SITES = {"a.test": ["11.2.0.10"], "b.test": ["11.2.0.11"]}


class LabClient:
    """The client has the rights of an ordinary user in the lab."""

    def __init__(self, sup, name):
        e = dict(sup.env, PATH=harness.build_dir() + ":" + sup.env["PATH"])
        self.c = mcpclient.Client(config(sup, name), name, e, cwd=sup.base, **sup._plain({}))
        self.c.start()

    def connect(self, target):
        return int(self.c.tool("connect", target=target).split()[1])


@netsup.lab
def test_sites_of_the_unit_and_of_the_moment(lab, sup):
    lab.dns(SITES)
    lab.tls_site("a.test", "11.2.0.10")
    lab.tls_site("b.test", "11.2.0.11")
    server(sup, "tools", "[Network]\nAllow=a.test\n")
    c = LabClient(sup, "tools")  # without a supervisor
    assert c.connect("a.test:443") == 200 and c.connect("b.test:443") == 403
    assert c.c.close() == 0
    sup.up_all()
    c = LabClient(sup, "tools")
    assert c.connect("a.test:443") == 200 and c.connect("b.test:443") == 403
    v = harness.wait_for(lambda: [v for v in sup.api("GET", "/v1/violations?app=tools")[1]["violations"] if v.get("host") == "b.test"])
    assert v[0]["app"] == "tools" and v[0]["hint"] == "Allow=b.test"
    # rules of the moment reach the instance that runs, and the next one
    sup.ok("allow", "tools", "b.test")
    harness.wait_for(lambda: c.connect("b.test:443") == 200)
    d = LabClient(sup, "tools")
    assert d.connect("b.test:443") == 200
    sup.ok("deny", "tools", "b.test")
    harness.wait_for(lambda: c.connect("b.test:443") == 403 and d.connect("b.test:443") == 403)
    # and so do those that are saved
    sup.ok("allow", "tools", "b.test", "--save")
    harness.wait_for(lambda: c.connect("b.test:443") == 200)
    sup.ok("deny", "tools", "a.test", "--save")
    harness.wait_for(lambda: c.connect("a.test:443") == 403 and d.connect("a.test:443") == 403)
    assert c.c.close() == 0 and d.c.close() == 0


# --- the socket of instances ---

class Joined:
    """A connection of the test's own to run.sock."""

    def __init__(self, inst, app="tools"):
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.s.settimeout(20)
        wait_for(lambda: self.s.connect_ex(os.path.join(inst.runtime, "run.sock")) != errno.EAGAIN)  # its queue is short
        if app:
            self.say(t="run", v=1, app=app)

    def say(self, **m):
        self.s.send(json.dumps(m).encode())

    def hear(self):
        data, fds, _, _ = socket.recv_fds(self.s, 1 << 18, 4)
        for fd in fds:
            os.close(fd)
        return json.loads(data) if data else None


@pytest.fixture
def joined(inst):
    """joined(app). All are closed before the supervisor is: it would kill this process for an instance that does not end."""
    all = []

    def join(*a):
        all.append(Joined(inst, *a))
        return all[-1]
    yield join
    for j in all:
        j.s.close()
    wait_for(lambda: all == [] or not inst.answers() or not any(a.get("instances") for a in inst.api("GET", "/v1/status")[1]["apps"]))


def test_without_the_rules_of_a_supervisor_that_is_there_nothing_begins(inst):
    """Its queue is full, for it was stopped: what it was told to deny is not known."""
    shell(inst, "cat", "exec cat")
    d = inst.foreground()
    waiting = []
    d.send_signal(signal.SIGSTOP)
    try:
        while True:
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            waiting.append(s)
            try:
                s.connect(os.path.join(inst.runtime, "run.sock"))
            except BlockingIOError:
                break
        r = inst.sbxsv("run", "cat", input="hello\n")
        assert r.code == 125 and "does not answer" in r.err and r.out == ""
        p = start(inst, "cat")  # and one that is answered in time
    finally:
        d.send_signal(signal.SIGCONT)
        for s in waiting:
            s.close()
    out, err = p.communicate(b"hello\n", timeout=30)
    assert (p.returncode, out, err) == (0, b"hello\n", b"")


def test_too_many_instances_are_told_so(inst, joined):
    names = [f"a{n}" for n in range(6)]
    for n in names:
        shell(inst, n, "exec cat")
    inst.up()
    all = [joined(names[n // 48]) for n in range(256)]
    assert {j.hear()["t"] for j in all} == {"rules"}
    r = inst.sbxsv("run", "a5", input="hello\n")
    assert r.code == 1 and "256 instances" in r.err and r.out == ""
    for j in all[:48]:
        j.s.close()
    wait_for(lambda: not instances(inst, "a0"))
    assert inst.sbxsv("run", "a5", input="hello\n").out == "hello\n"
    one = [joined("a0") for _ in range(49)]
    assert [j.hear()["t"] for j in one] == ["rules"] * 48 + ["refused"]


def test_an_instance_that_comes_back_is_one(inst):
    """It took no messages for a while, so an upgrade could not keep its connection."""
    shell(inst, "cat", "echo up; exec cat")
    inst.up()
    p = start(inst, "cat")
    assert p.stdout.readline() == b"up\n"
    before = wait_for(lambda: [i for i in instances(inst, "cat") if i.get("pid")])[0]
    p.send_signal(signal.SIGSTOP)
    for n in range(120):
        assert inst.api("POST", "/v1/apps/cat/deny", {"host": f"{n:060}.test"})[0] == 200
    inst.ok("upgrade")
    p.send_signal(signal.SIGCONT)
    wait_for(lambda: any(i["number"] != before["number"] and i.get("pid") for i in instances(inst, "cat")))
    after = wait_for(lambda: instances(inst, "cat"))
    assert [i["pid"] for i in after] == [before["pid"]] and after[0]["uptime_ms"] >= before["uptime_ms"]
    p.stdin.close()
    assert p.wait(30) == 0
    inst.wait_state("cat", "stopped")


def test_hostile_messages_on_the_run_socket(inst, joined):
    server(inst, "tools")
    inst.up()
    fds = inst.api("GET", "/v1/status")[1]["supervisor"]["fds"]
    null = os.open("/dev/null", os.O_RDWR)
    hello = b'{"t":"run","v":1,"app":"tools"}'

    def ended(j):
        try:
            return j.s.recv(1 << 18) == b""
        except ConnectionResetError:
            return True

    for text, n in ((b'{"t":"ru', 0), (b"x" * 200000, 0), (b'"' * 160000, 0), (b"{}" + b" " * 163838, 0), (b"\0" * 100, 0), (b"[" * 100000, 0),
                    (hello[:-1], 253), (b"\xff\xfe", 1)):
        j = joined(None)
        socket.send_fds(j.s, [text], [null] * n)
        if text[:2] == b"{}":
            assert j.hear()["t"] == "refused"
        assert ended(j), text[:20]
    # descriptors that nobody asked for are closed; nonsense of one that has joined is dropped
    j = joined(None)
    socket.send_fds(j.s, [hello], [null] * 253)
    assert j.hear()["t"] == "rules"
    for m in ({"t": "lost", "n": -1}, {"t": "lost", "n": 1e300}, {"t": "lost"}, {"t": "exited", "status": -1}, {"t": "exited", "status": 0x7f},
              {"t": "exited", "status": 1 << 40}, {"t": "started", "pid": 0}, {"t": "started", "pid": 1 << 40}, {"t": "run", "v": 1, "app": "tools"}):
        j.say(**m)
    socket.send_fds(j.s, [b'{"t":"unknown"}'], [null] * 100)
    j.say(t="lost", n=3)
    wait_for(lambda: inst.peek("tools")["violations"]["lost"])
    s = inst.peek("tools")
    assert s["violations"]["lost"] == 3 and "last_exit" not in s and "pid" not in s["instances"][0]
    j.s.close()
    os.close(null)
    many = []
    for _ in range(1000):
        many.append(joined("tools" if len(many) % 2 else None))
        if len(many) > 200:
            many.pop(0).s.close()
    for j in many:
        j.s.close()
    inst.wait_state("tools", "stopped")
    assert instances(inst, "tools") == []
    wait_for(lambda: inst.api("GET", "/v1/status")[1]["supervisor"]["fds"] <= fds + 2)
