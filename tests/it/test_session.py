"""Mode=session: the first client starts the app, and it ends when nobody uses it."""
import os
import signal
import socket
import threading
import time

import netlab
import netsup
import pytest

from harness import PYTHON, http_get, kill_pid, proc_start, wait_for

GENEROUS = 60  # guards against hanging, not a limit of the product
SESSION = "Mode=session"


def idle_after(seconds, more=""):
    return f"[Session]\nIdleTimeout={seconds}\n{more}"


def session(inst, name, port, seconds="1s", more="", body="", app=""):
    return inst.server_unit(name, port, body=idle_after(seconds, more) + body, extra_app=SESSION + "\n" + app)


def post(inst, app, verb):
    return inst.api("POST", f"/v1/apps/{app}/{verb}", {"wait": True}, timeout=GENEROUS)[1]


def states(inst, app):
    return [e["state"] for e in inst.events(app, "state")]


class Client:
    """A connection that stays open; HTTP/1.1 of appserver.py."""

    def __init__(self, port, host="127.0.0.1", family=socket.AF_INET):
        self.s = socket.socket(family)
        self.s.settimeout(GENEROUS)
        self.s.connect((host, port))

    def get(self, path="/"):
        self.s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return self.read()

    def read(self):
        data = b""
        while b"\r\n\r\n" not in data:
            more = self.s.recv(65536)
            if not more:
                raise ConnectionError(f"ended: {data!r}")
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        while len(body) < length:
            more = self.s.recv(65536)
            if not more:
                raise ConnectionError(f"ended after {len(body)} of {length} bytes")
            body += more
        return body.decode()

    def close(self):
        self.s.close()


def ends(port):
    """What becomes of a connection: "reset" or "closed" (never an answer)."""
    try:
        with socket.create_connection(("127.0.0.1", port), GENEROUS) as s:
            s.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return "closed" if not s.recv(1) else "answered"
    except TimeoutError:
        raise
    except OSError:
        return "reset"


# --- the life of one ---

def test_first_client_starts_it_and_it_rests_again(inst, free_port):
    port = free_port()
    session(inst, "notes", port)
    inst.up()
    s = inst.wait_state("notes", "idle")
    assert s["launches"] == 0 and "pid" not in s and s["gate"] == "rest" and s["ports"][0]["state"] == "held"
    assert s["session"]["idle_timeout_ms"] == 1000 and s["session"]["idle_by"] == "connections" and "idle_ms" in s["session"]
    assert http_get(port).text.startswith("ok ")
    s = inst.peek("notes")
    assert s["state"] == "running" and s["launches"] == 1
    s = inst.wait_state("notes", "idle")
    assert "pid" not in s and s["launches"] == 1 and s["last_exit"]["signal"] == "SIGTERM"
    assert http_get(port).text.startswith("ok ") and inst.peek("notes")["launches"] == 2
    inst.wait_state("notes", "idle")
    assert states(inst, "notes") == ["idle", *["starting", "running", "stopping", "idle"] * 2]
    stop = [e for e in inst.events("notes", "state") if e["state"] == "stopping"][0]
    assert stop["reason"] == "nobody has used it for 1.000 s" and "next client" in stop["hint"]
    assert all(e["expected"] for e in inst.events("notes", "exit"))


def test_status_says_resting_and_how_long(inst, free_port):
    port = free_port()
    session(inst, "notes", port, "30s")
    inst.up()
    inst.wait_state("notes", "idle")
    table = inst.ok("status")
    assert "idle" in table and "resting for" in table and "starts with the next connection" in table
    r = inst.sbxsv("status", "notes")
    assert r.code == 0 and "resting" in r.out, r
    c = Client(port)
    assert c.get().startswith("ok ")
    s = wait_for(lambda: (x := inst.peek("notes"))["session"].get("connections") == 1 and x)
    assert "rests_in_ms" not in s["session"]
    assert "1 connection" in inst.ok("status")
    c.close()
    s = wait_for(lambda: (x := inst.peek("notes"))["session"].get("rests_in_ms") and x)
    assert s["session"]["connections"] == 0 and s["session"]["idle_ms"] + s["session"]["rests_in_ms"] == 30000
    assert "rests in" in inst.ok("status") and "rests in" in inst.ok("status", "notes")


