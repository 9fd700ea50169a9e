"""Listen=: who reaches an app, as whom, and whether every byte arrives; and that a killed sbxsv-proxy loses no port."""
import hashlib
import os
import random
import resource
import socket
import threading

import harness
import netlab
import netsup

KILLS = int(os.environ.get("SBXSV_TEST_KILLS", "20"))
BINDS = {"v4": "127.0.0.1", "any4": "0.0.0.0", "v6": "::1", "any6": "::", "dual": None}
PEER = "result = peer"
EXEC = "[Ready]\nType=exec"  # the second port is opened later, by the test


def is_loopback(address):
    return address in ("::1", "127.0.0.1", "::ffff:127.0.0.1")


@netsup.lab
def test_an_app_is_reached_wherever_it_binds(lab, sup):
    for name, bind in BINDS.items():
        sup.agent(name, bind=bind)
    # another number inside, and a second port
    sup.agent("mapped", listen=lambda port: f"{port}:80")
    second = harness.free_port()
    sup.agent("two", f"Listen={second}:{second + 1}", body=EXEC)
    sup.up_all()
    for name in sup.ports:
        assert is_loopback(sup.run(name, PEER)), name
    assert sup.run("mapped", "result = os.environ['PORT']") == "80"
    assert sup.run("two", f"""
        s = socket.create_server(("0.0.0.0", {second + 1}))
        def serve():
            while True:
                c, _ = s.accept()
                c.sendall(b"second")
                c.close()
        threading.Thread(target=serve, daemon=True).start()
    """) is None
    with socket.create_connection(("127.0.0.1", second), 20) as c:
        assert c.recv(10) == b"second"
    # on 127.0.0.1 only: neither on the other addresses of this machine nor in the other family
    for host in ("11.1.0.2", "::1", "2a0e:b1::2", "127.0.0.2"):
        with netsup.raises(ConnectionRefusedError):
            socket.create_connection((host, sup.ports["dual"]), 20)
    # the number inside means nothing on the host
    with netsup.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", second + 1), 20)


@netsup.lab
def test_a_client_of_the_lan_is_not_taken_for_this_machine(lab, sup):
    lan = lab.lan()
    for name, bind in BINDS.items():
        sup.agent(name, "ListenAddress=0.0.0.0", bind=bind)
        sup.agent(name + "-six", "ListenAddress=::", bind=bind)
    sup.up_all()
    for name, bind in BINDS.items():
        six = name + "-six"
        with lan:  # this thread is the neighbour now
            four_sees, six_sees = sup.run(name, PEER, host="192.168.77.1"), sup.run(six, PEER, host="fd00:77::1")
        # its own address; or, when the app has only the other family, one that is nobody's and tells it
        assert four_sees.removeprefix("::ffff:") == "192.168.77.2" if bind not in ("::1", "::") else four_sees == "64:ff9b::c0a8:4d02"
        assert six_sees == "fd00:77::2" if bind not in ("127.0.0.1", "0.0.0.0") else six_sees == "198.18.0.2", (name, six_sees)
        # from this machine, by loopback and by its own address
        for a in ("127.0.0.1", "127.0.0.9"):
            assert is_loopback(sup.run(name, PEER, host=a)), name
        assert is_loopback(sup.run(six, PEER, host="::1")), name
        assert not is_loopback(sup.run(name, PEER, host="192.168.77.1"))
    # a client that binds a loopback address of its own can only be this machine
    with socket.create_connection(("127.0.0.1", sup.ports["dual"]), 20, source_address=("127.9.9.9", 0)) as c:
        c.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\nConnection: close\r\n\r\nresult = peer")
        assert b"127.0.0.1" in b"".join(iter(lambda: c.recv(4096), b""))


