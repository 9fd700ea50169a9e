"""sbxsv-proxy inbound: from a port of the host into a jail, and Loopback= back out."""
import hashlib
import os
import resource
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import netlab
import proxydrv

APP_PORT = 8000


class App:
    """A server inside the jail, in threads: calls handler(socket, peer) for each connection."""

    def __init__(self, jail, handler, address="127.0.0.1", port=APP_PORT, backlog=256):
        self.listener = jail.listen((address, port), backlog)
        self.handler = handler
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                s, peer = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.handler, args=(s, peer), daemon=True).start()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self.listener.close()


def echo(s, peer):
    try:
        while data := s.recv(1 << 16):
            s.sendall(data)
        s.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    s.close()


def say_peer(s, peer):
    s.sendall(peer[0].encode())
    s.close()


class Setup:
    def __init__(self, lab, bind="127.0.0.1", gate="serve", args=(), nofile=None):
        self.lab = lab
        self.jail = lab.jail()
        self.proxy = proxydrv.Proxy(self.jail.pool_socket, args=args, log=open(lab.path("proxy.log"), "w"), nofile=nofile)
        self.listener = socket.create_server((bind, 0), backlog=256,
                                             dualstack_ipv6=":" in bind,
                                             family=socket.AF_INET6 if ":" in bind else socket.AF_INET)
        self.port = self.listener.getsockname()[1]
        self.tell(gate)
        # answers `need` while the test does something else
        self.stopping = False
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def tell(self, gate):
        self.proxy.listen("notes", [(self.listener, APP_PORT)])
        self.proxy.gate("notes", gate)
        self.proxy.jail("notes")

    def serve(self):
        while not self.stopping:
            with self.lock:
                try:
                    self.proxy.pump(0.002)
                except (OSError, EOFError, ValueError):
                    pass
            time.sleep(0.0005)

    def counters(self):
        with self.lock:
            return self.proxy.counters("notes")

    def wait_counters(self, want):
        for _ in range(400):
            c = self.counters()
            if want(c):
                return c
            time.sleep(0.05)
        raise AssertionError(c)

    def connect(self, host="127.0.0.1"):
        return socket.create_connection((host, self.port), timeout=30)

    def close(self):
        self.stopping = True
        self.thread.join()
        self.proxy.close()


def read_all(s):
    data = b""
    while more := s.recv(1 << 16):
        data += more
    return data


def is_reset(s):
    """s: a connection, or what makes one (the reset may be quicker than connect() returns)."""
    try:
        s = s() if callable(s) else s
        return s.recv(1) == b"" and False
    except ConnectionResetError:
        return True


def transfer(s, blob):
    """Sends blob while reading it back; returns what came."""
    got = bytearray()

    def reader():
        while more := s.recv(1 << 18):
            got.extend(more)
    t = threading.Thread(target=reader)
    t.start()
    s.sendall(blob)
    s.shutdown(socket.SHUT_WR)
    t.join(60)
    return bytes(got)


@netlab.isolated
def test_relay_integrity_and_half_close():
    with netlab.Lab() as lab:
        s = Setup(lab)
        app = App(s.jail, echo)
        blob = os.urandom(1 << 20) * 32
        c = s.connect()
        got = transfer(c, blob)
        assert len(got) == len(blob) and hashlib.sha256(got).digest() == hashlib.sha256(blob).digest()
        c.close()
        # a client that half-closes first, and a server that only then answers
        app.close()

        def late(conn, peer):
            n = len(read_all(conn))
            conn.sendall(b"x" * 3000000 + str(n).encode())
            conn.close()
        app = App(s.jail, late)
        c = s.connect()
        c.sendall(b"a" * 500000)
        c.shutdown(socket.SHUT_WR)
        time.sleep(0.2)
        data = read_all(c)
        assert data == b"x" * 3000000 + b"500000"
        c.close()
        app.close()

        # a server that says all and closes without reading: nothing of it is lost
        def rude(conn, peer):
            conn.recv(1)
            conn.sendall(b"y" * 200000)
            conn.shutdown(socket.SHUT_WR)
            time.sleep(0.5)
            conn.close()
        app = App(s.jail, rude)
        c = s.connect()
        c.sendall(b"z" * 100000)
        assert read_all(c) == b"y" * 200000
        c.close()
        app.close()

        # a reset stays a reset, in both directions
        seen = []

        def resetting(conn, peer):
            conn.recv(1)
            conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            conn.close()
        app = App(s.jail, resetting)
        c = s.connect()
        c.sendall(b"q")
        assert is_reset(c)
        app.close()

        def watch(conn, peer):
            conn.sendall(b"!")
            seen.append(is_reset(conn))
        app = App(s.jail, watch)
        c = s.connect()
        assert c.recv(1) == b"!"
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()
        for _ in range(200):
            if seen:
                break
            time.sleep(0.02)
        assert seen == [True]
        # slow reader: bounded, and whole
        app.close()
        app = App(s.jail, lambda conn, peer: (conn.sendall(b"s" * 20000000), conn.close()))
        c = s.connect()
        time.sleep(0.5)
        total = 0
        while more := c.recv(1 << 16):
            total += len(more)
        assert total == 20000000
        c.close()
        s.wait_counters(lambda k: k["in_open"] == 0)
        s.close()