def test_open_connections_are_use_and_checks_are_not(inst, free_port):
    port, checked = free_port(), free_port()
    session(inst, "notes", port)
    session(inst, "sick", checked, body="[Health]\nHttp=/\nInterval=100ms\n[Ready]\nType=http\n")
    inst.up()
    c = Client(port)  # as a WebSocket is: open and silent
    assert c.get().startswith("ok ")
    assert http_get(checked).text.startswith("ok ")
    assert inst.wait_state("sick", "idle")["launches"] == 1  # though it is asked all the time
    assert inst.peek("notes")["state"] == "running"
    assert c.get("/sleep?s=1.5") == "slept" and inst.peek("notes")["launches"] == 1
    c.close()
    inst.wait_state("notes", "idle")


def test_a_slow_start_makes_the_client_wait(inst, free_port):
    port = free_port()
    d = session(inst, "slow", port)
    inst.user_file(os.path.join(d, "slow.py"), "import time, runpy\ntime.sleep(1.5)\nrunpy.run_path('appserver.py', run_name='__main__')\n")
    text = inst.read_text(inst.unit_path("slow")).replace("appserver.py", "slow.py")
    inst.write_unit("slow", text)
    inst.up()
    inst.wait_state("slow", "idle")
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(http_get(port, timeout=GENEROUS).text)) for _ in range(20)]
    for t in threads:
        t.start()
    gone = socket.create_connection(("127.0.0.1", port))  # a client that loses patience costs nobody anything
    gone.close()
    for t in threads:
        t.join(GENEROUS)
    assert len(answers) == 20 and all(a.startswith("ok ") for a in answers)
    assert inst.wait_state("slow", "idle")["launches"] == 1


@pytest.mark.parametrize("how", ["exit 1", "exit 0", "hang"])
def test_a_start_that_fails_ends_the_clients(inst, free_port, how):
    port = free_port()
    d = inst.app_dir("bad")
    command = "sleep 1000" if how == "hang" else how
    inst.write_unit("bad", f"[App]\nShell={command}\nWorkingDirectory={d}\n{SESSION}\n[Network]\nListen={port}\n"
                           "[Restart]\nSec=10ms\nLimitBurst=3\n[Ready]\nTimeout=200ms\n" + idle_after("1s"))
    inst.up()
    inst.wait_state("bad", "idle")
    assert ends(port) in ("reset", "closed")
    s = inst.wait_state("bad", "failed")
    assert s["launches"] == 3 and s["reason"] and s["hint"]
    assert ends(port) in ("reset", "closed") and inst.peek("bad")["launches"] == 3
    assert inst.sbxsv("status", "bad").code == 3


def test_a_person_starts_and_stops_it(inst, free_port):
    port = free_port()
    session(inst, "notes", port)
    inst.up()
    inst.wait_state("notes", "idle")
    assert post(inst, "notes", "start")["code"] == 0 and inst.peek("notes")["state"] == "running"
    assert inst.wait_state("notes", "idle")["launches"] == 1  # it rests again by itself
    assert post(inst, "notes", "stop")["code"] == 0
    assert inst.peek("notes")["state"] == "stopped" and ends(port) in ("reset", "closed")
    assert inst.peek("notes")["launches"] == 1 and inst.peek("notes")["state"] == "stopped"
    assert inst.sbxsv("status", "notes").code == 3
    assert post(inst, "notes", "start")["code"] == 0
    c = Client(port)
    assert c.get().startswith("ok ")
    assert post(inst, "notes", "stop")["code"] == 0  # also while it is used
    assert inst.peek("notes")["state"] == "stopped"
    with pytest.raises(OSError):
        c.get()
    assert post(inst, "notes", "restart")["code"] == 0 and inst.peek("notes")["state"] == "running"
    inst.wait_state("notes", "idle")
    assert post(inst, "notes", "restart")["code"] == 0  # of an idle one: as start
    assert inst.peek("notes")["state"] == "running"


