"""What sbxsv-proxy says of the use of a session app: `wanted` at gate `rest`, `unused` at gate `serve`, each with its number."""
import os
import re
import select
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import harness
import netlab
import proxydrv
from test_proxy_forward import APP_PORT, App, echo, is_reset

QUIET = 0.5  # seconds in which a word that should not come would have come


class Driver:
    def __init__(self, lab, address="127.0.0.1"):
        self.jail = lab.jail()
        self.app = App(self.jail, echo)
        self.proxy = proxydrv.Proxy(self.jail.pool_socket, log=open(lab.path("proxy.log"), "w"))
        self.listener = socket.create_server((address, 0), backlog=256)
        self.proxy.listen("notes", [(self.listener, APP_PORT)])

    def gate(self, mode, n, **kw):
        self.proxy.send("gate", app="notes", mode=mode, n=n, **({"idle_ms": 300, "idle_by": "connections"} | kw))

    def says(self, what):
        m = self.proxy.wait(what)
        return m["app"], m["n"]

    def silent(self):
        """Neither word comes."""
        end = time.monotonic() + QUIET
        while time.monotonic() < end:
            self.proxy.pump(0.05)
        assert not [m for m in self.proxy.messages if m["t"] in ("wanted", "unused")], self.proxy.messages
        return True

    def client(self):
        return socket.create_connection(self.listener.getsockname(), 20)

    def echoes(self, c):
        c.sendall(b"x")
        while not select.select([c], [], [], 0)[0]:  # recv() would wait for as long as the socket's timeout, and answer no `need`
            self.proxy.pump(0.01)
        return c.recv(1) == b"x"

    def close(self):
        self.proxy.close()
        self.app.close()


@netlab.isolated
def test_wanted_once_a_gate_and_nothing_is_accepted():
    with netlab.Lab() as lab:
        d = Driver(lab)
        d.gate("rest", 1)
        assert d.silent()
        c = d.client()
        assert d.says("wanted") == ("notes", 1) and d.silent()
        d.client().close()
        assert d.silent()  # said once
        d.gate("rest", 2)  # a newer order: looked at again
        assert d.says("wanted") == ("notes", 2)
        d.gate("hold", 3)
        assert d.silent()
        d.proxy.jail("notes")
        d.gate("serve", 4)
        assert d.echoes(c)
        c.close()
        d.close()


@netlab.isolated
def test_unused_when_the_last_one_has_gone():
    with netlab.Lab() as lab:
        d = Driver(lab)
        d.proxy.jail("notes")
        d.gate("serve", 1)
        a, b = d.client(), d.client()
        assert d.echoes(a) and d.echoes(b)
        a.close()
        assert d.silent()
        d.gate("serve", 2, idle_ms=301)  # the clock goes on; the number is the newest
        assert "unused_ms" not in d.proxy.counters("notes")
        b.close()
        assert d.says("unused") == ("notes", 2)
        late = d.client()  # the gate is `hold` by itself: this one is not accepted, and waits
        assert d.silent() and d.proxy.counters("notes")["in_total"] == 2
        d.proxy.send("drop", app="notes")
        d.gate("rest", 3)
        assert d.says("wanted") == ("notes", 3)
        d.proxy.jail("notes")
        d.gate("serve", 4)
        assert d.echoes(late) and d.silent()
        late.close()
        assert d.says("unused") == ("notes", 4)
        d.gate("serve", 5)  # not believed: it serves on, and counts anew
        assert d.says("unused") == ("notes", 5)
        d.gate("reset", 6)
        assert is_reset(d.client) and d.silent()
        d.close()


@netlab.isolated
def test_one_left_over_from_a_launch_is_wanted():
    """Accepted, but not connected to the app when it ended: it is not in the queue of the kernel."""
    with netlab.Lab() as lab:
        d = Driver(lab)
        d.proxy.make_socket = None  # no socket for it
        d.proxy.jail("notes")
        d.gate("serve", 1, idle_ms=60000)
        c = d.client()
        while d.proxy.counters("notes")["in_open"] != 1:
            pass
        d.gate("serve", 2)
        assert d.silent()
        d.proxy.send("drop", app="notes")
        d.gate("rest", 3)
        assert d.says("wanted") == ("notes", 3)
        d.proxy.make_socket = d.jail.pool_socket
        d.proxy.jail("notes")
        d.gate("serve", 4)
        assert d.echoes(c)
        d.close()


@netlab.isolated
def test_one_that_came_before_the_first_gate_is_asked_whether_it_is_there():
    """It was in the queue of the kernel when nobody had said yet that the app may rest: it would have been asked after two hours."""
    with netlab.Lab() as lab:
        lan = lab.lan()
        d = Driver(lab, "192.168.77.1")
        c = lan.connect(d.listener.getsockname(), 20)
        d.proxy.jail("notes")
        d.gate("serve", 1, idle_ms=60000)
        assert d.echoes(c)
        port = d.listener.getsockname()[1]
        timer = harness.wait_for(lambda: re.search(r"timer:\(keepalive,([^,]*)", subprocess.run(
            ["ss", "-Htno", "state", "established", f"sport = :{port}"], capture_output=True, text=True, check=True).stdout), 60)
        assert re.fullmatch(r"[0-9.]+m?s(ec)?", timer[1]), timer[1]  # and not 119min
        d.close()


@netlab.isolated
def test_by_traffic():
    with netlab.Lab() as lab:
        d = Driver(lab)
        d.proxy.jail("notes")
        d.gate("serve", 1, idle_ms=3000, idle_by="traffic")
        c = d.client()
        end = time.monotonic() + 4
        while time.monotonic() < end:
            assert d.echoes(c)
            time.sleep(0.1)
        assert not [m for m in d.proxy.messages if m["t"] == "unused"]
        assert d.says("unused") == ("notes", 1) and d.echoes(c)  # it is the supervisor who ends it
        d.close()


@netlab.isolated
def test_apps_of_other_modes_are_never_spoken_of():
    with netlab.Lab() as lab:
        d = Driver(lab)
        d.proxy.jail("notes")
        d.gate("serve", 1, idle_ms=0)
        assert d.silent()
        c = d.client()
        assert d.echoes(c) and "unused_ms" not in d.proxy.counters("notes")
        c.close()
        assert d.silent()
        d.close()