# A second port that speaks a small protocol: "up N\n" + N bytes -> sha256; "down N\n" -> N bytes, sha256; "late\n": all it gets
# until the end of file, then the length; "first\n": "done", end of file, then keeps what it gets; "echo\n": echo.
STREAMS = """
import hashlib, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
kept = globals().setdefault("kept", [])
held = []
def exactly(c, n, h):
    while n:
        data = c.recv(min(n, 1 << 20))
        if not data:
            return n
        h.update(data)
        n -= len(data)
    return 0
def serve(c):
    f = b""
    while not f.endswith(b"\\n"):
        f += c.recv(1)
    word, _, n = f.decode().strip().partition(" ")
    h = hashlib.sha256()
    if word == "up":
        c.sendall(f"{exactly(c, int(n), h)} {h.hexdigest()}".encode())
    elif word == "down":
        block = os.urandom(1 << 20)
        for _ in range(int(n) >> 20):
            h.update(block)
            c.sendall(block)
            block = block[1:] + block[:1]
        c.sendall(h.hexdigest().encode())
    elif word == "late":
        got = b"".join(iter(lambda: c.recv(65536), b""))
        c.sendall(str(len(got)).encode())
    elif word == "first":
        c.sendall(b"done")
        c.shutdown(socket.SHUT_WR)
        kept.append(len(b"".join(iter(lambda: c.recv(65536), b""))))
    elif word == "echo":
        while data := c.recv(65536):
            c.sendall(data)
    elif word == "GET":
        while not f.endswith(b"\\r\\n\\r\\n"):
            f += c.recv(1)
        c.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n\\r\\n")
        while data := c.recv(65536):
            c.sendall(data[::-1])
    elif word == "hold":
        held.append(c)
        c.sendall(b"held")
        return
    c.close()
def accept(s):
    while True:
        threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
s = socket.create_server(("", PORT2), backlog=1024)
threading.Thread(target=accept, args=(s,), daemon=True).start()
builtins = __import__("builtins")
builtins.kept, builtins.held = kept, held
"""


def streams(lab, sup, name="app"):
    port = harness.free_port()
    sup.agent(name, f"Listen={port}", body=EXEC)
    sup.up_all()
    start_streams(sup, name, port)
    return port


def start_streams(sup, name, port):
    sup.run(name, STREAMS.replace("PORT2", str(port)))


def ask(port, word, timeout=120):
    s = socket.create_connection(("127.0.0.1", port), timeout)
    s.sendall(word.encode() + b"\n")
    return s


def rest(s):
    return b"".join(iter(lambda: s.recv(1 << 16), b""))


def in_threads(*calls):
    """Runs them at once; raises what one of them raised."""
    errors = []

    def guard(fn, args):
        try:
            fn(*args)
        except BaseException as e:  # noqa: raised again below
            errors.append(e)
    threads = [threading.Thread(target=guard, args=(fn, args)) for fn, *args in calls]
    for t in threads:
        t.start()
    for t in threads:
        t.join(150)
        assert not t.is_alive()
    if errors:
        raise errors[0]