def test_all_means_idle(inst, free_port):
    ports = {n: free_port() for n in ("a", "b")}
    for n, p in ports.items():
        session(inst, n, p, "30s")
    inst.up()
    for n in ports:
        inst.wait_state(n, "idle")
    inst.ok("restart", "--all")
    assert [inst.peek(n)["state"] for n in ports] == ["idle", "idle"]
    assert http_get(ports["a"]).text.startswith("ok ")
    inst.ok("restart", "--all")
    assert inst.peek("a")["state"] == "running" and inst.peek("a")["launches"] == 2
    assert inst.peek("b")["state"] == "idle" and inst.peek("b")["launches"] == 0
    inst.ok("stop", "--all")
    assert [inst.peek(n)["state"] for n in ports] == ["stopped", "stopped"]
    inst.ok("start", "--all")
    assert [inst.peek(n)["state"] for n in ports] == ["idle", "idle"]
    assert http_get(ports["b"]).text.startswith("ok ")


# --- ends that nobody asked for ---

def test_a_crash_is_followed_by_the_restart_policy(inst, free_port):
    port, no = free_port(), free_port()
    session(inst, "notes", port, body="[Restart]\nSec=10ms\n")
    session(inst, "once", no, body="[Restart]\nPolicy=no\n")
    inst.up()
    c = Client(port)
    assert c.get().startswith("ok ")
    pid = inst.peek("notes")["pid"]
    kill_pid(pid)
    with pytest.raises(OSError):
        c.get()
    wait_for(lambda: inst.peek("notes").get("pid") != pid)  # until then one may reach the dying process
    assert http_get(port).text.startswith("ok ")
    assert inst.wait_state("notes", "idle")["launches"] == 2
    assert http_get(no).text.startswith("ok ")
    kill_pid(inst.peek("once")["pid"])
    assert "SIGKILL" in inst.wait_state("once", "failed")["reason"]
    assert ends(no) in ("reset", "closed")


def test_one_that_ends_by_itself_rests(inst, free_port):
    port = free_port()
    session(inst, "notes", port, "30s")
    inst.up()
    for n in (1, 2):
        c = Client(port)
        assert c.get().startswith("ok ")
        with pytest.raises(OSError):
            c.get("/exit?code=0")
        s = inst.wait_state("notes", "idle")
        assert s["launches"] == n and "reason" not in s


def test_one_that_ends_at_once_is_not_started_for_ever(inst, free_port):
    """Type=exec: it is ready before its client can be served, and ends with success."""
    port = free_port()
    d = inst.app_dir("brief")
    inst.write_unit("brief", f"[App]\nShell=exit 0\nWorkingDirectory={d}\n{SESSION}\n[Network]\nListen={port}\n"
                             "[Ready]\nType=exec\n[Restart]\nLimitBurst=4\nSec=10ms\n" + idle_after("1s"))
    inst.up()
    inst.wait_state("brief", "idle")
    assert ends(port) in ("reset", "closed")
    assert inst.wait_state("brief", "failed")["launches"] == 4


def test_a_proxy_that_dies_takes_nobody_along_but_the_connected(inst, free_port):
    port = free_port()
    session(inst, "notes", port)
    inst.up()
    inst.wait_state("notes", "idle")

    def new_proxy():
        old = inst.proxy_pid()
        kill_pid(old)
        wait_for(lambda: inst.proxy_pid() not in (None, old))
    new_proxy()  # while it is idle
    assert http_get(port).text.startswith("ok ")
    pid = inst.peek("notes")["pid"]
    c = Client(port)
    assert c.get().startswith("ok ")
    new_proxy()  # its connections are gone, and counted no longer
    with pytest.raises(OSError):
        c.get()
    assert http_get(port).text.split()[1] and inst.peek("notes")["pid"] == pid
    assert inst.wait_state("notes", "idle")["launches"] == 1
    old = inst.proxy_pid()
    os.kill(old, signal.SIGSTOP)
    waiting = Client(port)
    kill_pid(old)  # who waits in the queue is found by the next one
    assert waiting.get().startswith("ok ")