@netlab.isolated
def test_gates():
    with netlab.Lab() as lab:
        s = Setup(lab, gate="hold")
        app = App(s.jail, echo)
        clients = [s.connect() for _ in range(256)]
        for i, c in enumerate(clients):
            c.sendall(b"hello %d" % i)
        time.sleep(0.3)
        assert s.counters()["in_total"] == 0  # they wait in the queue of the listener
        s.proxy.gate("notes", "serve")
        for i, c in enumerate(clients):
            assert c.recv(100) == b"hello %d" % i
            c.close()
        s.wait_counters(lambda k: k["in_open"] == 0 and k["in_total"] == 256)
        # refused inside: tried again until the app is there
        app.close()
        c = s.connect()
        c.sendall(b"early bytes")
        time.sleep(0.3)
        app = App(s.jail, echo)
        assert c.recv(100) == b"early bytes"
        # the jail goes: an established connection is reset; one that waits is served by the next launch
        app.close()
        waiting = s.connect()
        waiting.sendall(b"next")
        time.sleep(0.2)
        s.proxy.send("drop", app="notes")
        assert is_reset(c)
        s.proxy.gate("notes", "hold")
        s.jail = lab.jail()
        s.proxy.make_socket = s.jail.pool_socket
        app = App(s.jail, echo)
        s.proxy.jail("notes")
        s.proxy.gate("notes", "serve")
        assert waiting.recv(100) == b"next"
        # reset: at once, also those that wait
        app.close()
        held = s.connect()
        time.sleep(0.1)
        s.proxy.gate("notes", "reset")
        assert is_reset(held)
        assert is_reset(s.connect)
        waiting.close()
        s.wait_counters(lambda k: k["in_open"] == 0)
        s.close()


@netlab.isolated
def test_families_and_client_addresses():
    with netlab.Lab() as lab:
        s = Setup(lab, bind="::")
        # only ::1
        app = App(s.jail, say_peer, "::1")
        assert read_all(s.connect("127.0.0.1")) == b"::1"
        assert read_all(s.connect("::1")) == b"::1"
        app.close()
        # only 127.0.0.1 (what was remembered is corrected)
        app = App(s.jail, say_peer)
        for _ in range(3):
            assert read_all(s.connect("::1")) == b"127.0.0.1"
        # a client from elsewhere keeps its address, v4 and (to a v6 listener) v6
        lab.address("11.2.0.99", "2a0e:b2::99")
        c = lab.inet.connect((lab.HOST4, s.port), source=("11.2.0.99", 0))
        assert read_all(c) == b"11.2.0.99"
        c = lab.inet.connect((lab.HOST6, s.port), source=("2a0e:b2::99", 0))
        assert read_all(c) == b"198.18.0.2"  # the app has no v6: a stand-in that is not loopback
        app.close()
        app = App(s.jail, say_peer, "::1")
        c = lab.inet.connect((lab.HOST6, s.port), source=("2a0e:b2::99", 0))
        assert read_all(c) == b"2a0e:b2::99"
        c = lab.inet.connect((lab.HOST4, s.port), source=("11.2.0.99", 0))
        assert read_all(c) == b"64:ff9b::b02:63"
        # the host's own other address is not loopback either
        assert read_all(s.connect(lab.HOST6)) == lab.HOST6.encode()
        s.close()


@netlab.isolated
def test_loopback_ports():
    with netlab.Lab() as lab:
        s = Setup(lab)
        db = socket.create_server(("127.0.0.1", 0))
        port = db.getsockname()[1]
        other = socket.create_server(("127.0.0.1", 0))
        v4, v6 = s.jail.listen(("127.0.0.1", port)), s.jail.listen(("::1", port))
        s.proxy.jail("notes", loopback=[(v4, port), (v6, port)])
        v4.close()
        v6.close()
        for host in ("127.0.0.1", "::1"):
            c = s.jail.connect((host, port))
            c.sendall(b"query")
            d, _ = db.accept()
            assert d.recv(10) == b"query"
            d.sendall(b"row")
            d.close()
            assert read_all(c) == b"row"
        try:
            s.jail.connect(("127.0.0.1", other.getsockname()[1]), timeout=5)
            raise AssertionError("another port of the host was reached")
        except ConnectionRefusedError:
            pass
        db.close()
        assert is_reset(lambda: s.jail.connect(("127.0.0.1", port)))
        s.close()


@netlab.isolated
def test_killed_proxy_is_told_again():
    with netlab.Lab() as lab:
        s = Setup(lab)
        App(s.jail, echo)
        for _ in range(10):
            c = s.connect()
            c.sendall(b"x")
            assert c.recv(1) == b"x"
            with s.lock:
                s.proxy.kill()
                # the listener is still there: a client that comes now waits
                between = s.connect()
                between.sendall(b"between")
                s.proxy.start()
                s.tell("serve")
            assert between.recv(100) == b"between"
            try:
                assert c.recv(1) == b""
            except ConnectionResetError:
                pass
            between.close()
        s.close()