@netsup.lab
def test_every_byte_arrives_and_ends_are_passed_on(lab, sup):
    port = streams(lab, sup)
    size = 50 << 20

    def up():
        block, h = os.urandom(1 << 20), hashlib.sha256()
        with ask(port, f"up {size}") as s:
            for _ in range(size >> 20):
                h.update(block)
                s.sendall(block)
                block = block[1:] + block[:1]
            assert rest(s).decode() == f"0 {h.hexdigest()}"

    def down(s, start=None):
        if start:
            assert start.wait(120)
        h, left = hashlib.sha256(), size
        with s:
            while left:
                data = s.recv(min(left, 1 << 18))
                assert data
                h.update(data)
                left -= len(data)
            assert rest(s).decode() == h.hexdigest()

    # a reader that takes nothing until all others are done: it holds up nobody, and costs no memory
    slow_start = threading.Event()
    slow = ask(port, f"down {size}")
    before = netsup.memory(sup.proxy_pid())
    in_threads(*[(up,)] * 4)
    in_threads(*[(down, ask(port, f"down {size}"))for _ in range(3)])
    assert netsup.memory(sup.proxy_pid()) - before < 4096
    slow_start.set()
    down(slow, slow_start)
    # our end first, then the app's answer; the app's end first, then our bytes
    with ask(port, "late") as s:
        s.sendall(b"x" * 3000000)
        s.shutdown(socket.SHUT_WR)
        assert rest(s) == b"3000000"
    with ask(port, "first") as s:
        assert rest(s) == b"done"
        s.sendall(b"y" * 3000000)
    assert harness.wait_for(lambda: sup.run("app", "result = kept"), 30, "what came after the app's end") == [3000000]
    # an upgraded connection is bytes both ways
    with socket.create_connection(("127.0.0.1", port), 20) as s:
        s.sendall(b"GET /ws HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        head = b""
        while b"\r\n\r\n" not in head:
            head += s.recv(1)
        assert b" 101 " in head
        for i in range(50):
            s.sendall(b"\x81\x04fr%02d" % i)
            assert s.recv(100) == (b"\x81\x04fr%02d" % i)[::-1]
    c = harness.wait_for(lambda: (lambda c: c if c["in_open"] == 0 else None)(sup.peek("app")["counters"]), 30, "no open connection")
    assert c["bytes_in"] > 4 * size and c["bytes_out"] > 4 * size


@netsup.lab
def test_a_thousand_idle_connections_end_with_the_app(lab, sup):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1200:
        netsup.skip(f"only {hard} descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    port = streams(lab, sup)
    idle = []
    for _ in range(1000):
        s = ask(port, "hold")
        assert s.recv(4) == b"held"
        idle.append(s)
    assert sup.run("app", "result = len(held)") == 1000
    harness.wait_for(lambda: sup.peek("app")["counters"]["in_open"] == 1000, 30, "1000 open connections in status")
    pid = sup.peek("app")["pid"]
    # they cost a request nothing
    assert is_loopback(sup.run("app", PEER))
    sup.ok("restart", "app")
    assert sup.wait_state("app", "running")["pid"] != pid
    for s in idle:
        try:
            assert s.recv(1) == b""
        except ConnectionResetError:
            pass
        s.close()
    harness.wait_for(lambda: sup.peek("app")["counters"]["in_open"] == 0, 30, "no open connection in status")
    start_streams(sup, "app", port)
    with ask(port, "echo") as s:
        s.sendall(b"again")
        assert s.recv(5) == b"again"


@netsup.lab
def test_a_killed_proxy_loses_no_port(lab, sup):
    lab.dns({"a.test": ["11.2.0.10"]})
    lab.http_site("a.test", "11.2.0.10")
    for name in ("one", "two", "three"):
        sup.agent(name, "Allow=a.test")
    sup.up_all()
    pids = {n: sup.peek(n)["pid"] for n in sup.ports}
    stop, refused, other, served = threading.Event(), [], [], [0]

    def client(name):
        while not stop.is_set():
            try:
                s = socket.create_connection(("127.0.0.1", sup.ports[name]), 60)
            except OSError as e:  # a listening socket refuses nothing
                refused.append((name, repr(e)))
                continue
            with s:
                try:
                    s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    if b"ok " in rest(s):
                        served[0] += 1
                except ConnectionError:
                    pass  # was being relayed when the proxy died
                except OSError as e:
                    other.append((name, repr(e)))
    threads = [threading.Thread(target=client, args=(n,)) for n in sup.ports for _ in range(2)]
    for t in threads:
        t.start()
    rng = random.Random(1)
    for i in range(KILLS):
        pid = harness.wait_for(sup.proxy_pid, 30, "a proxy")
        want = served[0] + rng.randrange(40)  # a moment that is different each time, the very start of the proxy included
        harness.wait_for(lambda: served[0] >= want, 60, "requests that are served", step=0.001)
        harness.kill_pid(pid)
        harness.wait_for(lambda: sup.proxy_pid() not in (pid, None), 30, "the next proxy")
        if i % 5 == 0:
            assert sup.run("one", "result = get('http://a.test/')[0]") == 200
    stop.set()
    for t in threads:
        t.join(90)
        assert not t.is_alive()
    assert not refused and not other, (refused, other)
    for name, pid in pids.items():
        s = sup.peek(name)
        assert (s["pid"], s["state"], s["launches"]) == (pid, "running", 1)
        assert all(p["state"] == "held" for p in s["ports"])
        assert sup.run(name, "result = [get('http://a.test/')[0], connect('b.test:443')[0]]") == [200, 403]
    assert sup.api("GET", "/v1/status")[1]["supervisor"]["proxy"]["restarts"] == KILLS
    # a count is lost with the last fraction of a second of a killed proxy, but what was reported stays
    at_least = sup.peek("one")["counters"]["in_total"]
    for _ in range(10):
        assert is_loopback(sup.run("one", PEER))
    harness.wait_for(lambda: sup.peek("one")["counters"]["in_total"] >= at_least + 10, 30, "ten more connections in status")