def test_a_client_of_the_last_moment_is_served(inst, free_port):
    """The app takes its time to end; who comes meanwhile waits for the next process."""
    port = free_port()
    d = session(inst, "notes", port, body="[Stop]\nTimeout=30s\n")
    inst.user_file(os.path.join(d, "late.py"),
                   "import os, runpy, signal, time\nsignal.signal(15, lambda *a: (open('ending', 'w'), time.sleep(0.7), os._exit(0)))\n"
                   "runpy.run_path('appserver.py', run_name='__main__')\n")
    inst.write_unit("notes", inst.read_text(inst.unit_path("notes")).replace("appserver.py", "late.py"))
    inst.up()
    assert http_get(port).text.startswith("ok ")
    wait_for(lambda: os.path.exists(os.path.join(d, "ending")))
    s = inst.peek("notes")
    assert s["state"] == "stopping" and s["gate"] == "hold"
    assert http_get(port).text.startswith("ok ")
    assert inst.peek("notes")["launches"] == 2


# --- the unit changes ---

def test_reload_remove_and_break_one_that_rests(inst, free_port):
    port, moved = free_port(), free_port()
    d = session(inst, "notes", port)
    inst.up()
    inst.wait_state("notes", "idle")
    text = inst.read_text(inst.unit_path("notes"))
    inst.write_unit("notes", text.replace("IdleTimeout=1s", "IdleTimeout=2s"))
    inst.ok("reload")
    s = inst.peek("notes")
    assert s["state"] == "idle" and s["session"]["idle_timeout_ms"] == 2000 and s["launches"] == 0
    inst.write_unit("notes", text.replace(f"Listen={port}", f"Listen={moved}:{port}"))  # another port of the host
    inst.ok("reload")
    assert inst.peek("notes")["state"] == "idle" and http_get(moved).text.startswith("ok ")
    with pytest.raises(OSError):
        http_get(port)
    inst.wait_state("notes", "idle")
    inst.write_unit("notes", text + "[App]\nNonsense=1\n")  # broken: who connects has to hear it
    assert inst.sbxsv("reload").code == 1
    assert "Nonsense" in inst.wait_state("notes", "failed")["reason"] and ends(moved) in ("reset", "closed")
    inst.write_unit("notes", text)
    inst.ok("reload")
    inst.wait_state("notes", "idle")
    assert http_get(port).text.startswith("ok ")
    inst.wait_state("notes", "idle")
    inst.write_unit("notes", text.replace(SESSION, "").replace(idle_after("1s"), ""))
    inst.ok("reload")
    inst.wait_state("notes", "running")
    inst.write_unit("notes", text.replace(SESSION, SESSION + "\nEnabled=no"))
    inst.ok("reload")
    inst.wait_state("notes", "stopped")
    inst.write_unit("notes", text)
    inst.ok("reload")
    inst.wait_state("notes", "idle")
    inst.remove_unit("notes")
    inst.ok("reload")
    wait_for(lambda: inst.peek("notes") is None)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5).close()
    assert os.path.isdir(d)


def test_changes_of_a_running_one_are_live(inst, free_port):
    port = free_port()
    session(inst, "notes", port, "300s")
    inst.up()
    assert http_get(port).text.startswith("ok ")
    pid = inst.peek("notes")["pid"]
    inst.write_unit("notes", inst.read_text(inst.unit_path("notes")).replace("IdleTimeout=300s", "IdleTimeout=1s"))
    inst.ok("reload")
    s = inst.wait_state("notes", "idle")
    assert s["launches"] == 1 and proc_start(pid) is None


def test_by_traffic_a_silent_connection_is_no_use(inst, free_port):
    port = free_port()
    session(inst, "notes", port, "3s", more="IdleBy=traffic\n")
    inst.up()
    c = Client(port)
    end = time.monotonic() + 4
    while time.monotonic() < end:  # longer than IdleTimeout: it is in use
        assert c.get().startswith("ok ")
        time.sleep(0.1)
    assert inst.peek("notes")["launches"] == 1
    assert inst.wait_state("notes", "idle")["launches"] == 1
    with pytest.raises(OSError):
        c.get()
    assert http_get(port).text.startswith("ok ")


def test_a_port_that_is_taken(inst, free_port):
    port = free_port()
    session(inst, "notes", port)
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", port))
        s.listen()
        inst.up()
        assert str(port) in inst.wait_state("notes", "failed")["reason"]
    inst.ok("start", "--all")
    assert inst.peek("notes")["state"] == "idle" and http_get(port).text.startswith("ok ")