@netlab.isolated
def test_end_of_supervisor_ends_the_proxy():
    with netlab.Lab() as lab:
        s = Setup(lab)
        s.stopping = True
        s.thread.join()
        s.proxy.wire.close()
        assert s.proxy.proc.wait(20) == 0


def rss_kib(pid):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith(("Private_Dirty", "Private_Clean")))


@netlab.isolated
def test_idle_connections_are_small():
    n = 2000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    with netlab.Lab() as lab:
        s = Setup(lab)
        listener, kept = s.jail.listen(("127.0.0.1", APP_PORT), 4096), []

        def keep():
            while True:
                c, _ = listener.accept()
                c.sendall(b"x")
                kept.append(c)
        threading.Thread(target=keep, daemon=True).start()
        clients = [s.connect() for _ in range(200)]  # buffers of the loop and the pool have their size after these
        for c in clients:
            assert c.recv(1) == b"x"
        before, base = private_of(s), len(clients)
        clients += [s.connect() for _ in range(n)]
        for c in clients[base:]:
            assert c.recv(1) == b"x"
        grown = private_of(s) - before
        assert s.counters()["in_open"] == base + n
        if "sanitizers" not in open(lab.path("proxy.log")).read():
            assert grown / n <= 2, f"{grown / n:.2f} KiB a connection"
        s.close()


@netlab.isolated
def test_out_of_descriptors():
    with netlab.Lab() as lab:
        s = Setup(lab, args=["--verbose"], nofile=256)
        App(s.jail, echo)
        clients = [s.connect() for _ in range(150)]  # more than fit
        for c in clients:
            c.sendall(b"x")
            c.settimeout(1)
        served = []
        for c in clients:
            try:
                served.append(c.recv(1) == b"x" and c)
            except TimeoutError:
                break
        assert 30 < len(served) < 150, len(served)
        before = cpu_ticks(s.proxy.proc.pid)
        time.sleep(1)
        assert cpu_ticks(s.proxy.proc.pid) - before < 50, "it spins"
        for c in served:  # the rest waited in the queue
            c.close()
        for c in clients[len(served):]:
            c.settimeout(30)
            assert c.recv(1) == b"x"
            c.close()
        assert open(lab.path("proxy.log")).read().count("cannot accept") in (1, 2)
        s.close()


def cpu_ticks(pid):
    v = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return int(v[11]) + int(v[12])


def private_of(s):
    # root can read smaps of a non-dumpable process; a user in its own namespace cannot: statm is enough then
    try:
        return rss_kib(s.proxy.proc.pid)
    except PermissionError:
        with open(f"/proc/{s.proxy.proc.pid}/statm") as f:
            return int(f.read().split()[1]) * 4


@netlab.isolated
def test_confinement():
    with netlab.Lab() as lab:
        s = Setup(lab)
        status = dict(line.split(":\t", 1) for line in open(f"/proc/{s.proxy.proc.pid}/status").read().splitlines()
                      if ":\t" in line)
        assert status["NoNewPrivs"] == "1" and os.getsid(s.proxy.proc.pid) == s.proxy.proc.pid
        text = open(lab.path("proxy.log")).read()
        if "sanitizers" not in text:
            assert status["Seccomp"] == "2", text
        limits = open(f"/proc/{s.proxy.proc.pid}/limits").read()
        assert "Max core file size        0                    0" in limits
        s.close()


@netlab.isolated
def test_other_user():
    if open("/proc/self/uid_map").read().split()[2] == "1":
        import pytest
        pytest.skip("needs more than one user: root")
    with netlab.Lab() as lab:
        s = Setup(lab, args=["--uid", "65534", "--gid", "65534"])
        App(s.jail, echo)
        c = s.connect()
        c.sendall(b"x")
        assert c.recv(1) == b"x"
        status = open(f"/proc/{s.proxy.proc.pid}/status").read()
        assert "Uid:\t65534\t65534\t65534\t65534" in status and "Gid:\t65534\t65534\t65534\t65534" in status
        assert "CapEff:\t0000000000000000" in status and "Groups:\t \n" in status
        s.close()


@netlab.isolated
def test_bad_messages_hurt_nobody():
    with netlab.Lab() as lab:
        s = Setup(lab)
        App(s.jail, echo)
        with s.lock:
            p = s.proxy
            p.send("nonsense", x=1)
            p.send("gate", mode="serve")
            p.send("listen", app="other", ports=[{"host": 1, "app": 2}])
            p.send("jail", app="other", launch=1, egress=True, loopback=[80])
            p.send("pool", app="notes", launch=999)
            p.send("policy", app="other", policy=[])
            p.send("stats")
            p.send("remove", app="never")
        c = s.connect()
        c.sendall(b"x")
        assert c.recv(1) == b"x"
        s.close()