def test_what_cannot_be_one(inst, free_port):
    d = inst.app_dir("x")
    head = f"[App]\nExec={PYTHON} x.py\nWorkingDirectory={d}\n{SESSION}\n"
    inst.write_unit("silent", head)
    inst.write_unit("bare", head + f"[Network]\nListen={free_port()}\n[Sandbox]\nEnforce=off\n")
    r = inst.sbxsv("check")
    assert r.code == 1 and "Mode=session needs a Listen=" in r.out + r.err, r
    assert "Mode=session needs a jail, which Enforce=off does not make" in r.out + r.err, r


# --- from other places: the LAN, and other apps ---

def ask_agent(s, source):
    data = source.encode()
    s.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data)


@netsup.lab
def test_clients_that_are_gone_without_a_word_pin_nothing(lab, sup):
    """A neighbour vanishes: with a silent connection, and while an answer is on its way. One that only does not read stays."""
    lan = lab.lan()
    lan.ip("link set lan address 02:00:00:00:77:02")
    netlab.ip("neigh replace 192.168.77.2 lladdr 02:00:00:00:77:02 dev lan nud permanent")  # packets go there to the end
    for name in ("silent", "sending", "paused"):
        sup.agent(name, "ListenAddress=0.0.0.0", app=SESSION, body=idle_after("1s"))
    sup.up()
    conns = {}
    for name in ("silent", "sending"):
        conns[name] = lan.connect(("192.168.77.1", sup.ports[name]), GENEROUS)
        ask_agent(conns[name], "result = 1")
        assert conns[name].recv(4096)
    paused = socket.create_connection(("192.168.77.1", sup.ports["paused"]), GENEROUS,
                                      source_address=("192.168.77.1", 0))  # another address than loopback: looked at alike
    ask_agent(paused, "result = 'x' * 30_000_000")
    ask_agent(conns["sending"], "time.sleep(1); result = 'x' * 1000")
    lan.ip("addr flush dev lan")  # nobody has that address any more, and nobody says so
    for name in conns:
        assert sup.wait_state(name, "idle")["launches"] == 1, name
    time.sleep(3)  # it has been silent for as long as they were, and is looked at again
    got = 0
    while got < 30_000_000:
        more = paused.recv(1 << 20)
        assert more, f"ended after {got} bytes"
        got += len(more)
    paused.close()
    sup.wait_state("paused", "idle")
    for c in conns.values():
        c.close()


@netsup.lab
def test_an_app_wakes_another(lab, sup):
    """Loopback=app:NAME: what it connects to starts, and rests again when it has gone, though the first app lives on."""
    notes = sup.agent("notes", app=SESSION, body=idle_after("1s"))
    sup.agent("box", "Loopback=app:notes")
    sup.up()
    sup.wait_state("box", "running")
    sup.wait_state("notes", "idle")
    for n in (1, 2):
        assert "ok " in sup.run("box", f"result = read_from('127.0.0.1', {notes}, b'GET / HTTP/1.0\\r\\n\\r\\n')")
        assert sup.peek("notes")["launches"] == n
        sup.wait_state("notes", "idle")


def test_upgrades_in_place_lose_nobody(inst, free_port):
    """While it rests, while it is used, and while it ends."""
    port = free_port()
    d = session(inst, "notes", port)
    inst.user_file(os.path.join(d, "late.py"),
                   "import os, runpy, signal, time\nsignal.signal(15, lambda *a: (open('ending', 'w'), time.sleep(0.5), os._exit(0)))\n"
                   "runpy.run_path('appserver.py', run_name='__main__')\n")
    inst.write_unit("notes", inst.read_text(inst.unit_path("notes")).replace("appserver.py", "late.py"))
    inst.up()
    inst.wait_state("notes", "idle")
    inst.ok("upgrade")
    assert inst.peek("notes")["state"] == "idle"
    c = Client(port)
    assert c.get().startswith("ok ")
    pid = inst.peek("notes")["pid"]
    inst.ok("upgrade")
    assert c.get().startswith("ok ") and inst.peek("notes")["pid"] == pid
    time.sleep(1.2)
    assert inst.peek("notes")["pid"] == pid  # it is used, and the next supervisor knows
    c.close()
    wait_for(lambda: os.path.exists(os.path.join(d, "ending")))
    inst.ok("upgrade")
    assert http_get(port).text.startswith("ok ")
    assert inst.wait_state("notes", "idle")["launches"] == 2
